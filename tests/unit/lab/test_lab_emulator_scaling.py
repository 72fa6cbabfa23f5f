"""An instance's way into service and out of it, as EC2, Auto Scaling and the load balancer tell it."""

from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lab.emulator import instances
from tests.unit.lab.emulated_aws import NETWORK, TARGETS, EmulatedAws


def _complete(aws: EmulatedAws, hook: str, instance_id: str, result: str = "CONTINUE") -> None:
    aws.autoscaling.complete_lifecycle_action(
        AutoScalingGroupName="node", LifecycleHookName=hook, InstanceId=instance_id, LifecycleActionResult=result
    )


def _registered(aws: EmulatedAws) -> dict[str, str]:
    (group,) = aws.elbv2.describe_target_groups()["TargetGroups"]
    found = aws.elbv2.describe_target_health(TargetGroupArn=group["TargetGroupArn"])["TargetHealthDescriptions"]
    return {target["Target"]["Id"]: target["TargetHealth"]["State"] for target in found}


def _instance(aws: EmulatedAws, instance_id: str) -> dict[str, Any]:
    return dict(aws.ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0])


def test_a_group_launches_one_instance_which_is_pending_until_its_host_is_on(cluster: EmulatedAws) -> None:
    (machine,) = cluster.machines()
    assert (machine.name, machine.state, machine.lifecycle_state) == ("node-b", "pending", "Pending")
    assert (machine.availability_zone, machine.type, machine.role) == ("eu-west-1b", "m7i.large", "node")
    assert machine.user_data == b"#!/bin/sh\n"
    cluster.emulator.powered_on(machine.id)
    assert [m.state for m in cluster.machines()] == ["running"]
    described = _instance(cluster, machine.id)
    assert described["State"]["Name"] == "running"
    assert {"Key": "Name", "Value": "node-b"} in described["Tags"]


def test_a_pending_instance_says_what_it_waits_for(cluster: EmulatedAws) -> None:
    (machine,) = cluster.machines()
    cluster.emulator.explain(machine.id, "host image: package lists")
    assert _instance(cluster, machine.id)["StateReason"]["Message"] == "host image: package lists"
    cluster.emulator.powered_on(machine.id)
    assert _instance(cluster, machine.id)["StateReason"]["Message"] == ""


def test_an_instance_is_a_target_only_when_its_launch_hook_is_completed(cluster: EmulatedAws) -> None:
    (machine,) = cluster.machines()
    cluster.emulator.powered_on(machine.id)
    (machine,) = cluster.machines()
    assert (machine.lifecycle_state, machine.target_lifecycle_state) == ("Pending:Wait", "InService")
    assert _registered(cluster) == {}
    _complete(cluster, "launch", machine.id)
    (machine,) = cluster.machines()
    assert machine.lifecycle_state == "InService"
    assert _registered(cluster) == {machine.id: "initial"}


def test_a_launch_that_nobody_completes_is_abandoned_and_tried_again(cluster: EmulatedAws) -> None:
    (first,) = cluster.machines()
    cluster.emulator.powered_on(first.id)
    cluster.emulator.advance()
    cluster.pass_time(899)
    cluster.autoscaling.record_lifecycle_action_heartbeat(
        AutoScalingGroupName="node", LifecycleHookName="launch", InstanceId=first.id
    )
    cluster.pass_time(899)
    assert [m.id for m in cluster.machines()] == [first.id]
    cluster.pass_time(2)
    states = {m.id: m.state for m in cluster.machines()}
    assert states.pop(first.id) == "shutting-down"
    assert list(states.values()) == ["pending"]


def test_an_abandoned_launch_is_replaced(cluster: EmulatedAws) -> None:
    (first,) = cluster.machines()
    cluster.emulator.powered_on(first.id)
    cluster.emulator.advance()
    _complete(cluster, "launch", first.id, "ABANDON")
    assert {m.id: m.state for m in cluster.machines()}[first.id] == "shutting-down"
    assert len(cluster.machines()) == 2


