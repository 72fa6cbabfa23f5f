"""What a deployment consists of, one small readable file an environment, to be read in a review.

After a change that is meant:  UPDATE_SNAPSHOTS=1 .venv/bin/pytest tests/synth/test_snapshots.py

The files hold no asset hash, generated name or logical id, except the logical ids of what holds data and of the nodes'
groups, which must never be replaced by accident.
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from tests.synth.synthesis import PROJECT, Synthesis, Template

SNAPSHOTS = PROJECT / "tests" / "synth" / "snapshots"

REPLACED_WHEN_CHANGED: dict[str, tuple[str, ...]] = {
    "AWS::EFS::FileSystem": ("Encrypted", "KmsKeyId", "PerformanceMode", "AvailabilityZoneName"),
    "AWS::EFS::AccessPoint": ("FileSystemId", "RootDirectory", "PosixUser"),
    "AWS::EFS::MountTarget": ("FileSystemId",),
    "AWS::KMS::Key": ("KeySpec", "KeyUsage"),
    "AWS::DynamoDB::Table": ("TableName", "KeySchema", "AttributeDefinitions"),
    "AWS::S3::Bucket": ("BucketName",),
    "AWS::AutoScaling::AutoScalingGroup": ("AutoScalingGroupName",),
    "AWS::SecretsManager::Secret": ("Name",),
}
"""Types of which CloudFormation creates a new one when one of these properties changes."""

KEEP_LOGICAL_ID = {"storage", "cluster", "messaging"}


def snapshot(synthesis: Synthesis) -> dict[str, Any]:
    return {kind: describe(kind, template) for kind, template in synthesis.templates.items()}


def describe(kind: str, template: Template) -> dict[str, Any]:
    resources = template["Resources"]
    described: dict[str, Any] = {
        "resources": dict(sorted(Counter(resource["Type"] for resource in resources.values()).items()))
    }
    lasting = {
        stable_name(logical_id, resource): {
            name: resource["Properties"][name]
            for name in REPLACED_WHEN_CHANGED[resource["Type"]]
            if name in resource["Properties"]
        }
        | {name: resource[name] for name in ("DeletionPolicy",) if name in resource}
        for logical_id, resource in resources.items()
        if resource["Type"] in REPLACED_WHEN_CHANGED and kind in KEEP_LOGICAL_ID
    }
    if lasting:
        described["must not be replaced"] = lasting
    lines = sorted(line for resource in resources.values() for line in sentences(resource))
    if lines:
        described["in short"] = lines
    return described


def stable_name(logical_id: str, resource: dict[str, Any]) -> str:
    return f"{resource['Type'].split('::')[-1]} {logical_id}"


def sentences(resource: dict[str, Any]) -> list[str]:
    """What a reviewer wants to know of a resource, in a line."""
    properties = resource.get("Properties", {})
    match resource["Type"]:
        case "AWS::EC2::Subnet":
            return [f"subnet {properties['CidrBlock']} in {properties['AvailabilityZone']}"]
        case "AWS::EFS::FileSystem":
            figure = properties.get("ProvisionedThroughputInMibps")
            return [f"EFS {properties['ThroughputMode']}" + (f" {figure} MiB/s" if figure else "")]
        case "AWS::EC2::LaunchTemplate":
            data = properties["LaunchTemplateData"]
            image = data["ImageId"] if isinstance(data["ImageId"], str) else "Amazon Linux 2023"
            return [
                f"{data['InstanceType']} from {image}, root {data['BlockDeviceMappings'][0]['Ebs']['VolumeSize']} GiB"
            ]
        case "AWS::AutoScaling::AutoScalingGroup":
            hooks = ", ".join(
                f"{hook['LifecycleHookName']} {hook['HeartbeatTimeout']} s then {hook['DefaultResult']}"
                for hook in properties["LifecycleHookSpecificationList"]
            )
            return [f"{properties['AutoScalingGroupName']}: {hooks}"]
        case "AWS::ElasticLoadBalancingV2::TargetGroup":
            return [f"target {properties['Protocol']} {properties['Port']}, health {properties['HealthCheckPath']}"]
        case "AWS::ElasticLoadBalancingV2::LoadBalancer":
            return [f"{properties['Type']} load balancer, {properties['Scheme']}"]
        case "AWS::ElasticLoadBalancingV2::Listener":
            return [f"listener {properties['Protocol']} {properties['Port']}"]
        case "AWS::SSM::Parameter":
            return [f"publishes {properties['Name']}"]
        case "AWS::CloudWatch::Alarm":
            sign = {"GreaterThanThreshold": ">", "LessThanThreshold": "<"}[properties["ComparisonOperator"]]
            limit = f"{sign} {properties['Threshold']} for {properties['EvaluationPeriods']} min"
            return [f"alarm {properties['AlarmName']} {limit}, missing data {properties['TreatMissingData']}"]
        case _:
            return []


def check_snapshot(path: Path, described: dict[str, Any]) -> None:
    current = json.dumps(described, indent=2) + "\n"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(current)
    assert json.loads(current) == json.loads(path.read_text()), f"{path.name} differs: see this module's docstring"


def test_the_deployment_is_what_was_last_reviewed(synthesis: Synthesis) -> None:
    check_snapshot(SNAPSHOTS / f"{synthesis.environment.name}.json", snapshot(synthesis))


def test_every_snapshot_belongs_to_an_environment_or_to_the_stack_that_none_has() -> None:
    environments = {path.stem for path in (PROJECT / "environments").glob("*.yaml")}
    assert {path.stem for path in SNAPSHOTS.glob("*.json")} == environments | {"messaging"}
