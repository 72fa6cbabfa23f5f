"""All that can be known of a cluster at one moment, and what is wrong with it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from botocore.exceptions import BotoCoreError, ClientError

from operations.broker import Broker
from operations.deployment import Deployment
from operations.errors import OperationError
from operations.nodes import Node, read_nodes
from operations.table import LOCK, Health, Lock, NodeTable, Ownership, health, lock, ownership

STALE_SECONDS = 120.0
"""A node tells its health every 30 s; after this its silence counts as a finding."""

SLOW_WRITE_MS = 200.0
"""A synced 4 KiB write to EFS takes about 3 ms (regional). From here on publishers feel it."""

LONG_LOCK_SECONDS = 3600.0
"""A rolling update gives one node's replacement an hour."""

Severity = Literal["degraded", "unknown"]


@dataclass(frozen=True)
class Finding:
    """Something wrong (`degraded`), or something that could not be seen (`unknown`)."""

    severity: Severity
    what: str


@dataclass(frozen=True)
class Queue:
    """A quorum queue; members by RabbitMQ node name."""

    name: str
    vhost: str
    leader: str
    members: Sequence[str]
    online: Sequence[str]


@dataclass(frozen=True)
class BrokerView:
    """The cluster as RabbitMQ sees it: running by member, uptime in seconds by member, quorum queues."""

    running: dict[str, bool]
    uptime: dict[str, float]
    queues: Sequence[Queue]

    def leaders(self) -> Counter[str]:
        """How many queues each member leads."""
        return Counter(queue.leader for queue in self.queues if queue.leader)

    def short_queues(self, size: int) -> list[Queue]:
        """Queues with fewer than `size` members online, or without a leader."""
        return [queue for queue in self.queues if len(set(queue.online)) < size or not queue.leader]


@dataclass(frozen=True)
class Survey:
    """One look at everything. What could not be asked is None, and `findings` says why."""

    environment: str
    cluster: str
    at: datetime
    nodes: Sequence[Node]
    ownership: dict[str, Ownership] = field(default_factory=dict)
    health: dict[str, Health | None] = field(default_factory=dict)
    lock: Lock | None = None
    lock_holder_lives: bool = False
    broker: BrokerView | None = None
    alarms: Sequence[str] | None = None
    missing: Sequence[str] = ()
    """Why something could not be asked."""

    @property
    def findings(self) -> list[Finding]:
        """Everything that is wrong or unknown; empty for a healthy cluster."""
        found = [Finding("unknown", reason) for reason in self.missing]
        found += [Finding("degraded", f"{node.name}: {node.progress}") for node in self.nodes if not node.is_ready]
        found += [Finding("degraded", what) for what in self.broker_objections()]
        return found + self._host_findings() + self._lock_findings() + self._alarm_findings()

    def broker_objections(self) -> list[str]:
        """Members that do not run or do not belong, and queues that are not whole."""
        if self.broker is None:
            return []
        wanted = {f"rabbit@{node.name}" for node in self.nodes}
        down = sorted(name for name in wanted if not self.broker.running.get(name))
        strangers = sorted(set(self.broker.running) - wanted)
        short = self.broker.short_queues(len(self.nodes))
        said = [f"{name} does not run" for name in down]
        said += [f"{name} is a member but no node of this deployment" for name in strangers]
        if short:
            named = ", ".join(f"{queue.name} ({len(set(queue.online))} online)" for queue in short[:5])
            said.append(f"{len(short)} quorum queues are not whole: {named}{', ...' if len(short) > 5 else ''}")
        return said

    def _host_findings(self) -> list[Finding]:
        found = []
        addresses = {node.address for node in self.nodes if node.address}
        for node in self.nodes:
            record, told = self.ownership.get(node.name, Ownership()), self.health.get(node.name)
            if node.is_ready and record.owner != node.instance_id:
                found.append(f"{node.name}: owned by {record.owner or 'nobody'}, not by {node.instance_id}")
            if record.rebuild:
                found.append(f"{node.name}: a rebuild was ordered at {record.rebuild}")
            if told is None or told.instance_id != node.instance_id or told.age_seconds(self.at) > STALE_SECONDS:
                if node.is_ready:
                    found.append(f"{node.name}: its agent has said nothing for {STALE_SECONDS:.0f} s")
                continue
            if not told.mounted or told.write_error:
                found.append(f"{node.name}: EFS: {told.write_error or 'not mounted'}")
            elif told.write_ms is not None and told.write_ms > SLOW_WRITE_MS:
                found.append(f"{node.name}: EFS: a synced write takes {told.write_ms:.0f} ms")
            peers = {peer.rsplit(":", 1)[0] for peer in told.consul_peers}
            if told.consul_error or not told.consul_leader:
                found.append(f"{node.name}: Consul: {told.consul_error or 'no leader'}")
            elif len(addresses) == len(self.nodes) and peers != addresses:
                found.append(f"{node.name}: Consul's peers are {', '.join(sorted(peers)) or 'none'}")
        return [Finding("degraded", what) for what in found]

    def _lock_findings(self) -> list[Finding]:
        if self.lock is None:
            return []
        age = self.lock.age_seconds(self.at)
        if not self.lock_holder_lives and all(node.is_ready for node in self.nodes):
            return [Finding("degraded", f"the maintenance lock is held by {self.lock.instance_id}, which is gone")]
        if age > LONG_LOCK_SECONDS:
            return [Finding("degraded", f"{self.lock.node} has held the maintenance lock for {age / 60:.0f} min")]
        return []

    def _alarm_findings(self) -> list[Finding]:
        return [Finding("degraded", f"alarm: {name}") for name in self.alarms or ()]

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        document = asdict(self) | {
            "at": self.at.isoformat(timespec="seconds"),
            "nodes": [node.as_dict() for node in self.nodes],
            "findings": [asdict(finding) for finding in self.findings],
        }
        if self.broker:
            document["broker"]["leaders"] = dict(self.broker.leaders())
        return document


