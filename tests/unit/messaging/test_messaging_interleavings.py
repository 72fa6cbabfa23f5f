"""Any interleaving of consumers, relays, copies, crashes, refusals and lost answers, at a simulated level.

The library's code is real. DynamoDB, the broker, time and the processes are stand-ins (standins/scheduler.py).
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from messaging.database import Database
from messaging.errors import UnavailableError
from messaging.inbox import Inbox
from messaging.leases import Leases
from messaging.message import KEY, SEQUENCE, Event, Message
from messaging.outbox import Outbox
from messaging.relay import Relay, RelayPolicy
from messaging.retries import Backoff, Retries
from messaging.transaction import Transaction
from messaging.versioned import DynamoDBRecords, VersionedRecords
from messaging.worker import DeadLetters, Worker, WorkerPolicy
from messaging.writes import Table
from tests.unit.messaging.standins.bench import Clock, a_message, paid
from tests.unit.messaging.standins.direct_dynamodb import DirectDynamoDB
from tests.unit.messaging.standins.scheduler import Actor, Verdict
from tests.unit.messaging.standins.stand_in_broker import StandInBroker
from tests.unit.messaging.standins.tables import ACCOUNTS, create_tables

pytestmark = pytest.mark.proof

LEASE = 30
QUICK = Backoff(0.1, 0.2)


class Simulation:
    """Two competing consumers and two relays over `count` messages, whose events have two keys."""

    def __init__(self, count: int, consumers: str) -> None:
        self.clock = Clock()
        self.client = DirectDynamoDB()
        create_tables(self.client)
        self.broker = StandInBroker()
        self.broker.declare("orders", "orders.dead", "audit")
        self.broker.bindings[("events", "paid")] = ["audit"]
        self.names = [f"m{number}" for number in range(count)]
        self.broker.queues["orders"].extend(a_message(name) for name in self.names)
        consume = {"inbox": self._inbox, "versioned": self._versioned}[consumers]
        bodies = [consume, consume] + ([self._relay, self._relay] if consumers == "inbox" else [])
        self.actors = [Actor(f"actor{n}", body, self.client, self.broker) for n, body in enumerate(bodies)]

    def settle_down(self) -> None:
        """Everybody works, undisturbed, until nothing is left."""
        for _ in range(400):
            if not self.unfinished():
                return
            for actor in self.actors:
                actor.step(Verdict.DONE)
            self.clock.sleep(2)
        raise AssertionError(f"never came to rest: {self.unfinished()}")

    def unfinished(self) -> list[str]:
        left = [message.id for message in self.broker.queues["orders"]]
        left += [taken[1].id for taken in self.broker.unacknowledged.values()]
        left += [item["id"]["S"] for item in self.items("outbox") if item["pk"]["S"].startswith("pending/")]
        return left

    def items(self, table: str) -> list[Any]:
        return [item.to_json()["Attributes"] for item in self.client.backend.get_table(table).all_items()]

    def effects(self) -> int:
        return sum(int(item["balance"]["N"]) for item in self.items("accounts"))

    def check_at_any_time(self) -> None:
        """The inbox record, the effect and the event are there together, or none of them is."""
        done = len(self.items("inbox"))
        assert self.effects() == done
        waiting = {i["id"]["S"] for i in self.items("outbox") if i["pk"]["S"].startswith("pending/")}
        assert len(waiting | set(self.broker.ids("events"))) == done

    def check_order(self) -> None:
        """Within a key, first publications are in the order of the numbers."""
        first: dict[tuple[str, int], None] = {}
        for message in self.broker.published:
            if message.exchange == "events":
                first[message.headers[KEY], message.headers[SEQUENCE]] = None
        for key in {key for key, _ in first}:
            numbers = [number for name, number in first if name == key]
            assert numbers == sorted(numbers)

    def _database(self, client: Any) -> Database:
        return Database(client, retries=Retries(5, QUICK), clock=self.clock, sleep=self.clock.sleep)

    def _outbox(self, client: Any) -> Outbox:
        return Outbox(self._database(client), "outbox", shards=2, now=self.clock)

    def _worker(self, process: Any, broker: Any) -> Worker:
        return Worker(
            process,
            consumer="billing",
            dead_letters=DeadLetters(broker, "", "orders.dead", now=self.clock),
            policy=WorkerPolicy(attempts=50, deliveries=100, backoff=QUICK),
            pause=self._pause,
        )

    def _pause(self, seconds: float) -> bool:
        self.clock.sleep(seconds)
        return False

    def _inbox(self, connection: str, client: Any, broker: Any) -> None:
        outbox = self._outbox(client)
        inbox = Inbox(outbox.database, "inbox", consumer="billing", outbox=outbox, now=self.clock)

        def handler(message: Message, transaction: Transaction) -> None:
            key = f"k{int(message.id[1:]) % 2}"
            transaction.update(ACCOUNTS, {"account": key}, "ADD balance :one", values={":one": 1})
            transaction.emit(paid(message.id, key))

        self._consume(connection, broker, self._worker(partial(inbox.process, handler=handler), broker))

    def _versioned(self, connection: str, client: Any, broker: Any) -> None:
        store = DynamoDBRecords(self._database(client), Table("records", ("id",)))
        records = VersionedRecords(
            store, broker, consumer="billing", backoff=QUICK, now=self.clock, sleep=self.clock.sleep
        )

        def change(state: Any, message: Message) -> tuple[Any, list[Event]]:
            return (state or 0) + 1, [paid(message.id)]

        self._consume(connection, broker, self._worker(partial(records.process, key="r", change=change), broker))

    def _consume(self, connection: str, broker: Any, worker: Worker) -> None:
        while True:
            if taken := broker.get("orders", connection):
                tag, delivery = taken
                broker.settle(tag, worker.handle(delivery))

    def _relay(self, connection: str, client: Any, broker: Any) -> None:
        outbox = self._outbox(client)
        leases = Leases(outbox, owner=connection, seconds=LEASE, clock=self.clock, now=self.clock)
        policy = RelayPolicy(page=3, backoff=QUICK)
        relay = Relay(outbox, broker, leases, policy=policy, clock=self.clock, now=self.clock)
        while True:
            broker.rest()
            with suppress(UnavailableError):
                relay.sweep()


@contextmanager
def simulation(count: int, consumers: str = "inbox") -> Iterator[Simulation]:
    subject = Simulation(count, consumers)
    try:
        yield subject
    finally:
        for actor in subject.actors:
            actor.end()


actors = st.integers(0, 3)
verdicts = st.sampled_from([Verdict.DONE] * 6 + list(Verdict))
pauses = st.sampled_from([0.0] * 6 + [1.0, 11.0, 31.0])
histories = st.lists(st.tuples(actors, verdicts, pauses, st.sampled_from([False] * 9 + [True])), max_size=120)
quick = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@quick
@given(histories)
def test_every_message_takes_effect_once_and_every_event_is_published_in_order(history: list[Any]) -> None:
    with simulation(4) as subject:
        for number, verdict, pause, copied in history:
            if copied and subject.broker.queues["orders"]:
                subject.broker.copy_of("orders")
            subject.actors[number].step(verdict)
            subject.clock.sleep(pause)
            subject.check_at_any_time()
        subject.settle_down()
        subject.check_at_any_time()
        assert subject.effects() == 4
        assert len(set(subject.broker.ids("events"))) == 4
        assert not subject.broker.queues["orders.dead"]
        subject.check_order()


@quick
@given(st.lists(actors, max_size=250))
def test_without_crashes_and_faults_relays_publish_every_event_once(history: list[int]) -> None:
    with simulation(4) as subject:
        for number in history:
            subject.actors[number].step(Verdict.DONE)
            subject.clock.sleep(0.1)
        subject.settle_down()
        assert sorted(set(subject.broker.ids("events"))) == sorted(subject.broker.ids("events"))
        subject.check_order()


@quick
@given(histories)
def test_every_message_takes_effect_once_on_a_versioned_record(history: list[Any]) -> None:
    with simulation(4, "versioned") as subject:
        for number, verdict, pause, copied in history:
            if copied and subject.broker.queues["orders"]:
                subject.broker.copy_of("orders")
            subject.actors[number % 2].step(verdict)
            subject.clock.sleep(pause)
        subject.settle_down()
        [record] = subject.items("records")
        assert record["state"]["N"] == "4"
        assert len(set(subject.broker.ids("events"))) == 4
        assert not subject.broker.queues["orders.dead"]
