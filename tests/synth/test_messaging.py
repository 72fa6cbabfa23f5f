"""The tables for messages that take effect once: off unless asked for, usable alone, and granted by purpose."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import assertions
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns

from messaging import metrics, schema
from stacks import messaging as stack
from stacks.environment import Environment, Messaging
from stacks.messaging import MessagingStack, MessagingTables
from tests.synth.synthesis import PROJECT, Synthesis, load
from tests.synth.test_observability import anchors
from tests.synth.test_snapshots import SNAPSHOTS, check_snapshot, describe
from tests.unit.messaging.standins.bench import Bench, a_message, deposit

ACCOUNT = "111122223333"
TABLE, ALARM = "AWS::DynamoDB::Table", "AWS::CloudWatch::Alarm"


@pytest.fixture(scope="module")
def environment() -> Environment:
    """One where everything is on that can be."""
    return load("production").model_copy(update={"messaging": Messaging()})


@pytest.fixture(scope="module")
def with_messaging(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """The stack without those of the cluster, of which it uses the topic only."""
    directory = Path(tmp_path_factory.mktemp("messaging"))
    app = cdk.App(outdir=str(directory), analytics_reporting=False, builtin_cloud_formation_validation=False)
    topic = sns.Topic.from_topic_arn(cdk.Stack(app, "Elsewhere"), "Topic", f"arn:aws:sns:eu-west-1:{ACCOUNT}:on-call")
    MessagingStack(app, environment=environment, topic=topic)
    app.synth()
    template = json.loads((directory / f"{environment.stack_name('messaging')}.template.json").read_text())
    return Synthesis(environment, directory, {"messaging": template})


def alone(use: Callable[[MessagingTables, iam.Role], None], **options: Any) -> Any:
    """The template of an application's own stack with nothing in it but the tables and a role."""
    subject = cdk.Stack(cdk.App(analytics_reporting=False, builtin_cloud_formation_validation=False), "Orders")
    role = iam.Role(subject, "Role", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"))
    if options.pop("own_key", False):
        options["key"] = kms.Key(subject, "Key", enable_key_rotation=True)
    use(MessagingTables(subject, "Messaging", name="orders", **options), role)
    return assertions.Template.from_stack(subject).to_json()


def allowed(template: Any) -> dict[str, set[str]]:
    """Actions by the table they are allowed on, or "*"."""
    found: dict[str, set[str]] = {}
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::IAM::Policy":
            for statement in resource["Properties"]["PolicyDocument"]["Statement"]:
                targets = statement["Resource"]
                # CDK names a table's indexes beside it, as nothing when there are none.
                target = targets[0] if isinstance(targets, list) else targets
                name = target if isinstance(target, str) else target["Fn::GetAtt"][0]
                kind = next((kind for kind in ("Inbox", "Outbox", "Records") if kind in name), name)
                actions = statement["Action"]
                found.setdefault(kind, set()).update([actions] if isinstance(actions, str) else actions)
    return found


def test_no_environment_has_the_tables_unless_it_asks(synthesis: Synthesis) -> None:
    assert synthesis.environment.messaging is None
    assert "messaging" not in synthesis.templates


def test_the_stack_is_what_was_last_reviewed(with_messaging: Synthesis) -> None:
    check_snapshot(SNAPSHOTS / "messaging.json", describe("messaging", with_messaging.templates["messaging"]))


def test_the_tables_are_on_demand_encrypted_recoverable_retained_and_guarded(with_messaging: Synthesis) -> None:
    tables = with_messaging.resources(TABLE, "messaging")
    assert set(tables) == {"Inbox", "Outbox", "Records"}
    for table in tables.values():
        properties = table["Properties"]
        assert properties["BillingMode"] == "PAY_PER_REQUEST"
        assert properties["SSESpecification"] == {"SSEEnabled": True}
        assert properties["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
        assert properties["DeletionProtectionEnabled"] is True
        assert table["DeletionPolicy"] == table["UpdateReplacePolicy"] == "Retain"


def test_the_library_and_the_tables_agree(with_messaging: Synthesis) -> None:
    tables = with_messaging.resources(TABLE, "messaging")
    keys = {
        name: tuple(key["AttributeName"] for key in table["Properties"]["KeySchema"]) for name, table in tables.items()
    }
    assert keys == {
        "Inbox": schema.inbox_table("").key,
        "Outbox": schema.outbox_table("").key,
        "Records": ("id",),
    }
    expiring = {
        name: table["Properties"]["TimeToLiveSpecification"]["AttributeName"]
        for name, table in tables.items()
        if "TimeToLiveSpecification" in table["Properties"]
    }
    assert expiring == {"Inbox": schema.EXPIRES_AT, "Outbox": schema.EXPIRES_AT}
    assert schema.MINIMUM_KEEP.days == stack.MINIMUM_KEEP_DAYS


def test_inboxes_are_told_how_long_to_remember(with_messaging: Synthesis, environment: Environment) -> None:
    assert with_messaging.parameters()["inbox-keep-days"] == "14"
    assert Messaging(longest_delay_days=7, replay_days=1).keep_days == 8
    names = with_messaging.parameters().keys()
    assert {"inbox-table", "outbox-table", "records-table"} <= names


def test_remembering_for_less_than_eight_days_is_refused() -> None:
    alone(lambda tables, role: None, keep=cdk.Duration.days(8))
    with pytest.raises(ValueError, match="would take effect again"):
        alone(lambda tables, role: None, keep=cdk.Duration.hours(191))


def test_parked_events_old_events_and_dead_letters_are_alarmed(with_messaging: Synthesis) -> None:
    sections = anchors((PROJECT / "docs" / "runbook.md").read_text())
    alarms = {alarm["MetricName"]: alarm for alarm in with_messaging.properties(ALARM, "messaging")}
    rules = {name: (alarm["Threshold"], alarm["TreatMissingData"]) for name, alarm in alarms.items()}
    assert rules == {
        metrics.PARKED: (0, "ignore"),
        metrics.OLDEST: (300, "breaching"),
        metrics.DEAD_LETTERED: (0, "notBreaching"),
    }
    for alarm in alarms.values():
        assert alarm["Namespace"] == metrics.NAMESPACE
        assert alarm["Dimensions"] == [{"Name": metrics.OUTBOX, "Value": {"Ref": "Outbox"}}]
        assert alarm["AlarmActions"] == alarm["OKActions"] != []
        assert alarm["AlarmDescription"].rpartition("#")[2] in sections


def test_the_construct_needs_nothing_but_a_stack_to_stand_in() -> None:
    template = alone(lambda tables, role: None)
    assert sorted(r["Type"] for r in template["Resources"].values() if r["Type"] != "AWS::IAM::Role") == sorted(
        [TABLE] * 3 + [ALARM] * 3
    )
    assert all("AlarmActions" not in r["Properties"] for r in template["Resources"].values())


def test_only_the_outbox_has_a_stream_and_only_if_asked_for() -> None:
    for asked, expected in ((None, []), (dynamodb.StreamViewType.KEYS_ONLY, ["KEYS_ONLY"])):
        template = alone(lambda tables, role: None, stream=asked)
        tables = [r["Properties"] for r in template["Resources"].values() if r["Type"] == TABLE]
        streams = [table["StreamSpecification"] for table in tables if "StreamSpecification" in table]
        assert [stream["StreamViewType"] for stream in streams] == expected


def test_a_key_of_ones_own_encrypts_the_tables_and_comes_with_the_grants() -> None:
    template = alone(lambda tables, role: tables.grant_produce(role), own_key=True)
    tables = [r["Properties"] for r in template["Resources"].values() if r["Type"] == TABLE]
    assert {table["SSESpecification"]["SSEType"] for table in tables} == {"KMS"}
    [key] = [name for name in allowed(template) if name.startswith("Key")]
    assert "kms:Decrypt" in allowed(template)[key]


METRIC = {"*": {"cloudwatch:PutMetricData"}}


def test_each_purpose_is_granted_what_the_library_calls_for_it_and_nothing_else() -> None:
    """What is granted is compared with the calls that the library really makes."""
    read_write = {"dynamodb:GetItem", "dynamodb:PutItem"}
    produce = alone(lambda tables, role: tables.grant_produce(role))
    consume = alone(lambda tables, role: tables.grant_consume(role))
    relay = alone(lambda tables, role: tables.grant_relay(role))
    assert allowed(produce) == {"Outbox": read_write}
    assert allowed(consume) == {"Outbox": read_write, "Inbox": read_write} | METRIC
    assert allowed(alone(lambda tables, role: tables.grant_keep_records(role))) == {"Records": read_write} | METRIC
    repair = alone(lambda tables, role: tables.grant_repair(role))
    assert allowed(relay) == allowed(repair) | METRIC
    bench = Bench()
    bench.inbox(check_first=True).process(a_message(), deposit)
    assert used(bench) == {name: actions for name, actions in allowed(consume).items() if name != "*"}
    bench.broker.bindings.clear()
    bench.inbox().process(a_message("m2"), deposit)
    bench.client.calls.clear()
    subject = bench.relay(unroutable_attempts=1)
    for _ in range(5):
        subject.sweep()
        bench.clock.sleep(5)
    bench.broker.bindings[("events", "paid")] = ["audit"]
    assert subject._parking.release() == 2
    for _ in range(5):
        subject.sweep()
        bench.clock.sleep(5)
    assert bench.waiting() == 0
    assert used(bench) == {"Outbox": allowed(relay)["Outbox"]}


def used(bench: Bench) -> dict[str, set[str]]:
    """The actions that the calls so far need, by table of the library."""
    found: dict[str, set[str]] = {}

    def need(request: Any, action: str) -> None:
        found.setdefault(request["TableName"].capitalize(), set()).add(f"dynamodb:{action}")

    # https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis-iam.html
    for name, request in bench.client.calls:
        if name in ("transact_write_items", "transact_get_items"):
            for item in request["TransactItems"]:
                [(operation, content)] = item.items()
                need(content, "ConditionCheckItem" if operation == "ConditionCheck" else f"{operation}Item")
        elif name == "batch_write_item":
            for table in request["RequestItems"]:
                need({"TableName": table}, "BatchWriteItem")
        else:
            need(request, "".join(part.capitalize() for part in name.split("_")))
    return {table: actions for table, actions in found.items() if table in ("Inbox", "Outbox")}
