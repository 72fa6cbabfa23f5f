"""The environment model refuses each wrong input, for its own reason, and accepts what is in the repository."""

from pathlib import Path
from typing import Any

import pytest

from stacks.environment import Environment, NodeIdentity
from stacks.instance_types import INSTANCE_TYPES
from tests.unit.environment_files import ENVIRONMENTS, REMOVED, Changes, assert_only, findings, load

ARN = "arn:aws:acm:eu-west-1:111122223333:certificate/11111111-2222-3333-4444-555555555555"
SUBNETS = {f"eu-west-1{letter}": f"subnet-0000000{letter}" for letter in "abc"}


def imported(subnets: dict[str, str]) -> dict[str, Any]:
    return {"id": "vpc-0123456789abcdef0", "cidr": "10.20.0.0/16", "subnets": subnets}


def wrong(sentence: str, changes: Changes, field: str, reason: str, name: str = "production") -> Any:
    return pytest.param(name, changes, field, reason, id=sentence)


@pytest.mark.parametrize("name", ["local", "development", "staging", "production"])
def test_every_environment_in_the_repository_is_sound(name: str) -> None:
    environment = Environment.load(name, ENVIRONMENTS)
    assert environment.name == name
    assert len(environment.nodes) == 3


SINGLE_FIELDS = [
    wrong("a tier nobody knows", {"tier": "prod"}, "tier", "not one of"),
    wrong("a capital letter in the cluster's name", {"cluster_name": "Rabbit"}, "cluster_name", "host names are made"),
    wrong("an underscore in the cluster's name", {"cluster_name": "rabbit_mq"}, "cluster_name", "host names are made"),
    wrong(
        "a hyphen at the end of the cluster's name", {"cluster_name": "rabbit-"}, "cluster_name", "host names are made"
    ),
    wrong("an account of eleven digits", {"account": "11112222333"}, "account", "12 digits"),
    wrong("an account without quotes", {"account": 111122223333}, "account", "without quotes this is a number"),
    wrong("a region that is a zone", {"region": "eu-west-1a"}, "region", "not the name of an AWS region"),
    wrong("no availability zones", {"availability_zones": REMOVED}, "availability_zones", "missing"),
    wrong(
        "one zone instead of a list", {"availability_zones": "eu-west-1a"}, "availability_zones", "a list is expected"
    ),
    wrong("a VPC of public addresses", {"vpc.create.cidr": "52.0.0.0/20"}, "vpc.create.cidr", "public addresses"),
    wrong("a VPC too small for its subnets", {"vpc.create.cidr": "10.20.0.0/25"}, "vpc.create.cidr", "16 to 24"),
    wrong("a VPC wider than AWS allows", {"vpc.create.cidr": "10.0.0.0/15"}, "vpc.create.cidr", "16 to 24"),
    wrong("a network with host bits", {"vpc.create.cidr": "10.20.0.1/20"}, "vpc.create.cidr", "host bits"),
    wrong("a network without a prefix", {"vpc.create.cidr": "10.20.0.0"}, "vpc.create.cidr", "needs its prefix length"),
    wrong("two NAT gateways", {"vpc.create.nat_gateways": 2}, "vpc.create.nat_gateways", "not one of"),
    wrong("a text where true or false belongs", {"vpc.endpoints": "yes"}, "vpc.endpoints", "true or false is expected"),
    wrong("a section that is a text", {"efs": "elastic"}, "efs", "a mapping of keys to values is expected"),
    wrong("an instance type nobody knows", {"instance.type": "m99x.large"}, "instance.type", "not a type this project"),
    wrong("a size the family does not have", {"instance.type": "m7g.nano"}, "instance.type", "no size 'nano'"),
    wrong("a root volume too small", {"instance.root_volume_gib": 8}, "instance.root_volume_gib", "least allowed, 10"),
    wrong("a root volume too large", {"instance.root_volume_gib": 2000}, "instance.root_volume_gib", "allowed, 1000"),
    wrong("a size with a fraction", {"instance.root_volume_gib": 30.5}, "instance.root_volume_gib", "whole number"),
    wrong("an image that is none", {"instance.ami": "al2023"}, "instance.ami", "not an AMI id"),
    wrong("no throughput at all", {"efs.provisioned_mibps": 0}, "efs.provisioned_mibps", "least allowed, 1"),
    wrong("more throughput than AWS sells", {"efs.provisioned_mibps": 3415}, "efs.provisioned_mibps", "allowed, 3414"),
    wrong("a throughput mode nobody knows", {"efs.throughput_mode": "fast"}, "efs.throughput_mode", "not one of"),
    wrong(
        "a certificate that is an id only",
        {"access.amqp.certificate_arn": "11111111-2222-3333-4444-555555555555"},
        "access.amqp.certificate_arn",
        "not the ARN of a certificate",
    ),
    wrong(
        "a delay that no exchange can do",
        {"messaging": {"longest_delay_days": 50}},
        "messaging.longest_delay_days",
        "49",
    ),
    wrong(
        "an inbox that forgets within 8 days",
        {"messaging": {"longest_delay_days": 6}},
        "messaging.longest_delay_days",
        "7",
    ),
    wrong("no time to replay dead letters", {"messaging": {"replay_days": 0}}, "messaging.replay_days", "allowed, 1"),
    wrong("nobody may connect", {"access.amqp.allowed_cidrs": []}, "access.amqp.allowed_cidrs", "must not be empty"),
    wrong("an IPv6 network", {"access.amqp.allowed_cidrs.1": "::/0"}, "access.amqp.allowed_cidrs[1]", "IPv4 only"),
    wrong("a network of words", {"access.amqp.allowed_cidrs.1": "office/24"}, "access.amqp.allowed_cidrs[1]", "not an"),
    wrong(
        "a zone of one label",
        {"access.private_zone.zone_name": "internal"},
        "access.private_zone.zone_name",
        "not a domain name",
    ),
    wrong(
        "a zone id with its path",
        {"access.private_zone.zone_id": "/hostedzone/Z1"},
        "access.private_zone.zone_id",
        "not a",
    ),
    wrong("a queue without a limit", {"queues.max_length": 0}, "queues.max_length", "least allowed, 1000"),
    wrong(
        "a queue of a few bytes", {"queues.max_length_bytes": 1}, "queues.max_length_bytes", "least allowed, 1048576"
    ),
    wrong("endless deliveries", {"queues.delivery_limit": -1}, "queues.delivery_limit", "least allowed, 1"),
    wrong(
        "an e-mail address without a domain",
        {"alarms.recipients": ["me@home"]},
        "alarms.recipients[0]",
        "not an e-mail",
    ),
    wrong(
        "two addresses in one text", {"alarms.recipients": ["a@b.de, c@d.de"]}, "alarms.recipients[0]", "not an e-mail"
    ),
    wrong("a tag key of AWS's", {"tags": {"aws:team": "x"}}, 'tags["aws:team"]', "AWS keeps tag keys"),
    wrong("a tag key of this project's", {"tags": {"rabbitmq-node": "x"}}, "tags.rabbitmq-node", "set by the project"),
    wrong("the tag that names nodes", {"tags": {"Name": "x"}}, "tags.Name", "set by the project"),
    wrong("a tag key with a semicolon", {"tags": {"a;b": "x"}}, 'tags["a;b"]', "a tag key has"),
    wrong("a tag key too long", {"tags": {"k" * 129: "x"}}, "tags." + "k" * 129, "1 to 128"),
    wrong("a tag value too long", {"tags": {"team": "x" * 257}}, "tags.team", "at most 256"),
    wrong("a tag value with a bracket", {"tags": {"team": "a<b"}}, "tags.team", "at most 256 letters"),
    wrong("a tag value that is a number", {"tags": {"cost-centre": 17}}, "tags.cost-centre", "without quotes"),
    wrong(
        "an emulated AWS on another machine",
        {"aws_endpoint": "http://10.0.0.5:4566"},
        "aws_endpoint",
        "loopback only",
        name="local",
    ),
    wrong(
        "an emulated AWS without a port",
        {"aws_endpoint": "http://localhost"},
        "aws_endpoint",
        "loopback",
        name="local",
    ),
]

