"""Decides what becomes of a delivery: the same for every way in which messages take effect.

Messages that a consumer gives up are published to the dead letters with the reason, confirmed, and only then
acknowledged. Not basic.reject to a dead-letter exchange: that carries no reason, and in a quorum queue's default mode
it loses the message when the target is gone. The price: a crash between publishing and acknowledging makes a second
copy, with the same id. The queue's own dead-letter policy stays as the net below, for the broker's delivery limit.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from messaging.errors import RejectedError, UnavailableError
from messaging.inbox import Outcome
from messaging.message import Identify, Message, id_from_property, identified
from messaging.metrics import DEAD_LETTERED, LoggedMetrics, Metrics
from messaging.publishing import Fate, Outgoing, Publisher
from messaging.retries import Backoff, is_infrastructure

log = logging.getLogger("messaging.worker")

BACKOFF = Backoff(first=0.5, most=30)


class Settlement(Enum):
    """How a delivery ends."""

    ACKNOWLEDGE = "acknowledge"
    """It has taken effect, or stands in the dead letters."""
    TRY_AGAIN = "try again"
    """It failed: back to the queue, and counted. (basic.reject; since RabbitMQ 4.3 basic.nack is not counted.)"""
    GIVE_BACK = "give back"
    """It was not tried to the end: back to the queue. (basic.nack)"""


@dataclass(frozen=True)
class Decision:
    """A settlement, to be carried out after so many seconds."""

    settlement: Settlement
    after_seconds: float = 0.0


@dataclass(frozen=True)
class Delivery:
    """A message and the queue it came from. `message.id` is the AMQP property, perhaps empty."""

    message: Message
    queue: str


PREFIX = "x-failed-"
MAX_REASON = 2_000
"""Characters."""

_BROKERS_OWN = {
    "x-delivery-count",  # with it, a replayed message would count as failed already
    "x-acquired-count",
    "CC",  # the broker would route a copy to each of these again
    "BCC",
    "x-delay",
    "x-death",
    "x-first-death-exchange",
    "x-first-death-queue",
    "x-first-death-reason",
    "x-last-death-exchange",
    "x-last-death-queue",
    "x-last-death-reason",
}


@dataclass(frozen=True)
class DeadLetters:
    """Publishes to `exchange` with `routing_key` (default: the queue's name), say to an exchange that is bound to
    `orders.dead`.

    The copy keeps body, id, type and headers. Headers `x-failed-*` tell reason, consumer, queue, attempts, time and
    where it was published first. The message's TTL and user are left out: a dead letter must not expire, nor be
    refused.
    """

    publisher: Publisher
    exchange: str
    routing_key: str = ""
    now: Callable[[], float] = time.time

    def accept(self, delivery: Delivery, *, consumer: str, reason: str) -> None:
        """Returns once the broker has confirmed the copy. Raises UnavailableError: then do not acknowledge."""
        message = delivery.message
        about: dict[str, Any] = {
            "reason": reason[:MAX_REASON],
            "consumer": consumer,
            "queue": delivery.queue,
            "attempts": message.delivery_count + 1,
            "at": int(self.now()),
            "exchange": message.exchange,
            "routing-key": message.routing_key,
        }
        headers = {name: value for name, value in message.headers.items() if name not in _BROKERS_OWN}
        copy = Outgoing(
            exchange=self.exchange,
            routing_key=self.routing_key or delivery.queue,
            body=message.body,
            message_id=message.id,
            type=message.type,
            content_type=message.content_type,
            created_at_ms=message.created_at_ms,
            headers={**headers, **{PREFIX + name: value for name, value in about.items()}},
        )
        [receipt] = self.publisher.publish([copy])
        if receipt.fate is not Fate.CONFIRMED:
            raise UnavailableError(
                f"the dead letter of {message.id or 'a message without id'} was not taken: {receipt.reason}"
            )


class Process(Protocol):
    """Makes a message take effect once: `Inbox.process` or `VersionedRecords.process` with the handler filled in."""

    def __call__(self, message: Message, /) -> Outcome:
        """When it returns, the effect is safe."""
        ...


@dataclass(frozen=True)
class WorkerPolicy:
    """`attempts`: failures until a message becomes a dead letter.

    `deliveries`: deliveries without any result (the process died each time) until it becomes one untried. More than
    `attempts`, because a dying process takes its prefetched neighbours along; less than the queue's delivery limit
    (20).
    `backoff`: before a failed message goes back to its queue, and between tries while the infrastructure is at fault.
    """

    attempts: int = 5
    deliveries: int = 15
    backoff: Backoff = BACKOFF

    def __post_init__(self) -> None:
        if not 1 <= self.attempts < self.deliveries:
            raise ValueError(f"attempts: {self.attempts} must be at least 1 and below deliveries ({self.deliveries})")


class Worker:
    """Handles deliveries of one consumer. May be used by many threads.

    `nudge` is called when there may be events to publish: `Relay.nudge`. For duplicates too, whose events may still
    be waiting. `pause` waits so many seconds and returns whether to stop waiting for good: the `wait` of a stop event.
    """

    def __init__(
        self,
        process: Process,
        *,
        consumer: str,
        dead_letters: DeadLetters,
        identify: Identify = id_from_property,
        policy: WorkerPolicy = WorkerPolicy(),
        nudge: Callable[[], None] = lambda: None,
        metrics: Metrics | None = None,
        pause: Callable[[float], bool] | None = None,
    ) -> None:
        self._process = process
        self._consumer = consumer
        self._dead_letters = dead_letters
        self._identify = identify
        self._policy = policy
        self._nudge = nudge
        self._metrics = metrics or LoggedMetrics()
        self._pause = pause or _sleep

    def handle(self, delivery: Delivery) -> Decision:
        """What to do with a delivery, once its effect is safe.

        While DynamoDB or the broker is out of order the delivery is held and tried again: that is not the message's
        fault, so nothing is counted, and the prefetch limit keeps further messages in the queue.
        """
        attempt = 0
        while True:
            try:
                return self._decide(delivery)
            except Exception as error:
                if not is_infrastructure(error):
                    raise
                wait = self._policy.backoff.delay(attempt)
                log.warning("%s: %s; trying again in %.1f s", self._consumer, error, wait)
                attempt += 1
                if self._pause(wait):
                    return Decision(Settlement.GIVE_BACK)

    def _decide(self, delivery: Delivery) -> Decision:
        failed = delivery.message.delivery_count
        if failed >= self._policy.deliveries:
            return self._give_up(delivery, f"delivered {failed} times without any result: it may kill its consumer")
        try:
            outcome = self._process(identified(delivery.message, self._identify))
        except RejectedError as error:
            return self._give_up(delivery, f"{type(error).__name__}: {error}")
        except Exception as error:
            if is_infrastructure(error):
                raise
            log.exception("%s: message %s, attempt %d", self._consumer, delivery.message.id, failed + 1)
            if failed + 1 >= self._policy.attempts:
                return self._give_up(delivery, f"failed {failed + 1} times, last: {type(error).__name__}: {error}")
            return Decision(Settlement.TRY_AGAIN, self._policy.backoff.delay(failed))
        self._nudge()
        self._metrics.count("Messages" + outcome.value.capitalize())
        return Decision(Settlement.ACKNOWLEDGE)

    def _give_up(self, delivery: Delivery, reason: str) -> Decision:
        self._dead_letters.accept(delivery, consumer=self._consumer, reason=reason)
        self._metrics.count(DEAD_LETTERED)
        log.error("%s: message %s is a dead letter: %s", self._consumer, delivery.message.id, reason)
        return Decision(Settlement.ACKNOWLEDGE)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False
