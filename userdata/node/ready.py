"""When a node counts as ready: it serves, the cluster is complete, every quorum queue has all members online, and
they hold the whole log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from node.broker import Broker, QuorumQueue
from node.catch_up import CatchUp
from node.clock import Clock
from node.consul import Consul
from node.journal import log
from node.loopback import Unreachable, listens

NAMED_QUEUES = 5
"""So many queues are named in a message; the others are counted."""

GROW_EVERY_SECONDS = 30.0

DISTRIBUTION_PORT = 25672


def missing_nodes(expected: Sequence[str], running: Mapping[str, bool]) -> str | None:
    """What is missing for a complete cluster, or None. Nodes that do not belong here count as incomplete, too."""
    wanted = {f"rabbit@{node}" for node in expected}
    missing = sorted(node for node in wanted if not running.get(node))
    strangers = sorted(set(running) - wanted)
    if missing:
        return f"{len(wanted) - len(missing)} of {len(wanted)} nodes run, missing: {', '.join(missing)}"
    if strangers:
        return f"the cluster has nodes that do not belong to it: {', '.join(strangers)}"
    return None


def incomplete_queues(queues: Sequence[QuorumQueue], size: int) -> str | None:
    """Which quorum queues have fewer than `size` online members, or None."""
    online = [(queue.name, len(set(queue.online))) for queue in queues]
    short = [f"{name} ({count} of {size})" for name, count in sorted(online) if count < size]
    if not short:
        return None
    more = f" and {len(short) - NAMED_QUEUES} more" if len(short) > NAMED_QUEUES else ""
    return f"quorum queues without {size} online members: {', '.join(short[:NAMED_QUEUES])}{more}"


def no_member_to_join(peers: Sequence[str], consul: Consul) -> str | None:
    """None if discovery is going to find another member, else what it lacks."""
    try:
        found = {node: address for node, address in consul.passing("rabbitmq").items() if node in peers}
    except Unreachable as error:
        return str(error)
    if any(listens(DISTRIBUTION_PORT, address) for address in found.values()):
        return None
    if found:
        return f"Consul knows {', '.join(sorted(found))}, but port {DISTRIBUTION_PORT} cannot be reached there"
    return f"Consul knows of no RabbitMQ on {' or '.join(sorted(peers))}"


class Readiness:
    """Asked again and again by `wait_for`: None once the node is ready, else what is missing."""

    def __init__(self, broker: Broker, nodes: Sequence[str], health_path: str, clock: Clock) -> None:
        self._broker, self._nodes, self._health_path, self._clock = broker, nodes, health_path, clock
        self._grown_at = float("-inf")
        self._catch_up = CatchUp()

    def serving(self) -> str | None:
        """Whether the broker on this host serves clients."""
        return None if self._broker.serves(self._health_path) else "the broker does not serve yet"

    def complete(self) -> str | None:
        """Whether all nodes are members and run."""
        try:
            return missing_nodes(self._nodes, self._broker.running_nodes())
        except Unreachable as error:
            return str(error)

    def queues(self) -> str | None:
        """Whether all quorum queues are whole, each member with the whole log. Gives queues that lack a member theirs
        on the way.
        """
        try:
            queues = self._broker.quorum_queues()
            self._grow(queues)
            return (
                self.complete()
                or incomplete_queues(queues, len(self._nodes))
                or self._catch_up.behind(self._broker, queues)
            )
        except Unreachable as error:
            return str(error)

    def _grow(self, queues: Sequence[QuorumQueue]) -> None:
        if self._clock.monotonic() - self._grown_at < GROW_EVERY_SECONDS:
            return
        lacking = {
            node
            for node in (f"rabbit@{name}" for name in self._nodes)
            if any(queue.members and node not in queue.members for queue in queues)
        }
        if lacking:
            self._grown_at = self._clock.monotonic()
        for node in sorted(lacking):
            log.info("giving every quorum queue a member on %s", node)
            self._broker.grow(node)
