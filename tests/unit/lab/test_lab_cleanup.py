import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from lab import cleanup, host
from lab.cgroups import Layout
from lab.cleanup import clean, leftovers
from lab.paths import LabPaths
from lab.processes import Process


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabPaths:
    """A machine without a lab, made of directories."""
    for name in ("netns", "unified", "nspawn"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(cleanup, "NAMESPACE_ROOT", tmp_path / "netns")
    monkeypatch.setattr(host, "NSPAWN_STATE", tmp_path / "nspawn")
    monkeypatch.setattr(Layout, "detect", lambda: Layout(tmp_path / "unified", None, systemd_is_init=False))
    return LabPaths("x", "eu-west-1", 4566, IPv4Network("10.77.0.0/16"), tmp_path / "labs" / "x", tmp_path / "cache")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def remember(paths: LabPaths, name: str, process: Process) -> None:
    file = paths.process(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(process)))


def of(child: subprocess.Popen[bytes]) -> Process:
    process = Process.of(child.pid)
    assert process is not None
    return process


def test_where_no_lab_was_nothing_is_left(paths: LabPaths) -> None:
    assert leftovers(paths) == []
    clean(paths)
    assert leftovers(paths) == []


def test_a_process_the_lab_started_is_ended_and_its_files_are_removed(
    paths: LabPaths, child: subprocess.Popen[bytes]
) -> None:
    remember(paths, "haproxy", of(child))
    assert leftovers(paths) == [f"process {child.pid} (haproxy)", f"files in {paths.state}"]

    clean(paths)

    assert child.wait(5) != 0
    assert not paths.state.parent.exists()


def test_a_process_that_got_the_id_of_one_the_lab_started_is_left_alone(
    paths: LabPaths, child: subprocess.Popen[bytes]
) -> None:
    remember(paths, "haproxy", replace(of(child), started=1))
    assert leftovers(paths) == [f"files in {paths.state}"]

    clean(paths)

    assert child.poll() is None


def test_only_what_carries_this_labs_name_is_its_leftover(paths: LabPaths, tmp_path: Path) -> None:
    mine = ["x-vpc", "x-i-0123456789abcdef0"]
    others = ["xy-vpc", "y-vpc", "x-vpc-2", "x-i-something", "y-i-0123456789abcdef0"]
    for name in mine + others:
        (tmp_path / "netns" / name).touch()
        (tmp_path / "unified" / f"rabbitmq-lab-{name}").mkdir()

    found = leftovers(paths)

    assert sorted(found) == [
        "control group rabbitmq-lab-x-i-0123456789abcdef0 with 0 processes",
        "network namespace x-i-0123456789abcdef0",
        "network namespace x-vpc",
    ]


def test_directories_of_a_killed_nspawn_are_removed_and_those_of_others_are_not(
    paths: LabPaths, tmp_path: Path
) -> None:
    mine = tmp_path / "nspawn/unix-export/x-i-0123456789abcdef0"
    other = tmp_path / "nspawn/unix-export/y-i-0123456789abcdef0"
    mine.mkdir(parents=True)
    other.mkdir()
    assert leftovers(paths) == ["directories of systemd-nspawn for x-i-0123456789abcdef0"]

    clean(paths)

    assert not mine.exists()
    assert other.exists()


def test_another_labs_files_beside_it_stay(paths: LabPaths) -> None:
    paths.create()
    other = paths.state.parent / "other"
    other.mkdir()

    clean(paths)

    assert other.is_dir()
    assert not paths.state.exists()
