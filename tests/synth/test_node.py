"""One node: an instance that is replaced by its group, one after the other, and that knows who it is."""

import itertools
import json
from collections.abc import Mapping
from typing import Any

from aws_cdk.assertions import Match

from stacks.environment import NodeIdentity
from tests.synth.synthesis import Properties, Synthesis

GROUP = "AWS::AutoScaling::AutoScalingGroup"
LAUNCH_TEMPLATE = "AWS::EC2::LaunchTemplate"

USER_DATA_LIMIT = 16 * 1024
"""Bytes before base64, an EC2 limit that neither synthesis nor cfn-lint knows."""

LONG_VALUES = {
    "Fn::ImportValue": "x" * 80,  # bucket and table names that CloudFormation generates are the longest: 63 and less
    "Ref": "arn:aws:secretsmanager:ap-southeast-1:123456789012:secret:" + "x" * 80 + "-AbCdEf",
}


def groups(synthesis: Synthesis) -> dict[str, Any]:
    """Node name to Auto Scaling group, with its logical id as `LogicalId`."""
    found = synthesis.resources(GROUP)
    return {group["Properties"]["AutoScalingGroupName"]: {**group, "LogicalId": name} for name, group in found.items()}


def launch_data(synthesis: Synthesis, group: Mapping[str, Any]) -> Properties:
    template = group["Properties"]["LaunchTemplate"]["LaunchTemplateId"]["Ref"]
    data: Properties = synthesis.templates["cluster"]["Resources"][template]["Properties"]["LaunchTemplateData"]
    return data


def user_data(data: Properties) -> str:
    """The script as an instance gets it, with values as long as they can be in place of references."""
    pieces = data["UserData"]["Fn::Base64"]["Fn::Join"][1]
    return "".join(
        piece if isinstance(piece, str) else next(LONG_VALUES[function] for function in piece) for piece in pieces
    )


def instance_document(script: str) -> dict[str, Any]:
    """The JSON document inside the script."""
    start = script.index('{\n "')
    document: dict[str, Any] = json.JSONDecoder().raw_decode(script, start)[0]
    return document


def test_there_is_one_group_a_node_named_as_the_node_is(synthesis: Synthesis) -> None:
    assert list(groups(synthesis)) == [node.name for node in synthesis.environment.nodes]


def test_each_group_keeps_exactly_one_instance(synthesis: Synthesis) -> None:
    for group in groups(synthesis).values():
        properties = group["Properties"]
        assert (properties["MinSize"], properties["MaxSize"]) == ("1", "1")
        assert properties["InstanceMaintenancePolicy"] == {"MinHealthyPercentage": 0, "MaxHealthyPercentage": 100}


def test_no_load_balancer_makes_a_group_kill_its_instance(synthesis: Synthesis) -> None:
    synthesis.assertions("cluster").all_resources_properties(GROUP, {"HealthCheckType": "EC2"})


def test_a_changed_launch_template_rolls_and_waits_for_the_node(synthesis: Synthesis) -> None:
    rolling = {"MinInstancesInService": 0, "MaxBatchSize": 1, "WaitOnResourceSignals": True, "PauseTime": "PT1H"}
    synthesis.assertions("cluster").all_resources(GROUP, {"UpdatePolicy": {"AutoScalingRollingUpdate": rolling}})
    for group in groups(synthesis).values():
        template = group["Properties"]["LaunchTemplate"]
        assert template["Version"] == {"Fn::GetAtt": [template["LaunchTemplateId"]["Ref"], "LatestVersionNumber"]}


def test_nodes_are_replaced_one_after_the_other(synthesis: Synthesis) -> None:
    found = list(groups(synthesis).values())
    for predecessor, group in itertools.pairwise(found):
        assert predecessor["LogicalId"] in group["DependsOn"]


def test_only_the_last_node_holds_up_the_creation_because_the_first_alone_is_no_cluster(synthesis: Synthesis) -> None:
    *others, last = groups(synthesis).values()
    assert last["CreationPolicy"] == {"ResourceSignal": {"Count": 1, "Timeout": "PT30M"}}
    assert [group for group in others if "CreationPolicy" in group] == []


def test_hooks_are_part_of_the_group_so_that_the_first_instance_meets_them(synthesis: Synthesis) -> None:
    assert synthesis.resources("AWS::AutoScaling::LifecycleHook") == {}
    for group in groups(synthesis).values():
        hooks = {hook["LifecycleHookName"]: hook for hook in group["Properties"]["LifecycleHookSpecificationList"]}
        assert {name: hook["LifecycleTransition"] for name, hook in hooks.items()} == {
            "launch": "autoscaling:EC2_INSTANCE_LAUNCHING",
            "terminate": "autoscaling:EC2_INSTANCE_TERMINATING",
        }
        assert hooks["launch"]["DefaultResult"] == "ABANDON"
        assert hooks["terminate"]["DefaultResult"] == "CONTINUE"
        # A dead instance answers no hook: this long its successor waits at the fence.
        assert hooks["terminate"]["HeartbeatTimeout"] <= 120


