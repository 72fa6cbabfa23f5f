"""messaging/ with real RabbitMQ. DynamoDB is the lab's emulated one (moto), named as the fake it is."""

import contextlib
import itertools
import multiprocessing
import re
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pika
import pytest

from messaging.consumer import Consumer
from messaging.errors import RejectedError
from messaging.leases import Leases
from messaging.message import Message
from messaging.pika_publisher import PikaPublisher
from messaging.publishing import Fate, Outgoing
from messaging.relay import Relay, RelayPolicy
from messaging.retries import Backoff
from messaging.transaction import Transaction
from messaging.worker import WorkerPolicy
from tests.lab.deployed import Lab, make
from tests.unit.messaging.standins import real_service
from tests.unit.messaging.standins.processes import without_main
from tests.unit.messaging.standins.real_service import Place
from tests.unit.messaging.standins.tables import create_tables

pytestmark = pytest.mark.lab

QUORUM = {"x-queue-type": "quorum"}

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([real_service.__name__])


Service = Callable[[Place, int, int | None, Any], None]


class Site:
    """A place of its own in the lab: queues, exchange and tables, removed at the end."""

    def __init__(self, lab: Lab) -> None:
        self.place = Place(lab.amqp_url(), lab.dynamodb_endpoint(), f"t{uuid.uuid4().hex[:8]}-")
        self.client = self.place.client()
        self.audit = f"{self.place.prefix}audit"
        create_tables(self.client, self.place.prefix)
        with self.channel() as channel:
            channel.exchange_declare(self.place.exchange, "direct", durable=True)
            for queue in (self.place.queue, self.place.dead, self.audit):
                channel.queue_declare(queue, durable=True, arguments=QUORUM)
            channel.queue_bind(self.audit, self.place.exchange, "paid")

    @contextlib.contextmanager
    def channel(self) -> Iterator[Any]:
        """A channel over a connection of its own. Right after a node's death the first attempts may fail."""
        for attempt in itertools.count():
            try:
                connection = pika.BlockingConnection(pika.URLParameters(self.place.amqp_url))
                break
            except pika.exceptions.AMQPError:
                if attempt == 30:
                    raise
                time.sleep(1)
        with connection:
            channel = connection.channel()
            channel.confirm_delivery()
            yield channel

    def order(self, *names: str, through: Any = None) -> None:
        """Put orders into the queue, confirmed."""
        now = int(time.time() * 1000)
        with contextlib.nullcontext(through) if through else self.channel() as channel:
            for name in names:
                properties = pika.BasicProperties(
                    message_id=name, delivery_mode=2, headers={"account": "a", "x-event-created-at": now}
                )
                channel.basic_publish("", self.place.queue, b"{}", properties, mandatory=True)

    def take(self, queue: str, quiet_seconds: float = 1) -> list[tuple[Any, bytes]]:
        """Everything in a queue: properties and body, until so many seconds bring nothing."""
        found = []
        with self.channel() as channel:
            for method, properties, body in channel.consume(queue, inactivity_timeout=quiet_seconds):
                if method is None:
                    break
                channel.basic_ack(method.delivery_tag)
                found.append((properties, body))
        return found

    def bodies(self, channel: Any) -> set[bytes]:
        """Takes what has been published so far."""
        found = set()
        while (answer := channel.basic_get(self.audit, auto_ack=True))[0]:
            found.add(answer[2])
        return found

    def states(self) -> dict[str, int]:
        """Of versioned records."""
        items = self.client.scan(TableName=self.place.records.name)["Items"]
        return {item["id"]["S"]: int(item["state"]["N"]) for item in items}

    def balances(self) -> dict[str, int]:
        pages = self.client.get_paginator("scan").paginate(TableName=self.place.accounts.name)
        items = [item for page in pages for item in page["Items"]]
        return {item["account"]["S"]: int(item["balance"]["N"]) for item in items}

    def remove(self) -> None:
        with self.channel() as channel:
            for queue in (self.place.queue, self.place.dead, self.audit):
                channel.queue_delete(queue)
            channel.exchange_delete(self.place.exchange)
        for table in ("inbox", "outbox", "records", "accounts"):
            self.client.delete_table(TableName=f"{self.place.prefix}{table}")


