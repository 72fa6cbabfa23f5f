"""Publishes to RabbitMQ with pika: many messages in flight, each confirmed, none silently unroutable."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import pika
from pika.exceptions import ChannelClosedByBroker

from messaging.publishing import Fate, Outgoing, Receipt

PERSISTENT = 2


class Batch:
    """Messages that wait for their receipts."""

    def __init__(self, messages: Sequence[Outgoing]) -> None:
        self.messages = messages
        self._receipts: list[Receipt | None] = [None] * len(messages)
        self._missing = len(messages)
        self._lock = threading.Lock()
        self._complete = threading.Event()
        if not messages:
            self._complete.set()

    def settle(self, index: int, receipt: Receipt) -> None:
        """Note a message's fate. The first one counts."""
        with self._lock:
            if self._receipts[index] is None:
                self._receipts[index] = receipt
                self._missing -= 1
                if not self._missing:
                    self._complete.set()

    def settle_rest(self, receipt: Receipt) -> None:
        """The fate of all that have none yet."""
        for index in range(len(self.messages)):
            self.settle(index, receipt)

    def wait(self, seconds: float) -> bool:
        """Whether all receipts are there within so many seconds."""
        return self._complete.wait(seconds)

    def receipts(self) -> list[Receipt]:
        """All receipts, once they are there."""
        with self._lock:
            return [receipt or Receipt(Fate.UNKNOWN, "no receipt yet") for receipt in self._receipts]


class Link:
    """A connection in use, never repaired: once it is lost, what was in flight is unknown and a new link is made."""

    def __init__(self, parameters: pika.URLParameters) -> None:
        self.lost = ""
        """Why this link is of no more use; empty while it is."""
        self.refusal = ""
        """What the broker said when it closed the channel, which it does over a single message."""
        self._ready = threading.Event()
        self._lock = threading.Lock()
        self._over = False
        self._queued: list[Batch] = []
        self._channel: Any = None
        self._tag = 0
        self._in_flight: dict[int, tuple[Batch, int]] = {}
        self._returned: dict[int, str] = {}
        self._connection: Any = pika.SelectConnection(
            parameters,
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._on_channel),
            on_open_error_callback=lambda _, error: self._on_closed(f"no connection: {_words(error)}"),
            on_close_callback=lambda _, error: self._on_closed(f"connection lost: {_words(error)}"),
        )
        threading.Thread(target=self._serve, name="messaging-publisher", daemon=True).start()

    def wait_until_ready(self, seconds: float) -> bool:
        """Whether the link can be used: waits until that is known, at most so long."""
        return self._ready.wait(seconds) and not self.lost

    def send(self, batch: Batch) -> None:
        """Publish; the receipts come into the batch. From any thread."""
        with self._lock:
            if not self._over:
                self._queued.append(batch)
                self._connection.ioloop.add_callback_threadsafe(lambda: self._publish(batch))
                return
        batch.settle_rest(Receipt(Fate.UNKNOWN, self.lost))

    def close(self, reason: str = "closed") -> None:
        """End the connection. From any thread."""
        with self._lock:
            if not self._over:
                self._connection.ioloop.add_callback_threadsafe(lambda: self._lose(reason))

    # From here on: in the link's own thread.

    def _serve(self) -> None:
        reason = "connection lost"
        try:
            self._connection.ioloop.start()
        except Exception as error:
            # pika raises out of its loop when it can't go on, in many ways. Whichever it was: this link is over.
            reason = f"connection lost: {_words(error)}"
        with self._lock:
            self._over = True
            self._connection.ioloop.close()
        self._fail(reason)

    def _on_channel(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._on_channel_closed)
        channel.add_on_return_callback(self._on_returned)
        channel.confirm_delivery(self._on_confirm, callback=lambda _: self._ready.set())

    def _publish(self, batch: Batch) -> None:
        self._queued.remove(batch)
        for index, message in enumerate(batch.messages):
            if self.lost:
                batch.settle(index, Receipt(Fate.UNKNOWN, self.lost))
                continue
            self._tag += 1
            self._in_flight[self._tag] = (batch, index)
            self._channel.basic_publish(
                message.exchange, message.routing_key, message.body, _properties(message), mandatory=True
            )

    def _on_returned(self, _channel: Any, method: Any, properties: Any, _body: bytes) -> None:
        # The return comes ahead of the message's confirm, and does not carry its number.
        for tag, (batch, index) in self._in_flight.items():
            message = batch.messages[index]
            sent = (message.message_id, message.exchange, message.routing_key)
            if tag not in self._returned and sent == (properties.message_id, method.exchange, method.routing_key):
                self._returned[tag] = f"{method.reply_code} {method.reply_text}: " + _place(message)
                return

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        number = method.delivery_tag
        tags = [tag for tag in self._in_flight if tag <= number] if method.multiple else [number]
        for tag in tags:
            batch, index = self._in_flight.pop(tag)
            returned = self._returned.pop(tag, "")
            if method.NAME == "Basic.Nack":
                receipt = Receipt(Fate.NACKED, f"refused by a queue of {_place(batch.messages[index])}")
            else:
                receipt = Receipt(Fate.UNROUTABLE, returned) if returned else Receipt(Fate.CONFIRMED)
            batch.settle(index, receipt)

    def _on_channel_closed(self, _channel: Any, error: Exception) -> None:
        if isinstance(error, ChannelClosedByBroker):
            self.refusal = _words(error)
        self._lose(f"channel closed: {_words(error)}")

    def _lose(self, reason: str) -> None:
        self._fail(reason)
        if self._connection.is_open:
            self._connection.close()
        # A broker that does not answer is not waited for.
        self._connection.ioloop.call_later(1, self._connection.ioloop.stop)

    def _on_closed(self, reason: str) -> None:
        self._fail(reason)
        self._connection.ioloop.stop()

    def _fail(self, reason: str) -> None:
        self.lost = self.lost or reason
        for batch, index in self._in_flight.values():
            batch.settle(index, Receipt(Fate.UNKNOWN, self.lost))
        self._in_flight.clear()
        if self._over:
            for batch in self._queued:
                batch.settle_rest(Receipt(Fate.UNKNOWN, self.lost))
        self._ready.set()


