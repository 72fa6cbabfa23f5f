"""The load balancers: HAProxy in the place of NLB and ALB, configured from their listeners and target groups.

A listener is a loopback address and port of this machine; targets are reached inside the VPC's namespace. HAProxy is
told of their health, which `lab.health` finds out. As with AWS's: an unhealthy target's connections are cut, and with
no healthy target at all every target gets traffic (fail open).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SLOTS = 8
"""Places for targets in a target group. A changed target takes or leaves one; the proxy runs on."""

UNUSED = "192.0.2.1"  # an address for documentation (RFC 5737): what an empty place points to


@dataclass(frozen=True)
class Target:
    """One registered instance. A draining one keeps its connections and gets no new ones."""

    name: str
    address: str
    draining: bool = False
    healthy: bool = True


@dataclass(frozen=True)
class HealthCheck:
    """Times in seconds."""

    protocol: Literal["TCP", "HTTP", "HTTPS"] = "TCP"
    port: int | None = None
    path: str = "/"
    matcher: str = "200-399"
    interval: float = 10
    timeout: float = 5
    healthy_threshold: int = 2
    unhealthy_threshold: int = 2


@dataclass(frozen=True)
class TargetGroup:
    """Where a listener's connections go. Its name (letters, digits, hyphens) is the proxy's name for it too."""

    name: str
    protocol: Literal["TCP", "TLS", "HTTP", "HTTPS"]
    port: int
    health_check: HealthCheck
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True)
class Listener:
    """One port. `certificate` (a PEM file, chain and key) for TLS and HTTPS; a `target_group` or a redirect."""

    port: int
    protocol: Literal["TCP", "TLS", "HTTP", "HTTPS"]
    target_group: str | None
    certificate: Path | None = None
    redirect_to_https: bool = False


@dataclass(frozen=True)
class LoadBalancer:
    """An NLB or ALB at its loopback address. `idle_timeout`: seconds without a byte until a connection is closed."""

    name: str
    address: str
    listeners: tuple[Listener, ...]
    idle_timeout: float = 350


@dataclass(frozen=True)
class Front:
    """AWS's endpoints as the hosts see them: TLS at the VPC resolver's address, passed on to the emulator's port."""

    address: str
    certificate: Path
    emulator_port: int


@dataclass(frozen=True)
class Setup:
    """All that the proxy is to do."""

    balancers: tuple[LoadBalancer, ...]
    target_groups: tuple[TargetGroup, ...]
    front: Front | None = None


Places = Mapping[str, Sequence[str]]
"""For each target group the addresses in its places, as many as there are."""


def slot(number: int) -> str:
    """Name of a place, counted from 0."""
    return f"target-{number + 1}"


def fail_open(group: str) -> str:
    """The twin of a target group whose targets all count as healthy: used while the group has no healthy target."""
    return f"{group}.open"


def render(setup: Setup, namespace: str, socket: Path, state: Path, places: Places | None = None) -> str:
    """HAProxy's configuration. Without `places` it says nothing about targets: that is what a restart depends on."""
    blocks = [
        f"""global
    stats socket {socket} mode 600 level admin expose-fd listeners
    server-state-file {state}
    log stderr format raw local0 notice
    nbthread 1
    maxconn 4000
    # After a reload, old connections live on in the old process, where nothing watches their targets any more.
    hard-stop-after 30s
    ssl-default-bind-options ssl-min-ver TLSv1.2

defaults
    log global
    load-server-state-from-file global
    timeout connect 5s
    # A load balancer that passes packets on does not try again in the client's place.
    retries 0
    timeout client 350s
    timeout server 350s
    option dontlog-normal
"""
    ]
    if setup.front:
        blocks.append(_front(setup.front, namespace))
    for balancer in setup.balancers:
        blocks += [_frontend(balancer, listener) for listener in balancer.listeners]
    idle = _idle_timeouts(setup)
    for group in setup.target_groups:
        addresses = (places or {}).get(group.name, ())
        timeout = idle.get(group.name, 350)
        blocks.append(_backend(group, namespace, timeout, addresses, checked=True))
        blocks.append(_backend(group, namespace, timeout, addresses, checked=False))
    return "\n".join(blocks)


def _time(seconds: float) -> str:
    """HAProxy takes whole numbers only."""
    return f"{round(seconds * 1000)}ms"


def _is_http(protocol: str) -> bool:
    return protocol in ("HTTP", "HTTPS")


def _idle_timeouts(setup: Setup) -> dict[str, float]:
    return {
        listener.target_group: balancer.idle_timeout
        for balancer in setup.balancers
        for listener in balancer.listeners
        if listener.target_group
    }


def _front(front: Front, namespace: str) -> str:
    return f"""frontend aws
    mode tcp
    bind {front.address}:443 namespace {namespace} ssl crt {front.certificate}
    default_backend emulator

backend emulator
    mode tcp
    server emulator 127.0.0.1:{front.emulator_port}
"""


def _frontend(balancer: LoadBalancer, listener: Listener) -> str:
    tls = f" ssl crt {listener.certificate}" if listener.certificate else ""
    lines = [
        f"frontend {balancer.name}:{listener.port}",
        f"    mode {'http' if _is_http(listener.protocol) else 'tcp'}",
        f"    bind {balancer.address}:{listener.port}{tls}",
        f"    timeout client {_time(balancer.idle_timeout)}",
    ]
    if _is_http(listener.protocol):
        scheme = listener.protocol.lower()
        lines += ["    option forwardfor", f"    http-request set-header X-Forwarded-Proto {scheme}"]
        lines += [f"    http-request set-header X-Forwarded-Port {listener.port}"]
    if listener.redirect_to_https:
        lines += ["    http-request redirect scheme https code 301"]
    elif listener.target_group:
        group = listener.target_group
        lines += [f"    use_backend {fail_open(group)} if {{ nbsrv({group}) eq 0 }}", f"    default_backend {group}"]
    return "\n".join(lines) + "\n"


def _backend(group: TargetGroup, namespace: str, idle: float, addresses: Sequence[str], *, checked: bool) -> str:
    lines = [
        f"backend {group.name if checked else fail_open(group.name)}",
        f"    mode {'http' if _is_http(group.protocol) else 'tcp'}",
        f"    timeout server {_time(idle)}",
    ]
    options = ""
    if group.protocol in ("TLS", "HTTPS"):
        options = " ssl verify none"  # as AWS's load balancers: they do not check a target's certificate
    if checked:
        options += " on-marked-down shutdown-sessions"
    if options:
        lines.append(f"    default-server{options}")
    for number in range(SLOTS):
        address = addresses[number] if number < len(addresses) else UNUSED
        disabled = " disabled" if address == UNUSED else ""
        # At every server, because HAProxy 2.6 accepts `default-server namespace` without a word and ignores it.
        lines.append(f"    server {slot(number)} {address}:{group.port} namespace {namespace}{disabled}")
    return "\n".join(lines) + "\n"
