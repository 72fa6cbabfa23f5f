"""A queue's members have caught up when they hold what their leader had, whatever was added meanwhile."""

from typing import Any

import pytest

from node.broker import Broker, QuorumQueue
from node.catch_up import CatchUp
from node.loopback import Unreachable
from tests.unit.node.world import NODE, PEERS, USERS, World

NAMES = tuple(f"rabbit@{node}" for node in (NODE, *PEERS))
ORDERS, OTHER = (QuorumQueue(name, "/", NAMES, NAMES) for name in ("orders", "other"))


def member(name: str, last: Any, committed: int = 0, state: str = "follower") -> dict[str, Any]:
    return {"Node Name": name, "Raft State": state, "Last Log Index": last, "Commit Index": committed}


def stands(world: World, queue: QuorumQueue, leader: int, *followers: Any, committed: int | None = None) -> None:
    """The leader's log and those of its followers, by their last index."""
    answer = [member(NAMES[0], leader, leader if committed is None else committed, "leader")]
    answer += [member(name, last) for name, last in zip(NAMES[1:], followers, strict=True)]
    world.loopback.on(f"GET /api/queues/quorum/%2F/{queue.name}/status", answer)


@pytest.fixture
def broker() -> Broker:
    return Broker(USERS["administrator"])


def test_a_member_that_lacks_a_part_of_the_log_is_named_with_what_it_lacks(world: World, broker: Broker) -> None:
    stands(world, ORDERS, 1000, 1000, 400)
    behind = CatchUp().behind(broker, [ORDERS])
    assert behind == f"quorum queue orders: {NAMES[2]} is 600 log entries behind"


def test_under_traffic_a_member_has_to_pass_the_mark_and_no_more(world: World, broker: Broker) -> None:
    mine = CatchUp()
    stands(world, ORDERS, 1000, 1000, 400)
    assert mine.behind(broker, [ORDERS])
    stands(world, ORDERS, 5000, 4990, 999)
    assert mine.behind(broker, [ORDERS]) == f"quorum queue orders: {NAMES[2]} is 1 log entries behind"
    stands(world, ORDERS, 9000, 8990, 1000)
    assert mine.behind(broker, [ORDERS]) is None


def test_what_is_not_committed_yet_is_asked_of_nobody(world: World, broker: Broker) -> None:
    stands(world, ORDERS, 1000, 990, 990, committed=990)
    assert CatchUp().behind(broker, [ORDERS]) is None


def test_a_queue_that_has_passed_waits_for_the_others_unasked_and_the_next_round_is_a_new_one(
    world: World, broker: Broker
) -> None:
    mine = CatchUp()
    stands(world, ORDERS, 10, 10, 10)
    stands(world, OTHER, 10, 10, 9)
    assert "other" in str(mine.behind(broker, [ORDERS, OTHER]))
    stands(world, ORDERS, 99, 10, 10)
    stands(world, OTHER, 10, 10, 10)
    assert mine.behind(broker, [ORDERS, OTHER]) is None
    assert "orders" in str(mine.behind(broker, [ORDERS, OTHER]))


def test_the_members_of_a_node_that_leaves_do_not_matter(world: World, broker: Broker) -> None:
    stands(world, ORDERS, 1000, 1000, 400)
    assert CatchUp(without=NAMES[2]).behind(broker, [ORDERS]) is None
    assert CatchUp(without=NAMES[1]).behind(broker, [ORDERS])


@pytest.mark.parametrize("word", ["noproc", None, "-"])
def test_a_member_that_cannot_be_asked_is_behind(word: Any, world: World, broker: Broker) -> None:
    stands(world, ORDERS, 10, 10, word)
    assert f"{NAMES[2]} is 10 log entries behind" in str(CatchUp().behind(broker, [ORDERS]))


def test_a_queue_without_a_leader_is_waited_for(world: World, broker: Broker) -> None:
    world.loopback.on("GET /api/queues/quorum/%2F/orders/status", [member(name, 5, 5) for name in NAMES])
    assert CatchUp().behind(broker, [ORDERS]) == "quorum queue orders has no leader"


def test_a_queue_deleted_meanwhile_holds_nobody_up_and_no_answer_is_no_caught_up(world: World, broker: Broker) -> None:
    world.loopback.on("GET /api/queues/quorum/%2F/orders/status", {"error": "Object Not Found"}, status=404)
    assert CatchUp().behind(broker, [ORDERS]) is None
    world.loopback.on("GET /api/queues/quorum/%2F/orders/status", {"error": "timeout"}, status=500)
    with pytest.raises(Unreachable, match="HTTP 500"):
        CatchUp().behind(broker, [ORDERS])
