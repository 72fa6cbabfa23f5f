"""Rolls, rebuilds, the fence by force and the lock, against DynamoDB's conditions as moto has them."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from moto import mock_aws
from typer.testing import CliRunner

import operations.__main__ as command_line
from operations import repair
from operations import replace as replacing
from operations.deployment import Deployment
from operations.errors import ExitCode, OperationError
from operations.nodes import Node
from operations.table import LOCK, ChangedError, NodeTable
from tests.unit.operations.test_survey import MEMBERS, NAMES, NOW, broker, node, queue, survey

TABLE = "nodes"
OLD = NOW - timedelta(days=1)


class Cluster:
    """Three nodes whose groups replace an instance as soon as it is ended."""

    def __init__(self, table: Any) -> None:
        self.nodes = [node(n, launched_at=OLD) for n in range(3)]
        self.seen: dict[str, Any] = {}
        self.ended: list[str] = []
        self.refuses: set[str] = set()
        self.living: set[str] = {"i-0", "i-1", "i-2"}
        aws = SimpleNamespace(
            dynamodb=table,
            autoscaling=SimpleNamespace(terminate_instance_in_auto_scaling_group=self._end),
            ec2=SimpleNamespace(describe_instances=self._describe),
        )
        environment = SimpleNamespace(name="test", cluster_name="mq")
        self.deployment = Deployment(environment, aws)  # type: ignore[arg-type]
        self.deployment._parameters = {"node-table": TABLE, "amqp-endpoint": "amqp://mq"}

    def _end(self, **asked: Any) -> None:
        assert asked["ShouldDecrementDesiredCapacity"] is False
        ended = asked["InstanceId"]
        self.ended.append(ended)
        number = next(n for n, found in enumerate(self.nodes) if found.instance_id == ended)
        new, now = f"{ended}-new", datetime.now(UTC) + timedelta(seconds=1)
        boot = self.nodes[number].boot
        assert boot
        state = "failed" if self.nodes[number].name in self.refuses else "ready"
        boot = replace(boot, instance_id=new, state=state, remedy="look at the disk")
        self.nodes[number] = replace(self.nodes[number], instance_id=new, launched_at=now, boot=boot)

    def _describe(self, **asked: Any) -> dict[str, Any]:
        [instance] = asked["Filters"][0]["Values"]
        found = [{"State": {"Name": "running" if instance in self.living else "terminated"}}]
        return {"Reservations": [{"Instances": found}]}

    def item(self, identifier: str) -> dict[str, Any]:
        return NodeTable(self.deployment).items([identifier]).get(identifier, {})

    def put(self, identifier: str, **values: str) -> None:
        item = {"id": {"S": identifier}} | {name: {"S": value} for name, value in values.items()}
        self.deployment.aws.dynamodb.put_item(TableName=TABLE, Item=item)


@pytest.fixture(scope="module")
def table() -> Any:
    """A client, made once: boto3 reads megabytes for each. moto stands in wherever it is used under `mock_aws`."""
    return boto3.Session("a", "b", region_name="eu-west-1").client("dynamodb")


@pytest.fixture
def cluster(table: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    with mock_aws():
        table.create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        made = Cluster(table)
        for number, name in enumerate(NAMES):
            made.put(f"node/{name}", owner=f"i-{number}", member_since="2026-01-01T00:00:00+00:00")

        def look(_: Deployment) -> Any:
            return survey(nodes=list(made.nodes), **made.seen)

        def nodes(_: Deployment) -> list[Node]:
            return list(made.nodes)

        for module in (replacing, repair, command_line):
            monkeypatch.setattr(module, "survey", look)
            monkeypatch.setattr(module, "read_nodes", nodes)
        monkeypatch.setattr(replacing, "POLL_SECONDS", 0.0)
        monkeypatch.setattr(command_line, "Deployment", lambda _: made.deployment)
        yield made


def run(*arguments: str) -> Any:
    return CliRunner().invoke(command_line.app, [*arguments, "--env", "local"])


# -- roll and terminate ------------------------------------------------------------------------------------------------


def test_a_dry_run_names_the_instances_and_ends_none(cluster: Cluster) -> None:
    done = run("roll")
    assert done.exit_code == 0
    assert "i-0" in done.stdout
    assert "dry run" in done.stdout
    assert "dry run" in run("node", "terminate", "mq-a").stdout
    assert cluster.ended == []


def test_a_roll_replaces_every_node_once_and_a_second_one_with_its_time_replaces_none(cluster: Cluster) -> None:
    since = datetime.now(UTC).isoformat()
    done = run("roll", "--yes", "--since", since)
    assert done.exit_code == 0, done.output
    assert cluster.ended == ["i-0", "i-1", "i-2"]
    assert f"--since {since[:19]}" in done.stdout
    assert "replaced: nothing" in run("roll", "--yes", "--since", since).stdout
    assert len(cluster.ended) == 3


def test_a_successor_launched_in_the_second_in_which_the_roll_began_is_not_replaced_again() -> None:
    begun = command_line._time("")
    assert begun.microsecond == 0
    assert replacing.to_replace([node(0, launched_at=begun)], since=begun, only_outdated=False) == []


def test_a_roll_stops_at_the_first_node_that_refuses(cluster: Cluster) -> None:
    cluster.refuses = {"mq-b"}
    done = run("roll", "--yes")
    assert done.exit_code == ExitCode.FAILED
    assert cluster.ended == ["i-0", "i-1"]
    assert "look at the disk" in done.stderr


def test_a_roll_waits_for_a_whole_cluster_before_it_takes_a_node(cluster: Cluster) -> None:
    cluster.seen["broker"] = broker(queue(online=2))
    with pytest.raises(OperationError, match="orders \\(2 online\\)") as raised:
        replacing.wait_until_safe(cluster.deployment, lambda _: None, limit=0.0)
    assert raised.value.code == ExitCode.NOT_READY
    assert cluster.ended == []


def test_a_node_is_not_ended_while_a_queue_is_short_unless_forced(cluster: Cluster) -> None:
    cluster.seen["broker"] = broker(queue(online=2))
    refused = run("node", "terminate", "mq-a", "--yes")
    assert refused.exit_code == ExitCode.REFUSED
    assert "orders (2 online)" in refused.stderr
    assert cluster.ended == []
    assert run("node", "terminate", "mq-a", "--yes", "--force").exit_code == 0
    assert cluster.ended == ["i-0"]


@pytest.mark.parametrize("arguments", [("node", "terminate", "mq-x"), ("node", "rebuild", "mq-x")])
def test_an_unknown_node_is_answered_with_the_names_there_are(cluster: Cluster, arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.exit_code == ExitCode.BAD_INPUT
    assert "mq-a, mq-b, mq-c" in done.stderr


def test_a_time_that_is_none_is_refused(cluster: Cluster) -> None:
    assert run("roll", "--since", "yesterday").exit_code == ExitCode.BAD_INPUT


# -- rebuild -----------------------------------------------------------------------------------------------------------


def test_a_rebuild_is_ordered_only_for_a_node_that_does_not_run_while_the_others_are_whole(cluster: Cluster) -> None:
    cases = {
        "mq-a runs": broker(),
        "rabbit@mq-b does not run": broker(mq_a=False, mq_b=False),
        "queue orders has no other member online": replace(
            broker(mq_a=False), queues=[replace(queue(), online=MEMBERS[:1])]
        ),
    }
    for words, view in cases.items():
        cluster.seen["broker"] = view
        done = run("node", "rebuild", "mq-a", "--yes")
        assert done.exit_code == ExitCode.REFUSED
        assert words in " ".join(done.stderr.split())
    assert "rebuild" not in cluster.item("node/mq-a")


def test_a_rebuild_order_stands_in_the_record_of_the_owner_it_was_given_for(cluster: Cluster) -> None:
    cluster.seen["broker"] = replace(broker(mq_a=False), queues=[replace(queue(), online=MEMBERS[1:])])
    assert "dry run" in run("node", "rebuild", "mq-a").stdout
    assert "rebuild" not in cluster.item("node/mq-a")
    done = run("node", "rebuild", "mq-a", "--yes", "--json")
    assert done.exit_code == 0, done.output
    assert datetime.fromisoformat(cluster.item("node/mq-a")["rebuild"])
    with pytest.raises(ChangedError):
        NodeTable(cluster.deployment).order_rebuild("mq-b", "i-other")


# -- the fence by force ------------------------------------------------------------------------------------------------


def test_a_node_is_released_from_the_instance_that_is_named_and_from_no_other(cluster: Cluster) -> None:
    refused = run("node", "release", "mq-a", "--i-know-instance-is-dead", "i-9")
    assert refused.exit_code == ExitCode.REFUSED
    assert cluster.item("node/mq-a")["owner"] == "i-0"
    assert run("node", "release", "mq-a", "--i-know-instance-is-dead", "i-0").exit_code == 0
    assert "owner" not in cluster.item("node/mq-a")
    assert cluster.item("node/mq-a")["member_since"]


# -- the lock ----------------------------------------------------------------------------------------------------------


def hold(cluster: Cluster, instance: str = "i-0") -> None:
    cluster.put(LOCK, holder_node="mq-a", holder_instance=instance, reason="replaced", acquired_at=NOW.isoformat())


def test_a_free_lock_is_said_to_be_free(cluster: Cluster) -> None:
    assert "is free" in run("lock", "show").stdout
    assert run("lock", "break", "--yes").exit_code == 0


def test_a_living_holder_keeps_its_lock_unless_forced(cluster: Cluster) -> None:
    hold(cluster)
    assert "i-0 still exists" in run("lock", "show").stdout
    refused = run("lock", "break", "--yes")
    assert refused.exit_code == ExitCode.REFUSED
    assert "dry run" in run("lock", "break", "--force").stdout
    assert cluster.item(LOCK)
    assert run("lock", "break", "--yes", "--force").exit_code == 0
    assert cluster.item(LOCK) == {}


def test_a_successor_that_boots_keeps_its_predecessors_lock(cluster: Cluster) -> None:
    hold(cluster, "i-gone")
    assert "its successor i-0 gives it back" in run("lock", "show").stdout
    assert run("lock", "break", "--yes").exit_code == ExitCode.REFUSED


def test_a_lock_that_nobody_gives_back_is_broken(cluster: Cluster) -> None:
    hold(cluster, "i-gone")
    boot = cluster.nodes[0].boot
    assert boot
    cluster.nodes[0] = replace(cluster.nodes[0], boot=replace(boot, state="failed"))
    assert "nobody is left" in run("lock", "show").stdout
    assert run("lock", "break").exit_code == 0
    assert cluster.item(LOCK)
    assert run("lock", "break", "--yes").exit_code == 0
    assert cluster.item(LOCK) == {}


def test_a_lock_that_changed_hands_in_between_is_not_broken(cluster: Cluster) -> None:
    hold(cluster, "i-gone")
    held = repair.look_at_lock(cluster.deployment)
    assert held
    hold(cluster, "i-1")
    with pytest.raises(OperationError, match="another holder"):
        repair.break_lock(cluster.deployment, held)
    assert cluster.item(LOCK)["holder_instance"] == "i-1"


# -- status ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "code", "words"),
    [
        ({}, ExitCode.OK, "mq is healthy"),
        ({"broker": broker(mq_b=False)}, ExitCode.NOT_READY, "degraded: rabbit@mq-b does not run"),
        ({"broker": None, "missing": ["no answer"]}, ExitCode.UNKNOWN, "unknown: no answer"),
    ],
)
def test_status_says_what_is_wrong_and_so_does_its_exit_code(
    cluster: Cluster, seen: dict[str, Any], code: ExitCode, words: str
) -> None:
    cluster.seen = seen
    done = run("status")
    assert done.exit_code == code
    assert words in done.stdout
