"""The file system in the way of EFS: what each mode lets pass."""

import errno
import threading
from pathlib import Path

import pytest

from lab import efs_gate
from lab.efs_gate import Gate, Mode


def gate(tmp_path: Path, mode: str) -> Gate:
    (tmp_path / "mode").write_text(mode)
    return Gate(tmp_path / "mode")


def test_normal_lets_everything_pass(tmp_path: Path) -> None:
    normal = gate(tmp_path, "normal")
    normal.read()
    normal.change(grows=True)


def test_full_refuses_what_needs_room_and_nothing_else(tmp_path: Path) -> None:
    full = gate(tmp_path, "full")
    full.read()
    full.change()
    with pytest.raises(OSError, match="No space") as raised:
        full.change(grows=True)
    assert raised.value.errno == errno.ENOSPC


def test_read_only_refuses_every_change(tmp_path: Path) -> None:
    read_only = gate(tmp_path, "read-only")
    read_only.read()
    with pytest.raises(OSError, match="Read-only") as raised:
        read_only.change()
    assert raised.value.errno == errno.EROFS


def test_a_stall_ends_when_the_command_file_says_so(tmp_path: Path) -> None:
    stalled = gate(tmp_path, "stall")
    passed = threading.Event()

    def call() -> None:
        stalled.read()
        passed.set()

    threading.Thread(target=call, daemon=True).start()
    assert not passed.wait(0.1)
    (tmp_path / "mode").write_text("normal\n")
    stalled.look()
    assert passed.wait(5)


def test_no_stall_is_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efs_gate, "STALL_LIMIT", 0.05)
    gate(tmp_path, "stall").read()


def test_a_half_written_command_changes_nothing(tmp_path: Path) -> None:
    full = gate(tmp_path, "full")
    (tmp_path / "mode").write_text("")
    full.look()
    assert full.mode is Mode.FULL
