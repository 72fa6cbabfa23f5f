"""The DynamoDB table that holds ownership, the maintenance lock and reports. All reads are consistent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.exceptions import ClientError

from node.aws import error_code

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.client import DynamoDBClient

Item = Mapping[str, Any]


class ConditionFailed(Exception):
    """A conditional write found something else than it asked for."""


class Table:
    """Items by their `id`. Errors of the service pass through."""

    def __init__(self, client: DynamoDBClient, name: str) -> None:
        self._client, self._name = client, name

    def get(self, identifier: str) -> Item | None:
        """The item, or None."""
        answer = self._client.get_item(TableName=self._name, Key={"id": {"S": identifier}}, ConsistentRead=True)
        if "Item" not in answer:
            return None
        reader = TypeDeserializer()
        return {key: reader.deserialize(value) for key, value in answer["Item"].items()}

    def put(self, identifier: str, item: Item) -> None:
        """Write the whole item, whatever was there."""
        self._client.put_item(TableName=self._name, Item={"id": {"S": identifier}, **_serialised(item)})

    def update(
        self,
        identifier: str,
        *,
        put: Item,
        remove: Sequence[str] = (),
        condition: str,
        values: Item | None = None,
    ) -> None:
        """Change some attributes if `condition` holds. Raises ConditionFailed otherwise.

        In the condition `#name` is an attribute and `:name` a key of `values`.
        """
        expression = "SET " + ", ".join(f"#{name} = :put_{name}" for name in put)
        if remove:
            expression += " REMOVE " + ", ".join(f"#{name}" for name in remove)
        names = {*put, *remove, *re.findall(r"#(\w+)", condition)}
        try:
            self._client.update_item(
                TableName=self._name,
                Key={"id": {"S": identifier}},
                UpdateExpression=expression,
                ConditionExpression=condition,
                ExpressionAttributeNames={f"#{name}": name for name in names},
                ExpressionAttributeValues={
                    **{f":put_{name}": value for name, value in _serialised(put).items()},
                    **{f":{name}": value for name, value in _serialised(values or {}).items()},
                },
            )
        except ClientError as error:
            if error_code(error) == "ConditionalCheckFailedException":
                raise ConditionFailed(identifier) from error
            raise

    def delete(self, identifier: str, *, attribute: str, value: str) -> None:
        """Delete the item if `attribute` is `value`. Raises ConditionFailed otherwise."""
        try:
            self._client.delete_item(
                TableName=self._name,
                Key={"id": {"S": identifier}},
                ConditionExpression="#attribute = :value",
                ExpressionAttributeNames={"#attribute": attribute},
                ExpressionAttributeValues={":value": {"S": value}},
            )
        except ClientError as error:
            if error_code(error) == "ConditionalCheckFailedException":
                raise ConditionFailed(identifier) from error
            raise


def _serialised(item: Item) -> dict[str, Any]:
    writer = TypeSerializer()
    return {key: writer.serialize(_exact(value)) for key, value in item.items()}


def _exact(value: Any) -> Any:
    """DynamoDB takes no binary floats."""
    if isinstance(value, float):
        return Decimal(str(round(value, 3)))
    if isinstance(value, Mapping):
        return {key: _exact(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_exact(inner) for inner in value]
    return value
