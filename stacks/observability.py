"""What is watched from outside the nodes: one topic, the alarms that need no agent, one dashboard.

Three things, in this order: what is measured, when it alarms, how it is drawn. Each alarm's description names its
section of docs/runbook.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_elasticloadbalancingv2 as elbv2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

from stacks.access import AccessStack
from stacks.cluster import ClusterStack
from stacks.deployment import DeploymentStack, camel
from stacks.environment import Environment
from stacks.storage import StorageStack

RUNBOOK = "docs/runbook.md"
GIB = 1024**3

THROUGHPUT_PERCENT = 80
"""Of the permitted throughput. Above it, writes queue up, publishers wait and the management UI hangs."""

IO_LIMIT_PERCENT = 80
"""Of what a general purpose file system does in operations, whatever its throughput."""

BURST_CREDIT_FLOOR = 256 * GIB
"""Bytes. At the 100 MiB/s burst rate the last 256 GiB last about 45 minutes: time to change the throughput mode. A new
file system starts with 2.1 TiB."""

REPLACEMENT_MINUTES = 15
"""A planned replacement keeps a node away for less than this."""


@dataclass(frozen=True)
class Watch:
    """One alarm: a metric, its limit, and what silence of the metric means."""

    name: str
    metric: cloudwatch.IMetric
    threshold: float
    comparison: cloudwatch.ComparisonOperator
    minutes: int
    missing_data: cloudwatch.TreatMissingData
    summary: str
    anchor: str


class ObservabilityStack(DeploymentStack):
    """Topic, alarms and dashboard of one cluster."""

    def __init__(
        self,
        scope: Construct,
        *,
        environment: Environment,
        storage: StorageStack,
        cluster: ClusterStack,
        access: AccessStack,
    ) -> None:
        super().__init__(
            scope,
            environment=environment,
            kind="observability",
            description="RabbitMQ: alarms, dashboard, notifications",
        )
        self.topic = self._topic()
        self._measure(storage.file_system.ref, access.amqp_load_balancer, next(iter(cluster.amqp_targets.values())))
        for watch in self._watches():
            self._alarm(watch)
        self._dashboard()
        self.publish("notification-topic-arn", self.topic.topic_arn, "SNS topic of the cluster's alarms")

    def _topic(self) -> sns.Topic:
        key = kms.Key(
            self,
            "TopicKey",
            description=f"Alarm notifications of {self.environment_model.cluster_name}",
            enable_key_rotation=True,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )
        # CloudWatch cannot publish to a topic under the AWS-managed key, and it would say so to nobody.
        key.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AllowAlarms",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["kms:Decrypt", "kms:GenerateDataKey"],
                resources=["*"],
                conditions={"StringEquals": {"aws:SourceAccount": self.account}},
            )
        )
        topic = sns.Topic(
            self,
            "Topic",
            display_name=f"RabbitMQ {self.environment_model.cluster_name}",
            master_key=key,
            enforce_ssl=True,
        )
        for recipient in self.environment_model.alarms.recipients:
            sns.Subscription(self, recipient, topic=topic, protocol=sns.SubscriptionProtocol.EMAIL, endpoint=recipient)
        return topic

    def _measure(
        self, file_system_id: str, load_balancer: elbv2.NetworkLoadBalancer, target_group: elbv2.NetworkTargetGroup
    ) -> None:
        minute = cdk.Duration.minutes(1)

        def efs(name: str, statistic: str) -> cloudwatch.Metric:
            return cloudwatch.Metric(
                namespace="AWS/EFS",
                metric_name=name,
                dimensions_map={"FileSystemId": file_system_id},
                statistic=statistic,
                period=minute,
            )

        self._io_limit = efs("PercentIOLimit", "Maximum")
        self._burst_credit = efs("BurstCreditBalance", "Minimum")
        self._permitted = efs("PermittedThroughput", "Minimum")
        self._metered = cloudwatch.MathExpression(
            expression="metered / PERIOD(metered)",
            label="Metered throughput (reads count a third)",
            using_metrics={"metered": efs("MeteredIOBytes", "Sum")},
            period=minute,
        )
        self._throughput_use = cloudwatch.MathExpression(
            expression="100 * (metered / PERIOD(metered)) / permitted",
            label="Throughput used, % of permitted",
            using_metrics={"metered": efs("MeteredIOBytes", "Sum"), "permitted": self._permitted},
            period=minute,
        )
        self._healthy = cloudwatch.Metric(
            namespace="AWS/NetworkELB",
            metric_name="HealthyHostCount",
            dimensions_map={
                "LoadBalancer": load_balancer.load_balancer_full_name,
                "TargetGroup": target_group.target_group_full_name,
            },
            statistic="Minimum",
            period=minute,
        )
        self._in_service = {
            node.availability_zone: cloudwatch.Metric(
                namespace="AWS/AutoScaling",
                metric_name="GroupInServiceInstances",
                dimensions_map={"AutoScalingGroupName": node.name},
                statistic="Minimum",
                period=minute,
            )
            for node in self.environment_model.nodes
        }

    def _watches(self) -> Sequence[Watch]:
        above = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
        below = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD
        breaching = cloudwatch.TreatMissingData.BREACHING
        not_breaching = cloudwatch.TreatMissingData.NOT_BREACHING
        watches = [
            Watch(
                "efs-throughput", self._throughput_use, THROUGHPUT_PERCENT, above, 10, not_breaching,
                f"EFS uses more than {THROUGHPUT_PERCENT} % of its permitted throughput: publishing is about to stall.",
                "efs-throughput",
            ),
            Watch(
                "efs-io-limit", self._io_limit, IO_LIMIT_PERCENT, above, 15, not_breaching,
                f"EFS is at more than {IO_LIMIT_PERCENT} % of its I/O limit: more throughput will not help.",
                "efs-io-limit",
            ),
            Watch(
                "healthy-nodes-below-3", self._healthy, 3, below, REPLACEMENT_MINUTES, breaching,
                "A node takes no connections for longer than a planned replacement needs.",
                "healthy-nodes-below-3",
            ),
            Watch(
                "healthy-nodes-below-2", self._healthy, 2, below, 2, breaching,
                "At most one node takes connections: quorum queues are down, or one loss away from it.",
                "healthy-nodes-below-2",
            ),
            *(
                Watch(
                    f"no-instance-{zone}", metric, 1, below, REPLACEMENT_MINUTES, breaching,
                    f"The Auto Scaling group of {zone} had no instance in service for {REPLACEMENT_MINUTES} minutes.",
                    "no-instance",
                )
                for zone, metric in self._in_service.items()
            ),
        ]  # fmt: skip
        if self.environment_model.efs.throughput_mode == "bursting":
            watches.append(
                Watch(
                    "efs-burst-credits", self._burst_credit, BURST_CREDIT_FLOOR, below, 5, not_breaching,
                    "EFS burst credits are running out: throughput will fall to the baseline of the stored volume.",
                    "efs-burst-credits",
                )
            )  # fmt: skip
        return watches

    def _alarm(self, watch: Watch) -> None:
        alarm = cloudwatch.Alarm(
            self,
            f"{camel(watch.name)}Alarm",
            alarm_name=f"{self.environment_model.cluster_name}-{watch.name}",
            alarm_description=f"{watch.summary} See {RUNBOOK}#{watch.anchor}",
            metric=watch.metric,
            threshold=watch.threshold,
            comparison_operator=watch.comparison,
            evaluation_periods=watch.minutes,
            datapoints_to_alarm=watch.minutes,
            treat_missing_data=watch.missing_data,
        )
        notify = actions.SnsAction(self.topic)
        alarm.add_alarm_action(notify)
        alarm.add_ok_action(notify)

    def _dashboard(self) -> None:
        def graph(title: str, metrics: Sequence[cloudwatch.IMetric], minimum: float = 0) -> cloudwatch.GraphWidget:
            return cloudwatch.GraphWidget(
                title=title, left=list(metrics), left_y_axis=cloudwatch.YAxisProps(min=minimum), width=12
            )

        storage = [graph("EFS: metered and permitted, bytes/s", [self._metered, self._permitted])]
        storage.append(graph("EFS: I/O limit, %", [self._io_limit]))
        if self.environment_model.efs.throughput_mode == "bursting":
            storage.append(graph("EFS: burst credits, bytes", [self._burst_credit]))
        cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=self.environment_model.cluster_name,
            widgets=[
                [
                    graph("Nodes that take connections", [self._healthy]),
                    graph(
                        "Instances in service", [metric.with_(label=zone) for zone, metric in self._in_service.items()]
                    ),
                ],
                storage,
            ],
        )
