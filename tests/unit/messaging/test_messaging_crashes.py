"""A process is killed at every point between two effects, restarted, and the world is checked.

DynamoDB and the broker are stand-ins here (moto's models, standins/stand_in_broker.py); the processes and their deaths
are real. tests/lab/test_messaging.py does the same with RabbitMQ.
"""

from collections.abc import Callable, Iterator

import pytest

from tests.unit.messaging.standins.bench import a_message
from tests.unit.messaging.standins.processes import KILLED, run
from tests.unit.messaging.standins.services import EXPIRY_SECONDS
from tests.unit.messaging.standins.world import World, WorldServer

pytestmark = pytest.mark.proof


@pytest.fixture(scope="module")
def server() -> Iterator[WorldServer]:
    server = WorldServer()
    yield server
    server.close()


def orders(*names: str) -> World:
    """Messages in the queue, and a copy of the first at its end, as a shovel leaves it."""
    world = World()
    for name in names:
        world.broker.queues["orders"].append(a_message(name))
    world.broker.copy_of("orders")
    return world


def number_in(world: World, table: str, key: str, attribute: str) -> int:
    item = world.dynamodb.backend.get_item(table, {key: {"S": "a"}})
    return int(item.to_json()["Attributes"][attribute]["N"]) if item else 0


def balance(world: World) -> int:
    return number_in(world, "accounts", "account", "balance")


def state(world: World) -> int:
    return number_in(world, "records", "id", "state")


def published(world: World) -> list[bytes]:
    """Bodies, without copies, in the order of their first publication."""
    return list(dict.fromkeys(message.body for message in world.broker.published))


def waiting(world: World) -> int:
    items = world.dynamodb.backend.get_table("outbox").all_items()
    return sum(item.to_json()["Attributes"]["pk"]["S"].startswith("pending/") for item in items)


def paid(*names: str) -> list[bytes]:
    return [b'{"message":"%s"}' % name.encode() for name in names]


def problems(world: World, effect: Callable[[World], int], expected: int) -> list[str]:
    """What is not as it should be once everything has come to rest."""
    found = []
    if (times := effect(world)) != expected:
        found.append(f"{times} effects instead of {expected}")
    if len({(message.body, message.message_id) for message in world.broker.published}) != len(published(world)):
        found.append("an event was published under two ids")
    if world.broker.queues["orders"] or world.broker.unacknowledged:
        found.append("a message was not acknowledged")
    if world.broker.queues["orders.dead"]:
        found.append("there are dead letters")
    if waiting(world):
        found.append("events still wait")
    return found


def crashes(
    server: WorldServer,
    service: str,
    effect: Callable[[World], int],
    *names: str,
    events: list[bytes],
    late_seconds: float = 0,
) -> dict[str, list[str]]:
    """The problems after a crash at each point and a restart, by the point's number and name."""
    server.world = orders(*names)
    undisturbed = run(server, service)
    assert undisturbed.exit_code == 0
    assert problems(server.world, effect, len(names)) == []
    assert published(server.world) == events
    found = {}
    for number, name in enumerate(undisturbed.points):
        server.world = orders(*names)
        assert run(server, service, kill_at=number).exit_code == KILLED, name
        assert run(server, service, late_seconds=late_seconds).exit_code == 0, name
        trouble = problems(server.world, effect, len(names))
        if published(server.world) != events:
            trouble.append(f"published {published(server.world)}")
        if trouble:
            found[f"{number} {name}"] = trouble
    return found


def test_with_an_inbox_every_crash_leaves_each_effect_once_and_each_event_published(server: WorldServer) -> None:
    assert crashes(server, "with_inbox", balance, "m1", "m2", events=paid("m1", "m2")) == {}


def test_with_a_versioned_record_too(server: WorldServer) -> None:
    assert crashes(server, "with_versioned_record", state, "m1", "m2", events=paid("m1", "m2")) == {}


def test_with_an_outbox_the_event_is_published_if_and_only_if_the_effect_was_committed(server: WorldServer) -> None:
    server.world = World()
    points = run(server, "with_outbox").points
    committed = []
    for number, name in enumerate(points):
        server.world = World()
        assert run(server, "with_outbox", kill_at=number).exit_code == KILLED
        committed.append(balance(server.world) == 1)
        assert committed[-1] == bool(waiting(server.world) or published(server.world)), name
        run(server, "with_outbox")
        assert balance(server.world) == 1, name
        assert published(server.world) == paid("request"), name
        assert not waiting(server.world), name
    assert committed == sorted(committed)
    assert {True, False} == set(committed)


def test_recording_after_running_runs_twice_after_a_crash_in_between(server: WorldServer) -> None:
    found = crashes(server, "wrong_record_after_running", balance, "m1", events=[])
    assert {name.partition(" ")[2]: trouble for name, trouble in found.items()} == {
        "after dynamodb.transact_write_items": ["2 effects instead of 1"],
        "before dynamodb.put_item": ["2 effects instead of 1"],
    }


def test_an_in_progress_mark_that_has_expired_runs_twice(server: WorldServer) -> None:
    late = EXPIRY_SECONDS + 1
    found = crashes(server, "wrong_in_progress_with_expiry", balance, "m1", events=[], late_seconds=late)
    assert {name.partition(" ")[2]: trouble for name, trouble in found.items()} == {
        "after dynamodb.transact_write_items": ["2 effects instead of 1"],
        "before dynamodb.put_item": ["2 effects instead of 1"],
    }


def test_an_in_progress_mark_that_has_not_expired_blocks_every_retry(server: WorldServer) -> None:
    found = crashes(server, "wrong_in_progress_with_expiry", balance, "m1", events=[])
    never, once = ["0 effects instead of 1", "a message was not acknowledged"], ["a message was not acknowledged"]
    assert {name.partition(" ")[2]: trouble for name, trouble in found.items()} == {
        "after dynamodb.put_item": never,
        "before dynamodb.transact_write_items": never,
        "after dynamodb.transact_write_items": once,
        "before dynamodb.put_item": once,
    }
