"""The maintenance lock: one node at a time may leave the cluster on purpose.

The item `lock/maintenance` names a node. It stays with that node, from the departure of the old instance until its
successor is ready.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from node.clock import Clock, parse_stamp
from node.ownership import Record
from node.table import ConditionFailed, Table

LOCK = "lock/maintenance"

SUCCESSOR_GRACE = timedelta(minutes=15)
"""How long a holder whose instance is gone may be without a living successor before the lock is taken from it."""


@dataclass(frozen=True)
class Holder:
    """Who holds the lock."""

    node: str
    instance_id: str
    reason: str
    acquired_at: str


class MaintenanceLock:
    """The lock, seen by one instance of one node."""

    def __init__(self, table: Table, node: str, instance_id: str, clock: Clock) -> None:
        self._table, self._node, self._instance_id, self._clock = table, node, instance_id, clock

    def holder(self) -> Holder | None:
        """Who holds it now."""
        item = self._table.get(LOCK)
        if not item or "holder_node" not in item:
            return None
        return Holder(item["holder_node"], item["holder_instance"], item.get("reason", ""), item["acquired_at"])

    def acquire(self, reason: str) -> bool:
        """Take it if it is free or this node's already."""
        return self._take(reason, "attribute_not_exists(#holder_node) OR #holder_node = :node", {"node": self._node})

    def take_from(self, previous: Holder, reason: str) -> bool:
        """Take it from a holder that the caller knows to be dead."""
        condition = "#holder_node = :previous_node AND #holder_instance = :previous_instance"
        return self._take(
            reason, condition, {"previous_node": previous.node, "previous_instance": previous.instance_id}
        )

    def release(self) -> bool:
        """Give it back if it is this node's, whichever instance took it."""
        try:
            self._table.delete(LOCK, attribute="holder_node", value=self._node)
        except ConditionFailed:
            return False
        return True

    def _take(self, reason: str, condition: str, values: dict[str, str]) -> bool:
        put = {
            "holder_node": self._node,
            "holder_instance": self._instance_id,
            "reason": reason,
            "acquired_at": self._clock.stamp(),
        }
        try:
            self._table.update(LOCK, put=put, condition=condition, values=values)
        except ConditionFailed:
            return False
        return True


def is_dead(holder: Holder, record: Record, *, instance_gone: bool, successor_lives: bool, now: datetime) -> bool:
    """Whether a holder will never come back to release its lock.

    `record` is the ownership record of the holder's node. In a planned change the old instance ends long before its
    successor is ready, so a gone instance alone proves nothing: there must be no living successor, and none lately.
    """
    if not instance_gone or successor_lives:
        return False
    since = max(filter(None, (holder.acquired_at, record.released_at)))
    return now - parse_stamp(since) > SUCCESSOR_GRACE
