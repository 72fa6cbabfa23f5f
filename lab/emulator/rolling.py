"""CloudFormation's rolling update of an Auto Scaling group whose launch template has changed."""

from typing import Any

from moto.autoscaling.models import FakeAutoScalingGroup
from moto.cloudformation.models import Stack

from lab.emulator import scaling, signals
from lab.emulator.events import ResourceError, add_event, states
from lab.emulator.progress import Work
from lab.emulator.templates import seconds

KIND = "AWS::AutoScaling::AutoScalingGroup"


def roll(stack: Stack, logical_id: str, group: FakeAutoScalingGroup, policy: dict[str, Any]) -> Work:
    """Replace every instance that was launched from another version than the group's, batch by batch.

    `policy` is the `AutoScalingRollingUpdate`. The pause time counts from the launch of the replacements: the old
    instances' terminating hooks are within it. Raises `ResourceError`; the suspended processes are resumed either way.
    """
    engine = scaling.Scaling.of(group.autoscaling_backend)
    suspended = set(policy.get("SuspendProcesses", [])) - {p["ProcessName"] for p in group.suspended_processes}
    minimum, batch_size = int(policy.get("MinInstancesInService", 0)), int(policy.get("MaxBatchSize", 1))
    pause = str(policy.get("PauseTime", "PT5M" if policy.get("WaitOnResourceSignals") else "PT0S"))
    waits = str(policy.get("WaitOnResourceSignals", False)).lower() == "true"

    def tell(what: str) -> None:
        add_event(stack, logical_id, KIND, states(stack)[logical_id], what)

    if minimum >= (group.max_size or 0):
        raise ResourceError(logical_id, KIND, "MinInstancesInService must be less than the autoscaling group's MaxSize")
    obsolete = [state.instance.id for state in engine.outdated(group)]
    if not obsolete:
        return
    tell(
        f"Rolling update initiated. Terminating {len(obsolete)} obsolete instance(s) in batches of {batch_size}, while "
        f"keeping at least {minimum} instance(s) in service."
        + (f" Waiting on resource signals with a timeout of {pause}" if waits else f" Pausing {pause}")
        + " when new instances are added to the autoscaling group."
    )
    if suspended:
        group.autoscaling_backend.suspend_processes(group.name, sorted(suspended))
    try:
        size = max(1, min(batch_size, (group.desired_capacity or 0) - minimum))
        for batch in (obsolete[first : first + size] for first in range(0, len(obsolete), size)):
            before = {state.instance.id for state in group.instance_states}
            tell(f"Terminating instance(s) [{','.join(batch)}]; replacing with {len(batch)} new instance(s).")
            for state in [state for state in group.instance_states if state.instance.id in batch]:
                engine.end(state)
            while len({s.instance.id for s in group.instance_states} - before) < len(batch):
                yield
            if waits:
                when = (
                    f"New instance(s) added to autoscaling group - Waiting on {len(batch)} resource signal(s) with a "
                    f"timeout of {pause}."
                )
                yield from signals.expect(stack, logical_id, KIND, len(batch), seconds(pause), when)
            else:
                until = scaling.clock() + seconds(pause)
                while scaling.clock() < until:
                    yield
            while {state.instance.id for state in group.instance_states} & set(batch):
                yield
            tell(f"Successfully terminated instance(s) [{','.join(batch)}].")
    finally:
        if suspended:
            group.autoscaling_backend.resume_processes(group.name, sorted(suspended))
