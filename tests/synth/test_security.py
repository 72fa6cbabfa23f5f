"""Who may talk to whom, and what a node may do."""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import botocore.session
from botocore import xform_name

from tests.synth.synthesis import PROJECT, Properties, Synthesis, Synthesiser

Rule = tuple[str, str, int, int]
"""Peer, protocol, first and last port."""

NODE = "NodeSecurityGroup"
FILE_SYSTEM = "FileSystemSecurityGroup"
AMQP = "AmqpSecurityGroup"
MANAGEMENT = "ManagementSecurityGroup"
ENDPOINTS = "EndpointSecurityGroup"

BETWEEN_NODES = {
    (NODE, "tcp", 4369, 4369),
    (NODE, "tcp", 25672, 25672),
    (NODE, "tcp", 8300, 8302),
    (NODE, "udp", 8301, 8302),
}
NOTHING = {("255.255.255.255/32", "icmp", 252, 86)}
"""CDK's way to say that a group sends nothing by itself."""


def group_name(reference: Any) -> str:
    """The construct name of a security group that is referred to in its own stack or across stacks."""
    text = str(reference)
    return next(name for name in (NODE, FILE_SYSTEM, AMQP, MANAGEMENT, ENDPOINTS) if name in text)


def rules(synthesis: Synthesis, direction: str) -> dict[str, set[Rule]]:
    """Every rule of one direction, inside groups and beside them, by group."""
    peer = {"Ingress": "SourceSecurityGroupId", "Egress": "DestinationSecurityGroupId"}[direction]
    found: dict[str, set[Rule]] = defaultdict(set)

    def add(group: Any, rule: Properties) -> None:
        who = group_name(rule[peer]) if peer in rule else rule.get("CidrIp") or rule["CidrIpv6"]
        ports = rule.get("FromPort", 0), rule.get("ToPort", 65535)
        found[group_name(group)].add((who, rule["IpProtocol"], *ports))

    for name, group in synthesis.resources("AWS::EC2::SecurityGroup").items():
        for rule in group["Properties"].get(f"SecurityGroup{direction}", []):
            add(name, rule)
    for rule in synthesis.properties(f"AWS::EC2::SecurityGroup{direction}"):
        add(rule["GroupId"], rule)
    return found


def listening(synthesis: Synthesis) -> list[int]:
    amqp = synthesis.environment.access.amqp
    return [port for port, on in ((5672, amqp.plain), (5671, amqp.tls)) if on]


def management_port(synthesis: Synthesis) -> int:
    return 443 if synthesis.environment.access.management.certificate_arn else 80


def test_nodes_let_in_their_peers_and_the_load_balancers_port_by_port(synthesis: Synthesis) -> None:
    from_balancers = {(AMQP, "tcp", port, port) for port in (*listening(synthesis), 15672)}
    from_balancers.add((MANAGEMENT, "tcp", 15672, 15672))
    assert rules(synthesis, "Ingress")[NODE] == BETWEEN_NODES | from_balancers


def test_nodes_reach_their_peers_the_file_system_and_https_only(synthesis: Synthesis) -> None:
    wanted = BETWEEN_NODES | {(FILE_SYSTEM, "tcp", 2049, 2049), ("0.0.0.0/0", "tcp", 443, 443)}
    assert rules(synthesis, "Egress")[NODE] == wanted


def test_only_nodes_reach_the_file_system(synthesis: Synthesis) -> None:
    assert rules(synthesis, "Ingress")[FILE_SYSTEM] == {(NODE, "tcp", 2049, 2049)}
    assert rules(synthesis, "Egress")[FILE_SYSTEM] == NOTHING


def test_load_balancers_let_in_the_allowed_networks_on_their_listeners(synthesis: Synthesis) -> None:
    access = synthesis.environment.access
    ingress, egress = rules(synthesis, "Ingress"), rules(synthesis, "Egress")
    assert ingress[AMQP] == {
        (cidr, "tcp", port, port) for cidr in access.amqp.allowed_cidrs for port in listening(synthesis)
    }
    port = management_port(synthesis)
    assert ingress[MANAGEMENT] == {(cidr, "tcp", port, port) for cidr in access.management.allowed_cidrs}
    assert egress[AMQP] - NOTHING == {(NODE, "tcp", port, port) for port in (*listening(synthesis), 15672)}
    assert egress[MANAGEMENT] - NOTHING == {(NODE, "tcp", 15672, 15672)}


