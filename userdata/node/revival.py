"""Puts right what systemd leaves as it is.

systemd starts a service again however often it ends by itself, but not one that was stopped, or that could not start
because the node's directory was not mounted just then. And it does not start a boot again that refused.
"""

from __future__ import annotations

from node import rabbitmq
from node.clock import Clock
from node.journal import log
from node.ownership import Ownership
from node.services import BOOT, CONSUL, Services

DOWN_SECONDS = 20.0
"""So long a service may be down, as it is when a human restarts it. Who needs more time stops the agent first."""

DOWN = ("inactive", "failed")


class Revival:
    """Called every few seconds."""

    def __init__(self, services: Services, ownership: Ownership, clock: Clock) -> None:
        self._services, self._ownership, self._clock = services, ownership, clock
        self._down_since: float | None = None
        self._order: str | None = None

    def check(self) -> None:
        """Start what is down. A boot that goes on, or refused, has the last word on its services."""
        boot, *states = self._services.states(BOOT, CONSUL, rabbitmq.UNIT)
        if boot == "failed":
            self._boot_again_if_ordered()
        if boot != "active" or not any(state in DOWN for state in states):
            self._down_since = None
            return
        if self._down_since is None:
            self._down_since = self._clock.monotonic()
        if self._clock.monotonic() - self._down_since < DOWN_SECONDS:
            return
        log.warning("Consul is %s, RabbitMQ %s: starting them through the boot", *states)
        self._services.restart(BOOT)
        self._down_since = None

    def _boot_again_if_ordered(self) -> None:
        """The order to rebuild the node, which a boot that refused a lost directory waits for."""
        order = self._ownership.read().rebuild
        if order and order != self._order:
            log.info("rebuild ordered at %s: booting again", order)
            self._services.restart(BOOT)
            self._order = order
