"""Publishing what waits: at least once, in order within a key, nothing dropped."""

import threading
from collections.abc import Sequence

import pytest

from messaging import schema
from messaging.errors import UnavailableError
from messaging.message import CREATED_AT, KEY, SEQUENCE, Event
from messaging.metrics import OLDEST, PARKED
from messaging.parking import Parking
from messaging.publishing import Outgoing, Receipt
from messaging.relay import Relay
from messaging.transaction import Transaction
from tests.unit.messaging.standins.bench import Bench
from tests.unit.messaging.standins.faults import client_error, no_answer


def emit(bench: Bench, *names: str, key: str | None = "k", routing_key: str = "paid") -> None:
    transaction = Transaction()
    for name in names:
        transaction.emit(Event("events", routing_key, b"", key=key, id=name))
    bench.outbox.commit(transaction)


def drain(bench: Bench, relay: Relay, sweeps: int = 20) -> list[str]:
    for _ in range(sweeps):
        relay.sweep()
        bench.clock.sleep(2)
    return bench.broker.ids("events")


def test_events_are_published_and_then_removed(bench: Bench) -> None:
    emit(bench, "e1", "e2")
    relay = bench.relay()
    assert relay.sweep() is True
    assert bench.broker.ids() == ["e1", "e2"]
    assert bench.waiting() == 0
    assert relay.sweep() is False


def test_a_published_event_tells_its_id_key_number_and_time(bench: Bench) -> None:
    emit(bench, "e1", "e2")
    bench.relay().sweep()
    first, second = bench.broker.published
    assert (first.message_id, first.content_type) == ("e1", "application/json")
    assert first.headers[KEY] == "k"
    assert second.headers[SEQUENCE] == first.headers[SEQUENCE] + 1
    assert isinstance(first.headers[CREATED_AT], int)


def test_order_within_a_key_survives_pages_and_other_keys(bench: Bench) -> None:
    for number in range(7):
        emit(bench, *[f"x{number}{part}" for part in "ab"], key="x")
        emit(bench, f"y{number}", key="y")
        emit(bench, f"free{number}", key=None)
    published = drain(bench, bench.relay(page=3))
    assert [name for name in published if name[0] == "x"] == [f"x{n}{part}" for n in range(7) for part in "ab"]
    assert [name for name in published if name[0] == "y"] == [f"y{n}" for n in range(7)]
    assert len([name for name in published if name.startswith("free")]) == 7
    assert bench.waiting() == 0


def test_an_event_waits_for_its_predecessor_even_when_that_is_not_visible_yet(bench: Bench) -> None:
    """A query may show a later event first. Here the earlier one is hidden from queries, as if its commit lagged."""
    emit(bench, "e1")
    emit(bench, "e2")
    direct = bench.client._client
    query = direct.query

    def lagging(**request: object) -> object:
        answer = query(**request)
        answer["Items"] = [item for item in answer.get("Items", []) if item.get("id") != {"S": "e1"}]
        return answer

    relay = bench.relay()
    direct.query = lagging
    assert drain(bench, relay, 3) == []
    direct.query = query
    assert drain(bench, relay, 3) == ["e1", "e2"]


def test_a_transaction_at_work_on_one_predecessor_holds_up_only_its_key(bench: Bench) -> None:
    for key in ("x", "y", "z"):
        emit(bench, f"{key}1", key=key)
    first = bench.relay("first")
    drain(bench, first, 2)
    first._leases.release()
    for key in ("x", "y", "z"):
        emit(bench, f"{key}2", key=key)
    direct = bench.client._client
    read = direct.transact_get_items

    def conflicting(**request: object) -> object:
        if schema.keyed_position("y", 0)[:4] in str(request):
            raise client_error("TransactionCanceledException", reasons=["TransactionConflict"])
        return read(**request)

    direct.transact_get_items = conflicting
    relay = bench.relay("second")
    assert sorted(drain(bench, relay, 8)[3:]) == ["x2", "z2"]
    direct.transact_get_items = read
    assert drain(bench, relay, 3)[-1] == "y2"


def test_a_refused_event_holds_up_its_key_and_no_other(bench: Bench) -> None:
    bench.broker.bindings[("events", "billed")] = ["orders"]
    bench.broker.full.add("orders")
    emit(bench, "x1", key="x", routing_key="billed")
    emit(bench, "x2", key="x")
    emit(bench, "y1", key="y")
    relay = bench.relay()
    assert drain(bench, relay, 4) == ["y1"]
    bench.broker.full.clear()
    assert drain(bench, relay, 4) == ["y1", "x1", "x2"]


