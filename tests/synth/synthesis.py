"""Templates of an environment, synthesised in this process, without AWS and without the CDK CLI."""

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import assertions

from app import build
from stacks.environment import Environment, StackKind

PROJECT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = sorted(path.stem for path in (PROJECT / "environments").glob("*.yaml"))
KINDS: tuple[StackKind, ...] = ("network", "storage", "cluster", "access", "observability")

Template = dict[str, Any]
Properties = Mapping[str, Any]
Synthesiser = Callable[[str], "Synthesis"]


@dataclass(frozen=True)
class Synthesis:
    """One environment's cloud assembly: its templates by kind of stack."""

    environment: Environment
    directory: Path
    templates: dict[StackKind, Template]

    def assertions(self, kind: StackKind) -> assertions.Template:
        """One stack's template for `aws_cdk.assertions`."""
        return _assertions(self.directory / f"{self.environment.stack_name(kind)}.template.json")

    @property
    def manifest(self) -> Any:
        return json.loads((self.directory / "manifest.json").read_text())

    def resources(self, resource_type: str, kind: StackKind | None = None) -> dict[str, Any]:
        """Logical id to resource, of one type, in one stack or in all."""
        return {
            logical_id: resource
            for template_kind, logical_id, resource in self.all_resources()
            if resource["Type"] == resource_type and kind in (None, template_kind)
        }

    def properties(self, resource_type: str, kind: StackKind | None = None) -> list[Properties]:
        return [resource.get("Properties", {}) for resource in self.resources(resource_type, kind).values()]

    def only(self, resource_type: str, kind: StackKind | None = None) -> Any:
        """The one resource of a type."""
        [resource] = self.resources(resource_type, kind).values()
        return resource

    def all_resources(self) -> Iterator[tuple[StackKind, str, Any]]:
        for kind, template in self.templates.items():
            for logical_id, resource in template["Resources"].items():
                yield kind, logical_id, resource

    def outputs(self) -> dict[str, Any]:
        return {
            name: output["Value"]
            for template in self.templates.values()
            for name, output in template.get("Outputs", {}).items()
            if "Export" not in output
        }

    def parameters(self) -> dict[str, Any]:
        """Published SSM parameters, without the cluster's prefix."""
        prefix = f"/rabbitmq/{self.environment.cluster_name}/"
        found = {p["Name"]: p["Value"] for p in self.properties("AWS::SSM::Parameter")}
        assert all(name.startswith(prefix) for name in found), found
        return {name.removeprefix(prefix): value for name, value in found.items()}


@functools.cache
def _assertions(path: Path) -> assertions.Template:
    return assertions.Template.from_json(json.loads(path.read_text()))


def load(name: str) -> Environment:
    return Environment.load(name, PROJECT / "environments")


def synthesise(
    environment: Environment,
    directory: Path,
    prepare: Callable[[cdk.App], None] | None = None,
    *,
    validate: bool = False,
) -> Synthesis:
    """Synthesise with the context of cdk.json, as the CLI would."""
    context = json.loads((PROJECT / "cdk.json").read_text())["context"]
    app = cdk.App(
        outdir=str(directory),
        context=context,
        analytics_reporting=False,
        tree_metadata=False,
        builtin_cloud_formation_validation=validate,
    )
    if prepare:
        prepare(app)
    build(app, environment)
    app.synth()
    kinds: tuple[StackKind, ...] = (*KINDS, "messaging") if environment.messaging else KINDS
    templates = {
        kind: json.loads((directory / f"{environment.stack_name(kind)}.template.json").read_text()) for kind in kinds
    }
    return Synthesis(environment, directory, templates)
