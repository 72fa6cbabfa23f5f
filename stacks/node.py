"""RabbitNode: one zone's node. A launch template, and an Auto Scaling group that keeps exactly one instance of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.deployment import camel
from stacks.environment import NodeIdentity

INSTANCE_JSON = "@@INSTANCE_JSON@@"
"""The one placeholder of userdata/user-data.sh."""

LAUNCH_HOOK = "launch"
TERMINATE_HOOK = "terminate"

LAUNCH_HEARTBEAT_SECONDS = 900
"""A boot that dies without a word is abandoned, and its instance replaced, after this. One that waits records
heartbeats, for up to a hundred times as long (an Auto Scaling limit)."""

TERMINATE_HEARTBEAT_SECONDS = 120
"""Short on purpose: a successor may not touch the node's data before EC2 has ended its predecessor. Where the instance
is dead and nobody answers the hook, this is how long the node stays away. An agent that drains records heartbeats."""

CREATION_TIMEOUT = "PT30M"
"""How long the first boot of a whole cluster may take: a few minutes, and room for a slow mirror."""

ROLL_TIMEOUT = "PT1H"
"""How long one node's replacement may take, its wait for the maintenance lock included: CloudFormation's limit."""

SUSPENDED_WHILE_ROLLING = ["HealthCheck", "ReplaceUnhealthy", "AZRebalance", "AlarmNotification", "ScheduledActions"]
"""What would interfere with a rolling update, as AWS recommends."""


@dataclass(frozen=True)
class Machine:
    """What the instances of all three nodes have in common. Strings may be CloudFormation tokens."""

    instance_type: str
    image_id: str
    root_volume_gib: int
    instance_profile_arn: str
    security_group_id: str
    user_data: str
    """The script of userdata/user-data.sh, its placeholder still in place."""


class RabbitNode(Construct):
    """One node. `group` is its Auto Scaling group, which is named as the node is.

    `instance` is what the instance must know besides its identity: it becomes /etc/rabbitmq-node/instance.json.
    `predecessor` is the node that CloudFormation updates before this one; `completes_cluster` says that none follows.
    """

    def __init__(
        self,
        scope: Construct,
        *,
        identity: NodeIdentity,
        cluster_name: str,
        machine: Machine,
        subnet: ec2.ISubnet,
        instance: Mapping[str, Any],
        target_group_arns: Sequence[str],
        predecessor: "RabbitNode | None",
        completes_cluster: bool,
    ) -> None:
        super().__init__(scope, f"Node{camel(identity.availability_zone)}")
        self.identity = identity
        self._tags = {"Name": identity.name, "rabbitmq-cluster": cluster_name, "rabbitmq-node": identity.name}
        # Known before the group exists: the launch template's user-data names the group, which refers to the template.
        self._group_logical_id = f"{self.node.id}Group"
        template = self._launch_template(machine, self._user_data(machine.user_data, instance, target_group_arns))
        self.group = self._group(template, subnet, target_group_arns, completes_cluster)
        if predecessor:
            self.group.add_resource_dependency(predecessor.group)

    def _user_data(self, script: str, instance: Mapping[str, Any], target_groups: Sequence[str]) -> str:
        if script.count(INSTANCE_JSON) != 1:
            raise ValueError(f"userdata/user-data.sh must hold {INSTANCE_JSON} exactly once")
        document = {
            **instance,
            "target_groups": list(target_groups),
            "node": self.identity.name,
            "availability_zone": self.identity.availability_zone,
            "asg_logical_id": self._group_logical_id,
            "asg_name": self.identity.name,
            "launch_hook": LAUNCH_HOOK,
            "terminate_hook": TERMINATE_HOOK,
        }
        # Plain text: CloudFormation resolves the tokens inside, which it could not do in a compressed document.
        return script.replace(INSTANCE_JSON, cdk.Stack.of(self).to_json_string(document, 1))

    def _launch_template(self, machine: Machine, user_data: str) -> ec2.CfnLaunchTemplate:
        template = ec2.CfnLaunchTemplate
        return ec2.CfnLaunchTemplate(
            self,
            "Template",
            launch_template_data=template.LaunchTemplateDataProperty(
                image_id=machine.image_id,
                instance_type=machine.instance_type,
                iam_instance_profile=template.IamInstanceProfileProperty(arn=machine.instance_profile_arn),
                security_group_ids=[machine.security_group_id],
                metadata_options=template.MetadataOptionsProperty(
                    http_endpoint="enabled",
                    http_tokens="required",
                    http_put_response_hop_limit=1,
                    instance_metadata_tags="enabled",
                ),
                block_device_mappings=[
                    template.BlockDeviceMappingProperty(
                        device_name="/dev/xvda",  # the root device of Amazon Linux 2023's images
                        ebs=template.EbsProperty(
                            volume_type="gp3",
                            volume_size=machine.root_volume_gib,
                            encrypted=True,
                            delete_on_termination=True,
                        ),
                    )
                ],
                monitoring=template.MonitoringProperty(enabled=True),
                # Only what never changes: tags here are part of the template, and changing the template rolls the
                # nodes. The instance gets its tags from the group.
                tag_specifications=[
                    template.TagSpecificationProperty(resource_type="volume", tags=_cfn_tags(self._tags)),
                ],
                user_data=cdk.Fn.base64(user_data),
            ),
        )

    def _group(
        self,
        template: ec2.CfnLaunchTemplate,
        subnet: ec2.ISubnet,
        target_group_arns: Sequence[str],
        completes_cluster: bool,
    ) -> autoscaling.CfnAutoScalingGroup:
        cfn = autoscaling.CfnAutoScalingGroup
        group = autoscaling.CfnAutoScalingGroup(
            self,
            "Group",
            auto_scaling_group_name=self.identity.name,
            min_size="1",
            max_size="1",
            vpc_zone_identifier=[subnet.subnet_id],
            launch_template=cfn.LaunchTemplateSpecificationProperty(
                launch_template_id=template.ref, version=template.attr_latest_version_number
            ),
            target_group_arns=list(target_group_arns),
            # Not ELB: a node that waits for a quorum answers no health check and must not be killed for it.
            health_check_type="EC2",
            health_check_grace_period=300,
            # One of one, never two in service: also where someone starts an instance refresh by hand.
            instance_maintenance_policy=cfn.InstanceMaintenancePolicyProperty(
                min_healthy_percentage=0, max_healthy_percentage=100
            ),
            # Part of the group: as resources of their own the hooks would come after the first instance's launch.
            lifecycle_hook_specification_list=[
                cfn.LifecycleHookSpecificationProperty(
                    lifecycle_hook_name=LAUNCH_HOOK,
                    lifecycle_transition="autoscaling:EC2_INSTANCE_LAUNCHING",
                    heartbeat_timeout=LAUNCH_HEARTBEAT_SECONDS,
                    default_result="ABANDON",  # an instance that never became ready is ended, and another one tried
                ),
                cfn.LifecycleHookSpecificationProperty(
                    lifecycle_hook_name=TERMINATE_HOOK,
                    lifecycle_transition="autoscaling:EC2_INSTANCE_TERMINATING",
                    heartbeat_timeout=TERMINATE_HEARTBEAT_SECONDS,
                    # The instance ends either way; CONTINUE lets hooks that others have added still run.
                    default_result="CONTINUE",
                ),
            ],
            metrics_collection=[cfn.MetricsCollectionProperty(granularity="1Minute")],
            tags=[
                cfn.TagPropertyProperty(key=key, value=value, propagate_at_launch=True)
                for key, value in self._tags.items()
            ],
        )
        group.override_logical_id(self._group_logical_id)
        # Without an update policy a changed launch template replaces nothing.
        group.cfn_options.update_policy = cdk.CfnUpdatePolicy(
            auto_scaling_rolling_update=cdk.CfnAutoScalingRollingUpdate(
                min_instances_in_service=0,
                max_batch_size=1,
                wait_on_resource_signals=True,
                pause_time=ROLL_TIMEOUT,
                suspend_processes=SUSPENDED_WHILE_ROLLING,
            )
        )
        if completes_cluster:
            group.cfn_options.creation_policy = cdk.CfnCreationPolicy(
                resource_signal=cdk.CfnResourceSignal(count=1, timeout=CREATION_TIMEOUT)
            )
        return group


def _cfn_tags(tags: Mapping[str, str]) -> list[cdk.CfnTag]:
    return [cdk.CfnTag(key=key, value=value) for key, value in tags.items()]
