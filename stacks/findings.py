"""What is wrong with an environment file: one finding a fault, and one error that carries them all."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Path = tuple[str | int, ...]
"""Where a value stands in the document: ("access", "amqp", "allowed_cidrs", 0)."""

_LONGEST_VALUE = 90


@dataclass(frozen=True)
class Violation:
    """A rule that does not hold: where in the document, why it matters, and what to do."""

    path: Path
    reason: str
    remedy: str


@dataclass(frozen=True)
class Finding:
    """One fault in one file. `line` counts from 1; `value` and `line` are None where the file has no such place."""

    file: str
    field: str
    value: str | None
    reason: str
    remedy: str
    line: int | None = None

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        value = "" if self.value is None else f" = {self.value}"
        return f"{place}  {self.field}{value}\n    reason: {self.reason}\n    remedy: {self.remedy}"


class EnvironmentErrors(Exception):  # noqa: N818  it carries several
    """An environment was refused. `findings` has every fault in the order of the file; `str()` prints them all."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = sorted(findings, key=lambda finding: (finding.file, finding.line or 0, finding.field))
        super().__init__(self.findings)

    def __str__(self) -> str:
        count = len(self.findings)
        heading = f"{count} problem{'' if count == 1 else 's'} found, nothing was done:"
        return "\n".join([heading, *(str(finding) for finding in self.findings)])


def field_name(path: Path) -> str:
    """`path` as a reader would write it: `access.amqp.allowed_cidrs[0]`, `tags["aws:team"]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.replace("_", "").replace("-", "").isalnum():
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text or "(whole file)"


def shown(value: Any) -> str:
    """`value` on one line, spelt as YAML spells it and cut where it would be long."""
    if value is None or isinstance(value, bool):
        text = {None: "null", True: "true", False: "false"}[value]
    else:
        text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."
