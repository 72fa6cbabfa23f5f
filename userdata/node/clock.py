"""Time, in one place so that a test can own it."""

from __future__ import annotations

import random
import time
from datetime import datetime, timezone
from typing import Callable

from node.errors import NotYet
from node.journal import log

LOG_EVERY_SECONDS = 60.0
"""A wait whose reason does not change is logged at most this often."""


class Clock:
    """The real clock."""

    def monotonic(self) -> float:
        """Seconds, for durations."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        time.sleep(seconds)

    def now(self) -> datetime:
        """The time of day, UTC."""
        return datetime.now(timezone.utc)

    def stamp(self) -> str:
        """The time of day as it is stored, ISO 8601 in UTC."""
        return self.now().isoformat(timespec="seconds")


def wait_for(
    clock: Clock,
    what: str,
    probe: Callable[[], str | None],
    *,
    limit: float,
    interval: float,
    tick: Callable[[str], None] = lambda reason: None,
) -> None:
    """Call `probe` about every `interval` seconds until it returns None; a string says what is still missing.

    `tick` hears of every round's reason: reports and heartbeats hang on it. Raises NotYet after `limit` seconds.
    """
    started = clock.monotonic()
    said, said_at = "", started
    while True:
        reason = probe()
        waited = clock.monotonic() - started
        if reason is None:
            if said:
                log.info("%s: done after %.1f s", what, waited)
            return
        if waited >= limit:
            raise NotYet(f"{what}: gave up after {waited:.0f} s: {reason}")
        if (reason != said and waited >= 1) or clock.monotonic() - said_at >= LOG_EVERY_SECONDS:
            log.info("%s: waiting (%.0f s): %s", what, waited, reason)
            said, said_at = reason, clock.monotonic()
        tick(reason)
        clock.sleep(interval * random.uniform(0.8, 1.2))  # noqa: S311 - three nodes should not knock in step


def parse_stamp(stamp: str) -> datetime:
    """A stored time. Python 3.9 does not read the `Z` that other writers may use."""
    return datetime.fromisoformat(stamp.replace("Z", "+00:00"))
