"""Keeping names in step: every source asked as often as it bears, /etc/hosts written when something changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from node import names
from node.aws import AwsError
from node.clock import Clock
from node.consul import Consul, GossipMember
from node.journal import log
from node.loopback import Unreachable
from node.ownership import read_record
from node.paths import Paths
from node.table import Table

RECORDS_FIRST_SECONDS = 2.0
RECORDS_LONGEST_SECONDS = 30.0
"""While a node is missing from gossip the table is asked for its owner's address, less and less often."""


def gossip(consul: Consul) -> Sequence[GossipMember]:
    """Members that Consul knows, none while it does not answer."""
    try:
        return consul.members()
    except Unreachable:
        return ()


def recorded_addresses(table: Table, nodes: Sequence[str]) -> dict[str, str]:
    """Addresses that the nodes' owners recorded, as far as the table answers."""
    found = {}
    try:
        for node in nodes:
            address = read_record(table, node).address
            if address:
                found[node] = address
    except AwsError as error:
        log.warning("recorded addresses: the table does not answer: %s", error)
    return found


class NameKeeper:
    """The names of one host. `remember` hears of every new set of addresses."""

    def __init__(
        self,
        paths: Paths,
        nodes: Sequence[str],
        own: Mapping[str, str],
        table: Table,
        clock: Clock,
        remember: Callable[[Mapping[str, str]], None],
        consul: Consul | None = None,
    ) -> None:
        self._paths, self._nodes, self._own, self._table, self._clock = paths, nodes, own, table, clock
        self._remember, self._consul = remember, consul or Consul()
        self._recorded: dict[str, str] = {}
        self._away: list[str] = []
        self._pause, self._asked_at = RECORDS_FIRST_SECONDS, float("-inf")
        self.addresses: dict[str, str] = {}

    def refresh(self, saved: Mapping[str, str]) -> dict[str, str]:
        """Bring /etc/hosts in step and return what is known. `saved` stands in for nodes that nobody else knows."""
        members = gossip(self._consul)
        alive = {member.name for member in members if member.alive} | set(self._own)
        self._ask_for([node for node in self._nodes if node not in alive])
        found = names.known_addresses(self._nodes, self._own, members, self._recorded, {**saved, **self.addresses})
        if names.update_hosts(self._paths.hosts, found):
            log.info("names: %s", ", ".join(f"{name} {address}" for name, address in sorted(found.items())))
        if found != self.addresses:
            self.addresses = found
            self._remember(found)
        return found

    def _ask_for(self, away: list[str]) -> None:
        if away != self._away:
            self._away, self._pause, self._asked_at = away, RECORDS_FIRST_SECONDS, float("-inf")
        if not away or self._clock.monotonic() - self._asked_at < self._pause:
            return
        if self._asked_at > float("-inf"):
            self._pause = min(self._pause * 1.5, RECORDS_LONGEST_SECONDS)
        self._asked_at = self._clock.monotonic()
        self._recorded.update(recorded_addresses(self._table, away))
