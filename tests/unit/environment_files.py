"""Environment files that are wrong in one place: production's or another's, with values changed."""

import copy
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from stacks.environment import Environment, EnvironmentErrors, Finding

ENVIRONMENTS: Final = Path(__file__).parents[2] / "environments"
REMOVED: Final = object()
"""In place of a value: the key is taken out."""

Changes = Mapping[str, Any]
"""New values by dotted path, such as {"access.amqp.tls": False}; list items by their number."""


@cache
def _original(name: str) -> Any:
    return yaml.safe_load((ENVIRONMENTS / f"{name}.yaml").read_text())


def changed(name: str, changes: Changes) -> Any:
    """The content of `environments/name.yaml` with `changes` made."""
    content = copy.deepcopy(_original(name))
    for path, value in changes.items():
        *above, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
        place = content
        for part in above:
            place = place[part]
        if value is REMOVED:
            del place[last]
        else:
            place[last] = value
    return content


def findings(directory: Path, name: str, changes: Changes) -> list[Finding]:
    """What is found in `environments/name.yaml` with `changes` made. JSON is YAML too."""
    (directory / f"{name}.yaml").write_text(json.dumps(changed(name, changes)))
    try:
        Environment.load(name, directory)
    except EnvironmentErrors as errors:
        return errors.findings
    return []


def load(directory: Path, name: str, changes: Changes) -> Environment:
    """The environment of `environments/name.yaml` with `changes` made, which must be sound."""
    (directory / f"{name}.yaml").write_text(json.dumps(changed(name, changes)))
    return Environment.load(name, directory)


def found(directory: Path, name: str, changes: Changes) -> list[tuple[str, str]]:
    """Field and reason of each finding, for comparisons."""
    return [(finding.field, finding.reason) for finding in findings(directory, name, changes)]


def assert_only(actual: list[Finding], field: str, reason: str) -> None:
    """Exactly one finding, of `field`, with `reason` in its reason and something to do in its remedy."""
    assert [finding.field for finding in actual] == [field], "\n".join(str(finding) for finding in actual)
    assert reason in actual[0].reason, actual[0].reason
    assert len(actual[0].remedy) > 3, "a finding tells what to do"
