"""The lab's faults: whom they mean, and that ending one does not depend on what it broke."""

from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from lab import faults
from lab.paths import LabPaths
from lab.system import LabError


@pytest.fixture
def paths(tmp_path: Path) -> LabPaths:
    paths = LabPaths("x", "eu-west-1", 4566, IPv4Network("10.77.0.0/16"), tmp_path / "x", tmp_path / "cache")
    for number, node in enumerate(("q-a", "q-b")):
        directory = paths.efs / "fs-1" / "root" / "nodes" / node
        directory.mkdir(parents=True)
        (paths.efs / "fs-1" / f"fsap-{number}").symlink_to(f"root/nodes/{node}")
    return paths


def instance(identifier: str, state: str = "running", launched: str = "1") -> dict[str, Any]:
    return {
        "node": "q-a", "instance_id": identifier, "availability_zone": "a", "state": state, "launched": launched
    }  # fmt: skip


@pytest.mark.parametrize("name", ["q-a", "i-2", "a"])
def test_a_node_is_meant_by_name_instance_or_zone_and_its_youngest_instance_counts(
    monkeypatch: pytest.MonkeyPatch, paths: LabPaths, name: str
) -> None:
    found = [instance("i-1", launched="1"), instance("i-2", launched="2"), instance("i-3", "terminated", "3")]
    monkeypatch.setattr(faults, "ask", lambda *_, **__: {"instances": found})
    assert faults.find_instance(paths, name)["instance_id"] == "i-2"


def test_a_node_that_does_not_exist_is_answered_with_those_that_do(
    monkeypatch: pytest.MonkeyPatch, paths: LabPaths
) -> None:
    monkeypatch.setattr(faults, "ask", lambda *_, **__: {"instances": [instance("i-1")]})
    with pytest.raises(LabError, match=r"no node q-x\. Its nodes: q-a"):
        faults.find_instance(paths, "q-x")


def test_a_nodes_directory_is_found_without_asking_its_file_system(paths: LabPaths) -> None:
    gone = paths.efs / "fs-1" / "root" / "nodes" / "q-a"
    gone.rmdir()  # as good as stalled: whoever asks it gets no answer
    assert faults._efs_directory(paths, "q-a") == gone
    with pytest.raises(LabError, match="q-x: none of the access points"):
        faults._efs_directory(paths, "q-x")


def test_power_is_cut_on_all_nodes_at_the_same_moment(monkeypatch: pytest.MonkeyPatch, paths: LabPaths) -> None:
    told: list[tuple[str, float]] = []
    monkeypatch.setattr(faults, "_paths", lambda env: paths)
    monkeypatch.setattr(faults, "find_instance", lambda paths, node: {"instance_id": f"i-{node}"})
    monkeypatch.setattr(faults, "ask", lambda *_, instance_id, replace_after: told.append((instance_id, replace_after)))
    faults.power_cut(["q-a", "q-b"], "x", 45)
    assert sorted(told) == [("i-q-a", 45), ("i-q-b", 45)]


def test_a_word_that_is_no_fault_of_efs_is_refused_with_those_that_are(
    monkeypatch: pytest.MonkeyPatch, paths: LabPaths
) -> None:
    monkeypatch.setattr(faults, "_paths", lambda env: paths)
    monkeypatch.setattr(faults, "find_instance", lambda paths, node: {"node": node})
    with pytest.raises(LabError, match="known are through, normal, stall, full, read-only, slow, direct"):
        faults.efs("q-a", "broken", "x")
    with pytest.raises(LabError, match="nothing is in the way"):
        faults.efs("q-a", "stall", "x")
