"""What a node tells people far away about its file system, Consul and versions."""

from pathlib import Path
from typing import Any

import pytest

from node.broker import Broker
from node.consul import Consul
from node.credentials import Login
from node.health import Health
from node.loopback import Unreachable
from tests.unit.node.world import ME, NODE, World

pytestmark = pytest.mark.usefixtures("real_programs")


def health(world: World, mount: Path, *, mounted: bool = True) -> dict[str, Any]:
    broker = Broker(Login("monitoring", "secret", "1"))
    mine = Health(world.dynamodb.table, NODE, ME, mount, lambda: mounted, lambda: broker, Consul(), world.clock)
    mine.report()
    return world.dynamodb.item(f"health/{NODE}")


def test_a_whole_node_tells_its_latency_its_consul_and_its_versions(world: World, tmp_path: Path) -> None:
    world.loopback.on("GET /v1/status/leader", "10.77.1.5:8300")
    world.loopback.on("GET /v1/status/peers", ["10.77.1.5:8300", "10.77.2.5:8300"])
    world.loopback.on("GET /v1/agent/self", {"Config": {"Version": "1.8.7"}})
    world.loopback.on("GET /api/overview", {"rabbitmq_version": "4.0.5", "erlang_version": "27.3"})
    applications = [{"name": "rabbit", "version": "4.0.5"}]
    applications.append({"name": "rabbitmq_delayed_message_exchange", "version": "4.0.2"})
    world.loopback.on(f"GET /api/nodes/rabbit%40{NODE}", {"applications": applications})
    told = health(world, tmp_path)
    assert told["instance_id"] == ME
    assert told["mounted"] is True
    assert 0 < float(told["write_ms"]) < 10_000
    assert told["consul"] == {"leader": "10.77.1.5:8300", "peers": ["10.77.1.5:8300", "10.77.2.5:8300"]}
    assert told["versions"] == {"consul": "1.8.7", "rabbitmq": "4.0.5", "erlang": "27.3", "delayed_plugin": "4.0.2"}


def test_a_node_without_consul_broker_or_mount_says_so_instead_of_nothing(world: World, tmp_path: Path) -> None:
    told = health(world, tmp_path, mounted=False)
    assert told["mounted"] is False
    assert "write_ms" not in told
    assert told["versions"] == {}
    assert "error" in told["consul"]


def test_a_file_system_that_takes_no_write_is_told_with_its_reason(world: World, tmp_path: Path) -> None:
    told = health(world, tmp_path / "gone")
    assert "No such file" in told["write_error"]


def test_a_login_that_is_not_there_yet_is_no_error(world: World, tmp_path: Path) -> None:
    def no_login() -> Broker:
        raise Unreachable("no login is stored before the first boot")

    Health(world.dynamodb.table, NODE, ME, tmp_path, lambda: True, no_login, Consul(), world.clock).report()
    assert world.dynamodb.item(f"health/{NODE}")["versions"] == {}
    with pytest.raises(Unreachable):
        Consul().version()


def test_what_stays_the_same_is_stored_twice_a_minute_and_a_change_at_once(world: World, tmp_path: Path) -> None:
    mounted, broker = [False], Broker(Login("monitoring", "secret", "1"))
    mine = Health(world.dynamodb.table, NODE, ME, tmp_path, lambda: mounted[0], lambda: broker, Consul(), world.clock)
    stored: set[str] = set()
    for _ in range(12):
        mine.report()
        stored.add(world.dynamodb.item(f"health/{NODE}")["updated_at"])
        world.clock.sleep(5)
    assert len(stored) == 2
    mine.report()
    world.clock.sleep(5)
    mounted[0] = True
    mine.report()
    assert world.dynamodb.item(f"health/{NODE}")["mounted"] is True
