"""moto's DynamoDB without HTTP and botocore: the calls of a boto3 client that the library makes, many times as fast.

For tests with thousands of steps. test_messaging_dynamodb.py holds it equal to moto behind a real client.
"""

import copy
import json
import re
from typing import Any

from botocore.exceptions import ClientError
from moto.dynamodb.exceptions import ConditionalCheckFailed, MockValidationException, TransactionCanceledException
from moto.dynamodb.models import DynamoDBBackend

from lab.emulator import overrides

Answer = dict[str, Any]

_KEY_CONDITION = re.compile(r"pk = (:\w+)(?: AND sk BETWEEN (:\w+) AND (:\w+))?")


class DirectDynamoDB:
    """One region's tables. Not for more than one thread at a time."""

    def __init__(self) -> None:
        overrides.install()
        self.backend = DynamoDBBackend("eu-west-1", "123456789012")
        self.tokens: set[str] = set()

    def create_table(self, **request: Any) -> None:
        self.backend.create_table(
            request["TableName"],
            schema=request["KeySchema"],
            throughput=None,
            attr=request["AttributeDefinitions"],
            global_indexes=None,
            indexes=None,
            streams=None,
            billing_mode="PAY_PER_REQUEST",
            sse_specification=None,
            tags=[],
            deletion_protection_enabled=False,
            warm_throughput=None,
        )

    def transact_write_items(self, **request: Any) -> Answer:
        if request["ClientRequestToken"] in self.tokens:
            return {}
        try:
            self.backend.transact_write_items(copy.deepcopy(request["TransactItems"]))
        except TransactionCanceledException as error:
            details = json.loads(error.description)
            raise _error("TransactionCanceledException", "cancelled", details) from error
        except MockValidationException as error:
            raise _error("ValidationException", str(error.message)) from error
        self.tokens.add(request["ClientRequestToken"])
        return {}

    def put_item(self, **request: Any) -> Answer:
        self._demand_condition(request, request["Item"])
        self.backend.put_item(request["TableName"], copy.deepcopy(request["Item"]))
        return {}

    def delete_item(self, **request: Any) -> Answer:
        self._demand_condition(request, request["Key"])
        self.backend.delete_item(request["TableName"], request["Key"])
        return {}

    def update_item(self, **request: Any) -> Answer:
        self._demand_condition(request, request["Key"])
        self.backend.update_item(
            request["TableName"],
            request["Key"],
            request["UpdateExpression"],
            request.get("ExpressionAttributeNames", {}),
            request.get("ExpressionAttributeValues", {}),
        )
        return {}

    def get_item(self, **request: Any) -> Answer:
        item = self.backend.get_item(request["TableName"], request["Key"])
        return {"Item": copy.deepcopy(item.to_json()["Attributes"])} if item else {}

    def transact_get_items(self, **request: Any) -> Answer:
        return {"Responses": [self.get_item(**get["Get"]) for get in request["TransactItems"]]}

    def batch_write_item(self, **request: Any) -> Answer:
        for table, writes in request["RequestItems"].items():
            for write in writes:
                self.backend.delete_item(table, write["DeleteRequest"]["Key"])
        return {"UnprocessedItems": {}}

    def query(self, **request: Any) -> Answer:
        match = _KEY_CONDITION.fullmatch(request["KeyConditionExpression"])
        assert match, request
        values = request["ExpressionAttributeValues"]
        start: Any = request.get("ExclusiveStartKey")
        partition: Any
        first: Any
        until: Any
        partition, first, until = (values[name] if name else None for name in match.groups())
        items, _, following = self.backend.query(
            request["TableName"],
            partition,
            "BETWEEN" if first else None,
            [first, until] if first else [],
            request.get("Limit", 1_000_000),
            start,
            True,
            None,
        )
        found = [copy.deepcopy(item.to_json()["Attributes"]) for item in items]
        last = {name: getattr(value, "to_json", lambda v=value: v)() for name, value in (following or {}).items()}
        more = {"LastEvaluatedKey": last} if last else {}
        return {"Count": len(found), **({} if request.get("Select") == "COUNT" else {"Items": found}), **more}

    def _demand_condition(self, request: Any, attributes: Any) -> None:
        """The condition of a single write."""
        keys = [name for name in self.backend.get_table(request["TableName"]).attribute_keys if name in attributes]
        check = {name: value for name, value in request.items() if name not in ("Item", "UpdateExpression")}
        check["Key"] = {name: attributes[name] for name in keys}
        try:
            self.backend.transact_write_items([{"ConditionCheck": check}])
        except TransactionCanceledException as error:
            raise _error("ConditionalCheckFailedException", str(ConditionalCheckFailed().message)) from error


def _error(code: str, message: str, details: Answer | None = None) -> ClientError:
    response: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": 400},
        **(details or {}),
    }
    return ClientError(response, "stand-in")
