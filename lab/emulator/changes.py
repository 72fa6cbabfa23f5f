"""CloudFormation: a template applied to a stack, resource by resource.

moto compares templates as they are written; so a resource which refers to a changed one (a group whose launch template
has a new version) stays as it was, and some changes delete and create what they should change. Here a resource is
looked at when its own text, or something that it refers to, has changed; then its *resolved* properties are compared,
and what a change does to each type is said in `UPDATES`. Resources that do not depend on each other go on side by side.
"""

import logging
from collections.abc import Callable
from typing import Any

from moto.autoscaling.models import FakeAutoScalingGroup
from moto.cloudformation import parsing
from moto.cloudformation.models import Stack
from moto.cloudformation.parsing import clean_json
from moto.ec2.models import ec2_backends
from moto.ec2.models.core import TaggedEC2Resource
from moto.efs.models import FileSystem
from moto.elbv2.models import FakeLoadBalancer, FakeTargetGroup

from lab.emulator import balancing, groups, rolling, signals
from lab.emulator.events import ResourceError, add_event, words
from lab.emulator.overrides import replaces
from lab.emulator.progress import Work, side_by_side
from lab.emulator.resources import Resource, Unmodelled
from lab.emulator.templates import after, in_order, references, seconds

log = logging.getLogger("lab.emulator")

Update = Callable[[Any, dict[str, Any]], None]

