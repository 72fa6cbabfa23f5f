"""What a publisher promises, whatever carries it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from messaging.message import CREATED_AT, KEY, SEQUENCE, Event


class Fate(Enum):
    """What became of a published message."""

    CONFIRMED = "confirmed"
    """The broker has it, in at least one queue, as safe as that queue is."""
    NACKED = "nacked"
    """The broker refuses it for now: a queue is full or has no leader."""
    UNROUTABLE = "unroutable"
    """No queue takes it, or the exchange is missing or refused: this stays so until somebody changes the topology."""
    UNKNOWN = "unknown"
    """The connection broke or no confirm came in time. The broker may or may not have it."""


@dataclass(frozen=True)
class Receipt:
    """A message's fate and, unless it is confirmed, why."""

    fate: Fate
    reason: str = ""


@dataclass(frozen=True)
class Outgoing:
    """A persistent message to publish."""

    exchange: str
    routing_key: str
    body: bytes
    message_id: str
    type: str = ""
    content_type: str = ""
    created_at_ms: int | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)


class Publisher(Protocol):
    """Publishes with confirms and the mandatory flag."""

    @property
    def limit_seconds(self) -> float:
        """`publish` returns within so many seconds. What has no receipt by then is `Fate.UNKNOWN`."""
        ...

    def publish(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        """Publish in this order; one receipt for each, in the same order. Never raises for what the broker does.

        Between messages of one call nothing is promised about the order in which queues get them if some fail.
        """
        ...


def outgoing(event: Event, sequence: int | None = None) -> Outgoing:
    """The message of an event. The same at each publication: consumers tell copies by the id."""
    headers: dict[str, Any] = {**event.headers, CREATED_AT: event.created_at_ms}
    if event.key is not None:
        headers[KEY] = event.key
    if sequence is not None:
        headers[SEQUENCE] = sequence
    return Outgoing(
        event.exchange,
        event.routing_key,
        event.body,
        event.id,
        event.type,
        event.content_type,
        event.created_at_ms,
        headers,
    )
