"""The cluster itself: three nodes, what they may do, whom they may talk to, and the bundle they run."""

from collections.abc import Mapping
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as s3_assets
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from stacks import bundle
from stacks.deployment import DeploymentStack, acknowledge, camel, pin
from stacks.environment import Environment
from stacks.node import Machine, RabbitNode
from stacks.permissions import node_role
from stacks.rules import Connection
from stacks.storage import StorageStack

AMI_PARAMETER = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{architecture}"
"""Amazon Linux 2023's public parameter. Read at deployment, not at launch: a replacement at night starts from the image
that its predecessor ran."""

AMQP_PORT = 5672
AMQPS_PORT = 5671
MANAGEMENT_PORT = 15672
EFS_PORT = 2049

BETWEEN_NODES = (
    ("tcp", 4369, 4369, "Erlang port mapper"),
    ("tcp", 25672, 25672, "Erlang distribution"),
    ("tcp", 8300, 8302, "Consul RPC and gossip"),
    ("udp", 8301, 8302, "Consul gossip"),
)
"""What nodes say to each other. Consul's HTTP and DNS interfaces and Prometheus stay on the host."""

USERS = ("administrator", "monitoring", "federation")
SHARED_KEYS = ("erlang-cookie", "consul-gossip-key")

DEREGISTRATION_SECONDS = 30
"""How long Auto Scaling waits after it took a node out of the load balancers: its terminating hook starts only then."""


