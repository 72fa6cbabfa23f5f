"""EC2 instances that are hosts of the lab: their states follow what the hosts really do.

moto's instances run at once and are terminated at once. Here an instance is `pending` until its host is powered on, and
`shutting-down` until the host is off: a successor takes over a node's data when EC2 says that its owner is gone, so EC2
must not say so too early.
"""

import copy
import random
import time
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

from moto import settings
from moto.ec2.models import EC2Backend
from moto.ec2.models.instances import Instance, InstanceState, StateReason
from moto.ec2.models.subnets import Subnet
from moto.ec2.models.vpcs import VPC

from lab.emulator.overrides import replaces

FORGOTTEN_AFTER = 3600.0
"""Seconds for which EC2 still shows a terminated instance: about an hour, says its documentation."""

_terminate_at_once = Instance.terminate


@dataclass
class HostRecord:
    """What an instance with a host carries besides moto's own attributes."""

    subnet: Subnet
    vpc: VPC
    gone_at: float | None = None


def make_host(instance: Instance) -> None:
    """From now on this instance's state is what its host does."""
    subnet = instance.ec2_backend.get_subnet(instance.subnet_id)
    instance.lab = HostRecord(subnet, instance.ec2_backend.get_vpc(subnet.vpc_id))  # type: ignore[attr-defined]
    instance._state = InstanceState("pending", 0)


def host_record(instance: Instance) -> HostRecord | None:
    """The record of an instance that has, or had, a host of the lab."""
    return getattr(instance, "lab", None)


def powered_on(instance: Instance) -> None:
    """Its host is booting: for EC2 it runs."""
    if instance.state == "pending":
        instance._state = InstanceState("running", 16)
        instance.state_reason = StateReason()


def explain(instance: Instance, why: str) -> None:
    """Say what a pending instance waits for."""
    if instance.state == "pending":
        instance.state_reason = StateReason(why, "pending")


def powered_off(instance: Instance) -> None:
    """Its host is gone: terminated, and its address is free for others."""
    record = host_record(instance)
    if record is None or instance.state == "terminated":
        return
    by_itself = instance.state != "shutting-down"
    _terminate_at_once(instance)
    for nic in list(instance.nics.values()):
        record.subnet.del_subnet_ip(str(nic.private_ip_address))
        instance.ec2_backend.enis.pop(nic.id, None)
    instance.nics = {}
    if by_itself:
        instance.state_reason = StateReason("Server.InternalError: the host is gone", "Server.InternalError")
    record.gone_at = time.monotonic()


def forget_terminated(backend: EC2Backend) -> None:
    """Drop what has been terminated for long: asked for it, EC2 answers InvalidInstanceID.NotFound."""
    now = time.monotonic()
    for reservation in list(backend.reservations.values()):
        records = [host_record(instance) for instance in reservation.instances]
        if all(record and record.gone_at and now - record.gone_at > FORGOTTEN_AFTER for record in records):
            del backend.reservations[reservation.id]


@replaces(Instance, "terminate")
def _terminate(self: Instance) -> InstanceState:
    if host_record(self) is None:
        return _terminate_at_once(self)
    before = copy.copy(self._state)
    if before.name not in ("shutting-down", "terminated"):
        self._state = InstanceState("shutting-down", 32)
        self.state_reason = StateReason("Client.UserInitiatedShutdown: User initiated shutdown", "User initiated")
    return before


@replaces(settings, "ec2_load_default_amis")
def _no_example_images() -> bool:
    """moto's images are examples, which nothing launches from, and reading them takes as long as all the rest."""
    return False


def _first_nic(self: Instance) -> Any:
    return next(iter(self.nics.values()), None)


def _private_ip(self: Instance) -> str | None:
    return getattr(_first_nic(self), "private_ip_address", None)


def _public_ip(self: Instance) -> str | None:
    return getattr(_first_nic(self), "public_ip", None)


def _private_dns_name(self: Instance) -> str:
    address = _private_ip(self)
    if address is None:
        return ""
    domain = "ec2.internal" if self.region_name == "us-east-1" else f"{self.region_name}.compute.internal"
    return f"ip-{address.replace('.', '-')}.{domain}"


# A terminated instance has no network interface, which moto's own properties do not expect.
for _name, _getter in {
    "private_ip": _private_ip,
    "private_ip_address": _private_ip,
    "private_dns_name": _private_dns_name,
    "public_ip": _public_ip,
    "public_ip_address": _public_ip,
}.items():
    replaces(Instance, _name)(property(_getter))


@replaces(Subnet, "get_available_subnet_ip")
def _any_free_address(self: Subnet, instance: Instance) -> str:
    """Any free address: a replacement rarely gets its predecessor's. The first four and the last are AWS's own."""
    base = int(self.cidr.network_address)
    taken = {int(IPv4Address(address)) - base for address in self._subnet_ips}
    free = sorted(set(range(4, self.cidr.num_addresses - 1)) - taken)
    address = str(IPv4Address(base + random.choice(free)))  # noqa: S311  (not a secret)
    self._subnet_ips[address] = instance
    return address