def test_instances_carry_the_tags_that_discovery_looks_for(synthesis: Synthesis) -> None:
    cluster = synthesis.environment.cluster_name
    for name, group in groups(synthesis).items():
        tags = {tag["Key"]: tag["Value"] for tag in group["Properties"]["Tags"] if tag["PropagateAtLaunch"]}
        wanted = {"Name": name, "rabbitmq-node": name, "rabbitmq-cluster": cluster}
        assert tags == {**synthesis.environment.tags, **wanted}


def test_group_metrics_are_collected(synthesis: Synthesis) -> None:
    metrics = [{"Granularity": "1Minute", "Metrics": Match.absent()}]
    synthesis.assertions("cluster").all_resources_properties(GROUP, {"MetricsCollection": metrics})


def test_every_group_registers_with_every_target_group(synthesis: Synthesis) -> None:
    wanted = set(synthesis.resources("AWS::ElasticLoadBalancingV2::TargetGroup"))
    for group in groups(synthesis).values():
        assert {arn["Ref"] for arn in group["Properties"]["TargetGroupARNs"]} == wanted


def test_instance_metadata_needs_a_token_and_stays_on_the_host(synthesis: Synthesis) -> None:
    options = {
        "HttpEndpoint": "enabled",
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 1,
        "InstanceMetadataTags": "enabled",
    }
    synthesis.assertions("cluster").all_resources_properties(
        LAUNCH_TEMPLATE, {"LaunchTemplateData": {"MetadataOptions": options}}
    )


def test_the_root_volume_is_encrypted_gp3_and_there_is_no_ssh_key(synthesis: Synthesis) -> None:
    wanted = synthesis.environment.instance
    volume = {"VolumeType": "gp3", "VolumeSize": wanted.root_volume_gib, "Encrypted": True, "DeleteOnTermination": True}
    synthesis.assertions("cluster").all_resources_properties(
        LAUNCH_TEMPLATE,
        {
            "LaunchTemplateData": {
                "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": volume}],
                "KeyName": Match.absent(),
                "Monitoring": {"Enabled": True},
                "InstanceType": wanted.type,
            }
        },
    )


def test_the_image_is_the_pinned_one_or_amazon_linux_2023_of_the_same_architecture(synthesis: Synthesis) -> None:
    instance = synthesis.environment.instance
    for group in groups(synthesis).values():
        image = launch_data(synthesis, group)["ImageId"]
        if instance.ami:
            assert image == instance.ami
            continue
        parameter = synthesis.templates["cluster"]["Parameters"][image["Ref"]]
        assert parameter["Type"] == "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>"
        path = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-"
        assert parameter["Default"] == path + synthesis.environment.architecture


def test_user_data_fits_into_what_ec2_takes(synthesis: Synthesis) -> None:
    sizes = [len(user_data(launch_data(synthesis, group)).encode()) for group in groups(synthesis).values()]
    assert max(sizes) < USER_DATA_LIMIT


def test_user_data_tells_an_instance_who_it_is(synthesis: Synthesis) -> None:
    environment = synthesis.environment
    found = groups(synthesis)
    for node in environment.nodes:
        document = instance_document(user_data(launch_data(synthesis, found[node.name])))
        assert identity(document) == node
        assert document["cluster"] == environment.cluster_name
        assert document["region"] == environment.region
        assert document["stack_name"] == environment.stack_name("cluster")
        assert document["asg_name"] == node.name
        assert document["asg_logical_id"] == found[node.name]["LogicalId"]
        assert (document["launch_hook"], document["terminate_hook"]) == ("launch", "terminate")
        assert set(document) == {
            *("node", "cluster", "region", "availability_zone", "stack_name", "asg_logical_id", "asg_name"),
            *("launch_hook", "terminate_hook", "file_system_id", "access_point_id", "table", "artifact_bucket"),
            *("secrets", "target_groups", "bundle"),
        }
        secrets = {"administrator", "monitoring", "federation", "erlang_cookie", "consul_gossip_key"}
        assert set(document["secrets"]) == secrets
        assert len(document["target_groups"]) == len(found[node.name]["Properties"]["TargetGroupARNs"])
        assert set(document["bundle"]) == {"bucket", "key", "sha256"}


def identity(document: Mapping[str, Any]) -> NodeIdentity:
    return NodeIdentity(document["node"], document["availability_zone"])


def test_each_node_mounts_its_own_access_point(synthesis: Synthesis) -> None:
    exports = {
        output["Export"]["Name"]: output["Value"]
        for output in synthesis.templates["storage"]["Outputs"].values()
        if "Export" in output
    }
    access_points = synthesis.resources("AWS::EFS::AccessPoint")
    for name, group in groups(synthesis).items():
        pieces = launch_data(synthesis, group)["UserData"]["Fn::Base64"]["Fn::Join"][1]
        index = next(i for i, piece in enumerate(pieces) if str(piece).endswith('"access_point_id": "'))
        reference = exports[pieces[index + 1]["Fn::ImportValue"]]
        path = access_points[reference["Ref"]]["Properties"]["RootDirectory"]["Path"]
        assert path == f"/nodes/{name}"


def test_instances_start_only_after_their_security_group_is_complete(synthesis: Synthesis) -> None:
    rules = {
        name
        for kind in ("Ingress", "Egress")
        for name in synthesis.resources(f"AWS::EC2::SecurityGroup{kind}", "cluster")
    }
    assert len(rules) == 10
    for group in groups(synthesis).values():
        assert rules <= set(group["DependsOn"])
