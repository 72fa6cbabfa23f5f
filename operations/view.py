"""How the state of a cluster is shown: tables for people, the same as JSON for programs."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from operations.deployment import Deployment
from operations.nodes import Node

_STYLES = {"ready": "green", "failed": "bold red", "waiting": "yellow"}


def node_table(nodes: Sequence[Node], title: str = "") -> Table:
    """One row a node: zone, instance, address, what it is doing."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in ("Node", "Zone", "Instance", "Address", "State"):
        table.add_column(column, no_wrap=column != "State")
    for node in nodes:
        style = "ready" if node.is_ready else "failed" if node.has_failed else "waiting"
        state = Text(f"failed at {node.progress}" if node.has_failed else node.progress, style=_STYLES[style])
        table.add_row(node.name, node.availability_zone, node.instance_id or "-", node.address or "-", state)
    return table


def summary(deployment: Deployment, nodes: Sequence[Node]) -> dict[str, Any]:
    """What a user needs next, as data."""
    environment = deployment.environment
    return {
        "environment": environment.name,
        "cluster": environment.cluster_name,
        "nodes": [node.as_dict() for node in nodes],
        "endpoints": deployment.endpoints(),
        "password_command": f"make password ENV={environment.name}",
        "notes": sorted({note for node in nodes if node.boot for note in node.boot.notes}),
    }


def summary_lines(shown: dict[str, Any]) -> list[str]:
    """The summary's text below the node table."""
    labels = {"amqp-endpoint": "AMQP", "amqps-endpoint": "AMQP over TLS", "management-url": "Management UI"}
    rows = [(labels[kind], address) for kind, address in sorted(shown["endpoints"].items())]
    rows.append(("Administrator", f"user administrator; {shown['password_command']} shows the password"))
    width = max(len(label) for label, _ in rows)
    return [f"{label:<{width}}  {value}" for label, value in rows] + [f"Note: {note}" for note in shown["notes"]]
