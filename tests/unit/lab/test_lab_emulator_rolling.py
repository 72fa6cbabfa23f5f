"""What takes time: a creation that waits for signals, a rolling update, an instance refresh."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lab.emulator import Machine
from tests.unit.lab.emulated_aws import NETWORK, TARGETS, EmulatedAws, node

CREATION: dict[str, Any] = {"CreationPolicy": {"ResourceSignal": {"Count": 1, "Timeout": "PT30M"}}}
ROLLING: dict[str, Any] = {
    "UpdatePolicy": {
        "AutoScalingRollingUpdate": {
            "MinInstancesInService": 0,
            "MaxBatchSize": 1,
            "WaitOnResourceSignals": True,
            "PauseTime": "PT1H",
            "SuspendProcesses": ["HealthCheck", "ReplaceUnhealthy"],
        }
    }
}


def stack(user_data: str = "#!/bin/sh\n", **group: Any) -> dict[str, Any]:
    return {**NETWORK, **TARGETS, **node(user_data, **group)}


def two_groups(user_data: str) -> dict[str, Any]:
    """A second group, which comes after the first."""
    first = stack(user_data, **ROLLING)
    second = json.loads(json.dumps(first["Group"]))
    second["Properties"]["AutoScalingGroupName"] = "second"
    second["Properties"]["Tags"][0]["Value"] = "node-c"
    second["Properties"]["LaunchTemplate"] = {
        "LaunchTemplateId": {"Ref": "SecondTemplate"},
        "Version": {"Fn::GetAtt": ["SecondTemplate", "LatestVersionNumber"]},
    }
    return {**first, "Second": {**second, "DependsOn": ["Group"]}, "SecondTemplate": first["Template"]}


def status(aws: EmulatedAws, name: str = "cluster") -> str:
    return str(aws.cloudformation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"])


def signal(aws: EmulatedAws, unique_id: str, state: str = "SUCCESS", resource: str = "Group") -> None:
    aws.cloudformation.signal_resource(
        StackName="cluster", LogicalResourceId=resource, UniqueId=unique_id, Status=state
    )
    aws.emulator.advance()


def answer(aws: EmulatedAws, machine: Machine, hook: str) -> None:
    aws.autoscaling.complete_lifecycle_action(
        AutoScalingGroupName=machine.group,
        LifecycleHookName=hook,
        InstanceId=machine.id,
        LifecycleActionResult="CONTINUE",
    )
    aws.emulator.advance()


def into_service(aws: EmulatedAws, group: str) -> Machine:
    """A group's new instance, brought into service."""
    (new,) = [m for m in aws.machines() if m.group == group and m.state == "pending"]
    aws.emulator.powered_on(new.id)
    aws.emulator.advance()
    answer(aws, new, "launch")
    return new


def leave(aws: EmulatedAws, machine: Machine) -> None:
    """What an instance does that is on its way out."""
    aws.pass_time(30)  # the deregistration delay
    answer(aws, machine, "terminate")
    aws.emulator.powered_off(machine.id)
    aws.emulator.advance()
    aws.emulator.advance()


def groups_of(aws: EmulatedAws) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for machine in aws.machines():
        found.setdefault(machine.group, []).append(str(machine.lifecycle_state))
    return found


# -- creation ----------------------------------------------------------------------------------------------------------


def test_a_stack_is_in_creation_until_its_group_has_signalled(aws: EmulatedAws) -> None:
    aws.deploy("cluster", stack(**CREATION))
    aws.pass_time(1799)
    assert status(aws) == "CREATE_IN_PROGRESS"
    signal(aws, "i-1")
    assert status(aws) == "CREATE_COMPLETE"
    assert ("Group", "CREATE_IN_PROGRESS", "Received SUCCESS signal with UniqueId i-1") in aws.events("cluster")
    with pytest.raises(ClientError, match="is in CREATE_COMPLETE state and cannot be signaled"):
        signal(aws, "i-2")


