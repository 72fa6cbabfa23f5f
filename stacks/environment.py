"""One deployment: the typed model of `environments/NAME.yaml`, checked whole before anything is synthesised.

python -m stacks.environment check ENV...     exit code 0, or 2 with every problem found
python -m stacks.environment schema           the JSON Schema, for editors
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from stacks.environment_file import load
from stacks.environment_rules import EMULATED_ACCOUNT, ENVIRONMENT_RULES, ZONES
from stacks.fields import (
    Account,
    AmiId,
    AsTuple,
    CertificateArn,
    Cidr,
    DomainName,
    EmailAddress,
    LoopbackEndpoint,
    PrivateCidr,
    Region,
    Section,
    Shape,
    SubnetId,
    TagKey,
    TagValue,
    VpcCidr,
    VpcId,
    ZoneId,
)
from stacks.findings import EnvironmentErrors, Finding
from stacks.instance_types import INSTANCE_TYPES, Architecture, InstanceType
from stacks.production_rules import PRODUCTION_RULES
from stacks.version_rules import VERSION_RULES
from stacks.versions import Versions, numbers

__all__ = ["EMULATED_ACCOUNT", "Environment", "EnvironmentErrors", "Finding", "NodeIdentity", "StackKind"]

StackKind = Literal["network", "storage", "cluster", "access", "observability", "messaging"]

_READINESS_CHECK_SINCE = (4, 1, 1)  # rabbitmq-server pull request 13879


@dataclass(frozen=True)
class NodeIdentity:
    """A node's name, which host, RabbitMQ, Consul and Auto Scaling group share, and the zone it lives in."""

    name: str
    availability_zone: str


class VpcCreate(Section):
    """A VPC of the cluster's own."""

    cidr: VpcCidr = Field(
        description="IPv4 network of the VPC: private, prefix length 16 to 24. A quarter of it goes to each zone's "
        "private subnet, a sixteenth to each public one."
    )
    nat_gateways: Literal[0, 1, 3] = Field(
        default=0,
        description="Number of NAT gateways, the nodes' way to the internet: 0 (none; endpoints carry what boot "
        "needs), 1 (lost with its zone) or 3 (one a zone).",
    )


class VpcImport(Section):
    """A VPC that exists already. Synthesis looks nothing up, so what it must know stands here."""

    id: VpcId = Field(description="Id of the VPC: vpc- and 8 or 17 hexadecimal digits.")
    subnets: dict[str, SubnetId] = Field(
        description="Private subnet of each availability zone, zone to subnet id: nodes, mount targets and load "
        "balancers."
    )
    cidr: VpcCidr = Field(description="IPv4 network of that VPC, prefix length 16 to 24: the endpoints let it in.")


class Vpc(Section):
    """The network: exactly one of `create` and `import`."""

    create: VpcCreate | None = Field(default=None, description="Create a VPC. Either this or `import`.")
    import_: VpcImport | None = Field(
        default=None, alias="import", description="Use a VPC that exists. Either this or `create`."
    )
    endpoints: bool = Field(
        default=True,
        description="Whether to create the VPC endpoints of the AWS APIs that nodes call, so that boot needs no "
        "way to the internet. False where an imported VPC has them.",
    )


class Instance(Section):
    """The machines of the three nodes, all alike."""

    type: InstanceType = Field(
        description="EC2 instance type, 2 GiB of memory or more; the processor architecture follows from it. No "
        "burstable type in production: throughput falls when credits run out."
    )
    root_volume_gib: int = Field(
        default=30,
        ge=10,
        le=1000,
        description="Root volume (gp3, encrypted) in GiB, 10 to 1000: system, programs and logs. Data is on EFS.",
    )
    ami: AmiId | None = Field(
        default=None,
        description="Id of an Amazon Linux 2023 image to pin, of the type's architecture. Left out, the current "
        "one is used.",
    )

    @property
    def architecture(self) -> Architecture:
        """The processor architecture of `type`."""
        return INSTANCE_TYPES[self.type]


class Efs(Section):
    """The file system that outlives every instance."""

    throughput_mode: Literal["provisioned", "elastic", "bursting"] = Field(
        description="How throughput is granted. provisioned: a fixed figure, the steady choice. elastic: by use, "
        "for unknown loads. bursting: by stored volume, which a healthy broker keeps small; refused outside "
        "development."
    )
    provisioned_mibps: int | None = Field(
        default=None,
        ge=1,
        le=3414,
        description="Throughput in MiB/s, 1 to 3414, with `provisioned` only. Writes count in full, reads a third. "
        "AWS lets it be lowered once in 24 hours. About 6 USD a month for each MiB/s.",
    )
    backups: bool = Field(
        default=True, description="Whether AWS Backup copies the file system daily. Always in production."
    )


