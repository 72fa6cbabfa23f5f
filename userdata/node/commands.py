"""Running programs with a time limit that holds even when the program hangs in the kernel."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Callable

from node.errors import NotYet


@dataclass(frozen=True)
class Result:
    """Exit code and combined output of a program. `code` is None when it was abandoned at its limit."""

    code: int | None
    output: str

    @property
    def ok(self) -> bool:
        """Whether it ended with 0."""
        return self.code == 0


Runner = Callable[..., Result]


def run(arguments: Sequence[str], *, limit: float, environment: Mapping[str, str] | None = None) -> Result:
    """Run a program. At `limit` seconds it is killed and abandoned.

    It is not waited for after the kill: a process inside a hung NFS call cannot be killed, and must not hold us.
    """
    process = subprocess.Popen(
        list(arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=None if environment is None else dict(environment),
        start_new_session=True,
        text=True,
        errors="replace",
    )
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        if process.stdout:
            process.stdout.close()
        return Result(None, f"no end within {limit:.0f} s")
    return Result(process.returncode, output.strip())


def must(runner: Runner, arguments: Sequence[str], *, limit: float) -> str:
    """Run a program that is expected to succeed, and return its output. Raises NotYet otherwise."""
    result = runner(arguments, limit=limit)
    if not result.ok:
        outcome = "abandoned" if result.code is None else f"exit code {result.code}"
        raise NotYet(f"`{' '.join(arguments)}`: {outcome}: {result.output[-400:]}")
    return result.output
