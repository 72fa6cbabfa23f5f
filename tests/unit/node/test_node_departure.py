"""Leaving, one node at a time: lock, quorum, drain, stop, hand-over, each bounded."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from node import departure, leaving_node
from node.commands import Result
from node.departure import Departure, LockQueue
from node.leaving_node import HostNode
from node.lock import LOCK, SUCCESSOR_GRACE, MaintenanceLock
from node.ownership import Ownership, read_record
from node.services import STOP_LIMIT_SECONDS, Services
from stacks.node import ROLL_TIMEOUT, TERMINATE_HEARTBEAT_SECONDS
from tests.unit.node.standins import BEGIN, THROTTLED, DynamoDB, ManualClock
from tests.unit.node.world import ME, NODE, PEERS, World, set_mounted

OLD = "2026-02-01T00:00:00+00:00"


@dataclass
class Leaving:
    """A node that keeps what was asked of it."""

    runs: bool = True
    quorum: Iterator[str | None] = field(default_factory=lambda: iter(()))
    drains: bool = True
    free: bool = True
    done: list[str] = field(default_factory=list)

    def stop_boot(self) -> None:
        self.done.append("stop boot")

    def broker_runs(self) -> bool:
        return self.runs

    def quorum_without(self) -> str | None:
        return next(self.quorum, None)

    def drain(self) -> bool:
        self.done.append("drain")
        return self.drains

    def let_go(self) -> bool:
        self.done.append("let go")
        return self.free


@dataclass
class Balancers:
    """Load balancers that keep what was asked of them, in the list of the node's own doings."""

    done: list[str]
    others: Iterator[str | None] = field(default_factory=lambda: iter(()))

    def register(self) -> None:
        self.done.append("register")

    def deregister(self) -> None:
        self.done.append("deregister")

    def others_missing(self) -> str | None:
        return next(self.others, None)


@dataclass
class Scene:
    """A departure of NODE, and the others."""

    dynamodb: DynamoDB
    clock: ManualClock
    node: Leaving = field(default_factory=Leaving)
    states: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.balancers = Balancers(self.node.done)

    def queue(self) -> LockQueue:
        table = self.dynamodb.table
        return LockQueue(
            MaintenanceLock(table, NODE, ME, self.clock),
            lambda node: read_record(table, node),
            lambda instance: self.states.get(instance, "unknown"),
            self.clock,
            reason="test",
        )

    def run(self) -> bool:
        return Departure(
            node=self.node,
            targets=self.balancers,
            ownership=Ownership(self.dynamodb.table, NODE, ME, self.clock),
            instance_id=ME,
            queue=self.queue(),
            clock=self.clock,
            begin=lambda: self.node.done.append("begin"),
            tell=self.told.append,
            note=self.notes.append,
        ).run()

    def owned(self, by: str = ME, node: str = NODE, **more: str) -> None:
        self.dynamodb.put(f"node/{node}", owner=by, owned_since=OLD, **more)

    def held(self, node: str = PEERS[0], instance: str = "i-peer", at: str = BEGIN.isoformat()) -> None:
        self.dynamodb.put(LOCK, holder_node=node, holder_instance=instance, reason="roll", acquired_at=at)

    @property
    def holder(self) -> str | None:
        return self.dynamodb.item(LOCK).get("holder_instance")


@pytest.fixture
def scene(dynamodb: DynamoDB, clock: ManualClock) -> Scene:
    scene = Scene(dynamodb, clock)
    scene.owned()
    return scene


def test_a_node_leaves_in_order_and_keeps_the_lock_for_its_successor(scene: Scene) -> None:
    assert scene.run()
    assert scene.node.done == ["stop boot", "begin", "deregister", "drain", "let go"]
    assert read_record(scene.dynamodb.table, NODE).owner is None
    assert scene.holder == ME
    assert scene.notes == []


def test_who_does_not_own_the_node_lets_go_of_everything_and_takes_no_lock(scene: Scene) -> None:
    scene.owned(by="i-successor")
    assert not scene.run()
    assert scene.node.done == ["stop boot", "begin", "let go"]
    assert scene.holder is None
    assert read_record(scene.dynamodb.table, NODE).owner == "i-successor"


def test_a_departure_that_was_cut_off_begins_again(scene: Scene) -> None:
    scene.held(node=NODE, instance=ME)
    scene.node.runs = False
    assert scene.run()
    assert scene.node.done == ["stop boot", "begin", "let go"]


def test_another_nodes_change_is_waited_for(scene: Scene) -> None:
    scene.held()
    scene.states["i-peer"] = "running"
    scene.clock.later(100, lambda: MaintenanceLock(scene.dynamodb.table, PEERS[0], "i-x", scene.clock).release())
    assert scene.run()
    assert 100 <= scene.clock.passed < 110
    assert scene.told[0] == f"{PEERS[0]} holds the maintenance lock since {BEGIN.isoformat()} (roll)"


