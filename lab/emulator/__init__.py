"""The emulated AWS: moto, and what it lacks.

    server.py       the HTTP server
    stacks.py       CloudFormation: the life of a stack
    changes.py      a template applied to it, resource by resource
    rolling.py      the rolling update of a group
    signals.py      what such an update, or a creation, waits for
    changesets.py   change sets
    events.py       events and failures
    templates.py    templates as data
    progress.py     what takes time
    resources.py    CloudFormation types which moto lacks
    corrections.py  small differences of types which it has
    scaling.py      Auto Scaling: lifecycle states, hooks, replacement
    groups.py       its calls
    refresh.py      its instance refresh
    instances.py    EC2: states that follow the hosts, addresses
    transactions.py DynamoDB's transactions
    balancing.py    load balancers: addresses, attributes, health
    overrides.py    how moto is changed

This file is what the lab's other parts see of it: plain records, and a handful of things to tell it.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

from moto.autoscaling.models import autoscaling_backends
from moto.cloudformation.models import cloudformation_backends
from moto.ec2.models import ec2_backends
from moto.ec2.models.instances import Instance
from moto.efs.models import efs_backends
from moto.elbv2.models import elbv2_backends

from lab import loadbalancer
from lab.emulator import (
    balancing,
    changes,
    changesets,
    corrections,
    groups,
    instances,
    overrides,
    progress,
    refresh,
    resources,
    scaling,
    signals,
    stacks,
    transactions,
)
from lab.emulator.balancing import AddressOf
from lab.emulator.server import ApiServer

__all__ = ["ACCOUNT", "AccessPoint", "Emulator", "Machine", "StackState"]

ACCOUNT = "123456789012"
"""AWS's documentation account, which is moto's too."""

_PARTS = (
    balancing,
    changes,
    changesets,
    corrections,
    groups,
    instances,
    refresh,
    resources,
    signals,
    stacks,
    transactions,
)
"""Imported for what they register; `overrides.install` puts it in place."""


@dataclass(frozen=True)
class Machine:
    """An instance of an Auto Scaling group, as EC2 and Auto Scaling see it."""

    id: str
    name: str
    group: str
    state: str
    """EC2's word: pending, running, shutting-down, terminated."""
    lifecycle_state: str | None
    """Auto Scaling's word; None when the instance is in no group any more."""
    target_lifecycle_state: str
    address: IPv4Address | None
    availability_zone: str
    subnet_id: str
    subnet_cidr: IPv4Network
    vpc_id: str
    vpc_cidr: IPv4Network
    image_id: str
    type: str
    architecture: str
    launched: datetime
    user_data: bytes | None
    tags: Mapping[str, str]
    role: str | None
    security_groups: tuple[str, ...]


@dataclass(frozen=True)
class AccessPoint:
    """An access point of an EFS file system."""

    file_system: str
    id: str
    path: str


@dataclass(frozen=True)
class StackState:
    """A CloudFormation stack."""

    name: str
    status: str


