"""CloudFormation: stacks that change in place, and fail as they do on AWS.

moto compares templates as they are written; so a resource which refers to a changed one (a group whose launch template
has a new version) stays as it was, and some changes delete and create what they should change. Here every resource's
*resolved* properties are compared, and what a change does to each type is said in `UPDATES`. A stack that fails is
rolled back, and the reason is in its events.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any

from moto.autoscaling.models import FakeAutoScalingGroup
from moto.cloudformation import parsing
from moto.cloudformation.exceptions import ValidationError
from moto.cloudformation.models import CloudFormationBackend, Event, Stack
from moto.cloudformation.parsing import OutputMap, ResourceMap, clean_json
from moto.cloudformation.responses import CloudFormationResponse
from moto.core.responses import ActionResult
from moto.efs.models import FileSystem
from moto.elbv2.models import FakeLoadBalancer, FakeTargetGroup

from lab.emulator import balancing, scaling
from lab.emulator.overrides import adds, replaces
from lab.emulator.resources import Resource, Unmodelled

log = logging.getLogger("lab.emulator")

Update = Callable[[Any, dict[str, Any]], None]

UPDATES: dict[type, Update] = {
    FakeAutoScalingGroup: scaling.update_group,
    FakeLoadBalancer: balancing.update_load_balancer,
    FakeTargetGroup: balancing.update_target_group,
    FileSystem: lambda file_system, properties: _update_file_system(file_system, properties),
}
"""How a resource of one of moto's types changes in place."""

MOTO_UPDATES_WELL = frozenset(
    {
        "AWS::CloudWatch::Dashboard",
        "AWS::EC2::LaunchTemplate",
        "AWS::ElasticLoadBalancingV2::Listener",
        "AWS::IAM::Policy",
        "AWS::IAM::Role",
        "AWS::KMS::Alias",
        "AWS::Route53::RecordSet",
        "AWS::SSM::Parameter",
    }
)
"""Types whose update in moto changes what it should and keeps the physical id. Of all others a change is noted only."""


class ResourceError(Exception):
    """A resource could not be created or changed."""

    def __init__(self, logical_id: str, kind: str, reason: str) -> None:
        super().__init__(f"{logical_id} ({kind}): {reason}")
        self.logical_id, self.kind, self.reason = logical_id, kind, reason


# -- resources ---------------------------------------------------------------------------------------------------------

_create_resource = parsing.parse_and_create_resource
_class_of_type = parsing.resource_class_from_type


@replaces(parsing, "resource_class_from_type")
def _class_or_unmodelled(resource_type: str) -> Any:
    if resource_type in parsing.NULL_MODELS or resource_type.startswith("Custom::"):
        return _class_of_type(resource_type)
    known = parsing.get_model_map().get(resource_type)
    if known is None:
        log.info("%s is not emulated: it is in its stack and does nothing", resource_type)
    return known or Unmodelled


@replaces(parsing, "parse_and_create_resource")
def _create_and_remember(logical_id: str, json: Any, resources: ResourceMap, account_id: str, region_name: str) -> Any:
    try:
        resource: Any = _create_resource(logical_id, json, resources, account_id=account_id, region_name=region_name)
        if resource is not None:
            _resolved(resources)[logical_id] = clean_json(json.get("Properties", {}), resources)
        return resource
    except ResourceError:
        raise
    except Exception as error:
        raise ResourceError(logical_id, json["Type"], _words(error)) from error


def _resolved(resources: ResourceMap) -> dict[str, Any]:
    """Properties of a stack's resources as they were when they were last created or changed."""
    found: dict[str, Any] = resources.__dict__.setdefault("lab_resolved", {})
    return found


def _words(error: Exception) -> str:
    return str(getattr(error, "message", "") or getattr(error, "description", "") or error or type(error).__name__)


