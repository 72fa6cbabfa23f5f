"""Where a lab lives on this machine: every path, address and name, derived from its environment."""

import os
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lab.system import LabError

if TYPE_CHECKING:
    from stacks.environment import Environment

STATE_ROOT = Path("/var/lib/rabbitmq-ec2-lab")
CGROUP_PREFIX = "rabbitmq-lab"
NAMESPACE_ROOT = Path("/run/netns")


def cache_directory() -> Path:
    """`rabbitmq-ec2` in the user's cache directory (XDG base directory specification)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "rabbitmq-ec2"


@dataclass(frozen=True)
class LabPaths:
    """Everything of one lab has its name from here, so that a later run finds it again."""

    name: str
    region: str
    endpoint_port: int
    vpc_cidr: IPv4Network
    state: Path
    cache: Path

    @classmethod
    def of(cls, environment: "Environment", *, state_root: Path = STATE_ROOT, cache: Path | None = None) -> "LabPaths":
        """Paths of an environment's lab; raises `LabError` when that environment is not an emulated one."""
        if environment.aws_endpoint is None:
            raise LabError(f"environment {environment.name} has no aws_endpoint: it deploys to AWS, not into a lab.")
        port = urlsplit(str(environment.aws_endpoint)).port
        vpc = environment.vpc.create or environment.vpc.import_
        if port is None or vpc is None:
            raise LabError(f"environment {environment.name}: a lab needs a port in aws_endpoint and a VPC with a CIDR.")
        return cls(
            name=environment.name,
            region=environment.region,
            endpoint_port=port,
            vpc_cidr=IPv4Network(str(vpc.cidr)),
            state=state_root / environment.name,
            cache=cache or cache_directory(),
        )

    def create(self) -> None:
        """Make the state directory, for root alone: hosts' disks and file systems are below it."""
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)

    # -- files -------------------------------------------------------------------------------------------------------

    @property
    def logs(self) -> Path:
        """Output of every program, and each host's console."""
        return self.state / "logs"

    @property
    def efs(self) -> Path:
        """One directory a file system, in it one an access point: `<fs id>/<fsap id>`."""
        return self.state / "efs"

    @property
    def hosts(self) -> Path:
        """One directory a host, by instance id."""
        return self.state / "hosts"

    @property
    def layer(self) -> Path:
        """What this lab lays over the image on every host."""
        return self.state / "layer"

    def host(self, instance_id: str) -> Path:
        """One host's directory."""
        return self.hosts / instance_id

    def console(self, instance_id: str) -> Path:
        """A host's console. Among the logs, so that it outlives the host."""
        return self.logs / f"{instance_id}.console.log"

    def process(self, program: str) -> Path:
        """Where the id of a running program is kept."""
        return self.state / "run" / f"{program}.json"

    # -- addresses ---------------------------------------------------------------------------------------------------

    @property
    def resolver(self) -> IPv4Address:
        """AmazonProvidedDNS: the VPC's base address plus two. Here the AWS endpoints are at the same address."""
        return self.vpc_cidr.network_address + 2

    def nlb_address(self, index: int = 0) -> str:
        """Loopback address of the network load balancer with this index: 127.77.x.10 to .19."""
        return self._loopback(10, index)

    def alb_address(self, index: int = 0) -> str:
        """Loopback address of the application load balancer with this index: 127.77.x.20 to .29."""
        return self._loopback(20, index)

    def _loopback(self, first: int, index: int) -> str:
        if not 0 <= index < 10:
            raise LabError(f"a lab has room for 10 load balancers of a kind, not for number {index + 1}.")
        return f"127.77.{self.endpoint_port % 256}.{first + index}"

    # -- kernel names ------------------------------------------------------------------------------------------------

    @property
    def vpc_namespace(self) -> str:
        """Network namespace which holds the VPC's bridges."""
        return f"{self.name}-vpc"

    def host_namespace(self, instance_id: str) -> str:
        """Network namespace of one host."""
        return f"{self.name}-{instance_id}"

    def cgroup(self, instance_id: str) -> str:
        """Name of one host's control group."""
        return f"{CGROUP_PREFIX}-{self.name}-{instance_id}"
