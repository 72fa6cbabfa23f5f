"""CloudFormation: the life of a stack. It takes as long as its resources do, and a stack that fails is rolled back."""

import logging
from typing import Any

from moto.cloudformation.exceptions import AlreadyExistsException, ValidationError
from moto.cloudformation.models import CloudFormationBackend, Stack, cloudformation_backends
from moto.cloudformation.parsing import OutputMap
from moto.cloudformation.responses import CloudFormationResponse, StackResourceDTO
from moto.cloudformation.utils import generate_stack_id
from moto.core.responses import ActionResult, EmptyResult
from moto.core.utils import utcnow

from lab.emulator import progress
from lab.emulator.changes import Application
from lab.emulator.events import ResourceError, enter, states, words
from lab.emulator.overrides import adds, replaces
from lab.emulator.progress import Work

log = logging.getLogger("lab.emulator")


class UpdateCancelledError(Exception):
    """Somebody does not want the update any more."""


def _backend(stack: Stack) -> CloudFormationBackend:
    return cloudformation_backends[stack.account_id][stack.region_name]


# -- creation ----------------------------------------------------------------------------------------------------------


@replaces(CloudFormationBackend, "create_stack")
def _create_stack(
    self: CloudFormationBackend,
    name: str,
    template: str,
    parameters: dict[str, Any],
    notification_arns: list[str] | None = None,
    tags: dict[str, str] | None = None,
    role_arn: str | None = None,
    **options: Any,
) -> Stack:
    if any(stack.name == name for stack in self.stacks.values()):
        raise AlreadyExistsException(f"Stack {name} already exists")
    make: Any = Stack  # an abstract class, going by its types
    stack: Stack = make(
        stack_id=generate_stack_id(name, self.region_name, self.account_id),
        name=name,
        template={},
        parameters=parameters,
        account_id=self.account_id,
        region_name=self.region_name,
        notification_arns=notification_arns,
        tags=tags,
        role_arn=role_arn,
        **options,
    )
    stack.parse_template(template)  # a template that is none is refused before there is a stack
    self.stacks[stack.stack_id] = stack
    create(stack, template, parameters)
    return stack


def create(stack: Stack, template: str, parameters: dict[str, Any]) -> None:
    """Begin the creation of a stack that is registered and has nothing yet."""
    stack.parameters = stack.resource_map.input_parameters = parameters
    stack.cross_stack_resources = stack.resource_map.cross_stack_resources = _backend(stack).exports  # not a copy
    # moto makes a resource when it is looked at: there is none to look at before `Application` puts it there.
    stack.resource_map._resource_json_map = {}
    _take(stack, template)
    progress.begin(_backend(stack), stack.stack_id, _creation(stack))


def _creation(stack: Stack) -> Work:
    enter(stack, "CREATE_IN_PROGRESS", "User Initiated")
    application = Application(stack, "CREATE")
    try:
        yield from application.run()
        _publish_outputs(stack)
    except Exception as error:
        _log(stack, error)
        enter(stack, "ROLLBACK_IN_PROGRESS", _summary(stack, "create", error))
        for logical_id in list(stack.resource_map._resource_json_map):
            states(stack).pop(logical_id, None)
        stack.resource_map.delete()
        stack.resource_map._resource_json_map = {}
        enter(stack, "ROLLBACK_COMPLETE")
    else:
        enter(stack, "CREATE_COMPLETE")


# -- change ------------------------------------------------------------------------------------------------------------


@replaces(Stack, "update")
def _update(
    self: Stack,
    template: str,
    role_arn: str | None = None,
    parameters: dict[str, Any] | None = None,
    tags: dict[str, str] | None = None,
) -> None:
    if progress.in_progress(_backend(self), self.stack_id) or self.status == "UPDATE_ROLLBACK_FAILED":
        raise ValidationError(message=f"Stack:{self.stack_id} is in {self.status} state and can not be updated.")
    progress.begin(_backend(self), self.stack_id, _change(self, template, parameters, tags))


def _change(stack: Stack, template: str, parameters: dict[str, Any] | None, tags: dict[str, str] | None) -> Work:
    before, parameters_before = stack.template, stack.parameters
    stack.last_updated_time = utcnow()  # type: ignore[attr-defined]
    enter(stack, "UPDATE_IN_PROGRESS", "User Initiated")
    application = Application(stack, "UPDATE")
    try:
        _take(stack, template)
        stack.parameters = stack.resource_map.input_parameters = parameters or parameters_before
        yield from application.run()
        enter(stack, "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS")
        application.clean_up()
        _publish_outputs(stack)
    except Exception as error:
        _log(stack, error)
        enter(stack, "UPDATE_ROLLBACK_IN_PROGRESS", _summary(stack, "update", error))
        _take(stack, before)
        stack.parameters = stack.resource_map.input_parameters = parameters_before
        application.restore_replaced()
        yield from _rollback(stack, application.touched)
    else:
        stack.tags = stack.tags if tags is None else tags
        enter(stack, "UPDATE_COMPLETE")


