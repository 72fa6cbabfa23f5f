"""The CDK CLI, pinned in package.json, run for one environment."""

import re
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

_FAILURE = re.compile(r"_FAILED|❌|[Ee]rror\b")
_SHOWN_LINES = 30


def run_cdk(environment: Environment, arguments: Sequence[str]) -> int:
    """Runs `cdk ARGUMENTS` for `environment` in the project's folder, on this terminal; its exit code."""
    command = _command(environment, arguments)
    return subprocess.run(command, cwd=PROJECT, env=process_environment(environment), check=False).returncode


class CdkRun:
    """`cdk ARGUMENTS` in the background, its output in a file; ended when the block ends before it."""

    def __init__(self, environment: Environment, arguments: Sequence[str]) -> None:
        self.log = PROJECT / "cdk.out" / f"{arguments[0]}-{environment.name}.log"
        self.log.parent.mkdir(exist_ok=True)
        with self.log.open("wb") as output:
            self._child = subprocess.Popen(
                _command(environment, arguments),
                cwd=PROJECT,
                env=process_environment(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> "CdkRun":
        return self

    def __exit__(self, *error: object) -> None:
        if self.poll() is None:
            self._child.terminate()
            self._child.wait()

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._child.poll()

    def wait(self) -> int:
        """The exit code, once it has ended."""
        return self._child.wait()

    def failures(self) -> str:
        """The lines of the output that tell of failures, or its end if none does."""
        lines = [line.rstrip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        telling = [line for line in lines if _FAILURE.search(line)]
        return "\n".join((telling or lines)[-_SHOWN_LINES:])


def _command(environment: Environment, arguments: Sequence[str]) -> list[str]:
    if not _CLI.exists():
        raise OperationError("the CDK CLI is not installed", "Run `make setup`.", ExitCode.BAD_INPUT)
    verb, *rest = arguments
    if verb == "bootstrap":
        # Named in full, so that the app is not synthesised: a bootstrap needs the account and region, and nothing else.
        return [str(_CLI), verb, f"aws://{environment.account}/{environment.region}", *rest]
    return [str(_CLI), verb, *rest, "--context", f"environment={environment.name}"]


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