def _properties(message: Outgoing) -> pika.BasicProperties:
    seconds = message.created_at_ms // 1000 if message.created_at_ms is not None else None
    return pika.BasicProperties(
        message_id=message.message_id,
        type=message.type or None,
        content_type=message.content_type or None,
        delivery_mode=PERSISTENT,
        timestamp=seconds,
        headers=dict(message.headers),
    )


def _place(message: Outgoing) -> str:
    return f"exchange {message.exchange!r}, routing key {message.routing_key!r}"


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class PikaPublisher:
    """A `Publisher` that any number of threads may share. It connects when it is first used, and again after a failure.

    `urls`: one for the load balancer, or one for each node; a failed one is followed by the next.
    `confirm_seconds`: a message without a confirm by then, connecting included, is `Fate.UNKNOWN`. A relay takes at
    most half of its leases' time.
    """

    def __init__(self, urls: Sequence[str], *, confirm_seconds: float = 10, name: str = "messaging publisher") -> None:
        if not urls:
            raise ValueError("urls: at least one is needed, such as amqps://user:password@host:5671/%2F")
        self._parameters = [connection_parameters(url, name, confirm_seconds) for url in urls]
        self._confirm_seconds = confirm_seconds
        self._lock = threading.Lock()
        self._link: Link | None = None
        self._next = 0

    @property
    def limit_seconds(self) -> float:
        """See `Publisher.limit_seconds`."""
        return self._confirm_seconds

    def publish(self, messages: Sequence[Outgoing]) -> list[Receipt]:
        """See `Publisher.publish`."""
        deadline = time.monotonic() + self._confirm_seconds
        link, trouble = self._connected(deadline)
        if link is None:
            return [Receipt(Fate.UNKNOWN, trouble)] * len(messages)
        receipts = self._send(link, messages, deadline)
        if link.refusal:
            # The broker closes the channel over one message and does not say which: ask again for each by itself, as
            # far as the time goes. What is confirmed now is out of the way of the next call.
            receipts = [
                self._alone(message, deadline) if receipt.fate is Fate.UNKNOWN else receipt
                for message, receipt in zip(messages, receipts, strict=True)
            ]
        return receipts

    def close(self) -> None:
        """Close the connection. What is in flight becomes `Fate.UNKNOWN`."""
        with self._lock:
            if self._link:
                self._link.close()
                self._link = None

    def _send(self, link: Link, messages: Sequence[Outgoing], deadline: float) -> list[Receipt]:
        batch = Batch(messages)
        link.send(batch)
        if not batch.wait(max(0.0, deadline - time.monotonic())):
            reason = f"no confirm within {self._confirm_seconds} s"
            # Whatever is wrong with it: late confirms are of no use, and another connection may work.
            link.close(reason)
            batch.settle_rest(Receipt(Fate.UNKNOWN, reason))
        return batch.receipts()

    def _alone(self, message: Outgoing, deadline: float) -> Receipt:
        """Publish one message over a connection of its own, so that a closed channel can only mean this message."""
        link, trouble = self._open(deadline)
        if link is None:
            return Receipt(Fate.UNKNOWN, trouble)
        try:
            [receipt] = self._send(link, [message], deadline)
        finally:
            link.close()
        return Receipt(Fate.UNROUTABLE, link.refusal) if link.refusal else receipt

    def _connected(self, deadline: float) -> tuple[Link | None, str]:
        if not self._lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return None, "no connection in time"
        try:
            trouble = ""
            if self._link is None or self._link.lost:
                self._link, trouble = self._open(deadline)
            return self._link, trouble
        finally:
            self._lock.release()

    def _open(self, deadline: float) -> tuple[Link | None, str]:
        trouble = "no time left to connect"
        for _ in self._parameters:
            if (left := deadline - time.monotonic()) <= 0:
                break
            link = Link(self._parameters[self._next % len(self._parameters)])
            if link.wait_until_ready(left):
                return link, ""
            trouble = link.lost or "no connection in time"
            link.close(trouble)
            self._next += 1
        return None, trouble


def connection_parameters(url: str, name: str, seconds: float) -> pika.URLParameters:
    """Of an AMQP URL: with limits on every wait, and a name to recognise the connection by in the management UI."""
    parameters = pika.URLParameters(url)
    parameters.blocked_connection_timeout = seconds
    parameters.socket_timeout = min(seconds, 5)
    parameters.stack_timeout = seconds
    parameters.connection_attempts = 1
    parameters.client_properties = {"connection_name": name}
    return parameters