def test_what_does_not_depend_on_a_waiting_group_is_created_meanwhile(aws: EmulatedAws) -> None:
    late = {"Late": {"Type": "AWS::EC2::SecurityGroup", "Properties": {"GroupDescription": "late"}}}
    after = {"After": {"Type": "AWS::SNS::Topic", "DependsOn": "Group", "Properties": {}}}
    aws.deploy("cluster", {**stack(**CREATION), **late, **after})
    assert "Late" in aws.physical_ids("cluster")
    assert "After" not in aws.physical_ids("cluster")
    signal(aws, "i-1")
    assert "After" in aws.physical_ids("cluster")


def test_a_failure_signal_rolls_the_creation_back_with_the_reason_in_the_events(aws: EmulatedAws) -> None:
    aws.deploy("cluster", stack(**CREATION))
    (machine,) = aws.machines()
    signal(aws, f"{machine.id} storage: no mount", "FAILURE")
    assert status(aws) == "ROLLBACK_COMPLETE"
    reasons = [reason for _, _, reason in aws.events("cluster")]
    assert f"Received FAILURE signal with UniqueId {machine.id} storage: no mount" in reasons
    assert any("Unable to satisfy 100%" in reason for reason in reasons)
    assert aws.machines()[0].state == "shutting-down"


def test_a_creation_that_nobody_signals_fails_when_its_time_is_over(aws: EmulatedAws) -> None:
    aws.deploy("cluster", stack(**CREATION))
    aws.pass_time(1801)
    assert status(aws) == "ROLLBACK_COMPLETE"
    assert any("Failed to receive 1 resource signal(s)" in reason for _, _, reason in aws.events("cluster"))


# -- rolling update ----------------------------------------------------------------------------------------------------


def test_a_changed_launch_template_replaces_the_instance_through_its_hook_and_waits_for_the_signal(
    aws: EmulatedAws,
) -> None:
    aws.deploy("cluster", stack(**ROLLING))
    old = aws.in_service()
    aws.deploy("cluster", stack("#!/bin/sh\n# new\n", **ROLLING))
    assert status(aws) == "UPDATE_IN_PROGRESS"
    assert groups_of(aws) == {"node": ["Terminating", "Pending"]}
    (group,) = aws.autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    assert {p["ProcessName"] for p in group["SuspendedProcesses"]} == {"HealthCheck", "ReplaceUnhealthy"}
    new = into_service(aws, "node")
    assert new.user_data == b"#!/bin/sh\n# new\n"
    signal(aws, new.id)
    assert status(aws) == "UPDATE_IN_PROGRESS"  # the old instance is still on its way out
    leave(aws, old)
    assert status(aws) == "UPDATE_COMPLETE"
    assert [m.id for m in aws.machines()] == [new.id]
    (group,) = aws.autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    assert group["SuspendedProcesses"] == []
    assert group["Instances"][0]["LaunchTemplate"]["Version"] == "2"


def test_groups_that_depend_on_each_other_are_updated_one_after_the_other(aws: EmulatedAws) -> None:
    aws.deploy("cluster", two_groups("#!/bin/sh\n"))
    old = {group: into_service(aws, group) for group in ("node", "second")}
    aws.deploy("cluster", two_groups("#!/bin/sh\n# new\n"))
    assert groups_of(aws) == {"node": ["Terminating", "Pending"], "second": ["InService"]}
    signal(aws, into_service(aws, "node").id)
    leave(aws, old["node"])
    assert groups_of(aws) == {"node": ["InService"], "second": ["Terminating", "Pending"]}
    signal(aws, into_service(aws, "second").id, resource="Second")
    leave(aws, old["second"])
    assert status(aws) == "UPDATE_COMPLETE"


