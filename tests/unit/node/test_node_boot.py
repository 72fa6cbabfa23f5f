"""The boot's steps: each does its part, refuses what it must, and can be repeated without harm."""

import json
import sys
from collections.abc import Callable, Iterator

import pytest

from node import boot, ready
from node.boot_context import Boot
from node.commands import Result
from node.errors import NotYet, Refusal
from node.lock import LOCK
from tests.unit.node.standins import THROTTLED, client_error
from tests.unit.node.world import ADDRESS, ME, NODE, PEERS, World, set_mounted

ORDER = "2026-02-28T09:00:00+00:00"
BROKER, CONSUL = "rabbitmq-server.service", "consul.service"


@pytest.fixture
def context(world: World) -> Boot:
    """A boot on a host where everything works and the whole cluster runs."""

    def mount(_: list[str]) -> Result:
        set_mounted(world.paths)
        return Result(0, "")

    world.programs.react("mount", reaction=mount)
    world.programs.on("dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server", output="4.0.5-5")
    world.programs.on("dpkg-query", "-W", "-f", "${Version}", "erlang-base", output="1:27.3.4.1+dfsg-1")
    world.programs.on("consul", "version", output="Consul v1.8.7+dfsg1\nProtocol 2 spoken by default\n")
    world.programs.on("/", code=0)
    world.programs.react(sys.executable, reaction=lambda _: Result(0, ""))

    def broker_starts() -> None:
        data = world.paths.rabbitmq_data / f"rabbit@{NODE}" / "data"
        data.parent.mkdir(parents=True, exist_ok=True)
        data.touch()

    world.systemd.on_start[BROKER] = broker_starts
    world.loopback.on("GET /v1/agent/self", {})
    world.loopback.on("GET /v1/agent/members", [])
    world.cluster_runs(NODE, *PEERS)
    return world.boot()


def run(context: Boot, *names: str) -> None:
    for name, step in boot.STEPS:
        if not names or name in names:
            step(context)


def everything(world: World) -> Iterator[str]:
    """All that a boot leaves on its host."""
    for path in sorted(world.paths.root.rglob("*")):
        if path.is_file() and path.is_relative_to(world.paths.root):
            yield f"{path} {path.stat().st_mode:o} {path.read_bytes()!r}"


def test_the_steps_come_in_the_order_of_the_design() -> None:
    names = [name for name, _ in boot.STEPS]
    assert names.index("ownership") < names.index("storage") < names.index("consul") < names.index("rabbitmq")
    assert names[0] == "identity"
    assert names[-1] == "ready"


def test_repeating_every_step_changes_nothing(world: World, context: Boot) -> None:
    run(context)
    before = list(everything(world))
    world.systemd.asked.clear()
    context.was_member = False
    for name, _ in boot.STEPS:
        run(context, name)
        run(context, name)
    assert list(everything(world)) == before
    assert {verb for verb, _ in world.systemd.asked} == {"start"}


@pytest.mark.parametrize("reached", range(1, len(boot.STEPS)))
def test_a_boot_that_ended_after_any_step_can_begin_again_on_the_same_host(
    reached: int, world: World, context: Boot
) -> None:
    for _, step in boot.STEPS[:reached]:
        step(context)
    run(world.boot())
    assert world.dynamodb.item(f"node/{NODE}")["member_since"]


@pytest.mark.parametrize("reached", range(1, len(boot.STEPS)))
def test_a_boot_that_died_after_any_step_can_be_taken_up_by_another_instance(
    reached: int, world: World, context: Boot
) -> None:
    for _, step in boot.STEPS[:reached]:
        step(context)
    item = world.dynamodb.item(f"node/{NODE}")
    if "owner" in item:
        world.dynamodb.put(f"node/{NODE}", **{**item, "owner": "i-dead"})
        world.ec2.states["i-dead"] = "terminated"
    run(world.boot())
    assert world.dynamodb.item(f"node/{NODE}")["owner"] == ME


