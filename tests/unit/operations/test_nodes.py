"""The join of Auto Scaling, EC2, boot reports and target health into three nodes."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from operations.deployment import Deployment
from operations.nodes import read_nodes

GROUP = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/amqp/1"


def report(node: str, instance_id: str, state: str, **more: Any) -> dict[str, Any]:
    item = {
        "id": {"S": f"boot/{node}"},
        "instance_id": {"S": instance_id},
        "state": {"S": state},
        "step": {"S": "ready"},
    }
    return item | more


class Pages:
    def __init__(self, instances: list[dict[str, Any]]) -> None:
        self._instances = instances

    def paginate(self, **_: Any) -> Iterator[dict[str, Any]]:
        yield {"Reservations": [{"Instances": self._instances}]}


def deployment(
    instances: list[dict[str, str]], reports: list[dict[str, Any]], health: str = "healthy", **machine: Any
) -> Deployment:
    """One cluster `mq` in zones a, b and c; only zone a's group has instances."""
    nodes = [SimpleNamespace(name=f"mq-{zone}", availability_zone=zone) for zone in "abc"]
    groups = [{"AutoScalingGroupName": "mq-a", "Instances": instances, "TargetGroupARNs": [GROUP]}]
    targets = [{"Target": {"Id": i["InstanceId"]}, "TargetHealth": {"State": health}} for i in instances]
    aws = SimpleNamespace(
        autoscaling=SimpleNamespace(describe_auto_scaling_groups=lambda **_: {"AutoScalingGroups": groups}),
        ec2=SimpleNamespace(
            get_paginator=lambda _: Pages(
                [
                    {
                        "InstanceId": i["InstanceId"],
                        "PrivateIpAddress": "10.0.0.9",
                        "State": {"Name": "running"},
                        **machine,
                    }
                    for i in instances
                ]
            )
        ),
        dynamodb=SimpleNamespace(batch_get_item=lambda **_: {"Responses": {"table": reports}}),
        load_balancing=SimpleNamespace(describe_target_health=lambda **_: {"TargetHealthDescriptions": targets}),
    )
    made = Deployment(SimpleNamespace(nodes=nodes, cluster_name="mq", name="test"), aws)  # type: ignore[arg-type]
    made._parameters = {"node-table": "table"}
    return made


IN_SERVICE = {"InstanceId": "i-new", "LifecycleState": "InService"}


def test_a_node_is_ready_when_in_service_reported_ready_and_healthy() -> None:
    first, second, third = read_nodes(deployment([IN_SERVICE], [report("mq-a", "i-new", "ready")]))
    assert first.is_ready
    assert first.progress == "ready"
    assert (second.instance_id, third.instance_id) == (None, None)
    assert second.progress == "waiting for an instance"


def test_the_report_of_an_earlier_instance_says_nothing_of_this_one() -> None:
    node = read_nodes(deployment([IN_SERVICE], [report("mq-a", "i-old", "ready")]))[0]
    assert node.boot is None
    assert not node.is_ready
    assert "no report yet" in node.progress


def test_during_a_hand_over_the_successor_is_the_node() -> None:
    leaving = {"InstanceId": "i-old", "LifecycleState": "Terminating:Wait"}
    for order in ([leaving, IN_SERVICE], [IN_SERVICE, leaving]):
        node = read_nodes(deployment(order, [report("mq-a", "i-new", "waiting", detail={"S": "for i-old"})]))[0]
        assert node.instance_id == "i-new"
        assert node.progress == "ready: for i-old"


def test_a_node_alone_and_leaving_is_not_ready() -> None:
    leaving = {"InstanceId": "i-old", "LifecycleState": "Terminating:Wait"}
    assert not read_nodes(deployment([leaving], [report("mq-a", "i-old", "ready")]))[0].is_ready


@pytest.mark.parametrize("health", ["initial", "unhealthy", "draining"])
def test_a_node_that_a_load_balancer_does_not_use_is_not_ready(health: str) -> None:
    node = read_nodes(deployment([IN_SERVICE], [report("mq-a", "i-new", "ready")], health))[0]
    assert not node.is_ready
    assert "health checks" in node.progress


def test_a_refusal_is_shown_with_its_step() -> None:
    failed = report(
        "mq-a", "i-new", "failed", step={"S": "storage"}, detail={"S": "no marker"}, remedy={"S": "rebuild"}
    )
    node = read_nodes(deployment([IN_SERVICE], [failed]))[0]
    assert node.has_failed
    assert node.progress == "storage: no marker"


def test_an_instance_that_has_not_started_shows_what_ec2_says_of_it() -> None:
    pending: dict[str, Any] = {
        "State": {"Name": "pending"},
        "StateReason": {"Message": "the host image is being built"},
    }
    node = read_nodes(deployment([{"InstanceId": "i-new", "LifecycleState": "Pending"}], [], **pending))[0]
    assert node.progress == "instance Pending, the host image is being built"
