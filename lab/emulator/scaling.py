"""Auto Scaling: an instance's way from launch to service and out again, with lifecycle hooks, as AWS goes it.

    launch -> Pending -> Pending:Wait (launch hooks) -> Pending:Proceed -> InService
    end    -> Terminating -> Terminating:Wait (terminate hooks) -> Terminating:Proceed -> gone

moto's groups launch and end instances at once and know no hooks. Here a call only records what is wanted; `advance`,
which the supervisor calls several times a second, does what is due. A replacement is launched as soon as its
predecessor no longer counts, which is long before that one is gone.
"""

import contextlib
import logging
import time
from dataclasses import dataclass
from typing import Literal
from uuid import uuid4

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import (
    AutoScalingBackend,
    FakeAutoScalingGroup,
    InstanceState,
    LifecycleHook,
    autoscaling_backends,
)
from moto.ec2.models.instances import Instance
from moto.elbv2.exceptions import InvalidTargetError

from lab.emulator.instances import make_host

log = logging.getLogger("lab.emulator")

LAUNCHING = "autoscaling:EC2_INSTANCE_LAUNCHING"
TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"

LIVE = frozenset({"Pending", "Pending:Wait", "Pending:Proceed", "InService"})
"""What counts towards a group's desired capacity."""

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
        self._launched_from: dict[str, tuple[str, int]] = {}

    @classmethod
    def of(cls, backend: AutoScalingBackend) -> "Scaling":
        """The one that belongs to a backend. It goes when the backend is reset."""
        scaling = backend.__dict__.setdefault("lab_scaling", cls(backend))
        assert isinstance(scaling, cls)
        return scaling

    def advance(self) -> None:
        """Do all that is due now. A group that fails keeps no other from its work; failures are raised afterwards."""
        failures = []
        for group in list(self._backend.autoscaling_groups.values()):
            try:
                for state in list(group.instance_states):
                    self._advance(group, state)
                self._fill(group)
            except Exception as error:
                failures.append(RuntimeError(f"{group.name}: {type(error).__name__}: {error}"))
                failures[-1].__cause__ = error
        if failures:
            raise failures[0] if len(failures) == 1 else ExceptionGroup("groups", failures)

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
        self._enter(state, "Terminating")
        self._advance(state.auto_scaling_group, state)

    def detach(self, state: InstanceState) -> None:
        """Take an instance out of its group and its target groups, and let it live."""
        self._deregister(state)
        self._waits.pop(state.instance.id, None)
        state.auto_scaling_group.instance_states.remove(state)

    def launched_from(self, instance_id: str) -> tuple[str, int] | None:
        """The launch template and version that an instance was launched from."""
        return self._launched_from.get(instance_id)

    def outdated(self, group: FakeAutoScalingGroup) -> list[InstanceState]:
        """Live instances launched from something else than what the group launches from now."""
        template = group.ec2_launch_template
        wanted = (template.id, template.get_version(group.launch_template_version).number) if template else None
        live = [state for state in group.instance_states if state.lifecycle_state in LIVE]
        return [state for state in live if self.launched_from(state.instance.id) != wanted]

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
        if instance.state == "terminated" and (lifecycle not in LIVE or self._checks_health(group)):
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
                    default = wait.hook.default_result
                    name = wait.hook.name
                    log.warning("%s (%s): hook %s ran out of time: %s", group.name, instance.id, name, default)
                    self.answer(group.name, name, None, wait.token, default)  # type: ignore[arg-type]

    def _is_lost(self, group: FakeAutoScalingGroup, state: InstanceState) -> bool:
        """Whether the group's health check finds the instance gone or unhealthy."""
        return self._checks_health(group) and (
            state.instance.state not in ("pending", "running") or state.health_status != "Healthy"
        )

    @staticmethod
    def _checks_health(group: FakeAutoScalingGroup) -> bool:
        return not {process["ProcessName"] for process in group.suspended_processes} & {
            "HealthCheck",
            "ReplaceUnhealthy",
        }

    @staticmethod
    def _enter(state: InstanceState, lifecycle_state: str) -> None:
        log.info("%s (%s): %s", state.auto_scaling_group.name, state.instance.id, lifecycle_state)
        state.lifecycle_state = lifecycle_state

    def _wait_for(self, group: FakeAutoScalingGroup, state: InstanceState, transition: str) -> None:
        hooks = [
            hook
            for hook in self._backend.describe_lifecycle_hooks(group.name)
            if hook.lifecycle_transition == transition
        ]
        self._enter(state, "Pending:Wait" if transition == LAUNCHING else "Terminating:Wait")
        if hooks:
            self._waits[state.instance.id] = [Wait.begin(hook) for hook in hooks]
        else:
            self._proceed(state, abandoned=False)

    def _proceed(self, state: InstanceState, *, abandoned: bool) -> None:
        if state.lifecycle_state == "Pending:Wait" and not abandoned:
            self._enter(state, "InService")
            for arn in self._target_groups(state.auto_scaling_group):
                port = self._backend.elbv2_backend.target_groups[arn].port
                self._backend.elbv2_backend.register_targets(arn, [{"Id": state.instance.id, "Port": port}])
        else:
            self._shut_down(state)

    def _shut_down(self, state: InstanceState) -> None:
        self._waits.pop(state.instance.id, None)
        self._deregister(state)
        self._enter(state, "Terminating:Proceed")
        state.instance.terminate()

    def _remove(self, group: FakeAutoScalingGroup, state: InstanceState) -> None:
        self._deregister(state)
        self._waits.pop(state.instance.id, None)
        self._deregistered.pop(state.instance.id, None)
        group.instance_states.remove(state)

    def _deregister(self, state: InstanceState) -> float:
        """Take it out of its target groups: no new connection from now on. Returns the seconds to wait for the old.

        With a network load balancer, and so here, they are always the whole delay.
        """
        delay = 0.0
        for arn in self._target_groups(state.auto_scaling_group):
            target_group = self._backend.elbv2_backend.target_groups[arn]
            with contextlib.suppress(InvalidTargetError):
                target_group.deregister([{"Id": state.instance.id}])
                delay = max(delay, float(str(target_group.attributes["deregistration_delay.timeout_seconds"])))
        return delay

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
        self._launched_from[instance.id] = (template.id, version.number)
        instance.autoscaling_group = group  # type: ignore[attr-defined]
        if profile := version.data.get("IamInstanceProfile"):
            group.ec2_backend.associate_iam_instance_profile(
                instance.id, iam_instance_profile_arn=profile.get("Arn"), iam_instance_profile_name=profile.get("Name")
            )
        state = InstanceState(instance, lifecycle_state="Pending", autoscaling_group=group)
        group.instance_states.append(state)


def target_lifecycle_state(state: InstanceState) -> str:
    """What an instance's metadata says of where Auto Scaling wants it: `Terminated` as soon as it is on its way out."""
    return "InService" if state.lifecycle_state in LIVE else "Terminated"


def state_of(backend: AutoScalingBackend, instance_id: str) -> InstanceState | None:
    """An instance's membership in a group."""
    states = backend.describe_auto_scaling_instances([instance_id])
    return states[0] if states else None


def scaling(account: str, region: str) -> Scaling:
    """The engine of an account's region."""
    return Scaling.of(autoscaling_backends[account][region])