# -- identity ----------------------------------------------------------------------------------------------------------


def test_the_host_takes_the_nodes_name_and_keeps_it(world: World, context: Boot) -> None:
    run(context, "identity")
    assert world.names == [NODE]
    assert world.paths.hostname.read_text() == f"{NODE}\n"
    assert "preserve_hostname: true" in world.paths.cloud_cfg.read_text()


def test_an_instance_in_another_zone_is_refused(world: World, context: Boot) -> None:
    world.metadata.values["placement/availability-zone"] = "eu-west-1b"
    with pytest.raises(Refusal, match="lives in eu-west-1a, this instance is in eu-west-1b"):
        run(context, "identity")
    assert world.names == []


# -- ownership ---------------------------------------------------------------------------------------------------------


def test_the_fence_is_waited_at_with_heartbeats_and_a_report(world: World, context: Boot) -> None:
    world.dynamodb.put(f"node/{NODE}", owner="i-old", owned_since="2026-02-01T00:00:00+00:00")
    world.ec2.states["i-old"] = "running"
    world.clock.later(100, lambda: world.ec2.states.update({"i-old": "terminated"}))
    run(context, "ownership")
    assert world.hook_calls() == ["record_lifecycle_action_heartbeat launch"] * 3
    report = world.dynamodb.item(f"boot/{NODE}")
    assert (report["state"], report["detail"]) == ("waiting", "instance i-old owns the node and is running")
    assert context.attempts.seconds == 0  # the wait is the old instance's own


def test_the_wait_at_the_fence_ends_some_time(world: World, context: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot, "FENCE_LIMIT_SECONDS", 200)
    world.dynamodb.put(f"node/{NODE}", owner="i-old", owned_since="2026-02-01T00:00:00+00:00")
    world.ec2.states["i-old"] = "running"
    with pytest.raises(NotYet, match="i-old owns the node"):
        run(context, "ownership")
    assert 200 <= world.clock.passed <= 202


# -- consul ------------------------------------------------------------------------------------------------------------


def test_consul_is_restarted_only_when_its_configuration_changed(world: World, context: Boot) -> None:
    run(context, "consul")
    run(context, "consul")
    assert world.systemd.asked == [("restart", CONSUL), ("start", CONSUL)]


def test_a_consul_that_does_not_answer_is_not_waited_for_for_ever(world: World, context: Boot) -> None:
    del world.loopback.answers["GET /v1/agent/self"]
    with pytest.raises(NotYet, match=r"Consul's HTTP API: gave up after \d+ s: consul\.service is active"):
        run(context, "consul")


# -- rabbitmq ----------------------------------------------------------------------------------------------------------


def ready_in(world: World, seconds: float) -> None:
    answer = world.loopback.answers.pop("GET /")
    world.clock.later(seconds, lambda: world.loopback.answers.update({"GET /": answer}))


def test_a_new_node_completes_its_launch_hook_before_it_waits_for_the_others(world: World, context: Boot) -> None:
    del world.loopback.answers["GET /"]  # alone it never serves, and the others may be launched only after this
    context.was_member = False
    with pytest.raises(NotYet, match="the broker does not serve yet"):
        run(context, "rabbitmq")
    assert world.hook_calls()[0] == "complete_lifecycle_action launch"


@pytest.mark.parametrize("lost", ["launch hook", "table"])
def test_a_new_node_that_is_not_sure_of_its_directory_completes_nothing(lost: str, world: World, context: Boot) -> None:
    world.programs.on("mount", code=32, output="access denied")
    with pytest.raises(NotYet):
        run(context)
    assert world.hook_calls() == []


def test_a_replacement_completes_its_launch_hook_only_when_it_is_ready(world: World, context: Boot) -> None:
    run(context, "ownership", "storage")
    context.was_member = True
    run(context, "rabbitmq")
    assert world.hook_calls() == []
    run(context, "ready")
    assert world.hook_calls() == ["complete_lifecycle_action launch"]


