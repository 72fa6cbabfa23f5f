"""Planned changes of the nodes: one at a time, whoever asks for them, and back again when they fail."""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from operations.nodes import Node, read_nodes
from tests.lab.deployed import PROJECT, Lab
from tests.lab.observers import Publisher, Serving

pytestmark = pytest.mark.lab


@pytest.fixture
def changed_project(tmp_path: Path) -> Iterator[Path]:
    """A copy of the project, to be changed and deployed from."""
    copy = tmp_path / "project"
    unwanted = shutil.ignore_patterns(".git", ".venv", "node_modules", "cdk.out", "__pycache__", ".*_cache")
    shutil.copytree(PROJECT, copy, ignore=unwanted)
    for tool in (".venv", "node_modules"):
        (copy / tool).symlink_to(PROJECT / tool)
    yield copy
    shutil.rmtree(copy)


def change(file: Path, before: str, after: str) -> None:
    """Replaces what stands in a file exactly once."""
    text = file.read_text()
    assert text.count(before) == 1, f"{file} has {before!r} {text.count(before)} times"
    file.write_text(text.replace(before, after))


def cdk_deploy(lab: Lab, project: Path, limit_seconds: float = 900) -> subprocess.CompletedProcess[str]:
    """`cdk deploy` of the cluster's stack, with a change set, as on AWS."""
    environment = lab.environment
    command = ["-m", "operations", "cdk", "--env", environment.name, "deploy", environment.stack_name("cluster")]
    return subprocess.run(
        [".venv/bin/python", *command, "--exclusively", "--require-approval", "never"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=limit_seconds,
        check=False,
    )


def events(lab: Lab, since: datetime) -> list[tuple[str, str, str]]:
    """Logical id, status and reason of the stack's events from then on, the oldest first."""
    cloudformation = lab.deployment.aws.cloudformation
    found = cloudformation.describe_stack_events(StackName=lab.environment.stack_name("cluster"))["StackEvents"]
    return [
        (event["LogicalResourceId"], event["ResourceStatus"], event.get("ResourceStatusReason", ""))
        for event in reversed(found)
        if event["Timestamp"] >= since
    ]


def status(lab: Lab) -> str:
    cloudformation = lab.deployment.aws.cloudformation
    return str(
        cloudformation.describe_stacks(StackName=lab.environment.stack_name("cluster"))["Stacks"][0]["StackStatus"]
    )


def instances(lab: Lab) -> dict[str, str | None]:
    return {node.name: node.instance_id for node in read_nodes(lab.deployment)}


def wait_until_ready(lab: Lab, holds: Callable[[list[Node]], bool], limit_seconds: float = 420) -> list[Node]:
    """The nodes once all are ready and `holds`. Fails with what they were doing instead."""
    end, nodes = time.monotonic() + limit_seconds, read_nodes(lab.deployment)
    while not (all(node.is_ready for node in nodes) and holds(nodes)):
        assert time.monotonic() < end, [f"{n.name} {n.instance_id} {n.lifecycle_state}: {n.progress}" for n in nodes]
        time.sleep(0.5)
        nodes = read_nodes(lab.deployment)
    return nodes


def consume(lab: Lab) -> Callable[[str, int], list[int]]:
    address = next(node.address for node in read_nodes(lab.deployment))
    assert address
    return lambda queue, count: lab.client("consume", address, queue=queue, count=count)


def healthy(lab: Lab) -> None:
    """Three running nodes, their queues whole, and nobody holds the maintenance lock."""
    names = {f"rabbit@{node.name}" for node in lab.environment.nodes}
    assert {node["name"] for node in lab.broker().nodes() if node["running"]} == names
    for queue in lab.broker().queues():
        if queue["type"] == "quorum":
            assert set(queue.get("online", [])) == names, queue["name"]
    table = lab.deployment.parameter("node-table")
    lock: Any = lab.deployment.aws.dynamodb.get_item(TableName=table, Key={"id": {"S": "lock/maintenance"}})
    assert "holder_node" not in lock.get("Item", {})


def replaced_one_by_one(serving: Serving, lab: Lab) -> None:
    assert serving.fewest == 2, serving.history
    assert sorted(serving.went_away) == [node.name for node in lab.environment.nodes], serving.history


def test_a_bundle_that_cannot_boot_stops_at_the_first_node_and_is_rolled_back(lab: Lab, changed_project: Path) -> None:
    before, since = instances(lab), datetime.now(UTC)
    change(
        changed_project / "userdata/node/boot.py",
        '    zone = boot.imds.must("placement/availability-zone")\n',
        '    raise Refusal("this bundle is broken on purpose", "test", "deploy another one")\n',
    )
    with Serving(lab) as serving, Publisher(lab, "broken-bundle") as publisher:
        done = cdk_deploy(lab, changed_project)
        nodes = wait_until_ready(lab, lambda _: True)
    assert done.returncode != 0, done.stdout
    assert "identity: this bundle is broken" in done.stdout
    assert "failed to deploy" in done.stdout
    assert status(lab) == "UPDATE_ROLLBACK_COMPLETE"
    first, *others = (node.name for node in lab.environment.nodes)
    told = events(lab, since)
    assert any("Received FAILURE signal" in reason and "identity: this bundle" in reason for _, _, reason in told)
    assert len({logical for logical, state, _ in told if state == "UPDATE_FAILED" and "Group" in logical}) == 1
    now = {node.name: node.instance_id for node in nodes}
    assert now[first] != before[first]
    assert [now[name] for name in others] == [before[name] for name in others]
    assert serving.fewest == 2, serving.history
    assert serving.went_away == [first], serving.history
    assert publisher.lost(consume(lab)) == set()
    assert publisher.account.longest_gap < 10
    healthy(lab)


@pytest.mark.drill
def test_a_changed_setting_rolls_through_all_three_nodes_one_at_a_time(lab: Lab, changed_project: Path) -> None:
    before = instances(lab)
    file = changed_project / f"environments/{lab.environment.name}.yaml"
    change(file, "max_length: 1000000", "max_length: 900000")
    with Serving(lab) as serving, Publisher(lab, "changed-setting") as publisher:
        done = cdk_deploy(lab, changed_project)
        assert done.returncode == 0, done.stdout
        nodes = wait_until_ready(lab, lambda _: True)
    assert status(lab) == "UPDATE_COMPLETE"
    assert all(node.instance_id != before[node.name] for node in nodes)
    replaced_one_by_one(serving, lab)
    assert publisher.lost(consume(lab)) == set()
    assert publisher.account.longest_gap < 10
    assert any(policy["definition"].get("max-length") == 900000 for policy in lab.broker().get("policies"))
    healthy(lab)


@pytest.mark.drill
def test_three_instance_refreshes_started_at_once_replace_one_node_at_a_time(lab: Lab) -> None:
    before, autoscaling = instances(lab), lab.deployment.aws.autoscaling
    with Serving(lab) as serving, Publisher(lab, "refresh") as publisher:
        for name in before:
            autoscaling.start_instance_refresh(AutoScalingGroupName=name)
        wait_until_ready(lab, lambda nodes: all(node.instance_id != before[node.name] for node in nodes))
    for name in before:
        (refresh, *_) = autoscaling.describe_instance_refreshes(AutoScalingGroupName=name)["InstanceRefreshes"]
        assert (refresh["Status"], refresh["PercentageComplete"]) == ("Successful", 100)
    replaced_one_by_one(serving, lab)
    assert publisher.lost(consume(lab)) == set()
    healthy(lab)


@pytest.mark.drill
def test_three_instances_ended_gracefully_at_once_leave_one_at_a_time(lab: Lab) -> None:
    before, autoscaling = instances(lab), lab.deployment.aws.autoscaling
    with Serving(lab) as serving, Publisher(lab, "terminations") as publisher:
        for instance_id in before.values():
            autoscaling.terminate_instance_in_auto_scaling_group(
                InstanceId=str(instance_id), ShouldDecrementDesiredCapacity=False
            )
        wait_until_ready(lab, lambda nodes: all(node.instance_id != before[node.name] for node in nodes))
    replaced_one_by_one(serving, lab)
    assert publisher.lost(consume(lab)) == set()
    healthy(lab)
