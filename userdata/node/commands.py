"""Running programs with a time limit that holds even when the program hangs in the kernel."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Callable

from node.errors import NotYet

NOT_FOUND = 127
"""Exit code for a program that does not exist, as a shell has it."""


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


def run(arguments: Sequence[str], *, limit: float) -> Result:
    """Run a program. At `limit` seconds it is killed and abandoned.

    It is not waited for after the kill: a process inside a hung NFS call cannot be killed, and must not hold us. Output
    goes through a file: at a pipe we would wait for every daemon that the program leaves behind.
    """
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                list(arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except FileNotFoundError:
            return Result(NOT_FOUND, f"{arguments[0]}: no such program")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=limit)
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        output.seek(0)
        said = output.read().decode(errors="replace").strip()
    if process.returncode is None:
        return Result(None, f"no end within {limit:.0f} s" + (f": {said}" if said else ""))
    return Result(process.returncode, said)


def must(runner: Runner, arguments: Sequence[str], *, limit: float) -> str:
    """Run a program that is expected to succeed, and return its output. Raises NotYet otherwise."""
    result = runner(arguments, limit=limit)
    if not result.ok:
        outcome = "abandoned" if result.code is None else f"exit code {result.code}"
        raise NotYet(f"`{' '.join(arguments)}`: {outcome}: {result.output[-400:]}")
    return result.output
