"""Publishes what waits in the outbox, and only then removes it: each event at least once, those of a key in order.

Polling, not DynamoDB Streams: docs/messaging.md says why.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from messaging import schema
from messaging.errors import UnavailableError
from messaging.leases import Leases
from messaging.metrics import OLDEST, PARKED, LoggedMetrics, Metrics
from messaging.outbox import Outbox, loaded_event
from messaging.parking import Ordering, Parking
from messaging.publishing import Fate, Outgoing, Publisher, Receipt, outgoing
from messaging.retries import Backoff

log = logging.getLogger("messaging.relay")

BACKOFF = Backoff(first=0.2, most=30)
FAILURES_BEFORE_GIVING_BACK = 3
"""Sweeps in a row that failed, until a relay gives its shards back for a while."""

TROUBLE_KEPT_SECONDS = 600


@dataclass(frozen=True)
class RelayPolicy:
    """`poll_seconds`: how long an event waits at most while nobody nudges. `page`: events read at a time.

    `unroutable_attempts`: an event that comes back this often is parked. `backoff`: between attempts for one key, and
    after the broker or DynamoDB could not be reached. `level_seconds`: how often parked events are counted.
    """

    poll_seconds: float = 1.0
    page: int = 100
    unroutable_attempts: int = 3
    backoff: Backoff = BACKOFF
    level_seconds: float = 60


@dataclass
class _Trouble:
    """An event that was refused: how often, and when it may be tried again."""

    attempts: int = 0
    not_before: float = 0


class Relay:
    """One relay. Several may run side by side, in one process or many: the leases share the shards out."""

    def __init__(
        self,
        outbox: Outbox,
        publisher: Publisher,
        leases: Leases,
        *,
        policy: RelayPolicy = RelayPolicy(),
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        if publisher.limit_seconds > leases.seconds / 2:
            raise ValueError(
                f"publisher: it may take {publisher.limit_seconds:g} s, and the leases last {leases.seconds:g} s. "
                "At most half of them, or another relay could publish the same event meanwhile"
            )
        self._outbox = outbox
        self._database = outbox.database
        self._publisher = publisher
        self._leases = leases
        self._policy = policy
        self._metrics = metrics or LoggedMetrics()
        self._clock = clock
        self._now = now
        self._parking = Parking(outbox)
        self._nudged = threading.Event()
        self._ordering = Ordering(outbox, self._parking)
        self._trouble: dict[str, _Trouble] = {}
        self._after: dict[int, dict[str, Any] | None] = {}
        self._next_levels = -math.inf

    def nudge(self) -> None:
        """Look for events now rather than at the next poll. From any thread."""
        self._nudged.set()

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set, then give the leases back. Whoever sets it should also call `nudge`."""
        failures = 0
        while not stop.is_set():
            self._nudged.clear()
            try:
                more = self.sweep()
                failures = 0
            except UnavailableError as error:
                wait = self._policy.backoff.delay(failures)
                failures += 1
                log.warning("relay: %s; trying again in %.1f s", error, wait)
                if failures % FAILURES_BEFORE_GIVING_BACK == 0:
                    # Perhaps another relay has a way to the broker: leave it the time to take over.
                    self._give_back()
                    wait = self._leases.seconds
                # Not woken by nudges: there is something wrong.
                stop.wait(wait)
            else:
                if not more:
                    self._nudged.wait(self._policy.poll_seconds)
        self._give_back()

    def sweep(self) -> bool:
        """Publish what waits in this relay's shards: a page of each. Whether there is more to do right away.

        Raises UnavailableError when DynamoDB or the broker could not do it.
        """
        self._outbox.open()
        self._forget_old_trouble()
        self._leases.renew_if_due()
        more = False
        written: list[int] = []
        for shard in self._leases.held():
            items, after = self._database.query(
                self._outbox.table,
                "pk = :shard",
                {":shard": schema.pending(shard)},
                limit=self._policy.page,
                after=self._after.get(shard),
            )
            self._after[shard] = after
            written += [int(item["created_at_ms"]) for item in items]
            progress = self._publish_page(shard, items)
            more = more or after is not None or progress
        self._metrics.level(OLDEST, max(0.0, self._now() - min(written) / 1000) if written else 0.0)
        self._report_parked()
        return more

    def _publish_page(self, shard: int, items: Sequence[dict[str, Any]]) -> bool:
        """In rounds: the next event of every key, at first also all events without one. Whether any was published."""
        queues: dict[str, list[dict[str, Any]]] = {}
        for item in items:
            queues.setdefault(f"k{item['key']}" if "key" in item else item["sk"], []).append(item)
        progress = False
        while queues:
            self._leases.renew_if_due()
            heads = [queue[0] for queue in queues.values() if self._is_due(queue[0])]
            # A key that cannot go on now is out until the next sweep: nothing of it may overtake.
            sent = list(self._ordering.ready(shard, heads))
            if not sent or not self._leases.holds(shard, self._publisher.limit_seconds):
                return progress
            receipts = self._publisher.publish([_message(item) for item in sent])
            confirmed = [item for item, receipt in zip(sent, receipts, strict=True) if receipt.fate is Fate.CONFIRMED]
            self._database.delete_all(self._outbox.table, [{"pk": item["pk"], "sk": item["sk"]} for item in confirmed])
            for item in confirmed:
                self._ordering.published(item)
                self._trouble.pop(item["sk"], None)
            progress = progress or bool(confirmed)
            self._metrics.count("EventsPublished", len(confirmed))
            self._handle_refused(sent, receipts)
            done = {item["sk"] for item in confirmed}
            queues = {name: queue[1:] for name, queue in queues.items() if queue[0]["sk"] in done and queue[1:]}
        return progress

    def _forget_old_trouble(self) -> None:
        """Of events which another relay has published meanwhile."""
        recent = self._clock() - TROUBLE_KEPT_SECONDS
        self._trouble = {place: trouble for place, trouble in self._trouble.items() if trouble.not_before > recent}

    def _is_due(self, item: dict[str, Any]) -> bool:
        trouble = self._trouble.get(item["sk"])
        return trouble is None or self._clock() >= trouble.not_before

    def _handle_refused(self, sent: Sequence[dict[str, Any]], receipts: Sequence[Receipt]) -> None:
        unknown = []
        for item, receipt in zip(sent, receipts, strict=True):
            match receipt.fate:
                case Fate.NACKED | Fate.UNROUTABLE:
                    self._postpone_or_park(item, receipt)
                case Fate.UNKNOWN:
                    unknown.append(receipt.reason)
        if unknown:
            raise UnavailableError(f"{len(unknown)} of {len(sent)} events were not confirmed: {unknown[0]}")

    def _postpone_or_park(self, item: dict[str, Any], receipt: Receipt) -> None:
        trouble = self._trouble.setdefault(item["sk"], _Trouble())
        trouble.attempts += 1
        if receipt.fate is Fate.UNROUTABLE and trouble.attempts >= self._policy.unroutable_attempts:
            self._parking.park(item, receipt.reason)
            del self._trouble[item["sk"]]
            self._metrics.count("EventsParked")
            self._next_levels = -math.inf
            log.error("event %s is parked: %s", item["id"], receipt.reason)
            return
        trouble.not_before = self._clock() + self._policy.backoff.delay(trouble.attempts - 1)
        log.warning("event %s: %s (%s), attempt %d", item["id"], receipt.fate.value, receipt.reason, trouble.attempts)

    def _report_parked(self) -> None:
        if self._clock() >= self._next_levels:
            self._metrics.level(PARKED, sum(self._parking.count(shard) for shard in self._leases.held()))
            self._next_levels = self._clock() + self._policy.level_seconds

    def _give_back(self) -> None:
        self._trouble.clear()
        self._after.clear()
        try:
            self._leases.release()
        except UnavailableError as error:
            log.warning("leases could not be given back and will run out: %s", error)


def _message(item: dict[str, Any]) -> Outgoing:
    return outgoing(loaded_event(item), int(item["sequence"]) if "sequence" in item else None)
