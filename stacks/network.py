"""Where the nodes live: a VPC with one private subnet in each of exactly three availability zones."""

import ipaddress

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.deployment import DeploymentStack, camel
from stacks.environment import Environment, VpcCreate, VpcImport

INTERFACE_ENDPOINTS = (
    "ec2",  # Consul's join by tag; whether a node's previous owner is gone
    "autoscaling",  # lifecycle hooks
    "cloudformation",  # the signal that ends a boot
    "elasticloadbalancing",  # whether the load balancers have found the instance healthy
    "secretsmanager",  # passwords, Erlang cookie, gossip key
    "ssm",  # Session Manager, in place of SSH: these three
    "ssmmessages",
    "ec2messages",
)
"""What boot and operation call. EFS is a mount target in the subnet, IMDS and DNS are link-local: they need none."""


class NetworkStack(DeploymentStack):
    """The VPC, created or imported, and the endpoints that make boot independent of an internet path to AWS.

    `subnets` maps each of the three zones to its private subnet, in the environment's order.
    """

    def __init__(self, scope: Construct, *, environment: Environment) -> None:
        super().__init__(scope, environment=environment, kind="network", description="RabbitMQ: network")
        self.cidr = _cidr(environment)
        if environment.vpc.create:
            self.vpc = self._create(environment, environment.vpc.create)
        else:
            assert environment.vpc.import_ is not None, "the environment model demands one of create and import"
            self.vpc = self._import(environment, environment.vpc.import_)
        if environment.vpc.endpoints:
            self._endpoints()

    def _create(self, environment: Environment, wanted: VpcCreate) -> ec2.IVpc:
        zones = list(environment.availability_zones)
        # Without this context value Vpc asks AWS which zones exist, even when it is told which to use: synthesis would
        # need credentials.
        self.node.set_context(f"availability-zones:account={self.account}:region={self.region}", zones)
        # Sizes are fixed fractions of the VPC, so that NAT gateways can come and go without moving the nodes' subnets:
        # three quarters for the nodes, the fourth quarter for three public subnets.
        prefix = ipaddress.IPv4Network(wanted.cidr).prefixlen
        has_nat = wanted.nat_gateways > 0
        subnets = [
            ec2.SubnetConfiguration(
                name="Node",
                subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS if has_nat else ec2.SubnetType.PRIVATE_ISOLATED,
                cidr_mask=prefix + 2,
            )
        ]
        if has_nat:
            subnets.append(
                ec2.SubnetConfiguration(
                    name="Public",
                    subnet_type=ec2.SubnetType.PUBLIC,
                    cidr_mask=prefix + 4,
                    map_public_ip_on_launch=False,
                )
            )
        vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(wanted.cidr),
            availability_zones=zones,
            nat_gateways=wanted.nat_gateways,
            subnet_configuration=subnets,
            # True would add a custom resource with a function to empty the default security group, which nothing uses.
            restrict_default_security_group=False,
        )
        self._log_rejected_traffic(vpc)
        selected = vpc.select_subnets(subnet_group_name="Node").subnets
        self.subnets = dict(zip(zones, selected, strict=True))
        return vpc

    def _import(self, environment: Environment, existing: VpcImport) -> ec2.IVpc:
        zones = list(environment.availability_zones)
        vpc = ec2.Vpc.from_vpc_attributes(
            self,
            "Vpc",
            vpc_id=existing.id,
            vpc_cidr_block=existing.cidr,
            availability_zones=zones,
            private_subnet_ids=[existing.subnets[zone] for zone in zones],
        )
        for subnet in vpc.private_subnets:
            cdk.Annotations.of(subnet).acknowledge_warning(
                "@aws-cdk/aws-ec2:noSubnetRouteTableId",
                "Routes of an imported VPC are its owner's; nothing here changes them.",
            )
        self.subnets = dict(zip(zones, vpc.private_subnets, strict=True))
        return vpc

    def _log_rejected_traffic(self, vpc: ec2.Vpc) -> None:
        # Rejected packets only: what one looks for when nodes do not find each other. Accepted ones would be a copy of
        # the cluster's whole traffic.
        group = logs.LogGroup(
            self, "RejectedTraffic", retention=logs.RetentionDays.ONE_MONTH, removal_policy=cdk.RemovalPolicy.DESTROY
        )
        role = iam.Role(self, "FlowLogRole", assumed_by=iam.ServicePrincipal("vpc-flow-logs.amazonaws.com"))
        ec2.FlowLog(
            self,
            "FlowLog",
            resource_type=ec2.FlowLogResourceType.from_vpc(vpc),
            traffic_type=ec2.FlowLogTrafficType.REJECT,
            destination=ec2.FlowLogDestination.to_cloud_watch_logs(group, role),
        )

    def _endpoints(self) -> None:
        nodes = ec2.SubnetSelection(subnets=list(self.subnets.values()))
        if isinstance(self.vpc, ec2.Vpc):
            # Gateways live in route tables, which in an imported VPC are its owner's: S3 and DynamoDB are reached there
            # as its own routes say.
            for name, gateway in {
                "S3": ec2.GatewayVpcEndpointAwsService.S3,  # the bundle, mirrored artefacts, Amazon Linux's packages
                "DynamoDb": ec2.GatewayVpcEndpointAwsService.DYNAMODB,  # node ownership
            }.items():
                self.vpc.add_gateway_endpoint(f"{name}Endpoint", service=gateway, subnets=[nodes])
        group = ec2.SecurityGroup(
            self,
            "EndpointSecurityGroup",
            vpc=self.vpc,
            description="Interface endpoints of AWS APIs",
            allow_all_outbound=False,
        )
        group.add_ingress_rule(ec2.Peer.ipv4(self.cidr), ec2.Port.tcp(443), "HTTPS from inside the VPC")
        for service in INTERFACE_ENDPOINTS:
            self.vpc.add_interface_endpoint(
                f"{camel(service)}Endpoint",
                service=ec2.InterfaceVpcEndpointAwsService(service),
                subnets=nodes,
                security_groups=[group],
                open=False,
                private_dns_enabled=True,
            )


def _cidr(environment: Environment) -> str:
    vpc = environment.vpc.create or environment.vpc.import_
    assert vpc is not None, "the environment model demands one of create and import"
    return vpc.cidr
