"""One control group a host. It says which processes are the host's, freezes them, and kills them all at once.

Where systemd is PID 1 it owns the tree, so it is asked for a scope. Elsewhere a group is a directory: in the unified
hierarchy, and in systemd's own one as well where both are mounted (hybrid), as systemd-nspawn expects.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.system import LabError, run


def _mounted(mounts: Path) -> Iterator[tuple[str, Path, str]]:
    for line in mounts.read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        yield kind, Path(where), options


@dataclass(frozen=True)
class Layout:
    """How control groups are mounted on a machine."""

    unified: Path
    named_systemd: Path | None
    systemd_is_init: bool

    @classmethod
    def detect(cls, mounts: Path = Path("/proc/self/mounts"), booted: Path = Path("/run/systemd/system")) -> "Layout":
        """The machine's layout; raises `LabError` when it has no unified hierarchy."""
        unified: Path | None = None
        named: Path | None = None
        for kind, where, options in _mounted(mounts):
            if kind == "cgroup2" and unified is None:
                unified = where
            elif kind == "cgroup" and "name=systemd" in options.split(","):
                named = where
        if unified is None:
            raise LabError(
                "no cgroup2 file system is mounted, and the hosts need one: "
                "mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified"
            )
        return cls(unified, named, booted.is_dir())


class Cgroup:
    """The control group with this name."""

    def __init__(self, name: str, layout: Layout | None = None) -> None:
        self.name = name
        self._layout = layout or Layout.detect()
        if self._layout.systemd_is_init:
            self.path = self._layout.unified / "system.slice" / f"{name}.scope"
            self._directories: list[Path] = []
        else:
            self.path = self._layout.unified / name
            named = self._layout.named_systemd
            self._directories = [self.path, *([named / name] if named else [])]

    @staticmethod
    def names(layout: Layout) -> list[str]:
        """Names of all the groups there are where a `Cgroup` would be."""
        if layout.systemd_is_init:
            return sorted(path.stem for path in (layout.unified / "system.slice").glob("*.scope"))
        roots = [layout.unified, *([layout.named_systemd] if layout.named_systemd else [])]
        return sorted({path.name for root in roots for path in root.iterdir() if path.is_dir()})

    def launcher(self) -> list[str]:
        """A command prefix: what follows it becomes a process in this group, without a fork between."""
        if self._layout.systemd_is_init:
            scope = ["systemd-run", "--scope", "--quiet", "--collect", f"--unit={self.name}", "--property=Delegate=yes"]
            return [*scope, "--property=TasksMax=infinity", "--"]
        for directory in self._directories:
            directory.mkdir(parents=True, exist_ok=True)
        enter = "".join(f"echo $$ >{directory}/cgroup.procs; " for directory in self._directories)
        return ["sh", "-ec", f'{enter}exec "$@"', "launcher"]

    @property
    def exists(self) -> bool:
        """True while there is such a group."""
        return self.path.is_dir()

    def pids(self) -> list[int]:
        """Every process in it and below it."""
        found: list[int] = []
        # Groups below come and go. os.walk passes over one that is gone; its processes have ended or are elsewhere.
        for directory, _, _ in os.walk(self.path):
            with contextlib.suppress(OSError):
                found += map(int, Path(directory, "cgroup.procs").read_text().split())
        return sorted(set(found) - {0})

    def init(self) -> int | None:
        """The process which is PID 1 of the container in it."""
        for pid in self.pids():
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                    words = line.split()
                    if words[0] == "NSpid:" and len(words) == 3 and words[2] == "1":
                        return pid
        return None

    def freeze(self, timeout: float = 5) -> None:
        """Stop every process where it is; returns when all stand still."""
        self._set_frozen(True, timeout)

    def thaw(self, timeout: float = 5) -> None:
        """Undo `freeze`."""
        self._set_frozen(False, timeout)

    @property
    def frozen(self) -> bool:
        """True while all its processes stand still."""
        try:
            return "frozen 1" in (self.path / "cgroup.events").read_text()
        except FileNotFoundError:
            return False

    def _set_frozen(self, wanted: bool, timeout: float) -> None:
        if not self.exists:
            raise LabError(f"control group {self.name} does not exist: its host does not run.")
        (self.path / "cgroup.freeze").write_text("1" if wanted else "0")
        change = "freeze" if wanted else "thaw"
        _wait_for(lambda: self.frozen == wanted, timeout, f"control group {self.name} to {change}")

    def kill(self, timeout: float = 10) -> None:
        """SIGKILL to every process in it; returns when none is left."""
        if not self.exists:
            return
        switch = self.path / "cgroup.kill"
        if switch.exists():  # Linux 5.14 and later; works on a frozen group too
            with contextlib.suppress(FileNotFoundError):
                switch.write_text("1")
        else:
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(FileNotFoundError):
                (self.path / "cgroup.freeze").write_text("0")
        _wait_for(lambda: not self.pids(), timeout, f"the processes of control group {self.name} to end")

    def remove(self, timeout: float = 5) -> None:
        """Remove the empty group with those below it. systemd removes its scopes by itself."""
        if self._layout.systemd_is_init:
            _wait_for(lambda: not self.exists, timeout, f"systemd to remove {self.name}.scope")
            run(["systemctl", "reset-failed", f"{self.name}.scope"], check=False)
            return
        for root in self._directories:
            if root.is_dir():
                for directory, _, _ in os.walk(root, topdown=False):
                    os.rmdir(directory)


def _wait_for(condition: Callable[[], bool], timeout: float, what: str) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise LabError(f"waited {timeout:.0f} s for {what}")
        time.sleep(0.01)