def test_a_node_that_cannot_boot_stops_the_update_and_the_first_group_alone_is_rolled_back(aws: EmulatedAws) -> None:
    aws.deploy("cluster", two_groups("#!/bin/sh\n"))
    old = {group: into_service(aws, group) for group in ("node", "second")}
    aws.deploy("cluster", two_groups("#!/bin/sh\nexit 1\n"))
    (broken,) = [m for m in aws.machines() if m.state == "pending"]
    aws.emulator.powered_on(broken.id)
    leave(aws, old["node"])
    signal(aws, f"{broken.id} user-data: no bundle", "FAILURE")
    assert status(aws) == "UPDATE_ROLLBACK_IN_PROGRESS"
    aws.emulator.powered_off(broken.id)
    good = into_service(aws, "node")
    assert good.user_data == b"#!/bin/sh\n"
    assert status(aws) == "UPDATE_ROLLBACK_IN_PROGRESS"  # which waits for the signal, too
    signal(aws, good.id)
    assert status(aws) == "UPDATE_ROLLBACK_COMPLETE"
    assert {m.group: m.id for m in aws.machines()} == {"node": good.id, "second": old["second"].id}
    events = aws.events("cluster")
    assert (
        "Group",
        "UPDATE_IN_PROGRESS",
        f"Received FAILURE signal with UniqueId {broken.id} user-data: no bundle",
    ) in events
    assert any(status == "UPDATE_FAILED" and "Received 1 FAILURE" in reason for _, status, reason in events)
    assert ("cluster", "UPDATE_ROLLBACK_IN_PROGRESS", "The following resource(s) failed to update: [Group]. ") in events
    # What was never touched stays so, also in the next update.
    aws.deploy("cluster", {**two_groups("#!/bin/sh\n"), "Topic": {"Type": "AWS::SNS::Topic", "Properties": {}}})
    assert status(aws) == "UPDATE_COMPLETE"
    assert {m.group: m.id for m in aws.machines()} == {"node": good.id, "second": old["second"].id}


def test_an_update_without_a_signal_fails_after_the_pause_time_and_so_does_a_rollback_without_one(
    aws: EmulatedAws,
) -> None:
    aws.deploy("cluster", stack(**ROLLING))
    aws.in_service()
    aws.deploy("cluster", stack("#!/bin/sh\n# new\n", **ROLLING))
    aws.emulator.advance()
    aws.pass_time(3599)
    assert status(aws) == "UPDATE_IN_PROGRESS"
    aws.pass_time(2)
    assert status(aws) == "UPDATE_ROLLBACK_IN_PROGRESS"
    aws.emulator.advance()
    aws.pass_time(3601)
    assert status(aws) == "UPDATE_ROLLBACK_FAILED"


def test_a_change_that_is_not_of_the_launch_template_replaces_nothing(aws: EmulatedAws) -> None:
    aws.deploy("cluster", stack(**ROLLING))
    old = aws.in_service()
    changed = stack(**ROLLING)
    changed["Group"]["Properties"]["HealthCheckGracePeriod"] = 77
    aws.deploy("cluster", changed)
    assert status(aws) == "UPDATE_COMPLETE"
    assert [m.id for m in aws.machines()] == [old.id]


def test_a_stack_that_is_being_updated_takes_no_other_update(aws: EmulatedAws) -> None:
    aws.deploy("cluster", stack(**ROLLING))
    aws.in_service()
    aws.deploy("cluster", stack("#!/bin/sh\n# new\n", **ROLLING))
    with pytest.raises(ClientError, match="is in UPDATE_IN_PROGRESS state and can not be updated"):
        aws.deploy("cluster", stack("#!/bin/sh\n# newer\n", **ROLLING))


def test_an_update_can_be_cancelled_and_a_failed_rollback_continued(aws: EmulatedAws) -> None:
    aws.deploy("cluster", stack(**ROLLING))
    aws.in_service()
    aws.deploy("cluster", stack("#!/bin/sh\nsleep infinity\n", **ROLLING))
    aws.emulator.advance()
    aws.cloudformation.cancel_update_stack(StackName="cluster")
    assert status(aws) == "UPDATE_ROLLBACK_IN_PROGRESS"
    assert ("Group", "UPDATE_FAILED", "Resource update cancelled") in aws.events("cluster")
    aws.emulator.advance()
    (new,) = [m for m in aws.machines() if m.state == "pending"]
    signal(aws, f"{new.id} secrets: throttled", "FAILURE")
    assert status(aws) == "UPDATE_ROLLBACK_FAILED"
    with pytest.raises(ClientError, match="can not be updated"):
        aws.deploy("cluster", stack("#!/bin/sh\n# another\n", **ROLLING))
    aws.cloudformation.continue_update_rollback(StackName="cluster")
    assert status(aws) == "UPDATE_ROLLBACK_COMPLETE"
    assert [m.user_data for m in aws.machines() if m.state == "pending"] == [b"#!/bin/sh\n"]


