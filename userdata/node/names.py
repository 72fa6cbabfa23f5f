"""Short names of all nodes, resolvable before RabbitMQ starts and whatever state Consul is in.

A block in /etc/hosts, from what is known best: gossip (needs no leader), then the address that the node's owner
recorded with its ownership, then the addresses kept on EFS. Consul's DNS stands behind it for everything else under
`.consul`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from node.consul import GossipMember
from node.files import write

BEGIN = "# BEGIN rabbitmq nodes, kept by rabbitmq-node-agent"
END = "# END rabbitmq nodes"


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
    found = {}
    for node in nodes:
        address = next((source[node] for source in sources if source.get(node)), None)
        if address:
            found[node] = address
    return found


def with_block(hosts: str, addresses: Mapping[str, str]) -> str:
    """The hosts file with its block replaced. Lines outside the block stay as they are."""
    kept, inside = [], False
    for line in hosts.splitlines():
        if line == BEGIN:
            inside = True
        elif inside and line == END:
            inside = False
        elif not inside:
            kept.append(line)
    block = [BEGIN, *(f"{address} {node}" for node, address in sorted(addresses.items())), END]
    return "\n".join([*kept, *block]) + "\n"


def update_hosts(path: Path, addresses: Mapping[str, str]) -> bool:
    """Bring the hosts file in step. Returns whether it changed."""
    try:
        current = path.read_text()
    except FileNotFoundError:
        current = "127.0.0.1 localhost\n"
    wanted = with_block(current, addresses)
    return wanted != current and write(path, wanted)


def block_of(path: Path) -> dict[str, str]:
    """Addresses by node name as the hosts file has them now."""
    found, inside = {}, False
    for line in path.read_text().splitlines() if path.exists() else ():
        if line in (BEGIN, END):
            inside = line == BEGIN
        elif inside and len(line.split()) == 2:
            address, node = line.split()
            found[node] = address
    return found


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
