"""DynamoDB as the patterns need it: transactions that survive lost answers, conditional writes, consistent reads."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from botocore.config import Config
from botocore.exceptions import ClientError

from messaging.errors import MessagingError, OutcomeUnknownError, UnavailableError
from messaging.retries import CANCELLED_FOR_NOW, NO_ANSWER, Retries, code, is_for_now, is_server_fault
from messaging.writes import Item, Table, Write, check, loaded, stored

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TOKEN_VALID_SECONDS = 600
"""DynamoDB remembers a ClientRequestToken for 10 minutes. A retry after that would be a new transaction."""

MAX_BATCH = 25
"""Items of one BatchWriteItem."""

_CALLS = {"Put": "put_item", "Update": "update_item", "Delete": "delete_item"}


def client_config(connections: int = 50) -> Config:
    """For the boto3 client: short time limits, because `Database` itself retries, and a connection for each thread."""
    return Config(
        connect_timeout=2,
        read_timeout=5,
        retries={"mode": "standard", "total_max_attempts": 2},
        max_pool_connections=connections,
        tcp_keepalive=True,
    )


@dataclass(frozen=True)
class Reason:
    """Why a transaction was cancelled, for one of its writes."""

    code: str
    message: str


class TransactionCancelledError(MessagingError):
    """Nothing was written, and it would be cancelled again. `failed`: the writes that caused it, and why."""

    def __init__(self, writes: Sequence[Write], reasons: Sequence[Reason]) -> None:
        self.failed = [(write, reason) for write, reason in zip(writes, reasons, strict=True) if reason.code != "None"]
        super().__init__("; ".join(f"{write}: {reason.code} {reason.message}" for write, reason in self.failed))


class Database:
    """Wraps a boto3 client, which may be shared between threads."""

    def __init__(
        self,
        client: "DynamoDBClient",
        *,
        retries: Retries = Retries(),  # noqa: B008
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        new_token: Callable[[], str] = lambda: uuid4().hex,
    ) -> None:
        if retries.seconds > TOKEN_VALID_SECONDS / 2:
            raise ValueError(
                f"retries.seconds: {retries.seconds} is too long: a request token holds for {TOKEN_VALID_SECONDS} s, "
                f"so retry for at most {TOKEN_VALID_SECONDS // 2} s"
            )
        self.client = client
        self._retries = retries
        self._clock = clock
        self._sleep = sleep
        self._new_token = new_token

    def commit(self, writes: Sequence[Write]) -> None:
        """All of the writes or none.

        Conflicts, throttling and lost answers are retried with one request token, so that a transaction which took
        effect before its answer was lost is not done twice. Raises LimitExceededError before anything is sent,
        TransactionCancelledError, OutcomeUnknownError, or UnavailableError (then nothing was written).
        """
        check(writes)
        token = self._new_token()
        unknown = False
        problem: Exception | None = None
        items: Any = [{write.operation: write.request} for write in writes]
        for pause in self._retries.pauses(self._clock):
            try:
                self.client.transact_write_items(TransactItems=items, ClientRequestToken=token)
                return
            except ClientError as error:
                if code(error) == "TransactionCanceledException":
                    reasons = _reasons(error)
                    if not {reason.code for reason in reasons} <= CANCELLED_FOR_NOW:
                        raise TransactionCancelledError(writes, reasons) from error
                elif not is_for_now(error):
                    raise _translated(error, "a transaction") from error
                unknown = unknown or is_server_fault(error)
                problem = error
            except NO_ANSWER as error:
                unknown = True
                problem = error
            self._sleep(pause)
        kind = OutcomeUnknownError if unknown else UnavailableError
        raise kind(f"a transaction of {len(writes)} writes: gave up after {self._retries.seconds} s: {problem}")

    def commit_if(self, writes: Sequence[Write]) -> bool:
        """Like `commit`, but False when a condition failed."""
        try:
            self.commit(writes)
        except TransactionCancelledError as cancelled:
            if all(reason.code != "ConditionalCheckFailed" for _, reason in cancelled.failed):
                raise
            return False
        return True

    def pause(self, attempt: int) -> None:
        """Wait before attempt number `attempt + 1`."""
        self._sleep(self._retries.backoff.delay(attempt))

    def write(self, write: Write) -> bool:
        """One conditional write. False when its condition failed. After UnavailableError look what became of it."""
        try:
            getattr(self.client, _CALLS[write.operation])(**write.request)
        except ClientError as error:
            if code(error) == "ConditionalCheckFailedException":
                return False
            raise _translated(error, str(write)) from error
        except NO_ANSWER as error:
            raise OutcomeUnknownError(f"{write}: {error}") from error
        return True

    def delete_all(self, table: Table, keys: Sequence[Item]) -> None:
        """Remove items, whether or not they are there. Raises UnavailableError; then some may be left."""
        left: list[Any] = [{"DeleteRequest": {"Key": stored(key)}} for key in keys]
        pauses = self._retries.pauses(self._clock)
        while left:
            now, later = left[:MAX_BATCH], left[MAX_BATCH:]
            try:
                answer = self.client.batch_write_item(RequestItems={table.name: now})
            except ClientError as error:
                raise _translated(error, f"deleting from {table.name}") from error
            except NO_ANSWER as error:
                raise OutcomeUnknownError(f"deleting from {table.name}: {error}") from error
            unprocessed = answer.get("UnprocessedItems", {}).get(table.name, [])
            left = [*unprocessed, *later]
            if unprocessed:
                pause = next(pauses, None)
                if pause is None:
                    raise UnavailableError(f"deleting from {table.name}: DynamoDB is throttling")
                self._sleep(pause)

    def get(self, table: Table, key: Item) -> dict[str, Any] | None:
        """The item as of now (a consistent read)."""
        answer = self._read("get_item", TableName=table.name, Key=stored(key), ConsistentRead=True)
        return loaded(answer["Item"]) if "Item" in answer else None

    def get_together(self, table: Table, keys: Sequence[Item]) -> list[dict[str, Any] | None] | None:
        """Items as of one moment, no transaction half visible. None when a transaction is at work on one of them."""
        gets = [{"Get": {"TableName": table.name, "Key": stored(key)}} for key in keys]
        try:
            answer = self.client.transact_get_items(TransactItems=gets)  # type: ignore[arg-type]
        except ClientError as error:
            if code(error) == "TransactionCanceledException" or is_for_now(error):
                return None
            raise _translated(error, f"reading {table.name}") from error
        except NO_ANSWER as error:
            raise UnavailableError(f"reading {table.name}: {error}") from error
        return [loaded(response["Item"]) if response.get("Item") else None for response in answer["Responses"]]

    def query(
        self, table: Table, condition: str, values: Item, *, limit: int, after: Item | None = None
    ) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
        """A page of items in the order of their sort key, as of now, and where the next page begins."""
        more: dict[str, Any] = {"ExclusiveStartKey": stored(after)} if after else {}
        answer = self._read(
            "query",
            TableName=table.name,
            KeyConditionExpression=condition,
            ExpressionAttributeValues=stored(values),
            ConsistentRead=True,
            Limit=limit,
            **more,
        )
        last = answer.get("LastEvaluatedKey")
        return [loaded(item) for item in answer["Items"]], loaded(last) if last else None

    def query_all(self, table: Table, condition: str, values: Item) -> Iterator[dict[str, Any]]:
        """Every item, page by page."""
        after = None
        while True:
            items, after = self.query(table, condition, values, limit=100, after=after)
            yield from items
            if after is None:
                return

    def count(self, table: Table, condition: str, values: Item) -> int:
        """How many items there are."""
        total = 0
        more: dict[str, Any] = {}
        while True:
            answer = self._read(
                "query",
                TableName=table.name,
                KeyConditionExpression=condition,
                ExpressionAttributeValues=stored(values),
                Select="COUNT",
                **more,
            )
            total += int(answer["Count"])
            if "LastEvaluatedKey" not in answer:
                return total
            more = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def _read(self, call: str, **request: Any) -> Any:
        try:
            return getattr(self.client, call)(**request)
        except ClientError as error:
            raise _translated(error, f"reading {request['TableName']}") from error
        except NO_ANSWER as error:
            raise UnavailableError(f"reading {request['TableName']}: {error}") from error


def _reasons(error: ClientError) -> list[Reason]:
    listed: Any = error.response.get("CancellationReasons", [])
    return [Reason(reason.get("Code", "None"), reason.get("Message", "")) for reason in listed]


def _translated(error: ClientError, what: str) -> Exception:
    """A refusal of the content stays what it is; everything else is the infrastructure's."""
    if code(error) in ("ValidationException", "IdempotentParameterMismatchException"):
        return error
    return UnavailableError(f"{what}: {error}")
