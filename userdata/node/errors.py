"""The two ways in which a step can fail."""

from __future__ import annotations


class Refusal(Exception):
    """Needs a human: trying again would not help, or would harm data.

    `what` is wrong, `where` it was seen, `remedy` is what to do about it.
    """

    def __init__(self, what: str, where: str, remedy: str) -> None:
        super().__init__(what, where, remedy)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what} (in {self.where})"


class NotYet(Exception):
    """Something outside did not answer or is not there yet. The boot is tried again."""
