"""CloudFormation as the project's stacks need it: in place, stable, honest about failure."""

import json
import socket
from typing import Any

import pytest
import requests
from botocore.exceptions import ClientError

from tests.unit.lab.emulated_aws import NETWORK, TARGETS, EmulatedAws, node

SECRET = {
    "Type": "AWS::SecretsManager::Secret",
    "Properties": {
        "Name": "c/administrator",
        "GenerateSecretString": {
            "SecretStringTemplate": '{"username":"administrator"}',
            "GenerateStringKey": "password",
            "PasswordLength": 32,
            "ExcludePunctuation": True,
        },
    },
}

STORAGE: dict[str, Any] = {
    "Key": {
        "Type": "AWS::KMS::Key",
        "Properties": {"KeyPolicy": {"Statement": []}, "Tags": [{"Key": "team", "Value": "messaging"}]},
    },
    "FileSystem": {
        "Type": "AWS::EFS::FileSystem",
        "Properties": {
            "Encrypted": True,
            "KmsKeyId": {"Fn::GetAtt": ["Key", "Arn"]},
            "ThroughputMode": "provisioned",
            "ProvisionedThroughputInMibps": 64,
            "FileSystemPolicy": {"Statement": []},
        },
    },
    "AccessPoint": {
        "Type": "AWS::EFS::AccessPoint",
        "Properties": {"FileSystemId": {"Ref": "FileSystem"}, "RootDirectory": {"Path": "/nodes/b"}},
    },
    "Parameter": {
        "Type": "AWS::SSM::Parameter",
        "Properties": {"Name": "/c/fs", "Type": "String", "Value": {"Ref": "FileSystem"}, "Tags": {"team": "m"}},
    },
}

IMPOSSIBLE = {"Type": "AWS::EFS::MountTarget", "Properties": {"FileSystemId": "fs-none", "SubnetId": "subnet-none"}}


def _changed(resources: dict[str, Any], logical_id: str, **properties: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(resources))
    copy[logical_id]["Properties"].update(properties)
    return copy


def _status(aws: EmulatedAws, name: str) -> str:
    return str(aws.cloudformation.describe_stacks(StackName=name)["Stacks"][0]["StackStatus"])


def test_a_generated_secret_has_the_form_asked_for_and_survives_an_update(aws: EmulatedAws) -> None:
    aws.deploy("s", {"Secret": SECRET})
    first = aws.secretsmanager.get_secret_value(SecretId="c/administrator")["SecretString"]
    assert json.loads(first)["username"] == "administrator"
    assert json.loads(first)["password"].isalnum()
    assert len(json.loads(first)["password"]) == 32
    aws.deploy("s", _changed({"Secret": SECRET}, "Secret", Description="changed"))
    assert aws.secretsmanager.get_secret_value(SecretId="c/administrator")["SecretString"] == first
    assert aws.secretsmanager.describe_secret(SecretId="c/administrator")["Description"] == "changed"


def test_a_changed_launch_template_is_a_new_version_and_ends_no_instance(cluster: EmulatedAws) -> None:
    machine = cluster.in_service()
    before = cluster.physical_ids("cluster")
    cluster.deploy("cluster", {**NETWORK, **TARGETS, **node("#!/bin/sh\n# changed\n")})
    assert cluster.physical_ids("cluster") == before
    (group,) = cluster.autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    assert group["LaunchTemplate"]["Version"] == "2"
    assert [m.id for m in cluster.machines()] == [machine.id]
    cluster.emulator.powered_off(machine.id)
    (replacement,) = cluster.machines()
    assert replacement.user_data == b"#!/bin/sh\n# changed\n"
    (tag,) = cluster.ec2.describe_tags(
        Filters=[
            {"Name": "resource-id", "Values": [replacement.id]},
            {"Name": "key", "Values": ["aws:ec2launchtemplate:version"]},
        ]
    )["Tags"]
    assert tag["Value"] == "2"


def test_what_did_not_change_keeps_its_identity_and_what_did_changes_in_place(aws: EmulatedAws) -> None:
    aws.deploy("storage", STORAGE)
    before = aws.physical_ids("storage")
    aws.deploy("storage", _changed(STORAGE, "FileSystem", ProvisionedThroughputInMibps=128))
    assert aws.physical_ids("storage") == before
    (file_system,) = aws.efs.describe_file_systems()["FileSystems"]
    assert file_system["ProvisionedThroughputInMibps"] == 128


def test_access_points_and_parameters_refer_to_what_was_made(aws: EmulatedAws) -> None:
    aws.deploy("storage", STORAGE)
    ids = aws.physical_ids("storage")
    assert ids["AccessPoint"].startswith("fsap-")
    (point,) = aws.emulator.access_points()
    assert (point.file_system, point.id, point.path) == (ids["FileSystem"], ids["AccessPoint"], "/nodes/b")
    assert aws.ssm.get_parameter(Name="/c/fs")["Parameter"]["Value"] == ids["FileSystem"]
    assert aws.kms.list_resource_tags(KeyId=ids["Key"])["Tags"] == [{"TagKey": "team", "TagValue": "messaging"}]


