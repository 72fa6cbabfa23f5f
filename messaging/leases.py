"""Which relay works on which shard: one at a time, without comparing the clocks of two machines.

A lease carries a beat, a number that its owner raises regularly. A relay may take a lease whose beat has not changed
for `seconds` on its own monotonic clock, by a write on condition that the beat still is what it saw. The owner stops
believing in its lease `seconds` after it *began* to raise the beat. So an owner that lost its lease has stopped
before the next one starts, unless it was frozen between looking at its clock and acting.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from messaging import schema
from messaging.outbox import Outbox
from messaging.writes import keyed, put

PRESENCE_EXPIRES_AFTER = 3600
"""Seconds until the table forgets a relay that has gone."""


@dataclass
class _Seen:
    """A beat, and when this relay saw it first."""

    beat: int
    since: float


class Leases:
    """One relay's leases. Shards are shared out evenly among the relays that are alive. Used by one thread."""

    def __init__(
        self,
        outbox: Outbox,
        *,
        owner: str | None = None,
        seconds: float = 30,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.owner = owner or uuid4().hex
        self._database = outbox.database
        self._table = outbox.table
        self._shards = outbox.shards
        self.seconds = seconds
        self._clock = clock
        self._now = now
        self._seen: dict[str, _Seen] = {}
        self._beats: dict[int, int] = {}
        self._valid_until: dict[int, float] = {}
        self._presence = 0
        self._next_renewal = -math.inf

    def held(self) -> list[int]:
        """The shards this relay may work on now."""
        return [shard for shard in sorted(self._beats) if self.holds(shard)]

    def holds(self, shard: int, seconds: float = 0) -> bool:
        """Whether the lease of a shard is good for so many seconds. To be asked right before what takes that long."""
        return self._clock() + seconds < self._valid_until.get(shard, -math.inf)

    def renew_if_due(self) -> None:
        """Every third of a lease's time renew, take what is free, give back what is too much. Or UnavailableError."""
        if self._clock() >= self._next_renewal:
            self._renew_all()
            self._next_renewal = self._clock() + self.seconds / 3

    def release(self) -> None:
        """Give everything back, so that others need not wait. Raises UnavailableError; then the leases just run out."""
        for shard in list(self._beats):
            self._give_back(shard)
        self._database.write(keyed("Delete", self._table, self._presence_key()))
        self._next_renewal = -math.inf

    def _renew_all(self) -> None:
        self._announce()
        rows = {
            row["sk"]: row
            for row in self._database.query_all(self._table, "pk = :control", {":control": schema.CONTROL})
        }
        alive = self._observe(rows)
        fair = math.ceil(self._shards / (1 + alive))
        for shard in sorted(self._beats, reverse=True):
            if len(self._beats) > fair:
                self._give_back(shard)
            else:
                self._renew(shard)
        # Relays start to look at different places, so that they seldom want the same lease.
        first = schema.shard_of(self.owner, self._shards)
        for step in range(self._shards):
            shard = (first + step) % self._shards
            if len(self._beats) < fair and shard not in self._beats:
                self._take(shard, rows.get(_lease(shard)))

    def _observe(self, rows: dict[str, dict[str, Any]]) -> int:
        """Note the beats; how many other relays are alive."""
        now = self._clock()
        alive = 0
        for name, row in rows.items():
            if "beat" not in row:
                continue
            seen = self._seen.get(name)
            if seen is None or seen.beat != row["beat"]:
                seen = self._seen[name] = _Seen(int(row["beat"]), now)
            is_other = name.startswith("relay/") and name != f"relay/{self.owner}"
            alive += is_other and now - seen.since < self.seconds
        for name in self._seen.keys() - rows.keys():
            del self._seen[name]
        return alive

    def _announce(self) -> None:
        self._presence += 1
        row = {**self._presence_key(), "beat": self._presence}
        self._database.write(put(self._table, {**row, schema.EXPIRES_AT: int(self._now()) + PRESENCE_EXPIRES_AFTER}))

    def _presence_key(self) -> dict[str, str]:
        return {"pk": schema.CONTROL, "sk": f"relay/{self.owner}"}

    def _take(self, shard: int, row: dict[str, Any] | None) -> None:
        key = {"pk": schema.CONTROL, "sk": _lease(shard)}
        beat = int(row["beat"]) if row else 0
        if row and row.get("owner") not in (None, self.owner):
            seen = self._seen.get(_lease(shard))
            if seen is None or self._clock() - seen.since < self.seconds:
                return
        began = self._clock()
        item = {**key, "beat": beat + 1, "owner": self.owner}
        condition: dict[str, Any] = {"condition": "attribute_not_exists(pk)"}
        if row:
            condition = {"condition": "beat = :seen", "values": {":seen": beat}}
        if self._database.write(put(self._table, item, **condition)):
            self._beats[shard] = beat + 1
            self._valid_until[shard] = began + self.seconds

    def _renew(self, shard: int) -> None:
        began = self._clock()
        if self._change(shard, {"owner": self.owner}):
            self._valid_until[shard] = began + self.seconds

    def _give_back(self, shard: int) -> None:
        # First stop believing, then tell.
        self._valid_until.pop(shard, None)
        self._change(shard, {})
        self._beats.pop(shard, None)

    def _change(self, shard: int, content: dict[str, str]) -> bool:
        """Write one's own lease with the next beat. When it is not one's own any more, forget it."""
        beat = self._beats[shard]
        item = {"pk": schema.CONTROL, "sk": _lease(shard), "beat": beat + 1, **content}
        mine: dict[str, Any] = {"condition": "#owner = :me AND beat = :seen", "names": {"#owner": "owner"}}
        if self._database.write(put(self._table, item, **mine, values={":me": self.owner, ":seen": beat})):
            self._beats[shard] = beat + 1
            return True
        self._beats.pop(shard, None)
        self._valid_until.pop(shard, None)
        return False


def _lease(shard: int) -> str:
    return f"lease/{shard:03d}"
