"""Elastic Load Balancing: what a proxy must know to be the load balancers, and what it finds out about their targets.

moto creates only application load balancers from CloudFormation, ignores attributes and calls every target healthy.
Here each load balancer has a loopback address of its own, which is its DNS name, and a target's health is what the
proxy says.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from moto.elbv2 import models as elbv2_models
from moto.elbv2.models import (
    ELBv2Backend,
    FakeHealthStatus,
    FakeListener,
    FakeLoadBalancer,
    FakeTargetGroup,
    elbv2_backends,
)

from lab import loadbalancer
from lab.emulator.overrides import adds, replaces

HOSTED_ZONES = {"application": "Z32O12XQLNTSW2", "network": "Z2IFOLAFXWLO4F"}
"""The load balancers' hosted zones (eu-west-1's): records in a private zone refer to them."""

AddressOf = Callable[[Literal["network", "application"], int], str]

_addresses: dict[str, AddressOf] = {}


def give_addresses(region: str, address_of: AddressOf) -> None:
    """The rule for the addresses of a region's load balancers: by kind, and by number among those of its kind."""
    _addresses[region] = address_of


def report_health(backend: ELBv2Backend, health: Mapping[str, Mapping[str, str]]) -> None:
    """What the proxy thinks: by target group's name and instance id, one of ELB's words such as `healthy`."""
    for group in backend.target_groups.values():
        group.health = dict(health.get(group.name, {}))  # type: ignore[attr-defined]
        for instance_id in [one for one in _lost(group) if group.health.get(one) == "unhealthy"]:  # type: ignore[attr-defined]
            del _lost(group)[instance_id]


def host_lost(backend: ELBv2Backend, instance_id: str, address: str) -> None:
    """A target's host is gone without a word. A load balancer finds that out by its health checks, and not before."""
    for group in backend.target_groups.values():
        if instance_id in group.targets:
            _lost(group)[instance_id] = address


def _lost(group: FakeTargetGroup) -> dict[str, str]:
    """Addresses of instances that are gone, while the group does not know it."""
    found: dict[str, str] = group.__dict__.setdefault("lab_lost", {})
    return found


def draining(group: FakeTargetGroup) -> list[str]:
    """Instances which a group gives no new connections, while they still live on those they have."""
    found = []
    for instance_id in group.deregistered_targets:
        instance = group.ec2_backend.get_instance_by_id(instance_id)
        if instance is not None and instance.state in ("running", "shutting-down") and instance_id not in group.targets:
            found.append(instance_id)
    return found


# -- for the proxy -----------------------------------------------------------------------------------------------------


def balancers(backend: ELBv2Backend, certificate: Path) -> tuple[loadbalancer.LoadBalancer, ...]:
    """The load balancers. `certificate`: what TLS and HTTPS listeners show, whatever certificate they name."""
    return tuple(
        loadbalancer.LoadBalancer(
            name=balancer.name,
            address=balancer.dns_name,
            listeners=tuple(_listener(backend, listener, certificate) for listener in balancer.listeners.values()),
            idle_timeout=_idle_timeout(balancer),
        )
        for balancer in backend.load_balancers.values()
    )


def target_groups(backend: ELBv2Backend) -> tuple[loadbalancer.TargetGroup, ...]:
    """The target groups that a listener leads to, with their targets."""
    return tuple(_target_group(group) for group in backend.target_groups.values() if group.load_balancer_arns)


def _listener(backend: ELBv2Backend, listener: FakeListener, certificate: Path) -> loadbalancer.Listener:
    data = listener.default_actions[0].data
    arns = (
        [data["TargetGroupArn"]]
        if "TargetGroupArn" in data
        else [group["TargetGroupArn"] for group in data.get("ForwardConfig", {}).get("TargetGroups", [])]
    )
    protocol: Any = listener.protocol
    return loadbalancer.Listener(
        port=int(listener.port),
        protocol=protocol,
        target_group=backend.target_groups[arns[0]].name if arns else None,
        certificate=certificate if protocol in ("TLS", "HTTPS") else None,
        redirect_to_https=data.get("RedirectConfig", {}).get("Protocol") == "HTTPS",
    )


def _idle_timeout(balancer: FakeLoadBalancer) -> float:
    if balancer.type == "application":
        return float(balancer.attrs.get("idle_timeout.timeout_seconds", 60))
    timeouts = [float(listener.attributes["tcp.idle_timeout.seconds"]) for listener in balancer.listeners.values()]
    return max(timeouts, default=350.0)


