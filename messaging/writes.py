"""One write of a transaction, in DynamoDB's notation, and the limits that a transaction has to keep.

Limits: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
Sizes: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from boto3.dynamodb.types import Binary, TypeDeserializer, TypeSerializer

from messaging.errors import LimitExceededError

Item = Mapping[str, Any]
"""Attribute name to a plain Python value: str, int, Decimal, bytes, bool, None, list, dict, set."""

Stored = dict[str, Any]
"""An item in DynamoDB's notation: `{"id": {"S": "17"}}`."""

_serialise = TypeSerializer().serialize
_deserialise = TypeDeserializer().deserialize


@dataclass(frozen=True)
class Table:
    """A table by its name and the names of its key attributes: `Table("orders", key=("order_id",))`."""

    name: str
    key: tuple[str, ...]


def stored(item: Item) -> Stored:
    """In DynamoDB's notation. Raises TypeError naming the attribute whose value DynamoDB has no type for."""
    result: Stored = {}
    for name, value in item.items():
        try:
            result[name] = _serialise(value)
        except TypeError as error:
            hint = " (use Decimal for fractions)" if "Float" in str(error) else ""
            raise TypeError(f"attribute {name}: DynamoDB cannot store {value!r}{hint}") from error
    return result


def loaded(item: Mapping[str, Any]) -> dict[str, Any]:
    """As plain Python values. Numbers are Decimal, binary values are bytes."""
    return {name: _plain(_deserialise(value)) for name, value in item.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Binary):
        return bytes(value.value)  # type: ignore[attr-defined]
    if isinstance(value, list):
        return [_plain(element) for element in value]
    if isinstance(value, dict):
        return {name: _plain(element) for name, element in value.items()}
    return value


def size(item: Mapping[str, Any]) -> int:
    """Bytes of an item in DynamoDB's notation. Numbers are counted at the most that they can take."""
    return sum(len(name.encode()) + _value_size(value) for name, value in item.items())


def _value_size(value: Mapping[str, Any]) -> int:
    [(kind, content)] = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "B":
            return len(content)
        case "N":
            return _number_size(content)
        case "SS":
            return sum(len(element.encode()) for element in content)
        case "BS":
            return sum(len(element) for element in content)
        case "NS":
            return sum(_number_size(element) for element in content)
        case "L":
            return 3 + sum(1 + _value_size(element) for element in content)
        case "M":
            return 3 + sum(1 + len(name.encode()) + _value_size(element) for name, element in content.items())
        case _:
            return 1


def _number_size(number: str) -> int:
    digits = sum(character.isdigit() for character in number.partition("E")[0])
    return (digits + 1) // 2 + 2


Operation = Literal["Put", "Update", "Delete", "ConditionCheck"]
Role = Literal["business", "inbox", "event", "sequence"]

MAX_WRITES = 100
MAX_ITEM_BYTES = 400 * 1024
MAX_TRANSACTION_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Write:
    """One write, in DynamoDB's notation. `role` tells what a failed condition of it means."""

    table: Table
    operation: Operation
    key: Stored
    request: dict[str, Any]
    role: Role = "business"

    @property
    def size(self) -> int:
        """Bytes. Exact for a put; for the others, whose result only DynamoDB knows, what the request carries."""
        if self.operation == "Put":
            return size(self.request["Item"])
        return size(self.key) + size(self.request.get("ExpressionAttributeValues", {}))

    def __str__(self) -> str:
        key = ", ".join(f"{name}={next(iter(value.values()))}" for name, value in self.key.items())
        return f"{self.operation} {self.table.name} ({key})"


def put(table: Table, item: Item, *, role: Role = "business", **expression: Any) -> Write:
    """A new or replaced item. Key attributes that `item` lacks are found by `check`."""
    content = stored(item)
    key = {name: content[name] for name in table.key if name in content}
    return Write(table, "Put", key, {"TableName": table.name, "Item": content, **_expression(**expression)}, role)


def keyed(operation: Operation, table: Table, key: Item, *, role: Role = "business", **expression: Any) -> Write:
    """An update, a delete or a condition on the item with this key."""
    content = stored(key)
    return Write(
        table, operation, content, {"TableName": table.name, "Key": content, **_expression(**expression)}, role
    )


def _expression(
    *,
    update: str | None = None,
    condition: str | None = None,
    names: dict[str, str] | None = None,
    values: Item | None = None,
) -> dict[str, Any]:
    given: dict[str, Any] = {
        "UpdateExpression": update,
        "ConditionExpression": condition,
        "ExpressionAttributeNames": dict(names or {}),
        "ExpressionAttributeValues": stored(values or {}),
    }
    return {name: value for name, value in given.items() if value}


def check(writes: Sequence[Write]) -> None:
    """Raises LimitExceededError with everything for which DynamoDB would refuse these writes as one transaction."""
    problems = []
    if len(writes) > MAX_WRITES:
        own = sum(write.role != "business" for write in writes)
        problems.append(
            f"it has {len(writes)} writes, {own} of them for inbox and outbox; at most {MAX_WRITES} are possible: "
            "write less for one message"
        )
    seen: set[str] = set()
    for write in writes:
        if missing := [name for name in write.table.key if name not in write.key]:
            problems.append(f"{write}: key attributes are missing: {', '.join(missing)}")
        if extra := [name for name in write.key if name not in write.table.key]:
            problems.append(f"{write}: not attributes of the table's key: {', '.join(extra)}")
        identity = f"{write.table.name} {sorted(write.key.items())}"
        if identity in seen:
            problems.append(f"{write}: the same item stands twice in the transaction: merge the two writes")
        seen.add(identity)
        if write.size > MAX_ITEM_BYTES:
            problems.append(
                f"{write}: {write.size} bytes, at most {MAX_ITEM_BYTES} are possible: store the content elsewhere "
                "(S3) and refer to it"
            )
    if (total := sum(write.size for write in writes)) > MAX_TRANSACTION_BYTES:
        problems.append(
            f"it has {total} bytes; at most {MAX_TRANSACTION_BYTES} are possible: write less for one message"
        )
    if problems:
        raise LimitExceededError(problems)