class ClusterStack(DeploymentStack):
    """Roles, security groups, secrets, target groups and the three nodes."""

    def __init__(
        self,
        scope: Construct,
        *,
        environment: Environment,
        vpc: ec2.IVpc,
        subnets: Mapping[str, ec2.ISubnet],
        storage: StorageStack,
    ) -> None:
        super().__init__(scope, environment=environment, kind="cluster", description="RabbitMQ: the three nodes")
        self.security_group = self._security_group(vpc, storage.file_system_security_group)
        self.amqp_targets = self._amqp_targets(vpc)
        self.management_targets = self._management_targets(vpc)
        target_groups = [*self.amqp_targets.values(), self.management_targets]
        target_group_arns = [group.target_group_arn for group in target_groups]
        self._secrets = self._generate_secrets()
        packed = bundle.build(environment)
        self._asset = s3_assets.Asset(self, "Bundle", path=str(packed.path))
        role = node_role(
            self,
            environment=environment,
            storage=storage,
            secrets=list(self._secrets.values()),
            bundle_bucket=self._asset.bucket,
            target_group_arns=target_group_arns,
        )
        profile = iam.InstanceProfile(self, "InstanceProfile", role=role)
        machine = Machine(
            instance_type=environment.instance.type,
            image_id=environment.instance.ami or self._current_image(),
            root_volume_gib=environment.instance.root_volume_gib,
            instance_profile_arn=profile.instance_profile_arn,
            security_group_id=self.security_group.security_group_id,
            user_data=bundle.user_data(),
        )
        self.nodes: list[RabbitNode] = []
        for identity in environment.nodes:
            node = RabbitNode(
                self,
                identity=identity,
                cluster_name=environment.cluster_name,
                machine=machine,
                subnet=subnets[identity.availability_zone],
                instance=self._instance_document(storage, packed.sha256, identity.name),
                target_group_arns=target_group_arns,
                # CloudFormation replaces one node after the other. All three together would be serialised too, by the
                # maintenance lock, but Auto Scaling takes an instance out of its target groups *before* the hook in
                # which it waits for that lock: each would have to go back to them for the time of its wait.
                predecessor=self.nodes[-1] if self.nodes else None,
                # So the groups are created in a row, too, which takes seconds: CloudFormation waits for instances only
                # where a creation policy says so. Only the last may have one, because a node signals when the cluster
                # is complete, and the first alone never is.
                completes_cluster=identity == environment.nodes[-1],
            )
            # The rules are resources of their own; a node that boots before them knocks at closed doors.
            node.group.node.add_dependency(self.security_group, self._file_system_access)
            acknowledge(
                node,
                "AS3",
                "A group of one launches only to replace its instance; the alarms on healthy nodes and group size tell "
                "of that, without a message a launch.",
            )
            self.nodes.append(node)
        for user in USERS:
            self.publish(
                f"{user}-secret-arn", self._secrets[user].secret_arn, f"Secret with the {user} user's password"
            )

    def _security_group(self, vpc: ec2.IVpc, file_system: ec2.ISecurityGroup) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            self, "NodeSecurityGroup", vpc=vpc, description="RabbitMQ nodes", allow_all_outbound=False
        )
        for protocol, first, last, purpose in BETWEEN_NODES:
            ports = ec2.Port.udp_range(first, last) if protocol == "udp" else ec2.Port.tcp_range(first, last)
            group.connections.allow_internally(ports, f"{purpose} between nodes")
        group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(443), "AWS APIs and install artefacts")
        self._file_system_access = Connection(
            self, "FileSystemAccess", source=group, destination=file_system, port=EFS_PORT, purpose="NFS over TLS"
        )
        return group

    def _amqp_targets(self, vpc: ec2.IVpc) -> dict[int, elbv2.NetworkTargetGroup]:
        """Target groups by port. TLS is encrypted again on the way to the node, whose certificate nobody checks."""
        wanted = self.environment_model.access.amqp
        offered = [(AMQP_PORT, elbv2.Protocol.TCP, wanted.plain), (AMQPS_PORT, elbv2.Protocol.TLS, wanted.tls)]
        groups = {}
        for port, protocol, is_on in offered:
            if not is_on:
                continue
            group = elbv2.NetworkTargetGroup(
                self,
                f"Amqp{port}Targets",
                vpc=vpc,
                port=port,
                protocol=protocol,
                target_type=elbv2.TargetType.INSTANCE,
                health_check=self._health_check(),
                preserve_client_ip=True,  # RabbitMQ's list of connections shows the clients, not the load balancer
                deregistration_delay=cdk.Duration.seconds(DEREGISTRATION_SECONDS),
                # A node on its way out serves its clients until it drains, and then closes them as AMQP wants it. The
                # load balancer must not cut them before, half a minute into the wait for the maintenance lock.
                connection_termination=False,
            )
            # A dead node is another matter: its clients learn it from a reset now, not from two missed heartbeats.
            group.set_attribute("target_health_state.unhealthy.connection_termination.enabled", "true")
            groups[port] = group
        return groups

    def _management_targets(self, vpc: ec2.IVpc) -> elbv2.ApplicationTargetGroup:
        return elbv2.ApplicationTargetGroup(
            self,
            "ManagementTargets",
            vpc=vpc,
            port=MANAGEMENT_PORT,
            protocol=elbv2.ApplicationProtocol.HTTP,
            target_type=elbv2.TargetType.INSTANCE,
            health_check=self._health_check(),
            deregistration_delay=cdk.Duration.seconds(DEREGISTRATION_SECONDS),
        )

    def _health_check(self) -> elbv2.HealthCheck:
        """Shallow, without a password, and refused as soon as a node drains. A dead node is found in ten seconds."""
        return elbv2.HealthCheck(
            protocol=elbv2.Protocol.HTTP,
            port=str(MANAGEMENT_PORT),
            path=self.environment_model.health_check_path,
            healthy_http_codes="200",
            interval=cdk.Duration.seconds(5),
            timeout=cdk.Duration.seconds(4),
            healthy_threshold_count=2,
            unhealthy_threshold_count=2,
        )

    def _generate_secrets(self) -> dict[str, secretsmanager.Secret]:
        """Generated by Secrets Manager: 32 letters and digits, which need no quoting wherever they end up."""
        templates = {user: cdk.Stack.of(self).to_json_string({"username": user}) for user in USERS}
        secrets = {}
        for name in (*USERS, *SHARED_KEYS):
            template = templates.get(name)
            secret = secretsmanager.Secret(
                self,
                camel(name),
                secret_name=f"{self.environment_model.cluster_name}/{name}",
                description=f"RabbitMQ cluster {self.environment_model.cluster_name}: {name.replace('-', ' ')}",
                generate_secret_string=secretsmanager.SecretStringGenerator(
                    password_length=32,
                    exclude_punctuation=True,
                    secret_string_template=template,
                    generate_string_key="password" if template else None,
                ),
                removal_policy=cdk.RemovalPolicy.DESTROY,
            )
            pin(secret, f"{camel(name)}Secret")
            acknowledge(
                secret,
                "SMG4",
                "A password is rotated together with the running cluster, cookie and gossip key on all nodes at once: "
                "an operator's command does that. A rotation function would change the secret alone.",
            )
            secrets[name] = secret
        return secrets

    def _current_image(self) -> str:
        name = AMI_PARAMETER.format(architecture=self.environment_model.architecture)
        return ec2.MachineImage.from_ssm_parameter(name).get_image(self).image_id

    def _instance_document(self, storage: StorageStack, sha256: str, node_name: str) -> dict[str, Any]:
        """What an instance must know of the cluster's resources. Names and ARNs only, never a secret's value."""
        return {
            "cluster": self.environment_model.cluster_name,
            "region": self.region,
            "stack_name": self.stack_name,
            "file_system_id": storage.file_system.ref,
            "access_point_id": storage.access_points[node_name].ref,
            "table": storage.table.table_name,
            "artifact_bucket": storage.artifact_bucket.bucket_name,
            "secrets": {name.replace("-", "_"): secret.secret_arn for name, secret in self._secrets.items()},
            "bundle": {"bucket": self._asset.s3_bucket_name, "key": self._asset.s3_object_key, "sha256": sha256},
        }