def test_ending_an_instance_waits_for_its_hook_while_the_replacement_is_launched(cluster: EmulatedAws) -> None:
    old = cluster.in_service()
    cluster.autoscaling.terminate_instance_in_auto_scaling_group(
        InstanceId=old.id, ShouldDecrementDesiredCapacity=False
    )
    going, new = cluster.machines()
    assert (going.id, going.state, going.lifecycle_state) == (old.id, "running", "Terminating")
    assert going.target_lifecycle_state == "Terminated"
    assert new.state == "pending"
    assert _registered(cluster) == {}
    cluster.pass_time(29)  # the target group's deregistration delay is 30 s
    assert cluster.machines()[0].lifecycle_state == "Terminating"
    cluster.pass_time(1)
    assert cluster.machines()[0].lifecycle_state == "Terminating:Wait"
    _complete(cluster, "terminate", old.id)
    assert cluster.machines()[0].state == "shutting-down"
    cluster.emulator.powered_off(old.id)
    assert [m.id for m in cluster.machines()] == [new.id]


def test_a_terminating_hook_that_nobody_answers_ends_by_itself(cluster: EmulatedAws) -> None:
    old = cluster.in_service()
    cluster.emulator.terminate(old.id)
    cluster.pass_time(30)
    cluster.pass_time(119)
    assert cluster.machines()[0].lifecycle_state == "Terminating:Wait"
    cluster.pass_time(2)
    assert cluster.machines()[0].state == "shutting-down"


def test_a_draining_target_stays_known_to_the_proxy_until_its_instance_is_gone(cluster: EmulatedAws) -> None:
    old = cluster.in_service()
    cluster.emulator.terminate(old.id)
    _, (group,) = cluster.emulator.load_balancers(Path("lab.pem"))
    assert [(t.name, t.address, t.draining) for t in group.targets] == [(old.id, str(old.address), True)]
    cluster.pass_time(30)
    _complete(cluster, "terminate", old.id)
    assert cluster.emulator.load_balancers(Path("lab.pem"))[1][0].targets != ()
    cluster.emulator.powered_off(old.id)
    assert cluster.emulator.load_balancers(Path("lab.pem"))[1][0].targets == ()


def test_an_instance_terminated_by_hand_shuts_down_until_its_host_is_off(cluster: EmulatedAws) -> None:
    old = cluster.in_service()
    cluster.ec2.terminate_instances(InstanceIds=[old.id])
    going, new = cluster.machines()
    assert (going.id, going.state, new.state) == (old.id, "shutting-down", "pending")
    cluster.pass_time(10_000)
    assert _instance(cluster, old.id)["State"]["Name"] == "shutting-down"
    cluster.emulator.powered_off(old.id)
    described = _instance(cluster, old.id)
    assert described["State"]["Name"] == "terminated"
    assert "PrivateIpAddress" not in described
    cluster.emulator.advance()
    (group,) = cluster.autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    assert [i["InstanceId"] for i in group["Instances"]] == [new.id]


def test_a_lost_host_is_a_terminated_instance_and_is_replaced_when_it_may_be(cluster: EmulatedAws) -> None:
    old = cluster.in_service()
    cluster.emulator.hold_replacement("node", 45)
    cluster.emulator.powered_off(old.id)
    assert cluster.machines() == []
    cluster.pass_time(44)
    assert cluster.machines() == []
    cluster.pass_time(2)
    assert [m.state for m in cluster.machines()] == ["pending"]


def test_an_instance_that_is_reported_unhealthy_is_ended_through_its_hook(cluster: EmulatedAws) -> None:
    old = cluster.in_service()
    cluster.autoscaling.set_instance_health(InstanceId=old.id, HealthStatus="Unhealthy")
    states = {m.id: m.lifecycle_state for m in cluster.machines()}
    assert states.pop(old.id) == "Terminating"
    assert len(states) == 1


