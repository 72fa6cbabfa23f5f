"""The drill's clients, in a process of their own: `python -m operations.drill.load`, its orders on standard input.

The first line is a JSON document (`Orders`), the password in it; the line `stop` ends the publishing. Then publishers
wait for what is unconfirmed, consumers for what is confirmed and has not come, both for a limited time. Everything that
happens goes into the log, from which `accounting` makes the figures.

One publisher, one queue, one consumer: only so is there an order to check. A client that hears nothing gives the
connection up after a few seconds and takes the next address, as a well-made application does; what is not confirmed it
publishes again under the same message id.
"""

import json
import random
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pika

from operations.drill.accounting import Event, Kind

CONFIRM_LIMIT = 4.0
"""Seconds until a publisher that hears nothing takes another connection."""

SILENCE_LIMIT = 4.0
"""The same for a consumer that knows of a confirmed message which has not come."""

OPEN_LIMIT = 4.0
"""Seconds a connection may take to open."""

HEARTBEAT = 10
WINDOW = 200
"""Unconfirmed messages a publisher may have: the load is bounded, and stands still while nothing is confirmed."""

PREFETCH = 100
CONFIRMED_LIMIT, DRAIN_LIMIT = 60.0, 90.0
"""Seconds after `stop` for the last confirmations, and for the last deliveries."""

BODY = b"x" * 200


@dataclass(frozen=True)
class Orders:
    """What the parent wants. `addresses`: a file with JSON {node: address}, read again at every connection."""

    username: str
    password: str
    clients: list[str]
    rate: float
    log: str
    addresses: str
    port: int = 5672
    limit: float = 3600

    @property
    def credentials(self) -> Any:
        """For pika."""
        return pika.PlainCredentials(self.username, self.password)


def queue_of(client: str) -> str:
    """Name of a client's queue."""
    return f"drill.{client}"


