"""What must hold between the fields of an environment. One function a rule, each of them named for what holds."""

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from stacks.findings import Path, Violation

if TYPE_CHECKING:
    from stacks.environment import Environment

EMULATED_ACCOUNT = "123456789012"
"""AWS's documentation account. Nobody can own it, so it marks the emulated AWS."""

ZONES = 3
_LONGEST_HOST_NAME = 63  # RFC 1035: one label of a domain name
_MOST_TAGS = 40  # AWS allows 50 on a resource; the rest is for this project, CDK and CloudFormation
_TLS_IDLE_SECONDS = 350  # fixed by AWS for TLS listeners of a network load balancer


def zones_are_three(environment: "Environment") -> Iterator[Violation]:
    """Three zones: two of them are a majority when one is lost."""
    count = len(environment.availability_zones)
    if count != ZONES:
        yield Violation(
            ("availability_zones",),
            f"{count} zones, and exactly three are needed: each holds one node, and two of three are the majority "
            "that survives the loss of a zone",
            "Name three zones of the region.",
        )


def zones_are_distinct(environment: "Environment") -> Iterator[Violation]:
    """No zone twice: two nodes would be lost with it."""
    zones = environment.availability_zones
    for index, zone in enumerate(zones):
        if zone in zones[:index]:
            yield Violation(
                ("availability_zones", index),
                "repeated: two nodes of one zone are lost together, and the majority with them",
                "Name three different zones.",
            )


def zones_are_of_the_region(environment: "Environment") -> Iterator[Violation]:
    """A zone is the region and one letter. Local zones have no EFS."""
    for index, zone in enumerate(environment.availability_zones):
        if not re.fullmatch(f"{re.escape(environment.region)}[a-z]", zone):
            yield Violation(
                ("availability_zones", index),
                f"not an availability zone of {environment.region}",
                f"Write the region and a letter, such as {environment.region}a; see `aws ec2 "
                "describe-availability-zones`.",
            )


def node_names_are_host_names(environment: "Environment") -> Iterator[Violation]:
    """The cluster's name and the longest zone fit into one label."""
    longest = max((len(zone) for zone in environment.availability_zones), default=0)
    length = len(environment.cluster_name) + 1 + longest
    if length > _LONGEST_HOST_NAME:
        yield Violation(
            ("cluster_name",),
            f"a node is called <cluster_name>-<availability zone>, {length} characters here; a host name has at most "
            f"{_LONGEST_HOST_NAME}",
            f"Shorten it to {_LONGEST_HOST_NAME - 1 - longest} characters.",
        )


def emulation_is_certain(environment: "Environment") -> Iterator[Violation]:
    """The emulated AWS and its account go together, so that neither can be taken for the other."""
    if environment.aws_endpoint is not None and environment.account != EMULATED_ACCOUNT:
        yield Violation(
            ("account",),
            f"with aws_endpoint set, the account must be AWS's documentation account {EMULATED_ACCOUNT}: a file "
            "with a real account must never deploy to an emulator and look as if it were done",
            f'Write account: "{EMULATED_ACCOUNT}", or remove aws_endpoint.',
        )
    if environment.aws_endpoint is None and environment.account == EMULATED_ACCOUNT:
        yield Violation(
            ("account",),
            "this is AWS's documentation account, which nobody owns; it stands for the emulated AWS",
            "Write your own account, or set aws_endpoint: http://localhost:PORT.",
        )


def vpc_is_created_or_imported(environment: "Environment") -> Iterator[Violation]:
    """Exactly one of the two."""
    vpc = environment.vpc
    if (vpc.create is None) == (vpc.import_ is None):
        yield Violation(
            ("vpc",),
            "both create and import are given" if vpc.create else "neither create nor import is given",
            "Keep `create` for a VPC of the cluster's own, or `import` for one that exists.",
        )


def imported_subnets_match_the_zones(environment: "Environment") -> Iterator[Violation]:
    """One subnet for each zone, and no zone without."""
    if environment.vpc.import_ is None:
        return
    at: Path = ("vpc", "import", "subnets")
    subnets, zones = environment.vpc.import_.subnets, environment.availability_zones
    for zone in dict.fromkeys(zones):
        if zone not in subnets:
            yield Violation(at, f"no subnet for {zone}, where a node must live", f"Add `{zone}: subnet-...`.")
    for zone, subnet in subnets.items():
        if zone not in zones:
            yield Violation((*at, zone), "not one of this environment's availability zones", "Remove it.")
        if Counter(subnets.values())[subnet] > 1:
            yield Violation((*at, zone), "used for several zones, but a subnet lies in one", "Name one subnet a zone.")


def nodes_reach_aws(environment: "Environment") -> Iterator[Violation]:
    """Some way to AWS's APIs, and in production one that no single zone takes away."""
    create = environment.vpc.create
    if create is None or environment.vpc.endpoints:
        return
    if create.nat_gateways == 0:
        yield Violation(
            ("vpc", "endpoints"),
            "without NAT gateways and without endpoints no node reaches an AWS API, so none can boot",
            "Set endpoints: true, or nat_gateways to 1 or 3.",
        )
    elif create.nat_gateways == 1 and environment.tier == "production":
        yield Violation(
            ("vpc", "create", "nat_gateways"),
            "without endpoints, the zone of the only NAT gateway takes the other nodes' way to AWS along when it "
            "is lost",
            "Set endpoints: true, or nat_gateways: 3.",
        )


