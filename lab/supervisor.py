"""The supervisor: makes what runs on this machine follow what the emulated AWS says, several times a second.

It keeps no plan of its own. Every round compares the emulator's instances, access points and load balancers with the
hosts, directories and proxy that are there, and does what is missing. What takes long (starting and stopping a host) is
done by a thread each, and meanwhile the others go on.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from lab.emulator import Emulator, Machine
from lab.health import Health, marked
from lab.host import HostSpec
from lab.loadbalancer import Front, Setup, TargetGroup
from lab.paths import LabPaths
from lab.pki import Pki
from lab.system import LabError

log = logging.getLogger("lab.supervisor")

ROUND = 0.2
"""Seconds between two rounds."""

STOP_LIMIT = 60.0
"""Seconds a host has to shut down in order, before its power is cut."""

RETRY_PAUSE = 1.0
"""Seconds until what failed with a host is tried again."""

FAILED_BOOT_PAUSE = 5.0
"""Seconds until Auto Scaling tries again after a host that could not be started."""


class HostLike(Protocol):
    """What the supervisor does with a host: `lab.host.Host`."""

    spec: HostSpec
    namespace: str

    @property
    def alive(self) -> bool: ...
    def prepare(self) -> None: ...
    def boot(self) -> None: ...
    def stop(self, timeout: float) -> None: ...
    def power_loss(self) -> None: ...
    def discard(self) -> None: ...


class Proxy(Protocol):
    """What the supervisor does with the load balancers: `lab.haproxy.HAProxy`."""

    @property
    def running(self) -> bool: ...
    def apply(self, setup: Setup) -> None: ...


class HealthChecks(Protocol):
    """What the supervisor does with the load balancers' health checks: `lab.health.Checker`."""

    def follow(self, groups: Sequence[TargetGroup]) -> Health: ...


class Metadata(Protocol):
    """What the supervisor does with the metadata services: `lab.imds.MetadataService`."""

    def serve(self, instance_id: str, namespace: str) -> None: ...
    def withdraw(self, instance_id: str) -> None: ...


@dataclass(frozen=True)
class Machinery:
    """How the supervisor gets at this machine. Tests give it another one."""

    make_host: Callable[[HostSpec], HostLike]
    hosts: Callable[[], Sequence[HostLike]]
    raise_network: Callable[[Sequence[tuple[str, str]]], None]
    metadata: Metadata
    proxy: Proxy
    checks: HealthChecks


@dataclass
class Base:
    """What every host is made of. `image` and `layer` come when the image has been built."""

    pki: Pki
    image: Path | None = None
    layer: Path | None = None
    report: str = "host image: waiting"


@dataclass(frozen=True)
class TargetState:
    """One target in one target group."""

    group: str
    port: int
    state: str
    detail: str


