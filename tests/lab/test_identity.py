"""Who may be a node: one instance at a time, and only with the node's own directory."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from lab.control import ask
from operations.errors import ExitCode
from operations.nodes import Node, read_nodes
from tests.lab.deployed import PROJECT, Lab

pytestmark = pytest.mark.lab


def node(lab: Lab, zone: int) -> Node:
    return read_nodes(lab.deployment)[zone]


def until(lab: Lab, zone: int, holds: Callable[[Node], bool], limit_seconds: float = 150) -> Node:
    """The node as soon as it is so. Fails with what it was doing instead."""
    end = time.monotonic() + limit_seconds
    while not holds(found := node(lab, zone)):
        assert time.monotonic() < end, (
            f"{found.name} after {limit_seconds} s: {found.lifecycle_state}, {found.progress}"
        )
        time.sleep(0.3)
    return found


def directory(lab: Lab, zone: int) -> Any:
    """Where the node's access point keeps its data on this machine."""
    name = lab.environment.nodes[zone].name
    (found,) = (path for path in lab.paths.efs.glob(f"*/root/nodes/{name}") if path.is_dir())
    return found


def test_a_successor_waits_while_the_old_instance_lives_and_takes_over_once_it_is_gone(lab: Lab) -> None:
    old = node(lab, 0)
    assert old.instance_id
    lab.deployment.aws.autoscaling.detach_instances(
        InstanceIds=[old.instance_id], AutoScalingGroupName=old.name, ShouldDecrementDesiredCapacity=False
    )
    waiting = until(lab, 0, lambda n: n.boot is not None and n.boot.state == "waiting")
    assert waiting.instance_id not in (None, old.instance_id)
    assert f"instance {old.instance_id} owns the node and is running" in waiting.progress
    successor = lab.host(str(waiting.instance_id))
    assert successor.run(["findmnt", "/mnt/rabbitmq"], check=False).returncode != 0
    assert successor.run(["systemctl", "is-active", "rabbitmq-server", "consul"], check=False).stdout.split() == [
        "inactive",
        "inactive",
    ]
    serving = lab.host(old.instance_id).run(["systemctl", "is-active", "rabbitmq-server"], check=False).stdout.strip()
    assert serving == "active"
    lab.deployment.aws.ec2.terminate_instances(InstanceIds=[old.instance_id])
    until(lab, 0, lambda n: n.is_ready and n.instance_id == waiting.instance_id)
    assert len(lab.broker().nodes()) == 3


def operations(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "operations", *arguments, "--env", lab.environment.name]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=200, check=False)


def test_a_member_that_finds_an_empty_directory_refuses_and_is_rebuilt_on_order_only(lab: Lab) -> None:
    name, data, away = lab.environment.nodes[2].name, directory(lab, 2), directory(lab, 2).with_suffix(".away")
    refused_while_it_runs = operations(lab, "node", "rebuild", name, "--yes")
    assert refused_while_it_runs.returncode == ExitCode.REFUSED
    assert "there is nothing to rebuild" in refused_while_it_runs.stderr
    lost = node(lab, 2)
    ask(lab.paths, "kill", instance_id=lost.instance_id, replace_after=3.0)
    data.rename(away)
    data.mkdir(mode=0o755)
    refused = until(lab, 2, lambda n: n.has_failed and n.instance_id != lost.instance_id)
    assert refused.boot
    assert refused.boot.step == "storage"
    assert "but its directory has no marker" in refused.boot.detail
    assert f"node rebuild {name}" in refused.boot.remedy
    host = lab.host(str(refused.instance_id))
    assert host.run(["systemctl", "is-active", "rabbitmq-server"], check=False).stdout.strip() == "inactive"
    until_whole_without(lab, name)
    assert "dry run" in operations(lab, "node", "rebuild", name).stdout
    assert node(lab, 2).has_failed
    rebuilt = operations(lab, "node", "rebuild", name, "--yes")
    assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr
    assert node(lab, 2).instance_id == refused.instance_id
    members = {f"rabbit@{n.name}" for n in lab.environment.nodes}
    assert {n["name"] for n in lab.broker().nodes() if n["running"]} == members
    assert all(set(queue["online"]) == members for queue in lab.broker().queues() if queue["type"] == "quorum")
    shutil.rmtree(away)


def until_whole_without(lab: Lab, name: str) -> None:
    """Wait until the others have noticed that the node is away."""
    end = time.monotonic() + 60
    while {n["name"] for n in lab.broker().nodes() if n["running"]} & {f"rabbit@{name}"}:
        assert time.monotonic() < end
        time.sleep(0.5)
