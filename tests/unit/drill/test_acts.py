"""What the drills do to a cluster, against one that only takes notes; above all that every fault is undone."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from operations.drill.acts import Options
from operations.drill.catalogue import BY_NAME
from operations.errors import OperationError

ZONES = ["r-1a", "r-1b", "r-1c"]


class NotedField:
    """In place of `Field`: replacements come at once, and the lab notes what it is told."""

    def __init__(self) -> None:
        self.names = [f"q-{zone}" for zone in ZONES]
        self.environment = SimpleNamespace(availability_zones=ZONES, cluster_name="q")
        self.lab = self
        self.told: list[str] = []
        self.marked: list[str] = []
        self.replaced: list[str] = []

    def look(self) -> list[Any]:
        return [SimpleNamespace(name=name, instance_id=f"i-{name}") for name in self.names]

    def run(self, *arguments: str) -> str:
        self.told.append(" ".join(arguments))
        return ""

    def mark(self, what: str) -> float:
        self.marked.append(what)
        return 0.0

    def wait_replaced(self, node: str, before: str, limit: float = 0) -> float:
        assert before == f"i-{node}"
        self.replaced.append(node)
        return 0.0

    def wait_until(self, *_: Any) -> None:
        pass


@pytest.fixture
def field(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return NotedField()


def test_nodes_lost_at_once_are_lost_in_one_command_and_all_replacements_are_waited_for(field: Any) -> None:
    BY_NAME["lose-two"].act(field, Options(replace_after=45, seed=3))
    (told,) = field.told
    assert told.startswith("fault power-cut --replace-after=45 q-")
    assert sorted(told.split()[3:]) == sorted(field.replaced)
    assert len(field.replaced) == 2


def test_the_seed_chooses_the_nodes(field: Any) -> None:
    chosen = set()
    for seed in range(20):
        field.told.clear()
        BY_NAME["lose-one"].act(field, Options(seed=seed))
        first = list(field.told)
        field.told.clear()
        BY_NAME["lose-one"].act(field, Options(seed=seed))
        assert field.told == first
        chosen.add(first[0])
    assert len(chosen) == 3


@pytest.mark.parametrize(
    ("name", "fault", "undo"),
    [
        ("partition-60", "fault cut r-1", "fault heal r-1"),
        ("freeze", "fault freeze q-r-1", "fault thaw q-r-1"),
        ("consul-stop-2", "fault systemctl q-r-1a q-r-1b -- stop", "fault systemctl q-r-1a q-r-1b -- start"),
        ("efs-stall-1", "fault efs q-r-1a stall", "fault efs q-r-1a normal"),
        ("efs-dead", "fault efs q-r-1a read-only", "fault efs q-r-1a direct"),
    ],
)
def test_a_fault_is_undone_even_if_the_drill_is_broken_off(
    field: Any, monkeypatch: pytest.MonkeyPatch, name: str, fault: str, undo: str
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    field.wait_replaced = interrupted
    with pytest.raises(KeyboardInterrupt):
        BY_NAME[name].act(field, Options())
    assert field.told[0].startswith(fault)
    assert field.told[-1].startswith(undo)


def test_only_the_successor_of_a_node_with_a_dead_file_system_gets_a_working_one(field: Any) -> None:
    BY_NAME["efs-dead"].act(field, Options())
    assert field.told == [f"fault efs q-r-1a {word}" for word in ("read-only", "bypassed", "direct")]
    assert field.replaced == ["q-r-1a"]


def test_the_queue_leader_that_is_lost_leads_queues_which_clients_use(field: Any) -> None:
    a, b, _ = field.names
    idle = {f"/idle-{number}": {"leader": f"rabbit@{a}"} for number in range(5)}
    used = {"/drill.address-1": {"leader": f"rabbit@{b}"}, "/drill.balancer-1": {"leader": f"rabbit@{b}"}}
    field.now = lambda: SimpleNamespace(brokers={a: {"queues": idle | used}, b: {"error": "no answer"}})
    BY_NAME["lose-queue-leader"].act(field, Options())
    assert field.replaced == [b]


def test_a_random_run_is_the_same_for_the_same_seed_and_another_for_another(
    field: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    field.whole = lambda limit: SimpleNamespace(reasons={})
    field.now = lambda: SimpleNamespace(brokers={}, hosts={}, addresses={})

    def rounds(seed: int) -> list[str]:
        field.marked.clear()
        BY_NAME["random"].act(field, Options(seed=seed, rounds=8))
        return [mark for mark in field.marked if mark.startswith("round")]

    assert rounds(5) == rounds(5)
    assert len(rounds(5)) == 8
    assert rounds(5) != rounds(6)


def test_a_random_run_stops_at_a_round_from_which_the_cluster_does_not_recover(field: Any) -> None:
    field.whole = lambda limit: SimpleNamespace(reasons={"queues": "/x has no leader"})
    field.now = lambda: SimpleNamespace(brokers={}, hosts={}, addresses={})
    with pytest.raises(OperationError, match=r"round 1 \(.*has no leader"):
        BY_NAME["random"].act(field, Options(rounds=8))
