"""Small services to be killed: the three right ways, and two wrong ones that exist nowhere else.

Each takes what waits in `orders` and adds 1 to a balance for it: an addition that happens twice shows. The right ones
also say `paid`. Time is virtual, so that a service passes the same points whenever it runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from messaging.database import Database
from messaging.inbox import Inbox
from messaging.leases import Leases
from messaging.message import Event, Message
from messaging.outbox import Outbox
from messaging.relay import Relay
from messaging.transaction import Transaction
from messaging.versioned import DynamoDBRecords, VersionedRecords
from messaging.worker import DeadLetters, Decision, Settlement, Worker
from messaging.writes import Table, keyed, put
from tests.unit.messaging.standins.bench import Clock, deposit, paid
from tests.unit.messaging.standins.tables import ACCOUNTS

INBOX = Table("inbox", ("id",))
ADD = keyed("Update", ACCOUNTS, {"account": "a"}, update="ADD balance :one", values={":one": 1})
LEASE_SECONDS = 30
EXPIRY_SECONDS = 60
REFUSALS = 3


@dataclass(frozen=True)
class Surroundings:
    """What a service sees of the world."""

    client: Any
    broker: Any
    clock: Clock


Service = Callable[[Surroundings], None]


def with_inbox(around: Surroundings) -> None:
    """Pattern 2 and 1: inbox record, effect and event in one transaction; a relay publishes."""
    database, outbox = _outbox(around)
    inbox = Inbox(database, "inbox", consumer="billing", outbox=outbox)
    _consume(around, Worker(
        partial(inbox.process, handler=deposit), consumer="billing", dead_letters=_letters(around)
    ))  # fmt: skip
    _relay(around, outbox)


def with_outbox(around: Surroundings) -> None:
    """Pattern 1 alone: effect and event in one transaction, unless they are there already."""
    database, outbox = _outbox(around)
    if database.get(ACCOUNTS, {"account": "a"}) is None:
        transaction = Transaction()
        transaction.put(ACCOUNTS, {"account": "a", "balance": 1}, condition="attribute_not_exists(account)")
        transaction.emit(paid("request"))
        outbox.commit(transaction)
    _relay(around, outbox)


def with_versioned_record(around: Surroundings) -> None:
    """Pattern 3: one record, one conditional write; its events leave from the record."""
    database = Database(around.client)
    store = DynamoDBRecords(database, Table("records", ("id",)))
    records = VersionedRecords(store, around.broker, consumer="billing")

    def change(state: Any, message: Message) -> tuple[Any, Sequence[Event]]:
        return (state or 0) + 1, [paid(message.id)]

    _consume(around, Worker(
        partial(records.process, key="a", change=change), consumer="billing", dead_letters=_letters(around)
    ))  # fmt: skip


def wrong_record_after_running(around: Surroundings) -> None:
    """Check a store, run, then record."""
    database = Database(around.client)
    while taken := around.broker.get("orders"):
        tag, delivery = taken
        if database.get(INBOX, {"id": delivery.message.id}) is None:
            database.commit([ADD])
            database.write(put(INBOX, {"id": delivery.message.id}))
        around.broker.settle(tag, Decision(Settlement.ACKNOWLEDGE))


def wrong_in_progress_with_expiry(around: Surroundings) -> None:
    """Mark as in progress until a time, run, then mark as done. Whoever finds a mark that has not expired must wait."""
    database = Database(around.client)
    refusals = 0
    while refusals < REFUSALS and (taken := around.broker.get("orders")):
        tag, delivery = taken
        key = {"id": delivery.message.id}
        begun = put(
            INBOX,
            {**key, "mark": "in progress", "until": int(around.clock()) + EXPIRY_SECONDS},
            condition="attribute_not_exists(id) OR (mark = :running AND #until < :now)",
            names={"#until": "until"},
            values={":running": "in progress", ":now": int(around.clock())},
        )
        if database.write(begun):
            database.commit([ADD])
            database.write(put(INBOX, {**key, "mark": "done"}))
        elif (database.get(INBOX, key) or {}).get("mark") != "done":
            refusals += 1
            around.broker.settle(tag, Decision(Settlement.TRY_AGAIN))
            continue
        around.broker.settle(tag, Decision(Settlement.ACKNOWLEDGE))


def _consume(around: Surroundings, worker: Worker) -> None:
    while taken := around.broker.get("orders"):
        tag, delivery = taken
        around.broker.settle(tag, worker.handle(delivery))


def _outbox(around: Surroundings) -> tuple[Database, Outbox]:
    database = Database(around.client)
    return database, Outbox(database, "outbox", shards=1)


def _letters(around: Surroundings) -> DeadLetters:
    return DeadLetters(around.broker, "", "orders.dead")


def _relay(around: Surroundings, outbox: Outbox) -> None:
    """Until nothing waits. A predecessor's lease has to run out first."""
    leases = Leases(outbox, seconds=LEASE_SECONDS, clock=around.clock, now=around.clock)
    relay = Relay(outbox, around.broker, leases, clock=around.clock, now=around.clock)
    for _ in range(50):
        more = relay.sweep()
        if leases.held() and not more:
            return
        around.clock.sleep(0 if more else LEASE_SECONDS / 3)
    raise AssertionError("the relay found no end")