def throughput_has_its_figure(environment: "Environment") -> Iterator[Violation]:
    """A figure with provisioned throughput, and only there."""
    efs = environment.efs
    if efs.throughput_mode == "provisioned" and efs.provisioned_mibps is None:
        yield Violation(
            ("efs", "provisioned_mibps"),
            "provisioned throughput needs its figure",
            "Give MiB/s, 1 to 3414, from measured consumption; 64 carries a small cluster.",
        )
    if efs.throughput_mode != "provisioned" and efs.provisioned_mibps is not None:
        yield Violation(
            ("efs", "provisioned_mibps"),
            f"has no effect with {efs.throughput_mode} throughput",
            "Remove it, or set throughput_mode: provisioned.",
        )


def bursting_is_for_development(environment: "Environment") -> Iterator[Violation]:
    """Bursting credits follow the stored volume, which is small in a broker that works well."""
    if environment.efs.throughput_mode == "bursting" and environment.tier != "development":
        yield Violation(
            ("efs", "throughput_mode"),
            "burst credits follow the stored volume, which a healthy broker keeps small: after days of good "
            "service they run out and publishing stalls",
            "Use provisioned, or elastic while the consumption is unknown.",
        )


def clients_can_connect(environment: "Environment") -> Iterator[Violation]:
    """At least one of the two AMQP listeners."""
    if not environment.access.amqp.plain and not environment.access.amqp.tls:
        yield Violation(
            ("access", "amqp"), "5672 and 5671 are both off: no client can connect", "Set tls: true, or plain: true."
        )


def tls_has_its_certificate(environment: "Environment") -> Iterator[Violation]:
    """TLS and a certificate go together."""
    amqp = environment.access.amqp
    at: Path = ("access", "amqp", "certificate_arn")
    if amqp.tls and amqp.certificate_arn is None:
        yield Violation(
            at, "tls is on, and a TLS listener needs a certificate", "Give the ARN of one, or set tls: false."
        )
    if not amqp.tls and amqp.certificate_arn is not None:
        yield Violation(
            at, "has no effect while tls is off: clients would talk plain AMQP", "Set tls: true, or remove it."
        )


def idle_timeout_has_an_effect(environment: "Environment") -> Iterator[Violation]:
    """AWS fixes the idle timeout of TLS listeners."""
    amqp = environment.access.amqp
    if not amqp.plain and amqp.idle_timeout_seconds != _TLS_IDLE_SECONDS:
        yield Violation(
            ("access", "amqp", "idle_timeout_seconds"),
            f"applies to the plain listener, which is off; AWS fixes a TLS listener's at {_TLS_IDLE_SECONDS} seconds",
            "Remove it.",
        )


def amqp_certificate_is_at_home(environment: "Environment") -> Iterator[Violation]:
    """The AMQP listener's certificate is of the environment's region and account."""
    yield from _at_home(environment, ("access", "amqp", "certificate_arn"), environment.access.amqp.certificate_arn)


def management_certificate_is_at_home(environment: "Environment") -> Iterator[Violation]:
    """The management listener's certificate is of the environment's region and account."""
    arn = environment.access.management.certificate_arn
    yield from _at_home(environment, ("access", "management", "certificate_arn"), arn)


def _at_home(environment: "Environment", at: Path, arn: str | None) -> Iterator[Violation]:
    if arn is None:
        return
    _, _, _, region, account, _ = arn.split(":")
    if region != environment.region:
        yield Violation(
            at,
            f"a certificate of {region}; a load balancer takes only those of its own region, {environment.region}",
            f"Request or import the certificate in {environment.region}.",
        )
    if account != environment.account:
        yield Violation(
            at,
            f"a certificate of account {account}; a load balancer takes only those of its own, {environment.account}",
            "Request or import the certificate in the environment's account.",
        )


def amqp_networks_are_disjoint(environment: "Environment") -> Iterator[Violation]:
    """Each network that may reach AMQP adds something."""
    yield from _disjoint(("access", "amqp", "allowed_cidrs"), environment.access.amqp.allowed_cidrs)


def management_networks_are_disjoint(environment: "Environment") -> Iterator[Violation]:
    """Each network that may reach the management UI adds something."""
    yield from _disjoint(("access", "management", "allowed_cidrs"), environment.access.management.allowed_cidrs)


def _disjoint(at: Path, cidrs: tuple[str, ...]) -> Iterator[Violation]:
    networks = [ipaddress.IPv4Network(cidr) for cidr in cidrs]
    for index, network in enumerate(networks):
        other = next((other for other in networks[:index] if other.overlaps(network)), None)
        if other is not None:
            yield Violation(
                (*at, index),
                f"overlaps {other} of the same list: taking one of them out would not close what it names",
                "Keep the wider one, or make them disjoint.",
            )


def tags_are_few_and_distinct(environment: "Environment") -> Iterator[Violation]:
    """Within AWS's limits, and not told apart by case only, which IAM does not do."""
    if len(environment.tags) > _MOST_TAGS:
        yield Violation(
            ("tags",),
            f"{len(environment.tags)} tags; AWS allows 50 on a resource, and the project needs some of them",
            f"Keep at most {_MOST_TAGS}.",
        )
    seen: dict[str, str] = {}
    for key in environment.tags:
        first = seen.setdefault(key.lower(), key)
        if first != key:
            yield Violation(("tags", key), f"IAM takes this for the same key as {first}", "Keep one of them.")


ENVIRONMENT_RULES = (
    zones_are_three,
    zones_are_distinct,
    zones_are_of_the_region,
    node_names_are_host_names,
    emulation_is_certain,
    vpc_is_created_or_imported,
    imported_subnets_match_the_zones,
    nodes_reach_aws,
    throughput_has_its_figure,
    bursting_is_for_development,
    clients_can_connect,
    tls_has_its_certificate,
    idle_timeout_has_an_effect,
    amqp_certificate_is_at_home,
    management_certificate_is_at_home,
    amqp_networks_are_disjoint,
    management_networks_are_disjoint,
    tags_are_few_and_distinct,
)
