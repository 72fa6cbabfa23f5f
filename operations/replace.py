"""Taking nodes away on purpose: what must hold before, and a roll through all three."""

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TypeVar

from botocore.exceptions import ClientError

from operations.deployment import Deployment
from operations.errors import ExitCode, OperationError
from operations.nodes import Node, read_nodes
from operations.survey import Survey, survey

REPLACED_LIMIT_SECONDS = 3600.0
"""What a rolling update gives one node, too."""

POLL_SECONDS = 2.0

Say = Callable[[str], None]
Found = TypeVar("Found")


def objections(seen: Survey) -> list[str]:
    """What speaks against taking a node away now; empty if nothing does."""
    found = [f"{node.name}: {node.progress}" for node in seen.nodes if not node.is_ready]
    if seen.broker is None:
        found.append("RabbitMQ cannot be asked")
    else:
        found += seen.broker_objections()
    if seen.lock:
        found.append(f"{seen.lock.node} holds the maintenance lock ({seen.lock.reason})")
    if seen.alarms is None:
        found.append("the alarms cannot be read")
    return found + [f"alarm {name}" for name in seen.alarms or ()]


def find(nodes: Sequence[Node], name: str) -> Node:
    """The node that is meant, by its name or its zone. Raises OperationError with the names there are."""
    found = [node for node in nodes if name in (node.name, node.availability_zone)]
    if not found:
        names = ", ".join(node.name for node in nodes)
        raise OperationError(f"there is no node {name}", f"The nodes are {names}.", ExitCode.BAD_INPUT)
    return found[0]


def end(deployment: Deployment, node: Node) -> str:
    """Have Auto Scaling replace the node's instance, hooks first; returns the instance's id."""
    if node.instance_id is None:
        raise OperationError(f"{node.name} has no instance", "Wait until its Auto Scaling group has launched one.")
    try:
        deployment.aws.autoscaling.terminate_instance_in_auto_scaling_group(
            InstanceId=node.instance_id, ShouldDecrementDesiredCapacity=False
        )
    except ClientError as error:
        raise OperationError(
            f"{node.name}: {node.instance_id} cannot be ended: {error}",
            "Use credentials that may call autoscaling:TerminateInstanceInAutoScalingGroup on the node's group.",
        ) from error
    return node.instance_id


def wait_until_replaced(
    deployment: Deployment, name: str, gone: str, say: Say, limit: float = REPLACED_LIMIT_SECONDS
) -> Node:
    """Wait until another instance than `gone` is the node and is ready. Raises OperationError if it refuses to be."""

    def look() -> Node | str:
        node = find(read_nodes(deployment), name)
        if node.instance_id == gone:
            return f"{gone} leaves"
        if node.has_failed and node.boot:
            raise OperationError(
                f"{name}: {node.instance_id} stopped at {node.progress}", node.boot.remedy, ExitCode.FAILED
            )
        return node if node.is_ready else node.progress

    return _wait(f"{name} to be replaced", look, say, limit)


def wait_until_ready_again(deployment: Deployment, name: str, say: Say, limit: float = REPLACED_LIMIT_SECONDS) -> Node:
    """Wait until the node is ready, whatever its last boot said."""

    def look() -> Node | str:
        node = find(read_nodes(deployment), name)
        return node if node.is_ready else node.progress

    return _wait(f"{name} to be ready", look, say, limit)


def wait_until_safe(deployment: Deployment, say: Say, limit: float = REPLACED_LIMIT_SECONDS) -> Survey:
    """Wait until nothing speaks against taking a node away."""

    def look() -> Survey | str:
        seen = survey(deployment)
        return "; ".join(objections(seen)) or seen

    return _wait("the cluster to be whole", look, say, limit)


def to_replace(nodes: Sequence[Node], *, since: datetime, only_outdated: bool) -> list[Node]:
    """The nodes that a roll has still to replace: those launched before `since`, or from another template."""
    return [
        node
        for node in nodes
        if (node.is_outdated if only_outdated else node.launched_at is None or node.launched_at < since)
    ]


def roll(deployment: Deployment, *, since: datetime, only_outdated: bool, say: Say) -> Iterator[Node]:
    """Replace nodes one at a time, each after the cluster is whole; yields each once it is replaced.

    Can be stopped anywhere and run again with the same `since`: what was replaced is younger. Raises OperationError at
    the first node that does not come back; the others are left alone.
    """
    while True:
        seen = wait_until_safe(deployment, say)
        left = to_replace(seen.nodes, since=since, only_outdated=only_outdated)
        if not left:
            return
        node = left[0]
        say(f"{node.name}: ending {node.instance_id}, {len(left) - 1} to go after it")
        gone = end(deployment, node)
        yield wait_until_replaced(deployment, node.name, gone, say)


def _wait(what: str, look: Callable[[], Found | str], say: Say, limit: float) -> Found:
    started, said = time.monotonic(), ""
    while True:
        found = look()
        if not isinstance(found, str):
            return found
        waited = time.monotonic() - started
        if waited > limit:
            raise OperationError(
                f"gave up waiting for {what} after {waited:.0f} s: {found}",
                "See `status`; run the same command again to go on.",
                ExitCode.NOT_READY,
            )
        if found != said:
            say(f"{waited:5.0f} s  {found}")
            said = found
        time.sleep(POLL_SECONDS)
