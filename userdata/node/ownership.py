"""The fence: which instance may write a node's directory.

The item `node/<node>` names the owner. It changes hands by conditional writes only: when nobody owns it, or when the
owner is an instance that EC2 says has ended. A human can force it by removing `owner` (`operations` has a command).
The record is not in Consul, which may have no quorum just when a node is replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Callable

from node.aws import UNKNOWN, AwsError, instance_state
from node.clock import Clock, parse_stamp
from node.journal import log
from node.table import ConditionFailed, Table

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client

STATE_EVERY_SECONDS = 5.0
"""EC2 is asked about another owner this often; the table, whose release ends the usual wait, at every round."""

FORGOTTEN_AFTER = timedelta(minutes=30)
"""EC2 forgets an instance about an hour after its end. If it does not know one that became the owner a short while ago,
EC2's answer is late, and the instance alive."""


@dataclass(frozen=True)
class Record:
    """What the table says about a node."""

    owner: str | None = None
    address: str | None = None
    member_since: str | None = None
    owned_since: str | None = None
    released_at: str | None = None
    rebuild: str | None = None
    """When an operator ordered that the node starts again on an empty directory, forgotten by the others."""


class Ownership:
    """The record of one node, seen by one instance."""

    def __init__(self, table: Table, node: str, instance_id: str, clock: Clock) -> None:
        self._table, self._node, self._instance_id, self._clock = table, node, instance_id, clock
        self._id = f"node/{node}"

    def read(self) -> Record:
        """The record as it is now."""
        return read_record(self._table, self._node)

    def claim(self, address: str) -> bool:
        """Become the owner if nobody is. Returns whether this instance is the owner now."""
        return self._own(address, "attribute_not_exists(#owner)", {})

    def keep(self, address: str) -> bool:
        """Stay the owner, as after a restart of the host. Returns False if this instance is not the owner."""
        return self._change({"address": address}, "#owner = :me", {"me": self._instance_id})

    def take_over(self, previous: str, address: str) -> bool:
        """Become the owner in place of `previous`, which the caller knows to have ended."""
        return self._own(address, "#owner = :previous", {"previous": previous})

    def release(self) -> bool:
        """Own the node no longer. Returns False if this instance was not the owner."""
        put = {"released_at": self._clock.stamp()}
        return self._change(put, "#owner = :me", {"me": self._instance_id}, remove=["owner"])

    def record_member(self) -> bool:
        """Record, once, that the node has been a member. Returns False if it is not ours any more."""
        since = self.read().member_since or self._clock.stamp()
        return self._change({"member_since": since}, "#owner = :me", {"me": self._instance_id})

    def record_rebuilt(self, rebuild: str) -> bool:
        """That order is carried out. Returns False if the record does not hold it, or is not ours, any more."""
        values = {"me": self._instance_id, "rebuild": rebuild}
        condition = "#owner = :me AND #rebuild = :rebuild"
        return self._change({"rebuilt_at": self._clock.stamp()}, condition, values, remove=["rebuild"])

    def _own(self, address: str, condition: str, values: dict[str, str]) -> bool:
        put = {"owner": self._instance_id, "address": address, "owned_since": self._clock.stamp()}
        return self._change(put, condition, values, remove=["released_at"])

    def _change(self, put: dict[str, str], condition: str, values: dict[str, str], remove: Sequence[str] = ()) -> bool:
        try:
            self._table.update(self._id, put=put, remove=remove, condition=condition, values=values)
        except ConditionFailed:
            return False
        return True


def read_record(table: Table, node: str) -> Record:
    """The record of any node."""
    item = table.get(f"node/{node}") or {}
    return Record(**{name: item.get(name) for name in Record.__dataclass_fields__})


class Fence:
    """One attempt after the other to own a node; made for `wait_for`."""

    def __init__(
        self, ownership: Ownership, ec2: Callable[[], EC2Client], instance_id: str, address: str, clock: Clock
    ) -> None:
        self._ownership, self._ec2, self._clock = ownership, ec2, clock
        self._instance_id, self._address = instance_id, address
        self._asked_about, self._asked_at, self._state = "", 0.0, ""

    def attempt(self) -> str | None:
        """None once this instance owns the node, else what stands in the way."""
        try:
            record = self._ownership.read()
            if record.owner is None:
                return None if self._ownership.claim(self._address) else "another instance was faster"
            if record.owner == self._instance_id:
                return None if self._ownership.keep(self._address) else "the record has just changed"
            state = self._state_of(record.owner)
            if not has_ended(state, record, self._clock):
                return f"instance {record.owner} owns the node and is {state}"
            if not self._ownership.take_over(record.owner, self._address):
                return "another instance was faster"
        except AwsError as error:
            return f"AWS does not answer: {error}"
        log.info("took over from %s, which EC2 reports as %s", record.owner, state)
        return None

    def _state_of(self, owner: str) -> str:
        """What EC2 says of this owner. An answer about another one must never count."""
        if owner != self._asked_about or self._clock.monotonic() - self._asked_at >= STATE_EVERY_SECONDS:
            self._state = instance_state(self._ec2(), owner)
            self._asked_about, self._asked_at = owner, self._clock.monotonic()
        return self._state


def has_ended(state: str, record: Record, clock: Clock) -> bool:
    """Whether the record's owner will never write again. One that only shuts down still may."""
    if state != UNKNOWN:
        return state == "terminated"
    return record.owned_since is None or clock.now() - parse_stamp(record.owned_since) >= FORGOTTEN_AFTER
