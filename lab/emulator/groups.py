"""Auto Scaling's groups: moto's calls and CloudFormation's, made to do what `scaling.Scaling` does."""

from collections.abc import Iterable
from typing import Any

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import (
    AutoScalingBackend,
    DetachInstanceActivity,
    FakeAutoScalingGroup,
    InstanceState,
    TerminateInstanceActivity,
)
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult, EmptyResult

from lab.emulator.overrides import adds, replaces
from lab.emulator.scaling import Scaling, state_of


@replaces(FakeAutoScalingGroup, "set_desired_capacity")
def _set_desired_capacity(self: FakeAutoScalingGroup, new_capacity: int | None) -> None:
    self.desired_capacity = self.min_size if new_capacity is None else new_capacity


def _launch_template_of(self: InstanceState) -> dict[str, Any] | None:
    """moto gives the group's; `outdated` is about the difference."""
    template = self.auto_scaling_group.ec2_launch_template
    known = Scaling.of(self.auto_scaling_group.autoscaling_backend).launched_from(self.instance.id)
    if template is None or known is None:
        return None
    return {"LaunchTemplateId": known[0], "LaunchTemplateName": template.name, "Version": str(known[1])}


replaces(InstanceState, "launch_template")(property(_launch_template_of))


@replaces(AutoScalingBackend, "detach_instances")
def _detach_instances(
    self: AutoScalingBackend, group_name: str, instance_ids: list[str], should_decrement: bool
) -> list[DetachInstanceActivity]:
    group = self.autoscaling_groups[group_name]
    found = [state for state in group.instance_states if state.instance.id in instance_ids]
    for state in found:
        Scaling.of(self).detach(state)
        self.ec2_backend.delete_tags([state.instance.id], {"aws:autoscaling:groupName": group.name})
    if should_decrement:
        group.desired_capacity = (group.desired_capacity or 0) - len(found)
    return [DetachInstanceActivity(state.instance) for state in found]


@replaces(AutoScalingBackend, "update_attached_target_groups")
def _targets_follow_the_lifecycle(self: AutoScalingBackend, group_name: str) -> None:
    """Nothing: only instances in service are targets."""


@replaces(AutoScalingBackend, "notify_terminate_instances")
def _noticed_by_the_health_check(self: AutoScalingBackend, instance_ids: list[str]) -> None:
    """Nothing: the next `advance` finds them shutting down."""


@replaces(AutoScalingBackend, "terminate_instance")
def _terminate_instance(
    self: AutoScalingBackend, instance_id: str, should_decrement: bool
) -> TerminateInstanceActivity:
    state = state_of(self, instance_id)
    if state is None:
        raise ValidationError(f"Instance Id not found - No managed instance found for instance ID: {instance_id}")
    group = state.auto_scaling_group
    before = group.desired_capacity or 0
    if should_decrement:
        if before - 1 < (group.min_size or 0):
            raise ValidationError("Terminating instance without replacement will violate group's min size constraint.")
        group.desired_capacity = before - 1
    Scaling.of(self).end(state)
    return TerminateInstanceActivity(state.instance, before)


@replaces(AutoScalingBackend, "delete_auto_scaling_group")
def _delete_group(self: AutoScalingBackend, group_name: str) -> None:
    """As with ForceDelete: the instances end, and no hook is asked."""
    group = self.autoscaling_groups.pop(group_name, None)
    if group is None:
        raise ValidationError(f"AutoScalingGroup name not found - AutoScalingGroup '{group_name}' not found")
    for state in list(group.instance_states):
        Scaling.of(self)._shut_down(state)
    for key in [key for key, hook in self.lifecycle_hooks.items() if hook.auto_scaling_group_name == group_name]:
        del self.lifecycle_hooks[key]


@adds(AutoScalingResponse, "complete_lifecycle_action")
def _complete_lifecycle_action(self: AutoScalingResponse) -> ActionResult:
    Scaling.of(self.autoscaling_backend).answer(*_action(self), result=self._get_param("LifecycleActionResult"))
    return EmptyResult()


@adds(AutoScalingResponse, "record_lifecycle_action_heartbeat")
def _record_heartbeat(self: AutoScalingResponse) -> ActionResult:
    Scaling.of(self.autoscaling_backend).heartbeat(*_action(self))
    return EmptyResult()


def _action(response: AutoScalingResponse) -> tuple[str, str, str | None, str | None]:
    return (
        response._get_param("AutoScalingGroupName"),
        response._get_param("LifecycleHookName"),
        response._get_param("InstanceId"),
        response._get_param("LifecycleActionToken"),
    )


# -- CloudFormation ----------------------------------------------------------------------------------------------------

_create_group = FakeAutoScalingGroup.create_from_cloudformation_json.__func__  # type: ignore[attr-defined]


def _create_from_cloudformation(cls: Any, /, name: str, json: Any, account: str, region: str, **rest: Any) -> Any:
    group = _create_group(cls, name, json, account, region, **rest)
    _set_hooks(group, json["Properties"].get("LifecycleHookSpecificationList", []))
    return group


replaces(FakeAutoScalingGroup, "create_from_cloudformation_json")(classmethod(_create_from_cloudformation))


def update_group(group: FakeAutoScalingGroup, properties: dict[str, Any]) -> None:
    """A changed group in a changed stack. Its instances stay: replacing them is a rolling update's business."""
    group._set_launch_configuration("", properties["LaunchTemplate"], None)
    group._set_azs_and_vpcs([], ",".join(properties.get("VPCZoneIdentifier", [])) or None, update=True)
    group.min_size, group.max_size = int(properties["MinSize"]), int(properties["MaxSize"])
    group.set_desired_capacity(int(properties.get("DesiredCapacity", group.desired_capacity or group.min_size)))
    group.health_check_type = properties.get("HealthCheckType", "EC2")
    group.health_check_grace_period = int(properties.get("HealthCheckGracePeriod", 0))
    group.target_group_arns = list(properties.get("TargetGroupARNs", []))
    group.tags = [dict(tag) for tag in properties.get("Tags", [])]
    _set_hooks(group, properties.get("LifecycleHookSpecificationList", []))


def _set_hooks(group: FakeAutoScalingGroup, specifications: Iterable[dict[str, Any]]) -> None:
    for wanted in specifications:
        group.autoscaling_backend.create_lifecycle_hook(
            wanted["LifecycleHookName"],
            group.name,
            wanted["LifecycleTransition"],
            int(wanted.get("HeartbeatTimeout", 3600)),
            wanted.get("DefaultResult", "ABANDON"),
        )
