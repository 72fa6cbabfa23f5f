"""Auto Scaling's instance refresh, which moto lacks: as it is for a group of one.

At most 100 % of the group may be healthy (the group's instance maintenance policy, or the default), so an instance is
ended first, through its hook, and its successor is in service when its launch hook has been completed. Launching before
terminating, checkpoints and rollback are not emulated.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import uuid4

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult
from moto.core.utils import utcnow

from lab.emulator import progress, scaling
from lab.emulator.overrides import adds
from lab.emulator.progress import Work

UNFINISHED = ("Pending", "InProgress", "Cancelling")


class InstanceRefreshInProgressError(ServiceException):
    """One at a time."""

    code = "InstanceRefreshInProgress"


class ActiveInstanceRefreshNotFoundError(ServiceException):
    """Nothing to cancel."""

    code = "ActiveInstanceRefreshNotFound"


@dataclass
class InstanceRefresh:
    """One refresh, with the attributes that AWS describes."""

    auto_scaling_group_name: str
    preferences: dict[str, Any]
    instances_to_update: int
    instance_refresh_id: str = field(default_factory=lambda: str(uuid4()))
    status: str = "Pending"
    status_reason: str | None = None
    percentage_complete: int = 0
    start_time: datetime = field(default_factory=utcnow)
    end_time: datetime | None = None


def refreshes(backend: AutoScalingBackend, group: str) -> list[InstanceRefresh]:
    """A group's refreshes, the newest first."""
    found: dict[str, list[InstanceRefresh]] = backend.__dict__.setdefault("lab_refreshes", {})
    return found.setdefault(group, [])


def _run(engine: scaling.Scaling, group: FakeAutoScalingGroup, refresh: InstanceRefresh, wanted: list[str]) -> Work:
    warmup = float(refresh.preferences.get("InstanceWarmup") or 0)
    refresh.status = "InProgress"
    for number, instance_id in enumerate(wanted):
        if refresh.status == "Cancelling":
            break
        before = {state.instance.id for state in group.instance_states}
        for state in [state for state in group.instance_states if state.instance.id == instance_id]:
            engine.end(state)
        while not any(
            state.lifecycle_state == "InService" and state.instance.id not in before for state in group.instance_states
        ):
            refresh.status_reason = f"Waiting for a new instance in the place of {instance_id} to be in service."
            yield
        ready = scaling.clock() + warmup
        while scaling.clock() < ready:
            refresh.status_reason = "Waiting for the new instance to warm up."
            yield
        refresh.instances_to_update = len(wanted) - number - 1
        refresh.percentage_complete = 100 * (number + 1) // len(wanted)
    cancelled = refresh.status == "Cancelling"
    refresh.status, refresh.status_reason = ("Cancelled", "Cancelled by user.") if cancelled else ("Successful", None)
    refresh.percentage_complete = refresh.percentage_complete if cancelled else 100
    refresh.end_time = utcnow()


def _guarded(engine: scaling.Scaling, group: FakeAutoScalingGroup, refresh: InstanceRefresh, wanted: list[str]) -> Work:
    try:
        yield from _run(engine, group, refresh, wanted)
    except Exception as error:
        refresh.status, refresh.status_reason, refresh.end_time = "Failed", str(error), utcnow()
        raise


def _group(response: AutoScalingResponse) -> FakeAutoScalingGroup:
    name = response._get_param("AutoScalingGroupName")
    group = response.autoscaling_backend.autoscaling_groups.get(name)
    if group is None:
        raise ValidationError(f"AutoScalingGroup name not found - AutoScalingGroup {name} not found")
    return group


@adds(AutoScalingResponse, "start_instance_refresh")
def _start_instance_refresh(self: AutoScalingResponse) -> ActionResult:
    backend, group = self.autoscaling_backend, _group(self)
    if any(refresh.status in UNFINISHED for refresh in refreshes(backend, group.name)):
        raise InstanceRefreshInProgressError("An Instance Refresh is already in progress and blocks this one.")
    preferences = self._get_param("Preferences", {}) or {}
    most = int(preferences.get("MaxHealthyPercentage") or 100)
    least = int(preferences.get("MinHealthyPercentage") or 0)
    if most > 100:
        raise ValidationError("the lab ends an instance before it launches another: MaxHealthyPercentage must be 100")
    if not 0 <= least <= 100:
        raise ValidationError("MinHealthyPercentage must be between 0 and 100")
    engine = scaling.Scaling.of(backend)
    matching = str(preferences.get("SkipMatching", False)).lower() == "true"
    states = (
        engine.outdated(group) if matching else [s for s in group.instance_states if s.lifecycle_state in scaling.LIVE]
    )
    refresh = InstanceRefresh(group.name, preferences, len(states))
    refreshes(backend, group.name).insert(0, refresh)
    work = _guarded(engine, group, refresh, [state.instance.id for state in states])
    progress.begin(backend, f"instance refresh {refresh.instance_refresh_id}", work)
    return ActionResult({"InstanceRefreshId": refresh.instance_refresh_id})


@adds(AutoScalingResponse, "describe_instance_refreshes")
def _describe_instance_refreshes(self: AutoScalingResponse) -> ActionResult:
    wanted = self._get_param("InstanceRefreshIds", [])
    found = refreshes(self.autoscaling_backend, _group(self).name)
    return ActionResult({"InstanceRefreshes": [r for r in found if not wanted or r.instance_refresh_id in wanted]})


@adds(AutoScalingResponse, "cancel_instance_refresh")
def _cancel_instance_refresh(self: AutoScalingResponse) -> ActionResult:
    """A replacement that has begun is brought to its end."""
    for refresh in refreshes(self.autoscaling_backend, _group(self).name):
        if refresh.status in ("Pending", "InProgress"):
            refresh.status = "Cancelling"
            return ActionResult({"InstanceRefreshId": refresh.instance_refresh_id})
    raise ActiveInstanceRefreshNotFoundError("No in progress or pending Instance Refresh found.")
