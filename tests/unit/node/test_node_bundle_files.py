"""The static files of the bundle: they parse, and say what has been settled."""

import ast
import configparser
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from node.boot_broker import BROKER_LIMIT_SECONDS
from node.services import STOP_LIMIT_SECONDS
from tests.unit.node.world import PROJECT

USERDATA, CONSUL = PROJECT / "userdata", PROJECT / "consul"
SOURCES = sorted((USERDATA / "node").glob("*.py"))


# -- Python ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_the_code_is_that_of_python_3_9(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    assert "from __future__ import annotations" in path.read_text() or not tree.body[1:]


NEWER = {  # what a newer Python would let through, and the checker too
    "zip(strict": r"zip\([^)]*strict=",
    "itertools.pairwise": r"\bpairwise\b",
    "datetime.UTC": r"\bdatetime\.UTC\b|import UTC\b",
    "dataclass(slots": r"dataclass\([^)]*(slots|kw_only)=",
    "tomllib": r"\btomllib\b",
    "ExceptionGroup": r"\bExceptionGroup\b|\bexcept\*",
    "StrEnum": r"\bStrEnum\b",
    "bit_count": r"\.bit_count\(",
    "int | str at run time": r"isinstance\([^)]*\w \| \w",
    "typing.Self and friends": r"from typing import .*\b(Self|assert_never|override|TypeAlias|ParamSpec)\b",
    "hashlib.file_digest": r"\bfile_digest\b",
    "contextlib.chdir": r"\bcontextlib\.chdir\b",
    "match": r"^\s*match .*:$",
}


@pytest.mark.parametrize("name", NEWER)
def test_nothing_is_used_that_python_3_9_lacks(name: str) -> None:
    users = [path.name for path in SOURCES if re.search(NEWER[name], path.read_text(), re.MULTILINE)]
    assert users == []


def test_the_node_code_imports_nothing_but_itself_the_standard_library_and_boto3() -> None:
    allowed = {*sys.stdlib_module_names, "node", "boto3", "botocore"}
    for path in SOURCES:
        for statement in ast.walk(ast.parse(path.read_text())):
            if isinstance(statement, ast.ImportFrom):
                names = [str(statement.module)]
            elif isinstance(statement, ast.Import):
                names = [alias.name for alias in statement.names]
            else:
                continue
            for name in names:
                # Types of boto3's clients are for the checker only; a host does not have them.
                assert name.split(".")[0] in allowed or name.startswith("mypy_boto3_"), (path.name, name)


@pytest.mark.usefixtures("real_programs")
def test_boot_sh_proves_that_the_bundle_can_run(tmp_path: Path) -> None:
    proof = re.search(r"^prove_bundle\(\) \{ (.*); \}$", (USERDATA / "boot.sh").read_text(), re.MULTILINE)
    assert proof
    package = tmp_path / "node"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "agent.py").touch()
    for content, code in (("", 0), ("import no_such_module\n", 1)):
        (package / "boot_run.py").write_text(content)
        script = f"BUNDLE={tmp_path}; {proof[1]}"
        done = subprocess.run(["bash", "-c", script], capture_output=True, check=False)
        assert done.returncode == code


# -- systemd -----------------------------------------------------------------------------------------------------------


