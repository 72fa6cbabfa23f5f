"""CloudFormation's signals: taken while a resource waits for them, refused otherwise."""

from dataclasses import dataclass, field

from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import CloudFormationBackend, Stack, cloudformation_backends
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.responses import ActionResult, EmptyResult

from lab.emulator import scaling
from lab.emulator.events import ResourceError, add_event, states
from lab.emulator.overrides import adds
from lab.emulator.progress import Work


@dataclass
class _Expected:
    """What a resource waits for. A second signal with one id does not count."""

    received: dict[str, str] = field(default_factory=dict)

    def of(self, status: str) -> int:
        return sum(1 for one in self.received.values() if one == status)


def expect(stack: Stack, logical_id: str, kind: str, count: int, seconds: float, when: str) -> Work:
    """Wait until `count` instances have signalled success. Raises `ResourceError` at the first failure or too late.

    `when` says in the event what is waited for after what.
    """
    expected = _waiting(_backend(stack))[(stack.stack_id, logical_id)] = _Expected()
    ends = scaling.clock() + seconds
    add_event(stack, logical_id, kind, states(stack)[logical_id], when)
    try:
        while expected.of("SUCCESS") < count:
            if failed := expected.of("FAILURE"):
                raise ResourceError(
                    logical_id,
                    kind,
                    f"Received {failed} FAILURE signal(s) out of {count}. Unable to satisfy 100% "
                    "MinSuccessfulInstancesPercent requirement",
                )
            if scaling.clock() >= ends:
                raise ResourceError(
                    logical_id,
                    kind,
                    f"Failed to receive {count - expected.of('SUCCESS')} resource signal(s) within the specified "
                    "duration",
                )
            yield
    finally:
        del _waiting(_backend(stack))[(stack.stack_id, logical_id)]


def _backend(stack: Stack) -> CloudFormationBackend:
    return cloudformation_backends[stack.account_id][stack.region_name]


def _waiting(backend: CloudFormationBackend) -> dict[tuple[str, str], _Expected]:
    found: dict[tuple[str, str], _Expected] = backend.__dict__.setdefault("lab_expected_signals", {})
    return found


@adds(CloudFormationResponse, "signal_resource")
def _signal_resource(self: CloudFormationResponse) -> ActionResult:
    stack = self.cloudformation_backend.get_stack(self._get_param("StackName"))
    logical_id, unique_id, status = (self._get_param(key) for key in ("LogicalResourceId", "UniqueId", "Status"))
    json = stack.template_dict["Resources"].get(logical_id)
    if json is None:
        raise ValidationError(message=f"Resource {logical_id} does not exist for stack {stack.name}")
    expected = _waiting(self.cloudformation_backend).get((stack.stack_id, logical_id))
    if expected is None:
        state = states(stack).get(logical_id, stack.status)
        raise ValidationError(message=f"Resource {logical_id} is in {state} state and cannot be signaled")
    if unique_id not in expected.received:
        expected.received[unique_id] = status
        reason = f"Received {status} signal with UniqueId {unique_id}"
        add_event(stack, logical_id, json["Type"], states(stack)[logical_id], reason)
    return EmptyResult()
