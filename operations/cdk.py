"""The CDK CLI, pinned in package.json, run for one environment."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from operations.aws import Aws, process_environment
from operations.errors import ExitCode, OperationError
from stacks.environment import Environment

PROJECT = Path(__file__).resolve().parent.parent
_CLI = PROJECT / "node_modules" / ".bin" / "cdk"
_BOOTSTRAP_PARAMETER = "/cdk-bootstrap/hnb659fds/version"
"""Where the CDK's default bootstrap stack records its version."""


def run_cdk(environment: Environment, arguments: Sequence[str]) -> int:
    """Runs `cdk ARGUMENTS` for `environment` in the project's folder; its exit code."""
    if not _CLI.exists():
        raise OperationError("the CDK CLI is not installed", "Run `make setup`.", ExitCode.BAD_INPUT)
    verb, *rest = arguments
    if verb == "bootstrap":
        # Named in full, so that the app is not synthesised: a bootstrap needs the account and region, and nothing else.
        command = [str(_CLI), verb, f"aws://{environment.account}/{environment.region}", *rest]
    else:
        command = [str(_CLI), verb, *rest, "--context", f"environment={environment.name}"]
    return subprocess.run(command, cwd=PROJECT, env=process_environment(environment), check=False).returncode


def is_bootstrapped(aws: Aws) -> bool:
    """Whether `cdk bootstrap` was run for this account and region."""
    try:
        aws.parameters.get_parameter(Name=_BOOTSTRAP_PARAMETER)
    except ClientError as error:
        if error.response["Error"]["Code"] == "ParameterNotFound":
            return False
        raise OperationError(f"AWS refused to be asked: {error}", "Check the AWS credentials in use.") from error
    except BotoCoreError as error:
        raise OperationError(
            f"AWS cannot be reached: {error}", "Check credentials and network; for the lab, `make deploy` starts it."
        ) from error
    return True
