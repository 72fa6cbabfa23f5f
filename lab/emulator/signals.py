"""CloudFormation's signals: accepted while a resource's creation policy waits for them, refused otherwise."""

from dataclasses import dataclass

from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import CloudFormationBackend, Stack
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.responses import ActionResult, EmptyResult

from lab.emulator.overrides import adds
from lab.emulator.stacks import add_event


@dataclass(frozen=True)
class Signal:
    """One call of SignalResource."""

    stack: str
    logical_id: str
    unique_id: str
    status: str


def received(backend: CloudFormationBackend) -> list[Signal]:
    """All signals received, the oldest first."""
    found: list[Signal] = backend.__dict__.setdefault("lab_signals", [])
    return found


def waits_for_signals(backend: CloudFormationBackend, stack: Stack, logical_id: str) -> bool:
    """Whether a resource's creation policy still wants signals."""
    policy = stack.template_dict["Resources"][logical_id].get("CreationPolicy", {}).get("ResourceSignal")
    if policy is None:
        return False
    before = [s for s in received(backend) if (s.stack, s.logical_id) == (stack.name, logical_id)]
    successes = {signal.unique_id for signal in before if signal.status == "SUCCESS"}
    return len(successes) < int(policy.get("Count", 1))


@adds(CloudFormationResponse, "signal_resource")
def _signal_resource(self: CloudFormationResponse) -> ActionResult:
    backend = self.cloudformation_backend
    stack = backend.get_stack(self._get_param("StackName"))
    logical_id = self._get_param("LogicalResourceId")
    json = stack.template_dict["Resources"].get(logical_id)
    if json is None:
        raise ValidationError(message=f"Resource {logical_id} does not exist for stack {stack.name}")
    if not waits_for_signals(backend, stack, logical_id):
        raise ValidationError(message=f"Resource {logical_id} is in {stack.status} state and cannot be signaled")
    signal = Signal(stack.name, logical_id, self._get_param("UniqueId"), self._get_param("Status"))
    received(backend).append(signal)
    reason = f"Received {signal.status} signal with UniqueId {signal.unique_id}"
    add_event(stack, logical_id, json["Type"], "CREATE_IN_PROGRESS", reason)
    return EmptyResult()
