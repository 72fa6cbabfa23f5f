"""The marker file: whose directory this is, and whether the node has been a member of its cluster.

A member that starts on an empty directory would found a second cluster behind the same load balancer. So an empty or
foreign directory is refused unless the node has never been a member.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from node.errors import Refusal
from node.files import write

REBUILD = (
    "if the data is lost for good, run `python -m operations node rebuild {node}`: the others forget this node and it "
    "joins again, empty; if the data is somewhere else, restore it to this access point and start "
    "rabbitmq-node-boot.service again"
)
ANOTHER = (
    "check file_system_id and access_point_id of this node in the cluster stack: they belong to another node or cluster"
)


REQUIRED, OPTIONAL = ("node", "cluster", "created_at"), ("member_since", "rebuild")


@dataclass(frozen=True)
class Marker:
    """Content of the marker file."""

    node: str
    cluster: str
    created_at: str
    member_since: str | None = None
    rebuild: str | None = None
    """The order, by its time in the table, to start again that this directory was begun for."""


def read(path: Path) -> Marker | None:
    """The marker, or None if there is none. Raises Refusal if it cannot be understood."""
    try:
        document = json.loads(path.read_text())
        return Marker(**{name: document[name] for name in REQUIRED}, **{name: document.get(name) for name in OPTIONAL})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refusal(
            f"the marker file cannot be understood: {error}",
            str(path),
            "compare it with another node's and repair it by hand; or rename it, and have the node rebuilt",
        ) from error


def save(path: Path, marker: Marker) -> None:
    """Write the marker."""
    write(path, json.dumps(asdict(marker), indent=2) + "\n")


def refuse_foreign(found: Marker | None, *, node: str, cluster: str, where: str) -> None:
    """Raises Refusal if the directory is another node's. `where` is the path for messages."""
    if found and (found.node, found.cluster) != (node, cluster):
        raise Refusal(
            f"the directory belongs to {found.node} of {found.cluster}, not to {node} of {cluster}", where, ANOTHER
        )


def judge(
    found: Marker | None, *, node: str, member_since: str | None, rebuild: str | None, empty: bool, where: str
) -> bool:
    """Whether the directory is a new node's, which gets its marker now. Raises Refusal if the node must not use it.

    `member_since` and `rebuild` are what the table says, `empty` whether there is no broker data, `where` the path for
    messages. The directory is known not to be another node's.
    """
    remedy = REBUILD.format(node=node)
    if found is None:
        if member_since:
            raise Refusal(
                f"{node} has been a member since {member_since}, but its directory has no marker", where, remedy
            )
        if not empty:
            raise Refusal(f"{node} has never been a member, but there is broker data without a marker", where, ANOTHER)
        return True
    if rebuild and found.rebuild == rebuild:
        return False
    if empty and (found.member_since or member_since):
        since = found.member_since or member_since
        raise Refusal(f"{node} has been a member since {since}, but its data directory is empty", where, remedy)
    return False
