"""Whether every quorum queue's members hold the log that their leader holds.

A member that came back counts as online while it still fetches what it missed. A leader moved to it in this state is no
leader: the queue stands still until the others have elected one. And a node must not leave while a peer's members are
not worth a vote.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from node.broker import Broker, QuorumQueue

Key = tuple[str, str]


class CatchUp:
    """Asked again and again: None once all members have caught up, else which have not.

    Logs grow while they are compared. So a leader's index when its queue is first seen is the mark that each member
    has to pass; a queue that has passed is not asked about again, until all have and the next round begins.
    `without`: a RabbitMQ node whose members do not matter, because it is about to leave.
    """

    def __init__(self, without: str = "") -> None:
        self._without = without
        self._marks: dict[Key, int] = {}
        self._passed: set[Key] = set()

    def behind(self, broker: Broker, queues: Sequence[QuorumQueue]) -> str | None:
        """Raises Unreachable when the broker does not answer. One request for each queue, up to the first behind."""
        for queue in queues:
            key = (queue.vhost, queue.name)
            if key not in self._passed:
                if reason := self._reason(key, broker.quorum_status(*key)):
                    return reason
                self._passed.add(key)
        self._marks.clear()
        self._passed.clear()
        return None

    def _reason(self, key: Key, members: Sequence[dict[str, Any]]) -> str | None:
        if not members:
            return None  # deleted meanwhile
        if key not in self._marks:
            indexes = [_index(member, "Commit Index") for member in members if member.get("Raft State") == "leader"]
            if not indexes:
                return f"quorum queue {key[1]} has no leader"
            self._marks[key] = max(indexes)
        for member in members:
            if member.get("Node Name") == self._without:
                continue
            missing = self._marks[key] - _index(member, "Last Log Index")
            if missing > 0:
                return f"quorum queue {key[1]}: {member.get('Node Name')} is {missing} log entries behind"
        return None


def _index(member: dict[str, Any], name: str) -> int:
    """A member that cannot be asked has a word in place of a number."""
    value = member.get(name)
    return value if isinstance(value, int) else 0
