"""What must outlive every instance: the nodes' file system, the table of who owns which node, mirrored artefacts.

Logical ids are set by hand and pinned by a test: CloudFormation replaces (and so, for these, empties) a resource whose
logical id changes, and CDK derives ids from where a construct stands in the tree.
"""

from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.deployment import DeploymentStack, acknowledge, camel, pin
from stacks.environment import Environment

CLIENT_ACTIONS = [f"elasticfilesystem:Client{action}" for action in ("Mount", "Write", "RootAccess")]
"""What a mount needs. Root access too: RabbitMQ and Consul are two users, and boot gives each its directory."""


class StorageStack(DeploymentStack):
    """File system, access points by node name, node table and artefact bucket, retained as the environment says."""

    def __init__(
        self, scope: Construct, *, environment: Environment, vpc: ec2.IVpc, subnets: Mapping[str, ec2.ISubnet]
    ) -> None:
        super().__init__(
            scope, environment=environment, kind="storage", description="RabbitMQ: data that outlives instances"
        )
        self.file_system_security_group = ec2.SecurityGroup(
            self,
            "FileSystemSecurityGroup",
            vpc=vpc,
            description="Mount targets of the file system",
            allow_all_outbound=False,
        )
        self.file_system = self._file_system()
        for zone, subnet in subnets.items():
            efs.CfnMountTarget(
                self,
                f"MountTarget{camel(zone)}",
                file_system_id=self.file_system.ref,
                subnet_id=subnet.subnet_id,
                security_groups=[self.file_system_security_group.security_group_id],
            )
        self.access_points = {name: self._access_point(zone, name) for zone, name in environment.node_names.items()}
        self.table = self._table()
        self.artifact_bucket = self._artifact_bucket()
        # Exported by a name of its own, which the exception for the nodes' role can then name.
        self.artifact_bucket_arn_export = f"{environment.cluster_name}-artifact-bucket-arn"
        self.artifact_bucket_arn = self.export_value(
            self.artifact_bucket.bucket_arn, name=self.artifact_bucket_arn_export
        )
        self.publish("file-system-id", self.file_system.ref, "EFS file system with the nodes' data")
        self.publish(
            "node-table", self.table.table_name, "DynamoDB table: node ownership, boot reports, maintenance lock"
        )
        self.publish("artifact-bucket", self.artifact_bucket.bucket_name, "S3 bucket with mirrored install artefacts")

    def _file_system(self) -> efs.CfnFileSystem:
        wanted = self.environment_model.efs
        key = kms.Key(
            self,
            "FileSystemKey",
            description=f"Data of {self.environment_model.cluster_name}: its EFS file system",
            alias=f"alias/{self.environment_model.cluster_name}/file-system",
            enable_key_rotation=True,
            removal_policy=self.retention,
        )
        pin(key, "FileSystemKey")
        file_system = efs.CfnFileSystem(
            self,
            "FileSystem",
            encrypted=True,
            kms_key_id=key.key_arn,
            performance_mode="generalPurpose",
            throughput_mode=wanted.throughput_mode,
            provisioned_throughput_in_mibps=wanted.provisioned_mibps,
            backup_policy=efs.CfnFileSystem.BackupPolicyProperty(status="ENABLED" if wanted.backups else "DISABLED"),
            file_system_policy=self._policy(),
            file_system_tags=[
                efs.CfnFileSystem.ElasticFileSystemTagProperty(key="Name", value=self.environment_model.cluster_name)
            ],
        )
        file_system.apply_removal_policy(self.retention)
        return file_system

    def _policy(self) -> iam.PolicyDocument:
        """Without TLS, without IAM or past the access points, nobody gets in: an anonymous client is granted nothing.

        The account's own roles are let through to their identity policies. CDK's default policy would not do: it grants
        writing but not mounting.
        """
        return iam.PolicyDocument(
            statements=[
                iam.PolicyStatement(
                    sid="AllowRolesOfThisAccount",
                    principals=[iam.AccountRootPrincipal()],
                    actions=CLIENT_ACTIONS,
                    conditions={"Bool": {"elasticfilesystem:AccessedViaMountTarget": "true"}},
                ),
                iam.PolicyStatement(
                    sid="DenyWithoutTls",
                    effect=iam.Effect.DENY,
                    principals=[iam.AnyPrincipal()],
                    actions=CLIENT_ACTIONS,
                    conditions={"Bool": {"aws:SecureTransport": "false"}},
                ),
                iam.PolicyStatement(
                    sid="DenyWithoutAccessPoint",
                    effect=iam.Effect.DENY,
                    principals=[iam.AnyPrincipal()],
                    actions=CLIENT_ACTIONS,
                    conditions={"Null": {"elasticfilesystem:AccessPointArn": "true"}},
                ),
            ]
        )

    def _access_point(self, zone: str, node_name: str) -> efs.CfnAccessPoint:
        # No enforced POSIX user: one node's directory holds the files of two system users.
        access_point = efs.CfnAccessPoint(
            self,
            f"AccessPoint{camel(zone)}",
            file_system_id=self.file_system.ref,
            root_directory=efs.CfnAccessPoint.RootDirectoryProperty(
                path=f"/nodes/{node_name}",
                creation_info=efs.CfnAccessPoint.CreationInfoProperty(owner_uid="0", owner_gid="0", permissions="0755"),
            ),
            access_point_tags=[efs.CfnAccessPoint.AccessPointTagProperty(key="Name", value=node_name)],
        )
        access_point.apply_removal_policy(self.retention)
        return access_point

    def _table(self) -> dynamodb.Table:
        table = dynamodb.Table(
            self,
            "Table",
            partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=self.environment_model.protection.retain_data,
            removal_policy=self.retention,
        )
        pin(table, "Table")
        return table

    def _artifact_bucket(self) -> s3.Bucket:
        bucket = s3.Bucket(
            self,
            "Artifacts",
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            versioned=True,
            lifecycle_rules=[
                s3.LifecycleRule(
                    noncurrent_version_expiration=cdk.Duration.days(90),
                    abort_incomplete_multipart_upload_after=cdk.Duration.days(7),
                )
            ],
            removal_policy=self.retention,
        )
        pin(bucket, "Artifacts")
        acknowledge(
            bucket,
            "S1",
            "The bucket holds public release files, each verified by signature or SHA-256 after the download; nobody "
            "would act on a log of who read them.",
        )
        return bucket
