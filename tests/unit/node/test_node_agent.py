"""The agent: chores that go on whatever happens to one of them, and a departure in good order."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from node import agent as agent_module
from node import config
from node.agent import Agent, heartbeats
from node.commands import Result
from node.guard import Guard
from node.lifecycle_hooks import Hook
from node.ownership import Ownership
from node.report import PUSH_EVERY_SECONDS, Report
from node.services import BOOT, CONSUL, Services
from node.unfit import PATIENCE_SECONDS
from tests.unit.node.standins import THROTTLED, DynamoDB, ManualClock, client_error
from tests.unit.node.test_node_departure import Leaving
from tests.unit.node.world import ME, NODE, PEERS, World, set_mounted

NO_ACTION = client_error("ValidationError", "No active Lifecycle Action found with instance ID i-me")


class Stop(BaseException):
    """Ends a chore's endless loop."""


@pytest.fixture
def agent(world: World) -> Agent:
    world.dynamodb.put(f"node/{NODE}", owner=ME, owned_since="2026-02-01T00:00:00+00:00")
    return Agent(world.paths, world.clock, world.metadata, world.aws, Services(world.programs))  # type: ignore[arg-type]


def repeat(agent: Agent, chore: Callable[[], Any], world: World, seconds: float, name: str = "names") -> None:
    def stop() -> None:
        raise Stop

    world.clock.later(seconds, stop)
    with pytest.raises(Stop):
        agent._repeat(name, 1, chore)


# -- chores ------------------------------------------------------------------------------------------------------------


def test_a_chore_goes_on_after_any_error(agent: Agent, world: World, caplog: pytest.LogCaptureFixture) -> None:
    errors = iter([THROTTLED, OSError("no route"), ValueError("a mistake of ours")])
    done = []

    def chore() -> None:
        for error in errors:
            raise error
        done.append(world.clock.passed)

    repeat(agent, chore, world, 100)
    assert len(done) > 10
    assert "names: no route" in caplog.text
    assert "names: unexpected error" in caplog.text


