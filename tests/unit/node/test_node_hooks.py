"""Lifecycle hooks and signals: what the outside waits for hears of it, and one failed call ends nothing."""

from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from node.lifecycle_hooks import HEARTBEAT_EVERY_SECONDS, RETRY_SECONDS, SIGNAL_ID_LENGTH, Hook, Signals
from node.targets import Targets
from tests.unit.node.standins import THROTTLED, LoadBalancing, ManualClock, Recorder, client_error

NO_ACTION = client_error("ValidationError", "No active Lifecycle Action found with instance ID i-me")
UNREACHABLE = EndpointConnectionError(endpoint_url="https://autoscaling.eu-west-1.amazonaws.com")


@pytest.fixture
def group() -> Recorder:
    return Recorder()


@pytest.fixture
def hook(group: Recorder, clock: ManualClock) -> Hook:
    return Hook(lambda: group, "launch", "group", "i-me", clock)  # type: ignore[arg-type,return-value]


def names(recorder: Recorder) -> list[str]:
    return [name for name, _ in recorder.calls]


def beat_for(hook: Hook, clock: ManualClock, seconds: int) -> None:
    for _ in range(seconds):
        clock.sleep(1)
        hook.heartbeat()


def test_heartbeats_come_every_half_minute_however_often_one_asks(
    hook: Hook, group: Recorder, clock: ManualClock
) -> None:
    beat_for(hook, clock, 95)
    assert names(group) == ["record_lifecycle_action_heartbeat"] * 3
    assert group.calls[0][1] == {
        "LifecycleHookName": "launch",
        "AutoScalingGroupName": "group",
        "InstanceId": "i-me",
    }


@pytest.mark.parametrize("error", [THROTTLED, UNREACHABLE])
def test_a_heartbeat_that_failed_is_made_good_within_seconds(
    error: Exception, hook: Hook, group: Recorder, clock: ManualClock
) -> None:
    group.errors = [error, error]
    beat_for(hook, clock, int(HEARTBEAT_EVERY_SECONDS + 2 * RETRY_SECONDS))
    assert names(group) == ["record_lifecycle_action_heartbeat"]


