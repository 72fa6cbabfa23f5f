"""The fence: one owner at a time, whoever comes and whenever."""

from collections.abc import Callable

import boto3
import pytest
from moto import mock_aws

from node.ownership import Fence, Ownership, Record, read_record
from node.table import Table
from tests.unit.node.standins import BEGIN, THROTTLED, DynamoDB, Ec2, ManualClock, client_error

NODE = "rabbitmq-a"


def fence(dynamodb: DynamoDB, ec2: Ec2, clock: ManualClock, me: str, address: str = "10.0.0.1") -> Fence:
    return Fence(Ownership(dynamodb.table, NODE, me, clock), lambda: ec2, me, address, clock)  # type: ignore[arg-type,return-value]


def owner(dynamodb: DynamoDB) -> str | None:
    return read_record(dynamodb.table, NODE).owner


def owned(dynamodb: DynamoDB, by: str, **more: str) -> None:
    dynamodb.put(f"node/{NODE}", owner=by, owned_since="2026-02-01T00:00:00+00:00", **more)


def test_a_node_that_nobody_owns_is_claimed_with_address_and_time(dynamodb: DynamoDB, clock: ManualClock) -> None:
    assert fence(dynamodb, Ec2(), clock, "i-1").attempt() is None
    assert dynamodb.item(f"node/{NODE}") == {
        "id": f"node/{NODE}",
        "owner": "i-1",
        "address": "10.0.0.1",
        "owned_since": BEGIN.isoformat(),
    }


def test_a_released_node_is_claimed_without_a_word_from_ec2(dynamodb: DynamoDB, clock: ManualClock) -> None:
    dynamodb.put(f"node/{NODE}", released_at="2026-02-01T00:00:00+00:00", member_since="2025-01-01T00:00:00+00:00")
    ec2 = Ec2()
    assert fence(dynamodb, ec2, clock, "i-2").attempt() is None
    item = dynamodb.item(f"node/{NODE}")
    assert (item["owner"], item["member_since"]) == ("i-2", "2025-01-01T00:00:00+00:00")
    assert "released_at" not in item
    assert ec2.asked == []


def test_a_restart_of_the_owner_finds_it_the_owner_since_the_same_time(dynamodb: DynamoDB, clock: ManualClock) -> None:
    owned(dynamodb, "i-1", address="10.0.0.1")
    assert fence(dynamodb, Ec2(), clock, "i-1", address="10.0.0.9").attempt() is None
    item = dynamodb.item(f"node/{NODE}")
    assert (item["owner"], item["address"]) == ("i-1", "10.0.0.9")
    assert item["owned_since"] == "2026-02-01T00:00:00+00:00"


@pytest.mark.parametrize("state", ["pending", "running", "shutting-down", "stopping", "stopped"])
def test_an_owner_that_may_still_write_is_waited_for(state: str, dynamodb: DynamoDB, clock: ManualClock) -> None:
    owned(dynamodb, "i-1")
    assert fence(dynamodb, Ec2(i_1=state), clock, "i-2").attempt() == f"instance i-1 owns the node and is {state}"
    assert owner(dynamodb) == "i-1"


