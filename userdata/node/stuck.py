"""Restarts a broker whose process lives and whose application does not.

A write that fails (the file system is full, or read-only for a while) ends RabbitMQ inside its Erlang machine. systemd
sees a running process, the management port still answers, and nothing starts the broker again when the file system is
well.
"""

from __future__ import annotations

from collections.abc import Callable

from node import rabbitmq
from node.broker import Broker
from node.clock import Clock
from node.consul import Consul
from node.journal import log
from node.loopback import Unreachable
from node.services import Services

STEADY_SECONDS = 60.0
"""Above what a broker needs to notice a dead peer (net_ticktime, 15 s), for whose answer its API waits until then."""

PAUSE_SECONDS = 180.0
"""A restart that did not help is not repeated before this: the broker has to have time to start."""


class Stuck:
    """Called every few seconds."""

    def __init__(
        self, node: str, broker: Callable[[], Broker], consul: Consul, services: Services, clock: Clock
    ) -> None:
        self._node, self._broker, self._consul = node, broker, consul
        self._services, self._clock = services, clock
        self._since: float | None = None
        self._restarted_at = float("-inf")

    def check(self) -> bool:
        """Returns whether it had the broker restarted."""
        now = self._clock.monotonic()
        if self._runs() or self._services.state(rabbitmq.UNIT) != "active" or not self._sees_a_peer():
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        if now - self._since < STEADY_SECONDS or now - self._restarted_at < PAUSE_SECONDS:
            return False
        log.warning("the broker's process runs and RabbitMQ in it does not: restarting it")
        self._services.restart(rabbitmq.UNIT)
        self._since, self._restarted_at = None, now
        return True

    def _runs(self) -> bool:
        try:
            return self._broker().running_nodes().get(f"rabbit@{self._node}", False)
        except Unreachable:
            return False

    def _sees_a_peer(self) -> bool:
        """A broker that pauses in a minority has stopped, too. It is alone, and goes on by itself."""
        try:
            return any(member.alive and member.name != self._node for member in self._consul.members())
        except Unreachable:
            return False