def test_a_completion_that_fails_lets_the_boot_begin_again(world: World, context: Boot) -> None:
    world.autoscaling.errors = [THROTTLED]
    with pytest.raises(type(THROTTLED)):
        run(context, "rabbitmq")


CRASH = "BOOT FAILED\nError during startup: {error, {badmatch, corrupt}}\n\nbye\n"


def test_a_broker_that_fails_over_and_over_is_quoted(world: World, context: Boot) -> None:
    ready_in(world, 20)
    world.systemd.restarts[BROKER] = 100  # of its life before this boot
    world.clock.later(10, lambda: world.systemd.restarts.update({BROKER: 103}))
    world.systemd.printed[BROKER] = CRASH
    run(context, "rabbitmq")
    assert world.signals() == []
    report = world.dynamodb.item(f"boot/{NODE}")
    assert report["detail"].endswith("restarts: 3, and says: Error during startup: {error, {badmatch, corrupt}}")


def test_a_broker_that_cannot_start_fails_the_deployment_within_minutes(world: World, context: Boot) -> None:
    ready_in(world, 60)
    world.clock.later(30, lambda: world.systemd.restarts.update({BROKER: 8}))
    world.systemd.printed[BROKER] = CRASH
    context.report.step_started("rabbitmq")
    run(context, "rabbitmq")
    (reason, _), plain = world.signals()
    assert reason.startswith("i-me rabbitmq: Error during startup")
    assert plain == (ME, "FAILURE")


def test_a_changed_configuration_below_a_running_broker_is_told(world: World, context: Boot) -> None:
    world.systemd.states[BROKER] = "active"
    run(context, "rabbitmq")
    assert ("restart", BROKER) not in world.systemd.asked
    context.report.ready()
    assert "applies after" in world.dynamodb.item(f"boot/{NODE}")["notes"][0]


def without_the_exchange(world: World) -> None:
    world.loopback.on("GET /api/overview", {"exchange_types": [{"name": "direct"}]})


def test_a_broker_that_dropped_a_required_plugin_is_stopped(world: World, context: Boot) -> None:
    without_the_exchange(world)
    context.has_plugin = True
    world.paths.cluster_file.write_text(
        world.paths.cluster_file.read_text().replace('"required": false', '"required": true')
    )
    run(context, "identity")
    with pytest.raises(Refusal, match="RabbitMQ runs without rabbitmq_delayed_message_exchange"):
        run(context, "rabbitmq")
    assert world.systemd.states[BROKER] == "inactive"


def test_a_broker_that_dropped_an_optional_plugin_serves_and_says_so(world: World, context: Boot) -> None:
    without_the_exchange(world)
    context.has_plugin = True
    run(context, "rabbitmq")
    assert world.systemd.states[BROKER] == "active"
    context.report.ready()
    assert "it is not required" in world.dynamodb.item(f"boot/{NODE}")["notes"][-1]


# -- rebuild -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def ordered(world: World, context: Boot, monkeypatch: pytest.MonkeyPatch) -> Boot:
    """A member on an empty directory, and the order to rebuild it."""
    world.dynamodb.put(f"node/{NODE}", owner=ME, member_since="2026-01-01T00:00:00+00:00", rebuild=ORDER)
    peer = {"Node": {"Node": PEERS[0], "Address": "10.77.2.5"}}
    world.loopback.on("GET /v1/health/service/rabbitmq", [peer])
    monkeypatch.setattr(ready, "listens", lambda port, address: (port, address) == (25672, "10.77.2.5"))
    world.programs.on("rabbitmqctl", output="Removing node")
    return context


def test_a_rebuilt_node_joins_and_the_order_is_gone(world: World, ordered: Boot) -> None:
    run(ordered)
    item = world.dynamodb.item(f"node/{NODE}")
    assert "rebuild" not in item
    assert item["member_since"] == "2026-01-01T00:00:00+00:00"
    marker = json.loads(world.paths.marker.read_text())
    assert marker["member_since"]
    assert world.hook_calls() == ["complete_lifecycle_action launch"]


