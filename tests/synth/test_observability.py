"""Every alarm says what silence means, tells somebody, and leads to a section of the runbook."""

import re
from pathlib import Path
from typing import Any

import pytest
from aws_cdk.assertions import Match

from stacks.environment import Environment
from tests.synth.synthesis import PROJECT, Synthesis, load, synthesise

ALARM = "AWS::CloudWatch::Alarm"


def alarms(synthesis: Synthesis) -> dict[str, Any]:
    """Alarm by name, without the cluster's prefix."""
    prefix = f"{synthesis.environment.cluster_name}-"
    return {alarm["AlarmName"].removeprefix(prefix): alarm for alarm in synthesis.properties(ALARM)}


def anchors(text: str) -> set[str]:
    """The anchors of a Markdown text's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.+?) *$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.fixture(scope="module")
def bursting(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    document = load("local").model_dump(mode="python", by_alias=True)
    environment = Environment.model_validate({**document, "efs": {"throughput_mode": "bursting", "backups": False}})
    return synthesise(environment, Path(tmp_path_factory.mktemp("bursting")))


def test_the_alarms_that_need_no_agent_exist(synthesis: Synthesis) -> None:
    zones = synthesis.environment.availability_zones
    wanted = {
        *("efs-throughput", "efs-io-limit", "healthy-nodes-below-3", "healthy-nodes-below-2"),
        *(f"no-instance-{zone}" for zone in zones),
    }
    if synthesis.environment.efs.throughput_mode == "bursting":
        wanted.add("efs-burst-credits")
    assert set(alarms(synthesis)) == wanted


def test_burst_credits_are_watched_only_where_there_are_any(bursting: Synthesis, synthesis: Synthesis) -> None:
    assert alarms(bursting)["efs-burst-credits"]["MetricName"] == "BurstCreditBalance"
    expected = synthesis.environment.efs.throughput_mode == "bursting"
    assert ("efs-burst-credits" in alarms(synthesis)) == expected


def test_every_alarm_tells_the_topic_of_both_turns(synthesis: Synthesis) -> None:
    [topic] = synthesis.resources("AWS::SNS::Topic")
    for name, alarm in alarms(synthesis).items():
        assert alarm["AlarmActions"] == alarm["OKActions"] == [{"Ref": topic}], name


def test_every_alarm_says_what_missing_data_means(synthesis: Synthesis) -> None:
    rules = {name: alarm["TreatMissingData"] for name, alarm in alarms(synthesis).items()}
    # A file system without traffic reports nothing. A load balancer or group that reports nothing is gone.
    assert rules == {name: "notBreaching" if name.startswith("efs-") else "breaching" for name in rules}


def test_every_alarm_leads_to_a_section_of_the_runbook(synthesis: Synthesis, bursting: Synthesis) -> None:
    sections = anchors((PROJECT / "docs" / "runbook.md").read_text())
    for name, alarm in {**alarms(bursting), **alarms(synthesis)}.items():
        match = re.search(r" See docs/runbook\.md#([a-z0-9-]+)$", alarm["AlarmDescription"])
        assert match, name
        assert match.group(1) in sections, name


def test_throughput_is_measured_against_what_is_permitted(synthesis: Synthesis) -> None:
    alarm = alarms(synthesis)["efs-throughput"]
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (80, "GreaterThanThreshold")
    queries = {query["Id"]: query for query in alarm["Metrics"]}
    [result] = [query for query in queries.values() if "Expression" in query]
    assert result["Expression"] == "100 * (metered / PERIOD(metered)) / permitted"
    metrics = {
        name: (query["MetricStat"]["Metric"]["MetricName"], query["MetricStat"]["Stat"])
        for name, query in queries.items()
        if "MetricStat" in query
    }
    assert metrics == {"metered": ("MeteredIOBytes", "Sum"), "permitted": ("PermittedThroughput", "Minimum")}


@pytest.mark.parametrize(("name", "threshold", "minutes"), [("below-3", 3, 15), ("below-2", 2, 2)])
def test_healthy_nodes_are_counted(name: str, threshold: int, minutes: int, synthesis: Synthesis) -> None:
    alarm = alarms(synthesis)[f"healthy-nodes-{name}"]
    assert (alarm["MetricName"], alarm["Namespace"]) == ("HealthyHostCount", "AWS/NetworkELB")
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (threshold, "LessThanThreshold")
    assert (alarm["Period"], alarm["EvaluationPeriods"], alarm["DatapointsToAlarm"]) == (60, minutes, minutes)
    assert {dimension["Name"] for dimension in alarm["Dimensions"]} == {"LoadBalancer", "TargetGroup"}


def test_every_group_is_watched(synthesis: Synthesis) -> None:
    for node in synthesis.environment.nodes:
        alarm = alarms(synthesis)[f"no-instance-{node.availability_zone}"]
        assert alarm["MetricName"] == "GroupInServiceInstances"
        assert alarm["Dimensions"] == [{"Name": "AutoScalingGroupName", "Value": node.name}]
        assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (1, "LessThanThreshold")


def test_the_topic_takes_tls_only_and_is_encrypted_with_a_key_that_alarms_may_use(synthesis: Synthesis) -> None:
    topic = synthesis.only("AWS::SNS::Topic")["Properties"]
    [key] = synthesis.resources("AWS::KMS::Key", "observability")
    assert topic["KmsMasterKeyId"] == {"Fn::GetAtt": [key, "Arn"]}
    properties = synthesis.only("AWS::KMS::Key", "observability")["Properties"]
    assert properties["EnableKeyRotation"] is True
    services = [s["Principal"].get("Service") for s in properties["KeyPolicy"]["Statement"]]
    assert "cloudwatch.amazonaws.com" in services
    denial = {"Effect": "Deny", "Action": "sns:Publish", "Condition": {"Bool": {"aws:SecureTransport": "false"}}}
    synthesis.assertions("observability").has_resource_properties(
        "AWS::SNS::TopicPolicy", {"PolicyDocument": {"Statement": Match.array_with([Match.object_like(denial)])}}
    )


def test_every_recipient_is_subscribed(synthesis: Synthesis) -> None:
    subscribed = {(s["Protocol"], s["Endpoint"]) for s in synthesis.properties("AWS::SNS::Subscription")}
    assert subscribed == {("email", recipient) for recipient in synthesis.environment.alarms.recipients}


def test_the_dashboard_draws_what_the_alarms_watch(synthesis: Synthesis) -> None:
    body = str(synthesis.only("AWS::CloudWatch::Dashboard")["Properties"]["DashboardBody"])
    for metric in ("HealthyHostCount", "GroupInServiceInstances", "MeteredIOBytes", "PermittedThroughput"):
        assert metric in body
