"""What the file system in the way of EFS does at the moment: wait, fail, or let pass."""

import errno
import os
import threading
import time
from enum import StrEnum
from pathlib import Path


class Mode(StrEnum):
    """`slow`: 3 ms a write or fsync, about what regional EFS takes."""

    NORMAL = "normal"
    STALL = "stall"
    FULL = "full"
    READ_ONLY = "read-only"
    SLOW = "slow"


SLOWNESS = 0.003
STALL_LIMIT = 300.0
"""Seconds. A process in a stalled call cannot even be killed, as with a hard NFS mount: no stall may be for ever."""

LOOK_EVERY = 0.05
"""Seconds between two looks at the command file."""


class Gate:
    """Every call passes it: it waits while the mode is `stall`, and fails as the mode demands."""

    def __init__(self, commands: Path) -> None:
        self._commands = commands
        self.mode = Mode.NORMAL
        self._changed = threading.Condition()
        self.look()

    def look(self) -> None:
        """Follow the command file."""
        try:
            mode = Mode(self._commands.read_text().strip())
        except (OSError, ValueError):
            return
        with self._changed:
            self.mode = mode
            self._changed.notify_all()

    def follow(self) -> None:
        """Look for ever."""
        while True:
            time.sleep(LOOK_EVERY)
            self.look()

    def read(self) -> None:
        """Before anything."""
        with self._changed:
            self._changed.wait_for(lambda: self.mode is not Mode.STALL, STALL_LIMIT)

    def change(self, *, grows: bool = False) -> None:
        """Before a change; `grows`: it needs room."""
        self.read()
        if self.mode is Mode.READ_ONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        if self.mode is Mode.FULL and grows:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.mode is Mode.SLOW:
            time.sleep(SLOWNESS)
