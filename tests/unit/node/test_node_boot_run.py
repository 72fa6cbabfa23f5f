"""The runner of the steps: durations, outcomes, and signals with their reason. Whatever happens, it fails closed."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from node import boot_run
from node.boot_context import LATE_AT_FENCE_SECONDS, LATE_SECONDS, Attempts, Boot
from node.boot_run import AGAIN, READY, REFUSED, run_steps
from node.errors import NotYet, Refusal
from node.paths import Paths
from stacks.node import CREATION_TIMEOUT, ROLL_TIMEOUT
from tests.unit.node.standins import THROTTLED, ManualClock
from tests.unit.node.world import ME, NODE, World


def takes(seconds: float) -> Callable[[Boot], None]:
    return lambda boot: boot.clock.sleep(seconds)


def raises(error: Exception) -> Callable[[Boot], None]:
    def step(_: Boot) -> None:
        raise error

    return step


def never(_: Boot) -> None:
    raise AssertionError("a step after a failed one")


def report(world: World) -> dict[str, Any]:
    return world.dynamodb.item(f"boot/{NODE}")


def test_every_steps_duration_is_logged_and_reported(world: World, caplog: pytest.LogCaptureFixture) -> None:
    assert run_steps(world.boot(), [("one", takes(1.5)), ("two", takes(0.25))]) == READY
    assert "step one done in 1.50 s" in caplog.text
    assert f"{NODE} is ready, 1.8 s after the boot began" in caplog.text
    item = report(world)
    assert item["state"] == "ready"
    assert [(step["name"], float(step["seconds"]), step["state"]) for step in item["steps"]] == [
        ("one", 1.5, "done"),
        ("two", 0.25, "done"),
    ]


def test_a_refusal_ends_the_boot_with_reason_and_remedy_everywhere(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = Refusal("no marker", "fs-1", "rebuild the node")
    assert run_steps(world.boot(), [("storage", raises(refusal)), ("later", never)]) == REFUSED
    assert "step storage refused after 0.0 s: no marker (in fs-1). To do: rebuild the node" in caplog.text
    item = report(world)
    assert (item["state"], item["step"]) == ("failed", "storage")
    assert (item["detail"], item["remedy"]) == ("no marker (in fs-1)", "rebuild the node")
    assert world.signals() == [("i-me storage: no marker", "FAILURE"), (ME, "FAILURE")]


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (NotYet("nobody answers"), "nobody answers"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (THROTTLED, "Rate exceeded"),
        (ValueError("a mistake of ours"), "unexpected ValueError: a mistake of ours"),
    ],
)
def test_any_other_failure_ends_this_attempt_only(error: Exception, detail: str, world: World) -> None:
    assert run_steps(world.boot(), [("consul", raises(error)), ("later", never)]) == AGAIN
    item = report(world)
    assert item["state"] == "retrying"
    assert detail in item["detail"]
    assert "tried again" in item["remedy"]
    assert world.signals() == []


def test_a_table_that_does_not_answer_stops_no_boot(world: World) -> None:
    def fail(_: str) -> None:
        raise THROTTLED

    world.dynamodb.before = fail
    assert run_steps(world.boot(), [("one", takes(1))]) == READY


def test_exit_codes_are_those_that_the_unit_knows() -> None:
    unit = boot_run.__file__.rsplit("/node/", 1)[0] + "/systemd/rabbitmq-node-boot.service"
    with open(unit) as stream:
        assert f"RestartPreventExitStatus={REFUSED}\n" in stream.read()
    assert AGAIN not in (READY, REFUSED)


# -- late --------------------------------------------------------------------------------------------------------------


def minutes(timeout: str) -> float:
    return {"PT30M": 30.0, "PT1H": 60.0}[timeout]


def test_a_late_boot_says_why_before_cloudformation_gives_up() -> None:
    assert minutes(CREATION_TIMEOUT) - 5 >= LATE_SECONDS / 60
    assert minutes(ROLL_TIMEOUT) - 5 >= LATE_AT_FENCE_SECONDS / 60


def waits(seconds: int, reason: str) -> Callable[[Boot], None]:
    def step(boot: Boot) -> None:
        for _ in range(seconds // 10):
            boot.clock.sleep(10)
            boot.waiting(reason)

    return step


def test_a_step_that_waits_too_long_is_signalled_once_and_goes_on(world: World) -> None:
    assert run_steps(world.boot(), [("ready", waits(1700, "2 of 3 nodes run"))]) == READY
    assert world.signals() == [("i-me ready: 2 of 3 nodes run", "FAILURE"), (ME, "FAILURE")]


def test_attempts_count_together(world: World) -> None:
    for _ in range(3):
        context = world.boot()
        assert run_steps(context, [("consul", takes(600)), ("broken", raises(NotYet("no")))]) == AGAIN
    assert context.attempts.count == 3
    assert world.signals() == [("i-me broken: no", "FAILURE"), (ME, "FAILURE")]


def test_the_old_instances_time_is_its_own(world: World) -> None:
    context = world.boot()
    assert run_steps(context, [("ownership", waits(3000, "instance i-old owns the node"))]) == READY
    assert world.signals() == []


def test_a_fence_that_stays_shut_is_signalled_too(world: World) -> None:
    run_steps(world.boot(), [("ownership", waits(3400, "instance i-old owns the node"))])
    assert world.signals()[0] == ("i-me ownership: instance i-old owns the node", "FAILURE")


def test_attempts_survive_the_process_and_end_with_success(world: World, clock: ManualClock) -> None:
    run_steps(world.boot(), [("one", raises(NotYet("no")))])
    assert Attempts(world.paths.run / "attempts", clock).count == 1
    run_steps(world.boot(), [("one", takes(0))])
    assert Attempts(world.paths.run / "attempts", clock).count == 0


@pytest.mark.parametrize("content", ["", "x y", "3"])
def test_a_broken_attempts_file_is_a_first_attempt(content: str, world: World, clock: ManualClock) -> None:
    path = world.paths.run / "attempts"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert Attempts(path, clock).count == 0


# -- the whole program -------------------------------------------------------------------------------------------------


def test_a_broken_instance_file_is_refused_and_not_tried_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.paths.instance_file.write_text("{}")
    assert boot_run.boot(world.paths) == REFUSED
    assert "node: missing" in caplog.text


def test_metadata_that_does_not_answer_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(paths: Paths, instance: object) -> Boot:
        raise NotYet("instance metadata does not answer")

    monkeypatch.setattr(Boot, "on_this_host", silent)
    assert boot_run.boot(world.paths) == AGAIN


def test_a_bundle_of_another_cluster_is_reported_as_a_step(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    document = json.loads(world.paths.cluster_file.read_text())
    context = world.boot()
    world.paths.cluster_file.write_text(json.dumps({**document, "cluster": "rabbitmq-other"}))
    monkeypatch.setattr(Boot, "on_this_host", lambda paths, instance: context)
    assert boot_run.boot(world.paths) == REFUSED
    assert report(world)["step"] == "identity"
    assert world.signals()[0][0].startswith("i-me identity: it is of cluster rabbitmq-other")