@dataclass
class Supervisor:
    """One lab's supervisor. `step` is one round; `run` goes on until `stop` is set."""

    paths: LabPaths
    emulator: Emulator
    machinery: Machinery
    base: Base
    problems: dict[str, str] = field(default_factory=dict)
    targets: dict[str, list[TargetState]] = field(default_factory=dict)
    """By instance id."""

    def __post_init__(self) -> None:
        self._at_work: dict[str, Future[None]] = {}
        self._not_before: dict[str, float] = {}
        self._workers = ThreadPoolExecutor(max_workers=16, thread_name_prefix="host")
        self._subnets: list[tuple[str, str]] = []
        self._setup: Setup | None = None
        self._lock = threading.Lock()

    def run(self, stop: threading.Event) -> None:
        """Supervise until `stop` is set."""
        while not stop.wait(ROUND):
            self.step()

    def step(self) -> None:
        """One round. A part that fails is tried again in the next one, and does not keep the others from their work."""
        self._part("auto scaling", self.emulator.advance)
        self._part("network", self._follow_subnets)
        self._part("file systems", self._follow_access_points)
        self._part("hosts", self._follow_instances)
        self._part("load balancers", self._follow_load_balancers)

    def kill(self, instance_id: str, replace_after: float = 0) -> None:
        """Power loss: the host is gone at once, and EC2 says so. Auto Scaling replaces it after so many seconds."""
        machine = self.emulator.machine(instance_id)
        if machine is None or machine.state == "terminated":
            raise LabError(f"{instance_id} is not an instance with a host")
        if replace_after:
            self.emulator.hold_replacement(machine.group, replace_after)
        deadline = time.monotonic() + STOP_LIMIT
        while (work := self._begin(machine, self._power_loss)) is None:
            if time.monotonic() > deadline:
                raise LabError(f"{machine.name} ({instance_id}) is being started or stopped, and that does not end")
            time.sleep(0.05)
        work.result()

    # -- parts of a round --------------------------------------------------------------------------------------------

    def _part(self, name: str, action: Callable[[], None]) -> None:
        try:
            action()
        except LabError as error:
            self._problem(name, str(error))
        except Exception as error:
            if self._problem(name, f"{type(error).__name__}: {error}"):
                log.exception("%s", name)
        else:
            if self.problems.pop(name, None):
                log.info("%s: works again", name)

    def _problem(self, name: str, what: str) -> bool:
        """Note a problem; True when it is a new one."""
        is_new = self.problems.get(name) != what
        if is_new:
            log.error("%s: %s", name, what)
        self.problems[name] = what
        return is_new

    def _follow_subnets(self) -> None:
        subnets = self.emulator.subnets()
        if subnets and subnets != self._subnets:
            self.machinery.raise_network(subnets)
            self._subnets = subnets

    def _follow_access_points(self) -> None:
        """A directory for each path; an access point is a link to it, so that two with one path show the same files."""
        for point in self.emulator.access_points():
            root = self.paths.efs / point.file_system / "root"
            directory = root / point.path.lstrip("/")
            link = self.paths.efs / point.file_system / point.id
            if not link.is_symlink():
                directory.mkdir(parents=True, exist_ok=True)
                link.symlink_to(os.path.relpath(directory, link.parent))

    def _follow_instances(self) -> None:
        hosts = {host.spec.instance_id: host for host in self.machinery.hosts()}
        with self._lock:
            self._at_work = {key: work for key, work in self._at_work.items() if not work.done()}
            busy = set(self._at_work)
        machines = {machine.id: machine for machine in self.emulator.machines()}
        busy |= {key for key, moment in self._not_before.items() if time.monotonic() < moment}
        for machine in machines.values():
            if machine.id in busy:
                continue
            host = hosts.get(machine.id)
            if machine.state in ("pending", "running"):
                if host is None:
                    self._start_when_ready(machine)
                elif not host.alive:
                    self._begin(machine, self._died)
            elif machine.state == "shutting-down":
                self._begin(machine, self._stop)
        for instance_id, host in hosts.items():
            machine_or_none = machines.get(instance_id)
            if instance_id not in busy and (machine_or_none is None or machine_or_none.state == "terminated"):
                self._discard(host)

    def _start_when_ready(self, machine: Machine) -> None:
        if machine.state == "running":  # it had a host, and that is gone with all its traces
            self.emulator.powered_off(machine.id)
        elif self.base.layer is None:
            self.emulator.explain(machine.id, self.base.report)
        elif self._subnets:
            self._begin(machine, self._start)

    def _follow_load_balancers(self) -> None:
        if not self._subnets:
            return
        balancers, groups = self.emulator.load_balancers(self.base.pki.load_balancers)
        health = self.machinery.checks.follow(groups)
        front = Front(str(self.paths.resolver), self.base.pki.endpoints, self.paths.endpoint_port)
        setup = Setup(balancers, marked(groups, health), front)
        if setup != self._setup or not self.machinery.proxy.running:
            self._setup = None  # until it has been applied
            self.machinery.proxy.apply(setup)
            self._setup = setup
        self.emulator.report_health(
            {group: {target: state.state for target, state in targets.items()} for group, targets in health.items()}
        )
        self.targets = _by_instance(groups, health)

    # -- a host's life, each in a thread of its own ------------------------------------------------------------------

    def _begin(self, machine: Machine, work: Callable[[Machine], None]) -> "Future[None] | None":
        """Let a thread work on this machine's host; None when one is at it already."""
        with self._lock:
            before = self._at_work.get(machine.id)
            if before is not None and not before.done():
                return None
            future = self._at_work[machine.id] = self._workers.submit(self._guarded, machine, work)
            return future

    def _guarded(self, machine: Machine, work: Callable[[Machine], None]) -> None:
        """Whatever happens here is logged, and tried again in a later round: nothing else would replace the node."""
        try:
            work(machine)
            self.problems.pop(machine.name, None)
        except Exception as error:
            log.error("%s (%s): %s", machine.name, machine.id, error, exc_info=not isinstance(error, LabError))
            self.problems[machine.name] = f"{machine.id}: {error}"
            self._not_before[machine.id] = time.monotonic() + RETRY_PAUSE
            try:
                self._give_up(machine)
            except Exception:
                log.exception("%s (%s): its host is left as it is, for now", machine.name, machine.id)

    def _give_up(self, machine: Machine) -> None:
        self.emulator.hold_replacement(machine.group, FAILED_BOOT_PAUSE)
        if host := self._host(machine.id):
            with contextlib.suppress(LabError):
                self._discard(host)
        host = self._host(machine.id)
        if host is None or not host.alive:  # else EC2 must not say that it is gone; a later round tries again
            self.emulator.powered_off(machine.id)

    def _start(self, machine: Machine) -> None:
        assert machine.address is not None
        assert self.base.image is not None
        assert self.base.layer is not None
        host = self.machinery.make_host(
            HostSpec(
                instance_id=machine.id,
                address=machine.address,
                subnet=machine.subnet_cidr,
                az=machine.availability_zone,
                image=self.base.image,
                layer=self.base.layer,
                efs=self.paths.efs,
            )
        )
        host.prepare()
        self.machinery.metadata.serve(machine.id, host.namespace)
        host.boot()
        self.emulator.powered_on(machine.id)
        log.info("%s (%s): host started at %s", machine.name, machine.id, machine.address)

    def _stop(self, machine: Machine) -> None:
        if host := self._host(machine.id):
            host.stop(STOP_LIMIT)
            self.machinery.metadata.withdraw(machine.id)
        self.emulator.powered_off(machine.id)
        log.info("%s (%s): host stopped", machine.name, machine.id)

    def _power_loss(self, machine: Machine) -> None:
        if host := self._host(machine.id):
            self.machinery.metadata.withdraw(machine.id)
            host.power_loss()
        self.emulator.powered_off(machine.id)
        log.info("%s (%s): power cut", machine.name, machine.id)

    def _died(self, machine: Machine) -> None:
        if host := self._host(machine.id):
            self._discard(host)
        self.emulator.powered_off(machine.id)
        log.warning("%s (%s): the host ended by itself", machine.name, machine.id)

    def _discard(self, host: HostLike) -> None:
        self.machinery.metadata.withdraw(host.spec.instance_id)
        host.discard()

    def _host(self, instance_id: str) -> HostLike | None:
        return next((host for host in self.machinery.hosts() if host.spec.instance_id == instance_id), None)


def _by_instance(groups: Sequence[TargetGroup], health: Health) -> dict[str, list[TargetState]]:
    found: dict[str, list[TargetState]] = {}
    for group in groups:
        for instance_id, target in health.get(group.name, {}).items():
            found.setdefault(instance_id, []).append(TargetState(group.name, group.port, target.state, target.detail))
    return found
