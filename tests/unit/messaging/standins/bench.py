"""One of everything, wired as a service would wire the real things."""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from messaging.database import Database
from messaging.inbox import Inbox
from messaging.leases import Leases
from messaging.message import Event, Message
from messaging.outbox import Outbox
from messaging.relay import Relay, RelayPolicy
from messaging.retries import Backoff, Retries
from messaging.transaction import Transaction
from tests.unit.messaging.standins.direct_dynamodb import DirectDynamoDB
from tests.unit.messaging.standins.faults import FaultyClient
from tests.unit.messaging.standins.stand_in_broker import StandInBroker
from tests.unit.messaging.standins.tables import ACCOUNTS, create_tables

START = 1_800_000_000.0


@dataclass
class Clock:
    """Time that passes only when somebody waits, or a test says so."""

    now: float = START

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Bench:
    """One of everything."""

    clock: Clock = field(default_factory=Clock)
    client: FaultyClient = field(default_factory=lambda: FaultyClient(DirectDynamoDB()))
    broker: StandInBroker = field(default_factory=StandInBroker)

    def __post_init__(self) -> None:
        create_tables(self.client._client)
        self.client.calls.clear()
        self.broker.declare("orders", "orders.dead", "audit")
        self.broker.bindings[("events", "paid")] = ["audit"]
        self.database = Database(
            self.client,  # type: ignore[arg-type]
            retries=Retries(30, Backoff(0.05, 5)),
            clock=self.clock,
            sleep=self.clock.sleep,
        )
        self.outbox = Outbox(self.database, "outbox", shards=2, now=self.clock)

    def inbox(self, consumer: str = "billing", **options: Any) -> Inbox:
        return Inbox(self.database, "inbox", consumer=consumer, outbox=self.outbox, now=self.clock, **options)

    def relay(self, owner: str = "relay-1", **policy: Any) -> Relay:
        leases = Leases(self.outbox, owner=owner, seconds=30, clock=self.clock, now=self.clock)
        options: dict[str, Any] = {"backoff": Backoff(1, 1), "page": 10} | policy
        return Relay(self.outbox, self.broker, leases, policy=RelayPolicy(**options), clock=self.clock, now=self.clock)

    def balance(self, account: str = "a") -> Decimal:
        item = self.database.get(ACCOUNTS, {"account": account})
        return Decimal(item["balance"]) if item else Decimal(0)

    def items(self, table: str) -> list[dict[str, Any]]:
        return [item.to_json()["Attributes"] for item in self.client._client.backend.get_table(table).all_items()]

    def waiting(self) -> int:
        """Events that wait to be published."""
        return sum(item["pk"]["S"].startswith("pending/") for item in self.items("outbox"))


def a_message(message_id: str = "m1", **attributes: Any) -> Message:
    """A message as the outbox of another service would publish it."""
    defaults: dict[str, Any] = {"id": message_id, "body": b"{}", "created_at_ms": int(START * 1000)}
    return Message(**defaults | attributes)


def deposit(message: Message, transaction: Transaction) -> None:
    """A handler whose effect shows when it happens twice: it adds. And it tells the world."""
    transaction.update(ACCOUNTS, {"account": "a"}, "ADD balance :one", values={":one": 1})
    transaction.emit(paid(message.id))


def paid(message_id: str, key: str | None = "a") -> Event:
    """An event that the bench's broker routes."""
    return Event.of("events", "paid", {"message": message_id}, key=key)
