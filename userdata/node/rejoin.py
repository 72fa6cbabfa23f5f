"""Joining Consul again by hand where gossip would take too long.

Gossip accepts a node that returns with a new address only 30 s after it declared the old one dead, and then needs
another full exchange between two agents, which comes by itself once in a while. While a node is missing or there is
no leader, this asks for one every few seconds.

Consul's force-leave is no short cut: it frees the name in serf, not in the gossip below it, and raft loses a voter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from node.clock import Clock
from node.consul import Consul, GossipMember
from node.journal import log
from node.loopback import Unreachable

EAGER_SECONDS = 180.0
"""So long after the trouble began it tries at every call, then every PATIENT_SECONDS."""

PATIENT_SECONDS = 20.0


def targets(
    peers: Sequence[str], members: Sequence[GossipMember], leader: str | None, addresses: Mapping[str, str]
) -> list[str]:
    """Addresses to join now: of peers that gossip misses, of all peers while there is no leader."""
    alive = {member.name: member.address for member in members if member.alive}
    wanted = [peer for peer in peers if leader is None or alive.get(peer) is None]
    return sorted({addresses[peer] for peer in wanted if peer in addresses})


class Rejoin:
    """Called every few seconds."""

    def __init__(self, peers: Sequence[str], clock: Clock, consul: Consul) -> None:
        self._peers, self._clock, self._consul = peers, clock, consul
        self._since: float | None = None
        self._tried_at = float("-inf")

    def attempt(self, addresses: Mapping[str, str]) -> list[str]:
        """Join what is missing, if anything is and it is time; returns the addresses that were joined."""
        try:
            wanted = targets(self._peers, self._consul.members(), self._consul.leader(), addresses)
        except Unreachable:
            return []
        now = self._clock.monotonic()
        if not wanted:
            if self._since is not None:
                log.info("Consul is whole again after %.0f s", now - self._since)
            self._since = None
            return []
        if self._since is None:
            self._since = now
            log.info("Consul lacks a leader or members: joining %s", ", ".join(wanted))
        if now - self._since > EAGER_SECONDS and now - self._tried_at < PATIENT_SECONDS:
            return []
        self._tried_at = now
        return [address for address in wanted if self._join(address)]

    def _join(self, address: str) -> bool:
        try:
            return self._consul.join(address)
        except Unreachable:
            return False
