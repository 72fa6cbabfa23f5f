"""The three nodes as AWS sees them, joined with what each last reported of its boot."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from boto3.dynamodb.types import TypeDeserializer

from operations.deployment import Deployment

if TYPE_CHECKING:
    from mypy_boto3_autoscaling.type_defs import AutoScalingGroupTypeDef

Health = Literal["healthy", "unhealthy", "initial", "draining", "unused", "unavailable", "absent"]


@dataclass(frozen=True)
class BootReport:
    """What an instance last said of its boot. `state`: booting, waiting, retrying, ready or failed."""

    instance_id: str
    state: str
    step: str
    detail: str = ""
    remedy: str = ""
    steps: Sequence[dict[str, Any]] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Node:
    """One node. `instance_id` and what follows are None while its Auto Scaling group has no instance."""

    name: str
    availability_zone: str
    instance_id: str | None = None
    lifecycle_state: str | None = None
    address: str | None = None
    state_reason: str = ""
    boot: BootReport | None = None
    target_health: dict[str, Health] = field(default_factory=dict)
    launched_at: datetime | None = None
    is_outdated: bool = False
    """Launched from another version of the launch template than the group has now."""

    @property
    def is_ready(self) -> bool:
        """In service, reported ready by this very instance, and healthy behind every load balancer."""
        return (
            self.lifecycle_state == "InService"
            and self.boot is not None
            and self.boot.state == "ready"
            and bool(self.target_health)
            and all(health == "healthy" for health in self.target_health.values())
        )

    @property
    def has_failed(self) -> bool:
        """This instance refused to go on: a person has to act."""
        return self.boot is not None and self.boot.state == "failed"  # `retrying` goes on by itself

    @property
    def progress(self) -> str:
        """What this node is doing or waiting for, in a few words."""
        if self.instance_id is None:
            return "waiting for an instance"
        if self.boot is None:
            return f"instance {self.lifecycle_state}, {self.state_reason or 'no report yet'}"
        if self.is_ready:
            return "ready"
        if self.boot.state == "ready":
            return "waiting for the load balancers' health checks"
        return f"{self.boot.step}: {self.boot.detail}" if self.boot.detail else self.boot.step

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        launched = self.launched_at.isoformat(timespec="seconds") if self.launched_at else None
        return asdict(self) | {"ready": self.is_ready, "progress": self.progress, "launched_at": launched}


def read_nodes(deployment: Deployment) -> list[Node]:
    """The nodes in the order of their zones, as of now: four kinds of call, no more whatever the state."""
    environment, aws = deployment.environment, deployment.aws
    names = [node.name for node in environment.nodes]
    groups = aws.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=names)["AutoScalingGroups"]
    by_name = {group["AutoScalingGroupName"]: group for group in groups}
    instances = {name: _current_instance(group) for name, group in by_name.items()}
    machines = _machines(deployment, [i["InstanceId"] for i in instances.values() if i])
    reports = _boot_reports(deployment, names)
    health = _target_health(deployment, sorted({arn for group in groups for arn in group.get("TargetGroupARNs", [])}))
    nodes = []
    for identity in environment.nodes:
        instance = instances.get(identity.name)
        if not instance:
            nodes.append(Node(identity.name, identity.availability_zone))
            continue
        instance_id = instance["InstanceId"]
        report, machine = reports.get(identity.name), machines.get(instance_id, {})
        nodes.append(
            Node(
                identity.name,
                identity.availability_zone,
                instance_id,
                instance["LifecycleState"],
                machine.get("PrivateIpAddress"),
                machine.get("StateReason", {}).get("Message", "") if _is_pending(machine) else "",
                report if report and report.instance_id == instance_id else None,
                {group: states.get(instance_id, "absent") for group, states in health.items()},
                machine.get("LaunchTime"),
                _is_outdated(instance, by_name[identity.name]),
            )
        )
    return nodes


def _current_instance(group: "AutoScalingGroupTypeDef") -> Any:
    """The group's youngest instance: during a hand-over the old one is still there, terminating."""
    instances = group["Instances"]
    alive = [i for i in instances if not i["LifecycleState"].startswith("Terminat")]
    return next(iter(reversed(alive or instances)), None)


def _is_outdated(instance: Any, group: "AutoScalingGroupTypeDef") -> bool:
    has, wanted = instance.get("LaunchTemplate", {}), group.get("LaunchTemplate", {})
    return bool(has and wanted) and str(has.get("Version")) != str(wanted.get("Version"))


def _is_pending(machine: Any) -> bool:
    return bool(machine) and machine["State"]["Name"] == "pending"


def _machines(deployment: Deployment, instance_ids: list[str]) -> dict[str, Any]:
    if not instance_ids:
        return {}
    # A filter, not InstanceIds: an instance that has just gone is no error.
    pages = deployment.aws.ec2.get_paginator("describe_instances").paginate(
        Filters=[{"Name": "instance-id", "Values": instance_ids}]
    )
    found = [i for page in pages for reservation in page["Reservations"] for i in reservation["Instances"]]
    return {i["InstanceId"]: i for i in found}


def _boot_reports(deployment: Deployment, names: list[str]) -> dict[str, BootReport]:
    table = deployment.parameter("node-table")
    keys: list[Any] = [{"id": {"S": f"boot/{name}"}} for name in names]
    items = deployment.aws.dynamodb.batch_get_item(RequestItems={table: {"Keys": keys, "ConsistentRead": True}})
    reports = {}
    for raw in items["Responses"].get(table, []):
        item = {key: TypeDeserializer().deserialize(value) for key, value in raw.items()}
        reports[item["id"].removeprefix("boot/")] = BootReport(
            instance_id=item["instance_id"],
            state=item["state"],
            step=item.get("step") or "",
            detail=item.get("detail") or "",
            remedy=item.get("remedy") or "",
            steps=[
                {**s, "seconds": float(s["seconds"])} for s in item.get("steps", []) if s.get("seconds") is not None
            ],
            notes=list(item.get("notes", [])),
        )
    return reports


def _target_health(deployment: Deployment, target_groups: list[str]) -> dict[str, dict[str, Health]]:
    health: dict[str, dict[str, Health]] = {}
    for arn in target_groups:
        described = deployment.aws.load_balancing.describe_target_health(TargetGroupArn=arn)["TargetHealthDescriptions"]
        name = arn.split(":targetgroup/", 1)[-1].split("/", 1)[0]
        health[name] = {t["Target"]["Id"]: t["TargetHealth"]["State"] for t in described}  # type: ignore[misc]
    return health
