"""What the steps of one boot share."""

from __future__ import annotations

import pwd
from dataclasses import dataclass, field

from node.aws import Aws
from node.broker import Broker
from node.clock import Clock
from node.commands import Runner, run
from node.config import Cluster, Instance
from node.credentials import Credentials
from node.files import Account
from node.imds import Imds
from node.lifecycle_hooks import Hook, Signals
from node.ownership import Ownership
from node.paths import Paths
from node.ready import Readiness
from node.report import Report
from node.services import Services
from node.table import Table


@dataclass
class Boot:
    """One boot. Later steps find what earlier ones put here."""

    paths: Paths
    instance: Instance
    cluster: Cluster
    imds: Imds
    instance_id: str
    address: str
    aws: Aws
    table: Table
    report: Report
    ownership: Ownership
    launch_hook: Hook
    signals: Signals
    services: Services
    clock: Clock = field(default_factory=Clock)
    run: Runner = run
    delayed_plugin: bool = True
    credentials: Credentials = field(default_factory=lambda: Credentials({}, "", ""), repr=False)

    @classmethod
    def on_this_host(cls, paths: Paths, instance: Instance, cluster: Cluster) -> Boot:
        """The real thing. Raises NotYet if the metadata service does not answer."""
        clock, imds, aws = Clock(), Imds(), Aws(instance.region)
        instance_id = imds.must("instance-id")
        table = Table(aws.dynamodb, instance.table)
        return cls(
            paths=paths,
            instance=instance,
            cluster=cluster,
            imds=imds,
            instance_id=instance_id,
            address=imds.must("local-ipv4"),
            aws=aws,
            table=table,
            report=Report(table, f"boot/{instance.node}", instance_id, clock),
            ownership=Ownership(table, instance.node, instance_id, clock),
            launch_hook=Hook(lambda: aws.autoscaling, instance.launch_hook, instance.asg_name, instance_id, clock),
            signals=Signals(lambda: aws.cloudformation, instance.stack_name, instance.asg_logical_id, instance_id),
            services=Services(),
            clock=clock,
        )

    def waiting(self, reason: str) -> None:
        """A round of waiting for something outside this host."""
        self.launch_hook.heartbeat()
        self.report.waiting(reason)

    def waiting_inside(self, reason: str) -> None:
        """A round of waiting for something on this host."""
        self.launch_hook.heartbeat()
        self.report.waiting(reason, state="booting")

    def account(self, name: str) -> Account:
        """A local user."""
        entry = pwd.getpwnam(name)
        return Account(entry.pw_uid, entry.pw_gid)

    def broker(self, user: str) -> Broker:
        """The broker's API as one of its users."""
        return Broker(self.credentials.users[user])

    def readiness(self) -> Readiness:
        """What `ready` means for this cluster."""
        monitor, administrator = self.broker("monitoring"), self.broker("administrator")
        return Readiness(monitor, administrator, self.cluster.node_names, self.cluster.health_check_path, self.clock)
