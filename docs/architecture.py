"""Draws docs/architecture.svg from an environment: `python docs/architecture.py OUTPUT [ENVIRONMENT]`.

Zones, node names, ports and the storage mode come from the model, so the picture says what that environment deploys.
"""

import sys
from html import escape
from pathlib import Path

from stacks.environment import Environment

_WIDTH, _HEIGHT = 980, 640
_FONT = "font-family='Helvetica,Arial,sans-serif'"


def _box(x: int, y: int, w: int, h: int, fill: str, stroke: str, dashed: bool = False) -> str:
    dash = " stroke-dasharray='6 4'" if dashed else ""
    return f"<rect x='{x}' y='{y}' width='{w}' height='{h}' rx='6' fill='{fill}' stroke='{stroke}'{dash}/>"


def _text(
    x: int, y: int, text: str, size: int = 13, weight: str = "normal", anchor: str = "middle", fill: str = "#1f2933"
) -> str:
    return (
        f"<text x='{x}' y='{y}' {_FONT} font-size='{size}' font-weight='{weight}' text-anchor='{anchor}' fill='{fill}'>"
        f"{escape(text)}</text>"
    )


def _arrow(x1: int, y1: int, x2: int, y2: int, both: bool = False) -> str:
    start = " marker-start='url(#tip)'" if both else ""
    return (
        f"<line x1='{x1}' y1='{y1}' x2='{x2}' y2='{y2}' stroke='#52606d' stroke-width='1.4'"
        f" marker-end='url(#tip)'{start}/>"
    )


def draw(environment: Environment) -> str:
    """The SVG document."""
    amqp = environment.access.amqp
    ports = [port for port, on in (("5671 (TLS)", amqp.tls), ("5672", amqp.plain)) if on]
    management = "HTTPS 443" if environment.access.management.certificate_arn else "HTTP 80"
    efs = environment.efs
    mode = f"{efs.provisioned_mibps} MiB/s provisioned" if efs.provisioned_mibps else efs.throughput_mode
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img'>",
        "<title>Three RabbitMQ nodes in three zones, behind two load balancers, on one shared file system</title>",
        "<defs><marker id='tip' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='7' markerHeight='7'"
        " orient='auto-start-reverse'>"
        "<path d='M0 0 L10 5 L0 10 z' fill='#52606d'/></marker></defs>",
        _box(0, 0, _WIDTH, _HEIGHT, "#ffffff", "#ffffff"),
        _box(190, 16, 220, 40, "#eef2f7", "#7b8794"),
        _text(300, 41, "applications (AMQP)"),
        _box(570, 16, 220, 40, "#eef2f7", "#7b8794"),
        _text(680, 41, "operators (browser, HTTP API)"),
        _arrow(300, 56, 300, 98),
        _text(308, 80, " and ".join(ports), 12, anchor="start"),
        _arrow(680, 56, 680, 98),
        _text(688, 80, management, 12, anchor="start"),
        _box(20, 84, _WIDTH - 40, 420, "none", "#9aa5b1", dashed=True),
        _text(34, 104, f"VPC, {environment.region}", 12, anchor="start", fill="#52606d"),
        _box(190, 100, 220, 44, "#e8e3f7", "#6b4fbb"),
        _text(300, 127, "Network Load Balancer", 14, "bold"),
        _box(570, 100, 220, 44, "#e8e3f7", "#6b4fbb"),
        _text(680, 127, "Application Load Balancer", 14, "bold"),
    ]
    for index, node in enumerate(environment.nodes):
        x = 40 + index * 305
        centre = x + 145
        parts += [
            _arrow(300, 144, centre - 20, 175),
            _arrow(680, 144, centre + 20, 175),
            _box(x, 176, 290, 230, "#f5f7fa", "#cbd2d9"),
            _text(x + 10, 194, node.availability_zone, 12, anchor="start", fill="#52606d"),
            _box(x + 14, 200, 262, 194, "#fff4e5", "#de911d"),
            _text(centre, 220, "Auto Scaling group of exactly one", 12),
            _text(centre, 238, node.name, 13, "bold"),
            _box(x + 28, 248, 234, 52, "#ffffff", "#de911d"),
            _text(centre, 268, f"RabbitMQ {environment.versions.rabbitmq.version}", 13),
            _text(centre, 287, "quorum queues, one member a node", 12, fill="#52606d"),
            _box(x + 28, 306, 234, 36, "#ffffff", "#de911d"),
            _text(centre, 329, f"Consul {environment.versions.consul.version}: names, discovery", 12),
            _box(x + 28, 348, 234, 36, "#ffffff", "#de911d"),
            _text(centre, 371, "node agent: boot, fence, drain", 12),
            _arrow(centre, 406, centre, 442),
            _text(centre + 8, 428, "2049, TLS, IAM", 11, anchor="start"),
            _box(x, 444, 290, 44, "#e3f9e5", "#3f9142"),
            _text(centre, 463, "EFS access point", 12),
            _text(centre, 480, f"/nodes/{node.name}", 11, fill="#52606d"),
        ]
        if index:
            parts.append(_arrow(x - 29, 330, x + 14, 330, both=True))
    parts += [
        _text(
            _WIDTH // 2,
            521,
            f"one EFS file system, encrypted, {mode}: data, names and raft state outlive every instance",
            12,
        ),
        _text(_WIDTH // 2, 538, "between nodes: 4369, 25672 (RabbitMQ), 8300 to 8302 (Consul)", 12, fill="#52606d"),
    ]
    services = (
        ("DynamoDB", "node ownership, maintenance lock"),
        ("Secrets Manager", "users, cookie, gossip key"),
        ("S3", "node bundle, mirrored artefacts"),
        ("CloudWatch, SNS", "alarms, dashboard"),
    )
    for index, (name, purpose) in enumerate(services):
        x = 20 + index * 237
        parts += [
            _box(x, 556, 229, 60, "#eef2f7", "#7b8794"),
            _text(x + 114, 581, name, 13, "bold"),
            _text(x + 114, 601, purpose, 12, fill="#52606d"),
        ]
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    output, name = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "production"
    output.write_text(draw(Environment.load(name)), encoding="utf-8")
