"""Counters and levels that somebody should look at."""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient

log = logging.getLogger("messaging")

NAMESPACE = "RabbitMQ/Messaging"
OUTBOX = "Outbox"
"""The dimension of every metric: the name of an outbox table."""
PARKED = "ParkedEvents"
"""Level: events that the broker routes nowhere. Alarm above 0."""
OLDEST = "OldestPendingSeconds"
"""Level: age of the oldest event that waits. Alarm when it stays above some minutes: no relay works."""
DEAD_LETTERED = "DeadLetteredMessages"
"""Count: messages that a consumer gave up."""


class Metrics(Protocol):
    """Where counts and levels go. Calls must be quick and must not raise."""

    def count(self, name: str, value: int = 1) -> None:
        """Something happened, `value` times."""
        ...

    def level(self, name: str, value: float) -> None:
        """Something stands at `value` now."""
        ...


class LoggedMetrics:
    """The default: counts and levels at debug level, in the log."""

    def count(self, name: str, value: int = 1) -> None:
        """Log a count."""
        log.debug("%s +%s", name, value)

    def level(self, name: str, value: float) -> None:
        """Log a level."""
        log.debug("%s = %s", name, value)


class CloudWatchMetrics:
    """CloudWatch, at most once a minute, while something is reported: sums of the counts, the worst of the levels.

    `outbox`: the name of the application's outbox table, by which the alarms find its metrics.
    """

    def __init__(
        self,
        client: "CloudWatchClient",
        *,
        outbox: str,
        seconds: float = 60,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._dimensions = [{"Name": OUTBOX, "Value": outbox}]
        self._seconds = seconds
        self._clock = clock
        self._sent_at = clock()
        self._lock = threading.Lock()
        self._counts: dict[str, float] = defaultdict(float)
        self._levels: dict[str, float] = {}

    def count(self, name: str, value: int = 1) -> None:
        """Add to the minute's sum."""
        with self._lock:
            self._counts[name] += value
        self._send_if_due()

    def level(self, name: str, value: float) -> None:
        """Note the highest of the minute."""
        with self._lock:
            self._levels[name] = max(value, self._levels.get(name, value))
        self._send_if_due()

    def _send_if_due(self) -> None:
        with self._lock:
            if self._clock() - self._sent_at < self._seconds:
                return
            self._sent_at = self._clock()
            values = [*self._counts.items(), *self._levels.items()]
            self._counts.clear()
            self._levels.clear()
        data: Any = [{"MetricName": name, "Value": value, "Dimensions": self._dimensions} for name, value in values]
        try:
            self._client.put_metric_data(Namespace=NAMESPACE, MetricData=data)
        except (BotoCoreError, ClientError) as error:
            log.warning("metrics were not sent: %s", error)