def test_interface_endpoints_answer_the_vpc_only(synthesis: Synthesis) -> None:
    vpc = synthesis.environment.vpc
    cidr = (vpc.create or vpc.import_).cidr  # type: ignore[union-attr]
    assert rules(synthesis, "Ingress")[ENDPOINTS] == ({(cidr, "tcp", 443, 443)} if vpc.endpoints else set())


def test_nothing_is_open_to_the_world(synthesis: Synthesis) -> None:
    world = {"0.0.0.0/0", "::/0"}
    open_groups = {
        group: rule for group, found in rules(synthesis, "Ingress").items() for rule in found if rule[0] in world
    }
    assert open_groups == {}
    balancers = synthesis.properties("AWS::ElasticLoadBalancingV2::LoadBalancer")
    assert {balancer["Scheme"] for balancer in balancers} == {"internal"}


def statements(synthesis: Synthesis) -> Iterator[dict[str, Any]]:
    """The nodes' role, statement by statement."""
    [role] = [
        role
        for role in synthesis.properties("AWS::IAM::Role")
        if "ec2.amazonaws.com" in str(role["AssumeRolePolicyDocument"])
    ]
    assert "ManagedPolicyArns" not in role
    for policy in role["Policies"]:
        yield from policy["PolicyDocument"]["Statement"]


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


WITHOUT_RESOURCES = {
    "ec2:DescribeInstances",
    "elasticloadbalancing:DescribeTargetHealth",
    "ssm:UpdateInstanceInformation",
}
WITHOUT_RESOURCES_PREFIXES = ("ssmmessages:", "ec2messages:")


def test_a_node_may_act_on_everything_only_where_aws_knows_no_resource(synthesis: Synthesis) -> None:
    unnamed = {
        action
        for statement in statements(synthesis)
        if "*" in as_list(statement["Resource"])
        for action in as_list(statement["Action"])
        if not action.startswith(WITHOUT_RESOURCES_PREFIXES)
    }
    assert unnamed == WITHOUT_RESOURCES


def test_no_action_of_a_node_is_a_pattern(synthesis: Synthesis) -> None:
    actions = [action for statement in statements(synthesis) for action in as_list(statement["Action"])]
    assert [action for action in actions if "*" in action] == []
    assert {statement["Effect"] for statement in statements(synthesis)} == {"Allow"}


def test_a_node_mounts_only_through_the_three_access_points(synthesis: Synthesis) -> None:
    [statement] = [s for s in statements(synthesis) if "elasticfilesystem:ClientMount" in as_list(s["Action"])]
    [(operator, condition)] = statement["Condition"].items()
    assert operator == "StringEquals"
    assert len(condition["elasticfilesystem:AccessPointArn"]) == 3


def test_a_node_reads_earlier_bundles_too_because_a_half_rolled_cluster_asks_for_them(synthesis: Synthesis) -> None:
    resources = [
        resource
        for statement in statements(synthesis)
        if as_list(statement["Action"]) == ["s3:GetObject"]
        for resource in as_list(statement["Resource"])
    ]
    environment = synthesis.environment
    bucket = f"cdk-hnb659fds-assets-{environment.account}-{environment.region}"
    assert f"arn:aws:s3:::{bucket}/*.gz" in resources


SERVICE_PREFIXES = {"elbv2": "elasticloadbalancing"}
"""Where IAM has another name for a service than boto3."""

BESIDE_CALLS = {
    "s3:ListBucket",  # tells "not mirrored" from "not allowed"
    *(f"elasticfilesystem:Client{action}" for action in ("Mount", "Write", "RootAccess")),
}


def calls_of_the_node() -> set[str]:
    """The AWS actions that the node's own code calls through boto3."""
    session = botocore.session.get_session()
    actions = {
        xform_name(operation): f"{SERVICE_PREFIXES.get(service, service)}:{operation}"
        for service in ("autoscaling", "cloudformation", "dynamodb", "ec2", "elbv2", "s3", "secretsmanager")
        for operation in session.get_service_model(service).operation_names
    }
    actions["download_file"] = "s3:GetObject"
    sources = [path for path in (PROJECT / "userdata").rglob("*") if path.suffix in (".py", ".sh")]
    called = {name for path in sources for name in re.findall(r"\.(\w+)\(", path.read_text())}
    return {actions[name] for name in called & set(actions)}


def test_a_node_is_granted_what_its_code_calls_and_nothing_else(synthesised: Synthesiser) -> None:
    granted = {action for statement in statements(synthesised("local")) for action in as_list(statement["Action"])}
    own = {action for action in granted if not action.startswith(("ssm:", "ssmmessages:", "ec2messages:"))}
    assert own == calls_of_the_node() | BESIDE_CALLS