def test_refused_events_are_not_tried_again_at_once(bench: Bench) -> None:
    bench.broker.full.add("audit")
    emit(bench, "e1")
    tries: list[int] = []
    publish = bench.broker.publish
    bench.broker.publish = lambda messages: tries.append(len(messages)) or publish(messages)  # type: ignore[method-assign, func-returns-value]
    relay = bench.relay(backoff=_Constant(10))
    for _ in range(50):
        relay.sweep()
        bench.clock.sleep(1)
    assert len(tries) == 5


class _Constant:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def delay(self, attempt: int) -> float:
        return self.seconds


def test_an_unroutable_event_is_parked_with_its_reason_after_some_tries(bench: Bench) -> None:
    emit(bench, "e1", routing_key="nowhere")
    relay = bench.relay(unroutable_attempts=3)
    relay.sweep()
    bench.clock.sleep(2)
    relay.sweep()
    bench.clock.sleep(2)
    assert list(Parking(bench.outbox).all()) == []
    relay.sweep()
    [parked] = Parking(bench.outbox).all()
    assert (parked["id"], parked["parked_reason"]) == ("e1", "312 NO_ROUTE")
    assert bench.waiting() == 0


def test_the_events_behind_a_parked_one_are_parked_too_and_follow_it_in_order(bench: Bench) -> None:
    emit(bench, "e1", routing_key="nowhere")
    emit(bench, "e2", "e3")
    emit(bench, "other", key="other")
    relay = bench.relay()
    assert drain(bench, relay) == ["other"]
    emit(bench, "e4")
    assert drain(bench, relay) == ["other"]
    parking = Parking(bench.outbox)
    assert [item["id"] for item in parking.all()] == ["e1", "e2", "e3", "e4"]
    assert [item["parked_reason"] for item in parking.all()][1:] == [f"waits behind e{n}" for n in (1, 2, 3)]
    assert bench.waiting() == 0
    bench.broker.bindings[("events", "nowhere")] = ["audit"]
    assert parking.release() == 4
    assert drain(bench, relay) == ["other", "e1", "e2", "e3", "e4"]
    assert list(parking.all()) == []


def test_released_events_keep_their_order_although_a_relay_works_meanwhile(bench: Bench) -> None:
    emit(bench, "e1", routing_key="nowhere")
    emit(bench, "e2", "e3")
    relay = bench.relay()
    drain(bench, relay)
    bench.broker.bindings[("events", "nowhere")] = ["audit"]
    parking = Parking(bench.outbox)
    parking.release(lambda item: drain(bench, relay, 1) is not None)  # a sweep before each event is put back
    assert drain(bench, relay) == ["e1", "e2", "e3"]


def test_a_new_event_of_a_key_whose_number_expired_still_waits_behind_a_parked_one(bench: Bench) -> None:
    emit(bench, "e1", routing_key="nowhere")
    relay = bench.relay()
    drain(bench, relay)
    bench.client.delete_item(TableName="outbox", Key={"pk": {"S": schema.sequence_of("k")}, "sk": {"S": "sequence"}})
    bench.clock.sleep(60)
    emit(bench, "e2")
    assert drain(bench, relay) == []
    assert [item["id"] for item in Parking(bench.outbox).all()] == ["e1", "e2"]


def test_an_event_that_another_relay_published_meanwhile_is_not_parked(bench: Bench) -> None:
    emit(bench, "e1")
    items, _ = bench.database.query(
        bench.outbox.table,
        "pk = :p",
        {":p": schema.pending(bench.outbox.shard_of(Event("", "", b"", key="k")))},
        limit=1,
    )
    bench.relay().sweep()
    Parking(bench.outbox).park(items[0], "too late")
    assert list(Parking(bench.outbox).all()) == []


def test_an_unconfirmed_event_is_published_again_and_nothing_of_its_key_before(bench: Bench) -> None:
    emit(bench, "e1", "e2")
    bench.broker.down = True
    relay = bench.relay()
    with pytest.raises(UnavailableError, match="not confirmed"):
        relay.sweep()
    bench.broker.down = False
    assert drain(bench, relay, 3) == ["e1", "e2"]