def test_without_an_action_heartbeats_go_on_at_their_usual_pace(
    hook: Hook, group: Recorder, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    group.errors = [NO_ACTION, NO_ACTION]  # a terminating instance first leaves its load balancers
    beat_for(hook, clock, 100)
    assert names(group) == ["record_lifecycle_action_heartbeat"]
    assert caplog.text.count("takes no heartbeat") == 1


def test_a_completed_hook_is_left_in_peace(hook: Hook, group: Recorder, clock: ManualClock) -> None:
    assert hook.complete()
    beat_for(hook, clock, 100)
    assert hook.complete()
    assert names(group) == ["complete_lifecycle_action"]
    assert group.calls[0][1]["LifecycleActionResult"] == "CONTINUE"


def test_a_hook_that_nobody_waits_for_is_no_error_and_may_be_tried_again(hook: Hook, group: Recorder) -> None:
    group.errors = [NO_ACTION]
    assert not hook.complete()
    assert hook.complete()


@pytest.mark.parametrize("error", [THROTTLED, UNREACHABLE, client_error("ValidationError", "group not found")])
def test_a_completion_that_failed_is_raised_so_that_it_is_tried_again(
    error: Exception, hook: Hook, group: Recorder
) -> None:
    group.errors = [error]
    with pytest.raises(type(error)):
        hook.complete()
    assert hook.complete()


# -- signals -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def stack() -> Recorder:
    return Recorder()


@pytest.fixture
def signals(stack: Recorder) -> Signals:
    return Signals(lambda: stack, "stack", "NodeGroup", "i-me")  # type: ignore[arg-type,return-value]


def ids(stack: Recorder) -> list[tuple[Any, Any]]:
    return [(arguments["UniqueId"], arguments["Status"]) for _, arguments in stack.calls]


def test_success_is_signalled_for_the_groups_own_resource(signals: Signals, stack: Recorder) -> None:
    signals.success()
    assert stack.calls == [
        (
            "signal_resource",
            {"StackName": "stack", "LogicalResourceId": "NodeGroup", "UniqueId": "i-me", "Status": "SUCCESS"},
        )
    ]


def test_a_failure_carries_its_step_and_reason_first(signals: Signals, stack: Recorder) -> None:
    signals.failure("storage", "the directory belongs to another node, and a long story follows here")
    (reason, _), plain = ids(stack)
    assert reason.startswith("i-me storage: the directory belongs to")
    assert len(reason) == SIGNAL_ID_LENGTH
    assert plain == ("i-me", "FAILURE")


def test_a_failure_whose_reason_is_not_taken_is_signalled_all_the_same(signals: Signals, stack: Recorder) -> None:
    stack.errors = [THROTTLED]
    signals.failure("storage", "no")
    assert ids(stack) == [("i-me", "FAILURE")]


def test_outside_a_deployment_nobody_takes_a_signal_and_that_is_no_error(signals: Signals, stack: Recorder) -> None:
    stack.errors = [client_error("ValidationError", "Resource is in CREATE_COMPLETE state and cannot be signaled")]
    signals.success()


def test_a_success_that_is_not_sent_is_raised_for_the_deployment_would_be_rolled_back(
    signals: Signals, stack: Recorder
) -> None:
    stack.errors = [THROTTLED]
    with pytest.raises(type(THROTTLED)):
        signals.success()


# -- load balancers ----------------------------------------------------------------------------------------------------

GROUP = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/amqp/0123"


@pytest.mark.parametrize(
    ("health", "missing"),
    [
        (("healthy", ""), None),
        (("unused", "Target.NotInUse"), None),  # a cluster's creation: the load balancers come after the nodes
        (("unused", "Target.NotRegistered"), "target group amqp has this instance unused"),
        (("initial", "Elb.RegistrationInProgress"), "target group amqp has this instance initial"),
        (("unhealthy", "Target.FailedHealthChecks"), "target group amqp has this instance unhealthy"),
    ],
)
def test_a_target_counts_once_it_is_healthy_where_it_is_used(health: tuple[str, str], missing: str | None) -> None:
    balancing = LoadBalancing()
    balancing.health = health
    targets = Targets(lambda: balancing, [GROUP], "i-me")  # type: ignore[arg-type,return-value]
    assert targets.missing() == missing


def test_every_target_group_is_asked() -> None:
    balancing = LoadBalancing()
    targets = Targets(lambda: balancing, [GROUP, f"{GROUP}4"], "i-me")  # type: ignore[arg-type,return-value]
    assert targets.missing() is None
    assert balancing.asked == [GROUP, f"{GROUP}4"]


def test_load_balancing_that_does_not_answer_is_waited_for() -> None:
    recorder = Recorder()
    recorder.errors = [THROTTLED]
    targets = Targets(lambda: recorder, [GROUP], "i-me")  # type: ignore[arg-type,return-value]
    assert str(targets.missing()).startswith("AWS does not answer")


def test_clients_have_another_node_once_every_group_in_use_has_another_healthy_target() -> None:
    balancing = LoadBalancing()
    targets = Targets(lambda: balancing, [GROUP], "i-me")  # type: ignore[arg-type,return-value]
    balancing.targets = {"i-me": ("healthy", ""), "i-b": ("draining", ""), "i-c": ("initial", "")}
    assert targets.others_missing() == "target group amqp has no other healthy target"
    balancing.targets = {}
    assert targets.others_missing() == "target group amqp has no other healthy target"
    balancing.targets = {"i-me": ("draining", ""), "i-c": ("healthy", "")}
    assert targets.others_missing() is None
    balancing.targets = {"i-b": ("unused", "Target.NotInUse")}
    assert targets.others_missing() is None


def test_a_target_is_put_in_and_taken_out_of_every_group_whatever_one_of_them_says() -> None:
    recorder = Recorder()
    targets = Targets(lambda: recorder, [GROUP, f"{GROUP}4"], "i-me")  # type: ignore[arg-type,return-value]
    recorder.errors = [THROTTLED]
    targets.register()
    targets.deregister()
    me = [{"Id": "i-me"}]
    assert recorder.calls == [
        ("register_targets", {"TargetGroupArn": f"{GROUP}4", "Targets": me}),
        ("deregister_targets", {"TargetGroupArn": GROUP, "Targets": me}),
        ("deregister_targets", {"TargetGroupArn": f"{GROUP}4", "Targets": me}),
    ]
