"""For stores without transactions over several records: one record, one version, one conditional write.

The record remembers which messages it has processed, and carries its own outgoing events until they are published.
All of that changes together or not at all, because it is one record.

What bounds the memory: entries older than `History.keep` go, and the oldest go when there are more than
`History.limit`. Age is the message's own `created_at_ms`, which every copy shares. What was forgotten moves the
record's horizon up to its age. A message at or below the horizon which the record does not know may be a duplicate of
something forgotten, or late: nobody can tell. It is refused (TooOldToTellError, so it becomes a dead letter with that
reason), never applied and never dropped.

`DynamoDBRecords` keeps such records in DynamoDB, one item each. Any store with a conditional write can do the same.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Protocol

from messaging.database import Database
from messaging.errors import EventsUndeliveredError, MissingMessageIdError, TooOldToTellError, UnavailableError
from messaging.inbox import Outcome
from messaging.message import Event, Message, derived_id
from messaging.outbox import event_item, loaded_event
from messaging.publishing import Fate, Publisher, outgoing
from messaging.retries import Backoff
from messaging.writes import Table, check, put

NEVER = -1
"""The horizon of a record that has forgotten nothing."""


@dataclass(frozen=True)
class Record:
    """A record as the store keeps it. `version` 0: not there yet. `processed`: message id to its time in ms."""

    version: int = 0
    state: Any = None
    processed: dict[str, int] = field(default_factory=dict)
    horizon_ms: int = NEVER
    outgoing: tuple[Event, ...] = ()


class RecordStore(Protocol):
    """Any store with a conditional write on one record."""

    def load(self, key: str) -> Record:
        """The record as of now, not from a replica that lags; `Record()` when there is none. Or UnavailableError."""
        ...

    def save(self, key: str, record: Record) -> bool:
        """Write it if the stored version is `record.version - 1` (0: not there). False when it is not.

        Raises UnavailableError, also when nobody knows whether it was written.
        """
        ...


@dataclass(frozen=True)
class History:
    """How much a record remembers. `keep` should exceed the latest possible copy, `limit` the messages in that time."""

    limit: int = 200
    keep: timedelta = timedelta(days=14)


Change = Callable[[Any, Message], tuple[Any, Sequence[Event]]]
"""Gives a record's next state and the events to publish, from the present state (None: no record) and the message."""


