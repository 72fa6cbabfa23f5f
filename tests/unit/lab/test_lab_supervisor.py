"""The supervisor makes hosts, directories and proxy follow what the emulated AWS says."""

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.emulator import AccessPoint
from lab.health import TargetHealth
from lab.loadbalancer import HealthCheck, Listener, LoadBalancer, Target, TargetGroup
from lab.system import LabError
from tests.unit.lab.supervised_world import MACHINE, FakeHost, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_pending_instance_gets_a_host_whose_metadata_is_served_before_it_boots(world: World) -> None:
    world.emulator.put(MACHINE)
    world.rounds()
    assert world.done == ["prepare i-0000000a", "serve i-0000000a", "boot i-0000000a"]
    assert world.emulator.by_id[MACHINE.id].state == "running"
    spec = world.hosts[MACHINE.id].spec
    assert (spec.address, spec.subnet, spec.az) == (MACHINE.address, MACHINE.subnet_cidr, "eu-west-1a")
    assert (spec.image, spec.layer, spec.efs) == (world.base.image, world.base.layer, world.paths.efs)


def test_hosts_wait_for_their_image_and_say_so(world: World) -> None:
    layer, world.base.layer, world.base.report = world.base.layer, None, "host image: package lists"
    world.emulator.put(MACHINE)
    world.rounds()
    assert world.done == []
    assert world.emulator.explained == {MACHINE.id: "host image: package lists"}
    world.base.layer = layer
    world.rounds()
    assert "boot i-0000000a" in world.done


def test_hosts_wait_for_their_network(world: World) -> None:
    world.emulator.network = []
    world.emulator.put(MACHINE)
    world.rounds()
    assert (world.done, world.networks) == ([], [])
    world.emulator.network = [("10.9.0.0/24", "eu-west-1a")]
    world.rounds()
    assert world.networks == [[("10.9.0.0/24", "eu-west-1a")]]
    assert "boot i-0000000a" in world.done


def test_an_instance_that_shuts_down_is_terminated_when_its_host_has_stopped_and_not_before(world: World) -> None:
    world.emulator.put(MACHINE)
    world.rounds()
    world.stopping.clear()
    world.emulator.put(world.emulator.by_id[MACHINE.id], state="shutting-down")
    world.supervisor.step()
    world.supervisor.step()
    assert world.emulator.by_id[MACHINE.id].state == "shutting-down"
    world.stopping.set()
    world.settle()
    assert world.emulator.by_id[MACHINE.id].state == "terminated"
    assert world.done.count("stop i-0000000a") == 1
    assert world.hosts == {}


def test_a_host_that_takes_long_to_stop_keeps_no_other_waiting(world: World) -> None:
    world.emulator.put(MACHINE)
    world.rounds()
    world.stopping.clear()
    world.emulator.put(world.emulator.by_id[MACHINE.id], state="shutting-down")
    world.emulator.put(replace(MACHINE, id="i-0000000b", name="node-b"))
    world.supervisor.step()
    world.supervisor._at_work["i-0000000b"].result(5)
    assert "boot i-0000000b" in world.done
    assert "stop i-0000000a" not in world.done
    world.stopping.set()


def test_a_host_that_ends_by_itself_is_a_terminated_instance(world: World) -> None:
    world.emulator.put(MACHINE)
    world.rounds()
    world.hosts[MACHINE.id].alive = False
    world.rounds()
    assert world.emulator.by_id[MACHINE.id].state == "terminated"
    assert world.hosts == {}
    assert world.done[-2:] == ["withdraw i-0000000a", "discard i-0000000a"]


def test_a_host_that_cannot_boot_ends_its_instance_and_leaves_nothing(world: World) -> None:
    world.boot_error = LabError("no space left")
    world.emulator.put(MACHINE)
    world.rounds()
    assert world.emulator.by_id[MACHINE.id].state == "terminated"
    assert world.hosts == {}
    assert "no space left" in world.supervisor.problems["node-a"]
    assert world.emulator.held == [("node-a", 5.0)]


