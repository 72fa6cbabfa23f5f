"""Ways in: AMQP through the network load balancer, HTTP through the application load balancer, names for both."""

import copy
from pathlib import Path
from typing import Any

import pytest

from stacks.environment import Environment
from tests.synth.synthesis import Synthesis, Synthesiser, Template, load, synthesise

CERTIFICATE = "arn:aws:acm:eu-west-1:123456789012:certificate/01234567-89ab-cdef-0123-456789abcdef"
BALANCER = "AWS::ElasticLoadBalancingV2::LoadBalancer"
LISTENER = "AWS::ElasticLoadBalancingV2::Listener"
TARGETS = "AWS::ElasticLoadBalancingV2::TargetGroup"


def listeners(template: Template) -> dict[int, Any]:
    """Port to listener, with the kind of its load balancer as `Balancer`."""
    resources = template["Resources"]
    return {
        listener["Properties"]["Port"]: {
            **listener["Properties"],
            "Balancer": resources[listener["Properties"]["LoadBalancerArn"]["Ref"]]["Properties"]["Type"],
        }
        for listener in resources.values()
        if listener["Type"] == LISTENER
    }


def impossible_listeners(template: Template) -> list[int]:
    """Ports whose protocol their kind of load balancer does not speak: EC2 refuses them, at deployment."""
    spoken = {"network": {"TCP", "TLS"}, "application": {"HTTP", "HTTPS"}}
    return [port for port, found in listeners(template).items() if found["Protocol"] not in spoken[found["Balancer"]]]


def with_access(environment: Environment, **changes: Any) -> Environment:
    document = environment.model_dump(mode="python", by_alias=True)
    return Environment.model_validate({**document, "access": {**document["access"], **changes}})


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """Both AMQP listeners, certificates everywhere and a private zone."""
    amqp = {
        "plain": True,
        "tls": True,
        "certificate_arn": CERTIFICATE,
        "allowed_cidrs": ["10.77.0.0/16"],
        "idle_timeout_seconds": 900,
    }
    environment = with_access(
        load("local"),
        amqp=amqp,
        management={"certificate_arn": CERTIFICATE, "allowed_cidrs": ["10.77.0.0/16"]},
        private_zone={"zone_name": "internal.example.com", "zone_id": None},
    )
    return synthesise(environment, tmp_path_factory.mktemp("everything"))


def test_each_load_balancer_speaks_its_own_protocols(synthesis: Synthesis) -> None:
    assert impossible_listeners(synthesis.templates["access"]) == []


def test_an_http_listener_on_a_network_load_balancer_is_noticed(synthesised: Synthesiser) -> None:
    template = copy.deepcopy(synthesised("local").templates["access"])
    for resource in template["Resources"].values():
        if resource["Type"] == LISTENER and resource["Properties"]["Port"] == 5672:
            resource["Properties"]["Protocol"] = "HTTP"
    assert impossible_listeners(template) == [5672]


def test_listeners_are_those_the_environment_asks_for(synthesis: Synthesis) -> None:
    access = synthesis.environment.access
    wanted = {443 if access.management.certificate_arn else 80}
    wanted |= {5672} if access.amqp.plain else set()
    wanted |= {5671} if access.amqp.tls else set()
    assert set(listeners(synthesis.templates["access"])) == wanted


def test_tls_ends_at_the_load_balancer_and_starts_again_towards_the_node(everything: Synthesis) -> None:
    listener = listeners(everything.templates["access"])[5671]
    assert listener["Protocol"] == "TLS"
    assert listener["Certificates"] == [{"CertificateArn": CERTIFICATE}]
    assert "TLS13" in listener["SslPolicy"]
    assert "ListenerAttributes" not in listener  # the idle timeout of TLS listeners cannot be set
    [targets] = [t for t in everything.properties(TARGETS) if t["Port"] == 5671]
    assert targets["Protocol"] == "TLS"


def test_the_plain_listeners_idle_timeout_is_the_environments(everything: Synthesis) -> None:
    listener = listeners(everything.templates["access"])[5672]
    assert listener["Protocol"] == "TCP"
    assert listener["ListenerAttributes"] == [{"Key": "tcp.idle_timeout.seconds", "Value": "900"}]


def test_the_management_listener_has_a_certificate_where_the_environment_has_one(everything: Synthesis) -> None:
    listener = listeners(everything.templates["access"])[443]
    assert (listener["Protocol"], listener["Balancer"]) == ("HTTPS", "application")
    assert listener["Certificates"] == [{"CertificateArn": CERTIFICATE}]