def test_a_resource_that_leaves_its_template_goes_unless_it_is_retained(aws: EmulatedAws) -> None:
    kept = {**STORAGE, "FileSystem": {**STORAGE["FileSystem"], "DeletionPolicy": "Retain"}, "Secret": SECRET}
    aws.deploy("storage", kept)
    aws.deploy("storage", {"Key": STORAGE["Key"]})
    assert len(aws.efs.describe_file_systems()["FileSystems"]) == 1
    assert aws.secretsmanager.list_secrets()["SecretList"] == []


def test_another_stack_imports_what_an_updated_one_exports(aws: EmulatedAws) -> None:
    aws.deploy("network", NETWORK)
    output = {"Vpc": {"Value": {"Ref": "Vpc"}, "Export": {"Name": "network:vpc"}}}
    exported = aws.deploy("network", NETWORK, Outputs=output)["Vpc"]
    group = {
        "Type": "AWS::EC2::SecurityGroup",
        "Properties": {"GroupDescription": "nodes", "VpcId": {"Fn::ImportValue": "network:vpc"}},
    }
    aws.deploy("cluster", {"Nodes": group})
    (found,) = aws.ec2.describe_security_groups(Filters=[{"Name": "description", "Values": ["nodes"]}])[
        "SecurityGroups"
    ]
    assert found["VpcId"] == exported


def test_security_group_rules_of_their_own_come_change_and_go(aws: EmulatedAws) -> None:
    group = {
        "Type": "AWS::EC2::SecurityGroup",
        "Properties": {"GroupDescription": "nodes", "VpcId": {"Ref": "Vpc"}},
    }
    peer = {"GroupId": {"Fn::GetAtt": ["Nodes", "GroupId"]}, "IpProtocol": "tcp"}
    rules = {
        "In": {
            "Type": "AWS::EC2::SecurityGroupIngress",
            "Properties": {
                **peer,
                "FromPort": 4369,
                "ToPort": 4369,
                "SourceSecurityGroupId": {"Fn::GetAtt": ["Nodes", "GroupId"]},
            },
        },
        "Out": {
            "Type": "AWS::EC2::SecurityGroupEgress",
            "Properties": {**peer, "FromPort": 443, "ToPort": 443, "CidrIp": "0.0.0.0/0"},
        },
    }

    def ports(direction: str) -> set[int]:
        (found,) = aws.ec2.describe_security_groups(Filters=[{"Name": "description", "Values": ["nodes"]}])[
            "SecurityGroups"
        ]
        return {rule["FromPort"] for rule in found[direction] if rule["IpProtocol"] == "tcp"}

    aws.deploy("s", {**NETWORK, "Nodes": group, **rules})
    assert (ports("IpPermissions"), ports("IpPermissionsEgress")) == ({4369}, {443})
    aws.deploy("s", _changed({**NETWORK, "Nodes": group, **rules}, "In", FromPort=25672, ToPort=25672))
    assert ports("IpPermissions") == {25672}
    aws.deploy("s", {**NETWORK, "Nodes": group})
    assert (ports("IpPermissions"), ports("IpPermissionsEgress")) == (set(), set())


