"""Where a boot stands, for people far away: the item `boot/<node>` in the node table. Never part of the fence."""

from __future__ import annotations

from typing import Any

from node.aws import AwsError
from node.clock import Clock
from node.journal import log
from node.table import Table

PUSH_EVERY_SECONDS = 30.0
"""While a wait goes on, its reason is stored at most this often."""


class Report:
    """Keeps the report and stores it after every change. A table that does not answer never stops a boot."""

    def __init__(self, table: Table, identifier: str, instance_id: str, clock: Clock) -> None:
        self._table, self._identifier, self._clock = table, identifier, clock
        self._pushed_at = float("-inf")
        self._said = ""
        self._item: dict[str, Any] = {
            "instance_id": instance_id,
            "state": "booting",
            "step": "",
            "detail": "",
            "remedy": "",
            "steps": [],
            "notes": [],
        }

    @property
    def step(self) -> str:
        """The step that goes on."""
        return str(self._item["step"])

    def step_started(self, name: str) -> None:
        """A step begins."""
        self._said = ""
        self._change(state="booting", step=name, detail="", remedy="")

    def step_done(self, name: str, seconds: float) -> None:
        """A step ended well. Stored together with the next change."""
        self._item["steps"].append({"name": name, "seconds": seconds, "state": "done"})

    def note(self, text: str) -> None:
        """Something that does not stop the boot but should be known."""
        log.warning("note: %s", text)
        if text not in self._item["notes"]:
            self._item["notes"].append(text)

    def waiting(self, detail: str, *, state: str = "waiting") -> None:
        """The step waits for something outside. Stored when it is new and then every PUSH_EVERY_SECONDS."""
        if detail != self._said or self._clock.monotonic() - self._pushed_at >= PUSH_EVERY_SECONDS:
            self._said = detail
            self._change(state=state, detail=detail)

    def failed(self, step: str, seconds: float, detail: str, remedy: str, *, state: str = "failed") -> None:
        """The boot ended badly. `state` is `retrying` where it is tried again without a human."""
        self._item["steps"].append({"name": step, "seconds": seconds, "state": "failed"})
        self._change(state=state, step=step, detail=detail, remedy=remedy)

    def ready(self) -> None:
        """The node serves."""
        self._change(state="ready", detail="", remedy="")

    def _change(self, **changes: str) -> None:
        self._item.update(changes, updated_at=self._clock.stamp())
        self._pushed_at = self._clock.monotonic()
        try:
            self._table.put(self._identifier, self._item)
        except AwsError as error:
            log.warning("report not stored: %s", error)
