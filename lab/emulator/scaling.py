"""Auto Scaling: an instance's way from launch to service and out again, with lifecycle hooks, as AWS goes it.

    launch -> Pending -> Pending:Wait (launch hooks) -> Pending:Proceed -> InService
    end    -> Terminating -> Terminating:Wait (terminate hooks) -> Terminating:Proceed -> gone

moto's groups launch and end instances at once and know no hooks. Here a call only records what is wanted; `advance`,
which the supervisor calls several times a second, does what is due. A replacement is launched as soon as its
predecessor no longer counts, which is long before that one is gone.
"""

import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import (
    AutoScalingBackend,
    FakeAutoScalingGroup,
    InstanceState,
    LifecycleHook,
    TerminateInstanceActivity,
    autoscaling_backends,
)
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.models.instances import Instance
from moto.elbv2.exceptions import InvalidTargetError

from lab.emulator.instances import make_host
from lab.emulator.overrides import adds, replaces

LAUNCHING = "autoscaling:EC2_INSTANCE_LAUNCHING"
TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"

LIVE = frozenset({"Pending", "Pending:Wait", "Pending:Proceed", "InService"})
"""What counts towards a group's desired capacity."""

DEREGISTRATION_LIMIT = 5.0
"""Seconds. Auto Scaling waits for the target groups' deregistration delay before the terminating hook; the lab, whose
connections are on one machine, waits no longer than this."""

HEARTBEATS = 100
"""How often a hook's timeout can be had in all: the smaller of this and 48 hours is AWS's limit."""

clock = time.monotonic

Result = Literal["CONTINUE", "ABANDON"]


@dataclass
class Wait:
    """One hook that an instance waits for."""

    hook: LifecycleHook
    token: str
    heartbeat_ends: float
    ends: float

    @classmethod
    def begin(cls, hook: LifecycleHook) -> "Wait":
        """Both limits count from now."""
        ends = min(HEARTBEATS * hook.heartbeat_timeout, hook.global_timeout)
        return cls(hook, str(uuid4()), clock() + hook.heartbeat_timeout, clock() + ends)

    @property
    def is_over(self) -> bool:
        """No heartbeat in time, or altogether too long."""
        return clock() >= min(self.heartbeat_ends, self.ends)