def test_a_group_with_launches_suspended_replaces_nothing(cluster: EmulatedAws) -> None:
    old = cluster.in_service()
    cluster.autoscaling.suspend_processes(AutoScalingGroupName="node", ScalingProcesses=["Launch"])
    cluster.emulator.powered_off(old.id)
    assert cluster.machines() == []
    cluster.autoscaling.resume_processes(AutoScalingGroupName="node", ScalingProcesses=["Launch"])
    assert len(cluster.machines()) == 1


def test_a_group_whose_health_checks_are_suspended_does_not_notice_a_lost_instance(cluster: EmulatedAws) -> None:
    old = cluster.in_service()
    cluster.autoscaling.suspend_processes(AutoScalingGroupName="node", ScalingProcesses=["HealthCheck"])
    cluster.emulator.powered_off(old.id)
    assert cluster.machines() == []
    cluster.autoscaling.resume_processes(AutoScalingGroupName="node", ScalingProcesses=["HealthCheck"])
    assert [m.state for m in cluster.machines()] == ["pending"]


def test_a_detached_instance_lives_on_gets_no_connection_and_is_replaced(cluster: EmulatedAws) -> None:
    old = cluster.in_service()
    cluster.autoscaling.detach_instances(
        InstanceIds=[old.id], AutoScalingGroupName="node", ShouldDecrementDesiredCapacity=False
    )
    detached, new = cluster.machines()
    assert (detached.id, detached.state, detached.target_lifecycle_state) == (old.id, "running", "Detached")
    assert new.state == "pending"
    _, (group,) = cluster.emulator.load_balancers(Path("lab.pem"))
    assert [(t.name, t.draining) for t in group.targets] == [(old.id, True)]


def test_a_group_that_fails_keeps_no_other_from_its_work(cluster: EmulatedAws) -> None:
    (old,) = cluster.machines()
    template = {"LaunchTemplateId": cluster.physical_ids("cluster")["Template"], "Version": "1"}
    cluster.autoscaling.create_auto_scaling_group(
        AutoScalingGroupName="broken",
        MinSize=1,
        MaxSize=1,
        LaunchTemplate={**template, "Version": "7"},
        VPCZoneIdentifier=old.subnet_id,
    )
    cluster.emulator.powered_off(old.id)
    with pytest.raises(RuntimeError, match="broken"):
        cluster.emulator.advance()
    living = [m for m in cluster.emulator.machines() if m.state != "terminated"]
    assert [m.group for m in living] == ["node"]


def test_a_terminated_instance_gives_its_address_back(cluster: EmulatedAws) -> None:
    seen = set()
    for _ in range(40):  # a /28 has eleven addresses
        (machine,) = cluster.machines()
        seen.add(machine.address)
        cluster.emulator.powered_off(machine.id)
    assert seen <= {IPv4Address("10.9.1.0") + n for n in range(4, 15)}
    assert len(seen) > 3


def test_completing_what_nobody_waits_for_is_refused(cluster: EmulatedAws) -> None:
    machine = cluster.in_service()
    with pytest.raises(ClientError, match="No active Lifecycle Action found with instance ID"):
        _complete(cluster, "launch", machine.id)


def test_an_unknown_instance_is_not_found_and_one_gone_for_an_hour_is_unknown(
    cluster: EmulatedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ClientError, match=r"InvalidInstanceID\.NotFound"):
        cluster.ec2.describe_instances(InstanceIds=["i-0123456789abcdef0"])
    old = cluster.in_service()
    cluster.emulator.powered_off(old.id)
    cluster.emulator.advance()
    assert _instance(cluster, old.id)["State"]["Name"] == "terminated"
    monkeypatch.setattr(instances, "FORGOTTEN_AFTER", -1)
    cluster.emulator.advance()
    with pytest.raises(ClientError, match=r"InvalidInstanceID\.NotFound"):
        cluster.ec2.describe_instances(InstanceIds=[old.id])


