"""A broker whose process lives and whose application does not is restarted, and no other is."""

import pytest

from node.broker import Broker
from node.commands import Result
from node.consul import Consul
from node.credentials import Login
from node.services import Services
from node.stuck import PAUSE_SECONDS, STEADY_SECONDS, Stuck
from tests.unit.node.world import NODE, PEERS, World

RESTART = ("systemctl", "restart", "--no-block", "rabbitmq-server.service")


class Zombie:
    """systemd calls the unit active, its API refuses every login, and a peer is alive."""

    def __init__(self, world: World) -> None:
        self.world, self.state, self.peers_alive = world, "active", True
        world.programs.on("systemctl", "restart")
        world.programs.react("systemctl", "is-active", reaction=lambda _: Result(0, self.state))
        world.loopback.on("GET /api/nodes", {"error": "not_authorised"}, status=401)
        world.loopback.on(
            "GET /v1/agent/members",
            lambda: (
                [{"Name": NODE, "Addr": "10.0.0.1", "Status": 1}]
                + [{"Name": peer, "Addr": "10.0.0.2", "Status": 1 if self.peers_alive else 4} for peer in PEERS]
            ),
        )
        broker = Broker(Login("monitoring", "secret", "1"))
        self.stuck = Stuck(NODE, lambda: broker, Consul(), Services(world.programs), world.clock)

    def pass_time(self, seconds: float) -> int:
        """Returns how often the broker was restarted in all."""
        for _ in range(int(seconds / 10)):
            self.stuck.check()
            self.world.clock.sleep(10)
        return len(self.world.programs.ran(*RESTART))


@pytest.fixture
def zombie(world: World) -> Zombie:
    return Zombie(world)


def test_a_broker_that_does_not_run_in_a_living_process_is_restarted_after_a_minute(zombie: Zombie) -> None:
    assert zombie.pass_time(STEADY_SECONDS) == 0
    assert zombie.pass_time(20) == 1
    assert zombie.pass_time(PAUSE_SECONDS - 40) == 1
    assert zombie.pass_time(60) == 2


def test_a_broker_that_says_that_it_does_not_run_is_restarted_too(zombie: Zombie) -> None:
    zombie.world.loopback.on("GET /api/nodes", [{"name": f"rabbit@{NODE}", "running": False}])
    assert zombie.pass_time(STEADY_SECONDS + 20) == 1


def test_a_broker_that_runs_is_left_alone(zombie: Zombie) -> None:
    zombie.world.loopback.on("GET /api/nodes", [{"name": f"rabbit@{NODE}", "running": True}])
    assert zombie.pass_time(600) == 0


def test_what_systemd_is_starting_or_has_stopped_is_systemds(zombie: Zombie) -> None:
    for state in ("activating", "deactivating", "inactive", "failed"):
        zombie.state = state
        assert zombie.pass_time(600) == 0


def test_a_broker_that_pauses_because_it_is_alone_is_left_alone(zombie: Zombie) -> None:
    zombie.peers_alive = False
    assert zombie.pass_time(600) == 0
    zombie.peers_alive = True
    assert zombie.pass_time(STEADY_SECONDS) == 0