class Amqp(Section):
    """The clients' way in: a network load balancer."""

    plain: bool = Field(description="Whether port 5672 listens, without TLS. Never in production.")
    tls: bool = Field(
        description="Whether port 5671 listens, with TLS that ends at the load balancer. Always in production."
    )
    certificate_arn: CertificateArn | None = Field(
        default=None,
        description="Certificate of port 5671 (ACM, of this region and account). Given if and only if `tls`.",
    )
    allowed_cidrs: Annotated[tuple[Cidr, ...], AsTuple] = Field(
        min_length=1, description="IPv4 networks, at least one, from which clients may connect; disjoint."
    )
    idle_timeout_seconds: int = Field(
        default=350,
        ge=60,
        le=6000,
        description="Seconds, 60 to 6000, after which port 5672 forgets a silent connection. Heartbeats (60 s) "
        "must fit in. Port 5671 always has 350, which AWS fixes.",
    )


class Management(Section):
    """The operators' way in: an application load balancer for management UI and HTTP API."""

    certificate_arn: CertificateArn | None = Field(
        default=None,
        description="Certificate (ACM, of this region and account). With it HTTPS on 443, without it HTTP on 80; "
        "required in production.",
    )
    allowed_cidrs: Annotated[tuple[PrivateCidr, ...], AsTuple] = Field(
        min_length=1, description="Private IPv4 networks, at least one, from which operators may connect; disjoint."
    )


class PrivateZone(Section):
    """Names of one's own for both load balancers: amqp.CLUSTER.ZONE and management.CLUSTER.ZONE."""

    zone_name: DomainName = Field(description="Domain of the private hosted zone, two labels or more, lower case.")
    zone_id: ZoneId | None = Field(
        default=None, description="Id of an existing private zone. Left out, one is created."
    )


class Access(Section):
    """The two load balancers and their names."""

    amqp: Amqp = Field(description="AMQP for clients.")
    management: Management = Field(description="Management UI and HTTP API for operators.")
    private_zone: PrivateZone | None = Field(
        default=None, description="Private DNS zone for names of one's own. Left out, clients use AWS's names."
    )


class Queues(Section):
    """Caps that a policy sets on every queue. EFS never runs full, so RabbitMQ's disk alarm cannot do this work."""

    max_length: int = Field(
        default=1_000_000,
        ge=1_000,
        le=100_000_000,
        description="Messages in one queue, 1,000 to 100,000,000. Publishers are refused above it: a forgotten "
        "queue must not fill anything.",
    )
    max_length_bytes: int = Field(
        default=10 * 1024**3,
        ge=1024**2,
        le=1024**4,
        description="Bytes of message bodies in one queue, 1 MiB to 1 TiB. Whichever of the two caps is met first "
        "counts.",
    )
    delivery_limit: int = Field(
        default=20,
        ge=1,
        le=1_000,
        description="Deliveries of one message, 1 to 1,000, before it is dead-lettered, so that a message which "
        "kills its consumer does not do so for ever. RabbitMQ's own default since 4.0 is 20.",
    )


class Alarms(Section):
    """Who hears of alarms."""

    recipients: Annotated[tuple[EmailAddress, ...], AsTuple] = Field(
        default=(),
        description="E-mail addresses, each of which gets a message to confirm first. At least one in production.",
    )


class Messaging(Section):
    """Tables for applications whose messages take effect once: inbox, outbox, versioned records."""

    longest_delay_days: int = Field(
        default=7,
        ge=7,
        le=49,
        description="Days, 7 to 49: the longest delay of a message in use, for a copy of it may come that late. 49 is "
        "the most that a delayed exchange can do.",
    )
    replay_days: int = Field(
        default=7,
        ge=1,
        le=90,
        description="Days, 1 to 90, within which dead letters are replayed. With the delay, it is how long inboxes "
        "remember: at least 8 days, because a copy that comes later takes effect again.",
    )

    @property
    def keep_days(self) -> int:
        """How long inboxes remember a message."""
        return self.longest_delay_days + self.replay_days