ANY_TIER = [
    wrong("two zones", {"availability_zones": ["eu-west-1a", "eu-west-1b"]}, "availability_zones", "exactly three"),
    wrong(
        "four zones",
        {"availability_zones": [f"eu-west-1{letter}" for letter in "abcd"]},
        "availability_zones",
        "exactly three",
    ),
    wrong(
        "a zone of another region", {"availability_zones.2": "eu-west-2c"}, "availability_zones[2]", "zone of eu-west-1"
    ),
    wrong("a local zone", {"availability_zones.2": "eu-west-1-lon-1a"}, "availability_zones[2]", "zone of eu-west-1"),
    wrong("a zone that is only the region", {"availability_zones.2": "eu-west-1"}, "availability_zones[2]", "zone of"),
    wrong("a zone twice", {"availability_zones.2": "eu-west-1a"}, "availability_zones[2]", "repeated"),
    wrong(
        "a cluster's name too long for a host name", {"cluster_name": "r" * 53}, "cluster_name", "64 characters here"
    ),
    wrong("create and import at once", {"vpc.import": imported(SUBNETS)}, "vpc", "both create and import"),
    wrong("neither create nor import", {"vpc.create": REMOVED}, "vpc", "neither create nor import"),
    wrong(
        "an imported VPC without a subnet for one zone",
        {"vpc": {"import": imported({zone: id for zone, id in SUBNETS.items() if zone != "eu-west-1b"})}},
        "vpc.import.subnets",
        "no subnet for eu-west-1b",
    ),
    wrong(
        "an imported subnet in a zone without a node",
        {"vpc": {"import": imported({**SUBNETS, "eu-west-1d": "subnet-0000000d"})}},
        "vpc.import.subnets.eu-west-1d",
        "not one of this environment's",
    ),
    wrong(
        "a subnet that is none",
        {"vpc": {"import": imported({**SUBNETS, "eu-west-1c": "subnet-c"})}},
        "vpc.import.subnets.eu-west-1c",
        "not a subnet id",
    ),
    wrong(
        "no way to AWS at all",
        {"vpc.endpoints": False, "vpc.create.nat_gateways": 0},
        "vpc.endpoints",
        "no node reaches",
    ),
    wrong(
        "provisioned without a figure", {"efs.provisioned_mibps": REMOVED}, "efs.provisioned_mibps", "needs its figure"
    ),
    wrong("a figure without provisioned", {"efs.throughput_mode": "elastic"}, "efs.provisioned_mibps", "no effect"),
    wrong(
        "bursting in production",
        {"efs.throughput_mode": "bursting", "efs.provisioned_mibps": REMOVED},
        "efs.throughput_mode",
        "burst credits",
    ),
    wrong(
        "bursting in staging",
        {"efs.throughput_mode": "bursting", "efs.provisioned_mibps": REMOVED},
        "efs.throughput_mode",
        "burst credits",
        name="staging",
    ),
    wrong("no way in for clients", {"access.amqp.plain": False}, "access.amqp", "both off", name="development"),
    wrong(
        "TLS without a certificate",
        {"access.amqp.tls": True},
        "access.amqp.certificate_arn",
        "needs",
        name="development",
    ),
    wrong(
        "a certificate without TLS",
        {"access.amqp.certificate_arn": ARN.replace("111122223333", "777788889999")},
        "access.amqp.certificate_arn",
        "no effect while tls is off",
        name="development",
    ),
    wrong(
        "an idle timeout that AWS fixes",
        {"access.amqp.idle_timeout_seconds": 600},
        "access.amqp.idle_timeout_seconds",
        "plain listener, which is off",
    ),
    wrong(
        "a certificate of another region",
        {"access.amqp.certificate_arn": ARN.replace("eu-west-1", "us-east-1")},
        "access.amqp.certificate_arn",
        "a certificate of us-east-1",
    ),
    wrong(
        "a certificate of another account",
        {"access.management.certificate_arn": ARN.replace("111122223333", "999988887777")},
        "access.management.certificate_arn",
        "a certificate of account 999988887777",
    ),
    wrong(
        "management open to the world",
        {"access.management.allowed_cidrs": ["0.0.0.0/0"]},
        "access.management.allowed_cidrs[0]",
        "never open to public addresses",
        name="development",
    ),
    wrong(
        "management open to one public address",
        {"access.management.allowed_cidrs": ["203.0.113.7/32"]},
        "access.management.allowed_cidrs[0]",
        "remote code execution",
        name="local",
    ),
    wrong(
        "a network inside another one",
        {"access.amqp.allowed_cidrs.1": "10.20.1.0/24"},
        "access.amqp.allowed_cidrs[1]",
        "overlaps 10.20.0.0/20",
    ),
    wrong(
        "a management network twice",
        {"access.management.allowed_cidrs": ["10.20.0.0/20", "10.20.0.0/20"]},
        "access.management.allowed_cidrs[1]",
        "overlaps 10.20.0.0/20",
    ),
    wrong("two tags that differ by case only", {"tags": {"team": "a", "Team": "b"}}, "tags.Team", "same key as team"),
    wrong("more tags than AWS allows", {"tags": {f"tag-{n}": "x" for n in range(41)}}, "tags", "41 tags"),
    wrong(
        "a real account on an emulator",
        {"aws_endpoint": "http://localhost:4566"},
        "account",
        "must never deploy",
        name="staging",
    ),
    wrong(
        "the emulator's account on the real AWS",
        {"account": "123456789012"},
        "account",
        "nobody owns",
        name="development",
    ),
]

