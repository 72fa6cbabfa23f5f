"""What the library relies on in DynamoDB, shown on the two fakes that the other tests use.

They are moto behind a boto3 client and HTTP, and moto's models called directly. What they have that moto has not is in
lab/emulator/transactions.py. Not shown, because no fake here does it by itself: TransactionConflict, throttling and
lost answers. Those are made by hand where they matter (standins/faults.py).
"""

import threading
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ParamValidationError
from moto.dynamodb.models import DynamoDBBackend, dynamodb_backends
from moto.dynamodb.responses import DynamoHandler

from lab.emulator import overrides, transactions
from lab.emulator.server import ApiServer
from tests.unit.messaging.standins.direct_dynamodb import DirectDynamoDB
from tests.unit.messaging.standins.tables import create_tables


@pytest.fixture(scope="module")
def moto_client() -> Iterator[Any]:
    overrides.install()
    server = ApiServer("127.0.0.1", 0, threading.RLock())
    server.start()
    client = boto3.client(
        "dynamodb",
        region_name="eu-west-1",
        endpoint_url=f"http://127.0.0.1:{server.port}",
        aws_access_key_id="stand-in",
        aws_secret_access_key="stand-in",
    )
    create_tables(client)
    yield client
    server.stop()


@pytest.fixture(params=["moto behind boto3", "moto's models directly"])
def client(request: pytest.FixtureRequest, moto_client: Any) -> Iterator[Any]:
    if request.param == "moto behind boto3":
        yield moto_client
        for table in ("inbox", "outbox", "accounts"):
            dynamodb_backends["123456789012"]["eu-west-1"].get_table(table).items.clear()
    else:
        direct = DirectDynamoDB()
        create_tables(direct)
        yield direct


def inbox(message: str = "m1") -> Any:
    return {
        "Put": {
            "TableName": "inbox",
            "Item": {"id": {"S": message}},
            "ConditionExpression": "attribute_not_exists(id)",
        }
    }