FORGET = ("rabbitmqctl", "--node")


def test_a_rebuilt_node_starts_only_once_a_member_has_forgotten_it(world: World, ordered: Boot) -> None:
    busy = f"rabbit@{PEERS[0]}"
    world.programs.react(
        *FORGET,
        reaction=lambda command: (
            Result(69, "Error: timeout") if busy in command or world.clock.passed < 60 else Result(0, "Removing node")
        ),
    )
    started: list[float] = []
    world.systemd.on_start[BROKER] = lambda: started.append(world.clock.passed)
    run(ordered)
    assert started[0] >= 60
    assert world.programs.ran(*FORGET)[-1] == [*FORGET, f"rabbit@{PEERS[1]}", "forget_cluster_node", f"rabbit@{NODE}"]


def test_a_rebuilt_node_that_is_no_member_any_more_need_not_be_forgotten(world: World, ordered: Boot) -> None:
    world.programs.on(*FORGET, output="{:not_a_cluster_node, The node selected is not in the cluster.}", code=69)
    run(ordered)
    assert len(world.programs.ran(*FORGET)) == 1


def test_a_rebuilt_node_that_has_joined_already_is_not_forgotten_again(world: World, ordered: Boot) -> None:
    run(ordered, "storage")
    (world.paths.rabbitmq_data / f"rabbit@{NODE}").mkdir(parents=True)
    (world.paths.rabbitmq_data / f"rabbit@{NODE}" / "schema").touch()
    run(ordered)
    assert world.programs.ran(*FORGET) == []


def no_peer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.loopback.on("GET /v1/health/service/rabbitmq", [])


