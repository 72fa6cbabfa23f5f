"""Processes the lab started, remembered across a crash so that only they are ever signalled."""

import contextlib
import json
import os
import select
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from lab.system import clean_environment

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def _status(pid: int) -> tuple[str, int] | None:
    """State letter and start time (clock ticks after boot) of a process, or None when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field, the name, may hold spaces and brackets: count from behind the last one.
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


@dataclass(frozen=True)
class Process:
    """A process id with what makes it unique: when it started and during which boot of the machine."""

    pid: int
    started: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        """The process which has this id now."""
        status = _status(pid)
        return cls(pid, status[1], _BOOT_ID.read_text().strip()) if status else None

    @classmethod
    def load(cls, file: Path) -> "Process | None":
        """What `save` wrote; None when there is no such file or it is only half written."""
        try:
            return cls(**json.loads(file.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def save(self, file: Path) -> None:
        """Remember this process for a later run."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(self)))

    @property
    def alive(self) -> bool:
        """True while exactly this process runs. A zombie has ended; another process with its id is another process."""
        status = _status(self.pid)
        return (
            status is not None
            and status[0] not in "ZX"
            and status[1] == self.started
            and self.boot == _BOOT_ID.read_text().strip()
        )

    def send(self, number: int) -> bool:
        """Signal it; False when it has ended. The pidfd comes first: the id cannot change hands after the check."""
        try:
            fd = os.pidfd_open(self.pid)
        except (ProcessLookupError, OSError):
            return False
        try:
            if not self.alive:
                return False
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, number)
            return True
        finally:
            os.close(fd)

    def wait(self, timeout: float) -> bool:
        """Wait until it has ended, at most `timeout` seconds; True when it has."""
        try:
            fd = os.pidfd_open(self.pid)
        except (ProcessLookupError, OSError):
            return True
        try:
            if self.alive:
                poller = select.poll()
                poller.register(fd, select.POLLIN)
                poller.poll(timeout * 1000)
            return not self.alive
        finally:
            os.close(fd)

    def end(self, timeout: float = 5, number: int = signal.SIGTERM) -> None:
        """Ask it to end, insist with SIGKILL after `timeout` seconds."""
        if self.send(number) and not self.wait(timeout):
            self.send(signal.SIGKILL)
            self.wait(5)


def spawn(argv: Sequence[str | Path], *, log: Path, environment: Mapping[str, str] | None = None) -> Process:
    """Start a program that outlives its caller and its terminal, output appended to `log`; reaped when it ends."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            [str(part) for part in argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=clean_environment(environment),
        )
    process = Process.of(child.pid)
    if process is None:  # a child stays a zombie until it is waited for, so it always has a status here
        raise AssertionError(f"no status of child {child.pid}")
    threading.Thread(target=child.wait, name=f"reap-{child.pid}", daemon=True).start()
    return process


def tail(log: Path, lines: int = 5) -> str:
    """The last lines of a program's output, for an error message."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""