def _rollback(stack: Stack, touched: set[str]) -> Work:
    """Undo what was done to these resources. The stack has its former template already."""
    stack.lab_to_undo = touched  # type: ignore[attr-defined]
    undo = Application(stack, "UPDATE", only=touched)
    try:
        yield from undo.run()
        enter(stack, "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS")
        undo.clean_up()
        _publish_outputs(stack)
    except Exception as error:
        _log(stack, error)
        enter(stack, "UPDATE_ROLLBACK_FAILED", _summary(stack, "update", error))
    else:
        enter(stack, "UPDATE_ROLLBACK_COMPLETE")


@adds(CloudFormationResponse, "cancel_update_stack")
def _cancel_update(self: CloudFormationResponse) -> ActionResult:
    stack = self.cloudformation_backend.get_stack(self._get_param("StackName"))
    if stack.status != "UPDATE_IN_PROGRESS":
        raise ValidationError(message="CancelUpdateStack cannot be called from current stack status")
    progress.interrupt(self.cloudformation_backend, stack.stack_id, UpdateCancelledError("Stack update cancelled"))
    return EmptyResult()


@adds(CloudFormationResponse, "continue_update_rollback")
def _continue_rollback(self: CloudFormationResponse) -> ActionResult:
    """Try a failed rollback again."""
    stack = self.cloudformation_backend.get_stack(self._get_param("StackName"))
    if stack.status != "UPDATE_ROLLBACK_FAILED":
        raise ValidationError(
            message=f"Stack:{stack.stack_id} is in {stack.status} state and can not continue its rollback."
        )
    enter(stack, "UPDATE_ROLLBACK_IN_PROGRESS", "User Initiated")
    progress.begin(self.cloudformation_backend, stack.stack_id, _rollback(stack, stack.lab_to_undo))  # type: ignore[attr-defined]
    return EmptyResult()


def _take(stack: Stack, template: Any) -> None:
    """This is the stack's template now; nothing of it has been made."""
    stack.template = template
    stack._parse_template()
    stack.description = stack.template_dict.get("Description")


def _summary(stack: Stack, verb: str, error: Exception) -> str:
    if isinstance(error, ResourceError):
        return f"The following resource(s) failed to {verb}: [{error.logical_id}]. "
    return words(error)


def _log(stack: Stack, error: Exception) -> None:
    if isinstance(error, (ResourceError, UpdateCancelledError)):
        log.warning("stack %s: %s", stack.name, error)
    else:
        log.error("stack %s", stack.name, exc_info=error)


# -- outputs, exports, parameters --------------------------------------------------------------------------------------


def _publish_outputs(stack: Stack) -> None:
    """Other stacks import what this one exports now, not what it exported when it was created."""
    stack.output_map = OutputMap(stack.resource_map, stack.template_dict, stack.stack_id)
    exports: dict[str, Any] = _backend(stack).exports
    for name in [name for name, export in exports.items() if export.exporting_stack_id == stack.stack_id]:
        del exports[name]
    for export in stack.exports:
        if export.name in exports:
            raise ValidationError(message=f"Export with name {export.name} is already exported by another stack")
        exports[export.name] = export


@replaces(CloudFormationBackend, "_resolve_update_parameters")
def _parameters_of_an_update(
    self: CloudFormationBackend, instance: Stack, incoming_params: list[dict[str, Any]]
) -> dict[str, Any]:
    before = instance.stack_parameters
    return {
        parameter["ParameterKey"]: before.get(parameter["ParameterKey"])
        if parameter.get("UsePreviousValue")
        else parameter["ParameterValue"]
        for parameter in incoming_params
    }


def _stack_parameters(self: Stack) -> dict[str, Any]:
    """Values as they were given, or the defaults: of a parameter that names an SSM parameter, that name."""
    declared = self.template_dict.get("Parameters", {})
    return {key: self.parameters.get(key, parameter.get("Default")) for key, parameter in declared.items()}


replaces(Stack, "stack_parameters")(property(_stack_parameters))

_describe_resource = StackResourceDTO.__init__


@replaces(StackResourceDTO, "__init__")
def _describe_with_its_own_state(self: StackResourceDTO, stack: Stack, resource: Any) -> None:
    _describe_resource(self, stack, resource)
    self.resource_status = states(stack).get(str(self.logical_resource_id), stack.status)


# -- deletion ----------------------------------------------------------------------------------------------------------

_delete_stack = CloudFormationBackend.delete_stack


@replaces(CloudFormationBackend, "delete_stack")
def _delete(self: CloudFormationBackend, name_or_stack_id: str) -> None:
    for stack in list(self.stacks.values()):
        if name_or_stack_id in (stack.name, stack.stack_id):
            if str(stack.enable_termination_protection).lower() == "true":
                raise ValidationError(
                    message=f"Stack [{stack.name}] cannot be deleted while TerminationProtection is enabled"
                )
            progress.drop(self, stack.stack_id)
    _delete_stack(self, name_or_stack_id)


@adds(CloudFormationResponse, "update_termination_protection")
def _update_termination_protection(self: CloudFormationResponse) -> ActionResult:
    stack = self.cloudformation_backend.get_stack(self._get_param("StackName"))
    stack.enable_termination_protection = bool(self._get_bool_param("EnableTerminationProtection"))
    return ActionResult({"StackId": stack.stack_id})