class Scaling:
    """The groups of one account and region."""

    def __init__(self, backend: AutoScalingBackend) -> None:
        self._backend = backend
        self._waits: dict[str, list[Wait]] = {}
        self._deregistered: dict[str, float] = {}
        self._launch_after: dict[str, float] = {}

    @classmethod
    def of(cls, backend: AutoScalingBackend) -> "Scaling":
        """The one that belongs to a backend. It goes when the backend is reset."""
        scaling = backend.__dict__.setdefault("lab_scaling", cls(backend))
        assert isinstance(scaling, cls)
        return scaling

    def advance(self) -> None:
        """Do all that is due now."""
        for group in self._backend.autoscaling_groups.values():
            for state in list(group.instance_states):
                self._advance(group, state)
            self._fill(group)

    def hold_replacement(self, group_name: str, seconds: float) -> None:
        """Launch nothing for this group for a while."""
        self._launch_after[group_name] = clock() + seconds

    def end(self, state: InstanceState) -> None:
        """Take an instance out of its group and then terminate it, its hooks permitting."""
        if state.lifecycle_state not in LIVE:
            return
        if state.lifecycle_state != "InService":  # hooks are for instances that were in service
            self._shut_down(state)
            return
        delay = self._deregister(state)
        self._deregistered[state.instance.id] = clock() + delay
        state.lifecycle_state = "Terminating"
        self._advance(state.auto_scaling_group, state)

    def waiting(self, instance_id: str) -> list[Wait]:
        """The hooks an instance waits for."""
        return self._waits.get(instance_id, [])

    def answer(self, group_name: str, hook: str, instance_id: str | None, token: str | None, result: Result) -> None:
        """CompleteLifecycleAction."""
        state, wait = self._find(group_name, hook, instance_id, token)
        if result == "ABANDON":
            self._waits.pop(state.instance.id)  # the other hooks are not waited for
            self._proceed(state, abandoned=True)
            return
        self._waits[state.instance.id].remove(wait)
        if not self._waits[state.instance.id]:
            del self._waits[state.instance.id]
            self._proceed(state, abandoned=False)

    def heartbeat(self, group_name: str, hook: str, instance_id: str | None, token: str | None) -> None:
        """RecordLifecycleActionHeartbeat: the hook's timeout begins anew."""
        _, wait = self._find(group_name, hook, instance_id, token)
        wait.heartbeat_ends = clock() + wait.hook.heartbeat_timeout

    # -- one instance --------------------------------------------------------------------------------------------------

    def _advance(self, group: FakeAutoScalingGroup, state: InstanceState) -> None:
        instance: Instance = state.instance
        lifecycle = state.lifecycle_state
        if instance.state == "terminated":
            self._remove(group, state)
        elif lifecycle in LIVE and self._is_lost(group, state):
            if instance.state == "running":
                self.end(state)
            else:
                self._shut_down(state)
        elif lifecycle == "Pending" and instance.state == "running":
            self._wait_for(group, state, LAUNCHING)
        elif lifecycle == "Terminating" and clock() >= self._deregistered.get(instance.id, 0):
            self._wait_for(group, state, TERMINATING)
        elif lifecycle in ("Pending:Wait", "Terminating:Wait"):
            for wait in [wait for wait in self.waiting(instance.id) if wait.is_over]:
                if wait in self.waiting(instance.id):
                    self.answer(group.name, wait.hook.name, None, wait.token, wait.hook.default_result)  # type: ignore[arg-type]

    def _is_lost(self, group: FakeAutoScalingGroup, state: InstanceState) -> bool:
        """Whether the group's health check finds the instance gone or unhealthy."""
        suspended = {process["ProcessName"] for process in group.suspended_processes}
        if suspended & {"HealthCheck", "ReplaceUnhealthy"}:
            return False
        return state.instance.state not in ("pending", "running") or state.health_status != "Healthy"

    def _wait_for(self, group: FakeAutoScalingGroup, state: InstanceState, transition: str) -> None:
        hooks = [
            hook
            for hook in self._backend.describe_lifecycle_hooks(group.name)
            if hook.lifecycle_transition == transition
        ]
        state.lifecycle_state = "Pending:Wait" if transition == LAUNCHING else "Terminating:Wait"
        if hooks:
            self._waits[state.instance.id] = [Wait.begin(hook) for hook in hooks]
        else:
            self._proceed(state, abandoned=False)

    def _proceed(self, state: InstanceState, *, abandoned: bool) -> None:
        if state.lifecycle_state == "Pending:Wait" and not abandoned:
            state.lifecycle_state = "InService"
            for arn in self._target_groups(state.auto_scaling_group):
                port = self._backend.elbv2_backend.target_groups[arn].port
                self._backend.elbv2_backend.register_targets(arn, [{"Id": state.instance.id, "Port": port}])
        else:
            self._shut_down(state)

    def _shut_down(self, state: InstanceState) -> None:
        self._waits.pop(state.instance.id, None)
        self._deregister(state)
        state.lifecycle_state = "Terminating:Proceed"
        state.instance.terminate()

    def _remove(self, group: FakeAutoScalingGroup, state: InstanceState) -> None:
        self._deregister(state)
        self._waits.pop(state.instance.id, None)
        self._deregistered.pop(state.instance.id, None)
        group.instance_states.remove(state)

    def _deregister(self, state: InstanceState) -> float:
        """Take it out of its target groups; returns the seconds to wait for that."""
        delay = 0.0
        for arn in self._target_groups(state.auto_scaling_group):
            target_group = self._backend.elbv2_backend.target_groups[arn]
            with contextlib.suppress(InvalidTargetError):
                target_group.deregister([{"Id": state.instance.id}])
                delay = max(delay, float(str(target_group.attributes["deregistration_delay.timeout_seconds"])))
        return min(delay, DEREGISTRATION_LIMIT)

    def _target_groups(self, group: FakeAutoScalingGroup) -> list[str]:
        return [arn for arn in group.target_group_arns if arn in self._backend.elbv2_backend.target_groups]

    def _find(
        self, group_name: str, hook: str, instance_id: str | None, token: str | None
    ) -> tuple[InstanceState, Wait]:
        group = self._backend.autoscaling_groups.get(group_name)
        if group is None:
            raise ValidationError(f"AutoScalingGroup name not found - null: {group_name}")
        for state in group.instance_states:
            for wait in self.waiting(state.instance.id):
                if wait.hook.name == hook and (wait.token == token if token else state.instance.id == instance_id):
                    return state, wait
        what = f"token {token}" if token else f"instance ID {instance_id}"
        raise ValidationError(f"No active Lifecycle Action found with {what}")

    # -- one group -----------------------------------------------------------------------------------------------------

    def _fill(self, group: FakeAutoScalingGroup) -> None:
        live = [state for state in group.instance_states if state.lifecycle_state in LIVE]
        missing = (group.desired_capacity or 0) - len(live)
        for state in live[:-missing] if missing < 0 else []:
            self.end(state)
        if "Launch" in {process["ProcessName"] for process in group.suspended_processes}:
            return
        if clock() >= self._launch_after.get(group.name, 0):
            for _ in range(missing):
                self._launch(group)

    def _launch(self, group: FakeAutoScalingGroup) -> None:
        template = group.ec2_launch_template
        if template is None:
            raise ValidationError(f"the lab launches from launch templates only; {group.name} has none")
        version = template.get_version(group.launch_template_version)
        tags = {**version.instance_tags, **group.get_propagated_tags(), "aws:autoscaling:groupName": group.name}
        reservation = group.ec2_backend.run_instances(
            version.image_id,
            1,
            version.user_data,
            [],
            instance_type=version.instance_type,
            is_instance_type_default=False,
            launch_template={"LaunchTemplateId": template.id, "Version": str(version.number)},
            subnet_id=str(group.vpc_zone_identifier).split(",")[0],
            region_name=group.region,
            metadata_options=version.data.get("MetadataOptions", {}),
            tags={"instance": tags},
        )
        instance = reservation.instances[0]
        make_host(instance)
        instance.autoscaling_group = group  # type: ignore[attr-defined]
        if profile := version.data.get("IamInstanceProfile"):
            group.ec2_backend.associate_iam_instance_profile(
                instance.id, iam_instance_profile_arn=profile.get("Arn"), iam_instance_profile_name=profile.get("Name")
            )
        state = InstanceState(instance, lifecycle_state="Pending", autoscaling_group=group)
        group.instance_states.append(state)


def target_lifecycle_state(state: InstanceState) -> str:
    """What an instance's metadata says of where Auto Scaling wants it."""
    return "InService" if state.lifecycle_state in LIVE else "Terminated"


def state_of(backend: AutoScalingBackend, instance_id: str) -> InstanceState | None:
    """An instance's membership in a group."""
    states = backend.describe_auto_scaling_instances([instance_id])
    return states[0] if states else None


# -- in moto's place ---------------------------------------------------------------------------------------------------


@replaces(FakeAutoScalingGroup, "set_desired_capacity")
def _set_desired_capacity(self: FakeAutoScalingGroup, new_capacity: int | None) -> None:
    self.desired_capacity = self.min_size if new_capacity is None else new_capacity


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


def scaling(account: str, region: str) -> Scaling:
    """The engine of an account's region."""
    return Scaling.of(autoscaling_backends[account][region])