def test_a_terminated_owner_is_replaced(
    dynamodb: DynamoDB, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    owned(dynamodb, "i-1")
    assert fence(dynamodb, Ec2(i_1="terminated"), clock, "i-2").attempt() is None
    assert owner(dynamodb) == "i-2"
    assert "took over from i-1, which EC2 reports as terminated" in caplog.text


def test_an_owner_that_ec2_has_forgotten_is_replaced(dynamodb: DynamoDB, clock: ManualClock) -> None:
    owned(dynamodb, "i-1")
    assert fence(dynamodb, Ec2(), clock, "i-2").attempt() is None
    assert owner(dynamodb) == "i-2"


def test_a_young_owner_that_ec2_does_not_know_yet_is_not_taken_for_dead(dynamodb: DynamoDB, clock: ManualClock) -> None:
    assert fence(dynamodb, Ec2(), clock, "i-1").attempt() is None
    successor = fence(dynamodb, Ec2(), clock, "i-2")
    assert successor.attempt() == "instance i-1 owns the node and is unknown"
    clock.sleep(29 * 60)
    assert successor.attempt() is not None
    clock.sleep(60)
    assert successor.attempt() is None


def test_a_release_ends_the_wait_though_the_owner_still_runs(dynamodb: DynamoDB, clock: ManualClock) -> None:
    owned(dynamodb, "i-1")
    successor = fence(dynamodb, Ec2(i_1="running"), clock, "i-2")
    assert successor.attempt() is not None
    assert Ownership(dynamodb.table, NODE, "i-1", clock).release()
    assert successor.attempt() is None
    assert owner(dynamodb) == "i-2"


def test_a_human_who_removes_the_owner_forces_the_hand_over(dynamodb: DynamoDB, clock: ManualClock) -> None:
    owned(dynamodb, "i-1")
    successor = fence(dynamodb, Ec2(i_1="running"), clock, "i-2")
    assert successor.attempt() is not None
    dynamodb.put(f"node/{NODE}", address="10.0.0.1")
    assert successor.attempt() is None


def test_ec2_is_asked_every_few_seconds_only(dynamodb: DynamoDB, clock: ManualClock) -> None:
    owned(dynamodb, "i-1")
    ec2 = Ec2(i_1="running")
    successor = fence(dynamodb, ec2, clock, "i-2")
    for _ in range(11):
        successor.attempt()
        clock.sleep(1)
    assert len(ec2.asked) == 3


def test_what_ec2_said_of_one_owner_never_counts_for_the_next(dynamodb: DynamoDB, clock: ManualClock) -> None:
    owned(dynamodb, "i-1")
    ec2 = Ec2(i_1="terminated", i_2="running", i_3="running")
    first, second = (fence(dynamodb, ec2, clock, me) for me in ("i-2", "i-3"))

    def faster(call: str) -> None:
        if call == "update_item":
            dynamodb.before = lambda _: None
            assert first.attempt() is None

    dynamodb.before = faster
    assert second.attempt() == "another instance was faster"
    clock.sleep(1)
    assert second.attempt() == "instance i-2 owns the node and is running"
    assert owner(dynamodb) == "i-2"


@pytest.mark.parametrize("owner_state", ["terminated", None])
@pytest.mark.parametrize("call", range(3))
def test_of_two_successors_exactly_one_gets_the_node_wherever_the_other_comes_between(
    owner_state: str | None, call: int, dynamodb: DynamoDB, clock: ManualClock
) -> None:
    if owner_state:
        owned(dynamodb, "i-a")
    ec2 = Ec2(i_b="running", i_c="running")
    if owner_state:
        ec2.states["i-a"] = owner_state
    first, second = (fence(dynamodb, ec2, clock, me) for me in ("i-b", "i-c"))
    calls: list[str] = []
    outcome: list[str | None] = []

    def between(name: str) -> None:
        if len(calls) == call:
            dynamodb.before = ec2.before = lambda _: None
            outcome.append(second.attempt())
            dynamodb.before = ec2.before = between
        calls.append(name)

    dynamodb.before = ec2.before = between
    mine = first.attempt()
    dynamodb.before = ec2.before = lambda _: None
    if not outcome:  # the first one needs fewer calls than that
        outcome.append(second.attempt())
    assert [mine, *outcome].count(None) == 1
    assert owner(dynamodb) == ("i-b" if mine is None else "i-c")


def test_two_successors_at_once_against_dynamodb_behind_boto3(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "stand-in")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "stand-in")
    with mock_aws():
        client = boto3.client("dynamodb", region_name="eu-west-1")
        client.create_table(
            TableName="nodes",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        table = Table(client, "nodes")
        first, second = (Ownership(table, NODE, me, clock) for me in ("i-1", "i-2"))
        assert [first.claim("10.0.0.1"), second.claim("10.0.0.2"), first.keep("10.0.0.3")] == [True, False, True]
        assert [second.take_over("i-0", "10.0.0.2"), second.release(), second.record_member()] == [False] * 3
        assert read_record(table, NODE) == Record("i-1", "10.0.0.3", None, BEGIN.isoformat())
        assert [second.take_over("i-1", "10.0.0.2"), first.take_over("i-1", "10.0.0.1")] == [True, False]
        assert [second.record_member(), second.release(), first.claim("10.0.0.1")] == [True, True, True]
        record = read_record(table, NODE)
        assert (record.owner, record.member_since, record.released_at) == ("i-1", BEGIN.isoformat(), None)


def test_only_the_owner_releases(dynamodb: DynamoDB, clock: ManualClock) -> None:
    owned(dynamodb, "i-1", member_since="x")
    assert not Ownership(dynamodb.table, NODE, "i-2", clock).release()
    assert owner(dynamodb) == "i-1"
    assert Ownership(dynamodb.table, NODE, "i-1", clock).release()
    assert read_record(dynamodb.table, NODE).released_at == BEGIN.isoformat()
    assert not Ownership(dynamodb.table, NODE, "i-1", clock).release()


def test_membership_is_recorded_once(dynamodb: DynamoDB, clock: ManualClock) -> None:
    owned(dynamodb, "i-1")
    mine = Ownership(dynamodb.table, NODE, "i-1", clock)
    assert mine.record_member()
    clock.sleep(60)
    assert mine.record_member()
    assert mine.read().member_since == BEGIN.isoformat()


def test_who_is_not_the_owner_records_no_membership(dynamodb: DynamoDB, clock: ManualClock) -> None:
    owned(dynamodb, "i-1")
    assert not Ownership(dynamodb.table, NODE, "i-2", clock).record_member()
    assert read_record(dynamodb.table, NODE).member_since is None


def throttled_table(dynamodb: DynamoDB, ec2: Ec2) -> None:
    def fail(_: str) -> None:
        raise THROTTLED

    dynamodb.before = fail


def forbidden_ec2(dynamodb: DynamoDB, ec2: Ec2) -> None:
    def fail(_: str) -> None:
        raise client_error("UnauthorizedOperation", "not allowed")

    ec2.before = fail


@pytest.mark.parametrize(("failure", "message"), [(throttled_table, "Rate exceeded"), (forbidden_ec2, "not allowed")])
def test_without_an_answer_of_aws_nothing_is_taken(
    failure: Callable[[DynamoDB, Ec2], None], message: str, dynamodb: DynamoDB, clock: ManualClock
) -> None:
    owned(dynamodb, "i-1")
    ec2 = Ec2(i_1="terminated")
    failure(dynamodb, ec2)
    reason = fence(dynamodb, ec2, clock, "i-2").attempt()
    assert reason is not None
    assert reason.startswith("AWS does not answer: ")
    assert message in reason
    dynamodb.before = lambda call: None
    assert owner(dynamodb) == "i-1"
