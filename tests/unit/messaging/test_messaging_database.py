"""Transactions through conflicts, throttling and lost answers."""

import pytest
from botocore.exceptions import ClientError

from messaging.database import Database, TransactionCancelledError
from messaging.errors import OutcomeUnknownError, UnavailableError
from messaging.retries import Backoff, Retries
from messaging.writes import Table, Write, keyed, put
from tests.unit.messaging.standins.bench import Bench
from tests.unit.messaging.standins.faults import client_error, no_answer
from tests.unit.messaging.standins.tables import ACCOUNTS

WRITE = "transact_write_items"


def add() -> Write:
    return keyed("Update", ACCOUNTS, {"account": "a"}, update="ADD balance :one", values={":one": 1})


def tokens(bench: Bench) -> list[str]:
    return [request["ClientRequestToken"] for name, request in bench.client.calls if name == WRITE]


FOR_NOW = [
    client_error("TransactionCanceledException", reasons=["TransactionConflict", "None"]),
    client_error("TransactionCanceledException", reasons=["None", "ThrottlingError"]),
    client_error("TransactionCanceledException", reasons=["ProvisionedThroughputExceeded"]),
    client_error("TransactionInProgressException"),
    client_error("ThrottlingException"),
    client_error("ProvisionedThroughputExceededException"),
    client_error("RequestLimitExceeded"),
    client_error("InternalServerError", status=500),
    no_answer(),
]


@pytest.mark.parametrize("error", FOR_NOW, ids=str)
def test_what_is_refused_for_now_is_tried_again_with_the_same_token(bench: Bench, error: Exception) -> None:
    bench.client.before(WRITE, error, error)
    bench.database.commit([add()])
    assert bench.balance() == 1
    assert len(tokens(bench)) == 3
    assert len(set(tokens(bench))) == 1


@pytest.mark.parametrize("lost", [no_answer(), client_error("InternalServerError", status=500)], ids=str)
def test_a_transaction_whose_answer_is_lost_takes_effect_once(bench: Bench, lost: Exception) -> None:
    bench.client.after(WRITE, lost, lost)
    bench.database.commit([add()])
    assert bench.balance() == 1


def test_each_transaction_has_a_token_of_its_own_of_at_most_36_characters(bench: Bench) -> None:
    bench.database.commit([add()])
    bench.database.commit([add()])
    first, second = tokens(bench)
    assert first != second
    assert len(first) <= 36
    assert bench.balance() == 2


def test_a_failed_condition_is_final_even_beside_a_conflict(bench: Bench) -> None:
    bench.client.before(
        WRITE, client_error("TransactionCanceledException", reasons=["ConditionalCheckFailed", "TransactionConflict"])
    )
    with pytest.raises(TransactionCancelledError) as caught:
        bench.database.commit([add(), put(Table("inbox", ("id",)), {"id": "m"})])
    assert [reason.code for _, reason in caught.value.failed] == ["ConditionalCheckFailed", "TransactionConflict"]


def test_giving_up_without_an_answer_says_that_the_outcome_is_unknown(bench: Bench) -> None:
    # One conflict afterwards does not make the first attempt's outcome known.
    bench.client.before(WRITE, no_answer(), *[FOR_NOW[0]] * 1000)
    with pytest.raises(OutcomeUnknownError):
        bench.database.commit([add()])


def test_giving_up_after_refusals_says_that_nothing_was_written(bench: Bench) -> None:
    bench.client.before(WRITE, *[FOR_NOW[0]] * 1000)
    started = bench.clock()
    with pytest.raises(UnavailableError) as caught:
        bench.database.commit([add()])
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert bench.balance() == 0
    assert bench.clock() - started == pytest.approx(30)


def test_retries_longer_than_a_token_is_remembered_are_refused(bench: Bench) -> None:
    with pytest.raises(ValueError, match="at most 300 s"):
        Database(bench.client, retries=Retries(seconds=301))  # type: ignore[arg-type]


def test_a_request_that_is_wrong_is_not_repeated(bench: Bench) -> None:
    bench.client.before(WRITE, client_error("ValidationException"))
    with pytest.raises(ClientError):
        bench.database.commit([add()])
    assert len(tokens(bench)) == 1


@pytest.mark.parametrize("code", ["AccessDeniedException", "ResourceNotFoundException"])
def test_a_missing_permission_or_table_is_the_infrastructures_fault_and_not_repeated(bench: Bench, code: str) -> None:
    bench.client.before(WRITE, client_error(code))
    with pytest.raises(UnavailableError, match=code):
        bench.database.commit([add()])
    assert len(tokens(bench)) == 1


def test_unprocessed_deletes_are_sent_again(bench: Bench) -> None:
    outbox = bench.outbox.table
    for number in range(60):
        bench.database.write(put(outbox, {"pk": "p", "sk": str(number)}))
    client = bench.client._client
    direct, answers = client.batch_write_item, []

    def half(**request: object) -> dict[str, object]:
        [(table, writes)] = request["RequestItems"].items()  # type: ignore[attr-defined]
        answers.append(len(writes))
        taken = writes[: max(1, len(writes) // 2)]
        direct(RequestItems={table: taken})
        return {"UnprocessedItems": {table: writes[len(taken) :]} if writes[len(taken) :] else {}}

    client.batch_write_item = half
    bench.database.delete_all(outbox, [{"pk": "p", "sk": str(number)} for number in range(60)])
    assert bench.items("outbox") == []
    assert max(answers) == 25


def test_a_pause_is_jittered_and_bounded() -> None:
    backoff = Backoff(first=1, most=10)
    early = {backoff.delay(0) for _ in range(50)}
    late = {backoff.delay(1000) for _ in range(50)}
    assert len(early) > 40
    assert max(early) <= 1
    assert 5 < max(late) <= 10