def no_leader(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.loopback.on("GET /v1/health/service/rabbitmq", "No cluster leader", status=500)


def only_itself(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.loopback.on("GET /v1/health/service/rabbitmq", [{"Node": {"Node": NODE, "Address": ADDRESS}}])
    monkeypatch.setattr(ready, "listens", lambda port, address: True)


def no_way_there(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready, "listens", lambda port, address: False)


def no_consul(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    del world.loopback.answers["GET /v1/health/service/rabbitmq"]


@pytest.mark.parametrize("loneliness", [no_peer, no_leader, only_itself, no_way_there, no_consul])
def test_a_rebuilt_node_never_starts_its_broker_alone(
    loneliness: Callable[[World, pytest.MonkeyPatch], None],
    world: World,
    ordered: Boot,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loneliness(world, monkeypatch)
    with pytest.raises(NotYet, match="a member to join: gave up after 60"):
        run(ordered)
    assert ("start", BROKER) not in world.systemd.asked
    assert world.dynamodb.item(f"node/{NODE}")["rebuild"] == ORDER


def test_a_rebuilt_node_that_found_nobody_after_all_is_stopped_and_begins_again(world: World, ordered: Boot) -> None:
    world.cluster_runs(NODE)
    with pytest.raises(NotYet, match="founded a cluster of its own"):
        run(ordered)
    assert world.systemd.states[BROKER] == "inactive"
    foreign = world.paths.rabbitmq_data / f"rabbit@{NODE}" / "of-its-own"
    foreign.touch()
    world.cluster_runs(NODE, *PEERS)
    run(world.boot())
    assert not foreign.exists()
    assert "rebuild" not in world.dynamodb.item(f"node/{NODE}")


def test_an_order_that_came_too_late_does_not_lie_in_wait(world: World, context: Boot) -> None:
    run(context, "identity", "install", "secrets", "ownership", "storage", "consul", "names", "rabbitmq")
    world.dynamodb.put(f"node/{NODE}", **{**world.dynamodb.item(f"node/{NODE}"), "rebuild": ORDER})
    run(context, "ready")
    assert "rebuild" not in world.dynamodb.item(f"node/{NODE}")


def test_a_rebuild_stops_broker_and_consul_before_it_moves_their_data(world: World, ordered: Boot) -> None:
    run(ordered, "storage")
    assert world.systemd.asked == [("stop", BROKER), ("stop", CONSUL)]
    world.paths.marker.unlink()
    world.systemd.states[BROKER] = "stuck"
    with pytest.raises(NotYet, match=f"{BROKER} does not stop"):
        run(ordered, "storage")


# -- ready -------------------------------------------------------------------------------------------------------------


def test_ready_is_first_the_hook_then_the_load_balancers_then_lock_and_signal(world: World, context: Boot) -> None:
    world.dynamodb.put(LOCK, holder_node=NODE, holder_instance="i-old", acquired_at="2026-03-01T00:00:00+00:00")
    world.load_balancing.health = ("initial", "Elb.RegistrationInProgress")
    seen: list[tuple[list[str], bool, list[tuple[str, str]]]] = []

    def healthy() -> None:
        seen.append((world.hook_calls(), bool(world.dynamodb.item(LOCK)), world.signals()))
        world.load_balancing.health = ("healthy", "")

    world.clock.later(30, healthy)
    run(context, "ownership", "storage", "ready")
    assert seen == [(["complete_lifecycle_action launch"], True, [])]
    assert world.dynamodb.item(LOCK) == {}
    assert world.signals() == [(ME, "SUCCESS")]


REBALANCE = "POST /api/rebalance/queues"


def test_leaders_are_spread_once_every_member_has_the_whole_log(world: World, context: Boot) -> None:
    names = [f"rabbit@{node}" for node in (NODE, *PEERS)]
    log = {"Last Log Index": 9, "Commit Index": 9}
    members = [{"Node Name": name, "Raft State": "follower", **log} for name in names]
    members[1]["Raft State"] = "leader"
    members[0]["Last Log Index"] = 4
    queue = {"name": "orders", "vhost": "/", "type": "quorum", "members": names, "online": names}
    world.loopback.on("GET /api/queues", [queue])
    world.loopback.on("GET /api/queues/quorum/%2F/orders/status", members)
    asked: list[bool] = []

    def catch_up() -> None:
        asked.append(REBALANCE in world.loopback.calls)
        members[0]["Last Log Index"] = 9

    world.clock.later(30, catch_up)
    run(context, "ownership", "storage", "ready")
    assert asked == [False]
    assert world.loopback.calls.count(REBALANCE) == 1


def test_load_balancers_that_never_find_it_healthy_hold_up_nothing_for_ever(world: World, context: Boot) -> None:
    world.load_balancing.health = ("unhealthy", "Target.FailedHealthChecks")
    run(context, "ownership", "storage", "ready")
    assert world.signals() == [(ME, "SUCCESS")]
    context.report.ready()
    assert "the load balancers' health checks: gave up after 30" in world.dynamodb.item(f"boot/{NODE}")["notes"][0]


def test_an_incomplete_cluster_is_not_ready(world: World, context: Boot) -> None:
    world.cluster_runs(NODE, PEERS[0])
    with pytest.raises(NotYet, match=f"2 of 3 nodes run, missing: rabbit@{PEERS[1]}"):
        run(context, "ownership", "storage", "ready")
    assert (ME, "SUCCESS") not in world.signals()
    assert "member_since" not in world.dynamodb.item(f"node/{NODE}")


def test_who_lost_the_node_meanwhile_is_not_ready(world: World, context: Boot) -> None:
    run(context, "storage")
    world.dynamodb.put(f"node/{NODE}", owner="i-another")
    with pytest.raises(NotYet, match="another instance owns"):
        run(context, "ready")
    assert world.signals() == []


def test_a_signal_that_is_not_taken_lets_the_boot_begin_again(world: World, context: Boot) -> None:
    run(context, "ownership", "storage")
    world.cloudformation.errors = [client_error("Throttling")]
    with pytest.raises(type(THROTTLED)):
        run(context, "ready")
    run(context, "ready")
    assert world.signals() == [(ME, "SUCCESS")]