def test_the_hooks_of_a_group_are_described(cluster: EmulatedAws) -> None:
    hooks = cluster.autoscaling.describe_lifecycle_hooks(AutoScalingGroupName="node")["LifecycleHooks"]
    assert {(h["LifecycleHookName"], h["HeartbeatTimeout"], h["DefaultResult"]) for h in hooks} == {
        ("launch", 900, "ABANDON"),
        ("terminate", 120, "CONTINUE"),
    }


def test_deleting_a_stack_shuts_its_instances_down(cluster: EmulatedAws) -> None:
    machine = cluster.in_service()
    cluster.cloudformation.delete_stack(StackName="cluster")
    assert [(m.id, m.state) for m in cluster.machines()] == [(machine.id, "shutting-down")]


# -- load balancers ----------------------------------------------------------------------------------------------------


def test_the_proxy_is_told_listeners_health_checks_and_targets(cluster: EmulatedAws) -> None:
    machine = cluster.in_service()
    (balancer,), (group,) = cluster.emulator.load_balancers(Path("lab.pem"))
    assert (balancer.name, balancer.address, balancer.idle_timeout) == ("nlb", "127.77.1.10", 120)
    assert [(listener.port, listener.protocol, listener.target_group) for listener in balancer.listeners] == [
        (5672, "TCP", "amqp")
    ]
    check = group.health_check
    assert (check.protocol, check.port, check.path, check.matcher) == ("HTTP", 15672, "/health", "200")
    assert (check.interval, check.healthy_threshold, check.unhealthy_threshold) == (7, 2, 3)
    assert [(t.name, t.address, t.draining) for t in group.targets] == [(machine.id, str(machine.address), False)]


def test_a_load_balancer_is_known_by_the_address_it_has_here(cluster: EmulatedAws) -> None:
    (balancer,) = cluster.elbv2.describe_load_balancers()["LoadBalancers"]
    assert (balancer["DNSName"], balancer["Type"], balancer["State"]["Code"]) == ("127.77.1.10", "network", "active")
    assert ":loadbalancer/net/nlb/" in balancer["LoadBalancerArn"]


def test_tls_listeners_show_the_lab_s_certificate_whatever_one_they_name(aws: EmulatedAws) -> None:
    arn = "arn:aws:acm:eu-west-1:123456789012:certificate/none"
    tls = {"Port": 5671, "Protocol": "TLS", "Certificates": [{"CertificateArn": arn}]}
    listener = {**TARGETS["Listener"], "Properties": {**TARGETS["Listener"]["Properties"], **tls}}
    aws.deploy("access", {**NETWORK, **TARGETS, "Listener": listener})
    (balancer,), _ = aws.emulator.load_balancers(Path("/lab.pem"))
    assert [(one.port, one.protocol, one.certificate) for one in balancer.listeners] == [
        (5671, "TLS", Path("/lab.pem"))
    ]


def test_target_health_is_what_the_proxy_found(cluster: EmulatedAws) -> None:
    machine = cluster.in_service()
    cluster.emulator.report_health({"amqp": {machine.id: "unhealthy"}})
    assert _registered(cluster) == {machine.id: "unhealthy"}
    cluster.emulator.report_health({"amqp": {machine.id: "healthy"}})
    assert _registered(cluster) == {machine.id: "healthy"}


def test_a_load_balancer_learns_of_a_lost_host_from_its_health_checks_alone(cluster: EmulatedAws) -> None:
    machine = cluster.in_service()

    def targets() -> list[tuple[str, bool]]:
        _, (group,) = cluster.emulator.load_balancers(Path("lab.pem"))
        return [(target.name, target.draining) for target in group.targets]

    cluster.emulator.powered_off(machine.id)
    cluster.machines()
    assert _registered(cluster) == {}
    cluster.emulator.report_health({"amqp": {machine.id: "healthy"}})
    assert targets() == [(machine.id, False)]
    cluster.emulator.report_health({"amqp": {machine.id: "unhealthy"}})
    assert targets() == []
