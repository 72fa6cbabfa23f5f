"""Ways in: a network load balancer for AMQP, an application load balancer for the management UI and HTTP API, names."""

from collections.abc import Iterable

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from aws_cdk import aws_route53 as route53
from constructs import Construct

from stacks.cluster import AMQP_PORT, AMQPS_PORT, MANAGEMENT_PORT, ClusterStack
from stacks.deployment import DeploymentStack, acknowledge
from stacks.environment import Environment
from stacks.rules import Connection


class AccessStack(DeploymentStack):
    """Load balancers inside the VPC, their listeners and security groups, and the endpoints that applications use."""

    def __init__(
        self,
        scope: Construct,
        *,
        environment: Environment,
        vpc: ec2.IVpc,
        subnets: Iterable[ec2.ISubnet],
        cluster: ClusterStack,
    ) -> None:
        super().__init__(
            scope, environment=environment, kind="access", description="RabbitMQ: load balancers and names"
        )
        self._vpc = vpc
        self._subnets = ec2.SubnetSelection(subnets=list(subnets))
        self._cluster = cluster
        self.amqp_load_balancer = self._amqp()
        self.management_load_balancer = self._management()
        amqp_name, management_name = self._names()
        access = environment.access
        if access.amqp.plain:
            self.publish("amqp-endpoint", f"amqp://{amqp_name}:{AMQP_PORT}", "AMQP endpoint")
        if access.amqp.tls:
            self.publish("amqps-endpoint", f"amqps://{amqp_name}:{AMQPS_PORT}", "AMQP endpoint, with TLS")
        scheme = "https" if access.management.certificate_arn else "http"
        self.publish("management-url", f"{scheme}://{management_name}", "Management UI and HTTP API")

    def _amqp(self) -> elbv2.NetworkLoadBalancer:
        wanted = self.environment_model.access.amqp
        listening = list(self._cluster.amqp_targets)
        group = self._security_group("Amqp", wanted.allowed_cidrs, listening, targets=[*listening, MANAGEMENT_PORT])
        balancer = elbv2.NetworkLoadBalancer(
            self,
            "AmqpLoadBalancer",
            vpc=self._vpc,
            vpc_subnets=self._subnets,
            internet_facing=False,
            security_groups=[group],
            # A client resolves one zone's address and must reach every node through it, most of all when its own zone's
            # node is the one that is gone.
            cross_zone_enabled=True,
            deletion_protection=self.environment_model.protection.termination,
        )
        for port, targets in self._cluster.amqp_targets.items():
            if port == AMQPS_PORT:
                # TLS listeners have a fixed idle timeout of 350 seconds. AMQP heartbeats (60 s) stay below it.
                balancer.add_listener(
                    "Amqps",
                    port=port,
                    protocol=elbv2.Protocol.TLS,
                    certificates=[elbv2.ListenerCertificate.from_arn(str(wanted.certificate_arn))],
                    ssl_policy=elbv2.SslPolicy.RECOMMENDED_TLS,
                    default_target_groups=[targets],
                )
            else:
                balancer.add_listener(
                    "Amqp",
                    port=port,
                    protocol=elbv2.Protocol.TCP,
                    tcp_idle_timeout=cdk.Duration.seconds(wanted.idle_timeout_seconds),
                    default_target_groups=[targets],
                )
        acknowledge(
            balancer,
            "ELB2",
            "A network load balancer logs TLS listeners only, a line for each connection, and those last for days; "
            "RabbitMQ's own log names user, client and reason.",
        )
        return balancer

    def _management(self) -> elbv2.ApplicationLoadBalancer:
        wanted = self.environment_model.access.management
        port = 443 if wanted.certificate_arn else 80
        balancer = elbv2.ApplicationLoadBalancer(
            self,
            "ManagementLoadBalancer",
            vpc=self._vpc,
            vpc_subnets=self._subnets,
            internet_facing=False,
            security_group=self._security_group("Management", wanted.allowed_cidrs, [port], targets=[MANAGEMENT_PORT]),
            drop_invalid_header_fields=True,
            deletion_protection=self.environment_model.protection.termination,
        )
        balancer.add_listener(
            "Management",
            port=port,
            protocol=elbv2.ApplicationProtocol.HTTPS if wanted.certificate_arn else elbv2.ApplicationProtocol.HTTP,
            certificates=[elbv2.ListenerCertificate.from_arn(wanted.certificate_arn)]
            if wanted.certificate_arn
            else None,
            ssl_policy=elbv2.SslPolicy.RECOMMENDED_TLS if wanted.certificate_arn else None,
            default_target_groups=[self._cluster.management_targets],
            open=False,
        )
        acknowledge(
            balancer,
            "ELB2",
            "Private networks only and few users: RabbitMQ's own log names the user of every login and refusal.",
        )
        return balancer

    def _security_group(
        self, name: str, allowed: Iterable[str], listening: Iterable[int], *, targets: Iterable[int]
    ) -> ec2.SecurityGroup:
        """A load balancer's group: from the allowed networks to its listeners, from itself to the nodes' ports."""
        group = ec2.SecurityGroup(
            self,
            f"{name}SecurityGroup",
            vpc=self._vpc,
            description=f"Load balancer: {name}",
            allow_all_outbound=False,
        )
        for cidr in allowed:
            for port in listening:
                group.add_ingress_rule(ec2.Peer.ipv4(cidr), ec2.Port.tcp(port), "Allowed network")
        for port in targets:
            Connection(
                group,
                f"ToNodes{port}",
                source=group,
                destination=self._cluster.security_group,
                port=port,
                purpose=f"{name}: " + ("HTTP, health checks" if port == MANAGEMENT_PORT else "AMQP"),
            )
        return group

    def _names(self) -> tuple[str, str]:
        """The two endpoints' host names: records in the private zone if there is one, else the load balancers' own."""
        wanted = self.environment_model.access.private_zone
        balancers = {"amqp": self.amqp_load_balancer, "management": self.management_load_balancer}
        if not wanted:
            return self.amqp_load_balancer.load_balancer_dns_name, self.management_load_balancer.load_balancer_dns_name
        zone: route53.IHostedZone
        if wanted.zone_id:
            zone = route53.HostedZone.from_hosted_zone_attributes(
                self, "Zone", hosted_zone_id=wanted.zone_id, zone_name=wanted.zone_name
            )
        else:
            zone = route53.PrivateHostedZone(self, "Zone", vpc=self._vpc, zone_name=wanted.zone_name)
        names = []
        for role, balancer in balancers.items():
            name = f"{role}.{self.environment_model.cluster_name}.{wanted.zone_name}"
            route53.CfnRecordSet(
                self,
                f"{role.capitalize()}Record",
                hosted_zone_id=zone.hosted_zone_id,
                name=f"{name}.",
                type="A",
                alias_target=route53.CfnRecordSet.AliasTargetProperty(
                    dns_name=balancer.load_balancer_dns_name,
                    hosted_zone_id=balancer.load_balancer_canonical_hosted_zone_id,
                ),
            )
            names.append(name)
        return names[0], names[1]
