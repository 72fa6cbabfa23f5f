"""The fast core of the drills, against the deployed lab: three faults a node cannot help, under traffic."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.lab.deployed import PROJECT, Lab

pytestmark = pytest.mark.lab


def drill(lab: Lab, report: Path, *arguments: str) -> dict[str, Any]:
    """Runs one drill as the README says, and returns what it reported. Messages go to the test's output."""
    done = subprocess.run(
        [
            PROJECT / ".venv/bin/python", "-m", "operations", "drill", *arguments,
            "--env", lab.environment.name, "--report", report, "--json",
        ],
        cwd=PROJECT, stdout=subprocess.PIPE, text=True, timeout=600, check=False,
    )  # fmt: skip
    (result,) = json.loads(done.stdout)
    assert (done.returncode == 0) == result["passed"]
    return dict(result)


def check(result: dict[str, Any]) -> None:
    """As expected, and with traffic that makes the expectation worth something."""
    assert result["failures"] == []
    for clients in result["clients"].values():
        assert clients["confirmed"] > 500
        assert clients["confirmed"] == clients["published"] == clients["delivered"]
        assert clients["lost"] == 0
    assert all(seconds is not None for seconds in result["recovered_after"].values())


def test_one_node_lost_comes_back_by_itself_and_nothing_is_lost(lab: Lab, tmp_path: Path) -> None:
    before = {node["name"]: node["instance_id"] for node in lab.nodes()}
    result = drill(lab, tmp_path, "lose-queue-leader")
    check(result)
    after = {node["name"]: node["instance_id"] for node in lab.nodes()}
    assert sum(before[name] != after[name] for name in before) == 1
    page = (tmp_path / "report.html").read_text()
    assert "longest gap" in page
    assert "1 of 1 as expected" in page


def test_two_nodes_lost_at_once_come_back_by_themselves(lab: Lab, tmp_path: Path) -> None:
    check(drill(lab, tmp_path, "lose-two", "--seed", "7"))