def test_an_instance_whose_host_cannot_be_stopped_is_not_called_terminated(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.emulator.put(MACHINE)
    world.rounds()

    def refuse(*_: object) -> None:
        raise LabError("busy")

    def refuse_and_note(*_: object) -> None:
        world.done.append("busy")
        refuse()

    with monkeypatch.context() as patch:
        patch.setattr(FakeHost, "stop", refuse_and_note)
        patch.setattr(FakeHost, "discard", refuse)
        world.emulator.put(world.emulator.by_id[MACHINE.id], state="shutting-down")
        world.rounds()
        assert world.emulator.by_id[MACHINE.id].state == "shutting-down"
        assert "busy" in world.supervisor.problems["node-a"]
        assert world.done.count("busy") == 1  # the next attempt comes a second later
    world.supervisor._not_before.clear()
    world.rounds(1)
    assert world.emulator.by_id[MACHINE.id].state == "terminated"
    assert world.supervisor.problems == {}


def test_a_surprise_in_the_middle_of_another_is_logged_and_the_node_is_replaced_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.boot_error = MemoryError("first")
    world.emulator.put(MACHINE)

    def second(*_: object) -> None:
        raise RuntimeError("second")

    with monkeypatch.context() as patch:
        patch.setattr(FakeHost, "discard", second)
        world.rounds(1)
    assert [str(r.exc_info[1]) for r in caplog.records if r.exc_info and r.exc_info[1]] == ["first", "second"]
    assert world.supervisor.problems == {"node-a": "i-0000000a: first"}
    world.boot_error = None
    world.supervisor._not_before.clear()
    world.rounds()
    assert world.emulator.by_id[MACHINE.id].state == "terminated"  # and Auto Scaling launches the next one
    assert world.supervisor.problems == {}


def test_a_host_whose_instance_is_unknown_is_removed(world: World) -> None:
    world.emulator.put(MACHINE)
    world.rounds()
    world.emulator.by_id.clear()
    world.rounds()
    assert world.hosts == {}


def test_a_power_cut_takes_the_host_at_once_and_holds_its_replacement(world: World) -> None:
    world.emulator.put(MACHINE)
    world.rounds()
    world.supervisor.kill(MACHINE.id, replace_after=45)
    assert world.done[-3:] == ["withdraw i-0000000a", "power loss i-0000000a", "discard i-0000000a"]
    assert world.emulator.by_id[MACHINE.id].state == "terminated"
    assert world.emulator.held == [("node-a", 45)]
    with pytest.raises(LabError, match="not an instance with a host"):
        world.supervisor.kill(MACHINE.id)


def test_a_power_cut_waits_for_whoever_works_on_the_host(world: World) -> None:
    world.emulator.put(MACHINE)
    world.rounds()
    world.stopping.clear()
    world.emulator.put(world.emulator.by_id[MACHINE.id], state="shutting-down")
    world.supervisor.step()
    threading.Timer(0.2, world.stopping.set).start()
    world.supervisor.kill(MACHINE.id)
    assert "stop i-0000000a" in world.done
    assert world.emulator.by_id[MACHINE.id].state == "terminated"


def test_access_points_with_one_path_show_one_directory(world: World) -> None:
    world.emulator.points = [
        AccessPoint("fs-1", "fsap-1", "/nodes/a"),
        AccessPoint("fs-1", "fsap-2", "/nodes/b"),
        AccessPoint("fs-1", "fsap-3", "/nodes/a"),
    ]
    world.rounds()
    (world.paths.efs / "fs-1/fsap-1/file").write_text("kept")
    world.rounds()
    assert (world.paths.efs / "fs-1/fsap-3/file").read_text() == "kept"
    assert list((world.paths.efs / "fs-1/fsap-2").iterdir()) == []


def test_a_part_that_fails_is_reported_once_and_keeps_no_other_from_its_work(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise RuntimeError("out of order")

    world.emulator.advance = broken
    world.emulator.put(MACHINE)
    world.rounds()
    assert "boot i-0000000a" in world.done
    assert world.supervisor.problems == {"auto scaling": "RuntimeError: out of order"}
    assert len([r for r in caplog.records if r.levelname == "ERROR" and r.exc_info is None]) == 1
    world.emulator.advance = lambda: None
    world.rounds()
    assert world.supervisor.problems == {}


def _balancing(*targets: Target) -> tuple[Any, Any]:
    group = TargetGroup("amqp", "TCP", 5672, HealthCheck(), targets)
    return (LoadBalancer("nlb", "127.77.1.10", (Listener(5672, "TCP", "amqp"),)),), (group,)


def test_the_proxy_is_told_when_something_changed_and_only_then(world: World) -> None:
    world.emulator.balancing = _balancing()
    world.rounds(4)
    assert len(world.setups) == 1
    world.emulator.balancing = _balancing(Target("i-0000000a", "10.9.0.9"))
    world.rounds(4)
    assert [len(setup.target_groups[0].targets) for setup in world.setups] == [0, 1]
    front = world.setups[-1].front
    assert (front.address, front.emulator_port) == ("10.9.0.2", 4599)


def test_a_proxy_that_ended_or_refused_is_told_again(world: World) -> None:
    world.rounds(2)
    world.proxy.running = False
    world.rounds(1)
    assert len(world.setups) == 2
    world.proxy.running = True
    refused = iter([LabError("port taken"), None])

    def apply(setup: Any) -> None:
        world.setups.append(setup)
        if (error := next(refused)) is not None:
            raise error

    world.proxy.apply = apply
    world.emulator.balancing = _balancing()
    world.rounds(1)
    assert world.supervisor.problems == {"load balancers": "port taken"}
    world.rounds(1)
    assert world.supervisor.problems == {}
    assert len(world.setups) == 4


def test_a_proxy_that_refused_a_change_is_told_even_what_it_did_before(world: World) -> None:
    world.rounds(1)

    def refuse(_: Any) -> None:
        raise LabError("port taken")

    told, world.proxy.apply = world.proxy.apply, refuse
    world.emulator.balancing = _balancing()
    world.rounds(1)
    world.proxy.apply, world.emulator.balancing = told, ((), ())
    world.rounds(1)
    assert [len(setup.balancers) for setup in world.setups] == [0, 0]


def test_what_the_proxy_finds_out_about_targets_reaches_aws_and_the_status(world: World) -> None:
    world.emulator.balancing = _balancing(Target("i-0000000a", "10.9.0.9"))
    world.checks.follow = lambda _: {"amqp": {"i-0000000a": TargetHealth("healthy", "HTTP 200")}}
    world.rounds(1)
    assert [target.healthy for target in world.setups[-1].target_groups[0].targets] == [True]
    world.checks.follow = lambda _: {"amqp": {"i-0000000a": TargetHealth("unhealthy", "HTTP 503")}}
    world.rounds(1)
    assert [target.healthy for target in world.setups[-1].target_groups[0].targets] == [False]
    assert world.emulator.health[-1] == {"amqp": {"i-0000000a": "unhealthy"}}
    (target,) = world.supervisor.targets["i-0000000a"]
    assert (target.group, target.port, target.state) == ("amqp", 5672, "unhealthy")


def test_the_loop_ends_when_it_is_told_to(world: World) -> None:
    stop = threading.Event()
    loop = threading.Thread(target=world.supervisor.run, args=(stop,))
    world.emulator.put(MACHINE)
    loop.start()
    deadline = time.monotonic() + 5
    while "boot i-0000000a" not in world.done and time.monotonic() < deadline:
        time.sleep(0.01)
    stop.set()
    loop.join(2)
    assert not loop.is_alive()
    assert "boot i-0000000a" in world.done
