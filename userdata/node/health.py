"""What only this host knows of its node, for people far away: the item `health/<node>` in the node table.

EFS as the node feels it, and Consul, which answers on loopback only. A small write of three nodes every 30 s is about
260,000 a month, less than half a dollar.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from node.broker import Broker
from node.clock import Clock
from node.commands import Runner, run
from node.consul import Consul
from node.delayed_plugin import NAME as DELAYED_PLUGIN
from node.loopback import Unreachable
from node.table import Table

REPORT_EVERY_SECONDS = 30.0

PROBE_LIMIT_SECONDS = 15.0

_PROBE = """
import os, sys, time
begun = time.monotonic()
descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)
os.write(descriptor, b"x" * 4096)
os.fsync(descriptor)
os.close(descriptor)
print(round((time.monotonic() - begun) * 1000, 1))
"""


class Health:
    """Called every few seconds; stores what changed at once, and everything every REPORT_EVERY_SECONDS."""

    def __init__(
        self,
        table: Table,
        node: str,
        instance_id: str,
        mount: Path,
        mounted: Callable[[], bool],
        broker: Callable[[], Broker],
        consul: Consul,
        clock: Clock,
        runner: Runner = run,
    ) -> None:
        self._table, self._node, self._instance_id = table, node, instance_id
        self._mount, self._mounted = mount, mounted
        self._broker, self._consul, self._clock, self._run = broker, consul, clock, runner
        self._said: dict[str, Any] = {}
        self._said_at = float("-inf")
        self._failing_since: float | None = None

    def failing_for(self) -> float:
        """Seconds since writes to the mounted file system began to fail, 0 if the last one did not."""
        return 0.0 if self._failing_since is None else self._clock.monotonic() - self._failing_since

    def report(self) -> None:
        """Look, and store what was seen if it is time. Errors of AWS are raised."""
        seen = {"mounted": self._mounted(), "consul": self._consul_state(), "versions": self._versions()}
        if seen == self._said and self._clock.monotonic() - self._said_at < REPORT_EVERY_SECONDS:
            return
        self._said, self._said_at = seen, self._clock.monotonic()
        item = {"instance_id": self._instance_id, "updated_at": self._clock.stamp(), **seen}
        if not seen["mounted"]:
            self._failing_since = None  # a boot, or a departure
        self._table.put(f"health/{self._node}", {**item, **self._probe()} if seen["mounted"] else item)

    def _probe(self) -> dict[str, Any]:
        probe = [sys.executable, "-I", "-S", "-c", _PROBE, str(self._mount / ".probe")]
        result = self._run(probe, limit=PROBE_LIMIT_SECONDS)
        if result.ok:
            self._failing_since = None
            return {"write_ms": float(result.output)}
        self._failing_since = self._clock.monotonic() if self._failing_since is None else self._failing_since
        return {"write_error": result.output[-200:]}

    def _consul_state(self) -> dict[str, Any]:
        try:
            return {"leader": self._consul.leader() or "", "peers": list(self._consul.peers())}
        except Unreachable as error:
            return {"error": str(error)}

    def _versions(self) -> dict[str, str]:
        found: dict[str, str] = {}
        with contextlib.suppress(Unreachable):
            found["consul"] = self._consul.version()
        with contextlib.suppress(Unreachable):
            found.update(self._broker().versions(f"rabbit@{self._node}", DELAYED_PLUGIN))
        return found
