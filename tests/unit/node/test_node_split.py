"""A broker that stands alone beside a running cluster is restarted, and no other is."""

import pytest

from node.broker import Broker
from node.credentials import Login
from node.services import Services
from node.split import PAUSE_SECONDS, STEADY_SECONDS, Split
from tests.unit.node.world import NODE, PEERS, World

SELF, OTHERS = f"rabbit@{NODE}", [f"rabbit@{peer}" for peer in PEERS]
RESTART = ("systemctl", "restart", "--no-block", "rabbitmq-server.service")


class Alone:
    """A broker that sees nobody, and says that it is split from the others."""

    def __init__(self, world: World) -> None:
        self.world, self.running, self.partitions = world, {SELF: True} | dict.fromkeys(OTHERS, False), list(OTHERS)
        world.programs.on("systemctl", "restart")
        world.loopback.on(
            "GET /api/nodes",
            lambda: [
                {"name": name, "running": runs, "partitions": self.partitions if name == SELF else [SELF]}
                for name, runs in self.running.items()
            ],
        )
        broker = Broker(Login("monitoring", "secret", "1"))
        self.split = Split(NODE, 3, lambda: broker, Services(world.programs), world.clock)

    def pass_time(self, seconds: float) -> int:
        """Returns how often the broker was restarted in all."""
        for _ in range(int(seconds / 5)):
            self.split.check()
            self.world.clock.sleep(5)
        return len(self.world.programs.ran(*RESTART))


@pytest.fixture
def alone(world: World) -> Alone:
    return Alone(world)


def test_a_split_that_does_not_heal_by_itself_is_ended_by_a_restart(alone: Alone) -> None:
    assert alone.pass_time(STEADY_SECONDS) == 0
    assert alone.pass_time(10) == 1


def test_the_restart_gets_time_before_it_is_repeated(alone: Alone) -> None:
    assert alone.pass_time(PAUSE_SECONDS) == 1
    assert alone.pass_time(60) == 2


def test_the_side_with_the_majority_is_left_alone(alone: Alone) -> None:
    alone.running[OTHERS[0]] = True
    assert alone.pass_time(600) == 0


def test_a_node_whose_peers_are_merely_down_is_left_alone(alone: Alone) -> None:
    alone.partitions = []
    assert alone.pass_time(600) == 0


def test_a_broker_that_does_not_answer_is_left_alone_and_begins_anew(alone: Alone) -> None:
    alone.pass_time(STEADY_SECONDS)
    answer = alone.world.loopback.answers.pop("GET /api/nodes")
    alone.pass_time(600)
    alone.world.loopback.answers["GET /api/nodes"] = answer
    assert alone.pass_time(STEADY_SECONDS) == 0
