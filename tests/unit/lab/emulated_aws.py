"""An emulated AWS for these tests: one server for all, emptied before each."""

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import boto3
import pytest
import requests

from lab.emulator import Emulator, Machine, scaling
from lab.emulator.server import ApiServer

REGION = "eu-west-1"


class Clock:
    """Auto Scaling's clock, which a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class EmulatedAws:
    """The emulator with what tests do to it."""

    def __init__(self, emulator: Emulator, port: int, clock: Clock) -> None:
        self.emulator = emulator
        self.port = port
        self.clock = clock

    def __getattr__(self, service: str) -> Any:
        """A boto3 client, by the service's name."""
        return _client(service, self.port)

    def deploy(self, name: str, resources: dict[str, Any], **sections: Any) -> dict[str, str]:
        """Create or update a stack; its outputs."""
        template = json.dumps({"Resources": resources, **sections})
        known = {stack.name for stack in self.emulator.stacks()}
        call: Callable[..., Any] = (
            self.cloudformation.update_stack if name in known else self.cloudformation.create_stack
        )
        call(StackName=name, TemplateBody=template)
        return self.outputs(name)

    def outputs(self, name: str) -> dict[str, str]:
        """A stack's outputs."""
        stack = self.cloudformation.describe_stacks(StackName=name)["Stacks"][0]
        return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}

    def physical_ids(self, name: str) -> dict[str, str]:
        """Physical id by logical id."""
        found = self.cloudformation.describe_stack_resources(StackName=name)["StackResources"]
        return {resource["LogicalResourceId"]: resource["PhysicalResourceId"] for resource in found}

    def events(self, name: str) -> list[tuple[str, str, str]]:
        """Logical id, status and reason of a stack's events, the newest first."""
        found = self.cloudformation.describe_stack_events(StackName=name)["StackEvents"]
        return [
            (event["LogicalResourceId"], event["ResourceStatus"], event.get("ResourceStatusReason", ""))
            for event in found
        ]

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and Auto Scaling do what is then due."""
        self.clock.now += seconds
        self.emulator.advance()

    def machines(self) -> list[Machine]:
        """What is not terminated, after Auto Scaling did what was due."""
        self.emulator.advance()
        return [machine for machine in self.emulator.machines() if machine.state != "terminated"]

    def in_service(self) -> Machine:
        """The only machine, brought into service."""
        (machine,) = self.machines()
        self.emulator.powered_on(machine.id)
        self.emulator.advance()
        self.autoscaling.complete_lifecycle_action(
            AutoScalingGroupName="node",
            LifecycleHookName="launch",
            InstanceId=machine.id,
            LifecycleActionResult="CONTINUE",
        )
        return self.machines()[0]


_SESSION = boto3.Session("test", "test", region_name=REGION)


@lru_cache
def _client(service: str, port: int) -> Any:
    return _SESSION.client(service, endpoint_url=f"http://localhost:{port}")  # type: ignore[call-overload]


@pytest.fixture(scope="session")
def served() -> Iterator[tuple[Emulator, ApiServer]]:
    """The server. moto's state is global, so one is enough."""
    emulator = Emulator(REGION, lambda kind, number: f"127.77.1.{(10 if kind == 'network' else 20) + number}")
    server = emulator.listen("127.0.0.1", 0)
    server.start()
    yield emulator, server
    server.stop()


@pytest.fixture
def aws(served: tuple[Emulator, ApiServer], monkeypatch: pytest.MonkeyPatch) -> EmulatedAws:
    """An empty AWS."""
    emulator, server = served
    clock = Clock()
    monkeypatch.setattr(scaling, "clock", clock)
    requests.post(f"http://localhost:{server.port}/moto-api/reset", timeout=5).raise_for_status()
    return EmulatedAws(emulator, server.port, clock)


NETWORK: dict[str, Any] = {
    "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.9.0.0/16"}},
    "Subnet": {
        "Type": "AWS::EC2::Subnet",
        "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.9.1.0/28", "AvailabilityZone": "eu-west-1b"},
    },
}

TARGETS: dict[str, Any] = {
    "Targets": {
        "Type": "AWS::ElasticLoadBalancingV2::TargetGroup",
        "Properties": {
            "Name": "amqp",
            "VpcId": {"Ref": "Vpc"},
            "Port": 5672,
            "Protocol": "TCP",
            "TargetType": "instance",
            "HealthCheckProtocol": "HTTP",
            "HealthCheckPort": "15672",
            "HealthCheckPath": "/health",
            "HealthCheckIntervalSeconds": 7,
            "HealthCheckTimeoutSeconds": 5,
            "HealthyThresholdCount": 2,
            "UnhealthyThresholdCount": 3,
            "Matcher": {"HttpCode": "200"},
            "TargetGroupAttributes": [{"Key": "deregistration_delay.timeout_seconds", "Value": "30"}],
        },
    },
    "Balancer": {
        "Type": "AWS::ElasticLoadBalancingV2::LoadBalancer",
        "Properties": {"Name": "nlb", "Type": "network", "Subnets": [{"Ref": "Subnet"}], "Scheme": "internal"},
    },
    "Listener": {
        "Type": "AWS::ElasticLoadBalancingV2::Listener",
        "Properties": {
            "LoadBalancerArn": {"Ref": "Balancer"},
            "Port": 5672,
            "Protocol": "TCP",
            "DefaultActions": [{"Type": "forward", "TargetGroupArn": {"Ref": "Targets"}}],
            "ListenerAttributes": [{"Key": "tcp.idle_timeout.seconds", "Value": "120"}],
        },
    },
}


def node(user_data: str = "#!/bin/sh\n", **group: Any) -> dict[str, Any]:
    """A launch template and a group of one with both hooks."""
    return {
        "Role": {"Type": "AWS::IAM::Role", "Properties": {"RoleName": "node", "AssumeRolePolicyDocument": {}}},
        "Profile": {"Type": "AWS::IAM::InstanceProfile", "Properties": {"Roles": [{"Ref": "Role"}]}},
        "Template": {
            "Type": "AWS::EC2::LaunchTemplate",
            "Properties": {
                "LaunchTemplateData": {
                    "ImageId": "ami-12345678",
                    "InstanceType": "m7i.large",
                    "IamInstanceProfile": {"Arn": {"Fn::GetAtt": ["Profile", "Arn"]}},
                    "UserData": {"Fn::Base64": user_data},
                }
            },
        },
        "Group": {
            "Type": "AWS::AutoScaling::AutoScalingGroup",
            **group,
            "Properties": {
                "AutoScalingGroupName": "node",
                "MinSize": "1",
                "MaxSize": "1",
                "VPCZoneIdentifier": [{"Ref": "Subnet"}],
                "LaunchTemplate": {
                    "LaunchTemplateId": {"Ref": "Template"},
                    "Version": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]},
                },
                "TargetGroupARNs": [{"Ref": "Targets"}],
                "Tags": [{"Key": "Name", "Value": "node-b", "PropagateAtLaunch": True}],
                "LifecycleHookSpecificationList": [
                    {
                        "LifecycleHookName": "launch",
                        "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING",
                        "HeartbeatTimeout": 900,
                        "DefaultResult": "ABANDON",
                    },
                    {
                        "LifecycleHookName": "terminate",
                        "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
                        "HeartbeatTimeout": 120,
                        "DefaultResult": "CONTINUE",
                    },
                ],
            },
        },
    }


@pytest.fixture
def cluster(aws: EmulatedAws) -> EmulatedAws:
    """An AWS with a group of one node behind a load balancer."""
    aws.deploy("cluster", {**NETWORK, **TARGETS, **node()})
    return aws
