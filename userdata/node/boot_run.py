"""Running the steps: durations into the journal, the outcome into the report, and a signal when a human is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable

from node import config
from node.aws import AwsError
from node.boot import STEPS
from node.boot_context import Boot
from node.errors import NotYet, Refusal
from node.journal import log
from node.paths import Paths

READY, AGAIN, REFUSED = 0, 75, 78
"""Exit codes. systemd starts the unit again after AGAIN (EX_TEMPFAIL) and leaves it after REFUSED (EX_CONFIG)."""

TRANSIENT_REMEDY = "nothing yet: the boot is tried again; if it does not get further, look at what it names"


def boot(paths: Paths = Paths()) -> int:  # noqa: B008 - immutable
    """One attempt of the whole boot; returns the exit code."""
    try:
        instance = config.load_instance(paths)
        context = Boot.on_this_host(paths, instance)
    except Refusal as refusal:
        log.error("refused: %s. To do: %s", refusal, refusal.remedy)
        return REFUSED
    except NotYet as error:
        log.error("boot not finished: %s", error)
        return AGAIN
    return run_steps(context, STEPS)


def run_steps(context: Boot, steps: Sequence[tuple[str, Callable[[Boot], None]]]) -> int:
    """Run `steps` in order up to the first failure; returns the exit code."""
    attempts = context.attempts
    attempts.begin()
    log.info(
        "boot of %s on %s (%s), attempt %d",
        context.instance.node,
        context.instance_id,
        context.address,
        attempts.count,
    )
    clock, begun = context.clock, context.clock.monotonic()
    for name, step in steps:
        started = clock.monotonic()
        context.report.step_started(name)
        context.launch_hook.heartbeat()
        try:
            step(context)
        except Refusal as refusal:
            seconds = clock.monotonic() - started
            log.error("step %s refused after %.1f s: %s. To do: %s", name, seconds, refusal, refusal.remedy)
            context.report.failed(name, seconds, str(refusal), refusal.remedy)
            context.signals.failure(name, refusal.what)
            attempts.clear()
            return REFUSED
        except Exception as error:
            seconds = clock.monotonic() - started
            expected = isinstance(error, (NotYet, OSError, *AwsError))
            reason = str(error) if expected else f"unexpected {type(error).__name__}: {error}"
            log.error(
                "step %s failed after %.1f s: %s. It is tried again", name, seconds, reason, exc_info=not expected
            )
            context.report.failed(name, seconds, reason, TRANSIENT_REMEDY, state="retrying")
            context.signal_when_late(reason)
            return AGAIN
        seconds = clock.monotonic() - started
        log.info("step %s done in %.2f s", name, seconds)
        context.report.step_done(name, seconds)
    attempts.clear()
    context.report.ready()
    log.info("%s is ready, %.1f s after the boot began", context.instance.node, clock.monotonic() - begun)
    return READY
