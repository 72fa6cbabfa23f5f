"""DynamoDB's transactions, which moto has only in part. The tests of messaging/ rely on this fake, and check it first.

moto 5.2.5 lacks three things that DynamoDB has: it ignores ClientRequestToken, it accepts more than 4 MB, and it makes
a transaction by copying whole tables and putting the copies back when something fails, which undoes what others wrote
meanwhile (and takes long). Its conditions, reasons, limits of 100 and of one write an item are as DynamoDB's.
"""

import copy
import json
import time
from collections.abc import Callable
from typing import Any

from moto.dynamodb.comparisons import get_filter_expression
from moto.dynamodb.exceptions import (
    ConditionalCheckFailed,
    DynamodbException,
    MockValidationException,
    MultipleTransactionsException,
    TooManyTransactionsException,
    TransactionCanceledException,
)
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.models.dynamo_type import Item
from moto.dynamodb.models.table import Table
from moto.dynamodb.responses import DynamoHandler

from lab.emulator.overrides import replaces

TOKEN_VALID_SECONDS = 600
MAX_BYTES = 4 * 1024 * 1024

clock: Callable[[], float] = time.time
"""Replaced by tests that let tokens grow old."""

motos_answer = DynamoHandler.transact_write_items


class ParameterMismatchError(DynamodbException):
    """A token that came before, with other content."""

    def __init__(self) -> None:
        super().__init__(
            "com.amazonaws.dynamodb.v20120810#IdempotentParameterMismatchException",
            "The parameters do not match the ones of the first request with this client token",
        )


@replaces(DynamoHandler, "transact_write_items")
def transact_write_items_once(self: DynamoHandler) -> Any:
    """The request: a token that succeeded within ten minutes has no further effect."""
    token = self.body.get("ClientRequestToken")
    if token is None:
        return motos_answer(self)
    if not 1 <= len(token) <= 36:
        raise MockValidationException("Value at 'clientRequestToken' failed to satisfy constraint: length 1 to 36")
    known = self.dynamodb_backend.__dict__.setdefault("client_request_tokens", {})
    content = json.dumps(self.body["TransactItems"], sort_keys=True, default=repr)  # binary values are bytes
    earlier, completed_at = known.get(token, (None, 0.0))
    if earlier is not None and clock() - completed_at < TOKEN_VALID_SECONDS:
        if earlier != content:
            raise ParameterMismatchError
        self.body = {**self.body, "TransactItems": []}
        return motos_answer(self)
    answer = motos_answer(self)
    known[token] = (content, clock())
    return answer


@replaces(DynamoDBBackend, "transact_write_items")
def transact_write_items(self: DynamoDBBackend, transact_items: list[dict[str, Any]]) -> None:
    """All conditions are looked at first; then all writes are made, or none."""
    if len(transact_items) > 100:
        raise TooManyTransactionsException
    operations = [next(iter(item.items())) for item in transact_items]
    if len(str([op.get("Item", {}) for _, op in operations])) > MAX_BYTES:
        raise MockValidationException("Transaction request exceeds the limit of 4 MB")
    places = [_place(self, kind, op) for kind, op in operations]
    if len({(table.name, str(key)) for table, key in places}) < len(places):
        raise MultipleTransactionsException
    reasons = [_condition(self, op, key) for (_, op), (_, key) in zip(operations, places, strict=True)]
    if any(code for code, _, _ in reasons):
        raise TransactionCanceledException(reasons)
    before = [copy.deepcopy(self.get_item(table.name, key)) for table, key in places]
    for index, ((kind, op), (_, key)) in enumerate(zip(operations, places, strict=True)):
        try:
            _write(self, kind, op, key)
        except Exception as error:
            for (table, key_before), item in zip(places[: index + 1], before[: index + 1], strict=True):
                _restore(self, table, key_before, item)
            reasons[index] = ("ValidationError", str(error), None)
            raise TransactionCanceledException(reasons) from error


def _place(backend: DynamoDBBackend, kind: str, operation: dict[str, Any]) -> tuple[Table, dict[str, Any]]:
    table = backend.get_table(operation["TableName"])
    if kind != "Put":
        return table, dict(sorted(operation["Key"].items()))
    names = [name for name in (table.hash_key_attr, table.range_key_attr) if name]
    return table, {name: operation["Item"][name] for name in sorted(names)}


def _condition(backend: DynamoDBBackend, operation: dict[str, Any], key: dict[str, Any]) -> tuple[Any, Any, Any]:
    item = backend.get_item(operation["TableName"], key)
    condition = get_filter_expression(
        operation.get("ConditionExpression"),
        operation.get("ExpressionAttributeNames"),
        operation.get("ExpressionAttributeValues"),
    )
    if condition.expr(item):
        return None, None, None
    wants_old = operation.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
    old = item.to_json()["Attributes"] if item and wants_old else None
    return "ConditionalCheckFailed", str(ConditionalCheckFailed().message), old


def _write(backend: DynamoDBBackend, kind: str, operation: dict[str, Any], key: dict[str, Any]) -> None:
    match kind:
        case "Put":
            backend.put_item(operation["TableName"], operation["Item"])
        case "Delete":
            backend.delete_item(operation["TableName"], key)
        case "Update":
            backend.update_item(
                operation["TableName"],
                key,
                operation["UpdateExpression"],
                operation.get("ExpressionAttributeNames", {}),
                operation.get("ExpressionAttributeValues", {}),
            )


def _restore(backend: DynamoDBBackend, table: Table, key: dict[str, Any], item: Item | None) -> None:
    if item is None:
        backend.delete_item(table.name, key)
    else:
        backend.put_item(table.name, item.to_json()["Attributes"])
