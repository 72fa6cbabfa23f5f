import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.processes import Process, spawn, tail


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sleep", "60"])
    yield child
    child.kill()
    child.wait()


def test_a_process_is_found_again_by_what_was_saved(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    process = Process.of(sleeper.pid)
    assert process is not None
    process.save(tmp_path / "run/x.json")

    assert Process.load(tmp_path / "run/x.json") == process
    assert process.alive


@pytest.mark.parametrize("difference", [{"started": 1}, {"boot": "another"}])
def test_another_process_with_the_same_id_is_never_signalled(
    sleeper: subprocess.Popen[bytes], difference: dict[str, object]
) -> None:
    process = Process.of(sleeper.pid)
    assert process is not None
    earlier = replace(process, **difference)  # type: ignore[arg-type]

    assert not earlier.alive
    assert not earlier.send(signal.SIGKILL)
    earlier.end()
    assert earlier.wait(0)
    assert sleeper.poll() is None


def test_a_zombie_has_ended(sleeper: subprocess.Popen[bytes]) -> None:
    process = Process.of(sleeper.pid)
    assert process is not None

    process.send(signal.SIGKILL)

    assert process.wait(5)
    assert not process.alive
    assert Path(f"/proc/{sleeper.pid}").exists()  # nobody has waited for it


def test_what_ignores_a_request_to_end_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    process = spawn(["sh", "-c", f"trap '' TERM; touch {ready}; while :; do sleep 1; done"], log=tmp_path / "log")
    while not ready.exists():
        time.sleep(0.01)

    process.end(timeout=0.1)

    assert not process.alive


def test_a_spawned_program_gets_none_of_the_callers_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "mine")
    log = tmp_path / "logs" / "env.log"

    process = spawn(["env"], log=log, environment={"EXTRA": "yes"})
    assert process.wait(5)

    variables = dict(line.split("=", 1) for line in log.read_text().splitlines())
    assert "AWS_SECRET_ACCESS_KEY" not in variables
    assert variables["EXTRA"] == "yes"
    assert tail(log, 1) == log.read_text().splitlines()[-1]


def test_a_spawned_program_that_ends_leaves_no_zombie(tmp_path: Path) -> None:
    process = spawn(["true"], log=tmp_path / "log")

    deadline = time.monotonic() + 5
    while Path(f"/proc/{process.pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)

    assert not Path(f"/proc/{process.pid}").exists()


def test_a_half_written_file_is_no_process(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"pid": 1, "sta')

    assert Process.load(tmp_path / "x.json") is None
    assert Process.load(tmp_path / "none.json") is None
    assert Process.of(os.getpid()) is not None