class VersionedRecords:
    """Makes messages take effect once on records of a store. May be used by many threads.

    `process` returns only when the message's events are published as well: acknowledge then.
    """

    def __init__(
        self,
        store: RecordStore,
        publisher: Publisher,
        *,
        consumer: str,
        history: History = History(),
        tries: int = 20,
        backoff: Backoff = Backoff(first=0.01, most=1),  # noqa: B008
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._publisher = publisher
        self._consumer = consumer
        self._history = history
        self._tries = tries
        self._backoff = backoff
        self._now = now
        self._sleep = sleep

    def process(self, message: Message, key: str, change: Change) -> Outcome:
        """Apply `change` to the record unless it knows the message, then publish what the record has to say.

        Raises TooOldToTellError, MissingMessageIdError (also for a message without a time), what `change` raises,
        EventsUndeliveredError or UnavailableError. After the last two the change may have been made: process the
        message again.
        """
        if message.created_at_ms is None:
            raise MissingMessageIdError(
                "a versioned record needs the message's time: header x-event-created-at or timestamp"
            )
        for attempt in range(self._tries):
            record = self._store.load(key)
            if message.id in record.processed:
                self._dispatch(key, record)
                return Outcome.DUPLICATE
            if message.created_at_ms <= record.horizon_ms:
                raise TooOldToTellError(
                    f"record {key} has forgotten messages up to {record.horizon_ms}, this one is of "
                    f"{message.created_at_ms}: it may have been processed before"
                )
            changed = self._changed(record, message, *change(record.state, message))
            if self._store.save(key, changed):
                self._dispatch(key, changed)
                return Outcome.PROCESSED
            self._sleep(self._backoff.delay(attempt))
        raise UnavailableError(f"record {key}: {self._tries} times others were faster to change it")

    def _changed(self, record: Record, message: Message, state: Any, events: Sequence[Event]) -> Record:
        named = tuple(
            event if event.id else replace(event, id=derived_id(self._consumer, message.id, index))
            for index, event in enumerate(events)
        )
        processed, horizon = self._remembered(record, message)
        return Record(record.version + 1, state, processed, horizon, (*record.outgoing, *named))

    def _remembered(self, record: Record, message: Message) -> tuple[dict[str, int], int]:
        assert message.created_at_ms is not None
        entries = sorted(
            [*record.processed.items(), (message.id, message.created_at_ms)], key=lambda entry: (entry[1], entry[0])
        )
        oldest = int((self._now() - self._history.keep.total_seconds()) * 1000)
        excess = len(entries) - self._history.limit
        forgotten = [time_ms for index, (_, time_ms) in enumerate(entries) if index < excess or time_ms < oldest]
        horizon = max([record.horizon_ms, *forgotten])
        # Also what shares its time with something forgotten: nothing at or below the horizon is remembered by accident.
        return {message_id: time_ms for message_id, time_ms in entries if time_ms > horizon}, horizon

    def _dispatch(self, key: str, record: Record) -> None:
        """Publish the record's events in their order, then take them out of it."""
        while record.outgoing:
            published = 0
            trouble = None
            for event in record.outgoing:
                [receipt] = self._publisher.publish([outgoing(event)])
                if receipt.fate is not Fate.CONFIRMED:
                    trouble = receipt
                    break
                published += 1
            record = self._without(key, {event.id for event in record.outgoing[:published]})
            if trouble and trouble.fate is Fate.UNROUTABLE:
                raise EventsUndeliveredError(f"record {key}: {trouble.reason}")
            if trouble:
                raise UnavailableError(f"record {key}: an event was not confirmed: {trouble.reason}")

    def _without(self, key: str, published: set[str]) -> Record:
        for attempt in range(self._tries):
            record = self._store.load(key)
            left = tuple(event for event in record.outgoing if event.id not in published)
            shorter = replace(record, version=record.version + 1, outgoing=left)
            if left == record.outgoing:
                return record
            if self._store.save(key, shorter):
                return shorter
            self._sleep(self._backoff.delay(attempt))
        raise UnavailableError(f"record {key}: {self._tries} times others were faster to change it")


class DynamoDBRecords:
    """A `RecordStore` on a table with a partition key only. States are what DynamoDB can store (fractions: Decimal)."""

    def __init__(self, database: Database, table: Table) -> None:
        if len(table.key) != 1:
            raise ValueError(f"table {table.name}: a versioned record has one key attribute, not {len(table.key)}")
        self._database = database
        self._table = table

    def load(self, key: str) -> Record:
        """A consistent read."""
        item = self._database.get(self._table, {self._table.key[0]: key})
        if item is None:
            return Record()
        return Record(
            version=int(item["version"]),
            state=item["state"],
            processed={message_id: int(time_ms) for message_id, time_ms in item["processed_events"].items()},
            horizon_ms=int(item.get("horizon_ms", NEVER)),
            outgoing=tuple(loaded_event(event) for event in item["outgoing"]),
        )

    def save(self, key: str, record: Record) -> bool:
        """One conditional put. Raises LimitExceededError when the record has become too large for an item."""
        item = {
            self._table.key[0]: key,
            "version": record.version,
            "state": record.state,
            "processed_events": record.processed,
            "horizon_ms": record.horizon_ms,
            "outgoing": [event_item(event) for event in record.outgoing],
        }
        condition: dict[str, Any] = {"condition": "attribute_not_exists(#version)", "names": {"#version": "version"}}
        if record.version > 1:
            condition = {
                "condition": "#version = :seen",
                "names": {"#version": "version"},
                "values": {":seen": record.version - 1},
            }
        write = put(self._table, item, **condition)
        check([write])
        return self._database.write(write)