def _target_group(group: FakeTargetGroup) -> loadbalancer.TargetGroup:
    port = group.health_check_port
    kind, check_kind = str(group.protocol), str(group.health_check_protocol)
    check = loadbalancer.HealthCheck(
        protocol=check_kind if check_kind in ("HTTP", "HTTPS") else "TCP",  # type: ignore[arg-type]
        port=int(port) if port and port != "traffic-port" else None,
        path=group.health_check_path or "/",
        matcher=group.matcher.get("HttpCode", "200-399") if check_kind in ("HTTP", "HTTPS") else "200-399",
        interval=float(group.health_check_interval_seconds),
        timeout=float(group.health_check_timeout_seconds),
        healthy_threshold=int(group.healthy_threshold_count),
        unhealthy_threshold=int(group.unhealthy_threshold_count),
    )
    going = draining(group)
    targets = []
    for instance_id in [*group.targets, *going]:
        instance = group.ec2_backend.get_instance_by_id(instance_id)
        if instance is not None and instance.private_ip:
            targets.append(loadbalancer.Target(instance_id, instance.private_ip, draining=instance_id in going))
    taken = {target.address for target in targets}
    targets += [loadbalancer.Target(lost, address) for lost, address in _lost(group).items() if address not in taken]
    return loadbalancer.TargetGroup(group.name, kind, int(group.port), check, tuple(targets))  # type: ignore[arg-type]


# -- in moto's place ---------------------------------------------------------------------------------------------------

_health_for = FakeTargetGroup.health_for


@replaces(FakeTargetGroup, "health_for")
def _health_as_reported(self: FakeTargetGroup, target: dict[str, Any], ec2_backend: Any) -> FakeHealthStatus:
    answer = _health_for(self, target, ec2_backend)
    if target["Id"] in self.targets and not self.load_balancer_arns:
        answer.status, answer.reason = "unused", "Target.NotInUse"
        answer.description = "Target group is not configured to receive traffic from the load balancer"
    elif target["Id"] in self.targets and answer.status == "healthy":
        answer.status = getattr(self, "health", {}).get(target["Id"], "initial")
        if answer.status == "unhealthy":
            answer.reason, answer.description = "Target.FailedHealthChecks", "Health checks failed"
        elif answer.status == "initial":
            answer.reason, answer.description = "Elb.InitialHealthChecking", "Initial health checks in progress"
    elif target["Id"] in draining(self):
        answer.status, answer.reason = "draining", "Target.DeregistrationInProgress"
        answer.description = "Target deregistration is in progress"
    return answer


@replaces(ELBv2Backend, "notify_terminate_instances")
def _deregistered_by_auto_scaling(self: ELBv2Backend, instance_ids: list[str]) -> None:
    """Nothing: a terminated instance's group takes it out of its target groups, and then it drains."""


def _create_load_balancer(cls: Any, /, name: str, json: Any, account: str, region: str, **_: Any) -> FakeLoadBalancer:
    properties = json["Properties"]
    backend = elbv2_backends[account][region]
    kind = properties.get("Type", "application")
    taken = {balancer.dns_name for balancer in backend.load_balancers.values()}
    balancer = backend.create_load_balancer(
        name,
        properties.get("SecurityGroups") or [],
        properties.get("Subnets") or [],
        subnet_mappings=properties.get("SubnetMappings"),
        scheme=properties.get("Scheme", "internet-facing"),
        loadbalancer_type=kind,
        tags=properties.get("Tags"),
    )
    if kind == "network":
        _name_as_network(backend, balancer)
    if address_of := _addresses.get(region):
        numbers = iter(range(len(taken) + 1))
        balancer.dns_name = next(address for n in numbers if (address := address_of(kind, n)) not in taken)
    balancer.canonical_hosted_zone_id = HOSTED_ZONES[kind]
    balancer.activate()
    update_load_balancer(balancer, properties)
    return balancer


replaces(FakeLoadBalancer, "create_from_cloudformation_json")(classmethod(_create_load_balancer))


def _name_as_network(backend: ELBv2Backend, balancer: FakeLoadBalancer) -> None:
    """moto's ARNs say `app` for either kind, and metrics' dimensions are made of them."""
    del backend.load_balancers[balancer.arn]
    tags = backend.tagging_service.get_tag_dict_for_resource(balancer.arn)
    balancer.arn = balancer.arn.replace(":loadbalancer/app/", ":loadbalancer/net/")
    backend.load_balancers[balancer.arn] = balancer
    backend.tagging_service.tag_resource(balancer.arn, [{"Key": key, "Value": tags[key]} for key in tags])