@pytest.fixture
def site(lab: Lab) -> Iterator[Site]:
    subject = Site(lab)
    yield subject
    subject.remove()


@pytest.fixture
def publisher(lab: Lab) -> Iterator[PikaPublisher]:
    subject = PikaPublisher([lab.amqp_url()])
    yield subject
    subject.close()


def consuming(site: Site, publisher: PikaPublisher, url: str = "", **options: Any) -> Any:
    """A running consumer; leaving the context stops it."""
    stop = threading.Event()
    concurrency = options.pop("concurrency", 5)
    worker, _ = real_service.worker(site.place, site.client, publisher, pause=stop.wait, **options)
    consumer = Consumer([url or site.place.amqp_url], site.place.queue, worker, concurrency=concurrency, stop=stop)
    return running(consumer.run, stop)


@contextlib.contextmanager
def running(work: Callable[[], None], stop: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


def eventually(holds: Callable[[], bool], limit_seconds: float = 60, pause_seconds: float = 0.1) -> None:
    end = time.monotonic() + limit_seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(pause_seconds)


def message(name: str, exchange: str, routing_key: str, body: bytes = b"") -> Outgoing:
    return Outgoing(exchange, routing_key, body, name)


def test_every_fate_is_told_from_the_others(site: Site, publisher: PikaPublisher) -> None:
    full = f"{site.place.prefix}full"
    with site.channel() as channel:
        limit = {"x-max-length": 1, "x-overflow": "reject-publish"}
        channel.queue_declare(full, durable=True, arguments=QUORUM | limit)
    try:
        eventually(lambda: publisher.publish([message("filler", "", full)])[0].fate is Fate.NACKED)
        receipts = publisher.publish(
            [
                message("taken", site.place.exchange, "paid"),
                message("nowhere", site.place.exchange, "unknown"),
                message("full", "", full),
                message("missing", "no-such-exchange", "paid"),
                message("after", site.place.exchange, "paid"),
            ]
        )
    finally:
        with site.channel() as channel:
            channel.queue_delete(full)
    assert [receipt.fate for receipt in receipts] == [
        Fate.CONFIRMED,
        Fate.UNROUTABLE,
        Fate.NACKED,
        Fate.UNROUTABLE,
        Fate.CONFIRMED,
    ]
    assert "NO_ROUTE" in receipts[1].reason
    assert "no-such-exchange" in receipts[3].reason
    assert {properties.message_id for properties, _ in site.take(site.audit)} == {"taken", "after"}


def test_many_threads_share_a_publisher(site: Site, publisher: PikaPublisher) -> None:
    fates: list[Fate] = []

    def publish(thread: int) -> None:
        for batch in range(5):
            messages = [message(f"{thread}-{batch}-{n}", site.place.exchange, "paid") for n in range(20)]
            fates.extend(receipt.fate for receipt in publisher.publish(messages))

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(fates) == {Fate.CONFIRMED: 800}
    assert len({properties.message_id for properties, _ in site.take(site.audit)}) == 800


def test_duplicates_take_effect_once_and_their_event_is_published(site: Site, publisher: PikaPublisher) -> None:
    names = [f"m{number}" for number in range(50)]
    site.order(*names, *names)
    with consuming(site, publisher):
        eventually(lambda: site.balances() == {"a": 50})
        eventually(lambda: not _ready(site, site.place.queue))
    assert site.balances() == {"a": 50}
    _publish_all(site, publisher)
    bodies = [body for _, body in site.take(site.audit)]
    assert sorted(bodies) == sorted(b'{"message":"%s"}' % name.encode() for name in names)


def test_a_poison_message_is_tried_as_often_as_said_and_becomes_a_dead_letter(
    site: Site, publisher: PikaPublisher
) -> None:
    runs: list[int] = []

    def poison(message: Message, transaction: Transaction) -> None:
        runs.append(message.delivery_count)
        raise KeyError("price")

    site.order("poison")
    policy = WorkerPolicy(attempts=4, deliveries=10, backoff=Backoff(0.05, 0.1))
    with consuming(site, publisher, handler=poison, policy=policy):
        eventually(lambda: _ready(site, site.place.dead) == 1)
    # The count is the broker's (x-delivery-count), so it survives any process.
    assert runs == [0, 1, 2, 3]
    [(properties, _)] = site.take(site.place.dead)
    assert properties.message_id == "poison"
    assert properties.headers["x-failed-reason"] == "failed 4 times, last: KeyError: 'price'"
    assert "x-delivery-count" not in properties.headers


def test_a_rejected_message_and_one_without_an_id_are_dead_letters_at_once(
    site: Site, publisher: PikaPublisher
) -> None:
    def reject(message: Message, transaction: Transaction) -> None:
        raise RejectedError("unknown customer")

    site.order("rejected")
    with site.channel() as channel:
        channel.basic_publish("", site.place.queue, b"{}", pika.BasicProperties(delivery_mode=2), mandatory=True)
    with consuming(site, publisher, handler=reject):
        eventually(lambda: _ready(site, site.place.dead) == 2)
    reasons = {properties.headers["x-failed-reason"].partition(":")[0] for properties, _ in site.take(site.place.dead)}
    assert reasons == {"RejectedError", "MissingMessageIdError"}


def test_heartbeats_go_on_while_a_handler_runs_long(site: Site, publisher: PikaPublisher) -> None:
    runs: list[bool] = []

    def slow(message: Message, transaction: Transaction) -> None:
        runs.append(message.redelivered)
        time.sleep(2.8)

    site.order("slow")
    url = site.place.amqp_url + ("&" if "?" in site.place.amqp_url else "?") + "heartbeat=1"
    with consuming(site, publisher, url, handler=slow, concurrency=1):
        eventually(lambda: bool(runs))
        time.sleep(3.2)
    assert runs == [False]
    assert not site.take(site.place.queue, 1)


def test_stopping_finishes_what_is_in_work_and_leaves_the_rest_in_the_queue(
    site: Site, publisher: PikaPublisher
) -> None:
    begun = threading.Event()

    def slow(message: Message, transaction: Transaction) -> None:
        begun.set()
        time.sleep(1)
        real_service.deposit(site.place, message, transaction)

    site.order(*[f"m{number}" for number in range(10)])
    with consuming(site, publisher, handler=slow, concurrency=2):
        assert begun.wait(10)
    done = site.balances()["a"]
    assert 2 <= done <= 4
    assert len(site.take(site.place.queue)) == 10 - done


@pytest.mark.parametrize("service", [real_service.run_inbox, real_service.run_versioned])
def test_a_process_killed_at_any_point_leaves_each_effect_once_and_each_event_published(
    service: Service, site: Site
) -> None:
    """Every point before and after each effect in DynamoDB and in RabbitMQ, one after the other."""
    effects = site.balances if service is real_service.run_inbox else site.states
    with site.channel() as channel:
        for name in ("m0", "m1"):
            # The first run of all sets up the outbox; from the second on every run passes the same points.
            site.order(name, through=channel)
            passed = _run(service, site, 1)
        assert passed
        assert "after dynamodb." in " ".join(passed)
        assert {"before broker.acknowledge", "after broker.publish", "after broker.acknowledge"} <= set(passed)
        for number, point in enumerate(passed):
            name = f"m{number + 2}"
            site.order(name, through=channel)
            assert _run(service, site, 1, kill_at=number) is None, f"it was not killed at point {number}, {point}"
            assert _run(service, site, _left_by_the_dead(channel, site.place.queue)) is not None
            assert effects() == {"a": number + 3}, point
            assert b'{"message":"%s"}' % name.encode() in site.bodies(channel), point
            assert [_count(channel, queue) for queue in (site.place.queue, site.place.dead)] == [0, 0], point


def test_a_node_killed_in_the_middle_costs_no_effect_and_no_event(
    site: Site, lab: Lab, publisher: PikaPublisher
) -> None:
    accounts = [f"account-{number}" for number in range(5)]
    per_account = 30
    stop = threading.Event()
    leader = lab.broker().get(f"queues/%2F/{site.place.queue}")["leader"].removeprefix("rabbit@")
    killer = threading.Timer(0.7, lab.kill, args=(leader,))
    worker, outbox = real_service.worker(site.place, site.client, publisher, shards=4, pause=stop.wait)
    policy = RelayPolicy(poll_seconds=0.1, backoff=Backoff(0.1, 1))
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            consumer = Consumer([site.place.amqp_url], site.place.queue, worker, concurrency=5, stop=stop)
            stack.enter_context(running(consumer.run, stop))
            own = PikaPublisher([site.place.amqp_url], confirm_seconds=3)
            stack.callback(own.close)
            relay = Relay(outbox, own, Leases(outbox, seconds=6), policy=policy)
            stack.enter_context(running(partial(relay.run, stop), stop))
        killer.start()
        producer = PikaPublisher([site.place.amqp_url])
        stack.callback(producer.close)
        orders = [(f"{account}/{number}", account) for number in range(per_account) for account in accounts]
        for name, account in orders:
            _publish_until_confirmed(producer, site, name, account)
            time.sleep(0.01)
        killer.join()
        eventually(lambda: site.balances() == dict.fromkeys(accounts, per_account), 240)
        eventually(lambda: _waiting(site) == 0, 240)
        eventually(lambda: sum(node["running"] for node in lab.broker().nodes()) == 3, 240)
        eventually(lambda: all(node["ready"] for node in lab.nodes()), 240)
    assert site.balances() == dict.fromkeys(accounts, per_account)
    published = [properties for properties, _ in site.take(site.audit, 3)]
    assert len({properties.message_id for properties in published}) == len(orders)
    assert not site.take(site.place.dead)
    for account in accounts:
        numbers = [p.headers["x-event-sequence"] for p in published if p.headers["x-event-key"] == account]
        assert list(dict.fromkeys(numbers)) == sorted(set(numbers))


def _ready(site: Site, queue: str) -> int:
    with site.channel() as channel:
        return _count(channel, queue)


def _waiting(site: Site) -> int:
    pages = site.client.get_paginator("scan").paginate(TableName=f"{site.place.prefix}outbox")
    return sum(item["pk"]["S"].startswith("pending/") for page in pages for item in page["Items"])


def _publish_all(site: Site, publisher: PikaPublisher) -> None:
    _, outbox = real_service.worker(site.place, site.client, publisher)
    relay = Relay(outbox, publisher, Leases(outbox))
    while _waiting(site):
        relay.sweep()


def _publish_until_confirmed(publisher: PikaPublisher, site: Site, name: str, account: str) -> None:
    order = Outgoing("", site.place.queue, b"{}", name, created_at_ms=1, headers={"account": account})
    for _ in range(120):
        [receipt] = publisher.publish([order])
        if receipt.fate is Fate.CONFIRMED:
            return
        time.sleep(0.5)
    raise AssertionError(f"{name} was never confirmed: {receipt}")


def _count(channel: Any, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def _left_by_the_dead(channel: Any, queue: str) -> int:
    """The messages in a queue, once the broker knows that its consumer is gone."""
    eventually(lambda: channel.queue_declare(queue, passive=True).method.consumer_count == 0, pause_seconds=0.02)
    return _count(channel, queue)


def _run(service: Service, site: Site, waiting: int, kill_at: int | None = None) -> list[str] | None:
    """Run a service in a process of its own to its end: what it passed, or None if it was killed."""
    receiver, sender = _context.Pipe(duplex=False)
    process = _context.Process(target=service, args=(site.place, waiting, kill_at, sender), daemon=True)
    with without_main():
        process.start()
    sender.close()
    process.join(60)
    if process.exitcode == -signal.SIGKILL:
        return None
    assert process.exitcode == 0
    return list(receiver.recv())


def test_the_example_with_its_own_stack_sends_each_customer_one_email(lab: Lab) -> None:
    printed = make("example")
    assert "Every effect happened once." in printed
    assert re.search(r"e-mails sent\W+50\b", printed)