@replaces(ResourceMap, "update")
def _update_resources(self: ResourceMap, template: dict[str, Any], parameters: dict[str, Any] | None = None) -> None:
    before = self._resource_json_map
    self._template = template
    if parameters:
        self.input_parameters = parameters
    self.load_mapping()
    self.load_parameters()
    self.load_conditions()
    wanted = {
        logical_id: json
        for logical_id, json in template["Resources"].items()
        if "Condition" not in json or self.lazy_condition_map[json["Condition"]]
    }
    self._resource_json_map = template["Resources"]
    replaced: list[tuple[Any, dict[str, Any]]] = []
    for logical_id in _in_order(wanted):
        json = wanted[logical_id]
        if logical_id in before and before[logical_id]["Type"] != json["Type"]:
            replaced.append((self._parsed_resources.pop(logical_id, None), before[logical_id]))
        if logical_id not in self._parsed_resources:
            _ = self[logical_id]  # creates it
        else:
            _change(self, logical_id, json)
    for logical_id in reversed(_in_order(before)):
        if logical_id not in wanted and logical_id in self._parsed_resources:
            replaced.append((self._parsed_resources.pop(logical_id), before[logical_id]))
            _resolved(self).pop(logical_id, None)
    for resource, json in replaced:
        if resource is not None and json.get("DeletionPolicy") != "Retain":
            self._delete_resource(resource, json)


def _change(resources: ResourceMap, logical_id: str, json: dict[str, Any]) -> None:
    properties = clean_json(json.get("Properties", {}), resources)
    resource: Any = resources._parsed_resources[logical_id]
    if resource is None or _resolved(resources).get(logical_id) == properties:
        return
    try:
        if change := UPDATES.get(type(resource)):
            change(resource, clean_json(json["Properties"], resources))
        elif isinstance(resource, Resource) or json["Type"] in MOTO_UPDATES_WELL:
            changed: Any = parsing.parse_and_update_resource(
                logical_id, json, resources, account_id=resources._account_id, region_name=resources._region_name
            )
            resources._parsed_resources[logical_id] = changed
        else:
            log.warning("a change of %s (%s) is not emulated: it stays as it was", logical_id, json["Type"])
    except Exception as error:
        raise ResourceError(logical_id, json["Type"], _words(error)) from error
    _resolved(resources)[logical_id] = properties


def _in_order(resources: dict[str, Any]) -> list[str]:
    """Logical ids, each after those it refers to."""
    order: dict[str, None] = {}

    def visit(logical_id: str, path: tuple[str, ...]) -> None:
        if logical_id in order or logical_id in path:
            return
        for reference in _references(resources[logical_id]):
            if reference in resources:
                visit(reference, (*path, logical_id))
        order[logical_id] = None

    for logical_id in resources:
        visit(logical_id, ())
    return list(order)


def _references(json: Any) -> Iterator[str]:
    if isinstance(json, list):
        for item in json:
            yield from _references(item)
    elif isinstance(json, dict):
        for key, value in json.items():
            if key in ("Ref", "DependsOn"):
                yield from [value] if isinstance(value, str) else value
            elif key == "Fn::GetAtt":
                yield value[0] if isinstance(value, list) else value.split(".")[0]
            else:
                yield from _references(value)


def _update_file_system(file_system: FileSystem, properties: dict[str, Any]) -> None:
    file_system.throughput_mode = properties.get("ThroughputMode", "bursting")
    file_system.provisioned_throughput_in_mibps = properties.get("ProvisionedThroughputInMibps", 0)
    file_system._backup = properties.get("BackupPolicy", {}).get("Status") == "ENABLED"


# -- stacks ------------------------------------------------------------------------------------------------------------

_create_stack = CloudFormationBackend.create_stack