def update_load_balancer(balancer: FakeLoadBalancer, properties: dict[str, Any]) -> None:
    """A changed load balancer in a changed stack."""
    balancer.security_groups = properties.get("SecurityGroups") or []
    balancer.attrs.update(_pairs(properties.get("LoadBalancerAttributes")))


@replaces(FakeLoadBalancer, "get_cfn_attribute")
def _load_balancer_attribute(self: FakeLoadBalancer, name: str) -> Any:
    return {
        "DNSName": self.dns_name,
        "CanonicalHostedZoneID": self.canonical_hosted_zone_id,
        "LoadBalancerArn": self.arn,
        "LoadBalancerFullName": self.arn.split(":loadbalancer/", 1)[1],
        "LoadBalancerName": self.name,
        "SecurityGroups": self.security_groups,
    }[name]


@replaces(ELBv2Backend, "_certificate_exists")
def _any_certificate_exists(self: ELBv2Backend, certificate_arn: str) -> bool:
    """Whatever certificate an environment names, here the lab's own is shown."""
    return True


@replaces(elbv2_models, "register_certificate")
def _no_use_is_recorded(account_id: str, region: str, arn_certificate: str, arn_user: str) -> None:
    """Nothing: there is no such certificate to record it at."""


_create_target_group = FakeTargetGroup.create_from_cloudformation_json.__func__  # type: ignore[attr-defined]


def _create_group(cls: Any, /, name: str, json: Any, account: str, region: str, **rest: Any) -> FakeTargetGroup:
    group: FakeTargetGroup = _create_target_group(cls, name, json, account, region, **rest)
    update_target_group(group, json["Properties"])
    return group


replaces(FakeTargetGroup, "create_from_cloudformation_json")(classmethod(_create_group))


def update_target_group(group: FakeTargetGroup, properties: dict[str, Any]) -> None:
    """A changed target group in a changed stack."""
    group.attributes.update(_pairs(properties.get("TargetGroupAttributes")))
    group.health_check_protocol = properties.get("HealthCheckProtocol", group.health_check_protocol)
    group.health_check_port = properties.get("HealthCheckPort", group.health_check_port)
    group.health_check_path = properties.get("HealthCheckPath", group.health_check_path)
    group.health_check_interval_seconds = properties.get(
        "HealthCheckIntervalSeconds", group.health_check_interval_seconds
    )
    group.health_check_timeout_seconds = properties.get("HealthCheckTimeoutSeconds", group.health_check_timeout_seconds)
    group.healthy_threshold_count = properties.get("HealthyThresholdCount", group.healthy_threshold_count)
    group.unhealthy_threshold_count = properties.get("UnhealthyThresholdCount", group.unhealthy_threshold_count)
    if "Matcher" in properties:
        group.matcher = properties["Matcher"]


@adds(FakeTargetGroup, "get_cfn_attribute")
def _target_group_attribute(self: FakeTargetGroup, name: str) -> Any:
    return {
        "TargetGroupArn": self.arn,
        "TargetGroupName": self.name,
        "TargetGroupFullName": self.arn.rsplit(":", 1)[1],
        "LoadBalancerArns": self.load_balancer_arns,
    }[name]


_create_listener = FakeListener.create_from_cloudformation_json.__func__  # type: ignore[attr-defined]
_update_listener = FakeListener.update_from_cloudformation_json.__func__  # type: ignore[attr-defined]


def _create_with_attributes(cls: Any, /, name: str, json: Any, account: str, region: str, **rest: Any) -> FakeListener:
    listener: FakeListener = _create_listener(cls, name, json, account, region, **rest)
    listener.attributes.update(_pairs(json["Properties"].get("ListenerAttributes")))
    return listener


replaces(FakeListener, "create_from_cloudformation_json")(classmethod(_create_with_attributes))


def _update_with_attributes(cls: Any, /, *args: Any, cloudformation_json: Any, **rest: Any) -> FakeListener:
    listener: FakeListener = _update_listener(cls, *args, cloudformation_json=cloudformation_json, **rest)
    listener.attributes.update(_pairs(cloudformation_json["Properties"].get("ListenerAttributes")))
    return listener


replaces(FakeListener, "update_from_cloudformation_json")(classmethod(_update_with_attributes))


def _pairs(attributes: list[dict[str, str]] | None) -> dict[str, str]:
    return {attribute["Key"]: str(attribute["Value"]) for attribute in attributes or []}