PRODUCTION = [
    wrong("plain AMQP beside TLS", {"access.amqp.plain": True}, "access.amqp.plain", "production: as long as"),
    wrong(
        "AMQP open to the world",
        {"access.amqp.allowed_cidrs": ["0.0.0.0/0"]},
        "access.amqp.allowed_cidrs[0]",
        "internet",
    ),
    wrong(
        "AMQP open to one half of the world",
        {"access.amqp.allowed_cidrs": ["128.0.0.0/1"]},
        "access.amqp.allowed_cidrs[0]",
        "the internet, or a large part",
    ),
    wrong(
        "management without a certificate",
        {"access.management.certificate_arn": None},
        "access.management.certificate_arn",
        "production: without a certificate",
    ),
    wrong("no backups", {"efs.backups": False}, "efs.backups", "production: deleted or damaged"),
    wrong("no termination protection", {"protection.termination": False}, "protection.termination", "production: one"),
    wrong(
        "data that goes with its stack", {"protection.retain_data": False}, "protection.retain_data", "production: all"
    ),
    wrong("nobody hears of alarms", {"alarms": REMOVED}, "alarms.recipients", "production: nobody"),
    wrong("a burstable instance", {"instance.type": "t4g.large"}, "instance.type", "production: processor and network"),
    wrong(
        "one NAT gateway and no endpoints",
        {"vpc.create.nat_gateways": 1, "vpc.endpoints": False},
        "vpc.create.nat_gateways",
        "the zone of the only NAT gateway",
    ),
    wrong(
        "a plugin that may be missing",
        {"versions.delayed_plugin.required": False},
        "versions.delayed_plugin.required",
        "production: a node that boots",
    ),
]


