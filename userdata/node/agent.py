"""The node agent: small chores, each in a thread of its own so that none waits for another's time limit."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from node import config, names, registration, unfit
from node.aws import Aws, AwsError, instance_state
from node.balance import LeaderBalance
from node.broker import Broker
from node.catch_up import CatchUp
from node.clock import Clock
from node.consul import Consul
from node.credentials import NotStored, stored
from node.departure import Departure, LockQueue
from node.errors import NotYet, Refusal
from node.guard import Guard
from node.health import Health
from node.imds import Imds
from node.journal import log
from node.leaving_node import HostNode
from node.lifecycle_hooks import HEARTBEAT_EVERY_SECONDS, Hook
from node.lock import MaintenanceLock
from node.loopback import Unreachable
from node.names import NameKeeper
from node.ownership import Ownership, read_record
from node.paths import Paths
from node.raft import RaftAddresses
from node.ready import missing_nodes
from node.registration import Registration
from node.rejoin import Rejoin
from node.report import Report
from node.revival import Revival
from node.services import Services
from node.split import Split
from node.storage import is_mounted
from node.stuck import Stuck
from node.table import Table
from node.targets import Targets
from node.unfit import Unfit

NAMES_SECONDS = 1.0
REJOIN_SECONDS = 2.0
RAFT_SECONDS = 1.0
REGISTRATION_SECONDS = 10.0
BALANCE_SECONDS = 15.0
HEALTH_SECONDS = 5.0
OWNERSHIP_SECONDS = 30.0
LIFECYCLE_SECONDS = 2.0
SPLIT_SECONDS = 5.0
STUCK_SECONDS = 10.0
SERVICES_SECONDS = 10.0
UNFIT_SECONDS = 15.0

TARGET_STATE = "autoscaling/target-lifecycle-state"
"""Metadata that says `Terminated` once the group's terminating hook holds the instance."""

REPEATED_ERROR_SECONDS = 60.0
"""The same error of a chore is logged at most this often."""