def test_health_checks_ask_the_management_port_over_http(synthesis: Synthesis) -> None:
    for targets in synthesis.properties(TARGETS):
        assert targets["HealthCheckProtocol"] == "HTTP"
        assert targets["HealthCheckPort"] == "15672"
        assert targets["HealthCheckPath"] == synthesis.environment.health_check_path
        assert targets["Matcher"] == {"HttpCode": "200"}
        seconds_to_find_a_dead_node = targets["HealthCheckIntervalSeconds"] * targets["UnhealthyThresholdCount"]
        assert seconds_to_find_a_dead_node <= 10
        assert targets["HealthCheckTimeoutSeconds"] < targets["HealthCheckIntervalSeconds"]


def test_amqp_connections_outlive_deregistration_but_not_a_dead_node(synthesis: Synthesis) -> None:
    amqp = [targets for targets in synthesis.properties(TARGETS) if targets["Protocol"] in ("TCP", "TLS")]
    assert amqp
    for targets in amqp:
        attributes = {a["Key"]: a["Value"] for a in targets["TargetGroupAttributes"]}
        assert attributes == {
            "deregistration_delay.timeout_seconds": "30",
            "deregistration_delay.connection_termination.enabled": "false",
            "target_health_state.unhealthy.connection_termination.enabled": "true",
            "preserve_client_ip.enabled": "true",
        }


def test_load_balancers_are_protected_as_the_stacks_are_and_cross_zones(synthesis: Synthesis) -> None:
    expected = str(synthesis.environment.protection.termination).lower()
    for balancer in synthesis.properties(BALANCER):
        attributes = {a["Key"]: a["Value"] for a in balancer["LoadBalancerAttributes"]}
        assert attributes["deletion_protection.enabled"] == expected
        assert len(balancer["Subnets"]) == 3
        assert len(balancer["SecurityGroups"]) == 1
        if balancer["Type"] == "network":
            assert attributes["load_balancing.cross_zone.enabled"] == "true"
        else:
            assert attributes["routing.http.drop_invalid_header_fields.enabled"] == "true"


def test_endpoints_are_published_for_the_listeners_that_are_on(synthesis: Synthesis) -> None:
    access = synthesis.environment.access
    published = synthesis.parameters()
    assert ("amqp-endpoint" in published) == access.amqp.plain
    assert ("amqps-endpoint" in published) == access.amqp.tls
    scheme = "https" if access.management.certificate_arn else "http"
    assert f"'{scheme}://" in str(published["management-url"]) or published["management-url"].startswith(scheme + ":")


def test_names_in_a_private_zone_are_what_is_published(everything: Synthesis) -> None:
    published = everything.parameters()
    assert published["amqp-endpoint"] == "amqp://amqp.rabbitmq-local.internal.example.com:5672"
    assert published["amqps-endpoint"] == "amqps://amqp.rabbitmq-local.internal.example.com:5671"
    assert published["management-url"] == "https://management.rabbitmq-local.internal.example.com"
    records = {record["Name"]: record["AliasTarget"] for record in everything.properties("AWS::Route53::RecordSet")}
    assert set(records) == {
        "amqp.rabbitmq-local.internal.example.com.",
        "management.rabbitmq-local.internal.example.com.",
    }
    assert len({str(target["DNSName"]) for target in records.values()}) == 2
    zone = everything.only("AWS::Route53::HostedZone")["Properties"]
    assert len(zone["VPCs"]) == 1


def test_an_existing_private_zone_gets_the_records(tmp_path: Path) -> None:
    zone = {"zone_name": "internal.example.com", "zone_id": "Z0123456789ABCDEFGHIJ"}
    synthesis = synthesise(with_access(load("local"), private_zone=zone), tmp_path)
    records = synthesis.properties("AWS::Route53::RecordSet")
    assert [record["HostedZoneId"] for record in records] == ["Z0123456789ABCDEFGHIJ"] * 2
    assert synthesis.resources("AWS::Route53::HostedZone") == {}


def test_what_operators_and_applications_need_is_published_twice(synthesis: Synthesis) -> None:
    published = synthesis.parameters()
    always = {
        *("management-url", "node-table", "artifact-bucket", "file-system-id", "notification-topic-arn"),
        *("administrator-secret-arn", "monitoring-secret-arn", "federation-secret-arn"),
    }
    assert set(published) - {"amqp-endpoint", "amqps-endpoint"} == always
    camel = {"".join(part.capitalize() for part in name.split("-")): value for name, value in published.items()}
    assert synthesis.outputs() == camel
