"""When a cluster counts as whole."""

from typing import Any

import pytest

from operations.drill.conditions import CONDITIONS, Settling, View, broken

NODES = ["q-a", "q-b", "q-c"]
RABBITS = [f"rabbit@{node}" for node in NODES]


def whole(at: float = 100.0) -> View:
    """A view with nothing wrong."""
    addresses = {node: f"10.0.0.{number}" for number, node in enumerate(NODES)}

    def broker(node: str) -> dict[str, Any]:
        queues = {
            f"/{number}": {"leader": RABBITS[number % 3], "online": list(RABBITS), "members": list(RABBITS)}
            for number in range(6)
        }
        members = dict.fromkeys(RABBITS, True)
        return {"at": at, "node": node, "address": addresses[node], "members": members, "queues": queues}

    consul = {"leader": "10.0.0.1:8300", "peers": list(addresses.values())}
    return View(
        NODES,
        at,
        addresses,
        dict.fromkeys(NODES, "ready"),
        {node: f"i-{node}" for node in NODES},
        {node: broker(node) for node in NODES},
        {node: {"at": at, "host": "up", "consul": dict(consul)} for node in NODES},
    )


def test_a_whole_cluster_breaks_no_condition() -> None:
    assert broken(whole()) == {}


def damage(view: View, what: str) -> None:
    """Break one thing."""
    broker, queue = view.brokers["q-b"], view.brokers["q-b"]["queues"]["/1"]
    if what == "a stranger":
        broker["members"]["rabbit@ip-10-0-0-9"] = False
    elif what == "a member down":
        broker["members"]["rabbit@q-c"] = False
    elif what == "an old answer":
        broker["at"] -= 60
    elif what == "an answer from the predecessor":
        broker["address"] = "10.0.0.99"
    elif what == "two online":
        queue["online"].pop()
    elif what == "no leader":
        queue["leader"] = ""
    elif what == "one leads all":
        for q in view.brokers["q-a"]["queues"].values():
            q["leader"] = RABBITS[0]
    elif what == "an old peer":
        view.hosts["q-a"]["consul"]["peers"] = ["10.0.0.99", "10.0.0.1", "10.0.0.2"]  # type: ignore[index]
    elif what == "no consul leader":
        view.hosts["q-a"]["consul"]["leader"] = ""  # type: ignore[index]
    elif what == "booting":
        view.progress["q-c"] = "rabbitmq"


@pytest.mark.parametrize(
    ("what", "conditions"),
    [
        ("a stranger", {"members"}),
        ("a member down", {"members"}),
        ("an old answer", {"members", "queues"}),
        ("an answer from the predecessor", {"members", "queues"}),
        ("two online", {"queues"}),
        ("no leader", {"queues"}),
        ("one leads all", {"leaders"}),
        ("an old peer", {"consul"}),
        ("no consul leader", {"consul"}),
        ("booting", {"instances"}),
    ],
)
def test_what_breaks_which_condition(what: str, conditions: set[str]) -> None:
    view = whole()
    damage(view, what)
    assert set(broken(view)) == conditions
    assert conditions <= set(CONDITIONS)


def test_outside_the_lab_nobody_looks_at_consul() -> None:
    view = whole()
    view.hosts = None
    assert broken(view) == {}


def test_settling_counts_from_the_last_break() -> None:
    settling = Settling()
    settling.look(whole(100))
    relapse = whole(101)
    damage(relapse, "two online")
    settling.look(relapse)
    assert settling.held_for(101) == 0
    settling.look(whole(102))
    settling.look(whole(105))
    assert settling.since["queues"] == 102
    assert settling.since["members"] == 100
    assert settling.held_for(105) == 3
