"""How the state of a cluster is shown: tables for people, the same as JSON for programs."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from operations.deployment import Deployment
from operations.nodes import Node
from operations.survey import Survey

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


def status_screen(console: Console, seen: Survey) -> None:
    """Everything on one screen: nodes, hosts, queues, lock, alarms, and at the end what is wrong."""
    console.print(node_table(seen.nodes))
    console.print()
    console.print(_host_table(seen))
    console.print()
    for label, text in _facts(seen):
        console.print(Text(f"{label:<8}", "bold").append(text, "not bold"), soft_wrap=True)
    console.print()
    findings = seen.findings
    if not findings:
        console.print(f"{seen.cluster} is healthy", style="green")
    for finding in findings:
        style = "bold red" if finding.severity == "degraded" else "yellow"
        console.print(Text(f"{finding.severity}: {finding.what}", style), soft_wrap=True)


def _host_table(seen: Survey) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("Node", "RabbitMQ", "Erlang", "Plugin", "Consul", "Up", "Leads", "EFS write"):
        table.add_column(column, no_wrap=True, justify="right" if column in ("Up", "Leads", "EFS write") else "left")
    leaders = seen.broker.leaders() if seen.broker else {}
    for node in seen.nodes:
        told, member = seen.health.get(node.name), f"rabbit@{node.name}"
        versions = told.versions if told else {}
        known = ("rabbitmq", "erlang", "delayed_plugin", "consul")
        runs = bool(seen.broker and seen.broker.running.get(member))
        up = _duration(seen.broker.uptime[member]) if seen.broker and runs and member in seen.broker.uptime else "-"
        write = f"{told.write_ms:.1f} ms" if told and told.write_ms is not None else "-"
        table.add_row(node.name, *(versions.get(v, "-") for v in known), up, str(leaders.get(member, 0)), write)
    return table


def _facts(seen: Survey) -> list[tuple[str, str]]:
    facts = []
    if seen.broker:
        short = seen.broker.short_queues(len(seen.nodes))
        whole = "all whole" if not short else f"{len(short)} not whole"
        facts.append(("Queues", f"{len(seen.broker.queues)} quorum queues, {whole}"))
    leaders = sorted({told.consul_leader for told in seen.health.values() if told and told.consul_leader})
    addresses = {node.address: node.name for node in seen.nodes}
    named = [addresses.get(leader.rsplit(":", 1)[0], leader) for leader in leaders]
    facts.append(("Consul", f"led by {', '.join(named)}" if named else "no leader known"))
    if seen.lock:
        age = _duration(seen.lock.age_seconds(seen.at))
        facts.append(("Lock", f"held by {seen.lock.node} ({seen.lock.instance_id}) for {age}: {seen.lock.reason}"))
    else:
        facts.append(("Lock", "free"))
    if seen.alarms is not None:
        facts.append(("Alarms", f"{len(seen.alarms)} in effect" if seen.alarms else "none in effect"))
    return facts


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
