"""A file system between a node and its EFS directory, which can stall, fill up, turn read-only or slow down on command.

Only a drill that asks for it puts it there (`python -m lab fault efs`): it costs each call some 50 microseconds, and a
node's start must stay as fast as it is. It has to be a file system: a bind mount cannot turn read-only while a file is
open for writing (EBUSY), a directory has no quota of its own, and nothing in this kernel stalls a local disk.

`python -m lab.efs_fuse SOURCE MOUNTPOINT COMMANDS`: COMMANDS is a file with one word (`Mode`), looked at at every call.
"""

import os
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import mfusepy as fuse

from lab.efs_gate import Gate


class PassThrough(fuse.Operations):  # type: ignore[misc]
    """The source's files, as they are. Permissions are checked by the kernel (`default_permissions`)."""

    use_ns = True

    def __init__(self, source: Path, gate: Gate) -> None:
        self._source, self._gate = str(source), gate

    def _path(self, path: str) -> str:
        return self._source + path

    def _own(self, path: str) -> None:
        """What a caller creates is the caller's; this process is root."""
        uid, gid, _ = fuse.fuse_get_context()
        os.lchown(path, uid, gid)

    # -- reading -----------------------------------------------------------------------------------------------------

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        self._gate.read()
        found = os.fstat(fh) if fh is not None else os.lstat(self._path(path))
        times = {"st_atime": found.st_atime_ns, "st_mtime": found.st_mtime_ns, "st_ctime": found.st_ctime_ns}
        names = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_ino", "st_blocks")
        return {name: getattr(found, name) for name in names} | times

    def readdir(self, path: str, fh: int) -> Iterable[str]:
        self._gate.read()
        return [".", "..", *os.listdir(self._path(path))]

    def readlink(self, path: str) -> str:
        self._gate.read()
        return os.readlink(self._path(path))

    def statfs(self, path: str) -> dict[str, int]:
        self._gate.read()
        found = os.statvfs(self._path(path))
        names = ("f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_favail", "f_ffree", "f_files", "f_flag", "f_frsize")
        return {name: getattr(found, name) for name in (*names, "f_namemax")}

    def open(self, path: str, flags: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_TRUNC):
            self._gate.change()
        else:
            self._gate.read()
        # The kernel has checked the flags that concern it; appending it does itself, by offset.
        return os.open(self._path(path), flags & ~(os.O_APPEND | os.O_NOFOLLOW))

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        self._gate.read()
        return os.pread(fh, size, offset)

    def release(self, path: str, fh: int) -> int:
        os.close(fh)
        return 0

    # -- changing ----------------------------------------------------------------------------------------------------

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        self._gate.change(grows=True)
        handle = os.open(self._path(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)
        self._own(self._path(path))
        return handle

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        self._gate.change(grows=True)
        return os.pwrite(fh, data, offset)

    def fsync(self, path: str, datasync: bool, fh: int) -> int:
        self._gate.change()
        (os.fdatasync if datasync else os.fsync)(fh)
        return 0

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        self._gate.change(grows=length > 0)
        os.truncate(fh if fh is not None else self._path(path), length)
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        self._gate.change(grows=True)
        os.mkdir(self._path(path), mode)
        self._own(self._path(path))
        return 0

    def symlink(self, target: str, source: str) -> int:
        self._gate.change(grows=True)
        os.symlink(source, self._path(target))
        self._own(self._path(target))
        return 0

    def link(self, target: str, source: str) -> int:
        self._gate.change(grows=True)
        os.link(self._path(source), self._path(target), follow_symlinks=False)
        return 0

    def rename(self, old: str, new: str) -> int:
        self._gate.change()
        os.rename(self._path(old), self._path(new))
        return 0

    def unlink(self, path: str) -> int:
        self._gate.change()
        os.unlink(self._path(path))
        return 0

    def rmdir(self, path: str) -> int:
        self._gate.change()
        os.rmdir(self._path(path))
        return 0

    def chmod(self, path: str, mode: int) -> int:
        self._gate.change()
        os.chmod(self._path(path), mode)
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        self._gate.change()
        os.lchown(self._path(path), uid, gid)
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        self._gate.change()
        now = time.time_ns()
        os.utime(self._path(path), ns=times or (now, now), follow_symlinks=False)
        return 0


def main(source: str, mountpoint: str, commands: str) -> None:
    """Serve until unmounted or ended."""
    gate = Gate(Path(commands))
    threading.Thread(target=gate.follow, daemon=True).start()
    fuse.FUSE(
        PassThrough(Path(source), gate), mountpoint,
        foreground=True, allow_other=True, default_permissions=True, fsname="lab-efs", subtype="lab-efs",
    )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
