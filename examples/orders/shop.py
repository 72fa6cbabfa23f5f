"""A shop whose customers get one e-mail for each order, whatever is delivered twice.

place -> order.placed -> confirmations: writes the e-mail -> email.due -> mailer: has it sent
"""

from dataclasses import dataclass, field
from typing import Protocol

from messaging import ConditionFailedError, Event, Handler, Message, Outbox, Table, Transaction

EXCHANGE = "orders-example"


@dataclass(frozen=True)
class Tables:
    """The shop's own tables."""

    orders: Table
    emails: Table


@dataclass(frozen=True)
class Shop:
    """The producer: an order and the event that tells of it are one transaction."""

    outbox: Outbox
    tables: Tables

    def place(self, order_id: str, customer: str) -> bool:
        """Place an order. False when it was placed before: the customer has pressed the button twice."""
        transaction = Transaction()
        transaction.put(
            self.tables.orders,
            {"order_id": order_id, "customer": customer, "state": "placed"},
            condition="attribute_not_exists(order_id)",
        )
        content = {"order_id": order_id, "customer": customer}
        transaction.emit(Event.of(EXCHANGE, "order.placed", content, key=order_id, type="order.placed"))
        try:
            self.outbox.commit(transaction)
        except ConditionFailedError:
            return False
        return True


def confirmations(tables: Tables) -> Handler:
    """Consumer of `order.placed`: writes the e-mail into the database and asks for it to be sent."""

    def handle(message: Message, transaction: Transaction) -> None:
        order = message.json()
        email = {"email_id": message.id, "to": order["customer"], "subject": f"Your order {order['order_id']}"}
        transaction.put(tables.emails, email)
        transaction.emit(Event.of(EXCHANGE, "email.due", email, key=order["order_id"], type="email.due"))

    return handle


class MailProvider(Protocol):
    """Whoever sends e-mails. Two requests with the same key are one e-mail: without that nothing could help."""

    def send(self, *, idempotency_key: str, to: str, subject: str) -> None:
        """Send an e-mail, unless this key has been seen."""
        ...


def mailer(tables: Tables, provider: MailProvider) -> Handler:
    """Consumer of `email.due`.

    Sending is an effect outside the database, so no transaction can hold it: this handler may run more than once for
    one message. The message's id, the same at each run, lets the provider tell.
    """

    def handle(message: Message, transaction: Transaction) -> None:
        email = message.json()
        provider.send(idempotency_key=message.id, to=email["to"], subject=email["subject"])
        transaction.update(
            tables.emails, {"email_id": email["email_id"]}, "SET #state = :sent", names={"#state": "state"},
            values={":sent": "sent"},
        )  # fmt: skip

    return handle


@dataclass
class PretendedProvider:
    """Stands in for a mail provider's API."""

    requests: int = 0
    sent: dict[str, str] = field(default_factory=dict)

    def send(self, *, idempotency_key: str, to: str, subject: str) -> None:
        """Keep what would be sent, by key."""
        self.requests += 1
        self.sent[idempotency_key] = f"{to}: {subject}"
