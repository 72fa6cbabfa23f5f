"""Fixtures of the node's tests. Nothing here touches the machine that the tests run on."""

import logging
import os
import pwd
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from node import broker, consul
from node.boot_context import Boot
from tests.unit.node.amazon_linux import AmazonLinux
from tests.unit.node.places import Places, Upstream
from tests.unit.node.standins import DynamoDB, ManualClock, Programs
from tests.unit.node.world import World, make_paths


@pytest.fixture
def real_programs() -> None:
    """For the few tests that run programs."""


@pytest.fixture(autouse=True)
def _machine_is_safe(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("this would change the machine that the tests run on")

    monkeypatch.setattr(socket, "sethostname", forbidden)
    if "real_programs" not in request.fixturenames:
        monkeypatch.setattr(subprocess, "Popen", forbidden)


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO, logger="node"):
        yield


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def programs() -> Programs:
    return Programs()


@pytest.fixture
def dynamodb() -> DynamoDB:
    return DynamoDB()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A host and all that it talks to."""
    world = World(make_paths(tmp_path))
    me = SimpleNamespace(pw_uid=os.geteuid(), pw_gid=os.getegid())
    monkeypatch.setattr(broker, "request", world.loopback)
    monkeypatch.setattr(consul, "request", world.loopback)
    monkeypatch.setattr(socket, "sethostname", world.names.append)
    monkeypatch.setattr(pwd, "getpwnam", lambda name: me)
    return world


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> Upstream:
    upstream = Upstream()
    monkeypatch.setattr(urllib.request, "urlopen", upstream)
    return upstream


@pytest.fixture
def places(tmp_path: Path, clock: ManualClock, upstream: Upstream) -> Places:
    return Places(make_paths(tmp_path, "production", "amzn"), clock, upstream)


@pytest.fixture
def amazon(places: Places, monkeypatch: pytest.MonkeyPatch) -> AmazonLinux:
    monkeypatch.setattr("pwd.getpwnam", lambda name: object())
    return AmazonLinux(places)


@pytest.fixture
def debian(world: World) -> Boot:
    world.programs.on("dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server", output="4.0.5-5")
    world.programs.on("dpkg-query", "-W", "-f", "${Version}", "erlang-base", output="1:27.3.4.1+dfsg-1")
    world.programs.on("consul", "version", output="Consul v1.8.7+dfsg1\n")
    return world.boot()
