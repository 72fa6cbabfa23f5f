"""Running the steps: durations into the journal, the outcome into the report, and a signal when a human is needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
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

SIGNAL_AFTER_ATTEMPTS = 10
"""So many unfinished boots in a row count as a failure for CloudFormation, though the next attempt follows."""

TRANSIENT_REMEDY = "nothing yet: the boot is tried again; if it does not get further, look at what it names"


def boot(paths: Paths = Paths()) -> int:  # noqa: B008 - immutable
    """One attempt of the whole boot; returns the exit code."""
    attempts = Attempts(paths.run / "attempts")
    try:
        instance, cluster = config.load(paths)
        context = Boot.on_this_host(paths, instance, cluster)
    except Refusal as refusal:
        log.error("refused: %s. To do: %s", refusal, refusal.remedy)
        return REFUSED
    except NotYet as error:
        log.error("boot not finished: %s", error)
        return AGAIN
    log.info("boot of %s on %s (%s), attempt %d", instance.node, context.instance_id, context.address, attempts.next())
    return run_steps(context, STEPS, attempts)


def run_steps(context: Boot, steps: Sequence[tuple[str, Callable[[Boot], None]]], attempts: Attempts) -> int:
    """Run `steps` in order up to the first failure; returns the exit code."""
    clock, begun = context.clock, context.clock.monotonic()
    for name, step in steps:
        started = clock.monotonic()
        context.report.step_started(name)
        try:
            step(context)
        except Refusal as refusal:
            seconds = clock.monotonic() - started
            log.error("step %s refused after %.1f s: %s. To do: %s", name, seconds, refusal, refusal.remedy)
            context.report.failed(name, seconds, str(refusal), refusal.remedy)
            context.signals.failure(name, refusal.what)
            attempts.clear()
            return REFUSED
        except (NotYet, OSError, *AwsError) as error:
            seconds = clock.monotonic() - started
            log.error("step %s failed after %.1f s: %s. It is tried again", name, seconds, error)
            context.report.failed(name, seconds, str(error), TRANSIENT_REMEDY)
            if attempts.count == SIGNAL_AFTER_ATTEMPTS:
                context.signals.failure(name, str(error))
            return AGAIN
        seconds = clock.monotonic() - started
        log.info("step %s done in %.2f s", name, seconds)
        context.report.step_done(name, seconds)
    attempts.clear()
    context.report.ready()
    log.info("%s is ready, %.1f s after the boot began", context.instance.node, clock.monotonic() - begun)
    return READY


class Attempts:
    """How many boots in a row have not finished; forgotten when the host restarts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self.count = int(path.read_text())
        except (OSError, ValueError):
            self.count = 0

    def next(self) -> int:
        """Count one more."""
        self.count += 1
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(str(self.count))
        return self.count

    def clear(self) -> None:
        """Start again from none."""
        self.count = 0
        if self._path.exists():
            self._path.unlink()