@replaces(CloudFormationBackend, "create_stack")
def _create(self: CloudFormationBackend, name: str, *args: Any, **rest: Any) -> Stack:
    if any(stack.name == name for stack in self.stacks.values()):
        return _create_stack(self, name, *args, **rest)  # raises, as it should
    try:
        created = _create_stack(self, name, *args, **rest)
    except Exception as error:
        found = next((stack for stack in self.stacks.values() if stack.name == name), None)
        if found is None:
            raise
        _record_failure(found, error, "CREATE")
        found._add_stack_event("ROLLBACK_IN_PROGRESS", resource_status_reason=_words(error))
        found.resource_map.delete()
        # moto makes a resource when it is looked at: leave none to look at.
        found.resource_map._resource_json_map = {}
        found.output_map = OutputMap(found.resource_map, {}, found.stack_id)
        found._add_stack_event("ROLLBACK_COMPLETE")
        found.status = "ROLLBACK_COMPLETE"
        return found
    created.cross_stack_resources = created.resource_map.cross_stack_resources = self.exports  # not a copy
    return created


@replaces(Stack, "update")
def _update(
    self: Stack,
    template: str,
    role_arn: str | None = None,
    parameters: dict[str, Any] | None = None,
    tags: dict[str, str] | None = None,
) -> None:
    before = self.template
    self._add_stack_event("UPDATE_IN_PROGRESS", resource_status_reason="User Initiated")
    try:
        _apply(self, template, parameters)
        self.status = "UPDATE_COMPLETE"
    except Exception as error:
        _record_failure(self, error, "UPDATE")
        self._add_stack_event("UPDATE_ROLLBACK_IN_PROGRESS", resource_status_reason=_words(error))
        _apply(self, before, self.parameters)
        self.status = "UPDATE_ROLLBACK_COMPLETE"
    else:
        self.parameters = parameters or self.parameters
        self.tags = self.tags if tags is None else tags
    self._add_stack_event(self.status)


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


def _apply(stack: Stack, template: Any, parameters: dict[str, Any] | None) -> None:
    stack.template = template
    stack._parse_template()
    stack.description = stack.template_dict.get("Description")
    stack.resource_map.update(stack.template_dict, parameters)
    stack.output_map = stack._create_output_map()
    publish_exports(stack)


def publish_exports(stack: Stack) -> None:
    """Other stacks import what this one exports now, not what it exported when it was created."""
    exports: dict[str, Any] = stack.cross_stack_resources
    for name in [name for name, export in exports.items() if export.exporting_stack_id == stack.stack_id]:
        del exports[name]
    exports.update({export.name: export for export in stack.exports})


def _record_failure(stack: Stack, error: Exception, verb: str) -> None:
    if isinstance(error, ResourceError):
        log.warning("stack %s: %s", stack.name, error)
        add_event(stack, error.logical_id, error.kind, f"{verb}_FAILED", error.reason)
    else:
        log.error("stack %s", stack.name, exc_info=error)


def add_event(stack: Stack, logical_id: str, kind: str, status: str, reason: str) -> None:
    resource = stack.resource_map._parsed_resources.get(logical_id)
    physical_id = getattr(resource, "physical_resource_id", "")
    stack.events.append(Event(stack.stack_id, stack.name, logical_id, physical_id, kind, status, reason, None))


# -- termination protection --------------------------------------------------------------------------------------------

_delete_stack = CloudFormationBackend.delete_stack


@replaces(CloudFormationBackend, "delete_stack")
def _delete(self: CloudFormationBackend, name_or_stack_id: str) -> None:
    for stack in self.stacks.values():
        if (
            name_or_stack_id in (stack.name, stack.stack_id)
            and str(stack.enable_termination_protection).lower() == "true"
        ):
            raise ValidationError(
                message=f"Stack [{stack.name}] cannot be deleted while TerminationProtection is enabled"
            )
    _delete_stack(self, name_or_stack_id)


@adds(CloudFormationResponse, "update_termination_protection")
def _update_termination_protection(self: CloudFormationResponse) -> ActionResult:
    stack = self.cloudformation_backend.get_stack(self._get_param("StackName"))
    stack.enable_termination_protection = bool(self._get_bool_param("EnableTerminationProtection"))
    return ActionResult({"StackId": stack.stack_id})
