"""Short names of all nodes, resolvable before RabbitMQ starts and whatever state Consul is in.

A block in /etc/hosts, from what is known best: gossip (needs no leader), then the address that the node's owner
recorded with its ownership, then the addresses kept on EFS. Consul's DNS stands behind it for everything else under
`.consul`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from node.aws import AwsError
from node.clock import Clock
from node.consul import Consul, GossipMember
from node.files import write
from node.journal import log
from node.loopback import Unreachable
from node.ownership import read_record
from node.table import Table

BEGIN = "# BEGIN rabbitmq nodes, kept by rabbitmq-node-agent"
END = "# END rabbitmq nodes"

RECORDS_FIRST_SECONDS = 2.0
RECORDS_LONGEST_SECONDS = 30.0
"""While a node is missing from gossip the table is asked for its owner's address, less and less often."""

_BLOCK = re.compile(rf"^{BEGIN}\n(.*?)^{END}\n?", re.DOTALL | re.MULTILINE)


def known_addresses(
    nodes: Sequence[str],
    own: Mapping[str, str],
    members: Iterable[GossipMember],
    recorded: Mapping[str, str],
    saved: Mapping[str, str],
) -> dict[str, str]:
    """Address by node name; the best source that knows a node wins, and a node that nobody knows is left out."""
    alive = {member.name: member.address for member in members if member.alive}
    sources = (own, alive, recorded, saved)
    found = {node: next((source[node] for source in sources if source.get(node)), None) for node in nodes}
    return {node: address for node, address in found.items() if address}


def with_block(hosts: str, addresses: Mapping[str, str]) -> str:
    """The hosts file with its block replaced. Lines outside the block stay as they are."""
    kept = _BLOCK.sub("", hosts)
    if kept and not kept.endswith("\n"):
        kept += "\n"
    lines = [BEGIN, *(f"{address} {node}" for node, address in sorted(addresses.items())), END]
    return kept + "\n".join(lines) + "\n"


def update_hosts(path: Path, addresses: Mapping[str, str]) -> bool:
    """Bring the hosts file in step. Returns whether it changed."""
    try:
        current = path.read_text()
    except FileNotFoundError:
        current = "127.0.0.1 localhost\n"
    return write(path, with_block(current, addresses))


def block_of(path: Path) -> dict[str, str]:
    """Addresses by node name as the hosts file has them now."""
    block = _BLOCK.search(path.read_text()) if path.exists() else None
    lines = block[1].splitlines() if block else []
    return {node: address for address, node in (line.split() for line in lines if len(line.split()) == 2)}


def load(path: Path) -> dict[str, str]:
    """Addresses kept on EFS; none if there is no such file or it cannot be understood."""
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return {str(node): str(address) for node, address in document.items()} if isinstance(document, dict) else {}


def save(path: Path, addresses: Mapping[str, str]) -> bool:
    """Keep addresses on EFS, for a boot that finds nobody to ask."""
    return write(path, json.dumps(dict(sorted(addresses.items())), indent=2) + "\n")


class NameKeeper:
    """Keeps the names of one host in step, in the file `hosts`. `remember` hears of every new set of addresses."""

    def __init__(
        self,
        hosts: Path,
        nodes: Sequence[str],
        own: Mapping[str, str],
        table: Table,
        clock: Clock,
        remember: Callable[[Mapping[str, str]], object],
        consul: Consul,
    ) -> None:
        self._hosts, self._nodes, self._own, self._table, self._clock = hosts, nodes, own, table, clock
        self._remember, self._consul = remember, consul
        self._recorded: dict[str, str] = {}
        self._away: list[str] = []
        self._pause, self._asked_at = RECORDS_FIRST_SECONDS, float("-inf")
        self.addresses: dict[str, str] = {}

    def refresh(self, saved: Mapping[str, str]) -> dict[str, str]:
        """Bring the hosts file in step and return what is known. `saved` stands in for nodes that nobody else knows."""
        members = self._gossip()
        alive = {member.name for member in members if member.alive} | set(self._own)
        self._ask_for([node for node in self._nodes if node not in alive])
        found = known_addresses(self._nodes, self._own, members, self._recorded, {**saved, **self.addresses})
        if update_hosts(self._hosts, found):
            log.info("names: %s", ", ".join(f"{name} {address}" for name, address in sorted(found.items())))
        if found != self.addresses:
            self.addresses = found
            self._remember(found)
        return found

    def _gossip(self) -> Sequence[GossipMember]:
        try:
            return self._consul.members()
        except Unreachable:
            return ()

    def _ask_for(self, away: list[str]) -> None:
        if away != self._away:
            self._away, self._pause, self._asked_at = away, RECORDS_FIRST_SECONDS, float("-inf")
            self._recorded.clear()  # of an absence before this one
        if not away or self._clock.monotonic() - self._asked_at < self._pause:
            return
        if self._asked_at > float("-inf"):
            self._pause = min(self._pause * 1.5, RECORDS_LONGEST_SECONDS)
        self._asked_at = self._clock.monotonic()
        try:
            for node in away:
                address = read_record(self._table, node).address
                if address:
                    self._recorded[node] = address
        except AwsError as error:
            log.warning("recorded addresses: the table does not answer: %s", error)
