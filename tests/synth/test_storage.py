"""What must outlive every instance is encrypted, guarded, retained, and never replaced by accident."""

import copy
from collections.abc import Mapping

import pytest
from aws_cdk.assertions import Match

from tests.synth.synthesis import Synthesis, Synthesiser, Template

NEVER_REPLACED = {
    "AWS::EFS::FileSystem": {"FileSystem"},
    "AWS::KMS::Key": {"FileSystemKey"},
    "AWS::EFS::AccessPoint": {"AccessPointEuWest1a", "AccessPointEuWest1b", "AccessPointEuWest1c"},
    "AWS::DynamoDB::Table": {"Table"},
    "AWS::S3::Bucket": {"Artifacts"},
}
"""Logical ids of what holds data, in eu-west-1. Changing one here destroys data at the next deployment."""


def moved(template: Template, pinned: Mapping[str, set[str]]) -> list[str]:
    """What CloudFormation would create anew, leaving or deleting the one that holds the data."""
    resources = template["Resources"]
    return [
        f"{resource_type}: {sorted(found)} instead of {sorted(wanted)}"
        for resource_type, wanted in pinned.items()
        if (found := {name for name, resource in resources.items() if resource["Type"] == resource_type}) != wanted
    ]


def test_what_holds_data_keeps_its_logical_ids(synthesis: Synthesis) -> None:
    region = synthesis.environment.region
    suffix = "".join(part.capitalize() for part in region.split("-"))
    pinned = {kind: {name.replace("EuWest1", suffix) for name in names} for kind, names in NEVER_REPLACED.items()}
    assert moved(synthesis.templates["storage"], pinned) == []


@pytest.mark.parametrize("resource_type", NEVER_REPLACED)
def test_a_renamed_or_moved_construct_is_noticed(resource_type: str, synthesised: Synthesiser) -> None:
    template = copy.deepcopy(synthesised("local").templates["storage"])
    logical_id = next(name for name, r in template["Resources"].items() if r["Type"] == resource_type)
    template["Resources"][f"Data{logical_id}8B3A6F2C"] = template["Resources"].pop(logical_id)
    assert len(moved(template, NEVER_REPLACED)) == 1


def test_data_is_retained_exactly_where_the_environment_says_so(synthesis: Synthesis) -> None:
    policy = "Retain" if synthesis.environment.protection.retain_data else "Delete"
    for resource_type in NEVER_REPLACED:
        for resource in synthesis.resources(resource_type, "storage").values():
            assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == (policy, policy), resource_type
    table = synthesis.only("AWS::DynamoDB::Table")["Properties"]
    assert table["DeletionProtectionEnabled"] is synthesis.environment.protection.retain_data


def test_stacks_refuse_deletion_exactly_where_the_environment_says_so(synthesis: Synthesis) -> None:
    artifacts = synthesis.manifest["artifacts"]
    protected = {
        name: artifact["properties"].get("terminationProtection", False)
        for name, artifact in artifacts.items()
        if artifact["type"] == "aws:cloudformation:stack"
    }
    assert len(protected) == 5
    assert set(protected.values()) == {synthesis.environment.protection.termination}


def test_production_retains_its_data_and_refuses_deletion(synthesised: Synthesiser) -> None:
    protection = synthesised("production").environment.protection
    assert protection.retain_data
    assert protection.termination


def test_the_file_system_is_encrypted_with_a_key_of_its_own_that_rotates(synthesis: Synthesis) -> None:
    storage = synthesis.assertions("storage")
    storage.resource_count_is("AWS::KMS::Key", 1)
    storage.has_resource_properties("AWS::KMS::Key", {"EnableKeyRotation": True})
    storage.all_resources_properties(
        "AWS::EFS::FileSystem", {"Encrypted": True, "KmsKeyId": {"Fn::GetAtt": ["FileSystemKey", "Arn"]}}
    )


def test_throughput_and_backups_are_what_the_environment_says(synthesis: Synthesis) -> None:
    wanted = synthesis.environment.efs
    synthesis.assertions("storage").all_resources_properties(
        "AWS::EFS::FileSystem",
        {
            "ThroughputMode": wanted.throughput_mode,
            "ProvisionedThroughputInMibps": wanted.provisioned_mibps or Match.absent(),
            "BackupPolicy": {"Status": "ENABLED" if wanted.backups else "DISABLED"},
        },
    )


