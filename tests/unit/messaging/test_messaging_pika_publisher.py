"""A publisher's call ends in time, whatever the broker does. What a broker really does is shown in the lab."""

import socket
import time
from typing import Any

import pytest

from messaging import pika_publisher
from messaging.pika_publisher import Batch, PikaPublisher
from messaging.publishing import Fate, Outgoing, Receipt

URL = "amqp://guest:guest@127.0.0.1:{}/%2F"
MESSAGES = [Outgoing("orders", "paid", b"", f"m{number}") for number in range(10)]


def test_a_broker_that_takes_the_connection_and_says_nothing_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        publisher = PikaPublisher([URL.format(server.getsockname()[1])], confirm_seconds=0.3)
        begun = time.monotonic()
        receipts = publisher.publish(MESSAGES)
        assert {receipt.fate for receipt in receipts} == {Fate.UNKNOWN}
        assert len(receipts) == len(MESSAGES)
        assert time.monotonic() - begun < 3


class SilentLink:
    """Takes messages and never confirms one."""

    lost = refusal = ""

    def __init__(self, _: Any) -> None:
        pass

    def wait_until_ready(self, _: float) -> bool:
        return True

    def send(self, batch: Batch) -> None:
        pass

    def close(self, _: str = "") -> None:
        pass


def test_a_broker_that_confirms_nothing_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pika_publisher, "Link", SilentLink)
    begun = time.monotonic()
    receipts = PikaPublisher([URL.format(5672)], confirm_seconds=0.2).publish(MESSAGES)
    assert receipts == [Receipt(Fate.UNKNOWN, "no confirm within 0.2 s")] * len(MESSAGES)
    assert time.monotonic() - begun < 3


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class RefusingLink:
    """The first has its channel closed over one of many messages; each later one needs 4 s for its only message."""

    made = 0
    clock: Clock

    def __init__(self, _: Any) -> None:
        self.first = RefusingLink.made == 0
        RefusingLink.made += 1
        self.lost = self.refusal = ""

    def wait_until_ready(self, _: float) -> bool:
        return True

    def send(self, batch: Batch) -> None:
        if self.first:
            self.refusal = self.lost = "ChannelClosedByBroker: no exchange 'orders'"
            batch.settle_rest(Receipt(Fate.UNKNOWN, self.lost))
        else:
            self.clock.now += 4
            batch.settle_rest(Receipt(Fate.CONFIRMED))

    def close(self, _: str = "") -> None:
        pass


def test_a_channel_closed_over_one_message_does_not_make_the_call_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = RefusingLink.clock = Clock()
    monkeypatch.setattr(pika_publisher, "time", clock)
    monkeypatch.setattr(pika_publisher, "Link", RefusingLink)
    publisher = PikaPublisher([URL.format(5672)], confirm_seconds=10)
    fates = [receipt.fate for receipt in publisher.publish(MESSAGES)]
    assert fates == [Fate.CONFIRMED] * 3 + [Fate.UNKNOWN] * 7
    assert publisher.limit_seconds == 10
