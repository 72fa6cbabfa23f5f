"""Raft's own list of addresses, after nodes came back at new ones.

Consul's leader corrects the list when gossip tells it of a new address. A correction that fails is tried again only a
minute later, and so is the leader's own entry. A leader that has just been chosen corrects the whole list at once; so a
leader that finds a stale entry in an otherwise healthy list does what Consul would do with its own entry a minute
later: it takes itself out, another becomes leader, corrects the list and takes it in again.
"""

from __future__ import annotations

from collections.abc import Sequence

from node.clock import Clock
from node.consul import RAFT_PORT, Consul, GossipMember, RaftServer, node_id
from node.journal import log
from node.loopback import Unreachable

STEADY_SECONDS = 2.0
"""A stale entry must have stood so long: Consul's own correction takes a moment."""


def is_stale(servers: Sequence[RaftServer], members: Sequence[GossipMember]) -> bool:
    """Whether an address in raft's list is old, while every server votes and every member is alive."""
    if not members or not all(member.alive for member in members):
        return False
    wanted = {node_id(member.name): f"{member.address}:{RAFT_PORT}" for member in members}
    listed = {server.identifier: server.address for server in servers if server.voter}
    return len(listed) == len(servers) >= 3 and listed.keys() == wanted.keys() and listed != wanted


class RaftAddresses:
    """Called every few seconds on every node; acts on the leader only."""

    def __init__(self, node: str, consul: Consul, clock: Clock) -> None:
        self._node, self._consul, self._clock = node, consul, clock
        self._since: float | None = None

    def check(self) -> bool:
        """Returns whether this node gave up its leadership, and its place, for a corrected list."""
        try:
            if not self._is_stale_leader():
                self._since = None
                return False
            now = self._clock.monotonic()
            self._since = now if self._since is None else self._since
            if now - self._since < STEADY_SECONDS:
                return False
            self._since = None
            log.info("raft's list has an old address: giving up the lead, so that the next leader corrects it")
            return self._consul.remove_raft_server(node_id(self._node))
        except Unreachable:
            return False

    def _is_stale_leader(self) -> bool:
        members = self._consul.members()
        own = next((f"{member.address}:{RAFT_PORT}" for member in members if member.name == self._node), None)
        return self._consul.leader() == own and is_stale(self._consul.raft_servers(), members)
