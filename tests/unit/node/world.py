"""One host of the `local` environment's first node, on a directory of its own, with stand-ins all around it."""

import functools
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from node.boot_context import Attempts, Boot
from node.config import Instance, load_cluster, load_instance
from node.credentials import Credentials, Login
from node.fetch import Fetcher
from node.files import Account
from node.install import Installer
from node.lifecycle_hooks import Hook, Signals
from node.ownership import Ownership
from node.paths import Paths
from node.report import Report
from node.services import Services
from node.targets import Targets
from stacks.bundle import cluster_document
from stacks.environment import Environment
from tests.unit.node.standins import (
    Bucket,
    DynamoDB,
    Ec2,
    LoadBalancing,
    Loopback,
    ManualClock,
    Metadata,
    Programs,
    Recorder,
    Secrets,
    Systemd,
    aws,
)

PROJECT = Path(__file__).resolve().parents[3]
NODE, ME, ADDRESS = "rabbitmq-local-eu-west-1a", "i-me", "10.77.1.5"
PEERS = ("rabbitmq-local-eu-west-1b", "rabbitmq-local-eu-west-1c")

INSTANCE: dict[str, Any] = {
    "node": NODE,
    "cluster": "rabbitmq-local",
    "region": "eu-west-1",
    "availability_zone": "eu-west-1a",
    "stack_name": "rabbitmq-local-cluster",
    "asg_logical_id": "NodeEuWest1aGroup",
    "asg_name": NODE,
    "launch_hook": "launch",
    "terminate_hook": "terminate",
    "file_system_id": "fs-1",
    "access_point_id": "fsap-1",
    "table": "nodes",
    "artifact_bucket": "artefacts",
    "target_groups": ["arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/amqp/1"],
    "secrets": {
        name: f"arn:{name}"
        for name in ("administrator", "monitoring", "federation", "erlang_cookie", "consul_gossip_key")
    },
    "bundle": {"bucket": "assets", "key": "bundle.tar.gz", "sha256": "0" * 64},
}

USERS = {
    role: Login(role, f"the-password-of-{role}", f"version-of-{role}")
    for role in ("administrator", "monitoring", "federation")
}
COOKIE, GOSSIP_KEY = "C" * 32, "G" * 32

MOUNTED = "36 25 0:31 / /mnt/rabbitmq rw,relatime shared:1 - nfs4 127.0.0.1:/ rw\n"
NOT_MOUNTED = "25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw\n"


@functools.cache
def document_of(environment: str) -> str:
    """cluster.json of an environment, as the bundle has it."""
    return json.dumps(cluster_document(Environment.load(environment, PROJECT / "environments")))


def make_paths(root: Path, environment: str = "local", distribution: str = "debian") -> Paths:
    """A host's directories after user-data has run."""
    bundle = root / "opt/rabbitmq-node/current"
    bundle.mkdir(parents=True)
    (bundle / "rabbitmq").symlink_to(PROJECT / "userdata/rabbitmq")
    (bundle / "consul").symlink_to(PROJECT / "consul")
    (bundle / "cluster.json").write_text(document_of(environment))
    for directory in ("etc/rabbitmq-node", "mnt/rabbitmq", "proc/self", "usr/bin"):
        (root / directory).mkdir(parents=True)
    (root / "etc/os-release").write_text(f'NAME="whatever"\nID="{distribution}"\n')
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    (root / "proc/self/mountinfo").write_text(NOT_MOUNTED)
    paths = Paths(root, bundle)
    cluster = json.loads(document_of(environment))
    first = cluster["nodes"][0]
    here = {"cluster": cluster["cluster"], "node": first["name"], "availability_zone": first["availability_zone"]}
    paths.instance_file.write_text(json.dumps({**INSTANCE, **here}))
    return paths


def set_mounted(paths: Paths, mounted: bool = True) -> None:
    """What the kernel says of the node's directory."""
    paths.mountinfo.write_text(MOUNTED if mounted else NOT_MOUNTED)


def mode_of(path: Path) -> str:
    """Permissions, as `chmod` takes them."""
    return oct(path.stat().st_mode & 0o7777)