def add(account: str = "a", condition: str | None = None) -> Any:
    update: Any = {
        "TableName": "accounts",
        "Key": {"account": {"S": account}},
        "UpdateExpression": "ADD balance :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }
    return {"Update": {**update, **({"ConditionExpression": condition} if condition else {})}}


def balance(client: Any, account: str = "a") -> str:
    answer = client.get_item(TableName="accounts", Key={"account": {"S": account}}, ConsistentRead=True)
    return str(answer["Item"]["balance"]["N"]) if "Item" in answer else "0"


def transact(client: Any, *items: Any, token: str = "") -> Any:
    transact.count = getattr(transact, "count", 0) + 1  # type: ignore[attr-defined]
    return client.transact_write_items(
        TransactItems=list(items),
        ClientRequestToken=token or f"token-{transact.count}",  # type: ignore[attr-defined]
    )


def refusal(client: Any, *items: Any, token: str = "") -> Any:
    with pytest.raises(ClientError) as caught:
        transact(client, *items, token=token)
    return caught.value.response


def codes(response: Any) -> list[str]:
    return [reason["Code"] for reason in response["CancellationReasons"]]


def test_a_failed_condition_is_reported_at_the_place_of_its_write(client: Any) -> None:
    transact(client, inbox(), add())
    response = refusal(client, add(), inbox(), add("b"))
    assert response["Error"]["Code"] == "TransactionCanceledException"
    assert codes(response) == ["None", "ConditionalCheckFailed", "None"]


def test_every_failed_condition_is_reported(client: Any) -> None:
    transact(client, inbox())
    response = refusal(client, inbox(), add("b", "attribute_exists(balance)"))
    assert codes(response) == ["ConditionalCheckFailed", "ConditionalCheckFailed"]


def test_a_failed_business_condition_is_told_from_one_of_the_inbox(client: Any) -> None:
    assert codes(refusal(client, inbox(), add("b", "attribute_exists(balance)"))) == ["None", "ConditionalCheckFailed"]


def test_nothing_is_written_when_one_condition_fails(client: Any) -> None:
    refusal(client, add(), inbox(), add("b", "attribute_exists(balance)"))
    assert balance(client) == "0"
    transact(client, inbox())


def test_conditions_see_the_items_as_they_were_before_the_transaction(client: Any) -> None:
    transact(client, add())
    check = {
        "ConditionCheck": {
            "TableName": "inbox",
            "Key": {"id": {"S": "m1"}},
            "ConditionExpression": "attribute_not_exists(id)",
        }
    }
    transact(client, check, add("b", "attribute_not_exists(balance)"))
    assert balance(client, "b") == "1"


def test_a_write_that_turns_out_impossible_undoes_those_before_it(client: Any) -> None:
    transact(client, {"Put": {"TableName": "accounts", "Item": {"account": {"S": "b"}, "balance": {"S": "text"}}}})
    response = refusal(client, inbox(), add(), add("b"))
    assert codes(response) == ["None", "None", "ValidationError"]
    assert balance(client) == "0"
    transact(client, inbox())


def test_the_same_item_twice_is_refused(client: Any) -> None:
    assert refusal(client, add(), add())["Error"]["Code"] == "ValidationException"


def test_more_than_a_hundred_writes_are_refused(client: Any) -> None:
    transact(client, *[add(str(number)) for number in range(100)])
    assert refusal(client, *[add(str(number)) for number in range(101)])["Error"]["Code"] == "ValidationException"


def test_more_than_four_megabytes_are_refused(client: Any) -> None:
    large = [
        {"Put": {"TableName": "accounts", "Item": {"account": {"S": str(n)}, "text": {"S": "x" * 390_000}}}}
        for n in range(11)
    ]
    assert refusal(client, *large)["Error"]["Code"] == "ValidationException"
    transact(client, *large[:10])


def test_an_item_above_400_kilobytes_is_refused(client: Any) -> None:
    large = {"Put": {"TableName": "accounts", "Item": {"account": {"S": "a"}, "text": {"S": "x" * 410_000}}}}
    response = refusal(client, inbox(), large)
    assert response["Error"]["Code"] in ("ValidationException", "TransactionCanceledException")
    transact(client, inbox())


def test_a_repeated_token_has_no_second_effect(client: Any) -> None:
    for _ in range(3):
        transact(client, add(), token="same")
    assert balance(client) == "1"


def test_a_transaction_carries_bytes(client: Any) -> None:
    item = {"account": {"S": "binary"}, "body": {"B": b"\x00\xff"}}
    for _ in range(2):
        transact(client, {"Put": {"TableName": "accounts", "Item": item}}, token="bytes")
    answer = client.get_item(TableName="accounts", Key={"account": {"S": "binary"}})
    assert answer["Item"]["body"]["B"] == b"\x00\xff"


def test_a_token_is_not_used_up_by_a_transaction_that_was_cancelled(client: Any) -> None:
    refusal(client, add("a", "attribute_exists(balance)"), token="retried")
    transact(client, add())
    transact(client, add("a", "attribute_exists(balance)"), token="retried")
    assert balance(client) == "2"


def test_a_conditional_write_names_its_failure(client: Any) -> None:
    put = {"TableName": "inbox", "Item": {"id": {"S": "m1"}}, "ConditionExpression": "attribute_not_exists(id)"}
    client.put_item(**put)
    with pytest.raises(ClientError) as caught:
        client.put_item(**put)
    assert caught.value.response["Error"]["Code"] == "ConditionalCheckFailedException"


def test_a_query_goes_on_where_its_page_ended_in_the_order_of_the_sort_key(client: Any) -> None:
    for sk in ("k#b#2", "k#a#1", "k#a#2", "k#b#1"):
        client.put_item(TableName="outbox", Item={"pk": {"S": "pending/0"}, "sk": {"S": sk}})
    query: Any = {
        "TableName": "outbox",
        "KeyConditionExpression": "pk = :pk",
        "ExpressionAttributeValues": {":pk": {"S": "pending/0"}},
        "ConsistentRead": True,
    }
    first = client.query(**query, Limit=3)
    assert [item["sk"]["S"] for item in first["Items"]] == ["k#a#1", "k#a#2", "k#b#1"]
    rest = client.query(**query, Limit=3, ExclusiveStartKey=first["LastEvaluatedKey"])
    assert [item["sk"]["S"] for item in rest["Items"]] == ["k#b#2"]
    assert "LastEvaluatedKey" not in rest
    assert client.query(**query, Select="COUNT")["Count"] == 4


def test_a_query_takes_a_range_of_sort_keys(client: Any) -> None:
    for sk in ("k#a#1", "k#a#9", "k#aa#1", "k#b#1"):
        client.put_item(TableName="outbox", Item={"pk": {"S": "parked/0"}, "sk": {"S": sk}})
    found = client.query(
        TableName="outbox",
        KeyConditionExpression="pk = :pk AND sk BETWEEN :a AND :b",
        ExpressionAttributeValues={":pk": {"S": "parked/0"}, ":a": {"S": "k#a#0"}, ":b": {"S": "k#a#9"}},
        ConsistentRead=True,
        Limit=5,
    )
    assert [item["sk"]["S"] for item in found["Items"]] == ["k#a#1", "k#a#9"]


def test_reading_together_gives_an_empty_answer_for_an_item_that_is_not_there(client: Any) -> None:
    transact(client, inbox())
    gets = [{"Get": {"TableName": "inbox", "Key": {"id": {"S": name}}}} for name in ("m1", "m2")]
    there, missing = client.transact_get_items(TransactItems=gets)["Responses"]
    assert there["Item"]["id"] == {"S": "m1"}
    assert not missing.get("Item")


def test_a_token_with_other_content_is_refused(moto_client: Any) -> None:
    transact(moto_client, add("x"), token="mismatch")
    assert refusal(moto_client, add("y"), token="mismatch")["Error"]["Code"] == "IdempotentParameterMismatchException"


def test_a_token_counts_for_ten_minutes_only(moto_client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    transact(moto_client, add("old"), token="aging")
    later = transactions.clock() + 599
    monkeypatch.setattr(transactions, "clock", lambda: later)
    transact(moto_client, add("old"), token="aging")
    assert balance(moto_client, "old") == "1"
    monkeypatch.setattr(transactions, "clock", lambda: later + 2)
    transact(moto_client, add("old"), token="aging")
    assert balance(moto_client, "old") == "2"


def test_a_token_has_at_most_36_characters(moto_client: Any) -> None:
    with pytest.raises((ClientError, ParamValidationError)):
        transact(moto_client, add("long"), token="x" * 37)
    transact(moto_client, add("long"), token="x" * 36)


def test_moto_by_itself_still_ignores_the_token(moto_client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """When this fails, moto has learnt it: take `transact_write_items_once` out of the emulator."""
    monkeypatch.setattr(DynamoHandler, "transact_write_items", transactions.motos_answer)
    for _ in range(2):
        transact(moto_client, add("twice"), token="ignored")
    assert balance(moto_client, "twice") == "2"
    assert DynamoDBBackend.transact_write_items is transactions.transact_write_items
