"""The commands' way to the daemon, and the commands themselves as far as they need no root."""

import json
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lab.__main__ as commands
from lab.control import ControlServer, ask, socket_path
from lab.paths import LabPaths
from lab.system import LabError

INSTANCES: list[dict[str, Any]] = [
    {"node": "n-a", "instance_id": "i-1", "availability_zone": "z-a", "state": "terminated", "launched": "1"},
    {"node": "n-a", "instance_id": "i-2", "availability_zone": "z-a", "state": "shutting-down", "launched": "9"},
    {"node": "n-a", "instance_id": "i-3", "availability_zone": "z-a", "state": "running", "launched": "3"},
    {"node": "n-b", "instance_id": "i-4", "availability_zone": "z-b", "state": "running", "launched": "3"},
]
for _instance in INSTANCES:
    _instance |= {"address": "10.9.0.9", "lifecycle_state": "InService", "host": "up"}
    _instance["targets"] = [{"group": "amqp", "port": 5672, "state": "healthy", "detail": ""}]


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabPaths:
    found = LabPaths("test", "eu-west-1", 4599, IPv4Network("10.9.0.0/16"), tmp_path / "state", tmp_path / "cache")
    monkeypatch.setattr(commands, "_paths", lambda env: found)
    return found


@pytest.fixture
def asked(paths: LabPaths) -> Iterator[list[dict[str, Any]]]:
    """A daemon which notes what it is asked."""
    requests: list[dict[str, Any]] = []

    def refuse(_: dict[str, Any]) -> None:
        raise LabError("not today")

    status = {
        "instances": INSTANCES,
        "endpoint": "http://localhost:4599",
        "image": "host image: ready",
        "load_balancers": [{"name": "nlb", "address": "127.77.1.10", "ports": [5672]}],
        "problems": {"network": "no bridge"},
    }
    server = ControlServer(
        paths, {"status": lambda _: status, "kill": requests.append, "terminate": requests.append, "refuse": refuse}
    )
    yield requests
    server.close()


def test_an_answer_comes_back_and_a_refusal_is_an_error_in_the_daemon_s_words(
    paths: LabPaths, asked: list[dict[str, Any]]
) -> None:
    assert ask(paths, "status")["endpoint"] == "http://localhost:4599"
    with pytest.raises(LabError, match="not today"):
        ask(paths, "refuse")


def test_only_the_owner_can_talk_to_the_daemon(paths: LabPaths, asked: list[dict[str, Any]]) -> None:
    assert socket_path(paths).stat().st_mode & 0o777 == 0o600


def test_without_a_daemon_the_error_says_how_to_start_it(paths: LabPaths) -> None:
    with pytest.raises(LabError, match="python -m lab up --env test"):
        ask(paths, "status")


@pytest.mark.parametrize(("node", "instance_id"), [("n-a", "i-3"), ("z-b", "i-4"), ("i-2", "i-2")])
def test_a_node_is_named_by_name_zone_or_instance_and_means_the_living_one(
    paths: LabPaths, asked: list[dict[str, Any]], node: str, instance_id: str
) -> None:
    result = CliRunner().invoke(commands.app, ["kill", node, "--replace-after", "45"])
    assert result.exit_code == 0
    assert asked == [{"instance_id": instance_id, "replace_after": 45.0}]


def test_an_unknown_node_is_an_error_that_names_the_known_ones(paths: LabPaths, asked: list[dict[str, Any]]) -> None:
    with pytest.raises(LabError, match=r"no node n-x\. Its nodes: n-a, n-b"):
        CliRunner().invoke(commands.app, ["terminate", "n-x"], catch_exceptions=False)
    assert asked == []


def test_status_shows_living_instances_targets_and_problems(paths: LabPaths, asked: list[dict[str, Any]]) -> None:
    printed = CliRunner().invoke(commands.app, ["status"]).output
    assert "i-3" in printed
    assert "i-1" not in printed
    assert "5672:UP" in printed
    assert "127.77.1.10" in printed
    assert "problem: network: no bridge" in printed


def test_status_as_json_is_what_the_daemon_said(paths: LabPaths, asked: list[dict[str, Any]]) -> None:
    printed = CliRunner().invoke(commands.app, ["status", "--json"]).output
    assert json.loads(printed)["instances"] == INSTANCES


def test_exec_points_at_the_emulated_aws_and_drops_the_caller_s_credentials(
    paths: LabPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "secret")
    became: list[Any] = []
    monkeypatch.setattr("os.execvpe", lambda *arguments: became.append(arguments))
    CliRunner().invoke(commands.app, ["exec", "--", "aws", "ec2", "--version"])
    ((program, argv, variables),) = became
    assert (program, argv) == ("aws", ["aws", "ec2", "--version"])
    assert variables["AWS_ENDPOINT_URL"] == variables["AWS_ENDPOINT_URL_S3"] == "http://localhost:4599"
    assert variables["AWS_REGION"] == variables["AWS_DEFAULT_REGION"] == "eu-west-1"
    assert not {"AWS_PROFILE", "AWS_SESSION_TOKEN"} & set(variables)


def test_a_missing_plugin_file_is_refused_before_anything_starts(
    paths: LabPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "require_root", lambda: None)
    monkeypatch.setattr(commands, "require_programs", lambda: None)
    monkeypatch.setattr(commands, "spawn", lambda *_, **__: pytest.fail("started"))
    monkeypatch.setenv("DELAYED_PLUGIN", "/nowhere/plugin.ez")
    with pytest.raises(LabError, match=r"DELAYED_PLUGIN=/nowhere/plugin\.ez: there is no such file"):
        CliRunner().invoke(commands.app, ["up"], catch_exceptions=False)