@dataclass
class World:
    """A host and all that it talks to."""

    paths: Paths
    clock: ManualClock = field(default_factory=ManualClock)
    programs: Programs = field(default_factory=Programs)
    loopback: Loopback = field(default_factory=Loopback)
    dynamodb: DynamoDB = field(default_factory=DynamoDB)
    ec2: Ec2 = field(default_factory=lambda: Ec2(i_me="running"))
    autoscaling: Recorder = field(default_factory=Recorder)
    cloudformation: Recorder = field(default_factory=Recorder)
    load_balancing: LoadBalancing = field(default_factory=LoadBalancing)
    bucket: Bucket = field(default_factory=Bucket)
    metadata: Metadata = field(
        default_factory=lambda: Metadata(instance_id=ME, local_ipv4=ADDRESS, placement__availability_zone="eu-west-1a")
    )
    names: list[str] = field(default_factory=list)
    """The host names that were set."""

    def __post_init__(self) -> None:
        self.systemd = Systemd(self.programs)
        self.secrets = Secrets(
            {
                **{
                    f"arn:{role}": (
                        json.dumps({"username": login.username, "password": login.password}),
                        login.version,
                    )
                    for role, login in USERS.items()
                },
                "arn:erlang_cookie": (COOKIE, "1"),
                "arn:consul_gossip_key": (GOSSIP_KEY, "1"),
            }
        )
        self.aws = aws(
            dynamodb=self.dynamodb,
            ec2=self.ec2,
            autoscaling=self.autoscaling,
            cloudformation=self.cloudformation,
            load_balancing=self.load_balancing,
            s3=self.bucket,
            secretsmanager=self.secrets,
        )

    @property
    def instance(self) -> Instance:
        """instance.json."""
        return load_instance(self.paths)

    def boot(self) -> Boot:
        """A boot that has found its identity and its secrets."""
        instance, table = self.instance, self.dynamodb.table
        boot = Boot(
            paths=self.paths,
            instance=instance,
            imds=self.metadata,  # type: ignore[arg-type]
            instance_id=ME,
            address=ADDRESS,
            aws=self.aws,
            table=table,
            report=Report(table, f"boot/{NODE}", ME, self.clock),
            ownership=Ownership(table, NODE, ME, self.clock),
            launch_hook=Hook(lambda: self.aws.autoscaling, "launch", NODE, ME, self.clock),
            signals=Signals(lambda: self.aws.cloudformation, instance.stack_name, instance.asg_logical_id, ME),
            targets=Targets(lambda: self.aws.load_balancing, instance.target_groups, ME),
            services=Services(self.programs),
            clock=self.clock,
            attempts=Attempts(self.paths.run / "attempts", self.clock),
            run=self.programs,
        )
        boot.cluster = load_cluster(self.paths, instance)
        boot.credentials = Credentials(USERS, COOKIE, GOSSIP_KEY)
        boot.has_plugin = boot.was_member = False
        boot.rebuild = None
        return boot

    def hook_calls(self) -> list[str]:
        """What was said to the lifecycle hooks: `<operation> <hook>`."""
        return [f"{operation} {arguments['LifecycleHookName']}" for operation, arguments in self.autoscaling.calls]

    def signals(self) -> list[tuple[str, str]]:
        """The ids and states that CloudFormation got."""
        return [(arguments["UniqueId"], arguments["Status"]) for _, arguments in self.cloudformation.calls]

    def cluster_runs(self, *running: str) -> None:
        """The broker's API, with these nodes running and the two holding queues whole."""
        nodes = [{"name": f"rabbit@{name}", "running": True} for name in running]
        self.loopback.on("GET /", "<html>")
        self.loopback.on("GET /api/nodes", nodes)
        self.loopback.on("GET /api/overview", {"exchange_types": [{"name": "direct"}, {"name": "x-delayed-message"}]})
        self.loopback.on("GET /api/queues", [])
        for queue in ("dead-letter", "unroutable"):
            self.loopback.on(f"PUT /api/queues/%2F/{queue}", status=201)
            self.loopback.on(f"POST /api/bindings/%2F/e/{queue}/q/{queue}", status=201)
        self.loopback.on("POST /api/rebalance/queues", status=204)


def myself() -> Account:
    """A user that a test may give files to."""
    return Account(os.geteuid(), os.getegid())


def install_on(boot: Boot) -> bool:
    paths = boot.paths
    fetcher = Fetcher(boot.aws.s3, "artefacts", paths.cache, paths.image_artifacts, boot.clock)
    return Installer(paths, boot.cluster, fetcher, boot.plugin(), boot.run).install()
