"""Gives up this instance when its EFS is dead and the rest of the cluster is well.

The group's health type is EC2: a node that waits for its peers must not be ended for it. A mount that hangs for good
is another matter, because nothing on the instance repairs it and a new instance does. So the node says it itself, and
only while the cluster can spare it: a file system that fails everybody is no reason to end anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from node.clock import Clock, parse_stamp
from node.health import REPORT_EVERY_SECONDS, Health
from node.journal import log
from node.lock import MaintenanceLock
from node.table import Table

if TYPE_CHECKING:
    from mypy_boto3_autoscaling.client import AutoScalingClient

PATIENCE_SECONDS = 300.0
"""Above any stall that ends by itself: the mount helper starts a dead TLS tunnel again within seconds."""

RECENT = timedelta(seconds=3 * REPORT_EVERY_SECONDS)
"""A peer's last report is taken for its state until then."""


class Unfit:
    """Called every few seconds."""

    def __init__(
        self,
        instance_id: str,
        peers: Sequence[str],
        health: Health,
        table: Table,
        lock: MaintenanceLock,
        autoscaling: Callable[[], AutoScalingClient],
        clock: Clock,
    ) -> None:
        self._instance_id, self._peers, self._health = instance_id, peers, health
        self._table, self._lock, self._autoscaling, self._clock = table, lock, autoscaling, clock
        self._said = ""

    def check(self) -> bool:
        """Returns whether it told Auto Scaling to replace this instance. Errors of AWS are raised."""
        failing = self._health.failing_for()
        if failing < PATIENCE_SECONDS:
            self._said = ""
            return False
        if reason := self._needed():
            self._say(failing, f"this instance stays, because {reason}")
            return False
        self._say(failing, "the others are well: asking for another instance")
        self._autoscaling().set_instance_health(
            InstanceId=self._instance_id, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False
        )
        return True

    def _needed(self) -> str:
        """Why the cluster cannot spare this node, or nothing."""
        holder = self._lock.holder()
        if holder is not None:
            return f"{holder.node} holds the maintenance lock"
        for peer in self._peers:
            told = self._table.get(f"health/{peer}") or {}
            if not told or self._clock.now() - parse_stamp(told["updated_at"]) > RECENT:
                return f"{peer} has not been heard of lately"
            if "write_ms" not in told:
                return f"{peer} cannot write to EFS either"
            if "rabbitmq" not in told.get("versions", {}):
                return f"{peer} does not run RabbitMQ"
        return ""

    def _say(self, failing: float, what: str) -> None:
        """Once, until something else is to be said."""
        if what != self._said:
            self._said = what
            log.warning("EFS has failed for %.0f s: %s", failing, what)
