"""Three independent checkers agree: cdk-nag's AwsSolutions pack, cfn-lint, and CloudFormation's own validation.

What is accepted is acknowledged in the code, beside its reason (`stacks.deployment.acknowledge`).
"""

import functools
import json
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import cdk_nag
import pytest
from aws_cdk import aws_s3 as s3
from cfnlint.config import ConfigMixIn  # type: ignore[import-untyped]
from cfnlint.decode.decode import decode_str  # type: ignore[import-untyped]
from cfnlint.runner import Runner, run_template_by_data  # type: ignore[import-untyped]

from stacks.environment import Messaging
from tests.synth.synthesis import Synthesis, Synthesiser, load, synthesise

ACCEPTED_BY_CFN_LINT = ["W3010"]  # "avoid hardcoding availability zones": a node's name and data belong to a named zone


def apply_pack(app: cdk.App) -> None:
    cdk.Validations.of(app).add_plugins(cdk_nag.AwsSolutionsChecks(app))


def test_the_aws_solutions_pack_finds_nothing_that_is_not_acknowledged(synthesis: Synthesis, tmp_path: Path) -> None:
    # A violation makes synthesis fail, with the rule and the construct in its output.
    synthesise(synthesis.environment, tmp_path, apply_pack)


def test_the_aws_solutions_pack_is_really_applied(tmp_path: Path) -> None:
    def prepare(app: cdk.App) -> None:
        apply_pack(app)
        s3.Bucket(cdk.Stack(app, "Careless"), "Bucket")

    with pytest.raises(RuntimeError, match="AwsSolutions-S10"):
        synthesise(load("local"), tmp_path, prepare)


def test_cloudformation_itself_finds_nothing_nor_the_others_in_the_messaging_stack(tmp_path: Path) -> None:
    everything = load("production").model_copy(update={"messaging": Messaging()})
    templates = synthesise(everything, tmp_path, apply_pack, validate=True).templates
    assert lint(json.dumps(templates["messaging"])) == []


@functools.cache
def linter() -> tuple[ConfigMixIn, Any]:
    config = ConfigMixIn(regions=["eu-west-1"], ignore_checks=ACCEPTED_BY_CFN_LINT)
    return config, Runner(config).rules  # loaded once: reading the rules takes longer than applying them


def lint(template: str) -> list[str]:
    config, rules = linter()
    decoded, errors = decode_str(template)
    assert not errors
    return [f"{match.rule.id} {match.message}" for match in run_template_by_data(decoded, config, rules)]


def test_cfn_lint_finds_nothing(synthesis: Synthesis) -> None:
    for kind, template in synthesis.templates.items():
        assert lint(json.dumps(template)) == [], kind


def test_cfn_lint_is_really_applied(synthesised: Synthesiser) -> None:
    template = json.loads(json.dumps(synthesised("local").templates["access"]))
    next(iter(template["Resources"].values()))["Properties"]["GroupName2"] = "x"
    assert len(lint(json.dumps(template))) == 1
