"""What the steps of one boot share."""

from __future__ import annotations

import pwd
from dataclasses import dataclass, field
from pathlib import Path

from node.aws import Aws
from node.broker import Broker
from node.clock import Clock
from node.commands import Runner, run
from node.config import Cluster, Instance
from node.credentials import Credentials
from node.delayed_plugin import DelayedPlugin
from node.files import Account
from node.imds import Imds
from node.lifecycle_hooks import Hook, Signals
from node.ownership import Ownership
from node.paths import Paths
from node.ready import Readiness
from node.report import Report
from node.services import Services
from node.table import Table
from node.targets import Targets

LATE_SECONDS = 1500.0
"""A boot that takes longer signals why, before CloudFormation, which gives a creation 30 min and an update 60, gives up
without a reason. The wait at the fence is not counted: there it is the old instance that takes its time."""

LATE_AT_FENCE_SECONDS = 3300.0


class Attempts:
    """How many boots in a row have not finished, and since when. A restart of the host forgets it."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        try:
            count, since = path.read_text().split()
            self.count, self._since = int(count), float(since)
        except (OSError, ValueError):
            self.count, self._since = 0, clock.monotonic()

    def begin(self) -> None:
        """Count one more."""
        self.count += 1
        self._save()

    def reset_time(self) -> None:
        """Count the time from now on."""
        self._since = self._clock.monotonic()
        self._save()

    @property
    def seconds(self) -> float:
        """Since the first of them began."""
        return self._clock.monotonic() - self._since

    def clear(self) -> None:
        """The next one is the first."""
        self._path.unlink(missing_ok=True)

    def _save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(f"{self.count} {self._since}")


@dataclass
class Boot:
    """One boot. Later steps find what earlier ones put here."""

    paths: Paths
    instance: Instance
    imds: Imds
    instance_id: str
    address: str
    aws: Aws
    table: Table
    report: Report
    ownership: Ownership
    launch_hook: Hook
    signals: Signals
    targets: Targets
    services: Services
    clock: Clock
    attempts: Attempts
    run: Runner = run

    cluster: Cluster = field(init=False)
    """From the step `identity`."""

    has_plugin: bool = field(init=False)
    """From `install`: whether the broker gets the delayed-message plugin."""

    credentials: Credentials = field(init=False, repr=False)
    """From `secrets`."""

    was_member: bool = field(init=False)
    """From `storage`: whether the node has been a member of the cluster before this boot."""

    rebuild: str | None = field(init=False)
    """From `storage`: the order to start again, by its time, if there is one."""

    has_signalled: bool = field(init=False, default=False)
    """Whether a failure has been signalled."""

    @classmethod
    def on_this_host(cls, paths: Paths, instance: Instance) -> Boot:
        """The real thing. Raises NotYet if the metadata service does not answer."""
        clock, imds, aws = Clock(), Imds(), Aws(instance.region)
        instance_id = imds.must("instance-id")
        table = Table(aws.dynamodb, instance.table)
        return cls(
            paths=paths,
            instance=instance,
            imds=imds,
            instance_id=instance_id,
            address=imds.must("local-ipv4"),
            aws=aws,
            table=table,
            report=Report(table, f"boot/{instance.node}", instance_id, clock),
            ownership=Ownership(table, instance.node, instance_id, clock),
            launch_hook=Hook(lambda: aws.autoscaling, instance.launch_hook, instance.asg_name, instance_id, clock),
            signals=Signals(lambda: aws.cloudformation, instance.stack_name, instance.asg_logical_id, instance_id),
            targets=Targets(lambda: aws.load_balancing, instance.target_groups, instance_id),
            services=Services(),
            clock=clock,
            attempts=Attempts(paths.run / "attempts", clock),
        )

    def waiting(self, reason: str, *, state: str = "waiting") -> None:
        """A round of waiting for something outside this host."""
        self.launch_hook.heartbeat()
        self.report.waiting(reason, state=state)
        self.signal_when_late(reason)

    def waiting_inside(self, reason: str) -> None:
        """A round of waiting for something on this host."""
        self.waiting(reason, state="booting")

    def signal_when_late(self, reason: str) -> None:
        """Signal once, in time, why the boot is not done. It goes on nevertheless."""
        limit = LATE_AT_FENCE_SECONDS if self.report.step == "ownership" else LATE_SECONDS
        if self.attempts.seconds >= limit:
            self.signal_failure(reason)

    def signal_failure(self, reason: str) -> None:
        """Signal once that this boot is not expected to end well. It goes on nevertheless."""
        if not self.has_signalled:
            self.has_signalled = True
            self.signals.failure(self.report.step, reason)

    def account(self, name: str) -> Account:
        """A local user."""
        entry = pwd.getpwnam(name)
        return Account(entry.pw_uid, entry.pw_gid)

    def broker(self, user: str) -> Broker:
        """The broker's API as one of its users."""
        return Broker(self.credentials.users[user])

    def readiness(self) -> Readiness:
        """What `ready` means for this cluster. Only an administrator sees the queues of every virtual host."""
        return Readiness(
            self.broker("administrator"), self.cluster.node_names, self.cluster.health_check_path, self.clock
        )

    def plugin(self) -> DelayedPlugin:
        """The delayed-message plugin of the version profile."""
        return DelayedPlugin(self.cluster.versions, self.cluster.architecture, self.paths.plugins, self.report.note)