def test_who_waits_for_its_turn_takes_connections_meanwhile(scene: Scene) -> None:
    scene.held()
    scene.states["i-peer"] = "running"
    scene.clock.later(100, lambda: MaintenanceLock(scene.dynamodb.table, PEERS[0], "i-x", scene.clock).release())
    assert scene.run()
    assert scene.node.done == ["stop boot", "register", "begin", "deregister", "drain", "let go"]


def test_who_has_no_broker_to_offer_takes_none(scene: Scene) -> None:
    scene.held()
    scene.states["i-peer"] = "running"
    scene.node.runs = False
    scene.clock.later(100, lambda: MaintenanceLock(scene.dynamodb.table, PEERS[0], "i-x", scene.clock).release())
    assert scene.run()
    assert scene.node.done == ["stop boot", "begin", "let go"]


def test_nobody_drains_before_clients_find_another_node(scene: Scene) -> None:
    scene.balancers.others = iter(["target group amqp has no other healthy target"] * 10)
    assert scene.run()
    assert scene.clock.passed >= 18
    assert scene.told.count("target group amqp has no other healthy target") == 10
    assert scene.node.done == ["stop boot", "begin", "deregister", "drain", "let go"]


def test_load_balancers_without_another_target_hold_nobody_for_ever(scene: Scene) -> None:
    scene.balancers.others = iter(lambda: "target group amqp has no other healthy target", None)
    assert scene.run()
    assert scene.clock.passed <= departure.TARGETS_LIMIT_SECONDS + 5
    assert "no other healthy target" in scene.notes[0]


def test_quorum_is_waited_for_before_the_drain(scene: Scene) -> None:
    scene.node.quorum = iter(["2 of 3 nodes run"] * 10)
    assert scene.run()
    assert scene.told.count("2 of 3 nodes run") == 10
    assert scene.node.done[1:] == ["begin", "deregister", "drain", "let go"]


def test_a_quorum_that_never_comes_is_noted_and_the_node_leaves_all_the_same(scene: Scene) -> None:
    scene.node.quorum = iter(lambda: "2 of 3 nodes run", None)
    assert scene.run()
    assert scene.clock.passed <= departure.QUORUM_LIMIT_SECONDS + 5
    [note] = scene.notes
    assert "2 of 3 nodes run" in note
    assert "leaving without" in note


