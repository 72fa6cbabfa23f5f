"""Exactly three zones, room for NAT gateways later, and endpoints for what boot calls."""

import ipaddress
from pathlib import Path
from typing import Any

import pytest

from stacks.environment import Environment
from tests.synth.synthesis import Synthesis, load, synthesise


def node_subnets(synthesis: Synthesis) -> dict[str, str]:
    """Zone to CIDR of the nodes' subnets."""
    return {
        subnet["AvailabilityZone"]: subnet["CidrBlock"]
        for subnet in synthesis.properties("AWS::EC2::Subnet")
        if {"Key": "aws-cdk:subnet-name", "Value": "Node"} in subnet["Tags"]
    }


def with_vpc(environment: Environment, vpc: dict[str, Any]) -> Environment:
    document = environment.model_dump(mode="python", by_alias=True)
    return Environment.model_validate({**document, "vpc": vpc})


def test_nodes_live_in_exactly_the_three_zones_of_the_environment(synthesis: Synthesis) -> None:
    groups = synthesis.properties("AWS::AutoScaling::AutoScalingGroup")
    assert [len(group["VPCZoneIdentifier"]) for group in groups] == [1, 1, 1]
    if synthesis.environment.vpc.create:
        assert list(node_subnets(synthesis)) == list(synthesis.environment.availability_zones)
    assert len({str(group["VPCZoneIdentifier"]) for group in groups}) == 3


def test_synthesis_looks_nothing_up(synthesis: Synthesis) -> None:
    assert synthesis.manifest.get("missing", []) == []


@pytest.mark.parametrize("nat_gateways", [0, 1, 3])
def test_nat_gateways_come_and_go_without_moving_the_nodes(nat_gateways: int, tmp_path: Path) -> None:
    environment = with_vpc(load("local"), {"create": {"cidr": "10.77.0.0/16", "nat_gateways": nat_gateways}})
    synthesis = synthesise(environment, tmp_path)
    assert node_subnets(synthesis) == {
        "eu-west-1a": "10.77.0.0/18",
        "eu-west-1b": "10.77.64.0/18",
        "eu-west-1c": "10.77.128.0/18",
    }
    assert len(synthesis.resources("AWS::EC2::NatGateway")) == nat_gateways
    networks = [ipaddress.ip_network(subnet["CidrBlock"]) for subnet in synthesis.properties("AWS::EC2::Subnet")]
    assert len(networks) == (6 if nat_gateways else 3)
    assert not any(a.overlaps(b) for a in networks for b in networks if a is not b)


def test_no_subnet_hands_out_public_addresses(synthesis: Synthesis) -> None:
    assert [s for s in synthesis.properties("AWS::EC2::Subnet") if s["MapPublicIpOnLaunch"]] == []


def test_boot_reaches_every_api_it_calls_without_an_internet_path(synthesis: Synthesis) -> None:
    region = synthesis.environment.region
    interfaces = {
        endpoint["ServiceName"].removeprefix(f"com.amazonaws.{region}.")
        for endpoint in synthesis.properties("AWS::EC2::VPCEndpoint")
        if endpoint["VpcEndpointType"] == "Interface" and endpoint["PrivateDnsEnabled"]
    }
    wanted = {
        *("ec2", "autoscaling", "cloudformation", "elasticloadbalancing", "secretsmanager"),
        *("ssm", "ssmmessages", "ec2messages"),
    }
    assert interfaces == (wanted if synthesis.environment.vpc.endpoints else set())
    gateways = [e for e in synthesis.properties("AWS::EC2::VPCEndpoint") if e["VpcEndpointType"] == "Gateway"]
    assert len(gateways) == (2 if synthesis.environment.vpc.endpoints and synthesis.environment.vpc.create else 0)
    assert all(len(gateway["RouteTableIds"]) == 3 for gateway in gateways)


def test_an_imported_vpc_is_used_and_not_changed(tmp_path: Path) -> None:
    zones = load("local").availability_zones
    subnets = {zone: f"subnet-0123456789abcdef{index}" for index, zone in enumerate(reversed(zones))}
    environment = with_vpc(
        load("local"), {"import": {"id": "vpc-0123456789abcdef0", "cidr": "10.1.0.0/16", "subnets": subnets}}
    )
    synthesis = synthesise(environment, tmp_path)
    created = {resource["Type"] for resource in synthesis.templates["network"]["Resources"].values()}
    assert created == {"AWS::EC2::SecurityGroup", "AWS::EC2::VPCEndpoint"}
    groups = synthesis.properties("AWS::AutoScaling::AutoScalingGroup")
    by_name = {group["AutoScalingGroupName"]: group["VPCZoneIdentifier"] for group in groups}
    assert by_name == {node.name: [subnets[node.availability_zone]] for node in environment.nodes}