def test_a_chore_that_needs_a_login_rests_before_the_first_boot_has_stored_it(
    agent: Agent, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    repeat(agent, agent._monitor, world, 10)
    assert caplog.text == ""


def test_the_same_error_is_logged_once_a_minute(agent: Agent, world: World, caplog: pytest.LogCaptureFixture) -> None:
    def chore() -> None:
        raise OSError("no route")

    repeat(agent, chore, world, 150)
    assert caplog.text.count("names: no route") == 3


CHORES = (
    *("names", "rejoin", "raft", "registration", "balance", "health", "ownership", "services", "split", "stuck"),
    "unfit",
)


def running(agent: Agent, world: World) -> set[str]:
    seen: set[str] = set()
    for name in (*CHORES, "lifecycle"):
        repeat(agent, lambda name=name: seen.add(name), world, 10, name=name)  # type: ignore[misc]
    return seen


def test_chores_rest_while_the_node_stops_but_the_lifecycle_goes_on(agent: Agent, world: World) -> None:
    assert running(agent, world) == {*CHORES, "lifecycle"}
    agent._leaving.set()
    assert running(agent, world) == {*CHORES, "lifecycle"} - {"services", "unfit"}
    agent._stopping.set()
    assert running(agent, world) == {"lifecycle"}


def test_every_chore_has_a_thread_of_its_own_and_lifecycle_the_main_one(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    class Thread:
        def __init__(self, *, name: str, **_: Any) -> None:
            started.append(name)

        def start(self) -> None:
            pass

    monkeypatch.setattr(threading, "Thread", Thread)
    monkeypatch.setattr(agent, "_repeat", lambda name, seconds, chore: started.append(f"main {name}"))
    agent.run()
    assert started == ["save", *CHORES, "main lifecycle"]


def test_a_disk_that_has_failed_for_long_counts_as_dead_when_the_node_leaves(agent: Agent, world: World) -> None:
    world.programs.react("systemctl", "is-active", reaction=lambda _: Result(0, "active"))
    assert agent._node.broker_runs()
    agent._health._failing_since = world.clock.monotonic()
    world.clock.sleep(PATIENCE_SECONDS - 1)
    assert agent._node.broker_runs()
    world.clock.sleep(1)
    assert not agent._node.broker_runs()


# -- leaving -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def leaving(agent: Agent, world: World, monkeypatch: pytest.MonkeyPatch) -> Leaving:
    """A node that is told to end and does what is asked of it."""
    node = Leaving()
    agent._node = node  # type: ignore[assignment]
    world.metadata.values["autoscaling/target-lifecycle-state"] = "Terminated"
    return node


def test_an_instance_in_service_stays(agent: Agent, world: World, leaving: Leaving) -> None:
    world.metadata.values["autoscaling/target-lifecycle-state"] = "InService"
    agent._watch_lifecycle()
    assert leaving.done == []
    assert not agent._leaving.is_set()


def test_an_instance_that_is_to_end_leaves_and_then_completes_the_hook(
    agent: Agent, world: World, leaving: Leaving
) -> None:
    agent._watch_lifecycle()
    assert leaving.done == ["stop boot", "drain", "let go"]
    assert agent._rests("names")
    assert world.load_balancing.calls == ["deregister"] * len(world.instance.target_groups)
    assert "owner" not in world.dynamodb.item(f"node/{NODE}")
    assert world.hook_calls()[-1] == "complete_lifecycle_action terminate"
    agent._watch_lifecycle()
    assert leaving.done == ["stop boot", "drain", "let go"]


def test_a_node_is_missed_while_a_peers_members_catch_up_and_its_own_do_not_matter(agent: Agent, world: World) -> None:
    for name in ("administrator", "monitoring"):
        login = {"username": name, "password": "secret", "version": "1"}
        world.paths.secrets.mkdir(parents=True, exist_ok=True)
        (world.paths.secrets / f"{name}.json").write_text(json.dumps(login))
    world.cluster_runs(NODE, *PEERS)
    names = [f"rabbit@{node}" for node in (NODE, *PEERS)]
    members = [
        {"Node Name": name, "Raft State": state, "Last Log Index": last, "Commit Index": 9}
        for name, state, last in zip(names, ("follower", "leader", "follower"), (4, 9, 7), strict=True)
    ]
    world.loopback.on("GET /api/queues", [{"name": "orders", "vhost": "/", "type": "quorum", "members": names}])
    world.loopback.on("GET /api/queues/quorum/%2F/orders/status", members)
    assert agent._node.quorum_without() == f"quorum queue orders: {names[2]} is 2 log entries behind"
    members[2]["Last Log Index"] = 9
    assert agent._complete() is None


@pytest.mark.parametrize("error", [THROTTLED, NO_ACTION])
def test_a_completion_that_fails_is_tried_again_without_leaving_twice(
    error: Exception, agent: Agent, world: World, leaving: Leaving
) -> None:
    world.autoscaling.errors = [error, error]
    repeat(agent, agent._watch_lifecycle, world, 10, name="lifecycle")
    assert leaving.done == ["stop boot", "drain", "let go"]
    assert world.hook_calls() == ["complete_lifecycle_action terminate"]


def test_a_departure_cut_off_by_an_error_begins_again(agent: Agent, world: World, leaving: Leaving) -> None:
    errors = iter([THROTTLED])

    def stumble(_: str) -> None:
        for error in errors:
            raise error

    world.dynamodb.before = stumble
    repeat(agent, agent._watch_lifecycle, world, 10, name="lifecycle")
    assert leaving.done == ["stop boot", "stop boot", "drain", "let go"]


def test_metadata_that_falls_silent_does_not_call_a_departure_off(agent: Agent, world: World, leaving: Leaving) -> None:
    world.autoscaling.errors = [THROTTLED]
    with pytest.raises(type(THROTTLED)):
        agent._watch_lifecycle()
    world.metadata.values.clear()
    agent._watch_lifecycle()
    assert world.hook_calls() == ["complete_lifecycle_action terminate"]


def test_what_a_departure_left_without_can_be_read_far_away(agent: Agent, world: World, leaving: Leaving) -> None:
    leaving.quorum = iter(lambda: f"2 of 3 nodes run, missing: rabbit@{PEERS[0]}", None)
    agent._watch_lifecycle()
    report = world.dynamodb.item(f"departure/{NODE}")
    assert report["detail"] == "ownership handed over"
    assert "2 of 3 nodes run" in report["notes"][0]


def test_heartbeats_go_on_while_something_slow_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    beaten = threading.Event()

    class Beats(Hook):
        def __init__(self) -> None:
            pass

        def heartbeat(self) -> None:
            beaten.set()

    monkeypatch.setattr(agent_module, "HEARTBEAT_EVERY_SECONDS", 0.03)
    with heartbeats(Beats()):
        assert beaten.wait(5)
    assert not [thread for thread in threading.enumerate() if thread.name == "heartbeats"]


# -- services ----------------------------------------------------------------------------------------------------------

BROKER = "rabbitmq-server.service"


def look(agent: Agent, world: World, times: int) -> None:
    for _ in range(times):
        agent._revival.check()
        world.clock.sleep(10)


@pytest.fixture
def booted(agent: Agent, world: World) -> Agent:
    world.systemd.states |= {BOOT: "active", CONSUL: "active", BROKER: "active"}
    return agent


@pytest.mark.parametrize("unit", [CONSUL, BROKER])
@pytest.mark.parametrize("state", ["inactive", "failed"])
def test_a_service_that_was_ended_comes_back_through_the_boot(
    unit: str, state: str, booted: Agent, world: World
) -> None:
    world.systemd.states[unit] = state
    look(booted, world, 2)
    assert world.systemd.asked == []
    look(booted, world, 1)
    assert world.systemd.asked == [("restart", BOOT)]


def test_a_restart_by_hand_is_not_interfered_with(booted: Agent, world: World) -> None:
    for state in ("inactive", "active", "inactive", "activating", "inactive", "deactivating"):
        world.systemd.states[BROKER] = state
        look(booted, world, 1)
    assert world.systemd.asked == []


@pytest.mark.parametrize("state", ["activating", "failed", "inactive"])
def test_a_boot_that_goes_on_or_refused_has_the_last_word(state: str, booted: Agent, world: World) -> None:
    world.systemd.states |= {BOOT: state, BROKER: "inactive", CONSUL: "inactive"}
    look(booted, world, 10)
    assert world.systemd.asked == []


def test_a_systemd_that_does_not_answer_starts_nothing(booted: Agent, world: World) -> None:
    world.programs.on("systemctl", code=None, output="no end within 30 s")
    look(booted, world, 10)
    assert world.programs.ran("systemctl", "restart") == []


def test_a_refused_boot_begins_again_once_for_an_order_to_rebuild(agent: Agent, world: World) -> None:
    world.systemd.states[BOOT] = "failed"
    look(agent, world, 1)
    assert world.systemd.asked == []
    world.dynamodb.put(f"node/{NODE}", owner=ME, rebuild="2026-03-01T00:00:00+00:00")
    for _ in range(3):
        world.systemd.states[BOOT] = "failed"
        look(agent, world, 1)
    assert world.systemd.asked == [("restart", BOOT)]


@pytest.mark.parametrize("state", ["active", "activating"])
def test_a_boot_that_did_not_refuse_is_not_disturbed_by_an_order(state: str, booted: Agent, world: World) -> None:
    world.dynamodb.put(f"node/{NODE}", owner=ME, rebuild="2026-03-01T00:00:00+00:00")
    world.systemd.states[BOOT] = state
    look(booted, world, 3)
    assert world.systemd.asked == []


# -- guard -------------------------------------------------------------------------------------------------------------


def guard(world: World, node: Leaving) -> Guard:
    ownership = Ownership(world.dynamodb.table, NODE, ME, world.clock)
    return Guard(
        ownership, ME, node, Services(world.programs), lambda: "/mnt/rabbitmq" in world.paths.mountinfo.read_text()
    )


def test_who_lost_the_node_stands_down_and_goes_back_to_the_fence(world: World) -> None:
    set_mounted(world.paths)
    world.dynamodb.put(f"node/{NODE}", owner="i-another")
    node = Leaving()
    assert guard(world, node).check()
    assert node.done == ["stop boot", "let go"]
    assert world.systemd.asked == [("restart", BOOT)]


@pytest.mark.parametrize(
    ("mounted", "item"),
    [(True, {"owner": ME}), (True, {"released_at": "x"}), (False, {"owner": "i-another"})],
)
def test_who_still_is_the_node_or_has_not_begun_goes_on(mounted: bool, item: dict[str, str], world: World) -> None:
    set_mounted(world.paths, mounted)
    world.dynamodb.put(f"node/{NODE}", **item)
    node = Leaving()
    assert not guard(world, node).check()
    assert node.done == []


def test_a_table_that_does_not_answer_proves_nothing(world: World) -> None:
    set_mounted(world.paths)

    def fail(_: str) -> None:
        raise THROTTLED

    world.dynamodb.before = fail
    node = Leaving()
    with pytest.raises(type(THROTTLED)):
        guard(world, node).check()
    assert node.done == []


# -- report ------------------------------------------------------------------------------------------------------------


def test_a_wait_is_stored_when_its_reason_is_new_and_then_twice_a_minute(
    dynamodb: DynamoDB, clock: ManualClock
) -> None:
    stored: list[str] = []
    dynamodb.before = stored.append
    report = Report(dynamodb.table, "boot/x", ME, clock)
    for reason in ["a"] * 10 + ["b"] * 10:
        report.waiting(reason)
        clock.sleep(1)
    assert len(stored) == 2
    for _ in range(61):
        report.waiting("b")
        clock.sleep(1)
    assert len(stored) == 2 + 60 // int(PUSH_EVERY_SECONDS)


def test_a_note_is_kept_once(dynamodb: DynamoDB, clock: ManualClock) -> None:
    report = Report(dynamodb.table, "boot/x", ME, clock)
    report.note("without the plugin")
    report.note("without the plugin")
    report.ready()
    assert dynamodb.item("boot/x")["notes"] == ["without the plugin"]


# -- the program -------------------------------------------------------------------------------------------------------


def test_an_agent_that_cannot_start_says_why_and_systemd_tries_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.paths.instance_file.unlink()
    assert agent_module.agent(world.paths) == 1
    assert "the agent cannot start" in caplog.text
    assert config.REMEDY in caplog.text
