"""CloudFormation's events, and the failures that they tell of."""

import logging
from datetime import timedelta
from typing import Any

from moto.cloudformation.models import Event, Stack

log = logging.getLogger("lab.emulator")


class ResourceError(Exception):
    """A resource could not be created or changed."""

    def __init__(self, logical_id: str, kind: str, reason: str) -> None:
        super().__init__(f"{logical_id} ({kind}): {reason}")
        self.logical_id, self.kind, self.reason = logical_id, kind, reason


def add_event(stack: Stack, logical_id: str, kind: str, status: str, reason: str | None = None) -> None:
    """One event of a resource, which is in this state from now on."""
    resource = stack.resource_map._parsed_resources.get(logical_id)
    physical_id = getattr(resource, "physical_resource_id", "")
    stack.events.append(Event(stack.stack_id, stack.name, logical_id, physical_id, kind, status, reason, None))
    _in_order(stack)
    states(stack)[logical_id] = status


def states(stack: Stack) -> dict[str, str]:
    """The state of each resource."""
    found: dict[str, str] = stack.__dict__.setdefault("lab_states", {})
    return found


def enter(stack: Stack, status: str, reason: str | None = None) -> None:
    """The stack is in this state from now on, and an event says so."""
    stack.status = status
    stack._add_stack_event(status, resource_status_reason=reason)
    _in_order(stack)
    log.info("stack %s: %s%s", stack.name, status, f": {reason}" if reason else "")


def _in_order(stack: Stack) -> None:
    """Clients sort events by their time, which is told in milliseconds."""
    *_, before, last = [None, *stack.events]
    if before is not None and last is not None:
        last.timestamp = max(last.timestamp, before.timestamp + timedelta(milliseconds=1))


def words(error: BaseException) -> str:
    """What an error of moto's says."""
    said: Any = getattr(error, "message", "") or getattr(error, "description", "") or error
    return str(said) or type(error).__name__
