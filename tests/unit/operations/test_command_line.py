"""What the command line says and how it exits when it cannot do what was asked."""

import subprocess
import sys
from pathlib import Path

import pytest

from operations.aws import process_environment
from operations.deployment import Deployment
from operations.errors import ExitCode, OperationError
from stacks.environment import Environment

PROJECT = Path(__file__).resolve().parents[3]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "operations", *arguments]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False)


def test_an_unknown_environment_is_refused_with_exit_code_2_and_no_traceback() -> None:
    done = run("status", "--env", "prodution")
    assert done.returncode == 2
    assert "production" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_cluster_that_is_not_deployed_says_so_with_its_own_exit_code() -> None:
    nobody = Environment.load("local").model_copy(update={"aws_endpoint": "http://127.0.0.1:9"})
    with pytest.raises(OperationError, match="is not deployed: AWS cannot be asked") as raised:
        Deployment(nobody).parameter("node-table")
    assert raised.value.code == ExitCode.NOT_DEPLOYED
    assert "make deploy" in raised.value.remedy


def test_nothing_meant_for_the_emulated_aws_can_reach_a_real_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "real")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "real")
    variables = process_environment(Environment.load("local"))
    assert "AWS_PROFILE" not in variables
    assert "AWS_SESSION_TOKEN" not in variables
    assert variables["AWS_ENDPOINT_URL"] == variables["AWS_ENDPOINT_URL_S3"] == "http://localhost:4566"
    assert variables["AWS_ACCESS_KEY_ID"] == "emulated"


def test_a_real_environment_keeps_the_shells_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "mine")
    variables = process_environment(Environment.load("production"))
    assert variables["AWS_PROFILE"] == "mine"
    assert "AWS_ENDPOINT_URL" not in variables