class Protection(Section):
    """What stands between a mistake and the loss of the cluster. Both are required in production."""

    termination: bool = Field(default=True, description="Whether stacks and load balancers refuse to be deleted.")
    retain_data: bool = Field(
        default=True, description="Whether file system, keys and tables stay when their stack is deleted."
    )


class Environment(Section):
    """One deployment of the cluster."""

    name: Annotated[
        str,
        Shape(
            r"[a-z]([a-z0-9-]*[a-z0-9])?",
            "not lower-case letters, digits and hyphens",
            "Write it like the file's name.",
        ),
    ] = Field(description="The file's name without .yaml, so that a copied file cannot deploy over its original.")
    tier: Literal["development", "staging", "production"] = Field(
        description="How strict the rules are. production: TLS only, backups, protection, alarms, steady capacity."
    )
    cluster_name: Annotated[
        str,
        Shape(
            r"[a-z]([a-z0-9-]*[a-z0-9])?",
            "host names are made of it: a lower-case letter first, then lower-case letters, digits and hyphens, "
            "none at the end",
            "Write it like rabbitmq-orders.",
        ),
    ] = Field(
        description="Name of the cluster. Nodes are called CLUSTER-ZONE, at most 63 characters, and never change "
        "their name: RabbitMQ ties data to it."
    )
    account: Account = Field(
        description="AWS account, 12 digits in quotes. AWS's documentation account 123456789012 stands for an "
        "emulated AWS."
    )
    region: Region = Field(description="AWS region, such as eu-west-1.")
    aws_endpoint: LoopbackEndpoint | None = Field(
        default=None,
        description="An emulated AWS, http://localhost:PORT. Given if and only if the account is 123456789012.",
    )
    availability_zones: Annotated[tuple[str, ...], AsTuple] = Field(
        description="The three zones of the region that get a node each. Two of three are a majority when one is lost.",
        json_schema_extra={"minItems": ZONES, "maxItems": ZONES, "uniqueItems": True},
    )
    vpc: Vpc = Field(description="The network.")
    instance: Instance = Field(description="The nodes' machines.")
    versions: Versions = Field(description="The version profile: what is installed on every node.")
    efs: Efs = Field(description="The file system that holds all data.")
    access: Access = Field(description="How clients and operators come in.")
    queues: Queues = Field(default_factory=Queues, description="Caps on every queue.")
    alarms: Alarms = Field(default_factory=Alarms, description="Where alarms are sent.")
    messaging: Messaging | None = Field(
        default=None,
        description="Tables for messages that take effect once (docs/messaging.md). Left out, there are none: "
        "applications may as well keep them in stacks of their own. `{}` creates them with the defaults.",
    )
    tags: dict[TagKey, TagValue] = Field(
        default_factory=dict,
        description="Tags of every resource, at most 40: key 1 to 128, value up to 256 characters.",
    )
    protection: Protection = Field(default_factory=Protection, description="Guards against deletion by mistake.")

    @classmethod
    def load(cls, name: str, directory: Path = Path("environments")) -> "Environment":
        """The environment of `directory/name.yaml`, in which every rule holds.

        Raises EnvironmentErrors with all problems of the file at once.
        """
        return load(cls, name, directory, (*ENVIRONMENT_RULES, *PRODUCTION_RULES, *VERSION_RULES))

    @property
    def nodes(self) -> list[NodeIdentity]:
        """The three nodes, in the order of the availability zones."""
        return [NodeIdentity(f"{self.cluster_name}-{zone}", zone) for zone in self.availability_zones]

    @property
    def node_names(self) -> dict[str, str]:
        """Each availability zone's node."""
        return {node.availability_zone: node.name for node in self.nodes}

    @property
    def architecture(self) -> Architecture:
        """The processor architecture of all nodes."""
        return self.instance.architecture

    @property
    def is_emulated(self) -> bool:
        """Whether this deployment lives in the emulated AWS of one machine."""
        return self.aws_endpoint is not None

    @property
    def health_check_path(self) -> str:
        """What load balancers ask of a node's port 15672.

        Older servers have no check for readiness that needs no login; their UI's page is up only when the broker is.
        """
        if numbers(self.versions.rabbitmq.version) >= _READINESS_CHECK_SINCE:
            return "/api/health/checks/ready-to-serve-clients"
        return "/"

    def stack_name(self, kind: StackKind) -> str:
        """The name of one of this deployment's stacks."""
        return f"{self.cluster_name}-{kind}"


if __name__ == "__main__":
    from stacks.environment_cli import main

    main()
