"""Leaders are spread again after trouble that no boot followed, and by one node only."""

from typing import Any

import pytest

from node.balance import STEADY_SECONDS, LeaderBalance, is_uneven
from node.broker import Broker, QuorumQueue
from node.credentials import Login
from node.loopback import Answer
from tests.unit.node.world import NODE, PEERS, World

NODES = sorted((NODE, *PEERS))
NAMES = [f"rabbit@{node}" for node in NODES]


def queue(name: str, leader: str, online: int = 3) -> dict[str, Any]:
    return {"name": name, "vhost": "/", "type": "quorum", "members": NAMES, "online": NAMES[:online], "leader": leader}


class Cluster:
    """A cluster of three whose queues all are led by the first node, until a rebalance is asked for."""

    def __init__(self, world: World) -> None:
        self.world, self.asked, self.locked = world, 0, False
        self.queues = [queue(f"q{number}", NAMES[0]) for number in range(6)]
        self.running = dict.fromkeys(NAMES, True)
        self.status = [
            {"Node Name": name, "Raft State": state, "Last Log Index": 9, "Commit Index": 9}
            for name, state in zip(NAMES, ("leader", "follower", "follower"), strict=True)
        ]
        loopback = world.loopback
        loopback.on("GET /api/queues", lambda: self.queues)
        loopback.on("GET /api/nodes", lambda: [{"name": name, "running": up} for name, up in self.running.items()])
        for number in range(6):
            loopback.on(f"GET /api/queues/quorum/%2F/q{number}/status", lambda: self.status)
        loopback.answers["POST /api/rebalance/queues"] = self._rebalance

    def _rebalance(self, _: Any) -> Answer:
        self.asked += 1
        return Answer(204, "")

    def pass_time(self, node: str, seconds: float) -> None:
        broker = Broker(Login("administrator", "secret", "1"))
        mine = LeaderBalance(node, NODES, lambda: broker, lambda: self.locked, self.world.clock)
        for _ in range(int(seconds / 5)):
            mine.check()
            self.world.clock.sleep(5)


@pytest.fixture
def cluster(world: World) -> Cluster:
    return Cluster(world)


def test_uneven_leaders_of_a_whole_cluster_are_spread_by_the_first_node(cluster: Cluster) -> None:
    cluster.pass_time(NODES[0], STEADY_SECONDS)
    assert cluster.asked == 0
    cluster.pass_time(NODES[0], STEADY_SECONDS + 10)
    assert cluster.asked == 1


def test_a_leader_is_not_moved_to_a_member_that_still_catches_up(cluster: Cluster) -> None:
    cluster.status[2]["Last Log Index"] = 8
    cluster.pass_time(NODES[0], 60)
    assert cluster.asked == 0
    cluster.status[2]["Last Log Index"] = 9
    cluster.pass_time(NODES[0], STEADY_SECONDS + 10)
    assert cluster.asked == 1


def test_it_is_not_asked_for_again_and_again(cluster: Cluster) -> None:
    cluster.pass_time(NODES[0], 300)
    assert 2 <= cluster.asked <= 3


@pytest.mark.parametrize("node", NODES[1:])
def test_the_other_nodes_leave_it_to_the_first(cluster: Cluster, node: str) -> None:
    cluster.pass_time(node, 300)
    assert cluster.asked == 0


def test_nothing_is_moved_while_a_node_is_away_a_queue_is_short_or_a_node_is_replaced(cluster: Cluster) -> None:
    cluster.running[NAMES[2]] = False
    cluster.pass_time(NODES[0], 60)
    cluster.running[NAMES[2]] = True
    cluster.queues[3] = queue("q3", NAMES[0], online=2)
    cluster.pass_time(NODES[0], 60)
    cluster.queues[3] = queue("q3", NAMES[0])
    cluster.locked = True
    cluster.pass_time(NODES[0], 60)
    assert cluster.asked == 0


def test_a_share_and_one_more_is_even_enough() -> None:
    def led(*counts: int) -> list[QuorumQueue]:
        leaders = [name for name, count in zip(NAMES, counts, strict=True) for _ in range(count)]
        return [QuorumQueue("q", "/", (), (), leader) for leader in leaders]

    assert not is_uneven(led(2, 2, 2), NODES)
    assert not is_uneven(led(3, 2, 1), NODES)
    assert is_uneven(led(4, 1, 1), NODES)
    assert not is_uneven([], NODES)
