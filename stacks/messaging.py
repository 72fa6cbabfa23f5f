"""The tables of an application whose messages take effect once (docs/messaging.md), and who may do what with them.

`MessagingTables` needs nothing else of this project: an application team puts it into its own stack.

    tables = MessagingTables(self, "Messaging", name="orders", topic=on_call)
    tables.grant_consume(task_role)
    tables.grant_relay(task_role)
"""

from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

from stacks.deployment import DeploymentStack, pin
from stacks.environment import Environment

RUNBOOK = "docs/runbook.md"
MINIMUM_KEEP_DAYS = 8
"""The longest delay in use (7 days) and a day to replay dead letters. A copy that comes later takes effect again."""

EXPIRES_AT = "expires_at"
METRICS = "RabbitMQ/Messaging"
OUTBOX_DIMENSION = "Outbox"

OLDEST_SECONDS = 300
"""An event waits a second at most while a relay works and the broker takes it."""


@dataclass(frozen=True)
class _Watch:
    """One alarm: its metric, its limit, how long, and what silence means."""

    name: str
    metric: str
    statistic: str
    threshold: float
    minutes: int
    missing_data: cloudwatch.TreatMissingData
    summary: str


_WATCHES = (
    # Silence leaves it as it is: an event does not stop being parked because its relay stops.
    _Watch(
        "parked-events", "ParkedEvents", "Maximum", 0, 1, cloudwatch.TreatMissingData.IGNORE,
        "The broker routes an event nowhere; it and its key's later events wait for an operator.",
    ),
    # Silence is the alarm: relays report every minute.
    _Watch(
        "oldest-event", "OldestPendingSeconds", "Maximum", OLDEST_SECONDS, 5, cloudwatch.TreatMissingData.BREACHING,
        f"Events wait in the outbox for more than {OLDEST_SECONDS} s, or no relay works.",
    ),
    _Watch(
        "dead-letters", "DeadLetteredMessages", "Sum", 0, 1, cloudwatch.TreatMissingData.NOT_BREACHING,
        "A consumer gave up a message.",
    ),
)  # fmt: skip


