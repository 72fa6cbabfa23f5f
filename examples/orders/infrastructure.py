"""The example's own stack, as an application team would write it: its tables, and those of messaging."""

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from examples.orders.lab import STACK
from stacks.messaging import MessagingTables


class OrdersStack(cdk.Stack):
    """Tables of the shop. Nothing is retained: it is an example."""

    def __init__(self, scope: Construct) -> None:
        super().__init__(scope, STACK, synthesizer=cdk.DefaultStackSynthesizer(generate_bootstrap_version_rule=False))
        messaging = MessagingTables(self, "Messaging", name=STACK, removal_policy=cdk.RemovalPolicy.DESTROY)
        tables = {
            "Orders": self._table("Orders", "order_id"),
            "Emails": self._table("Emails", "email_id"),
            "Inbox": messaging.inbox,
            "Outbox": messaging.outbox,
        }
        for name, table in tables.items():
            cdk.CfnOutput(self, f"{name}Table", value=table.table_name)

    def _table(self, name: str, key: str) -> dynamodb.Table:
        return dynamodb.Table(
            self,
            name,
            partition_key=dynamodb.Attribute(name=key, type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=cdk.RemovalPolicy.DESTROY,
        )


if __name__ == "__main__":
    app = cdk.App()
    OrdersStack(app)
    app.synth()