def unprovisioned(template: Template) -> list[str]:
    """File systems in provisioned mode without a figure, and figures without the mode: EFS refuses both."""
    return [
        logical_id
        for logical_id, resource in template["Resources"].items()
        if resource["Type"] == "AWS::EFS::FileSystem"
        and (resource["Properties"]["ThroughputMode"] == "provisioned")
        != ("ProvisionedThroughputInMibps" in resource["Properties"])
    ]


def test_provisioned_throughput_has_its_figure(synthesis: Synthesis) -> None:
    assert unprovisioned(synthesis.templates["storage"]) == []


def test_provisioned_throughput_without_a_figure_is_noticed(synthesised: Synthesiser) -> None:
    template = copy.deepcopy(synthesised("local").templates["storage"])
    del template["Resources"]["FileSystem"]["Properties"]["ProvisionedThroughputInMibps"]
    assert unprovisioned(template) == ["FileSystem"]


def test_nobody_mounts_without_tls_without_iam_or_past_an_access_point(synthesis: Synthesis) -> None:
    account = synthesis.environment.account
    policy = synthesis.only("AWS::EFS::FileSystem")["Properties"]["FileSystemPolicy"]
    statements = {statement["Sid"]: statement for statement in policy["Statement"]}
    client = {f"elasticfilesystem:Client{action}" for action in ("Mount", "Write", "RootAccess")}
    for statement in statements.values():
        assert set(statement["Action"]) == client
    allows = [statement for statement in statements.values() if statement["Effect"] == "Allow"]
    # Anonymous clients match the principal "*" only: the account's principal leaves them without any grant.
    assert [allow["Principal"] for allow in allows] == [{"AWS": f"arn:aws:iam::{account}:root"}]
    denials = {
        sid: (statement["Principal"], statement["Condition"])
        for sid, statement in statements.items()
        if statement["Effect"] == "Deny"
    }
    assert denials == {
        "DenyWithoutTls": ({"AWS": "*"}, {"Bool": {"aws:SecureTransport": "false"}}),
        "DenyWithoutAccessPoint": ({"AWS": "*"}, {"Null": {"elasticfilesystem:AccessPointArn": "true"}}),
    }


def test_every_node_has_a_directory_of_its_own_name(synthesis: Synthesis) -> None:
    access_points = synthesis.properties("AWS::EFS::AccessPoint")
    assert {point["RootDirectory"]["Path"] for point in access_points} == {
        f"/nodes/{node.name}" for node in synthesis.environment.nodes
    }
    for point in access_points:
        assert "PosixUser" not in point
        assert point["RootDirectory"]["CreationInfo"] == {"OwnerUid": "0", "OwnerGid": "0", "Permissions": "0755"}


def test_every_zone_has_a_mount_target_behind_the_file_systems_security_group(synthesis: Synthesis) -> None:
    targets = synthesis.properties("AWS::EFS::MountTarget")
    assert len({str(target["SubnetId"]) for target in targets}) == 3
    for target in targets:
        [group] = target["SecurityGroups"]
        assert group["Fn::GetAtt"][0].startswith("FileSystemSecurityGroup")


def test_the_node_table_has_point_in_time_recovery_and_one_key(synthesis: Synthesis) -> None:
    synthesis.assertions("storage").all_resources_properties(
        "AWS::DynamoDB::Table",
        {
            "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
            "BillingMode": "PAY_PER_REQUEST",
            "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
        },
    )


def test_the_artefact_bucket_is_private_versioned_encrypted_and_tls_only(synthesis: Synthesis) -> None:
    storage = synthesis.assertions("storage")
    block_everything = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
    storage.all_resources_properties(
        "AWS::S3::Bucket",
        {
            "PublicAccessBlockConfiguration": dict.fromkeys(block_everything, True),
            "VersioningConfiguration": {"Status": "Enabled"},
            "BucketEncryption": {
                "ServerSideEncryptionConfiguration": [{"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
            },
        },
    )
    for condition in ({"Bool": {"aws:SecureTransport": "false"}}, {"NumericLessThan": {"s3:TlsVersion": 1.2}}):
        denial = Match.object_like({"Effect": "Deny", "Action": "s3:*", "Condition": condition})
        storage.has_resource_properties(
            "AWS::S3::BucketPolicy", {"PolicyDocument": {"Statement": Match.array_with([denial])}}
        )
