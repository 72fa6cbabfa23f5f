"""A broker stand-in in this process: queues that redeliver, confirms, returns, and a memory of all that was published.

It is not RabbitMQ. What it shares with it: a message is in its queue until it is acknowledged, comes back at the front
with a count when its connection is lost or it is rejected, and is returned when no queue takes it.
"""

import itertools
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from messaging.message import CREATED_AT, Message
from messaging.publishing import Fate, Outgoing, Receipt
from messaging.worker import Decision, Delivery, Settlement


@dataclass
class StandInBroker:
    """`bindings`: (exchange, routing key) to queues; the exchange "" routes to the queue of that name, as in AMQP."""

    bindings: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    queues: dict[str, deque[Message]] = field(default_factory=lambda: defaultdict(deque))
    unacknowledged: dict[int, tuple[str, Message, str]] = field(default_factory=dict)
    published: list[Outgoing] = field(default_factory=list)
    """All that was routed, in order, copies included."""
    down: bool = False
    """While set, nothing is confirmed, and nothing is taken."""
    full: set[str] = field(default_factory=set)
    """Queues that refuse messages."""
    tags: Any = field(default_factory=itertools.count)
    limit_seconds: float = 10

    def declare(self, *queues: str) -> None:
        for queue in queues:
            self.queues[queue]
            self.bindings[("", queue)] = [queue]

    def publish(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        return [self._publish(message) for message in messages]

    def get(self, queue: str, connection: str = "") -> tuple[int, Delivery] | None:
        if not self.queues[queue]:
            return None
        tag = next(self.tags)
        message = self.queues[queue].popleft()
        self.unacknowledged[tag] = (queue, message, connection)
        return tag, Delivery(message, queue)

    def settle(self, tag: int, decision: Decision) -> None:
        queue, message, _ = self.unacknowledged.pop(tag)
        if decision.settlement is Settlement.ACKNOWLEDGE:
            return
        counted = decision.settlement is Settlement.TRY_AGAIN
        self.queues[queue].appendleft(_again(message, counted=counted))

    def lose_connection(self, connection: str = "") -> None:
        """Everything that this connection has not acknowledged is delivered again."""
        lost = {tag: taken for tag, taken in self.unacknowledged.items() if taken[2] == connection}
        for tag, (queue, message, _) in reversed(lost.items()):
            self.queues[queue].appendleft(_again(message, counted=True))
            del self.unacknowledged[tag]

    def rest(self) -> None:
        """Nothing: a point at which somebody who has nothing to do can be stopped."""

    def copy_of(self, queue: str, position: int = 0) -> None:
        """A duplicate of a waiting message at the queue's end, as a shovel or a federation link makes one."""
        self.queues[queue].append(replace(self.queues[queue][position], redelivered=False))

    def ids(self, exchange: str | None = None) -> list[str]:
        """The ids of what was published, in order."""
        return [message.message_id for message in self.published if exchange in (None, message.exchange)]

    def _publish(self, message: Outgoing) -> Receipt:
        if self.down:
            return Receipt(Fate.UNKNOWN, "the stand-in is down")
        queues = self.bindings.get((message.exchange, message.routing_key), [])
        if not queues:
            return Receipt(Fate.UNROUTABLE, "312 NO_ROUTE")
        if self.full & set(queues):
            return Receipt(Fate.NACKED, "queue full")
        self.published.append(message)
        for queue in queues:
            self.queues[queue].append(
                Message(
                    id=message.message_id,
                    body=message.body,
                    type=message.type,
                    content_type=message.content_type,
                    headers=dict(message.headers),
                    created_at_ms=message.headers.get(CREATED_AT, message.created_at_ms),
                    exchange=message.exchange,
                    routing_key=message.routing_key,
                )
            )
        return Receipt(Fate.CONFIRMED)


def _again(message: Message, *, counted: bool) -> Message:
    return replace(message, redelivered=True, delivery_count=message.delivery_count + counted)
