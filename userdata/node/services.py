"""systemd units, seen through systemctl."""

from __future__ import annotations

from node.commands import Runner, must, run

BOOT = "rabbitmq-node-boot.service"
CONSUL = "consul.service"

LIMIT_SECONDS = 30.0
COMPLAINT_LINES, COMPLAINT_LENGTH = 200, 300
STOP_LIMIT_SECONDS = 240.0
"""Above every TimeoutStopSec in systemd/: systemd itself ends what does not stop."""


class Services:
    """Starts and stops units. Starting never blocks: waiting is done where progress can be seen."""

    def __init__(self, runner: Runner = run) -> None:
        self._run = runner

    def state(self, unit: str) -> str:
        """active, activating, deactivating, inactive or failed."""
        return self._run(["systemctl", "is-active", unit], limit=LIMIT_SECONDS).output.strip() or "unknown"

    def states(self, *units: str) -> list[str]:
        """States of several units, in their order, for the price of one."""
        found = self._run(["systemctl", "is-active", *units], limit=LIMIT_SECONDS).output.split()
        return found if len(found) == len(units) else ["unknown"] * len(units)

    def start(self, unit: str) -> None:
        """Ask for a start and return."""
        must(self._run, ["systemctl", "start", "--no-block", unit], limit=LIMIT_SECONDS)

    def restart(self, unit: str) -> None:
        """Ask for a restart and return."""
        must(self._run, ["systemctl", "restart", "--no-block", unit], limit=LIMIT_SECONDS)

    def stop(self, unit: str) -> bool:
        """Stop and wait. Returns whether the unit is down."""
        self._run(["systemctl", "stop", unit], limit=STOP_LIMIT_SECONDS)
        return self.state(unit) in ("inactive", "failed")

    def restarts(self, unit: str) -> int:
        """How often systemd has started the unit again by itself."""
        result = self._run(["systemctl", "show", "-p", "NRestarts", "--value", unit], limit=LIMIT_SECONDS)
        return int(result.output) if result.ok and result.output.isdigit() else 0

    def complaint(self, unit: str) -> str:
        """The last line in which the unit's own programs speak of an error, or nothing."""
        command = ["journalctl", f"_SYSTEMD_UNIT={unit}", "--boot", "--lines", str(COMPLAINT_LINES)]
        printed = self._run([*command, "--output", "cat", "--no-pager"], limit=LIMIT_SECONDS).output
        errors = [line.strip() for line in printed.splitlines() if "error" in line.lower()]
        return errors[-1][:COMPLAINT_LENGTH] if errors else ""
