"""One record, one version: duplicates within the memory, and beyond it."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from messaging.database import Database
from messaging.errors import (
    EventsUndeliveredError,
    LimitExceededError,
    MissingMessageIdError,
    TooOldToTellError,
    UnavailableError,
)
from messaging.inbox import Outcome
from messaging.message import Event, Message
from messaging.versioned import DynamoDBRecords, History, Record, RecordStore, VersionedRecords
from messaging.writes import Table
from tests.unit.messaging.standins.bench import START, Bench, a_message, paid
from tests.unit.messaging.standins.faults import no_answer

RECORDS = Table("records", ("id",))
MS = int(START * 1000)


class MemoryStore:
    """A store in a dictionary."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}

    def load(self, key: str) -> Record:
        return self.records.get(key, Record())

    def save(self, key: str, record: Record) -> bool:
        if self.load(key).version != record.version - 1:
            return False
        self.records[key] = record
        return True


def add(state: Any, message: Message) -> tuple[Any, Sequence[Event]]:
    return (state or 0) + 1, [paid(message.id)]


def records(bench: Bench, store: RecordStore | None = None, **history: Any) -> VersionedRecords:
    return VersionedRecords(
        store or DynamoDBRecords(bench.database, RECORDS),
        bench.broker,
        consumer="stock",
        history=History(**history),
        now=bench.clock,
        sleep=bench.clock.sleep,
    )


def state(bench: Bench) -> Any:
    return DynamoDBRecords(bench.database, RECORDS).load("r").state


def test_a_duplicate_changes_nothing(bench: Bench) -> None:
    subject = records(bench)
    assert subject.process(a_message(), "r", add) is Outcome.PROCESSED
    assert subject.process(a_message(), "r", add) is Outcome.DUPLICATE
    assert state(bench) == 1
    assert len(bench.broker.published) == 1


def test_the_effect_its_memory_and_its_events_are_one_write(bench: Bench) -> None:
    records(bench).process(a_message(), "r", add)
    first = next(request for name, request in bench.client.calls if name == "put_item")
    assert set(first["Item"]) == {"id", "version", "state", "processed_events", "horizon_ms", "outgoing"}
    assert first["ConditionExpression"] == "attribute_not_exists(#version)"


def test_a_writer_that_was_overtaken_starts_again_from_the_new_state(bench: Bench) -> None:
    subject = records(bench)
    seen: list[Any] = []

    def slow(state: Any, message: Message) -> tuple[Any, Sequence[Event]]:
        seen.append(state)
        if len(seen) == 1:
            subject.process(a_message("other"), "r", add)
        return (state or 0) + 10, []

    assert subject.process(a_message(), "r", slow) is Outcome.PROCESSED
    assert seen == [None, 1]
    assert state(bench) == 11


def test_the_same_message_twice_at_the_same_moment_takes_effect_once(bench: Bench) -> None:
    subject = records(bench)
    runs: list[int] = []

    def racing(state: Any, message: Message) -> tuple[Any, Sequence[Event]]:
        runs.append(1)
        if len(runs) == 1:
            subject.process(message, "r", add)
        return add(state, message)

    assert subject.process(a_message(), "r", racing) is Outcome.DUPLICATE
    assert state(bench) == 1


def test_a_lost_answer_is_found_out_by_processing_again(bench: Bench) -> None:
    subject = records(bench)
    bench.client.after("put_item", no_answer())
    with pytest.raises(UnavailableError):
        subject.process(a_message(), "r", add)
    assert subject.process(a_message(), "r", add) is Outcome.DUPLICATE
    assert state(bench) == 1
    assert len(bench.broker.published) == 1


def test_events_that_could_not_be_published_are_published_by_the_duplicate(bench: Bench) -> None:
    subject = records(bench)
    bench.broker.down = True
    with pytest.raises(UnavailableError):
        subject.process(a_message(), "r", add)
    bench.broker.down = False
    subject.process(a_message(), "r", add)
    assert len(bench.broker.ids()) == 1
    assert DynamoDBRecords(bench.database, RECORDS).load("r").outgoing == ()


def test_unroutable_events_stay_in_the_record_ahead_of_later_ones(bench: Bench) -> None:
    subject = records(bench)

    def nowhere(state: Any, message: Message) -> tuple[Any, Sequence[Event]]:
        return 1, [Event("events", "nowhere", b"", id="first")]

    with pytest.raises(EventsUndeliveredError, match="NO_ROUTE"):
        subject.process(a_message("m1"), "r", nowhere)
    with pytest.raises(EventsUndeliveredError):
        subject.process(a_message("m2"), "r", add)
    bench.broker.bindings[("events", "nowhere")] = ["audit"]
    subject.process(a_message("m2"), "r", add)
    assert bench.broker.ids()[0] == "first"
    assert len(bench.broker.ids()) == 2