class Log:
    """The event log; one line a write, so that what is written is whole."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("a", buffering=1 << 16)  # noqa: SIM115 - closed by `close`
        self._lock = threading.Lock()

    def note(self, kind: Kind, client: str, number: int = -1, detail: str = "") -> None:
        """One event, now."""
        line = Event(time.time(), kind, client, number, detail).line()
        with self._lock:
            self._file.write(line)

    def flush(self) -> None:
        """For readers that look on."""
        with self._lock:
            self._file.flush()


@dataclass
class Ledger:
    """What one publisher and its consumer know of the same messages."""

    confirmed: set[int] = field(default_factory=set)
    delivered: set[int] = field(default_factory=set)

    @property
    def missing(self) -> int:
        """How many confirmed messages have not come yet."""
        return len(self.confirmed - self.delivered)


class Client(ABC):
    """One connection after the other, until `finished`."""

    def __init__(self, name: str, orders: Orders, ledger: Ledger, log: Log, turn: int) -> None:
        self.name, self.orders, self.ledger, self.log = name, orders, ledger, log
        self.stopping: float | None = None
        self._turn = turn
        self._connection: Any = None
        self._opened_at = 0.0

    def run(self) -> None:
        """Go on until finished."""
        failures = 0
        while not self.finished():
            self._opened_at = 0.0
            try:
                self._session()
            except Exception as error:  # a client must not end for one surprise: its messages would seem lost
                traceback.print_exc()
                self._ended(f"surprise: {error!r}", stop=False)
            failures = 0 if self._opened_at else failures + 1
            time.sleep(random.uniform(0.02, 0.05 * min(8, 1 + failures)))  # noqa: S311 - jitter

    @abstractmethod
    def finished(self) -> bool:
        """Whether there is nothing more to do."""

    @abstractmethod
    def begin(self, channel: Any) -> None:
        """A channel is open."""

    @abstractmethod
    def silent(self) -> bool:
        """Whether this connection has been quiet for too long."""

    def _session(self) -> None:
        addresses = sorted(set(json.loads(Path(self.orders.addresses).read_text()).values()))
        if not addresses:
            time.sleep(0.2)
            return
        self._turn += 1
        host = addresses[self._turn % len(addresses)]
        parameters = pika.ConnectionParameters(
            host, self.orders.port, credentials=self.orders.credentials, heartbeat=HEARTBEAT, connection_attempts=1,
            socket_timeout=1.5, stack_timeout=3, blocked_connection_timeout=10,
            tcp_options={"TCP_USER_TIMEOUT": int(CONFIRM_LIMIT * 1000)},
            client_properties={"connection_name": f"drill {self.name}"},
        )  # fmt: skip
        connection = self._connection = pika.SelectConnection(
            parameters,
            on_open_callback=lambda opened: opened.channel(on_open_callback=self._channel_open),
            on_open_error_callback=lambda _, error: self._ended(f"{host} not opened: {error!r}"),
            on_close_callback=lambda _, reason: self._ended(f"{host} closed: {reason!r}"),
        )
        started = time.monotonic()

        def watch() -> None:
            if self.finished():
                self.give_up("finished")
            elif self._opened_at and self.silent():
                self.give_up(f"{host} silent")
            elif not self._opened_at and time.monotonic() - started > OPEN_LIMIT:
                self.give_up(f"{host} does not open")
            else:
                connection.ioloop.call_later(0.25, watch)

        watch()
        connection.ioloop.start()
        connection.ioloop.close()
        self._connection = None

    def _channel_open(self, channel: Any) -> None:
        self._opened_at = time.monotonic()
        self.log.note(Kind.UP, self.name, detail=type(self).__name__)
        channel.add_on_close_callback(lambda _, reason: self.give_up(f"channel closed: {reason!r}"))
        self.begin(channel)

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        if self._connection is not None:
            self._connection.ioloop.call_later(seconds, what)

    def give_up(self, why: str) -> None:
        """Drop the connection without a word: its peer may be gone, and a proper goodbye would wait for it."""
        connection = self._connection
        if connection is None:
            return
        self._ended(why, stop=False)
        # pika has no public way to abort. The loop goes on for a moment, in which it closes the socket.
        if connection._transport is not None:
            connection._terminate_stream(pika.exceptions.AMQPConnectionError(why))
        connection.ioloop.call_later(0.05, connection.ioloop.stop)

    def _ended(self, why: str, *, stop: bool = True) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if why != "finished":
            self.log.note(Kind.DOWN, self.name, detail=why[:200])
        if stop:
            connection.ioloop.stop()


class Publisher(Client):
    """Publishes at a steady rate, every message until it is confirmed."""

    def __init__(self, name: str, orders: Orders, ledger: Ledger, log: Log, turn: int) -> None:
        super().__init__(name, orders, ledger, log, turn)
        self._next = 0
        self._due = time.monotonic()
        self._pending: dict[int, None] = {}
        self._tags: dict[int, tuple[int, float]] = {}
        self._channel: Any = None
        self._tag = 0

    def finished(self) -> bool:
        """Stopped, and all confirmed or too late for it."""
        return self.stopping is not None and (not self._pending or time.monotonic() - self.stopping > CONFIRMED_LIMIT)

    def silent(self) -> bool:
        """The oldest message on this connection waits for its confirmation."""
        oldest = next(iter(self._tags.values()), None)
        return oldest is not None and time.monotonic() - oldest[1] > CONFIRM_LIMIT

    def begin(self, channel: Any) -> None:
        """Confirms on; first of all again what is not confirmed."""
        self._tags, self._tag, self._channel = {}, 0, channel

        def ready(_: Any) -> None:
            for number in sorted(self._pending):
                self._publish(number)
            self._tick(channel)

        channel.confirm_delivery(self._answered, callback=ready)

    def _tick(self, channel: Any) -> None:
        if channel is not self._channel or not channel.is_open:
            return
        now, step = time.monotonic(), 1 / self.orders.rate
        self._due = max(self._due, now - 2 * step)  # what an outage kept from being published is not caught up with
        while self.stopping is None and self._due <= now and len(self._pending) < WINDOW:
            self._pending[self._next] = None
            self._publish(self._next)
            self._next += 1
            self._due += step
        self._connection and self._connection.ioloop.call_later(
            max(0.002, self._due - now), lambda: self._tick(channel)
        )

    def _publish(self, number: int) -> None:
        properties = pika.BasicProperties(delivery_mode=2, message_id=f"{self.name}/{number}")
        self._tag += 1
        self._tags[self._tag] = (number, time.monotonic())
        self.log.note(Kind.PUBLISH, self.name, number)
        self._channel.basic_publish("", queue_of(self.name), BODY, properties)

    def _answered(self, frame: Any) -> None:
        tag, refused = frame.method.delivery_tag, isinstance(frame.method, pika.spec.Basic.Nack)
        tags = [t for t in self._tags if t <= tag] if frame.method.multiple else [tag]
        for number, _ in (self._tags.pop(t) for t in tags if t in self._tags):
            if refused:
                self.log.note(Kind.REFUSE, self.name, number)
                self._later(0.2, partial(self._again, self._channel, number))
            elif number in self._pending:
                del self._pending[number]
                self.log.note(Kind.CONFIRM, self.name, number)
                self.ledger.confirmed.add(number)

    def _again(self, channel: Any, number: int) -> None:
        if channel is self._channel and channel.is_open and number in self._pending:
            self._publish(number)


class Consumer(Client):
    """Takes and acknowledges what comes."""

    def __init__(self, name: str, orders: Orders, ledger: Ledger, log: Log, turn: int) -> None:
        super().__init__(name, orders, ledger, log, turn)
        self._heard = time.monotonic()
        self.publisher_done: Callable[[], bool] = lambda: False

    def finished(self) -> bool:
        """Stopped, and all that was confirmed has come or is too late."""
        if self.stopping is None:
            return False
        waited = time.monotonic() - self.stopping
        return waited > DRAIN_LIMIT or (self.publisher_done() and not self.ledger.missing)

    def silent(self) -> bool:
        """Something is confirmed, and nothing comes."""
        heard = max(self._heard, self._opened_at)
        return self.ledger.missing > 0 and time.monotonic() - heard > SILENCE_LIMIT

    def begin(self, channel: Any) -> None:
        """Consume; a cancelled consumer begins again."""
        channel.basic_qos(prefetch_count=PREFETCH)
        channel.add_on_cancel_callback(lambda _: self.give_up("consumer cancelled"))
        channel.basic_consume(queue_of(self.name), self._delivered)

    def _delivered(self, channel: Any, method: Any, properties: Any, _: bytes) -> None:
        self._heard = time.monotonic()
        client, number = str(properties.message_id).rsplit("/", 1)
        self.log.note(Kind.REDELIVER if method.redelivered else Kind.DELIVER, client, int(number))
        self.ledger.delivered.add(int(number))
        channel.basic_ack(method.delivery_tag)


def declare(orders: Orders, *, delete: bool = False) -> None:
    """Every client's queue, empty; or none of them. Tries the addresses in turn, for a minute."""
    deadline = time.monotonic() + 60
    while True:
        addresses = sorted(set(json.loads(Path(orders.addresses).read_text()).values()))
        for host in addresses:
            try:
                parameters = pika.ConnectionParameters(
                    host, orders.port, credentials=orders.credentials, socket_timeout=3, stack_timeout=6
                )
                with pika.BlockingConnection(parameters) as connection:
                    channel = connection.channel()
                    for client in orders.clients:
                        channel.queue_delete(queue_of(client))
                        if not delete:
                            channel.queue_declare(queue_of(client), durable=True, arguments={"x-queue-type": "quorum"})
                return
            except (pika.exceptions.AMQPError, OSError) as error:
                if time.monotonic() > deadline:
                    raise SystemExit(f"no address of {addresses} takes the drill's queues: {error!r}") from None
                time.sleep(0.5)


