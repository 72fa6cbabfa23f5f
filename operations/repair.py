"""What a person decides: to rebuild a node, to declare an instance dead, to break the maintenance lock."""

from dataclasses import dataclass
from datetime import UTC, datetime

from operations.deployment import Deployment
from operations.errors import ExitCode, OperationError
from operations.nodes import Node, read_nodes
from operations.replace import find
from operations.survey import instance_lives, survey
from operations.table import ChangedError, Lock, NodeTable

CHANGED_REMEDY = "Somebody, or the node itself, was faster. Look at `status` and decide again."


def rebuild_objections(deployment: Deployment, node: Node) -> list[str]:
    """What speaks against starting the node again on an empty directory; empty if nothing does."""
    seen = survey(deployment)
    found = []
    if seen.broker is None:
        return [*seen.missing, "without the others the node would have nobody to join"]
    if seen.broker.running.get(f"rabbit@{node.name}"):
        found.append(f"{node.name} runs: there is nothing to rebuild")
    others = [f"rabbit@{other.name}" for other in seen.nodes if other.name != node.name]
    found += [f"{name} does not run" for name in others if not seen.broker.running.get(name)]
    found += [
        f"queue {queue.name} has no other member online: what it holds would be lost"
        for queue in seen.broker.queues
        if len(set(queue.online) & set(others)) < len(others)
    ]
    if seen.ownership[node.name].owner != node.instance_id:
        found.append(f"{node.instance_id} does not own the node yet")
    return found


def order_rebuild(deployment: Deployment, node: Node) -> str:
    """Let the node start again, empty; its old data is set aside. Returns the order's time."""
    if node.instance_id is None:
        raise OperationError(f"{node.name} has no instance", "Wait until its Auto Scaling group has launched one.")
    try:
        return NodeTable(deployment).order_rebuild(node.name, node.instance_id)
    except ChangedError as error:
        raise OperationError(f"{node.name} has another owner now", CHANGED_REMEDY) from error


def release(deployment: Deployment, name: str, dead: str) -> None:
    """Take the node from the instance `dead`. Raises OperationError if it does not own the node."""
    node = find(read_nodes(deployment), name)
    owner = NodeTable(deployment).ownership(node.name).owner
    if owner != dead:
        raise OperationError(
            f"{node.name} is owned by {owner or 'nobody'}, not by {dead}",
            "Nothing was changed. Name the instance that owns it, once you know that it is dead.",
            ExitCode.REFUSED,
        )
    try:
        NodeTable(deployment).release(node.name, dead)
    except ChangedError as error:
        raise OperationError(f"{node.name} has another owner now", CHANGED_REMEDY) from error


@dataclass(frozen=True)
class HeldLock:
    """The maintenance lock, and whether whoever holds it can still give it back."""

    lock: Lock
    age_seconds: float
    reason_to_keep: str
    """Empty if nobody is left to give it back."""


def look_at_lock(deployment: Deployment) -> HeldLock | None:
    """The lock as it is now; None if it is free."""
    table = NodeTable(deployment)
    held = table.lock()
    if held is None:
        return None
    node = find(read_nodes(deployment), held.node)
    keep = ""
    if instance_lives(deployment, held.instance_id):
        keep = f"{held.instance_id} still exists"
    elif node.instance_id and node.instance_id != held.instance_id and not node.has_failed:
        keep = f"its successor {node.instance_id} gives it back once it is ready ({node.progress})"
    return HeldLock(held, held.age_seconds(datetime.now(UTC)), keep)


def break_lock(deployment: Deployment, held: HeldLock) -> None:
    """Free the lock if the same holder still has it."""
    try:
        NodeTable(deployment).break_lock(held.lock)
    except ChangedError as error:
        raise OperationError("the lock has another holder now, or none", CHANGED_REMEDY) from error
