"""Writing files that are either the old or the new version, never half of one, and never readable by too many."""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Account:
    """A local user and group. They can have other numbers on another instance of the same node."""

    uid: int
    gid: int


ROOT = Account(0, 0)


def write(path: Path, content: str | bytes, *, mode: int = 0o644, owner: Account = ROOT) -> bool:
    """Replace `path` atomically and durably. Returns whether its content, mode or owner changed."""
    data = content.encode() if isinstance(content, str) else content
    if _is(path, data, mode, owner):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # created with mode 0600
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            _own(descriptor, owner)
            os.fchmod(descriptor, mode)
            stream.flush()
            os.fsync(descriptor)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    return True


def _is(path: Path, data: bytes, mode: int, owner: Account) -> bool:
    try:
        status = path.lstat()
        return (
            not path.is_symlink()
            and status.st_mode & 0o7777 == mode
            and (os.geteuid() != 0 or (status.st_uid, status.st_gid) == (owner.uid, owner.gid))
            and path.read_bytes() == data
        )
    except FileNotFoundError:
        return False


def _own(target: int | Path, owner: Account) -> None:
    if os.geteuid() == 0:  # a test that is not root owns its files anyway
        os.chown(target, owner.uid, owner.gid)


def directory(path: Path, *, mode: int = 0o755, owner: Account = ROOT) -> None:
    """Make `path` a directory with this mode and owner, whatever it was before."""
    path.mkdir(parents=True, exist_ok=True)
    _own(path, owner)
    path.chmod(mode)


def give_tree(path: Path, owner: Account) -> int:
    """Give a directory and everything in it to `owner`; returns how many entries changed hands.

    Numbers of users differ between instances. The top goes last: if it is right, everything below is, so that the usual
    boot looks at one inode only, and an interrupted change is repeated.
    """
    top = path.lstat()
    if os.geteuid() != 0 or (top.st_uid, top.st_gid) == (owner.uid, owner.gid):
        return 0
    changed = 0
    for parent, directories, names in os.walk(path, topdown=False):
        for name in directories + names:
            os.chown(os.path.join(parent, name), owner.uid, owner.gid, follow_symlinks=False)
            changed += 1
    os.chown(path, owner.uid, owner.gid)
    return changed + 1
