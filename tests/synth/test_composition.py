"""Five stacks in one direction, and changes that stay where they belong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stacks import bundle
from tests.synth.synthesis import KINDS, PROJECT, Synthesis, Synthesiser, load, synthesise


def test_stacks_depend_on_earlier_ones_only(synthesis: Synthesis) -> None:
    environment = synthesis.environment
    names = [environment.stack_name(kind) for kind in KINDS]
    artifacts = synthesis.manifest["artifacts"]
    for position, name in enumerate(names):
        stacks = set(artifacts[name]["dependencies"]).intersection(names)
        assert stacks <= set(names[:position]), name
    assert environment.stack_name("cluster") in artifacts[environment.stack_name("access")]["dependencies"]


def test_every_stack_is_bound_to_the_environments_account_and_region(synthesis: Synthesis) -> None:
    environment = synthesis.environment
    bound = {a["environment"] for a in synthesis.manifest["artifacts"].values() if "environment" in a}
    assert bound == {f"aws://{environment.account}/{environment.region}"}


def test_tags_of_the_environment_are_on_the_resources(synthesis: Synthesis) -> None:
    for key, value in synthesis.environment.tags.items():
        for resource_type in ("AWS::EC2::SecurityGroup", "AWS::DynamoDB::Table", "AWS::SecretsManager::Secret"):
            for properties in synthesis.properties(resource_type):
                assert {"Key": key, "Value": value} in properties["Tags"]


def test_no_template_contains_code_that_runs_at_deployment(synthesis: Synthesis) -> None:
    types = {resource["Type"] for _, _, resource in synthesis.all_resources()}
    assert {name for name in types if name.startswith(("Custom::", "AWS::Lambda::"))} == set()
    assert "AWS::CloudFormation::CustomResource" not in types


def test_a_change_of_the_nodes_configuration_touches_nothing_but_their_launch_templates(
    synthesised: Synthesiser, tmp_path: Path
) -> None:
    before = synthesised("local")
    queues = before.environment.queues.model_copy(update={"max_length": 4711})
    after = synthesise(before.environment.model_copy(update={"queues": queues}), tmp_path)
    changed = [kind for kind in KINDS if after.templates[kind] != before.templates[kind]]
    assert changed == ["cluster"]
    resources = before.templates["cluster"]["Resources"]
    different = [
        name for name, resource in resources.items() if after.templates["cluster"]["Resources"][name] != resource
    ]
    assert [resources[name]["Type"] for name in different] == ["AWS::EC2::LaunchTemplate"] * 3


def test_nothing_changes_when_nothing_changed(synthesised: Synthesiser, tmp_path: Path) -> None:
    assert synthesise(load("local"), tmp_path).templates == synthesised("local").templates


@pytest.mark.parametrize("script", ["#!/bin/bash\n", "@@INSTANCE_JSON@@ @@INSTANCE_JSON@@"])
def test_user_data_without_exactly_one_placeholder_is_refused(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "user_data", lambda: script)
    with pytest.raises(ValueError, match="exactly once"):
        synthesise(load("local"), tmp_path)


def run_app(environment: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """app.py as the CDK CLI runs it, without credentials or a region."""
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ["HOME"],  # where jsii keeps its unpacked libraries
        "JSII_NODE": os.environ["JSII_NODE"],
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "CDK_OUTDIR": str(directory / "out"),
        "CDK_CONTEXT_JSON": f'{{"environment": "{environment}"}}',
    }
    command = [sys.executable, str(PROJECT / "app.py")]
    return subprocess.run(command, cwd=PROJECT, env=variables, capture_output=True, text=True, check=False, timeout=120)


def test_the_app_needs_no_credentials(tmp_path: Path) -> None:
    finished = run_app("production", tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert len(list((tmp_path / "out").glob("rabbitmq-production-*.template.json"))) == 5


def test_a_wrong_environment_ends_with_its_findings_and_code_2(tmp_path: Path) -> None:
    finished = run_app("nowhere", tmp_path)
    assert finished.returncode == 2
    assert "nowhere" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert not list((tmp_path / "out").glob("*.template.json"))