@pytest.mark.parametrize(("name", "changes", "field", "reason"), SINGLE_FIELDS)
def test_a_wrong_value_is_refused(tmp_path: Path, name: str, changes: Changes, field: str, reason: str) -> None:
    assert_only(findings(tmp_path, name, changes), field, reason)


@pytest.mark.parametrize(("name", "changes", "field", "reason"), ANY_TIER)
def test_a_contradiction_is_refused(tmp_path: Path, name: str, changes: Changes, field: str, reason: str) -> None:
    assert_only(findings(tmp_path, name, changes), field, reason)


@pytest.mark.parametrize(("name", "changes", "field", "reason"), PRODUCTION)
def test_production_is_strict(tmp_path: Path, name: str, changes: Changes, field: str, reason: str) -> None:
    assert_only(findings(tmp_path, name, changes), field, reason)


def test_production_without_any_tls_is_told_of_both_listeners(tmp_path: Path) -> None:
    found = findings(tmp_path, "production", {"access.amqp.tls": False, "access.amqp.plain": True})
    assert [finding.field for finding in found] == [
        "access.amqp.certificate_arn",
        "access.amqp.plain",
        "access.amqp.tls",
    ]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        pytest.param("production", {"cluster_name": "r" * 52}, id="a host name of exactly 63 characters"),
        pytest.param("production", {"vpc": {"import": imported(SUBNETS)}}, id="an imported VPC"),
        pytest.param(
            "production",
            {"vpc": {"import": imported(SUBNETS), "endpoints": False}},
            id="an imported VPC's own endpoints",
        ),
        pytest.param("production", {"vpc.create.cidr": "100.64.0.0/24"}, id="the smallest VPC, of shared addresses"),
        pytest.param("production", {"efs.provisioned_mibps": 3414}, id="the most throughput"),
        pytest.param("development", {"efs.throughput_mode": "bursting"}, id="bursting in development"),
        pytest.param("development", {"access.amqp.allowed_cidrs": ["0.0.0.0/0"]}, id="AMQP for all in development"),
        pytest.param(
            "development", {"tags": {"kosten/stelle": "Größe 1"}}, id="tags with a slash, a space and an umlaut"
        ),
    ],
)
def test_what_is_allowed_is_accepted(tmp_path: Path, name: str, changes: Changes) -> None:
    load(tmp_path, name, changes)


