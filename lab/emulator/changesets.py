"""CloudFormation's change sets: what `cdk bootstrap`, `cdk diff`, and `cdk deploy` without `--method=direct` use."""

from typing import Any

from moto.cloudformation.models import Change, ChangeSet, CloudFormationBackend
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult, EmptyResult

from lab.emulator import stacks
from lab.emulator.overrides import replaces


class ChangeSetNotFoundError(ServiceException):
    """There is no such change set."""

    code = "ChangeSetNotFound"

    def __init__(self, name: str) -> None:
        super().__init__(f"ChangeSet [{name}] does not exist")


@replaces(CloudFormationBackend, "execute_change_set")
def _execute_change_set(self: CloudFormationBackend, change_set_name: str, stack_name: str | None = None) -> None:
    """`cdk deploy` without `--method=direct`. Returns at once: the stack tells how it goes on."""
    change_set = self.change_sets[change_set_name]
    stack = self.stacks[change_set.stack_id]
    if change_set.change_set_type == "CREATE":
        stack.tags = change_set.tags or {}
        stacks.create(stack, change_set.template, change_set.parameters)
    else:
        stack.update(change_set.template, parameters=change_set.parameters, tags=change_set.tags)
    change_set.execution_status = "EXECUTE_COMPLETE"


@replaces(ChangeSet, "diff")
def _changes(self: ChangeSet) -> list[Change]:
    """With the properties that change, without which `cdk diff` takes a change for none."""
    old, new = self.stack.resource_map._resource_json_map, self.template_dict["Resources"]
    changes = []
    for logical_id in [*old, *(logical_id for logical_id in new if logical_id not in old)]:
        before, after = old.get(logical_id), new.get(logical_id)
        if before == after:
            continue
        action = "Add" if before is None else "Remove" if after is None else "Modify"
        change: Any = Change(action, logical_id, {**old, **new}[logical_id]["Type"])
        was, will = (before or {}).get("Properties", {}), (after or {}).get("Properties", {})
        names = [name for name in {**was, **will} if was.get(name) != will.get(name)] if action == "Modify" else []
        change.details = [
            {"Target": {"Attribute": "Properties", "Name": name, "RequiresRecreation": "Never"}} for name in names
        ]
        changes.append(change)
    return changes


def _change_set_id(response: CloudFormationResponse) -> str | None:
    """The change set that is meant. Its name is unique within its stack only, which moto does not consider."""
    name, stack = response._get_param("ChangeSetName"), response._get_param("StackName")
    for change_set_id, change_set in response.cloudformation_backend.change_sets.items():
        if name == change_set_id or (name == change_set.change_set_name and stack in (change_set.stack_name, None)):
            return change_set_id
    return None


@replaces(CloudFormationResponse, "describe_change_set")
def _describe_change_set(self: CloudFormationResponse) -> ActionResult:
    if (change_set_id := _change_set_id(self)) is None:
        raise ChangeSetNotFoundError(self._get_param("ChangeSetName"))
    return ActionResult(self.cloudformation_backend.change_sets[change_set_id])


@replaces(CloudFormationResponse, "execute_change_set")
def _execute(self: CloudFormationResponse) -> ActionResult:
    if (change_set_id := _change_set_id(self)) is None:
        raise ChangeSetNotFoundError(self._get_param("ChangeSetName"))
    self.cloudformation_backend.execute_change_set(change_set_id)
    return EmptyResult()


@replaces(CloudFormationResponse, "delete_change_set")
def _delete_change_set(self: CloudFormationResponse) -> ActionResult:
    """Harmless when there is none: CDK deletes one before it makes one."""
    if (change_set_id := _change_set_id(self)) is not None:
        del self.cloudformation_backend.change_sets[change_set_id]
    return EmptyResult()