def survey(deployment: Deployment) -> Survey:
    """Look at everything once. Raises OperationError only if there is no deployment to look at."""
    environment = deployment.environment
    nodes = read_nodes(deployment)
    names = [node.name for node in nodes]
    items = NodeTable(deployment).items([LOCK, *(f"{kind}/{name}" for name in names for kind in ("node", "health"))])
    held = lock(items.get(LOCK))
    missing: list[str] = []
    broker: BrokerView | None = None
    try:
        broker = read_broker(deployment)
    except OperationError as error:
        missing.append(error.message)
    alarms: list[str] | None = None
    try:
        alarms = read_alarms(deployment)
    except (BotoCoreError, ClientError) as error:
        missing.append(f"CloudWatch's alarms cannot be read: {error}")
    return Survey(
        environment.name,
        environment.cluster_name,
        datetime.now(UTC),
        nodes,
        {name: ownership(items.get(f"node/{name}")) for name in names},
        {name: health(items.get(f"health/{name}")) for name in names},
        held,
        held is not None and instance_lives(deployment, held.instance_id),
        broker,
        alarms,
        missing,
    )


def read_broker(deployment: Deployment) -> BrokerView:
    """The cluster as RabbitMQ sees it. Raises OperationError when the management API does not answer."""
    api = Broker(deployment.parameter("management-url"), deployment.credentials("administrator"))
    members = api.get("nodes?columns=name,running,uptime")
    queues = api.get("queues?columns=name,vhost,type,leader,members,online")
    return BrokerView(
        {item["name"]: bool(item.get("running")) for item in members},
        {item["name"]: item["uptime"] / 1000 for item in members if item.get("uptime")},
        [
            Queue(q["name"], q["vhost"], q.get("leader") or "", q.get("members") or (), q.get("online") or ())
            for q in queues
            if q.get("type") == "quorum"
        ],
    )


def read_alarms(deployment: Deployment) -> list[str]:
    """The cluster's alarms in effect, each with its reason."""
    pages = deployment.aws.cloudwatch.get_paginator("describe_alarms").paginate(
        AlarmNamePrefix=f"{deployment.environment.cluster_name}-"
    )
    alarms = [alarm for page in pages for alarm in page["MetricAlarms"] if alarm["StateValue"] == "ALARM"]
    return [f"{alarm['AlarmName']}: {alarm.get('StateReason', '')}" for alarm in alarms]


def instance_lives(deployment: Deployment, instance_id: str) -> bool:
    """Whether EC2 still has the instance, in whatever state but the last."""
    # A filter, not InstanceIds: an instance that EC2 has forgotten is no error.
    answer = deployment.aws.ec2.describe_instances(Filters=[{"Name": "instance-id", "Values": [instance_id]}])
    states = [i["State"]["Name"] for reservation in answer["Reservations"] for i in reservation["Instances"]]
    return any(state != "terminated" for state in states)