def test_nodes_are_named_after_cluster_and_zone_in_the_order_of_the_zones() -> None:
    local = Environment.load("local", ENVIRONMENTS)
    assert local.nodes[2] == NodeIdentity("rabbitmq-local-eu-west-1c", "eu-west-1c")
    assert local.node_names == {zone: f"rabbitmq-local-{zone}" for zone in local.availability_zones}
    assert local.stack_name("storage") == "rabbitmq-local-storage"


def test_only_the_local_environment_is_emulated() -> None:
    assert Environment.load("local", ENVIRONMENTS).is_emulated
    assert not Environment.load("production", ENVIRONMENTS).is_emulated


def test_the_architecture_follows_from_the_instance_type() -> None:
    assert Environment.load("local", ENVIRONMENTS).architecture == "x86_64"
    assert Environment.load("production", ENVIRONMENTS).architecture == "arm64"


def test_an_environment_cannot_be_changed() -> None:
    local = Environment.load("local", ENVIRONMENTS)
    with pytest.raises(ValueError, match="frozen"):
        local.region = "eu-west-2"


def test_every_instance_type_exists_in_ec2() -> None:
    from typing import get_args

    from mypy_boto3_ec2.literals import InstanceTypeType

    assert set(INSTANCE_TYPES) <= set(get_args(InstanceTypeType))


def test_tables_for_messaging_are_off_unless_asked_for_and_remember_a_fortnight_by_default(tmp_path: Path) -> None:
    assert load(tmp_path, "production", {}).messaging is None
    asked = load(tmp_path, "production", {"messaging": {}}).messaging
    assert asked is not None
    assert asked.keep_days == 14
