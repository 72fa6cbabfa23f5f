"""What inbox and outbox cost, and how many messages a second a consumer takes.

    python -m benchmarks.messaging --env local      needs a deployed lab: RabbitMQ is real, DynamoDB emulated

The emulated DynamoDB handles one request at a time, some milliseconds each, so it is shown apart: the time inside its
calls, its own ceiling, and the same with a stand-in that answers after 5 ms, about what DynamoDB itself takes.
"""

import argparse
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pika
from rich.console import Console
from rich.table import Table as Report

from examples.orders.lab import amqp_url, dynamodb
from messaging import (
    Consumer,
    Database,
    DeadLetters,
    Event,
    Inbox,
    Leases,
    Message,
    Outbox,
    PikaPublisher,
    Relay,
    Table,
    Transaction,
    Worker,
)
from messaging.inbox import Outcome
from messaging.publishing import Outgoing
from messaging.schema import inbox_table, outbox_table
from operations.deployment import Deployment
from operations.errors import OperationError
from stacks.environment import Environment, EnvironmentErrors

ONE_BY_ONE = 300
"""Messages for each row of the first table."""
CONSUMED = 400
"""Messages for each row of the second."""
IN_FLIGHT = (1, 10, 100)
STAND_IN_SECONDS = 0.005

Process = Callable[[Message], Any]


class Timed:
    """A DynamoDB client that counts its calls and the time inside them."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.calls = 0
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(**request: Any) -> Any:
            started = time.perf_counter()
            answer = getattr(self._client, name)(**request)
            self.seconds += time.perf_counter() - started
            self.calls += 1
            return answer

        return call


class StandIn:
    """Answers every call after 5 ms: nothing was there, everything succeeds. It shows the library and the broker."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(**request: Any) -> Any:
            time.sleep(STAND_IN_SECONDS)
            asked = request.get("Key", {}).get("sk", {})
            return {"Item": {"shards": {"N": "8"}}} if asked == {"S": "outbox"} else {}

        return call