class MessagingTables(Construct):
    """Inbox, outbox and versioned records, with their alarms.

    `name`: of the application, first part of the alarms' names. `keep`: how long the inbox must remember, at least 8
    days: the longest delay plus the time within which dead letters are replayed. The application gives the same to
    `Inbox`. `topic`: who hears of alarms. `key`: a key of one's own instead of the one that AWS manages.
    `stream`: of the outbox, for whoever wants relays woken by it.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        name: str,
        keep: cdk.Duration | None = None,
        topic: sns.ITopic | None = None,
        key: kms.IKey | None = None,
        stream: dynamodb.StreamViewType | None = None,
        removal_policy: cdk.RemovalPolicy = cdk.RemovalPolicy.RETAIN,
    ) -> None:
        super().__init__(scope, id)
        self.keep = keep or cdk.Duration.days(14)
        if self.keep.to_seconds() < MINIMUM_KEEP_DAYS * 86_400:
            raise ValueError(
                f"keep: {self.keep.to_human_string()} is shorter than {MINIMUM_KEEP_DAYS} days: a copy of a message "
                "that arrives later would take effect again. Name the longest delay in use plus the time within which "
                "dead letters are replayed."
            )
        self._key = key
        self._removal_policy = removal_policy
        self.inbox = self._table("Inbox", "id", expires=True)
        # Events never expire. What does: sequence numbers of keys long idle, and the presence of relays long gone.
        self.outbox = self._table("Outbox", "pk", "sk", expires=True, stream=stream)
        self.records = self._table("Records", "id", expires=False)
        for watch in _WATCHES:
            self._alarm(name, watch, topic)

    def grant_produce(self, grantee: iam.IGrantable) -> None:
        """Write events with one's own data, outside of a consumer."""
        self._grant(grantee, self.outbox, "GetItem", "PutItem")

    def grant_consume(self, grantee: iam.IGrantable) -> None:
        """Process messages with the inbox, and write the events that follow from them."""
        self._grant(grantee, self.inbox, "GetItem", "PutItem")
        self.grant_produce(grantee)
        self._grant_metrics(grantee)

    def grant_relay(self, grantee: iam.IGrantable) -> None:
        """Publish what waits in the outbox, share the work with other relays, park what cannot be routed."""
        self.grant_repair(grantee)
        self._grant_metrics(grantee)

    def grant_keep_records(self, grantee: iam.IGrantable) -> None:
        """Process messages with versioned records."""
        self._grant(grantee, self.records, "GetItem", "PutItem")
        self._grant_metrics(grantee)

    def grant_repair(self, grantee: iam.IGrantable) -> None:
        """List parked events and put them back: `python -m messaging`."""
        moves = ("GetItem", "Query", "PutItem", "DeleteItem", "BatchWriteItem", "ConditionCheckItem")
        self._grant(grantee, self.outbox, *moves)

    def _grant(self, grantee: iam.IGrantable, table: dynamodb.Table, *calls: str) -> None:
        table.grant(grantee, *(f"dynamodb:{call}" for call in calls))
        if self._key:
            self._key.grant_encrypt_decrypt(grantee)

    def _grant_metrics(self, grantee: iam.IGrantable) -> None:
        iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["cloudwatch:PutMetricData"],
            resource_arns=["*"],  # it knows no resources; the namespace is what limits it
            conditions={"StringEquals": {"cloudwatch:namespace": METRICS}},
        )

    def _table(
        self,
        id: str,
        partition_key: str,
        sort_key: str | None = None,
        *,
        expires: bool,
        stream: dynamodb.StreamViewType | None = None,
    ) -> dynamodb.Table:
        def attribute(name: str) -> dynamodb.Attribute:
            return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)

        managed = dynamodb.TableEncryption.CUSTOMER_MANAGED if self._key else dynamodb.TableEncryption.AWS_MANAGED
        return dynamodb.Table(
            self,
            id,
            partition_key=attribute(partition_key),
            sort_key=attribute(sort_key) if sort_key else None,
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=managed,
            encryption_key=self._key,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            stream=stream,
            time_to_live_attribute=EXPIRES_AT if expires else None,
            deletion_protection=self._removal_policy is cdk.RemovalPolicy.RETAIN,
            removal_policy=self._removal_policy,
        )

    def _alarm(self, name: str, watch: _Watch, topic: sns.ITopic | None) -> None:
        alarm = cloudwatch.Alarm(
            self,
            f"{watch.metric}Alarm",
            alarm_name=f"{name}-{watch.name}",
            alarm_description=f"{watch.summary} See {RUNBOOK}#{watch.name}",
            metric=cloudwatch.Metric(
                namespace=METRICS,
                metric_name=watch.metric,
                dimensions_map={OUTBOX_DIMENSION: self.outbox.table_name},
                statistic=watch.statistic,
                period=cdk.Duration.minutes(1),
            ),
            threshold=watch.threshold,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            evaluation_periods=watch.minutes,
            treat_missing_data=watch.missing_data,
        )
        if topic:
            notify = actions.SnsAction(topic)
            alarm.add_alarm_action(notify)
            alarm.add_ok_action(notify)


class MessagingStack(DeploymentStack):
    """One set of tables beside the cluster, for environments that ask for it."""

    def __init__(self, scope: Construct, *, environment: Environment, topic: sns.ITopic) -> None:
        super().__init__(
            scope, environment=environment, kind="messaging", description="RabbitMQ: inbox, outbox, versioned records"
        )
        settings = environment.messaging
        assert settings, "composed only where the environment asks for it"
        self.tables = MessagingTables(
            self,
            "Tables",
            name=environment.cluster_name,
            keep=cdk.Duration.days(settings.keep_days),
            topic=topic,
            removal_policy=self.retention,
        )
        for kind, table in (
            ("inbox", self.tables.inbox),
            ("outbox", self.tables.outbox),
            ("records", self.tables.records),
        ):
            pin(table, kind.capitalize())
            self.publish(f"{kind}-table", table.table_name, f"DynamoDB table: {kind} (docs/messaging.md)")
        self.publish("inbox-keep-days", str(settings.keep_days), "Days for which inboxes must remember a message")
