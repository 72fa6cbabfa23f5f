"""What becomes of a delivery: done, tried again, given up, held."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import NoCredentialsError

from messaging.errors import RejectedError
from messaging.message import Message, id_from_content, id_from_header, id_from_property
from messaging.retries import Backoff
from messaging.transaction import Transaction
from messaging.worker import DeadLetters, Decision, Delivery, Settlement, Worker, WorkerPolicy
from tests.unit.messaging.standins.bench import Bench, a_message, deposit
from tests.unit.messaging.standins.faults import client_error, no_answer

Handler = Callable[[Message, Transaction], None]


def worker(bench: Bench, handler: Handler = deposit, **options: Any) -> Worker:
    defaults: dict[str, Any] = {
        "dead_letters": DeadLetters(bench.broker, "", "orders.dead", now=bench.clock),
        "policy": WorkerPolicy(attempts=3, deliveries=10, backoff=Backoff(1, 30)),
        "pause": lambda seconds: bench.clock.sleep(seconds),
    }
    return Worker(partial(bench.inbox().process, handler=handler), consumer="billing", **defaults | options)


def deliver(worker: Worker, message: Message) -> Decision:
    return worker.handle(Delivery(message, "orders"))


def dead(bench: Bench) -> Message:
    [message] = bench.broker.queues["orders.dead"]
    return message


def failing(error: Exception) -> Handler:
    def handler(message: Message, transaction: Transaction) -> None:
        deposit(message, transaction)
        raise error

    return handler


def test_a_delivery_is_acknowledged_when_its_effect_is_safe(bench: Bench) -> None:
    assert deliver(worker(bench), a_message()).settlement is Settlement.ACKNOWLEDGE
    assert bench.balance() == 1


def test_the_relay_is_nudged_for_a_duplicate_too(bench: Bench) -> None:
    nudges: list[str] = []
    subject = worker(bench, nudge=lambda: nudges.append("now"))
    deliver(subject, a_message())
    deliver(subject, a_message())
    assert nudges == ["now", "now"]


def test_a_failed_message_goes_back_counted_and_later(bench: Bench) -> None:
    decision = deliver(worker(bench, failing(KeyError("price"))), a_message(delivery_count=1))
    assert decision.settlement is Settlement.TRY_AGAIN
    assert 0 <= decision.after_seconds <= 2
    assert not bench.broker.queues["orders.dead"]


def test_a_message_that_keeps_failing_becomes_a_dead_letter_with_the_reason(bench: Bench) -> None:
    poison = a_message("m1", delivery_count=2, exchange="shop", routing_key="order", headers={"own": "kept"})
    assert deliver(worker(bench, failing(KeyError("price"))), poison).settlement is Settlement.ACKNOWLEDGE
    letter = dead(bench)
    assert (letter.id, letter.body) == (poison.id, poison.body)
    assert letter.headers["x-failed-reason"] == "failed 3 times, last: KeyError: 'price'"
    assert letter.headers["x-failed-consumer"] == "billing"
    assert letter.headers["x-failed-queue"] == "orders"
    assert letter.headers["x-failed-attempts"] == 3
    assert (letter.headers["x-failed-exchange"], letter.headers["x-failed-routing-key"]) == ("shop", "order")
    assert letter.headers["own"] == "kept"
    assert bench.balance() == 0


def test_a_rejected_message_is_not_tried_again(bench: Bench) -> None:
    deliver(worker(bench, failing(RejectedError("unknown customer"))), a_message())
    assert dead(bench).headers["x-failed-reason"] == "RejectedError: unknown customer"


def test_a_message_that_kills_its_consumer_is_given_up_untried_in_the_end(bench: Bench) -> None:
    ran: list[str] = []
    subject = worker(bench, lambda message, transaction: ran.append(message.id))
    deliver(subject, a_message("late", delivery_count=9))
    assert ran == ["late"]
    deliver(subject, a_message("poison", delivery_count=10))
    assert ran == ["late"]
    assert "delivered 10 times without any result" in dead(bench).headers["x-failed-reason"]


def test_a_dead_letter_carries_nothing_that_would_hurt_its_replay(bench: Bench) -> None:
    headers = {"x-delivery-count": 9, "x-acquired-count": 9, "CC": ["elsewhere"], "x-delay": 5, "x-death": []}
    deliver(worker(bench, failing(RejectedError("no"))), a_message(headers=headers))
    assert not set(headers) & set(dead(bench).headers)


def test_a_replayed_dead_letter_takes_effect(bench: Bench) -> None:
    deliver(worker(bench, failing(RejectedError("no"))), a_message(delivery_count=9))
    deliver(worker(bench), dead(bench))
    assert bench.balance() == 1


def test_a_message_is_not_given_up_before_its_dead_letter_is_confirmed(bench: Bench) -> None:
    waits: list[float] = []

    def pause(seconds: float) -> bool:
        waits.append(seconds)
        bench.broker.down = len(waits) < 3
        return False

    bench.broker.down = True
    subject = worker(bench, failing(RejectedError("no")), pause=pause)
    assert deliver(subject, a_message()).settlement is Settlement.ACKNOWLEDGE
    assert len(waits) == 3
    assert dead(bench).id == "m1"


def test_an_unroutable_dead_letter_keeps_the_message_in_its_queue(bench: Bench) -> None:
    letters = DeadLetters(bench.broker, "missing", "nowhere")
    subject = worker(bench, failing(RejectedError("no")), dead_letters=letters, pause=lambda seconds: True)
    assert deliver(subject, a_message()).settlement is Settlement.GIVE_BACK


@pytest.mark.parametrize(
    "error",
    [no_answer(), client_error("ThrottlingException"), client_error("AccessDeniedException"), NoCredentialsError()],
    ids=lambda error: type(error).__name__,
)
def test_the_infrastructures_faults_are_held_out_and_never_counted(bench: Bench, error: Exception) -> None:
    runs: list[int] = []

    def handler(message: Message, transaction: Transaction) -> None:
        runs.append(1)
        if len(runs) < 20:
            raise error
        deposit(message, transaction)

    assert deliver(worker(bench, handler), a_message(delivery_count=2)).settlement is Settlement.ACKNOWLEDGE
    assert bench.balance() == 1
    assert not bench.broker.queues["orders.dead"]


@pytest.mark.parametrize(
    "error", [client_error("NoSuchKey"), client_error("ValidationException"), ValueError()], ids=str
)
def test_what_may_be_the_messages_fault_is_counted(bench: Bench, error: Exception) -> None:
    assert deliver(worker(bench, failing(error)), a_message()).settlement is Settlement.TRY_AGAIN


def test_stopping_gives_a_held_message_back_uncounted(bench: Bench) -> None:
    subject = worker(bench, failing(no_answer()), pause=lambda seconds: True)
    assert deliver(subject, a_message()).settlement is Settlement.GIVE_BACK


def test_a_message_without_an_id_is_refused(bench: Bench) -> None:
    deliver(worker(bench), a_message(""))
    assert "MissingMessageIdError: the message has no id" in dead(bench).headers["x-failed-reason"]
    assert bench.balance() == 0


def test_an_id_can_come_from_a_header(bench: Bench) -> None:
    subject = worker(bench, identify=id_from_header("request"))
    deliver(subject, a_message("", headers={"request": "r1"}))
    deliver(subject, a_message("", headers={"request": "r1"}))
    assert bench.balance() == 1


def test_an_id_can_come_from_fields_of_the_body(bench: Bench) -> None:
    subject = worker(bench, identify=id_from_content("order", "status"))
    for body in (
        b'{"order": 1, "status": "paid"}',
        b'{"status": "paid", "order": 1, "sent": 7}',
        b'{"order": 1, "status": "sent"}',
    ):
        deliver(subject, a_message("", body=body))
    assert bench.balance() == 2


def test_a_copy_that_came_by_shovel_has_the_same_derived_id() -> None:
    identify = id_from_content("order")
    original = a_message("", body=b'{"order": 1}', exchange="shop", routing_key="order.new", type="order")
    shovelled = a_message("", body=b'{"order": 1}', exchange="", routing_key="orders", type="order")
    assert identify(original) == identify(shovelled)
    assert identify(original) != identify(a_message("", body=b'{"order": 1}', type="invoice"))


def test_a_body_without_the_fields_or_without_json_has_no_id(bench: Bench) -> None:
    subject = worker(bench, identify=id_from_content("order"))
    deliver(subject, a_message("", body=b'{"customer": 1}'))
    deliver(subject, a_message("", body=b"not json"))
    assert len(bench.broker.queues["orders.dead"]) == 2


def test_an_id_of_the_whole_body_tells_bodies_apart() -> None:
    identify = id_from_content()
    assert identify(a_message("", body=b"\xff")) != identify(a_message("", body=b"\xfe"))
    assert id_from_property(a_message("p")) == "p"


def test_a_policy_that_would_lose_to_the_brokers_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="below deliveries"):
        WorkerPolicy(attempts=15, deliveries=15)