def test_an_alarm_on_an_expression_is_described_with_its_metrics(aws: EmulatedAws) -> None:
    metric = {"Namespace": "AWS/EFS", "MetricName": "MeteredIOBytes", "Dimensions": [{"Name": "F", "Value": "fs-1"}]}
    properties = {
        "AlarmName": "throughput",
        "ComparisonOperator": "GreaterThanThreshold",
        "EvaluationPeriods": 5,
        "Threshold": 80,
        "TreatMissingData": "notBreaching",
        "Metrics": [
            {"Id": "used", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Sum"}, "ReturnData": False},
            {"Id": "share", "Expression": "100 * used / 64"},
        ],
    }
    aws.deploy("alarms", {"Alarm": {"Type": "AWS::CloudWatch::Alarm", "Properties": properties}})
    (alarm,) = aws.cloudwatch.describe_alarms()["MetricAlarms"]
    assert [m["Id"] for m in alarm["Metrics"]] == ["used", "share"]
    assert alarm["Metrics"][0]["MetricStat"]["Metric"]["MetricName"] == "MeteredIOBytes"


def test_a_type_that_nobody_knows_is_there_and_does_nothing(aws: EmulatedAws) -> None:
    aws.deploy("s", {"Policy": {"Type": "AWS::S3::BucketPolicy", "Properties": {"Bucket": "b"}}})
    assert _status(aws, "s") == "CREATE_COMPLETE"
    assert "Policy" in aws.physical_ids("s")


def test_a_stack_that_cannot_be_created_is_rolled_back_and_says_why(aws: EmulatedAws) -> None:
    aws.deploy("s", {"Secret": SECRET, "MountTarget": IMPOSSIBLE})
    assert _status(aws, "s") == "ROLLBACK_COMPLETE"
    assert ("MountTarget", "CREATE_FAILED") in {(logical, status) for logical, status, _ in aws.events("s")}
    assert any("subnet-none" in reason for _, status, reason in aws.events("s") if status == "CREATE_FAILED")
    assert aws.physical_ids("s") == {}
    assert aws.secretsmanager.list_secrets()["SecretList"] == []


def test_an_update_that_fails_is_rolled_back_and_says_why(aws: EmulatedAws) -> None:
    aws.deploy("storage", STORAGE)
    aws.deploy("storage", {**_changed(STORAGE, "FileSystem", ProvisionedThroughputInMibps=128), "Another": IMPOSSIBLE})
    assert _status(aws, "storage") == "UPDATE_ROLLBACK_COMPLETE"
    assert any("subnet-none" in reason for logical, _, reason in aws.events("storage") if logical == "Another")
    (file_system,) = aws.efs.describe_file_systems()["FileSystems"]
    assert file_system["ProvisionedThroughputInMibps"] == 64


def test_a_protected_stack_is_not_deleted(aws: EmulatedAws) -> None:
    aws.deploy("s", {"Secret": SECRET})
    aws.cloudformation.update_termination_protection(StackName="s", EnableTerminationProtection=True)
    with pytest.raises(ClientError, match="TerminationProtection"):
        aws.cloudformation.delete_stack(StackName="s")
    aws.cloudformation.update_termination_protection(StackName="s", EnableTerminationProtection=False)
    aws.cloudformation.delete_stack(StackName="s")
    assert aws.emulator.stacks() == []


def test_change_sets_of_two_stacks_may_have_one_name(aws: EmulatedAws) -> None:
    for stack, resources in {"one": {"Secret": SECRET}, "two": STORAGE}.items():
        aws.cloudformation.create_change_set(
            StackName=stack,
            ChangeSetName="change",
            ChangeSetType="CREATE",
            TemplateBody=json.dumps({"Resources": resources}),
        )
    for stack in ("one", "two"):
        aws.cloudformation.execute_change_set(StackName=stack, ChangeSetName="change")
    assert set(aws.physical_ids("one")) == {"Secret"}
    assert set(aws.physical_ids("two")) == set(STORAGE)


def test_a_change_set_names_the_properties_that_change(aws: EmulatedAws) -> None:
    aws.deploy("storage", STORAGE)
    changed = _changed(STORAGE, "FileSystem", ProvisionedThroughputInMibps=128)
    aws.cloudformation.create_change_set(
        StackName="storage",
        ChangeSetName="c",
        ChangeSetType="UPDATE",
        TemplateBody=json.dumps({"Resources": changed}),
    )
    (change,) = aws.cloudformation.describe_change_set(StackName="storage", ChangeSetName="c")["Changes"]
    assert change["ResourceChange"]["LogicalResourceId"] == "FileSystem"
    assert [d["Target"]["Name"] for d in change["ResourceChange"]["Details"]] == ["ProvisionedThroughputInMibps"]


def test_a_parameter_keeps_its_default_when_an_update_asks_for_the_previous_value(aws: EmulatedAws) -> None:
    parameters = {"Size": {"Type": "String", "Default": "64"}}
    storage = _changed(STORAGE, "FileSystem", ProvisionedThroughputInMibps={"Ref": "Size"})
    aws.deploy("storage", storage, Parameters=parameters)
    aws.cloudformation.update_stack(
        StackName="storage",
        TemplateBody=json.dumps({"Resources": {**storage, "Secret": SECRET}, "Parameters": parameters}),
        Parameters=[{"ParameterKey": "Size", "UsePreviousValue": True}],
    )
    (file_system,) = aws.efs.describe_file_systems()["FileSystems"]
    assert (_status(aws, "storage"), int(file_system["ProvisionedThroughputInMibps"])) == ("UPDATE_COMPLETE", 64)


# -- the server --------------------------------------------------------------------------------------------------------


def test_a_client_that_stops_in_the_middle_of_a_request_holds_nobody_up(aws: EmulatedAws) -> None:
    with socket.create_connection(("127.0.0.1", aws.port)) as frozen:
        frozen.sendall(b"POST / HTTP/1.1\r\nHost: ec2.eu-west-1.amazonaws.com\r\nContent-Length: 100\r\n\r\nAction=")
        assert requests.get(f"http://127.0.0.1:{aws.port}/", timeout=3).status_code == 200


def test_a_failure_of_the_emulator_is_an_error_that_a_client_can_show(
    aws: EmulatedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("out of order")

    aws.ec2.describe_vpcs()
    monkeypatch.setattr("moto.ec2.models.EC2Backend.describe_vpcs", broken)
    with pytest.raises(ClientError, match="the emulator failed: RuntimeError: out of order"):
        aws.ec2.describe_vpcs()
