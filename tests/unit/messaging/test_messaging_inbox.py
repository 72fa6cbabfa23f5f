"""The idempotent consumer: what counts as a duplicate, and what does not."""

from datetime import timedelta

import pytest

from messaging.errors import (
    ConditionFailedError,
    EventIdTakenError,
    OutcomeUnknownError,
    RejectedError,
    UnavailableError,
)
from messaging.inbox import Outcome
from messaging.message import Event, Message
from messaging.transaction import Transaction
from tests.unit.messaging.standins.bench import Bench, a_message, deposit
from tests.unit.messaging.standins.faults import client_error, no_answer
from tests.unit.messaging.standins.tables import ACCOUNTS

WRITE = "transact_write_items"


def test_effect_inbox_record_and_events_are_one_transaction(bench: Bench) -> None:
    assert bench.inbox().process(a_message(), deposit) is Outcome.PROCESSED
    [request] = [request for name, request in bench.client.calls if name == WRITE]
    written = {next(iter(item.values()))["TableName"] for item in request["TransactItems"]}
    assert written == {"inbox", "outbox", "accounts"}
    assert bench.balance() == 1
    assert bench.waiting() == 1


@pytest.mark.parametrize("check_first", [True, False])
def test_a_duplicate_has_no_effect(bench: Bench, check_first: bool) -> None:
    inbox = bench.inbox(check_first=check_first)
    assert inbox.process(a_message(), deposit) is Outcome.PROCESSED
    assert inbox.process(a_message(), deposit) is Outcome.DUPLICATE
    assert bench.balance() == 1
    assert bench.waiting() == 1


def test_the_first_look_saves_the_handler_and_nothing_else_depends_on_it(bench: Bench) -> None:
    runs: list[str] = []

    def handler(message: Message, transaction: Transaction) -> None:
        runs.append(message.id)
        deposit(message, transaction)

    for check_first, expected in ((False, 2), (True, 2)):
        bench.inbox(check_first=check_first).process(a_message(), handler)
        bench.inbox(check_first=check_first).process(a_message(), handler)
        assert len(runs) == expected
    assert bench.balance() == 1


def test_two_consumers_process_the_same_message_each_once(bench: Bench) -> None:
    for consumer in ("billing", "mail", "billing", "mail"):
        bench.inbox(consumer).process(a_message(), deposit)
    assert bench.balance() == 2


def test_a_failed_business_condition_is_not_a_duplicate(bench: Bench) -> None:
    def withdraw(message: Message, transaction: Transaction) -> None:
        transaction.update(
            ACCOUNTS, {"account": "a"}, "ADD balance :n", condition="balance >= :one", values={":n": -1, ":one": 1}
        )

    with pytest.raises(ConditionFailedError) as caught:
        bench.inbox().process(a_message(), withdraw)
    assert caught.value.writes == ("Update accounts (account=a)",)
    assert bench.items("inbox") == []
    bench.inbox().process(a_message("m0"), deposit)
    assert bench.inbox().process(a_message(), withdraw) is Outcome.PROCESSED
    assert bench.balance() == 0


def test_a_handler_whose_condition_failed_runs_again_on_fresh_data(bench: Bench) -> None:
    runs = []

    def optimistic(message: Message, transaction: Transaction) -> None:
        seen = bench.balance()
        runs.append(seen)
        if len(runs) == 1:
            bench.inbox("other").process(a_message(), deposit)  # somebody else is faster
        condition = "balance = :seen" if seen else "attribute_not_exists(balance)"
        values = {":new": seen + 10} | ({":seen": seen} if seen else {})
        transaction.update(ACCOUNTS, {"account": "a"}, "SET balance = :new", condition=condition, values=values)

    assert bench.inbox().process(a_message(), optimistic) is Outcome.PROCESSED
    assert runs == [0, 1]
    assert bench.balance() == 11


def test_a_duplicate_whose_business_condition_fails_as_well_is_a_duplicate(bench: Bench) -> None:
    def create(message: Message, transaction: Transaction) -> None:
        transaction.put(ACCOUNTS, {"account": "a", "balance": 1}, condition="attribute_not_exists(account)")

    inbox = bench.inbox(check_first=False)
    inbox.process(a_message(), create)
    assert inbox.process(a_message(), create) is Outcome.DUPLICATE


def test_it_is_one_too_when_dynamodb_names_only_the_business_condition(bench: Bench) -> None:
    inbox = bench.inbox(check_first=False)
    inbox.process(a_message(), deposit)
    bench.client.before(
        WRITE, client_error("TransactionCanceledException", reasons=["None", "ConditionalCheckFailed", "None", "None"])
    )
    assert inbox.process(a_message(), deposit) is Outcome.DUPLICATE
    assert bench.balance() == 1


