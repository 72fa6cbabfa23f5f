from pathlib import Path

import pytest

from lab.loadbalancer import (
    SLOTS,
    Front,
    HealthCheck,
    Listener,
    LoadBalancer,
    Setup,
    Target,
    TargetGroup,
    render,
)

AMQP = TargetGroup(
    "amqp",
    "TCP",
    5672,
    HealthCheck(
        "HTTP", 15672, "/api/health", "200", interval=10, timeout=6, healthy_threshold=3, unhealthy_threshold=2
    ),
    (Target("a", "10.77.0.10"), Target("b", "10.77.1.10")),
)
UI = TargetGroup("ui", "HTTP", 15672, HealthCheck("HTTP"))
NLB = LoadBalancer("nlb", "127.77.1.10", (Listener(5672, "TCP", "amqp"),), idle_timeout=350)
ALB = LoadBalancer("alb", "127.77.1.20", (Listener(80, "HTTP", "ui"),), idle_timeout=60)
SETUP = Setup((NLB, ALB), (AMQP, UI), Front("10.77.0.2", Path("/state/aws.pem"), 4566))


def blocks(setup: Setup = SETUP, places: dict[str, list[str]] | None = None) -> dict[str, list[str]]:
    """The configuration's sections, by their first line."""
    text = render(setup, "x-vpc", Path("/state/sock"), Path("/state/state"), places)
    found = (section.splitlines() for section in text.split("\n\n"))
    return {lines[0]: [line.strip() for line in lines[1:]] for lines in found if lines}


def test_a_listener_is_an_address_of_this_machine_and_its_targets_are_in_the_vpc() -> None:
    found = blocks()

    assert "bind 127.77.1.10:5672" in found["frontend nlb:5672"]
    assert "default_backend amqp" in found["frontend nlb:5672"]
    servers = [line for line in found["backend amqp"] if line.startswith("server ")]
    assert len(servers) == SLOTS
    assert all("namespace x-vpc" in server for server in servers)


def test_amqp_is_passed_through_and_http_is_understood() -> None:
    found = blocks()

    assert "mode tcp" in found["frontend nlb:5672"]
    assert "mode http" in found["frontend alb:80"]
    assert "option forwardfor" in found["frontend alb:80"]


def test_an_unhealthy_targets_connections_are_cut() -> None:
    assert any("on-marked-down shutdown-sessions" in line for line in blocks()["backend amqp"])


def test_with_no_healthy_target_every_target_gets_traffic() -> None:
    found = blocks()

    assert "use_backend amqp.open if { nbsrv(amqp) eq 0 }" in found["frontend nlb:5672"]
    assert not any("on-marked-down" in line for line in found["backend amqp.open"])


def test_connections_may_be_idle_as_long_as_the_load_balancer_allows() -> None:
    found = blocks()

    assert "timeout client 350000ms" in found["frontend nlb:5672"]
    assert "timeout server 350000ms" in found["backend amqp"]
    assert "timeout client 60000ms" in found["frontend alb:80"]
    assert "timeout server 60000ms" in found["backend ui"]


def test_a_tls_listener_has_its_certificate_and_a_tls_target_is_not_verified() -> None:
    group = TargetGroup("amqps", "TLS", 5671, HealthCheck("HTTPS", 15671))
    listener = Listener(5671, "TLS", "amqps", certificate=Path("/state/nlb.pem"))
    found = blocks(Setup((LoadBalancer("nlb", "127.77.1.10", (listener,)),), (group,)))

    assert "bind 127.77.1.10:5671 ssl crt /state/nlb.pem" in found["frontend nlb:5671"]
    assert "default-server ssl verify none" in found["backend amqps.open"]
    assert any("ssl verify none" in line for line in found["backend amqps"])


def test_an_https_redirect_needs_no_target_group() -> None:
    listener = Listener(80, "HTTP", None, redirect_to_https=True)
    found = blocks(Setup((LoadBalancer("alb", "127.77.1.20", (listener,)),), ()))

    assert "http-request redirect scheme https code 301" in found["frontend alb:80"]
    assert not any("backend" in line for line in found["frontend alb:80"])


def test_aws_has_its_endpoints_inside_the_vpc_only() -> None:
    found = blocks()

    assert "bind 10.77.0.2:443 namespace x-vpc ssl crt /state/aws.pem" in found["frontend aws"]
    assert "server emulator 127.0.0.1:4566" in found["backend emulator"]
    assert "frontend aws" not in blocks(Setup((NLB,), (AMQP,)))


@pytest.mark.parametrize("targets", [(), (Target("c", "10.77.2.10"),), (Target("a", "10.77.0.10", draining=True),)])
def test_a_change_of_targets_does_not_change_the_configuration(targets: tuple[Target, ...]) -> None:
    changed = TargetGroup(AMQP.name, AMQP.protocol, AMQP.port, AMQP.health_check, targets)

    assert blocks(Setup((NLB,), (changed,))) == blocks(Setup((NLB,), (AMQP,)))


def test_a_reload_keeps_the_targets_in_their_places() -> None:
    backend = blocks(places={"amqp": ["10.77.0.10", "192.0.2.1", "10.77.1.10"]})["backend amqp"]
    servers = [line for line in backend if line.startswith("server ")]

    assert servers[0] == "server target-1 10.77.0.10:5672 namespace x-vpc"
    assert servers[1].endswith("disabled")
    assert servers[2] == "server target-3 10.77.1.10:5672 namespace x-vpc"
