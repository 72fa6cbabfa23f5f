"""Secrets: readable by root alone, and never where others can read them."""

import json
from pathlib import Path

import pytest

from node import boot, consul, credentials
from node.boot_broker import broker
from node.errors import Refusal
from tests.unit.node.world import COOKIE, GOSSIP_KEY, INSTANCE, USERS, World, mode_of

PASSWORDS = [login.password for login in USERS.values()]
ALL = [*PASSWORDS, COOKIE, GOSSIP_KEY]


def readable_by_others(root: Path) -> str:
    files = [path for path in root.rglob("*") if path.is_file() and path.stat().st_mode & 0o004]
    return "\n".join(path.read_text(errors="replace") for path in files)


def test_secrets_come_from_their_arns_with_their_version(world: World) -> None:
    found = credentials.fetch(world.aws.secretsmanager, INSTANCE["secrets"])
    assert found.users == USERS
    assert (found.erlang_cookie, found.consul_gossip_key) == (COOKIE, GOSSIP_KEY)


def test_stored_logins_are_for_root_alone(world: World) -> None:
    boot.secrets(world.boot())
    assert mode_of(world.paths.secrets) == "0o700"
    files = sorted(world.paths.secrets.iterdir())
    assert [path.name for path in files] == ["administrator.json", "federation.json", "monitoring.json"]
    assert {mode_of(path) for path in files} == {"0o600"}
    assert credentials.stored(world.paths, "monitoring") == USERS["monitoring"]


def test_a_second_fetch_takes_over_a_rotated_password(world: World) -> None:
    boot.secrets(world.boot())
    rotated = (json.dumps({"username": "monitoring", "password": "rotated"}), "next")
    world.secrets.values["arn:monitoring"] = rotated
    boot.secrets(world.boot())
    assert credentials.stored(world.paths, "monitoring").password == "rotated"


@pytest.mark.parametrize(
    ("arn", "value"),
    [
        ("arn:erlang_cookie", "too-short"),
        ("arn:erlang_cookie", "C" * 31 + "\n"),
        ("arn:consul_gossip_key", "G" * 33),
        ("arn:administrator", "no JSON at all"),
        ("arn:administrator", '{"username": "administrator"}'),
        ("arn:federation", '{"username": "", "password": "secret-thing"}'),
        ("arn:federation", '{"username": "federation", "password": 7}'),
        ("arn:monitoring", "[]"),
    ],
)
def test_a_secret_of_the_wrong_form_is_refused_by_name_and_without_its_content(
    arn: str, value: str, world: World
) -> None:
    world.secrets.values[arn] = (value, "1")
    with pytest.raises(Refusal) as refused:
        credentials.fetch(world.aws.secretsmanager, INSTANCE["secrets"])
    assert refused.value.where == arn
    assert value not in str(refused.value) + refused.value.remedy


def test_nothing_secret_is_in_arguments_logs_or_files_that_others_can_read(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.cluster_runs(*world.boot().cluster.node_names)
    world.loopback.on("GET /v1/agent/self", {})
    context = world.boot()
    for step in (boot.secrets, boot.consul, broker):
        step(context)
    said = (
        caplog.text
        + json.dumps(world.programs.calls)
        + json.dumps(world.dynamodb.item(f"boot/{context.instance.node}"))
    )
    for secret in ALL:
        assert secret not in said
        assert secret not in readable_by_others(world.paths.root)


def test_printing_credentials_shows_no_secret() -> None:
    shown = repr(credentials.Credentials(USERS, COOKIE, GOSSIP_KEY))
    assert [secret for secret in ALL if secret in shown] == []


def test_the_gossip_key_is_32_bytes_for_consul(world: World) -> None:
    import base64

    key = json.loads(consul.gossip_config(GOSSIP_KEY))["encrypt"]
    assert base64.b64decode(key) == GOSSIP_KEY.encode()
    assert len(base64.b64decode(key)) == 32
