"""Events in the database: their order within a key, and who may write them."""

from datetime import timedelta

import pytest

from messaging import schema
from messaging.errors import OutboxMismatchError, UnavailableError
from messaging.message import Event
from messaging.outbox import RENUMBERINGS, Outbox
from messaging.transaction import Transaction
from tests.unit.messaging.standins.bench import Bench, a_message, deposit, paid
from tests.unit.messaging.standins.faults import client_error
from tests.unit.messaging.standins.tables import ACCOUNTS

WRITE = "transact_write_items"


def emit(bench: Bench, *events: Event) -> None:
    transaction = Transaction()
    for event in events:
        transaction.emit(event)
    bench.outbox.commit(transaction)


def positions(bench: Bench) -> list[tuple[str, int, int | None]]:
    """Body, number and predecessor's number, in the order of the sort keys."""
    pending = [item for item in bench.items("outbox") if item["pk"]["S"].startswith("pending/")]
    return [
        (
            item["id"]["S"],
            int(item["sequence"]["N"]),
            int(item["previous"]["N"]) if "N" in item["previous"] else None,
        )
        for item in sorted(pending, key=lambda item: str(item["sk"]["S"]))
    ]


def numbered(number: int, key: str | None = "k") -> Event:
    return Event("events", "paid", b"", key=key, id=f"e{number}")


def test_events_of_a_key_are_numbered_in_the_order_of_their_commits(bench: Bench) -> None:
    emit(bench, numbered(1))
    emit(bench, numbered(2), numbered(3))
    start = int(bench.clock() * 1000)
    assert positions(bench) == [("e1", start, None), ("e2", start + 1, start), ("e3", start + 2, start + 1)]


def test_a_number_that_somebody_else_took_meanwhile_is_drawn_again_without_a_second_run(bench: Bench) -> None:
    emit(bench, numbered(0))
    mine = Transaction()
    mine.update(ACCOUNTS, {"account": "a"}, "ADD balance :one", values={":one": 1})
    mine.emit(numbered(2))
    direct = bench.client._client.transact_write_items
    done: list[bool] = []

    def overtaken(**request: object) -> object:
        if not done:
            done.append(True)
            emit(bench, numbered(1))
        return direct(**request)

    bench.client._client.transact_write_items = overtaken
    bench.outbox.commit(mine)
    assert [event for event, _, _ in positions(bench)] == ["e0", "e1", "e2"]
    assert bench.balance() == 1


def test_endless_contention_for_a_key_ends_as_unavailable(bench: Bench) -> None:
    outnumbered = client_error("TransactionCanceledException", reasons=["None", "ConditionalCheckFailed"])
    bench.client.before(WRITE, *[outnumbered] * RENUMBERINGS)
    with pytest.raises(UnavailableError, match="others were faster"):
        emit(bench, numbered(1))


def test_a_key_whose_number_expired_goes_on_above_its_old_numbers(bench: Bench) -> None:
    emit(bench, *[numbered(number) for number in range(5)])
    last = positions(bench)[-1][1]
    bench.client.delete_item(TableName="outbox", Key={"pk": {"S": schema.sequence_of("k")}, "sk": {"S": "sequence"}})
    bench.clock.sleep(timedelta(days=31).total_seconds())
    emit(bench, numbered(9))
    assert positions(bench)[-1][0] == "e9"
    assert positions(bench)[-1][1] > last
    assert positions(bench)[-1][2] is None


def test_the_number_of_a_key_outlives_its_last_event(bench: Bench) -> None:
    emit(bench, numbered(1))
    [record] = [item for item in bench.items("outbox") if item["sk"]["S"] == "sequence"]
    assert int(record["expires_at"]["N"]) == int(bench.clock()) + 30 * 86400


def test_events_without_a_key_share_nothing(bench: Bench) -> None:
    emit(bench, numbered(1, key=None))
    assert [item["sk"]["S"] for item in bench.items("outbox") if item["pk"]["S"].startswith("pending")] == ["e#e1"]
    assert not [item for item in bench.items("outbox") if item["pk"]["S"].startswith("sequence")]


def test_all_events_of_a_key_are_in_one_shard_and_keys_are_spread(bench: Bench) -> None:
    outbox = Outbox(bench.database, "outbox", shards=8)
    assert len({outbox.shard_of(paid("m", f"key-{number}")) for number in range(100)}) == 8
    assert len({outbox.shard_of(paid(f"m{number}", "same")) for number in range(100)}) == 1


def test_a_shard_never_changes_for_a_key() -> None:
    """The mapping is stored data: these values may never change."""
    assert [schema.shard_of(key, 8) for key in ("a", "b", "order-17", "order-18")] == [2, 2, 0, 5]


def test_one_key_cannot_look_like_another(bench: Bench) -> None:
    keys = ["a", "a#1", "a#00000000000000000001", "a/b", "a%23", "ä", "A"]
    assert len({schema.keyed_position(key, 1) for key in keys}) == len(keys)
    first, last = schema.keyed_position("a", 0), schema.keyed_position("a", 10**20 - 1)
    assert [key for key in keys if first <= schema.keyed_position(key, 1) <= last] == ["a"]


@pytest.mark.parametrize("key", ["", "x" * 257, "ü" * 43])
def test_a_key_that_is_empty_or_too_long_is_refused(bench: Bench, key: str) -> None:
    with pytest.raises(ValueError, match="256 characters"):
        emit(bench, numbered(1, key=key))


def test_another_number_of_shards_is_refused_before_anything_is_written(bench: Bench) -> None:
    emit(bench, numbered(1))
    other = Outbox(bench.database, "outbox", shards=3)
    transaction = Transaction()
    transaction.emit(numbered(2))
    with pytest.raises(OutboxMismatchError, match="has 2 shards, this process wants 3"):
        other.commit(transaction)
    with pytest.raises(ValueError, match="between 1 and 64"):
        Outbox(bench.database, "outbox", shards=0)


def test_what_amqp_cannot_carry_is_refused_in_the_handler() -> None:
    with pytest.raises(ValueError, match="routing_key: AMQP takes at most 255 bytes"):
        Event("e", "x" * 256, b"")
    with pytest.raises(ValueError, match="headers: at most"):
        Event("e", "r", b"", headers={"h": "x" * 20_000})


def test_a_transaction_without_events_does_not_touch_the_outbox(bench: Bench) -> None:
    transaction = Transaction()
    transaction.update(ACCOUNTS, {"account": "a"}, "ADD balance :one", values={":one": 1})
    bench.outbox.commit(transaction)
    assert bench.client.names() == [WRITE]


def test_a_message_with_one_event_costs_two_reads_and_one_transaction(bench: Bench) -> None:
    inbox = bench.inbox()
    bench.outbox.open()
    bench.client.calls.clear()
    inbox.process(a_message(), deposit)
    assert bench.client.names() == ["get_item", "get_item", WRITE]