def unit(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(path.read_text())
    return parser


UNITS = {
    "rabbitmq-server": USERDATA / "systemd/rabbitmq-server.conf",
    "consul": CONSUL / "consul.service",
    "agent": USERDATA / "systemd/rabbitmq-node-agent.service",
    "boot": USERDATA / "systemd/rabbitmq-node-boot.service",
}


@pytest.mark.parametrize("name", UNITS)
def test_systemd_never_gives_up_for_good(name: str) -> None:
    parsed = unit(UNITS[name])
    assert parsed["Unit"]["StartLimitIntervalSec"] == "0"
    assert parsed["Service"]["Restart"] == ("on-failure" if name == "boot" else "always")
    assert 0 < float(parsed["Service"]["RestartSec"]) <= 5


@pytest.mark.parametrize("name", ["rabbitmq-server", "consul"])
def test_no_service_starts_on_an_empty_mount_point(name: str) -> None:
    assert unit(UNITS[name])["Unit"]["AssertPathIsMountPoint"] == "/mnt/rabbitmq"


@pytest.mark.parametrize("name", ["rabbitmq-server", "consul"])
def test_only_the_boot_starts_a_service(name: str) -> None:
    assert not unit(UNITS[name]).has_section("Install")


@pytest.mark.parametrize("name", ["rabbitmq-server", "consul"])
def test_systemd_ends_what_does_not_stop_before_the_node_code_stops_waiting(name: str) -> None:
    assert float(unit(UNITS[name])["Service"]["TimeoutStopSec"]) < STOP_LIMIT_SECONDS


def test_rabbitmq_is_killed_only_once_its_application_has_stopped() -> None:
    # Left to itself the Erlang machine has been seen to hang at its end for the whole TimeoutStopSec. A command that
    # fails keeps systemd from running the next one.
    commands = re.findall(r"^ExecStop=(.*)$", UNITS["rabbitmq-server"].read_text(), re.MULTILINE)
    assert commands == ["", "/usr/sbin/rabbitmqctl stop_app", "/bin/kill -KILL $MAINPID"]


def test_the_broker_holds_the_directorys_lock_to_its_end() -> None:
    *_, command = re.findall(r"^ExecStart=(.+)$", UNITS["rabbitmq-server"].read_text(), re.MULTILINE)
    assert command.startswith("/usr/bin/flock --no-fork ")
    assert "/mnt/rabbitmq/lock" in command


def test_the_brokers_start_may_take_as_long_as_its_own_waits() -> None:
    khepri = int(re.search(r"khepri_leader_wait_retry_timeout, (\d+)", _text("advanced.config"))[1]) / 1000  # type: ignore[index]
    lock = int(re.search(r"--timeout (\d+)", UNITS["rabbitmq-server"].read_text())[1])  # type: ignore[index]
    start = float(unit(UNITS["rabbitmq-server"])["Service"]["TimeoutStartSec"])
    mnesia = int(settings()["mnesia_table_loading_retry_timeout"]) / 1000
    mnesia *= int(settings()["mnesia_table_loading_retry_limit"])
    assert start >= max(khepri, mnesia) + lock
    assert max(khepri, mnesia) <= BROKER_LIMIT_SECONDS


def test_node_units_run_the_current_bundle_and_speak_with_one_tag() -> None:
    for name in ("agent", "boot"):
        service = unit(UNITS[name])["Service"]
        assert service["Environment"] == "PYTHONPATH=/opt/rabbitmq-node/current"
        assert service["SyslogIdentifier"] == "rabbitmq-node"
        assert service["ExecStart"] == f"/usr/bin/python3 -m node {name}"


# -- RabbitMQ ----------------------------------------------------------------------------------------------------------


def _text(name: str) -> str:
    return (USERDATA / "rabbitmq" / name).read_text()


def settings() -> dict[str, str]:
    lines = [line for line in _text("rabbitmq.conf").splitlines() if line and not line.startswith("#")]
    pairs = [(key, value) for key, _, value in (line.partition(" = ") for line in lines)]
    found = dict(pairs)
    assert len(found) == len(pairs), "a key stands twice"
    return found


SETTLED = {
    "default_queue_type": "quorum",
    "queue_leader_locator": "balanced",
    "cluster_formation.peer_discovery_backend": "consul",
    "cluster_formation.consul.host": "127.0.0.1",
    "cluster_formation.consul.svc_addr_use_nodename": "true",
    "cluster_formation.consul.use_longname": "false",
    "cluster_formation.node_cleanup.only_log_warning": "true",  # cleanup would forget members that only restart
    "cluster_formation.target_cluster_size_hint": "3",
    "cluster_partition_handling": "pause_minority",
    "quorum_queue.continuous_membership_reconciliation.enabled": "true",
    "quorum_queue.continuous_membership_reconciliation.target_group_size": "3",
    "quorum_queue.continuous_membership_reconciliation.auto_remove": "false",
    "definitions.import_backend": "local_filesystem",
    "definitions.local.path": "/etc/rabbitmq/definitions.json",
}


@pytest.mark.parametrize("key", SETTLED)
def test_rabbitmq_conf_holds_what_was_settled(key: str) -> None:
    assert settings()[key] == SETTLED[key]


def test_discovery_gives_up_only_after_days_for_alone_it_would_found_a_second_cluster() -> None:
    seconds = int(settings()["cluster_formation.discovery_retry_limit"])
    seconds *= int(settings()["cluster_formation.discovery_retry_interval"]) // 1000
    assert seconds > 7 * 86400


def test_consuls_minimum_for_deregistration_is_kept() -> None:
    assert int(settings()["cluster_formation.consul.deregister_after"]) >= 60


def test_there_is_no_default_user_and_no_password() -> None:
    assert [key for key in settings() if key.startswith("default_") and key != "default_queue_type"] == []
    assert not re.search("password|secret", "\n".join(f"{key} {value}" for key, value in settings().items()))


def test_only_the_data_is_on_efs() -> None:
    lines = [line for line in _text("rabbitmq-env.conf").splitlines() if line and not line.startswith("#")]
    on_efs = [line.split("=")[0] for line in lines if "/mnt/rabbitmq" in line]
    assert on_efs == ["MNESIA_BASE"]
    assert {line.split("=")[0] for line in lines} == {"MNESIA_BASE", "PLUGINS_EXPAND_DIR", "PID_FILE", "LOG_BASE"}


def test_the_enabled_plugins_are_those_of_the_design() -> None:
    assert re.fullmatch(r"\[[a-z_,]+\]\.\n", _text("enabled_plugins"))
    assert set(_text("enabled_plugins").strip("[].\n").split(",")) == {
        "rabbitmq_delayed_message_exchange",
        "rabbitmq_management",
        "rabbitmq_peer_discovery_consul",
        "rabbitmq_prometheus",
    }


# -- Consul ------------------------------------------------------------------------------------------------------------


def test_consul_keeps_its_raft_data_on_efs_and_listens_on_loopback() -> None:
    document = json.loads((CONSUL / "server.json").read_text())
    assert document["data_dir"] == "/mnt/rabbitmq/consul"
    assert document["client_addr"] == "127.0.0.1"
    assert document["bootstrap_expect"] == 3
    assert document["leave_on_terminate"] is False
    assert document["skip_leave_on_interrupt"] is True
    assert document["autopilot"]["cleanup_dead_servers"] is False
    assert document["retry_max"] == 0
    assert "encrypt" not in document
    assert document["ports"]["serf_wan"] == -1


def test_consuls_names_go_to_consul_and_nothing_else_does() -> None:
    resolve = unit(CONSUL / "resolved.conf")["Resolve"]
    assert resolve["DNS"] == "127.0.0.1:8600"
    assert resolve["Domains"].split()[0] == "~consul"
