"""Brings a broker back that stands alone beside a running cluster.

On Mnesia (4.0, 4.1) a node that was frozen for a while, or whose network failed in an unlucky moment, can come back
into a partition that has healed before anybody noticed it: pause_minority acts on nodes that go down, and none does.
Both sides then go on, each for itself and for ever, behind the same load balancer. Seen after a minute's freeze. On
Khepri no partition is ever reported, and this does nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from node import rabbitmq
from node.broker import Broker
from node.clock import Clock
from node.journal import log
from node.loopback import Unreachable
from node.services import Services

STEADY_SECONDS = 15.0
"""RabbitMQ gets so long to join again by itself."""

PAUSE_SECONDS = 180.0
"""A restart that did not help is not repeated before this: the broker has to have time to start."""


class Split:
    """Called every few seconds. A node on the majority's side does nothing: the other side comes to it."""

    def __init__(self, node: str, size: int, broker: Callable[[], Broker], services: Services, clock: Clock) -> None:
        self._name, self._size = f"rabbit@{node}", size
        self._broker, self._services, self._clock = broker, services, clock
        self._since: float | None = None
        self._restarted_at = float("-inf")

    def check(self) -> bool:
        """Returns whether it had the broker restarted."""
        now = self._clock.monotonic()
        try:
            broker = self._broker()
            running, partitioned = broker.running_nodes(), broker.partitions(self._name)
        except Unreachable:  # starting, or paused: that ends by itself
            self._since = None
            return False
        if not partitioned or 2 * sum(running.values()) > self._size:
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        if now - self._since < STEADY_SECONDS or now - self._restarted_at < PAUSE_SECONDS:
            return False
        log.warning("the broker is split from %s and without a majority: restarting it", ", ".join(partitioned))
        self._services.restart(rabbitmq.UNIT)
        self._since, self._restarted_at = None, now
        return True
