"""What operations say when they cannot go on, and with which exit code."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of `python -m operations`."""

    OK = 0
    NOT_READY = 1
    """It ran, and the cluster is not in the state asked for."""
    BAD_INPUT = 2
    """The environment or the arguments are wrong. Nothing was done."""
    NOT_DEPLOYED = 3
    """There is no such cluster (or no access to it)."""
    FAILED = 4
    """A step failed on the way; what was done is in the message."""
    REFUSED = 5
    """It would have done harm, and did nothing."""
    UNKNOWN = 6
    """Nothing wrong was seen, but not everything could be asked."""


class OperationError(Exception):
    """Something an operator can act on. `str()` says what, where and what to do."""

    def __init__(self, message: str, remedy: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.code = code

    def __str__(self) -> str:
        return f"{self.message}\n  remedy: {self.remedy}"