class Agent:
    """All chores of one host."""

    def __init__(self, paths: Paths, clock: Clock, imds: Imds, aws: Aws, services: Services) -> None:
        self._paths, self._clock, self._imds, self._aws, self._services = paths, clock, imds, aws, services
        self._instance = config.load_instance(paths)
        self._cluster = config.load_cluster(paths, self._instance)
        self._instance_id = imds.must("instance-id")
        own = {self._instance.node: imds.must("local-ipv4")}
        nodes, consul = self._cluster.node_names, Consul()
        self._table = Table(aws.dynamodb, self._instance.table)
        self._ownership = Ownership(self._table, self._instance.node, self._instance_id, clock)
        self._catch_up = CatchUp(without=f"rabbit@{self._instance.node}")
        self._node = HostNode(paths, services, self._complete, self._writes, clock)
        self._to_save: queue.Queue[Mapping[str, str]] = queue.Queue()
        self._names = NameKeeper(paths.hosts, nodes, own, self._table, clock, self._to_save.put, consul)
        peers = [name for name in nodes if name not in own]
        self._rejoin = Rejoin(peers, clock, consul)
        self._raft = RaftAddresses(self._instance.node, consul, clock)
        lock = MaintenanceLock(self._table, self._instance.node, self._instance_id, clock)
        self._balance = LeaderBalance(
            self._instance.node,
            nodes,
            lambda: self._broker_as("administrator"),
            lambda: lock.holder() is not None,
            clock,
        )
        self._health = Health(
            self._table,
            self._instance.node,
            self._instance_id,
            paths.mount,
            lambda: is_mounted(paths),
            self._monitor,
            consul,
            clock,
        )
        self._registration = Registration(registration.service(self._instance.node), self._broker_serves, consul)
        self._guard = Guard(self._ownership, self._instance_id, self._node, services, lambda: is_mounted(paths))
        self._stuck = Stuck(self._instance.node, self._monitor, consul, services, clock)
        self._unfit = Unfit(self._instance_id, peers, self._health, self._table, lock, lambda: aws.autoscaling, clock)
        self._split = Split(self._instance.node, len(nodes), self._monitor, services, clock)
        self._revival = Revival(services, self._ownership, clock)
        self._hook = Hook(
            lambda: aws.autoscaling, self._instance.terminate_hook, self._instance.asg_name, self._instance_id, clock
        )
        self._targets = Targets(lambda: aws.load_balancing, self._instance.target_groups, self._instance_id)
        self._leaving, self._stopping = threading.Event(), threading.Event()
        self._departed = self._left = False

    def run(self) -> None:
        """Start every chore; never returns."""
        chores: list[tuple[str, float, Callable[[], Any]]] = [
            ("names", NAMES_SECONDS, self._keep_names),
            ("rejoin", REJOIN_SECONDS, lambda: self._rejoin.attempt(self._names.addresses)),
            ("raft", RAFT_SECONDS, self._raft.check),
            ("registration", REGISTRATION_SECONDS, self._registration.check),
            ("balance", BALANCE_SECONDS, self._balance.check),
            ("health", HEALTH_SECONDS, self._health.report),
            ("ownership", OWNERSHIP_SECONDS, self._guard.check),
            ("services", SERVICES_SECONDS, self._revival.check),
            ("split", SPLIT_SECONDS, self._split.check),
            ("stuck", STUCK_SECONDS, self._stuck.check),
            ("unfit", UNFIT_SECONDS, self._unfit.check),
        ]
        threading.Thread(target=self._save_addresses, name="save", daemon=True).start()
        for name, seconds, chore in chores:
            threading.Thread(target=self._repeat, args=(name, seconds, chore), name=name, daemon=True).start()
        self._repeat("lifecycle", LIFECYCLE_SECONDS, self._watch_lifecycle)

    def _repeat(self, name: str, seconds: float, chore: Callable[[], Any]) -> None:
        said, said_at = "", float("-inf")
        while True:
            if not self._rests(name):
                try:
                    chore()
                except NotStored:
                    pass  # the first boot has not come that far
                except (NotYet, OSError, *AwsError) as error:
                    if str(error) != said or self._clock.monotonic() - said_at > REPEATED_ERROR_SECONDS:
                        log.warning("%s: %s", name, error)
                        said, said_at = str(error), self._clock.monotonic()
                except Exception:  # a chore must not end for ever because of one surprise
                    log.exception("%s: unexpected error", name)
                    self._clock.sleep(REPEATED_ERROR_SECONDS)
            self._clock.sleep(seconds)

    def _rests(self, name: str) -> bool:
        """Whether a chore would work against a departure. A node that waits for its turn is a member like any other,
        but for what starts its boot again or calls for another instance; once it stops only the lifecycle goes on.
        """
        if name == "lifecycle":
            return False
        return self._stopping.is_set() or (name in ("services", "unfit") and self._leaving.is_set())

    def _keep_names(self) -> None:
        # What /etc/hosts says already stands in for a node that nobody knows: the boot put the addresses on EFS there.
        self._names.refresh(names.block_of(self._paths.hosts))

    def _save_addresses(self) -> None:
        """Writes to EFS, which may hang, are this thread's alone."""
        while True:
            addresses = self._to_save.get()
            try:
                if is_mounted(self._paths) and not self._stopping.is_set():
                    names.save(self._paths.addresses, addresses)
            except OSError as error:
                log.warning("addresses not saved: %s", error)

    def _broker_serves(self) -> bool:
        return self._monitor().serves(self._cluster.health_check_path)

    def _monitor(self) -> Broker:
        return self._broker_as("monitoring")

    def _broker_as(self, user: str) -> Broker:
        try:
            return Broker(stored(self._paths, user))
        except FileNotFoundError as error:
            raise Unreachable("no login is stored before the first boot") from error

    def _complete(self) -> str | None:
        try:
            missing = missing_nodes(self._cluster.node_names, self._monitor().running_nodes())
            administrator = self._broker_as("administrator")
            return missing or self._catch_up.behind(administrator, administrator.quorum_queues())
        except Unreachable as error:
            return str(error)

    def _writes(self) -> bool:
        return self._health.failing_for() < unfit.PATIENCE_SECONDS

    def _watch_lifecycle(self) -> None:
        if self._left or (not self._leaving.is_set() and self._imds.get(TARGET_STATE) != "Terminated"):
            return
        if not self._departed:
            if not self._leaving.is_set():
                log.info("the Auto Scaling group is ending this instance")
            self._leaving.set()
            with heartbeats(self._hook):
                handed_over = self._departure().run()
            self._departed = True
            log.info("ownership handed over" if handed_over else "left without handing over ownership")
        self._left = self._hook.complete()

    def _departure(self) -> Departure:
        report = Report(self._table, f"departure/{self._instance.node}", self._instance_id, self._clock)
        lock = MaintenanceLock(self._table, self._instance.node, self._instance_id, self._clock)
        return Departure(
            node=self._node,
            targets=self._targets,
            ownership=self._ownership,
            instance_id=self._instance_id,
            queue=LockQueue(
                lock,
                lambda node: read_record(self._table, node),
                lambda instance: instance_state(self._aws.ec2, instance),
                self._clock,
                reason="the Auto Scaling group replaces the instance",
            ),
            clock=self._clock,
            begin=self._stopping.set,
            tell=report.waiting,
            note=report.note,
        )


@contextmanager
def heartbeats(hook: Hook) -> Iterator[None]:
    """Keep a hook waiting while something slow goes on."""
    done = threading.Event()

    def beat() -> None:
        while not done.wait(HEARTBEAT_EVERY_SECONDS / 3):
            hook.heartbeat()

    thread = threading.Thread(target=beat, name="heartbeats", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=HEARTBEAT_EVERY_SECONDS)


def agent(paths: Paths = Paths()) -> int:  # noqa: B008 - immutable
    """Run the agent; returns an exit code only if it cannot start."""
    try:
        region = config.load_instance(paths).region
        Agent(paths, Clock(), Imds(), Aws(region), Services()).run()
    except Refusal as refusal:
        log.error("the agent cannot start: %s. To do: %s", refusal, refusal.remedy)
    except NotYet as error:
        log.error("the agent cannot start: %s", error)
    return 1