class Emulator:
    """The emulated AWS of this process, one region of it. Every method may be called from any thread.

    moto's state is global: a second object shows the same account. `address_of` gives each load balancer its address.
    """

    def __init__(self, region: str, address_of: AddressOf) -> None:
        overrides.install()
        self.region = region
        self._lock = threading.RLock()
        balancing.give_addresses(region, address_of)

    def listen(self, address: str, port: int) -> ApiServer:
        """AWS's API at this address, not yet answering."""
        return ApiServer(address, port, self._lock)

    # -- what there is -------------------------------------------------------------------------------------------------

    def machines(self) -> list[Machine]:
        """Instances that have or had a host, terminated ones included for as long as EC2 shows them."""
        with self._lock:
            found = (self._machine(instance) for instance in self._ec2.all_instances())
            return [machine for machine in found if machine is not None]

    def machine(self, instance_id: str) -> Machine | None:
        """One of them."""
        with self._lock:
            instance = self._ec2.get_instance_by_id(instance_id)
            return self._machine(instance) if instance is not None else None

    def subnets(self) -> list[tuple[str, str]]:
        """CIDR and availability zone of each subnet that was deployed. moto's default VPC is not meant."""
        with self._lock:
            found = self._ec2.describe_subnets()
            return [(s.cidr_block, s.availability_zone) for s in found if not self._ec2.get_vpc(s.vpc_id).is_default]

    def access_points(self) -> list[AccessPoint]:
        """All of them."""
        with self._lock:
            return [
                AccessPoint(
                    file_system=point.file_system_id,
                    id=point.access_point_id,
                    path=point.root_directory.get("Path", "/"),
                )
                for point in efs_backends[ACCOUNT][self.region].access_points.values()
            ]

    def load_balancers(
        self, certificate: Path
    ) -> tuple[tuple[loadbalancer.LoadBalancer, ...], tuple[loadbalancer.TargetGroup, ...]]:
        """What the proxy is to be. `certificate` is for TLS listeners."""
        with self._lock:
            backend = elbv2_backends[ACCOUNT][self.region]
            return balancing.balancers(backend, certificate), balancing.target_groups(backend)

    def stacks(self) -> list[StackState]:
        """The stacks and their states."""
        with self._lock:
            return [StackState(s.name, s.status) for s in cloudformation_backends[ACCOUNT][self.region].stacks.values()]

    # -- what happens --------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Let Auto Scaling and CloudFormation do what is due, and EC2 forget what has long been gone."""
        with self._lock:
            try:
                scaling.scaling(ACCOUNT, self.region).advance()
            finally:
                progress.advance(autoscaling_backends[ACCOUNT][self.region])
                progress.advance(cloudformation_backends[ACCOUNT][self.region])
                instances.forget_terminated(self._ec2)

    def powered_on(self, instance_id: str) -> None:
        """The instance's host boots."""
        self._tell(instance_id, instances.powered_on)

    def powered_off(self, instance_id: str) -> None:
        """The instance's host is gone, however it went."""
        self._tell(instance_id, self._power_off)

    def _power_off(self, instance: Instance) -> None:
        if instance.state == "running" and instance.private_ip:
            balancing.host_lost(elbv2_backends[ACCOUNT][self.region], instance.id, instance.private_ip)
        instances.powered_off(instance)

    def explain(self, instance_id: str, why: str) -> None:
        """What a pending instance waits for: its `StateReason`."""
        self._tell(instance_id, lambda instance: instances.explain(instance, why))

    def hold_replacement(self, group: str, seconds: float) -> None:
        """Auto Scaling launches nothing for this group until then."""
        with self._lock:
            scaling.scaling(ACCOUNT, self.region).hold_replacement(group, seconds)

    def terminate(self, instance_id: str) -> None:
        """TerminateInstanceInAutoScalingGroup, with a replacement."""
        with self._lock:
            autoscaling_backends[ACCOUNT][self.region].terminate_instance(instance_id, should_decrement=False)

    def report_health(self, health: Mapping[str, Mapping[str, str]]) -> None:
        """The proxy's opinion: by target group and instance id, in ELB's words."""
        with self._lock:
            balancing.report_health(elbv2_backends[ACCOUNT][self.region], health)

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def _ec2(self) -> Any:
        return ec2_backends[ACCOUNT][self.region]

    def _tell(self, instance_id: str, event: Callable[[Instance], None]) -> None:
        with self._lock:
            instance = self._ec2.get_instance_by_id(instance_id)
            if instance is not None:
                event(instance)

    def _machine(self, instance: Instance) -> Machine | None:
        record = instances.host_record(instance)
        if record is None:
            return None
        state = scaling.state_of(autoscaling_backends[ACCOUNT][self.region], instance.id)
        tags = {tag["key"]: tag["value"] for tag in instance.get_tags()}
        return Machine(
            id=instance.id,
            name=tags.get("Name", instance.id),
            group=tags.get("aws:autoscaling:groupName", ""),
            state=instance.state,
            lifecycle_state=state.lifecycle_state if state else None,
            target_lifecycle_state=scaling.target_lifecycle_state(state) if state else "Detached",
            address=IPv4Address(instance.private_ip) if instance.private_ip else None,
            availability_zone=str(instance.availability_zone),
            subnet_id=record.subnet.id,
            subnet_cidr=IPv4Network(record.subnet.cidr_block),
            vpc_id=record.vpc.id,
            vpc_cidr=IPv4Network(record.vpc.cidr_block),
            image_id=instance.image_id,
            type=instance.instance_type,
            architecture=instance.architecture,
            launched=instance.launch_time,
            user_data=instance.user_data.decode().encode() if instance.user_data else None,
            tags={key: value for key, value in tags.items() if not key.startswith("aws:")},
            role=self._role(instance.id),
            security_groups=tuple(group.name for group in instance.security_groups),
        )

    def _role(self, instance_id: str) -> str | None:
        association = self._ec2.iam_instance_profile_associations.get(instance_id)
        roles = association.iam_instance_profile.roles if association else []
        return roles[0].name if roles else None
