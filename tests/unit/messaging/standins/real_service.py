"""Services over real RabbitMQ and DynamoDB's HTTP API, to be killed at every point. For the lab tests."""

import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import boto3

from messaging.consumer import Consumer, Session
from messaging.database import Database, client_config
from messaging.inbox import Inbox
from messaging.leases import Leases
from messaging.message import Event, Message
from messaging.outbox import Outbox
from messaging.pika_publisher import PikaPublisher
from messaging.relay import Relay
from messaging.transaction import Transaction
from messaging.versioned import DynamoDBRecords, VersionedRecords
from messaging.worker import DeadLetters, Worker
from messaging.writes import Table
from tests.unit.messaging.standins.bench import Clock
from tests.unit.messaging.standins.crash_points import CrashPoints

boto3.setup_default_session()
# Read once, by the process from which all others are forked: it takes longer than anything that they do.
boto3.client("dynamodb", region_name="eu-west-1", aws_access_key_id="emulated", aws_secret_access_key="emulated")


READS = ("get_item", "query", "transact_get_items")
"""Dying around one leaves the same world as dying before the next effect. `make proof` does it all the same."""


@dataclass(frozen=True)
class Place:
    """Where a service works: `prefix` begins the names of its tables, queue and exchange."""

    amqp_url: str
    dynamodb_endpoint: str
    prefix: str

    @property
    def queue(self) -> str:
        return f"{self.prefix}orders"

    @property
    def exchange(self) -> str:
        return f"{self.prefix}events"

    @property
    def dead(self) -> str:
        return f"{self.prefix}dead"

    @property
    def records(self) -> Table:
        return Table(f"{self.prefix}records", ("id",))

    @property
    def accounts(self) -> Table:
        return Table(f"{self.prefix}accounts", ("account",))

    def client(self) -> Any:
        """A DynamoDB client."""
        return boto3.client(
            "dynamodb",
            region_name="eu-west-1",
            endpoint_url=self.dynamodb_endpoint,
            aws_access_key_id="emulated",
            aws_secret_access_key="emulated",
            config=client_config(),
        )


def deposit(place: Place, message: Message, transaction: Transaction) -> None:
    """Adds 1 to a balance and says so: an effect that shows when it happens twice."""
    account = message.headers.get("account", "a")
    transaction.update(place.accounts, {"account": account}, "ADD balance :one", values={":one": 1})
    transaction.emit(Event.of(place.exchange, "paid", {"message": message.id}, key=account))


def worker(place: Place, client: Any, publisher: Any, **options: Any) -> tuple[Worker, Outbox]:
    """The inbox service's worker and its outbox."""
    database = Database(client)
    outbox = Outbox(database, f"{place.prefix}outbox", shards=options.pop("shards", 1))
    inbox = Inbox(database, f"{place.prefix}inbox", consumer="billing", outbox=outbox)
    handler = options.pop("handler", partial(deposit, place))
    letters = DeadLetters(publisher, "", place.dead)
    process = partial(inbox.process, handler=handler)
    return Worker(process, consumer="billing", dead_letters=letters, **options), outbox


def run_inbox(place: Place, waiting: int, kill_at: int | None, report: Any) -> None:
    """Consume `waiting` messages with an inbox, relay what is in the outbox; the points go to the pipe `report`."""
    points = CrashPoints(kill_at, _die)
    publisher = points.watch("broker", PikaPublisher([place.amqp_url], confirm_seconds=5))
    subject, outbox = worker(place, points.watch("dynamodb", place.client(), but=READS), publisher)
    _consume(place, subject, waiting, points)
    # Virtual time: the leases of a process that was killed need not be waited for.
    clock = Clock()
    leases = Leases(outbox, seconds=10, clock=clock, now=clock)
    relay = Relay(outbox, publisher, leases, clock=clock, now=clock)
    while relay.sweep() or not leases.held():
        clock.sleep(10)
    report.send(points.passed)


def run_versioned(place: Place, waiting: int, kill_at: int | None, report: Any) -> None:
    """The same with a versioned record, which publishes its events itself."""
    points = CrashPoints(kill_at, _die)
    publisher = points.watch("broker", PikaPublisher([place.amqp_url], confirm_seconds=5))
    store = DynamoDBRecords(Database(points.watch("dynamodb", place.client(), but=READS)), place.records)
    records = VersionedRecords(store, publisher, consumer="billing")

    def change(state: Any, message: Message) -> tuple[Any, Sequence[Event]]:
        return (state or 0) + 1, [Event.of(place.exchange, "paid", {"message": message.id})]

    process = partial(records.process, key="a", change=change)
    letters = DeadLetters(publisher, "", place.dead)
    _consume(place, Worker(process, consumer="billing", dead_letters=letters), waiting, points)
    report.send(points.passed)


def _consume(place: Place, subject: Worker, waiting: int, points: CrashPoints) -> None:
    if not waiting:
        return
    stop = threading.Event()
    left = [waiting]
    settle = Session._settle_now

    def settled(session: Session, tag: int, settlement: Any) -> None:
        points.point(f"before broker.{settlement.value}")
        settle(session, tag, settlement)
        # A confirmed settlement does not exist in AMQP: one more round trip makes sure that this one has been read.
        session._channel.queue_declare(place.queue, passive=True)
        points.point(f"after broker.{settlement.value}")
        left[0] -= 1
        if not left[0]:
            stop.set()

    Session._settle_now = settled  # type: ignore[method-assign, assignment]
    Consumer([place.amqp_url], place.queue, subject, concurrency=1, stop=stop).run()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