def main() -> None:
    """Serve until stopped and drained."""
    orders = Orders(**json.loads(sys.stdin.readline()))
    declare(orders)
    log, threads, publishers, consumers = Log(orders.log), [], [], []
    for index, name in enumerate(orders.clients):
        ledger = Ledger()
        publisher = Publisher(name, orders, ledger, log, index)
        consumer = Consumer(name, orders, ledger, log, index + 1)
        consumer.publisher_done = publisher.finished
        publishers.append(publisher)
        consumers.append(consumer)
    for client in (*publishers, *consumers):
        thread = threading.Thread(target=client.run, name=client.name, daemon=True)
        thread.start()
        threads.append(thread)
    print("started", flush=True)

    def stop() -> None:
        for client in (*publishers, *consumers):
            client.stopping = time.monotonic()

    timer = threading.Timer(orders.limit, stop)
    timer.daemon = True
    timer.start()

    def listen() -> None:
        sys.stdin.readline()  # `stop`, or the parent's end
        stop()

    threading.Thread(target=listen, daemon=True).start()
    while any(thread.is_alive() for thread in threads):
        log.flush()
        time.sleep(0.2)
    log.flush()
    if not any(consumer.ledger.missing for consumer in consumers):
        declare(orders, delete=True)


if __name__ == "__main__":
    main()
