"""What comes in from the broker and what goes out to it."""

import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from messaging.errors import MissingMessageIdError

NAMESPACE = uuid.UUID("7c0e1d0a-3b56-4e1e-9a43-9d5b8c1f7e55")
"""Of ids derived from others. Changing it makes every re-run look new."""

CREATED_AT = "x-event-created-at"
"""Header: when the event was written, in milliseconds since 1970. The same at every delivery."""
SHORT_STRING = 255
"""Bytes of AMQP's short strings."""
HEADERS = 16 * 1024
"""Bytes. All properties travel in one frame, by default of 128 KiB."""

KEY = "x-event-key"
"""Header: the key within which events keep their order."""
SEQUENCE = "x-event-sequence"
"""Header: grows with every event of a key, by one unless the key was idle for a long time."""


@dataclass(frozen=True)
class Message:
    """A delivered message. `delivery_count`: failed deliveries before this one, as a quorum queue counts them."""

    id: str
    body: bytes
    type: str = ""
    content_type: str = ""
    headers: Mapping[str, Any] = field(default_factory=dict)
    created_at_ms: int | None = None
    exchange: str = ""
    routing_key: str = ""
    delivery_count: int = 0
    redelivered: bool = False

    def json(self) -> Any:
        """The body, parsed. Raises ValueError when it is not JSON."""
        return json.loads(self.body)


Identify = Callable[[Message], str]
"""Gives a message its id; an empty string when it cannot. The id must be the same for every copy of one message, and
different for any two messages of the consumer."""


def id_from_property(message: Message) -> str:
    """The AMQP property `message_id`: the default. Whoever publishes through the outbox has set it."""
    return message.id


def id_from_header(name: str) -> Identify:
    """From a header, for producers which put an id there."""
    return lambda message: str(message.headers.get(name, ""))


def id_from_content(*fields: str) -> Identify:
    """From fields of a JSON body which, together, no two messages share (`"order_id", "status"`), and the message's
    type.

    Without fields: from the whole body. Then two messages that mean two things must never have the same body.
    Exchange and routing key stay out of it: a shovel or a replay from the dead letters changes them.
    """

    def identify(message: Message) -> str:
        chosen: Any = message.body.hex()
        if fields:
            content = message.json()
            if not isinstance(content, dict) or any(name not in content for name in fields):
                return ""
            chosen = [content[name] for name in fields]
        return str(uuid.uuid5(NAMESPACE, json.dumps([message.type, chosen], sort_keys=True)))

    return identify


def identified(message: Message, identify: Identify) -> Message:
    """The message with its id. Raises MissingMessageIdError when there is none."""
    try:
        found = identify(message)
    except ValueError as error:
        raise MissingMessageIdError(f"no id can be derived from the message: {error}") from error
    if not found:
        raise MissingMessageIdError(
            "the message has no id, so a duplicate of it could not be told: let the producer set the property "
            "message_id, or give the consumer another `identify`"
        )
    return replace(message, id=found)


@dataclass(frozen=True)
class Event:
    """A message to publish. Events with the same `key` are published in the order in which they were committed.

    `id` is best left out: inside a consumer it is then derived from the message, so that a re-run gives the same.
    """

    exchange: str
    routing_key: str
    body: bytes
    key: str | None = None
    type: str = ""
    content_type: str = "application/json"
    headers: Mapping[str, str | int | bool] = field(default_factory=dict)
    id: str = ""
    created_at_ms: int = field(default_factory=lambda: int(time.time() * 1000))

    def __post_init__(self) -> None:
        """Raises ValueError for what no broker would take: better in the handler than in the relay."""
        for name in ("exchange", "routing_key", "type", "content_type", "id"):
            if len(getattr(self, name).encode()) > SHORT_STRING:
                raise ValueError(f"{name}: AMQP takes at most {SHORT_STRING} bytes: {getattr(self, name)[:60]!r}...")
        if len(json.dumps(dict(self.headers))) > HEADERS:
            raise ValueError(f"headers: at most {HEADERS} bytes as JSON: put content into the body")

    @classmethod
    def of(cls, exchange: str, routing_key: str, content: Any, *, key: str | None = None, type: str = "") -> "Event":
        """An event with a JSON body."""
        return cls(exchange, routing_key, json.dumps(content, separators=(",", ":")).encode(), key=key, type=type)


def derived_id(consumer: str, message_id: str, index: int) -> str:
    """The id of the event number `index` (from 0) that a consumer emits for a message."""
    return str(uuid.uuid5(NAMESPACE, json.dumps([consumer, message_id, index])))