def test_the_memory_never_exceeds_its_limit(bench: Bench) -> None:
    subject = records(bench, limit=3)
    for number in range(10):
        subject.process(a_message(f"m{number}", created_at_ms=MS + number), "r", add)
    record = DynamoDBRecords(bench.database, RECORDS).load("r")
    assert list(record.processed) == ["m7", "m8", "m9"]
    assert record.horizon_ms == MS + 6


def test_a_duplicate_older_than_the_memory_is_refused_with_a_reason(bench: Bench) -> None:
    subject = records(bench, limit=3)
    for number in range(5):
        subject.process(a_message(f"m{number}", created_at_ms=MS + number), "r", add)
    with pytest.raises(TooOldToTellError, match="may have been processed before"):
        subject.process(a_message("m0", created_at_ms=MS), "r", add)
    assert state(bench) == 5


def test_so_is_a_late_message_that_is_no_duplicate_because_nobody_can_tell(bench: Bench) -> None:
    subject = records(bench, limit=3)
    for number in range(5):
        subject.process(a_message(f"m{number}", created_at_ms=MS + number), "r", add)
    with pytest.raises(TooOldToTellError):
        subject.process(a_message("new", created_at_ms=MS + 1), "r", add)
    assert subject.process(a_message("newer", created_at_ms=MS + 2), "r", add) is Outcome.PROCESSED


def test_what_is_older_than_asked_for_is_forgotten_however_few_there_are(bench: Bench) -> None:
    subject = records(bench, keep=timedelta(days=14))
    subject.process(a_message("old"), "r", add)
    bench.clock.sleep(15 * 86400)
    subject.process(a_message("new", created_at_ms=int(bench.clock() * 1000)), "r", add)
    assert list(DynamoDBRecords(bench.database, RECORDS).load("r").processed) == ["new"]
    with pytest.raises(TooOldToTellError):
        subject.process(a_message("old"), "r", add)


def test_messages_of_one_instant_are_forgotten_together(bench: Bench) -> None:
    subject = records(bench, limit=2)
    for name in ("a", "b", "c"):
        subject.process(a_message(name, created_at_ms=MS), "r", add)
        with pytest.raises(TooOldToTellError) if name == "c" else _nothing():
            subject.process(a_message("a", created_at_ms=MS), "r", add)
    assert state(bench) == 3


class _nothing:  # noqa: N801
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_a_message_without_a_time_is_refused(bench: Bench) -> None:
    with pytest.raises(MissingMessageIdError, match="time"):
        records(bench).process(a_message(created_at_ms=None), "r", add)


def test_a_record_that_has_grown_too_large_is_refused_before_it_is_sent(bench: Bench) -> None:
    with pytest.raises(LimitExceededError, match="409600"):
        records(bench).process(a_message(), "r", lambda state, message: ("x" * 410_000, []))


def test_endless_contention_ends_as_unavailable(bench: Bench) -> None:
    class Overtaken(MemoryStore):
        def save(self, key: str, record: Record) -> bool:
            return False

    with pytest.raises(UnavailableError, match="others were faster"):
        records(bench, Overtaken()).process(a_message(), "r", add)


def test_a_table_with_a_sort_key_cannot_hold_records(bench: Bench) -> None:
    database: Database = bench.database
    with pytest.raises(ValueError, match="one key attribute"):
        DynamoDBRecords(database, Table("t", ("a", "b")))


deliveries = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4)), max_size=60)


@settings(max_examples=150, deadline=None)
@given(deliveries, st.integers(1, 5), st.dictionaries(st.integers(0, 12), st.integers(0, 6), max_size=13))
def test_any_order_of_messages_and_copies_takes_effect_at_most_once_and_nothing_is_lost_unsaid(
    order: list[tuple[int, int]], limit: int, times: dict[int, int]
) -> None:
    """Each message is applied once, or refused aloud; a copy of what is remembered is never refused."""
    store = MemoryStore()
    bench_free = VersionedRecords(store, _Sink(), consumer="c", history=History(limit=limit), now=lambda: START)
    applied: list[int] = []
    refused: set[int] = set()
    for number, _ in order:
        message = a_message(f"m{number}", created_at_ms=MS + times.get(number, number))
        remembered = message.id in store.load("r").processed

        def change(state: Any, message: Message, number: int = number) -> tuple[Any, Sequence[Event]]:
            applied.append(number)
            return None, []

        try:
            bench_free.process(message, "r", change)
        except TooOldToTellError:
            assert not remembered
            refused.add(number)
    assert len(applied) == len(set(applied))
    assert {number for number, _ in order} == set(applied) | refused
    assert len(store.load("r").processed) <= limit


class _Sink:
    limit_seconds = 0.0

    def publish(self, messages: Sequence[Any]) -> list[Any]:
        return []
