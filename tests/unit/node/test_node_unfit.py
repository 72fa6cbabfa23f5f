"""An instance whose EFS is dead is given up, and only while the others are well."""

import logging
from pathlib import Path
from typing import Any

import pytest

from node.broker import Broker
from node.commands import Result
from node.consul import Consul
from node.health import Health
from node.lock import MaintenanceLock
from node.unfit import PATIENCE_SECONDS, Unfit
from tests.unit.node.world import ME, NODE, PEERS, USERS, World

WELL: dict[str, Any] = {"mounted": True, "write_ms": 3, "versions": {"rabbitmq": "4.0.5"}}


class Host:
    """A host whose writes to EFS fail when it is told so, and two peers that report every 30 s."""

    def __init__(self, world: World) -> None:
        self.world, self.fails, self.mounted, self.silent = world, True, True, False
        self.peers = {peer: dict(WELL) for peer in PEERS}
        broker = Broker(USERS["monitoring"])
        health = Health(
            world.dynamodb.table, NODE, ME, Path("/mnt"), lambda: self.mounted, lambda: broker, Consul(), world.clock,
            self._run,
        )  # fmt: skip
        lock = MaintenanceLock(world.dynamodb.table, NODE, ME, world.clock)
        self.health = health
        self.unfit = Unfit(ME, PEERS, health, world.dynamodb.table, lock, lambda: world.aws.autoscaling, world.clock)

    def _run(self, command: Any, **_: Any) -> Result:
        return Result(124, "no answer") if self.fails else Result(0, "2.5")

    def pass_time(self, seconds: float) -> list[Any]:
        """Returns what Auto Scaling was told in all."""
        for _ in range(int(seconds / 5)):
            if not self.silent:
                for peer, told in self.peers.items():
                    self.world.dynamodb.put(f"health/{peer}", updated_at=self.world.clock.stamp(), **told)
            self.health.report()
            self.unfit.check()
            self.world.clock.sleep(5)
        return self.world.autoscaling.calls


@pytest.fixture
def host(world: World) -> Host:
    return Host(world)


def test_a_dead_file_system_is_told_to_auto_scaling_after_five_minutes(host: Host) -> None:
    assert host.pass_time(PATIENCE_SECONDS) == []
    told = {"InstanceId": ME, "HealthStatus": "Unhealthy", "ShouldRespectGracePeriod": False}
    assert host.pass_time(40)[0] == ("set_instance_health", told)


def test_one_that_comes_back_in_time_is_not(host: Host) -> None:
    assert host.pass_time(PATIENCE_SECONDS - 10) == []
    host.fails = False
    host.pass_time(40)
    host.fails = True
    assert host.pass_time(PATIENCE_SECONDS - 10) == []


def test_a_host_without_the_mount_boots_or_leaves_and_is_not_judged(host: Host) -> None:
    host.pass_time(PATIENCE_SECONDS - 10)
    host.mounted = False
    assert host.pass_time(PATIENCE_SECONDS) == []
    host.mounted = True
    assert host.pass_time(PATIENCE_SECONDS - 10) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"write_ms": None, "write_error": "no answer"}, "cannot write to EFS either"),
        ({"versions": {}}, "does not run RabbitMQ"),
    ],
)
def test_a_cluster_that_needs_the_node_keeps_it(
    change: dict[str, Any], reason: str, host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    peer = PEERS[1]
    host.peers[peer] = {name: value for name, value in {**WELL, **change}.items() if value is not None}
    with caplog.at_level(logging.WARNING):
        assert host.pass_time(2 * PATIENCE_SECONDS) == []
    [said] = [record.getMessage() for record in caplog.records if "EFS has failed" in record.getMessage()]
    assert said.endswith(f"this instance stays, because {peer} {reason}")
    host.peers[peer] = dict(WELL)
    assert len(host.pass_time(10)) >= 1


def test_a_peer_that_is_not_heard_of_may_be_dead(host: Host) -> None:
    host.pass_time(PATIENCE_SECONDS - 100)
    host.silent = True
    assert host.pass_time(PATIENCE_SECONDS) == []


def test_nobody_leaves_while_another_node_is_replaced(host: Host, world: World) -> None:
    other = MaintenanceLock(world.dynamodb.table, PEERS[0], "i-other", world.clock)
    assert other.acquire("a roll")
    assert host.pass_time(2 * PATIENCE_SECONDS) == []
    assert other.release()
    assert len(host.pass_time(10)) >= 1