# -- instance refresh --------------------------------------------------------------------------------------------------


def refresh_of(aws: EmulatedAws) -> dict[str, Any]:
    found = aws.autoscaling.describe_instance_refreshes(AutoScalingGroupName="node")["InstanceRefreshes"]
    return dict(found[0])


def test_an_instance_refresh_replaces_the_instance_and_ends_when_the_new_one_is_in_service(
    cluster: EmulatedAws,
) -> None:
    old = cluster.in_service()
    started = cluster.autoscaling.start_instance_refresh(AutoScalingGroupName="node")["InstanceRefreshId"]
    assert groups_of(cluster) == {"node": ["Terminating", "Pending"]}
    refresh = refresh_of(cluster)
    assert (refresh["InstanceRefreshId"], refresh["Status"], refresh["PercentageComplete"]) == (
        started,
        "InProgress",
        0,
    )
    with pytest.raises(ClientError, match="already in progress"):
        cluster.autoscaling.start_instance_refresh(AutoScalingGroupName="node")
    into_service(cluster, "node")
    cluster.emulator.advance()
    refresh = refresh_of(cluster)
    assert (refresh["Status"], refresh["PercentageComplete"], refresh["InstancesToUpdate"]) == ("Successful", 100, 0)
    leave(cluster, old)
    assert groups_of(cluster) == {"node": ["InService"]}


def test_a_refresh_skips_what_matches_where_it_may(cluster: EmulatedAws) -> None:
    old = cluster.in_service()
    cluster.autoscaling.start_instance_refresh(AutoScalingGroupName="node", Preferences={"SkipMatching": True})
    assert refresh_of(cluster)["Status"] == "Successful"
    assert [m.id for m in cluster.machines()] == [old.id]


def test_a_cancelled_refresh_brings_the_replacement_that_has_begun_to_its_end(cluster: EmulatedAws) -> None:
    cluster.in_service()
    cluster.autoscaling.start_instance_refresh(AutoScalingGroupName="node")
    cluster.autoscaling.cancel_instance_refresh(AutoScalingGroupName="node")
    assert refresh_of(cluster)["Status"] == "Cancelling"
    into_service(cluster, "node")
    cluster.emulator.advance()
    assert refresh_of(cluster)["Status"] == "Cancelled"
    with pytest.raises(ClientError, match="No in progress or pending"):
        cluster.autoscaling.cancel_instance_refresh(AutoScalingGroupName="node")


def test_a_cancelled_refresh_replaces_no_further_instance(aws: EmulatedAws) -> None:
    two = stack()
    two["Group"]["Properties"].update(MinSize="2", MaxSize="2")
    aws.deploy("cluster", two)
    for machine in aws.machines():
        aws.emulator.powered_on(machine.id)
        aws.emulator.advance()
        answer(aws, machine, "launch")
    aws.autoscaling.start_instance_refresh(AutoScalingGroupName="node")
    aws.autoscaling.cancel_instance_refresh(AutoScalingGroupName="node")
    into_service(aws, "node")
    aws.emulator.advance()
    refresh = refresh_of(aws)
    assert (refresh["Status"], refresh["PercentageComplete"], refresh["InstancesToUpdate"]) == ("Cancelled", 50, 1)
    assert groups_of(aws) == {"node": ["Terminating", "InService", "InService"]}


def test_a_refresh_that_would_launch_first_is_refused(cluster: EmulatedAws) -> None:
    with pytest.raises(ClientError, match="MaxHealthyPercentage must be 100"):
        cluster.autoscaling.start_instance_refresh(
            AutoScalingGroupName="node", Preferences={"MinHealthyPercentage": 100, "MaxHealthyPercentage": 110}
        )
