"""Metrics, and the command line for parked events."""

from typing import Any

import pytest

from messaging import __main__ as command_line
from messaging.message import Event
from messaging.metrics import NAMESPACE, CloudWatchMetrics
from messaging.transaction import Transaction
from tests.unit.messaging.standins.bench import Bench
from tests.unit.messaging.standins.faults import client_error


class Recorder:
    def __init__(self, error: Exception | None = None) -> None:
        self.sent: list[Any] = []
        self._error = error

    def put_metric_data(self, **request: Any) -> None:
        self.sent.append(request)
        if self._error:
            raise self._error


def metrics(bench: Bench, recorder: Recorder) -> CloudWatchMetrics:
    return CloudWatchMetrics(recorder, outbox="orders", seconds=60, clock=bench.clock)  # type: ignore[arg-type]


def test_a_minute_is_sent_at_once_sums_of_counts_and_the_worst_level(bench: Bench) -> None:
    recorder = Recorder()
    subject = metrics(bench, recorder)
    for value in (3, 9, 1):
        subject.count("EventsPublished", 2)
        subject.level("ParkedEvents", value)
    assert recorder.sent == []
    bench.clock.sleep(61)
    subject.level("ParkedEvents", 0)
    [request] = recorder.sent
    assert request["Namespace"] == NAMESPACE
    assert {datum["MetricName"]: datum["Value"] for datum in request["MetricData"]} == {
        "EventsPublished": 6,
        "ParkedEvents": 9,
    }
    assert request["MetricData"][0]["Dimensions"] == [{"Name": "Outbox", "Value": "orders"}]


def test_metrics_that_cannot_be_sent_stop_nobody(bench: Bench) -> None:
    recorder = Recorder(client_error("ThrottlingException"))
    subject = metrics(bench, recorder)
    bench.clock.sleep(61)
    subject.count("EventsPublished")
    assert len(recorder.sent) == 1


@pytest.fixture
def parked(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    transaction = Transaction()
    for name, key in (("e1", "k"), ("e2", "other")):
        transaction.emit(Event("events", "nowhere", b"", key=key, id=name))
    bench.outbox.commit(transaction)
    relay = bench.relay()
    for _ in range(5):
        relay.sweep()
        bench.clock.sleep(2)
    monkeypatch.setattr("boto3.client", lambda *_, **__: bench.client)
    return bench


def test_parked_events_are_listed_with_their_reasons(parked: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["parked", "--table", "outbox", "--shards", "2"]) == 0
    lines = sorted(capsys.readouterr().out.splitlines())
    assert lines == ["e1 events nowhere k 312 NO_ROUTE", "e2 events nowhere other 312 NO_ROUTE"]


def test_the_events_of_one_key_can_be_released(parked: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["release", "--table", "outbox", "--shards", "2", "--key", "k"]) == 0
    assert capsys.readouterr().out == "1 events released\n"
    assert parked.waiting() == 1


def test_a_wrong_number_of_shards_is_one_sentence_and_code_2(parked: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["parked", "--table", "outbox", "--shards", "7"]) == 2
    assert capsys.readouterr().err.startswith("outbox: outbox outbox has 2 shards, this process wants 7")
