"""Every path that the node code touches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Paths:
    """Paths on a host, below `root` (which only a test sets), and the unpacked bundle."""

    root: Path = Path("/")
    bundle: Path = Path(__file__).resolve().parent.parent

    @property
    def etc(self) -> Path:
        """Root-only configuration of the node code itself."""
        return self.root / "etc/rabbitmq-node"

    @property
    def instance_file(self) -> Path:
        """What user-data says about this instance."""
        return self.etc / "instance.json"

    @property
    def cluster_file(self) -> Path:
        """What the nodes have in common."""
        return self.bundle / "cluster.json"

    @property
    def secrets(self) -> Path:
        """Fetched secrets, root only."""
        return self.etc / "secrets"

    @property
    def run(self) -> Path:
        """State that a restart of the host forgets."""
        return self.root / "run/rabbitmq-node"

    @property
    def cache(self) -> Path:
        """Downloaded artefacts."""
        return self.root / "var/cache/rabbitmq-node"

    @property
    def image_artifacts(self) -> Path:
        """Artefacts that a host image may bring along, under their file names."""
        return self.root / "opt/rabbitmq-artifacts"

    @property
    def mount(self) -> Path:
        """The node's EFS access point."""
        return self.root / "mnt/rabbitmq"

    @property
    def marker(self) -> Path:
        """Whose directory this is, and whether it has been a member."""
        return self.mount / "node.json"

    @property
    def guard(self) -> Path:
        """Lock file of the running broker."""
        return self.mount / "lock"

    @property
    def addresses(self) -> Path:
        """Last known addresses of all nodes."""
        return self.mount / "addresses.json"

    @property
    def rabbitmq_data(self) -> Path:
        """RABBITMQ_MNESIA_BASE; the node's own directory is below it."""
        return self.mount / "rabbitmq"

    @property
    def consul_data(self) -> Path:
        """Raft and gossip state of the Consul server."""
        return self.mount / "consul"

    @property
    def consul_etc(self) -> Path:
        """Consul's -config-dir."""
        return self.root / "etc/consul.d"

    @property
    def rabbitmq_etc(self) -> Path:
        """RabbitMQ's configuration."""
        return self.root / "etc/rabbitmq"

    @property
    def rabbitmq_home(self) -> Path:
        """Home of the rabbitmq user: the Erlang cookie."""
        return self.root / "var/lib/rabbitmq"

    @property
    def plugins(self) -> Path:
        """Where RabbitMQ looks for plugins that did not come with it."""
        return self.root / "usr/lib/rabbitmq/plugins"

    @property
    def consul_program(self) -> Path:
        """The program that consul.service runs."""
        return self.root / "usr/bin/consul"

    @property
    def hosts(self) -> Path:
        """Static names."""
        return self.root / "etc/hosts"

    @property
    def hostname(self) -> Path:
        """The host's name after a restart."""
        return self.root / "etc/hostname"

    @property
    def cloud_cfg(self) -> Path:
        """Keeps cloud-init from changing the host name back."""
        return self.root / "etc/cloud/cloud.cfg.d/90-rabbitmq-node.cfg"

    @property
    def resolved_dropin(self) -> Path:
        """DNS forwarding to Consul."""
        return self.root / "etc/systemd/resolved.conf.d/consul.conf"

    @property
    def os_release(self) -> Path:
        """Which distribution this is."""
        return self.root / "etc/os-release"

    @property
    def mountinfo(self) -> Path:
        """The kernel's list of mounts."""
        return self.root / "proc/self/mountinfo"