UPDATES: dict[type, Update] = {
    FakeAutoScalingGroup: groups.update_group,
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

ROLLS = ("LaunchTemplate", "VPCZoneIdentifier")
"""Properties of a group for which its instances are replaced, if it has an update policy."""


class Application:
    """A template applied to a stack. After `run`, or when it has failed, `touched` says what it dealt with.

    With `only`, the other resources are left alone: a rollback undoes what was done and nothing else.
    """

    def __init__(self, stack: Stack, verb: str, only: set[str] | None = None) -> None:
        self._stack, self._verb, self._only = stack, verb, only
        self._map = stack.resource_map
        self._json = self._map._resource_json_map
        self._parsed = self._map._parsed_resources
        self.touched: set[str] = set()
        self.replaced: dict[str, tuple[Any, dict[str, Any]]] = {}
        """Resources whose type has changed: the old ones, which go when all is done."""
        self._changed: set[str] = set()

    def run(self) -> Work:
        """Create and change. What is in the template no more stays until `clean_up`."""
        template = self._stack.template_dict
        before = dict(self._map.resolved_parameters)
        self._map._template = template
        self._map.load_mapping()
        self._map.load_parameters()
        self._map.load_conditions()
        now = self._map.resolved_parameters
        self._changed = {name for name in now if now[name] != before.get(name)}
        self._map.tags.update(
            {"aws:cloudformation:stack-name": self._stack.name, "aws:cloudformation:stack-id": self._stack.stack_id}
        )
        self._wanted = {
            logical_id: json
            for logical_id, json in template["Resources"].items()
            if "Condition" not in json or self._map.lazy_condition_map[json["Condition"]]
        }
        works = {
            logical_id: self._resource(logical_id, self._wanted[logical_id])
            for logical_id in in_order(self._wanted)
            if self._only is None or logical_id in self._only
        }
        yield from side_by_side(works, after(self._wanted))

    def clean_up(self) -> None:
        """Delete what is in the template no more."""
        gone = []
        for logical_id in reversed(in_order(self._json)):
            if logical_id not in self._wanted and logical_id in self._parsed:
                gone.append((self._parsed.pop(logical_id), self._json[logical_id]))
                _resolved(self._map).pop(logical_id, None)
        for logical_id in [logical_id for logical_id in self._json if logical_id not in self._wanted]:
            del self._json[logical_id]
        for resource, json in [*self.replaced.values(), *gone]:
            if resource is not None and json.get("DeletionPolicy") != "Retain":
                self._map._delete_resource(resource, json)

    def restore_replaced(self) -> None:
        """After a failure: the old resources are the stack's again, and the new ones go."""
        for logical_id, (resource, json) in self.replaced.items():
            if new := self._parsed.get(logical_id):
                self._map._delete_resource(new, self._json[logical_id])
            self._parsed[logical_id], self._json[logical_id] = resource, json

    # -- one resource ------------------------------------------------------------------------------------------------

    def _resource(self, logical_id: str, json: dict[str, Any]) -> Work:
        known = self._json.get(logical_id)
        if known is not None and known["Type"] != json["Type"]:
            self.replaced[logical_id] = (self._parsed.pop(logical_id, None), known)
            del self._json[logical_id]
        exists = logical_id in self._parsed
        if exists and not self._may_change(logical_id, json):
            self._json[logical_id] = json
            return
        verb = "UPDATE" if exists else "CREATE"
        try:
            if exists:
                yield from self._change(logical_id, json)
            else:
                yield from self._create(logical_id, json)
        except GeneratorExit:
            add_event(self._stack, logical_id, json["Type"], f"{verb}_FAILED", f"Resource {verb.lower()} cancelled")
            raise
        except Exception as error:
            failure = (
                error if isinstance(error, ResourceError) else ResourceError(logical_id, json["Type"], words(error))
            )
            add_event(self._stack, logical_id, json["Type"], f"{verb}_FAILED", failure.reason)
            raise failure from error

    def _may_change(self, logical_id: str, json: dict[str, Any]) -> bool:
        if self._only is not None or self._json.get(logical_id) != json:
            return True
        return bool(self._changed & set(references(json))) or "Fn::ImportValue" in str(json)

    def _create(self, logical_id: str, json: dict[str, Any]) -> Work:
        kind = json["Type"]
        self.touched.add(logical_id)
        self._changed.add(logical_id)
        add_event(self._stack, logical_id, kind, "CREATE_IN_PROGRESS")
        self._json[logical_id] = json
        try:
            resource: Any = self._map[logical_id]  # which creates it
        except Exception:
            del self._json[logical_id]
            raise
        _resolved(self._map)[logical_id] = clean_json(json.get("Properties", {}), self._map)
        if isinstance(resource, TaggedEC2Resource):
            tags = {**self._map.tags, "aws:cloudformation:logical-id": logical_id}
            ec2_backends[self._stack.account_id][self._stack.region_name].create_tags(
                [resource.physical_resource_id],  # type: ignore[attr-defined]
                tags,
            )
        if policy := json.get("CreationPolicy", {}).get("ResourceSignal"):
            count, timeout = int(policy.get("Count", 1)), str(policy.get("Timeout", "PT5M"))
            when = f"Resource creation Initiated - Waiting on {count} resource signal(s) with a timeout of {timeout}"
            yield from signals.expect(self._stack, logical_id, kind, count, seconds(timeout), when)
        add_event(self._stack, logical_id, kind, "CREATE_COMPLETE")

    def _change(self, logical_id: str, json: dict[str, Any]) -> Work:
        kind, resource = json["Type"], self._parsed[logical_id]
        before = _resolved(self._map).get(logical_id, {})
        now = clean_json(json.get("Properties", {}), self._map)
        self._json[logical_id] = json
        if resource is None or before == now:
            return
        self.touched.add(logical_id)
        self._changed.add(logical_id)
        add_event(self._stack, logical_id, kind, "UPDATE_IN_PROGRESS")
        if change := UPDATES.get(type(resource)):
            change(resource, clean_json(json["Properties"], self._map))
        elif isinstance(resource, Resource) or kind in MOTO_UPDATES_WELL:
            account, region = self._stack.account_id, self._stack.region_name
            changed: Any = parsing.parse_and_update_resource(
                logical_id, json, self._map, account_id=account, region_name=region
            )
            self._parsed[logical_id] = changed
        else:
            log.warning("a change of %s (%s) is not emulated: it stays as it was", logical_id, kind)
        _resolved(self._map)[logical_id] = now
        policy = json.get("UpdatePolicy", {}).get("AutoScalingRollingUpdate")
        if policy and any(before.get(name) != now.get(name) for name in ROLLS):
            yield from rolling.roll(self._stack, logical_id, resource, policy)
        add_event(self._stack, logical_id, kind, "UPDATE_COMPLETE")


def _resolved(resources: parsing.ResourceMap) -> dict[str, Any]:
    """Properties of a stack's resources as they were when they were last created or changed."""
    found: dict[str, Any] = resources.__dict__.setdefault("lab_resolved", {})
    return found


def _update_file_system(file_system: FileSystem, properties: dict[str, Any]) -> None:
    file_system.throughput_mode = properties.get("ThroughputMode", "bursting")
    file_system.provisioned_throughput_in_mibps = properties.get("ProvisionedThroughputInMibps", 0)
    file_system._backup = properties.get("BackupPolicy", {}).get("Status") == "ENABLED"


_class_of_type = parsing.resource_class_from_type


@replaces(parsing, "resource_class_from_type")
def _class_or_unmodelled(resource_type: str) -> Any:
    if resource_type in parsing.NULL_MODELS or resource_type.startswith("Custom::"):
        return _class_of_type(resource_type)
    known = parsing.get_model_map().get(resource_type)
    if known is None:
        log.info("%s is not emulated: it is in its stack and does nothing", resource_type)
    return known or Unmodelled
