"""Events in the database: written with the business data, published later by a relay.

Order within a key: each event of a key gets the next number of the key's sequence, and the transaction demands that
nobody else took that number. So the numbers follow the order of the commits. An event also names its predecessor; the
relay publishes it only when the predecessor has been.
"""

import json
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from messaging import schema
from messaging.database import Database, TransactionCancelledError
from messaging.errors import (
    ConditionFailedError,
    EventIdTakenError,
    MessagingError,
    OutboxMismatchError,
    UnavailableError,
)
from messaging.message import Event
from messaging.transaction import Transaction
from messaging.writes import Write, put

RENUMBERINGS = 20
"""How often a transaction takes new sequence numbers when others of the same key were faster."""


class Outbox:
    """One outbox table. `shards` is fixed for its life: 8 carry about 2,000 events a second.

    `keep_sequences`: how long the sequence number of an idle key is kept. It only has to be longer than any event
    waits.
    """

    def __init__(
        self,
        database: Database,
        table: str,
        *,
        shards: int = 8,
        keep_sequences: timedelta = timedelta(days=30),
        now: Callable[[], float] = time.time,
    ) -> None:
        if not 1 <= shards <= 64:
            raise ValueError(f"shards: {shards} is not between 1 and 64")
        self.table = schema.outbox_table(table)
        self.shards = shards
        self.database = database
        self._keep = keep_sequences.total_seconds()
        self._now = now
        self._opened = False

    def open(self) -> None:
        """Agree with everybody else who uses the table on the number of shards. Raises OutboxMismatchError."""
        if self._opened:
            return
        key = {"pk": schema.CONTROL, "sk": "outbox"}
        record = self.database.get(self.table, key)
        if record is None:
            self.database.write(put(self.table, {**key, "shards": self.shards}, condition="attribute_not_exists(pk)"))
            record = self.database.get(self.table, key) or {"shards": 0}
        if record["shards"] != self.shards:
            raise OutboxMismatchError(
                f"outbox {self.table.name} has {record['shards']} shards, this process wants {self.shards}: "
                "use the same number everywhere"
            )
        self._opened = True

    def commit(self, transaction: Transaction, *also: Write) -> None:
        """Commit a transaction, and `also` with it. To use outside of a consumer; there, `Inbox` calls it.

        Raises ConditionFailedError, LimitExceededError, EventIdTakenError, TransactionCancelledError,
        OutcomeUnknownError or UnavailableError. After OutcomeUnknownError nobody can tell whether it was committed;
        for requests that may come again use `Inbox.process` with their id.
        """
        for attempt in range(RENUMBERINGS):
            try:
                self.database.commit([*also, *transaction.writes, *self.writes(transaction.events)])
            except TransactionCancelledError as cancelled:
                if not _only_outnumbered(cancelled):
                    raise _meaning(cancelled) from cancelled
                # Others write events of the key just now: the more of them, the longer the wait.
                self.database.pause(attempt)
            else:
                return
        raise UnavailableError(f"{RENUMBERINGS} times others were faster to write events of the same key")

    def writes(self, events: Sequence[Event]) -> list[Write]:
        """The writes that put events into the outbox. The sequence numbers are as of now."""
        if not events:
            return []
        self.open()
        last: dict[str, int | None] = {}
        seen: dict[str, int | None] = {}
        writes = []
        for event in events:
            shard = self.shard_of(event)
            place: dict[str, Any] = {"pk": schema.pending(shard), "sk": schema.free_position(event.id)}
            if event.key is not None:
                if event.key not in last:
                    seen[event.key] = last[event.key] = self._last(event.key)
                previous = last[event.key]
                # A key without a number starts at the time, above whatever it had before its number expired.
                number = int(self._now() * 1000) if previous is None else previous + 1
                last[event.key] = number
                place["sk"] = schema.keyed_position(event.key, number)
                place |= {"sequence": number, "previous": previous}
            # An id that was chosen may have been chosen twice, for different content.
            writes.append(
                put(self.table, {**place, **event_item(event)}, condition="attribute_not_exists(pk)", role="event")
            )
        writes += [self._advance(key, seen[key], number) for key, number in last.items() if number is not None]
        return writes

    def shard_of(self, event: Event) -> int:
        """Where a relay will find this event."""
        return schema.shard_of(event.id if event.key is None else event.key, self.shards)

    def _last(self, key: str) -> int | None:
        record = self.database.get(self.table, {"pk": schema.sequence_of(key), "sk": "sequence"})
        return int(record["last"]) if record else None

    def _advance(self, key: str, seen: int | None, number: int) -> Write:
        item = {
            "pk": schema.sequence_of(key),
            "sk": "sequence",
            "last": number,
            schema.EXPIRES_AT: int(self._now() + self._keep),
        }
        if seen is None:
            return put(self.table, item, condition="attribute_not_exists(pk)", role="sequence")
        return put(
            self.table,
            item,
            condition="#last = :seen",
            names={"#last": "last"},
            values={":seen": seen},
            role="sequence",
        )


def _only_outnumbered(cancelled: TransactionCancelledError) -> bool:
    """Whether nothing but sequence numbers stood in the way (an event's place is taken along with its number)."""
    roles = {write.role for write, _ in cancelled.failed}
    return "sequence" in roles and roles <= {"sequence", "event"}


def _meaning(cancelled: TransactionCancelledError) -> MessagingError:
    """What a cancellation means. When the inbox record stood in the way nothing else matters, and it stays as it is."""
    roles = {write.role for write, reason in cancelled.failed if reason.code == "ConditionalCheckFailed"}
    if "inbox" in roles:
        return cancelled
    if "business" in roles:
        return ConditionFailedError([str(write) for write, _ in cancelled.failed])
    if "event" in roles:
        return EventIdTakenError("an event with the same id still waits in the outbox")
    return cancelled


def event_item(event: Event) -> dict[str, Any]:
    """An event as attributes of an item."""
    content = {
        "id": event.id,
        "exchange": event.exchange,
        "routing_key": event.routing_key,
        "body": event.body,
        "type": event.type,
        "content_type": event.content_type,
        "headers": json.dumps(dict(event.headers)),
        "created_at_ms": event.created_at_ms,
    }
    return content if event.key is None else {**content, "key": event.key}


def loaded_event(item: dict[str, Any]) -> Event:
    """The event of such an item."""
    return Event(
        exchange=item["exchange"],
        routing_key=item["routing_key"],
        body=item["body"],
        key=item.get("key"),
        type=item["type"],
        content_type=item["content_type"],
        headers=json.loads(item["headers"]),
        id=item["id"],
        created_at_ms=int(item["created_at_ms"]),
    )
