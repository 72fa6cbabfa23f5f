"""The node table: who owns a node, who holds the maintenance lock, what a node last said of itself."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.types import TypeDeserializer
from botocore.exceptions import ClientError

from operations.deployment import Deployment

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

LOCK = "lock/maintenance"


class ChangedError(Exception):
    """The item is not any more what the caller saw."""


@dataclass(frozen=True)
class Ownership:
    """The fence's record of one node."""

    owner: str | None = None
    address: str | None = None
    member_since: str | None = None
    owned_since: str | None = None
    rebuild: str | None = None


@dataclass(frozen=True)
class Lock:
    """The maintenance lock and who holds it."""

    node: str
    instance_id: str
    reason: str
    acquired_at: str

    def age_seconds(self, now: datetime) -> float:
        """For how long it has been held."""
        return (now - datetime.fromisoformat(self.acquired_at)).total_seconds()


@dataclass(frozen=True)
class Health:
    """What a node's agent last said of its host. Missing facts are None or empty."""

    instance_id: str
    updated_at: str
    mounted: bool = False
    write_ms: float | None = None
    write_error: str = ""
    consul_leader: str = ""
    consul_peers: Sequence[str] = ()
    consul_error: str = ""
    versions: dict[str, str] = field(default_factory=dict)

    def age_seconds(self, now: datetime) -> float:
        """How old it is."""
        return (now - datetime.fromisoformat(self.updated_at)).total_seconds()


class NodeTable:
    """The table of one deployment. Reads are consistent; changes are conditional and raise ChangedError."""

    def __init__(self, deployment: Deployment) -> None:
        self._name = deployment.parameter("node-table")
        self._client: DynamoDBClient = deployment.aws.dynamodb

    def items(self, identifiers: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The items that exist, by id; one call for all."""
        keys: list[Any] = [{"id": {"S": identifier}} for identifier in identifiers]
        answer = self._client.batch_get_item(RequestItems={self._name: {"Keys": keys, "ConsistentRead": True}})
        reader = TypeDeserializer()
        found = ({k: reader.deserialize(v) for k, v in raw.items()} for raw in answer["Responses"].get(self._name, []))
        return {item["id"]: item for item in found}

    def ownership(self, node: str) -> Ownership:
        """The record of one node."""
        return ownership(self.items([f"node/{node}"]).get(f"node/{node}"))

    def lock(self) -> Lock | None:
        """Who holds the maintenance lock."""
        return lock(self.items([LOCK]).get(LOCK))

    def break_lock(self, held: Lock) -> None:
        """Delete the lock if `held` still holds it."""
        self._change(
            self._client.delete_item,
            LOCK,
            "holder_instance = :instance AND acquired_at = :at",
            {":instance": held.instance_id, ":at": held.acquired_at},
        )

    def order_rebuild(self, node: str, owner: str) -> str:
        """Allow the node to start again on an empty directory, while `owner` owns it; returns the order's time."""
        order = datetime.now(UTC).isoformat(timespec="seconds")
        values = {":order": order, ":owner": owner}
        # With `#`: both words are reserved.
        self._change(
            self._client.update_item,
            f"node/{node}",
            "#owner = :owner",
            values,
            UpdateExpression="SET #rebuild = :order",
            ExpressionAttributeNames={"#owner": "owner", "#rebuild": "rebuild"},
        )
        return order

    def release(self, node: str, owner: str) -> None:
        """Take the node from `owner`, which a person knows to be dead."""
        values = {":owner": owner, ":now": datetime.now(UTC).isoformat(timespec="seconds")}
        self._change(
            self._client.update_item,
            f"node/{node}",
            "#owner = :owner",
            values,
            UpdateExpression="SET released_at = :now REMOVE #owner",
            ExpressionAttributeNames={"#owner": "owner"},
        )

    def _change(self, call: Any, identifier: str, condition: str, values: dict[str, str], **more: Any) -> None:
        try:
            call(
                TableName=self._name,
                Key={"id": {"S": identifier}},
                ConditionExpression=condition,
                ExpressionAttributeValues={name: {"S": value} for name, value in values.items()},
                **more,
            )
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                raise ChangedError(identifier) from error
            raise


def ownership(item: dict[str, Any] | None) -> Ownership:
    """The record in an item of the table."""
    return Ownership(**{name: (item or {}).get(name) for name in Ownership.__dataclass_fields__})


def lock(item: dict[str, Any] | None) -> Lock | None:
    """The lock in an item of the table."""
    if not item or "holder_node" not in item:
        return None
    return Lock(item["holder_node"], item["holder_instance"], item.get("reason", ""), item["acquired_at"])


def health(item: dict[str, Any] | None) -> Health | None:
    """The health in an item of the table."""
    if not item:
        return None
    consul, latency = item.get("consul", {}), item.get("write_ms")
    return Health(
        instance_id=item["instance_id"],
        updated_at=item["updated_at"],
        mounted=bool(item.get("mounted")),
        write_ms=None if latency is None else float(latency),
        write_error=item.get("write_error", ""),
        consul_leader=consul.get("leader", ""),
        consul_peers=tuple(consul.get("peers", ())),
        consul_error=consul.get("error", ""),
        versions=dict(item.get("versions", {})),
    )
