"""Leaders spread over the nodes again, after trouble that no boot followed.

A boot ends with a rebalance. A cut that heals, a broker that is killed or a host that was frozen do not, and one node
would lead every queue until the next boot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from node.broker import Broker, QuorumQueue
from node.catch_up import CatchUp
from node.clock import Clock
from node.journal import log
from node.loopback import Unreachable
from node.ready import incomplete_queues, missing_nodes

STEADY_SECONDS = 15.0
"""The cluster must have been whole, and its leaders uneven, for so long."""

PAUSE_SECONDS = 120.0
"""A rebalance moves a leader at a time; a cluster that does not get even is not asked again before this."""


def is_uneven(queues: Sequence[QuorumQueue], nodes: Sequence[str]) -> bool:
    """Whether a node leads more than a third of the queues (of three nodes), and one."""
    led = Counter(queue.leader for queue in queues)
    return bool(led) and max(led.values()) > len(queues) // len(nodes) + 1


class LeaderBalance:
    """Called every few seconds on every node; the first of the cluster's nodes by name acts.

    `broker` is an administrator's; `in_maintenance` tells whether a node is being replaced, which ends with a
    rebalance of its own.
    """

    def __init__(
        self,
        node: str,
        nodes: Sequence[str],
        broker: Callable[[], Broker],
        in_maintenance: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._acts, self._nodes = node == min(nodes), nodes
        self._broker, self._in_maintenance, self._clock = broker, in_maintenance, clock
        self._catch_up = CatchUp()
        self._since: float | None = None
        self._asked_at = float("-inf")

    def check(self) -> bool:
        """Returns whether it had the leaders spread."""
        now = self._clock.monotonic()
        if not self._acts or now - self._asked_at < PAUSE_SECONDS:
            return False
        try:
            broker = self._broker()
            queues = broker.quorum_queues()
            whole = not (
                missing_nodes(self._nodes, broker.running_nodes()) or incomplete_queues(queues, len(self._nodes))
            )
            if not (whole and is_uneven(queues, self._nodes)):
                self._since = None
                return False
            self._since = now if self._since is None else self._since
            if now - self._since < STEADY_SECONDS or self._in_maintenance():
                return False
            if self._catch_up.behind(broker, queues):
                return False
            self._since, self._asked_at = None, now
            log.info("one node leads more than its share of the queues: rebalancing")
            broker.rebalance()
            return True
        except Unreachable:
            self._since = None
            return False
