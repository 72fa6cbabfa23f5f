"""What is wrong with a cluster, and what speaks against taking a node away from it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from operations.nodes import BootReport, Node
from operations.replace import objections, to_replace
from operations.survey import BrokerView, Finding, Queue, Survey
from operations.table import Health, Lock, Ownership

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
NAMES = ["mq-a", "mq-b", "mq-c"]
MEMBERS = [f"rabbit@{name}" for name in NAMES]
ADDRESSES = ["10.0.1.5", "10.0.2.5", "10.0.3.5"]


def node(number: int, **changes: Any) -> Node:
    instance = f"i-{number}"
    whole = Node(
        NAMES[number], "abc"[number], instance, "InService", ADDRESSES[number],
        boot=BootReport(instance, "ready", "ready"), target_health={"amqp": "healthy"}, launched_at=NOW,
    )  # fmt: skip
    return replace(whole, **changes)


def health(number: int, **changes: Any) -> Health:
    peers = [f"{address}:8300" for address in ADDRESSES]
    whole = Health(f"i-{number}", NOW.isoformat(), True, 3.0, consul_leader=peers[0], consul_peers=peers)
    return replace(whole, **changes)


def queue(name: str = "orders", online: int = 3, leader: str = MEMBERS[0]) -> Queue:
    return Queue(name, "/", leader, MEMBERS, MEMBERS[:online])


def broker(*queues: Queue, **running: bool) -> BrokerView:
    states = dict.fromkeys(MEMBERS, True) | {f"rabbit@{name.replace('_', '-')}": up for name, up in running.items()}
    return BrokerView(states, dict.fromkeys(MEMBERS, 3600.0), queues or (queue(),))


def survey(**changes: Any) -> Survey:
    whole = Survey(
        "test", "mq", NOW, [node(n) for n in range(3)],
        {name: Ownership(f"i-{n}") for n, name in enumerate(NAMES)},
        {name: health(n) for n, name in enumerate(NAMES)},
        broker=broker(), alarms=[],
    )  # fmt: skip
    return replace(whole, **changes)


def said(seen: Survey) -> str:
    return "; ".join(finding.what for finding in seen.findings)


def test_a_whole_cluster_has_no_findings_and_a_node_may_leave() -> None:
    assert survey().findings == []
    assert objections(survey()) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nodes": [node(0), node(1, lifecycle_state="Pending:Wait"), node(2)]}, "mq-b: "),
        ({"broker": broker(mq_b=False)}, "rabbit@mq-b does not run"),
        ({"broker": broker(stranger=True)}, "rabbit@stranger is a member but no node of this deployment"),
        ({"broker": broker(queue(online=2))}, "1 quorum queues are not whole: orders (2 online)"),
        ({"broker": broker(queue(leader=""))}, "orders (3 online)"),
        ({"lock": Lock("mq-a", "i-0", "replaced", NOW.isoformat()), "lock_holder_lives": True}, ""),
        ({"alarms": ["mq-healthy-nodes-below-3: 2 < 3"]}, "alarm: mq-healthy-nodes-below-3"),
    ],
)
def test_what_endangers_the_quorum_is_found_and_keeps_nodes_from_leaving(changes: dict[str, Any], words: str) -> None:
    seen = survey(**changes)
    assert words in said(seen)
    assert objections(seen)


@pytest.mark.parametrize(
    ("number", "changes", "words"),
    [
        (0, {"mounted": False, "write_ms": None}, "mq-a: EFS: not mounted"),
        (1, {"write_error": "Input/output error"}, "mq-b: EFS: Input/output error"),
        (2, {"write_ms": 900.0}, "mq-c: EFS: a synced write takes 900 ms"),
        (0, {"consul_leader": ""}, "mq-a: Consul: no leader"),
        (0, {"consul_peers": ["10.0.1.5:8300", "10.0.2.99:8300"]}, "mq-a: Consul's peers are 10.0.1.5, 10.0.2.99"),
        (0, {"updated_at": (NOW - timedelta(minutes=5)).isoformat()}, "mq-a: its agent has said nothing"),
        (0, {"instance_id": "i-before"}, "mq-a: its agent has said nothing"),
    ],
)
def test_what_only_the_host_knows_is_found(number: int, changes: dict[str, Any], words: str) -> None:
    told = {name: health(n) for n, name in enumerate(NAMES)} | {NAMES[number]: health(number, **changes)}
    assert words in said(survey(health=told))


def test_an_owner_that_is_not_the_instance_in_service_is_found() -> None:
    owners = {name: Ownership(f"i-{n}") for n, name in enumerate(NAMES)} | {"mq-a": Ownership("i-other")}
    assert "mq-a: owned by i-other, not by i-0" in said(survey(ownership=owners))


def test_a_lock_whose_holder_is_gone_from_a_whole_cluster_is_found_and_one_at_work_is_not() -> None:
    held = Lock("mq-a", "i-0", "replaced", (NOW - timedelta(minutes=5)).isoformat())
    assert "held by i-0, which is gone" in said(survey(lock=held))
    assert said(survey(lock=held, lock_holder_lives=True)) == ""
    old = replace(held, acquired_at=(NOW - timedelta(hours=2)).isoformat())
    assert "for 120 min" in said(survey(lock=old, lock_holder_lives=True))


def test_what_cannot_be_asked_is_unknown_and_keeps_nodes_from_leaving() -> None:
    seen = survey(broker=None, alarms=None, missing=["the management API did not answer"])
    assert seen.findings == [Finding("unknown", "the management API did not answer")]
    assert objections(seen) == ["RabbitMQ cannot be asked", "the alarms cannot be read"]


def test_json_carries_findings_and_leaders() -> None:
    document = survey(broker=broker(mq_b=False)).as_dict()
    assert document["broker"]["leaders"] == {MEMBERS[0]: 1}
    assert document["findings"] == [{"severity": "degraded", "what": "rabbit@mq-b does not run"}]


def test_a_roll_replaces_what_is_older_than_its_beginning_or_comes_from_another_template() -> None:
    nodes = [node(0), node(1, launched_at=NOW - timedelta(hours=1)), node(2, is_outdated=True)]
    assert [n.name for n in to_replace(nodes, since=NOW, only_outdated=False)] == ["mq-b"]
    assert [n.name for n in to_replace(nodes, since=NOW + timedelta(seconds=1), only_outdated=False)] == NAMES
    assert [n.name for n in to_replace(nodes, since=NOW, only_outdated=True)] == ["mq-c"]