def test_a_lock_that_never_comes_is_noted_and_the_node_leaves_all_the_same(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(departure, "LOCK_LIMIT_SECONDS", 200)
    scene.held()
    scene.states["i-peer"] = "running"
    assert scene.run()
    assert 200 <= scene.clock.passed <= 205
    assert f"{PEERS[0]} holds the maintenance lock" in scene.notes[0]
    assert scene.holder == "i-peer"


def test_a_directory_that_is_not_free_keeps_its_owner(scene: Scene) -> None:
    scene.node.free = False
    assert not scene.run()
    assert read_record(scene.dynamodb.table, NODE).owner == ME
    assert "ownership is kept" in scene.notes[0]


def test_all_waits_together_end_before_auto_scaling_ends_the_instance() -> None:
    longest = 100 * TERMINATE_HEARTBEAT_SECONDS  # Auto Scaling's limit for a hook: a hundred heartbeats
    waits = departure.LOCK_LIMIT_SECONDS + departure.QUORUM_LIMIT_SECONDS + departure.TARGETS_LIMIT_SECONDS
    work = leaving_node.DRAIN_LIMIT_SECONDS + 3 * STOP_LIMIT_SECONDS
    work += leaving_node.UNMOUNT_ATTEMPTS * (leaving_node.UNMOUNT_LIMIT_SECONDS + 2)
    assert waits + work < longest
    assert ROLL_TIMEOUT == "PT1H"
    assert departure.LOCK_LIMIT_SECONDS < 3600


# -- a dead holder -----------------------------------------------------------------------------------------------------

GRACE = SUCCESSOR_GRACE.total_seconds()


def lock_after(scene: Scene, seconds: float) -> str | None:
    queue = scene.queue()
    while scene.clock.passed < seconds:  # well above ALIVE_EVERY_SECONDS
        if queue.attempt() is None:
            break
        scene.clock.sleep(20)
    return scene.holder


def test_a_holder_whose_instance_is_gone_without_a_successor_loses_the_lock(scene: Scene) -> None:
    scene.held()
    scene.owned(by="i-peer", node=PEERS[0])
    scene.states["i-peer"] = "terminated"
    assert lock_after(scene, GRACE - 20) == "i-peer"
    assert lock_after(scene, GRACE + 60) == ME


def test_a_holder_whose_successor_is_gone_too_loses_the_lock(scene: Scene) -> None:
    scene.held()
    scene.owned(by="i-successor", node=PEERS[0])
    scene.states |= {"i-peer": "terminated", "i-successor": "terminated"}
    assert lock_after(scene, GRACE + 60) == ME


@pytest.mark.parametrize("state", ["pending", "running", "shutting-down", "stopping", "stopped"])
def test_a_holder_that_may_still_come_back_keeps_the_lock(state: str, scene: Scene) -> None:
    scene.held()
    scene.states["i-peer"] = state
    assert lock_after(scene, 1.5 * GRACE) == "i-peer"


def test_a_holder_whose_successor_lives_keeps_the_lock_for_it(scene: Scene) -> None:
    scene.held()
    scene.owned(by="i-successor", node=PEERS[0])
    scene.states |= {"i-peer": "terminated", "i-successor": "running"}
    assert lock_after(scene, 1.5 * GRACE) == "i-peer"


def test_the_grace_begins_with_the_last_sign_of_life(scene: Scene) -> None:
    scene.held(at=OLD)
    scene.dynamodb.put(f"node/{PEERS[0]}", released_at=BEGIN.isoformat())
    assert lock_after(scene, GRACE - 20) == "i-peer"
    assert lock_after(scene, GRACE + 60) == ME


def test_of_two_that_find_the_holder_dead_one_gets_the_lock(scene: Scene) -> None:
    scene.held(at=OLD)
    holder = MaintenanceLock(scene.dynamodb.table, NODE, ME, scene.clock).holder()
    assert holder
    taken = [
        MaintenanceLock(scene.dynamodb.table, node, f"i-{node}", scene.clock).take_from(holder, "test")
        for node in (NODE, PEERS[1])
    ]
    assert taken == [True, False]


def test_a_table_that_does_not_answer_is_a_reason_to_wait(scene: Scene) -> None:
    def fail(_: str) -> None:
        raise THROTTLED

    scene.dynamodb.before = fail
    assert str(scene.queue().attempt()).startswith("AWS does not answer: ")


def test_the_lock_is_released_by_the_nodes_next_instance_and_by_no_other_node(scene: Scene) -> None:
    scene.held(node=NODE, instance="i-old")
    assert not MaintenanceLock(scene.dynamodb.table, PEERS[0], "i-peer", scene.clock).release()
    assert MaintenanceLock(scene.dynamodb.table, NODE, "i-new", scene.clock).release()
    assert scene.holder is None


# -- on the host -------------------------------------------------------------------------------------------------------


@pytest.fixture
def host(world: World) -> HostNode:
    set_mounted(world.paths)

    def umount(_: list[str]) -> Result:
        set_mounted(world.paths, False)
        return Result(0, "")

    world.programs.react("umount", reaction=umount)
    return HostNode(
        world.paths, Services(world.programs), lambda: None, lambda: True, world.clock, world.programs, ports=()
    )


def test_letting_go_stops_broker_then_consul_then_unmounts(host: HostNode, world: World) -> None:
    assert host.let_go()
    order = [(call[0], call[-1]) for call in world.programs.calls if call[0] == "umount" or call[1] == "stop"]
    assert order == [
        ("systemctl", "rabbitmq-server.service"),
        ("systemctl", "consul.service"),
        ("umount", str(world.paths.mount)),
    ]
    assert host.let_go()


def test_a_service_that_does_not_stop_is_not_unmounted_under(host: HostNode, world: World) -> None:
    world.systemd.states["consul.service"] = "stuck"
    assert not host.let_go()
    assert world.programs.ran("umount") == []


def test_an_unmount_that_hangs_is_tried_so_often_and_then_ownership_stays(host: HostNode, world: World) -> None:
    world.programs.on("umount", code=None, output="no end within 30 s")
    assert not host.let_go()
    assert len(world.programs.ran("umount")) == leaving_node.UNMOUNT_ATTEMPTS


def test_quorum_is_asked_cheaply_first(world: World) -> None:
    services = Services(world.programs)
    host = HostNode(world.paths, services, lambda: "2 of 3 nodes run", lambda: True, world.clock, world.programs)
    assert host.quorum_without() == "2 of 3 nodes run"
    assert world.programs.calls == []


def test_rabbitmqs_own_word_on_quorum_counts(host: HostNode, world: World) -> None:
    world.programs.on("rabbitmq-upgrade", "await_online_quorum_plus_one", code=70, output="Error: no quorum")
    assert host.quorum_without() == "await_online_quorum_plus_one: Error: no quorum"
    world.programs.on("rabbitmq-upgrade", "await_online_quorum_plus_one")
    assert host.quorum_without() is None


@pytest.mark.parametrize(("listening", "drained"), [(True, False), (False, True)])
def test_a_drain_is_judged_by_the_listeners_not_by_its_exit_code_alone(
    listening: bool, drained: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.programs.on("rabbitmq-upgrade", "drain", code=69, output="Error: unavailable")
    monkeypatch.setattr(leaving_node, "listens", lambda port: listening)
    host = HostNode(world.paths, Services(world.programs), lambda: None, lambda: True, world.clock, world.programs)
    assert host.drain() is drained


def test_a_broker_whose_disk_is_dead_has_nothing_to_be_drained(world: World) -> None:
    services, works = Services(world.programs), [True]
    host = HostNode(world.paths, services, lambda: None, lambda: works[0], world.clock, world.programs)
    world.programs.react("systemctl", "is-active", reaction=lambda _: Result(0, "active"))
    assert host.broker_runs()
    works[0] = False
    assert not host.broker_runs()
