"""The fence: which instance may write a node's directory.

The item `node/<node>` names the owner. It changes hands by conditional writes only: when nobody owns it, or when the
owner is an instance that EC2 says has ended. A human can force it by removing `owner` (`operations` has a command).
The record is not in Consul, which may have no quorum just when a node is replaced.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable

from node.aws import GONE, AwsError, instance_state
from node.clock import Clock
from node.journal import log
from node.table import ConditionFailed, Table

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client

STATE_EVERY_SECONDS = 5.0
"""EC2 is asked about another owner this often; the table, whose release ends the usual wait, at every round."""


@dataclass(frozen=True)
class Record:
    """What the table says about a node."""

    owner: str | None = None
    address: str | None = None
    member_since: str | None = None
    owned_since: str | None = None
    released_at: str | None = None


class Ownership:
    """The record of one node, seen by one instance."""

    def __init__(self, table: Table, node: str, instance_id: str, clock: Clock) -> None:
        self._table, self._node, self._instance_id, self._clock = table, node, instance_id, clock
        self._id = f"node/{node}"

    def read(self) -> Record:
        """The record as it is now."""
        return read_record(self._table, self._node)

    def claim(self, address: str) -> bool:
        """Become the owner if nobody is, or stay it. Returns whether this instance is the owner now."""
        return self._own(address, "attribute_not_exists(#owner) OR #owner = :me", {"me": self._instance_id})

    def take_over(self, previous: str, address: str) -> bool:
        """Become the owner in place of `previous`, which the caller knows to have ended."""
        return self._own(address, "#owner = :previous", {"previous": previous})

    def release(self) -> bool:
        """Own the node no longer. Returns False if this instance was not the owner."""
        try:
            self._table.update(
                self._id,
                put={"released_at": self._clock.stamp()},
                remove=["owner"],
                condition="#owner = :me",
                values={"me": self._instance_id},
            )
        except ConditionFailed:
            return False
        return True

    def record_member(self) -> None:
        """Record, once, that the node has been a member. Raises ConditionFailed if it is not ours any more."""
        since = self.read().member_since or self._clock.stamp()
        self._table.update(
            self._id, put={"member_since": since}, condition="#owner = :me", values={"me": self._instance_id}
        )

    def _own(self, address: str, condition: str, values: dict[str, str]) -> bool:
        put = {"owner": self._instance_id, "address": address, "owned_since": self._clock.stamp()}
        with contextlib.suppress(ConditionFailed):
            self._table.update(self._id, put=put, remove=["released_at"], condition=condition, values=values)
            return True
        return False


def read_record(table: Table, node: str) -> Record:
    """The record of any node."""
    item = table.get(f"node/{node}") or {}
    return Record(**{name: item.get(name) for name in Record.__dataclass_fields__})


class Fence:
    """One attempt after the other to own a node; made for `wait_for`."""

    def __init__(self, ownership: Ownership, ec2: Callable[[], EC2Client], address: str, clock: Clock) -> None:
        self._ownership, self._ec2, self._address, self._clock = ownership, ec2, address, clock
        self._asked_at = float("-inf")
        self._state = "in a state not known yet"

    def attempt(self) -> str | None:
        """None once this instance owns the node, else what stands in the way."""
        try:
            if self._ownership.claim(self._address):
                return None
            owner = self._ownership.read().owner
            if owner is None:
                return "the record was released just now"
            if self._clock.monotonic() - self._asked_at >= STATE_EVERY_SECONDS:
                self._asked_at = self._clock.monotonic()
                self._state = instance_state(self._ec2(), owner)
            if self._state in GONE and self._ownership.take_over(owner, self._address):
                log.info("took over from %s, which EC2 reports as %s", owner, self._state)
                return None
        except AwsError as error:
            return f"AWS does not answer: {error}"
        return f"instance {owner} owns the node and is {self._state}"
