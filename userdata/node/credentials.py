"""Secrets: from Secrets Manager into root-only files and memory. Never into arguments, logs or the environment."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from node.errors import NotYet, Refusal
from node.files import directory, write
from node.paths import Paths

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager.client import SecretsManagerClient

USERS = ("administrator", "monitoring", "federation")


class NotStored(NotYet):
    """No boot has come to the step `secrets` yet."""


@dataclass(frozen=True)
class Login:
    """A RabbitMQ user. `version` is the secret's version, the same for all nodes that read the same secret."""

    username: str
    password: str = field(repr=False)
    version: str


@dataclass(frozen=True)
class Credentials:
    """All that a node needs to know and nobody else may."""

    users: Mapping[str, Login]
    erlang_cookie: str = field(repr=False)
    consul_gossip_key: str = field(repr=False)


def fetch(client: SecretsManagerClient, arns: Mapping[str, str]) -> Credentials:
    """Read the secrets. Raises Refusal, naming the secret but not its content, if one is not what it should be."""
    return Credentials(
        users={name: _login(client, arns[name]) for name in USERS},
        erlang_cookie=_plain(client, arns["erlang_cookie"]),
        consul_gossip_key=_plain(client, arns["consul_gossip_key"]),
    )


def _plain(client: SecretsManagerClient, arn: str) -> str:
    value = client.get_secret_value(SecretId=arn)["SecretString"]
    if not re.fullmatch(r"[A-Za-z0-9]{32}", value):
        raise Refusal(
            "the secret is not a string of 32 letters and digits", arn, "put a new value of that form into it"
        )
    return value


def _login(client: SecretsManagerClient, arn: str) -> Login:
    answer = client.get_secret_value(SecretId=arn)
    try:
        document = json.loads(answer["SecretString"])
        login = Login(document["username"], document["password"], answer["VersionId"])
    except (ValueError, KeyError, TypeError):
        login = Login("", "", "")
    if not (isinstance(login.username, str) and login.username and isinstance(login.password, str) and login.password):
        raise Refusal(
            'the secret is not JSON of the form {"username": ..., "password": ...}',
            arn,
            "put a new value of that form into it",
        )
    return login


def store(paths: Paths, credentials: Credentials) -> None:
    """Keep the logins for the node agent and for operators on this host. Root only."""
    directory(paths.secrets, mode=0o700)
    for name, login in credentials.users.items():
        document = {"username": login.username, "password": login.password, "version": login.version}
        write(paths.secrets / f"{name}.json", json.dumps(document) + "\n", mode=0o600)


def stored(paths: Paths, name: str) -> Login:
    """A login as the last boot stored it. Raises NotStored before the first."""
    try:
        document = json.loads((paths.secrets / f"{name}.json").read_text())
    except FileNotFoundError as error:
        raise NotStored(f"no boot has stored the login {name} yet") from error
    return Login(document["username"], document["password"], document["version"])