def test_an_event_whose_removal_failed_is_published_again_with_the_same_id(bench: Bench) -> None:
    emit(bench, "e1")
    relay = bench.relay()
    bench.client.before("batch_write_item", no_answer())
    with pytest.raises(UnavailableError):
        relay.sweep()
    assert drain(bench, relay, 2) == ["e1", "e1"]


def test_a_relay_that_lost_its_lease_publishes_nothing_more(bench: Bench) -> None:
    emit(bench, *[f"e{number}" for number in range(10)])
    relay = bench.relay()
    publish = bench.broker.publish

    def frozen(messages: Sequence[Outgoing]) -> list[Receipt]:
        receipts = publish(messages)
        if len(bench.broker.published) == 3:
            bench.clock.sleep(31)
            bench.client.before("put_item", *[client_error("ThrottlingException")] * 50)
        return receipts

    bench.broker.publish = frozen  # type: ignore[method-assign]
    with pytest.raises(UnavailableError):
        relay.sweep()
    assert len(bench.broker.published) == 3


def test_nothing_is_published_that_may_take_longer_than_the_lease_lasts(bench: Bench) -> None:
    relay = bench.relay()
    relay.sweep()
    emit(bench, "a")
    relay._leases.renew_if_due = lambda: None  # type: ignore[method-assign]
    bench.clock.sleep(relay._leases.seconds - bench.broker.limit_seconds)
    assert not relay.sweep()
    assert bench.broker.published == []
    del relay._leases.renew_if_due
    relay.sweep()
    assert len(bench.broker.published) == 1


def test_a_publisher_that_may_outlast_the_leases_is_refused(bench: Bench) -> None:
    bench.broker.limit_seconds = 16
    with pytest.raises(ValueError, match="publisher: it may take 16 s, and the leases last 30 s"):
        bench.relay()


def test_two_relays_share_the_shards_and_publish_each_event_once(bench: Bench) -> None:
    first, second = bench.relay("a"), bench.relay("b")
    names = [f"e{number}" for number in range(30)]
    for index, name in enumerate(names):
        emit(bench, name, key=f"key-{index % 6}")
        for relay in (first, second):
            relay.sweep()
        bench.clock.sleep(3)
    assert sorted(drain(bench, first, 3)) == sorted(names)


def test_levels_tell_how_many_are_parked_and_how_old_the_oldest_is(bench: Bench) -> None:
    levels: dict[str, float] = {}

    class Recorder:
        def count(self, name: str, value: int = 1) -> None: ...

        def level(self, name: str, value: float) -> None:
            levels[name] = value

    transaction = Transaction()
    transaction.emit(Event("events", "nowhere", b"", key="k", created_at_ms=int(bench.clock() * 1000)))
    bench.outbox.commit(transaction)
    relay = bench.relay()
    relay._metrics = Recorder()
    bench.clock.sleep(100)
    relay.sweep()
    assert levels == {PARKED: 0, OLDEST: pytest.approx(100)}
    drain(bench, relay)
    assert levels == {PARKED: 1, OLDEST: 0}


def test_running_publishes_when_nudged_and_gives_the_leases_back_at_the_end(bench: Bench) -> None:
    relay = bench.relay(poll_seconds=60)
    stop, published = threading.Event(), threading.Event()
    publish = bench.broker.publish

    def watched(messages: Sequence[Outgoing]) -> list[Receipt]:
        receipts = publish(messages)
        published.set()
        return receipts

    bench.broker.publish = watched  # type: ignore[method-assign]
    thread = threading.Thread(target=relay.run, args=(stop,))
    thread.start()
    emit(bench, "e1")
    relay.nudge()
    assert published.wait(10)
    stop.set()
    relay.nudge()
    thread.join(10)
    assert not thread.is_alive()
    taker = bench.relay("other")
    emit(bench, "e2")
    taker.sweep()
    assert bench.broker.ids() == ["e1", "e2"]


def test_a_relay_without_a_broker_lets_others_try(bench: Bench) -> None:
    bench.broker.down = True
    emit(bench, "e1")
    stop = threading.Event()
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 3:
            stop.set()
        return stop.is_set()

    relay = bench.relay(backoff=_Constant(0.5))
    stop.wait = wait  # type: ignore[method-assign, assignment]
    relay.run(stop)
    assert waits == [0.5, 0.5, 30]
    assert all("owner" not in item for item in bench.items("outbox") if item["sk"]["S"].startswith("lease/"))
