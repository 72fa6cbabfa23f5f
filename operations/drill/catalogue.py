"""The drills: what is broken, and what must come of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from operations.drill.acts import (
    Options,
    consul_stop,
    die_at_every_step,
    efs,
    efs_dead,
    efs_way,
    empty_directory,
    freeze,
    kill_rabbitmq,
    lose,
    lose_consul_leader,
    lose_in_turn,
    lose_overlapping,
    lose_queue_leader,
    partition,
    random_rounds,
    roll,
    roll_at_once,
    roll_undrained,
    two_alive,
)
from operations.drill.field import Field


@dataclass(frozen=True)
class Drill:
    """One drill. `act` breaks and mends; it returns when the last fault is over or the last replacement launched.

    `gap`: the longest time without a confirmation that a client with every address may see, where there is a goal.
    """

    name: str
    what: str
    expected: str
    act: Callable[[Field, Options], None]
    gentle: bool = False
    gap: float | None = None
    balanced_gap: float | None = None
    before: Callable[[Field], None] | None = None
    """Preparation, before the traffic."""
    after: Callable[[Field], None] | None = None
    """Tidying up, when all has been accounted for."""


def efs_drill(name: str, what: str, expected: str, mode: str, count: int, seconds: float = 30) -> Drill:
    """A drill of the file system."""
    act = efs(mode, count, seconds)
    return Drill(name, what, expected, act, before=efs_way("through", count), after=efs_way("direct", count))


NOTHING_LOST = "recovers by itself; no confirmed message lost"
QUICK = f"{NOTHING_LOST}; gap at most 10 s"
SMOOTH = "gap at most 2 s, 5 s through the load balancer"
HEALS = "heals by itself; no confirmed message lost"
UNNOTICED = "no client notices"

DRILLS: Sequence[Drill] = (
    Drill("lose-one", "one node's power is cut", QUICK, lose(1), gap=10),
    Drill("lose-two", "two nodes at once", NOTHING_LOST, lose(2)),
    Drill("lose-three", "three nodes at once", NOTHING_LOST, lose(3)),
    Drill("lose-two-in-turn", "two nodes, one after the other", NOTHING_LOST, lose_in_turn(2)),
    Drill("lose-three-in-turn", "three nodes, one after the other", NOTHING_LOST, lose_in_turn(3)),
    Drill("lose-overlapping", "three nodes, each while the last one boots", NOTHING_LOST, lose_overlapping),
    Drill("lose-consul-leader", "the node whose Consul leads", QUICK, lose_consul_leader, gap=10),
    Drill("lose-queue-leader", "the node that leads most queues with traffic", QUICK, lose_queue_leader, gap=10),
    Drill("partition-10", "a zone cut off for 10 s", HEALS, partition(10)),
    Drill("partition-60", "a zone cut off for 60 s", HEALS, partition(60)),
    Drill("partition-180", "a zone cut off for 180 s", HEALS, partition(180)),
    Drill("freeze", "a node's processes stand still for 60 s", f"the others serve; {HEALS}", freeze(60)),
    efs_drill("efs-stall-1", "one node's EFS stalls for 30 s", f"the others serve; {HEALS}", "stall", 1),
    efs_drill("efs-stall-3", "all nodes' EFS stalls for 30 s", HEALS, "stall", 3),
    efs_drill("efs-full", "one node's EFS is full for 30 s", f"the others serve; {HEALS}", "full", 1),
    efs_drill("efs-read-only", "one node's EFS is read-only for 30 s", f"the others serve; {HEALS}", "read-only", 1),
    Drill(
        "efs-dead",
        "one node's EFS is read-only for good",
        f"it asks for another instance; {NOTHING_LOST}",
        efs_dead,
        before=efs_way("through", 1),
        after=efs_way("direct", 1),
    ),
    Drill("consul-stop-1", "Consul stopped on one node for 60 s", UNNOTICED, consul_stop(1), gap=2),
    Drill("consul-stop-2", "Consul stopped on two nodes for 60 s", UNNOTICED, consul_stop(2), gap=2),
    Drill("consul-stop-3", "Consul stopped on three nodes for 60 s", UNNOTICED, consul_stop(3), gap=2),
    Drill("kill-rabbitmq", "RabbitMQ killed 8 times on one node", "systemd starts it each time", kill_rabbitmq),
    Drill("two-alive", "a replacement starts while its predecessor lives", "it waits at the fence", two_alive),
    Drill("die-at-every-step", "a replacement is lost at each step of its boot", NOTHING_LOST, die_at_every_step),
    Drill("empty-directory", "a node finds its directory empty", "refuses; `node rebuild` helps", empty_directory),
    Drill("roll", "all three replaced, one after the other", SMOOTH, roll, gentle=True, gap=2, balanced_gap=5),
    Drill("roll-at-once", "all three told to end at once", f"one at a time; {SMOOTH}", roll_at_once, False, 2, 5),
    Drill("roll-undrained", "the roll without draining, to compare", "no confirmed message lost", roll_undrained),
    Drill("random", "rounds of faults chosen by a seed", NOTHING_LOST, random_rounds),
)

BY_NAME = {drill.name: drill for drill in DRILLS}
