"""A machine and an AWS for the supervisor's tests, which note what is done to them."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lab.emulator import AccessPoint, Machine
from lab.paths import LabPaths
from lab.pki import Pki
from lab.supervisor import Base, Machinery, Supervisor

MACHINE = Machine(
    id="i-0000000a",
    name="node-a",
    group="node-a",
    state="pending",
    lifecycle_state="Pending",
    target_lifecycle_state="InService",
    address=IPv4Address("10.9.0.9"),
    availability_zone="eu-west-1a",
    subnet_id="subnet-1",
    subnet_cidr=IPv4Network("10.9.0.0/24"),
    vpc_id="vpc-1",
    vpc_cidr=IPv4Network("10.9.0.0/16"),
    image_id="ami-1",
    type="m7i.large",
    architecture="x86_64",
    launched=datetime(2026, 1, 1, tzinfo=UTC),
    user_data=b"",
    tags={},
    role="node",
    security_groups=(),
)


class FakeEmulator:
    """What the supervisor sees of AWS."""

    def __init__(self) -> None:
        self.by_id: dict[str, Machine] = {}
        self.points: list[AccessPoint] = []
        self.network = [("10.9.0.0/24", "eu-west-1a")]
        self.balancing: tuple[Any, Any] = ((), ())
        self.explained: dict[str, str] = {}
        self.held: list[tuple[str, float]] = []
        self.health: list[Any] = []
        self.advance: Callable[[], None] = lambda: None

    def put(self, machine: Machine, **changes: Any) -> None:
        self.by_id[machine.id] = replace(machine, **changes)

    def machines(self) -> list[Machine]:
        return list(self.by_id.values())

    def machine(self, instance_id: str) -> Machine | None:
        return self.by_id.get(instance_id)

    def subnets(self) -> list[tuple[str, str]]:
        return self.network

    def access_points(self) -> list[AccessPoint]:
        return self.points

    def load_balancers(self, _: Path) -> tuple[Any, Any]:
        return self.balancing

    def powered_on(self, instance_id: str) -> None:
        self.put(self.by_id[instance_id], state="running")

    def powered_off(self, instance_id: str) -> None:
        self.put(self.by_id[instance_id], state="terminated", address=None)

    def explain(self, instance_id: str, why: str) -> None:
        self.explained[instance_id] = why

    def hold_replacement(self, group: str, seconds: float) -> None:
        self.held.append((group, seconds))

    def report_health(self, health: Any) -> None:
        self.health.append(health)


class FakeHost:
    """A host which notes what is done with it."""

    def __init__(self, world: "World", spec: Any) -> None:
        self.world, self.spec = world, spec
        self.namespace = f"test-{spec.instance_id}"
        self.alive = False

    def _note(self, what: str) -> None:
        self.world.done.append(f"{what} {self.spec.instance_id}")

    def prepare(self) -> None:
        self._note("prepare")
        self.world.hosts[self.spec.instance_id] = self

    def boot(self) -> None:
        if self.world.boot_error:
            raise self.world.boot_error
        self._note("boot")
        self.alive = True

    def stop(self, timeout: float) -> None:
        self.world.stopping.wait(5)
        self._note("stop")
        self.discard()

    def power_loss(self) -> None:
        self._note("power loss")
        self.discard()

    def discard(self) -> None:
        self._note("discard")
        self.alive = False
        self.world.hosts.pop(self.spec.instance_id, None)


class World:
    """A machine for the supervisor to work on."""

    def __init__(self, tmp_path: Path) -> None:
        self.done: list[str] = []
        self.hosts: dict[str, FakeHost] = {}
        self.boot_error: Exception | None = None
        self.stopping = threading.Event()
        self.stopping.set()
        self.networks: list[Any] = []
        self.setups: list[Any] = []
        self.proxy = SimpleNamespace(running=True, apply=self.setups.append)
        self.checks = SimpleNamespace(follow=lambda _: {})
        self.emulator = FakeEmulator()
        metadata = SimpleNamespace(
            serve=lambda instance_id, namespace: self.done.append(f"serve {instance_id}"),
            withdraw=lambda instance_id: self.done.append(f"withdraw {instance_id}"),
        )
        machinery = Machinery(
            make_host=lambda spec: FakeHost(self, spec),
            hosts=lambda: list(self.hosts.values()),
            raise_network=self.networks.append,
            metadata=metadata,
            proxy=self.proxy,
            checks=self.checks,
        )
        paths = LabPaths("test", "eu-west-1", 4599, IPv4Network("10.9.0.0/16"), tmp_path / "state", tmp_path / "cache")
        pki = Pki(b"", tmp_path / "endpoints.pem", tmp_path / "balancers.pem")
        self.paths = paths
        self.base = Base(pki, image=tmp_path / "image", layer=tmp_path / "layer", report="host image: ready")
        self.supervisor = Supervisor(paths, self.emulator, machinery, self.base)  # type: ignore[arg-type]

    def rounds(self, number: int = 3) -> None:
        """Some rounds, each with what it began brought to its end."""
        for _ in range(number):
            self.supervisor.step()
            self.settle()

    def settle(self) -> None:
        for work in list(self.supervisor._at_work.values()):
            work.result(5)
