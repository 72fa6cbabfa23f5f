"""What a node may do in AWS: one role for all three, every statement on named resources where AWS can name them."""

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import region_info
from constructs import Construct

from stacks.deployment import acknowledge
from stacks.environment import Environment
from stacks.storage import CLIENT_ACTIONS, StorageStack


def node_role(
    scope: Construct,
    *,
    environment: Environment,
    storage: StorageStack,
    secrets: Sequence[secretsmanager.ISecret],
    bundle_bucket: s3.IBucket,
    target_group_arns: Sequence[str],
) -> iam.Role:
    """The nodes' role. Its policies are part of it, so no instance can start before they are in force."""
    stack = cdk.Stack.of(scope)
    # A literal, whatever the app's context says: the exceptions below must name these ARNs letter by letter.
    partition = region_info.RegionInfo.get(environment.region).partition
    groups = [
        f"arn:{partition}:autoscaling:{environment.region}:{environment.account}"
        f":autoScalingGroup:*:autoScalingGroupName/{name}"
        for name in environment.node_names.values()
    ]
    bundles = f"arn:{partition}:s3:::{bundle_bucket.bucket_name}/*.gz"
    file_system = stack.format_arn(
        service="elasticfilesystem", resource="file-system", resource_name=storage.file_system.ref
    )
    access_points = [
        stack.format_arn(service="elasticfilesystem", resource="access-point", resource_name=access_point.ref)
        for access_point in storage.access_points.values()
    ]
    statements = {
        "Discovery": [
            iam.PolicyStatement(
                actions=["ec2:DescribeInstances", "elasticloadbalancing:DescribeTargetHealth"], resources=["*"]
            )
        ],
        "Lifecycle": [
            iam.PolicyStatement(
                actions=[
                    "autoscaling:CompleteLifecycleAction",
                    "autoscaling:RecordLifecycleActionHeartbeat",
                    "autoscaling:SetInstanceHealth",
                ],
                resources=groups,
            ),
            iam.PolicyStatement(
                actions=["elasticloadbalancing:RegisterTargets", "elasticloadbalancing:DeregisterTargets"],
                resources=list(target_group_arns),
            ),
            iam.PolicyStatement(actions=["cloudformation:SignalResource"], resources=[stack.stack_id]),
        ],
        "NodeTable": [
            iam.PolicyStatement(
                actions=["dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem"],
                resources=[storage.table.table_arn],
            )
        ],
        "Secrets": [
            iam.PolicyStatement(
                actions=["secretsmanager:GetSecretValue"], resources=[secret.secret_arn for secret in secrets]
            )
        ],
        "FileSystem": [
            iam.PolicyStatement(
                actions=CLIENT_ACTIONS,
                resources=[file_system],
                conditions={"StringEquals": {"elasticfilesystem:AccessPointArn": access_points}},
            )
        ],
        "Artifacts": [
            # Every bundle, not today's only: while an update rolls, a node that has not been reached yet may die, and
            # its replacement still asks for the previous one.
            iam.PolicyStatement(actions=["s3:GetObject"], resources=[bundles]),
            iam.PolicyStatement(actions=["s3:GetObject"], resources=[f"{storage.artifact_bucket_arn}/artifacts/*"]),
            # Without this a missing object is an error 403, and "not mirrored" looks like "not allowed".
            iam.PolicyStatement(actions=["s3:ListBucket"], resources=[storage.artifact_bucket_arn]),
        ],
        # What Session Manager needs. AmazonSSMManagedInstanceCore may also read every parameter of the account.
        "SessionManager": [
            iam.PolicyStatement(
                actions=[
                    "ssm:UpdateInstanceInformation",
                    "ssmmessages:CreateControlChannel",
                    "ssmmessages:CreateDataChannel",
                    "ssmmessages:OpenControlChannel",
                    "ssmmessages:OpenDataChannel",
                    "ec2messages:AcknowledgeMessage",
                    "ec2messages:DeleteMessage",
                    "ec2messages:FailMessage",
                    "ec2messages:GetEndpoint",
                    "ec2messages:GetMessages",
                    "ec2messages:SendReply",
                ],
                resources=["*"],
            )
        ],
    }
    role = iam.Role(
        scope,
        "NodeRole",
        assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
        description=f"Nodes of {environment.cluster_name}",
        inline_policies={name: iam.PolicyDocument(statements=list(parts)) for name, parts in statements.items()},
    )
    acknowledge(
        role,
        "IAM5[Resource::*]",
        "DescribeInstances, DescribeTargetHealth and the actions of Session Manager know no resources.",
    )
    for group in groups:
        acknowledge(role, f"IAM5[Resource::{group}]", "The ARN holds an id that does not exist yet; the name is exact.")
    acknowledge(role, f"IAM5[Resource::{bundles}]", "Any bundle: see the statement.")
    acknowledge(
        role,
        f"IAM5[Resource::{storage.artifact_bucket_arn_export}/artifacts/*]",
        "All mirrored artefacts: version profiles name them; while an update rolls, earlier ones are asked for too.",
    )
    return role