class Place:
    """Tables, queue and exchange of one row, in the lab. New for each: the emulator is the slower the more it holds."""

    def __init__(self, url: str, client: Any) -> None:
        self.url = url
        self.prefix = f"benchmark-{uuid.uuid4().hex[:8]}-"
        self.queue, self.exchange = f"{self.prefix}in", f"{self.prefix}events"
        self.accounts = Table(f"{self.prefix}accounts", ("account",))
        self._client = client
        self._tables = (self.accounts, inbox_table(f"{self.prefix}inbox"), outbox_table(f"{self.prefix}outbox"))

    @contextmanager
    def set_up(self) -> Iterator["Place"]:
        """There inside the context, gone after it."""
        for table in self._tables:
            self._client.create_table(
                TableName=table.name,
                KeySchema=[
                    {"AttributeName": name, "KeyType": kind}
                    for name, kind in zip(table.key, ("HASH", "RANGE"), strict=False)
                ],
                AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in table.key],
                BillingMode="PAY_PER_REQUEST",
            )
        with self.channel() as channel:
            channel.exchange_declare(self.exchange, "direct", durable=True)
            for queue in (self.queue, f"{self.prefix}out"):
                channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
            channel.queue_bind(f"{self.prefix}out", self.exchange, "paid")
        yield self
        with self.channel() as channel:
            for queue in (self.queue, f"{self.prefix}out"):
                channel.queue_delete(queue)
            channel.exchange_delete(self.exchange)
        for table in self._tables:
            self._client.delete_table(TableName=table.name)

    @contextmanager
    def channel(self) -> Iterator[Any]:
        """A channel over a connection of its own."""
        with pika.BlockingConnection(pika.URLParameters(self.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            yield channel

    def outbox(self, client: Any) -> Outbox:
        """The outbox over a client."""
        return Outbox(Database(client), self._tables[2].name)

    def bare(self, client: Any) -> Process:
        """What a consumer without the patterns does: its business write."""
        database = Database(client)

        def process(message: Message) -> Outcome:
            transaction = Transaction()
            self.deposit(message, transaction)
            database.commit(transaction.writes)
            return Outcome.PROCESSED

        return process

    def once(self, client: Any, *, emit: bool = True, check_first: bool = True) -> Process:
        """The same with an inbox, and with an event."""
        outbox = self.outbox(client)
        outbox.open()
        inbox = Inbox(outbox.database, self._tables[1].name, consumer="b", outbox=outbox, check_first=check_first)

        def handler(message: Message, transaction: Transaction) -> None:
            self.deposit(message, transaction)
            if emit:
                account = message.headers["account"]
                transaction.emit(Event(self.exchange, "paid", message.body, key=account))

        return partial(inbox.process, handler=handler)

    def deposit(self, message: Message, transaction: Transaction) -> None:
        """The business write: no two messages in work want the same item."""
        transaction.update(
            self.accounts, {"account": message.headers["account"]}, "ADD balance :one", values={":one": 1}
        )


def overhead(url: str, client: Any) -> Report:
    """Of inbox and outbox for each message, one after the other, no broker."""
    rows: dict[str, Callable[[Place, Any], Process]] = {
        "bare transaction": Place.bare,
        "+ inbox, no look first": partial(Place.once, emit=False, check_first=False),
        "+ inbox": partial(Place.once, emit=False),
        "+ inbox + outbox, no look first": partial(Place.once, check_first=False),
        "+ inbox + outbox": Place.once,
    }
    report = Report("for each message, in ms", "median", "beyond bare", "emulator", "library", "calls", "items")
    report.title, report.title_justify = f"overhead, {ONE_BY_ONE} messages one after the other", "left"
    bare = 0.0
    for name, make in rows.items():
        timed = Timed(client)
        times = []
        with Place(url, client).set_up() as place:
            process = make(place, timed)
            timed.calls, timed.seconds = 0, 0.0
            for _ in range(ONE_BY_ONE):
                message = Message(uuid.uuid4().hex, b"{}", headers={"account": uuid.uuid4().hex})
                started = time.perf_counter()
                process(message)
                times.append(time.perf_counter() - started)
        median, inside = statistics.median(times) * 1000, timed.seconds / ONE_BY_ONE * 1000
        bare = bare or median
        own = statistics.mean(times) * 1000 - inside
        items = 1 + ("inbox" in name) + 2 * ("outbox" in name)
        report.add_row(
            name, f"{median:.2f}", f"{median - bare:.2f}", f"{inside:.2f}", f"{own:.2f}",
            f"{timed.calls / ONE_BY_ONE:.0f}", str(items),
        )  # fmt: skip
    return report


def rates(url: str, client: Any) -> Report:
    """Messages a second from RabbitMQ, with so many in work at a time."""
    rows: dict[str, Callable[[Place], Process]] = {
        "acknowledge only": lambda place: lambda message: Outcome.PROCESSED,
        "bare transaction, emulated DynamoDB": lambda place: place.bare(client),
        "inbox + outbox, emulated DynamoDB": lambda place: place.once(client),
        "bare transaction, 5 ms stand-in": lambda place: place.bare(StandIn()),
        "inbox + outbox, 5 ms stand-in": lambda place: place.once(StandIn()),
    }
    report = Report("messages a second, with ... in work", *(str(number) for number in IN_FLIGHT))
    report.title, report.title_justify = f"consuming {CONSUMED} messages from a quorum queue", "left"

    def row(name: str, measure: Callable[[Place, int], float]) -> None:
        figures = []
        for number in IN_FLIGHT:
            with Place(url, client).set_up() as place:
                figures.append(f"{measure(place, number):.0f}")
        report.add_row(name, *figures)

    row("(the emulator's ceiling: four items a transaction, no broker)", partial(emulator_rate, client=client))
    for name, make in rows.items():
        row(name, partial(consume, make=make))
    return report


def emulator_rate(place: Place, threads: int, *, client: Any) -> float:
    """Transactions a second that the emulated DynamoDB takes from so many threads, each of four items."""

    def transact(_: int) -> None:
        names = [uuid.uuid4().hex for _ in range(4)]
        items: Any = [{"Put": {"TableName": place.accounts.name, "Item": {"account": {"S": name}}}} for name in names]
        client.transact_write_items(TransactItems=items)

    started = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(transact, range(CONSUMED)))
    return CONSUMED / (time.perf_counter() - started)


def consume(place: Place, concurrency: int, *, make: Callable[[Place], Process]) -> float:
    """Messages a second, from the start of the consumer to the last message's end."""
    process = make(place)
    publish(place, CONSUMED)
    stop, left, lock = threading.Event(), [CONSUMED], threading.Lock()

    def counted(message: Message) -> Any:
        outcome = process(message)
        with lock:
            left[0] -= 1
            if not left[0]:
                done.set()
        return outcome

    done = threading.Event()
    publisher = PikaPublisher([place.url])
    worker = Worker(counted, consumer="b", dead_letters=DeadLetters(publisher, "", place.queue), pause=stop.wait)
    consumer = Consumer([place.url], place.queue, worker, concurrency=concurrency, stop=stop)
    thread = threading.Thread(target=consumer.run)
    started = time.perf_counter()
    thread.start()
    finished = done.wait(300)
    elapsed = time.perf_counter() - started
    stop.set()
    thread.join()
    publisher.close()
    if not finished:
        sys.exit(f"{left[0]} of {CONSUMED} messages were not processed within 300 s")
    return CONSUMED / elapsed


def publish(place: Place, count: int) -> None:
    """Messages for the consumer, each of an account of its own."""
    publisher = PikaPublisher([place.url])
    messages = [
        Outgoing("", place.queue, b"{}", uuid.uuid4().hex, headers={"account": uuid.uuid4().hex}) for _ in range(count)
    ]
    receipts = publisher.publish(messages)
    publisher.close()
    if any(receipt.fate.value != "confirmed" for receipt in receipts):
        sys.exit("the cluster did not confirm the benchmark's own messages: is it healthy?")


def relaying(url: str, client: Any) -> Report:
    """Events a second from the outbox to the broker, confirmed and removed."""
    report = Report("relay", "events a second", "of it in the emulator")
    report.title, report.title_justify = "publishing what waits in the outbox (events of different keys)", "left"
    timed, publisher = Timed(client), PikaPublisher([url])
    with Place(url, client).set_up() as place:
        outbox = place.outbox(client)
        for _ in range(CONSUMED // 20):
            transaction = Transaction()
            for _ in range(20):
                transaction.emit(Event(place.exchange, "paid", b"{}", key=uuid.uuid4().hex))
            outbox.commit(transaction)
        relay = Relay(place.outbox(timed), publisher, Leases(place.outbox(timed)))
        started = time.perf_counter()
        while relay.sweep():
            pass
        elapsed = time.perf_counter() - started
    publisher.close()
    report.add_row("one relay", f"{CONSUMED / elapsed:.0f}", f"{100 * timed.seconds / elapsed:.0f} %")
    return report


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs everything once and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="local")
    try:
        environment = Environment.load(parser.parse_args(arguments).env)
        if not environment.is_emulated:
            sys.exit(f"{environment.name} is on AWS: this benchmark is for the lab")
        url = amqp_url(Deployment(environment))
    except (EnvironmentErrors, OperationError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    console = Console(width=120)
    client = dynamodb(environment)
    for table in (overhead, rates, relaying):
        console.print(table(url, client))


if __name__ == "__main__":
    main()