def test_a_duplicate_at_work_at_the_same_moment_is_waited_for(bench: Bench) -> None:
    inbox = bench.inbox(check_first=False)
    conflict = client_error("TransactionCanceledException", reasons=["TransactionConflict", "None", "None", "None"])
    inbox.process(a_message(), deposit)
    bench.client.before(WRITE, conflict, conflict)
    assert inbox.process(a_message(), deposit) is Outcome.DUPLICATE


def test_a_lost_answer_does_not_make_the_message_look_like_a_duplicate(bench: Bench) -> None:
    bench.client.after(WRITE, no_answer())
    assert bench.inbox().process(a_message(), deposit) is Outcome.PROCESSED
    assert bench.balance() == 1


def test_after_an_unknown_outcome_processing_again_finds_out(bench: Bench) -> None:
    bench.client.after(WRITE, *[no_answer()] * 1000)
    with pytest.raises(OutcomeUnknownError):
        bench.inbox().process(a_message(), deposit)
    bench.client._after.clear()
    assert bench.inbox().process(a_message(), deposit) is Outcome.DUPLICATE
    assert bench.balance() == 1


def test_a_handler_that_fails_leaves_nothing(bench: Bench) -> None:
    def failing(message: Message, transaction: Transaction) -> None:
        deposit(message, transaction)
        raise RejectedError("no")

    with pytest.raises(RejectedError):
        bench.inbox().process(a_message(), failing)
    assert bench.items("inbox") == bench.items("accounts") == bench.items("outbox") == []


def test_a_re_run_after_the_record_expired_emits_the_same_event_ids(bench: Bench) -> None:
    inbox = bench.inbox()
    inbox.process(a_message(), deposit)
    ids = [item["id"]["S"] for item in bench.items("outbox") if item["pk"]["S"].startswith("pending/")]
    bench.relay().sweep()
    bench.client.delete_item(TableName="inbox", Key={"id": {"S": "billing#m1"}})
    inbox.process(a_message(), deposit)
    assert [i["id"]["S"] for i in bench.items("outbox") if i["pk"]["S"].startswith("pending/")] == ids
    assert len(ids[0]) == 36


def test_events_of_one_message_have_different_ids_and_keep_a_chosen_one(bench: Bench) -> None:
    transaction = Transaction("billing", "m1")
    ids = [
        transaction.emit(event)
        for event in (Event.of("e", "r", 1), Event.of("e", "r", 1), Event("e", "r", b"", id="chosen"))
    ]
    assert len(set(ids)) == 3
    assert ids[2] == "chosen"
    assert Transaction("billing", "m1").emit(Event.of("x", "y", 2)) == ids[0]
    assert Transaction("billing", "m2").emit(Event.of("e", "r", 1)) != ids[0]
    assert Transaction().emit(Event.of("e", "r", 1)) != Transaction().emit(Event.of("e", "r", 1))


def test_a_chosen_event_id_that_still_waits_is_refused(bench: Bench) -> None:
    def handler(message: Message, transaction: Transaction) -> None:
        transaction.emit(Event("events", "paid", message.id.encode(), id="chosen"))

    bench.inbox().process(a_message("m1"), handler)
    with pytest.raises(EventIdTakenError):
        bench.inbox().process(a_message("m2"), handler)


def test_a_record_is_kept_as_long_as_it_was_asked_for(bench: Bench) -> None:
    bench.inbox(keep=timedelta(days=9)).process(a_message(), deposit)
    [record] = bench.items("inbox")
    assert int(record["expires_at"]["N"]) == int(bench.clock()) + 9 * 86400


def test_keeping_records_for_less_than_eight_days_is_refused(bench: Bench) -> None:
    with pytest.raises(ValueError, match="would take effect again"):
        bench.inbox(keep=timedelta(days=7, hours=23))
    bench.inbox(keep=timedelta(days=8))


@pytest.mark.parametrize("name", ["", "a#b", "with space", "x" * 101])
def test_a_consumer_name_that_could_be_mistaken_is_refused(bench: Bench, name: str) -> None:
    with pytest.raises(ValueError, match="consumer"):
        bench.inbox(name)


def test_dynamodb_being_away_is_told_from_everything_else(bench: Bench) -> None:
    bench.client.before("get_item", client_error("ProvisionedThroughputExceededException"))
    with pytest.raises(UnavailableError):
        bench.inbox().process(a_message(), deposit)
