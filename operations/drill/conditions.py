"""When a cluster is whole: the conditions after a fault, each a pure function of what was last seen."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

STALE = 6.0
"""Seconds after which what a node said counts no longer."""


@dataclass
class View:
    """What was last seen, and when. `brokers` and `hosts` by node name."""

    nodes: Sequence[str]
    at: float = 0.0
    addresses: dict[str, str] = field(default_factory=dict)
    """Of the current instances."""
    progress: dict[str, str] = field(default_factory=dict)
    """What each node is doing, in AWS's and its own words; `ready` when it is."""
    instances: dict[str, str] = field(default_factory=dict)
    brokers: dict[str, dict[str, Any]] = field(default_factory=dict)
    hosts: dict[str, dict[str, Any]] | None = None
    """What the hosts say of Consul on loopback; None where nobody can look there."""

    @property
    def expected(self) -> set[str]:
        """RabbitMQ's names of the nodes."""
        return {f"rabbit@{node}" for node in self.nodes}

    def broker(self, node: str) -> dict[str, Any] | None:
        """What a node said lately from its current address, or None."""
        said = self.brokers.get(node)
        fresh = said and "error" not in said and self.at - said["at"] < STALE
        return said if said and fresh and said["address"] == self.addresses.get(node) else None


def instances(view: View) -> str | None:
    """Every node's instance is in service, has reported ready, and is healthy behind the load balancers."""
    waiting = [f"{node}: {view.progress.get(node, 'unknown')}" for node in view.nodes]
    return "; ".join(line for line in waiting if not line.endswith(": ready")) or None


def members(view: View) -> str | None:
    """Every node sees the three nodes running, and no other: one cluster, no stale node."""
    wrong = []
    for node in view.nodes:
        said = view.broker(node)
        if said is None:
            wrong.append(f"{node} does not answer: {view.brokers.get(node, {}).get('error', 'no news')}")
        elif said["members"] != dict.fromkeys(view.expected, True):
            running = sorted(name for name, runs in said["members"].items() if runs)
            wrong.append(f"{node} sees {len(running)} of {len(said['members'])} members running")
    return "; ".join(wrong) or None


def queues(view: View) -> str | None:
    """In every node's eyes each quorum queue has a leader and a member online on each node."""
    wrong = set()
    for node in view.nodes:
        said = view.broker(node)
        if said is None:
            wrong.add(f"{node} does not answer")
            continue
        for name, queue in said["queues"].items():
            if queue["leader"] not in view.expected:
                wrong.add(f"{name} has no leader")
            elif set(queue["online"]) != view.expected:
                wrong.add(f"{name}: {len(queue['online'])} of 3 online")
    return "; ".join(sorted(wrong)[:6]) or None


def leaders(view: View) -> str | None:
    """No node leads more than its share, as RabbitMQ's rebalancing counts it: a third of the queues, and one."""
    said = next((broker for node in view.nodes if (broker := view.broker(node))), None)
    if said is None:
        return "no node answers"
    share = len(said["queues"]) // len(view.nodes) + 1
    led = Counter(queue["leader"] for queue in said["queues"].values())
    most = [f"{node} leads {count} of {len(said['queues'])}" for node, count in led.items() if count > share]
    return "; ".join(most) or None


def consul(view: View) -> str | None:
    """Every host's Consul has a leader and exactly the three current addresses as raft peers."""
    if view.hosts is None:
        return None
    wrong = []
    wanted = set(view.addresses.values())
    for node in view.nodes:
        said = (view.hosts.get(node) or {}).get("consul")
        if not said or view.at - view.hosts[node]["at"] > STALE:
            wrong.append(f"{node}: Consul does not answer")
        elif not said["leader"]:
            wrong.append(f"{node}: no leader")
        elif len(wanted) != len(view.nodes) or set(said["peers"]) != wanted:
            wrong.append(f"{node}: peers {', '.join(sorted(said['peers'])) or 'none'}")
    return "; ".join(wrong) or None


CONDITIONS: dict[str, Callable[[View], str | None]] = {
    "members": members,
    "queues": queues,
    "consul": consul,
    "instances": instances,
    "leaders": leaders,
}
"""Each returns None when it holds, else what is wrong."""


def broken(view: View) -> dict[str, str]:
    """The conditions that do not hold, and why."""
    return {name: reason for name, holds in CONDITIONS.items() if (reason := holds(view))}


@dataclass
class Settling:
    """Since when each condition has held without a break. `ignored` conditions count as holding."""

    ignored: Sequence[str] = ()
    since: dict[str, float | None] = field(default_factory=lambda: dict.fromkeys(CONDITIONS))
    reasons: dict[str, str] = field(default_factory=dict)

    def look(self, view: View) -> dict[str, str]:
        """Note what holds now; returns what does not."""
        self.reasons = {name: reason for name, reason in broken(view).items() if name not in self.ignored}
        for name in CONDITIONS:
            if name in self.reasons:
                self.since[name] = None
            elif self.since[name] is None:
                self.since[name] = view.at
        return self.reasons

    def held_for(self, now: float) -> float:
        """For how long all conditions have held, in seconds."""
        if any(since is None for since in self.since.values()):
            return 0.0
        return now - max(since for since in self.since.values() if since is not None)
