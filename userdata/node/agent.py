"""The node agent: small chores, each in a thread of its own so that none waits for another's time limit."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from node import config, names, registration
from node.aws import Aws, AwsError, instance_state
from node.broker import Broker
from node.clock import Clock
from node.credentials import stored
from node.departure import Departure, LockQueue
from node.errors import NotYet, Refusal
from node.guard import Guard
from node.imds import Imds
from node.journal import log
from node.leaving_node import HostNode
from node.lifecycle_hooks import HEARTBEAT_EVERY_SECONDS, Hook
from node.lock import MaintenanceLock
from node.loopback import Unreachable
from node.naming import NameKeeper
from node.ownership import Ownership, read_record
from node.paths import Paths
from node.ready import missing_nodes
from node.registration import Registration
from node.rejoin import Rejoin
from node.report import Report
from node.services import Services
from node.storage import is_mounted
from node.table import Table

NAMES_SECONDS = 1.0
REJOIN_SECONDS = 3.0
REGISTRATION_SECONDS = 10.0
OWNERSHIP_SECONDS = 30.0
LIFECYCLE_SECONDS = 2.0

TARGET_STATE = "autoscaling/target-lifecycle-state"
"""Metadata that says `Terminated` once the group's terminating hook holds the instance."""

REPEATED_ERROR_SECONDS = 60.0
"""The same error of a chore is logged at most this often."""


class Agent:
    """All chores of one host."""

    def __init__(self, paths: Paths, clock: Clock) -> None:
        self._paths, self._clock = paths, clock
        self._instance, self._cluster = config.load(paths)
        self._imds, self._aws, self._services = Imds(), Aws(self._instance.region), Services()
        self._instance_id = self._imds.must("instance-id")
        self._table = Table(self._aws.dynamodb, self._instance.table)
        self._ownership = Ownership(self._table, self._instance.node, self._instance_id, clock)
        own = {self._instance.node: self._imds.must("local-ipv4")}
        self._to_save: queue.Queue[Mapping[str, str]] = queue.Queue()
        self._names = NameKeeper(paths, self._cluster.node_names, own, self._table, clock, self._to_save.put)
        self._rejoin = Rejoin([name for name in self._cluster.node_names if name not in own], clock)
        self._registration = Registration(
            registration.service(self._instance.node, self._cluster.name), self._broker_serves
        )
        self._guard = Guard(self._ownership, self._instance_id, self._services, lambda: is_mounted(paths))
        self._leaving = threading.Event()
        self._left = False

    def run(self) -> None:
        """Start every chore; never returns."""
        chores: list[tuple[str, float, Callable[[], Any]]] = [
            ("names", NAMES_SECONDS, self._keep_names),
            ("rejoin", REJOIN_SECONDS, lambda: self._rejoin.attempt(self._names.addresses)),
            ("registration", REGISTRATION_SECONDS, self._registration.check),
            ("ownership", OWNERSHIP_SECONDS, self._guard.check),
        ]
        threading.Thread(target=self._save_addresses, name="save", daemon=True).start()
        for name, seconds, chore in chores:
            threading.Thread(target=self._repeat, args=(name, seconds, chore), name=name, daemon=True).start()
        self._repeat("lifecycle", LIFECYCLE_SECONDS, self._watch_lifecycle)

    def _repeat(self, name: str, seconds: float, chore: Callable[[], Any]) -> None:
        said, said_at = "", float("-inf")
        while True:
            # Once the node is leaving only the lifecycle goes on: the others would work against it.
            if not self._leaving.is_set() or name == "lifecycle":
                try:
                    chore()
                except (NotYet, OSError, *AwsError) as error:
                    if str(error) != said or time.monotonic() - said_at > REPEATED_ERROR_SECONDS:
                        log.warning("%s: %s", name, error)
                        said, said_at = str(error), time.monotonic()
                except Exception:  # a chore must not end for ever because of one surprise
                    log.exception("%s: unexpected error", name)
                    time.sleep(REPEATED_ERROR_SECONDS)
            time.sleep(seconds)

    def _keep_names(self) -> None:
        # What /etc/hosts says already stands in for a node that nobody knows: the boot put the addresses on EFS there.
        self._names.refresh(names.block_of(self._paths.hosts))

    def _save_addresses(self) -> None:
        """Writes to EFS, which may hang, are this thread's alone."""
        while True:
            addresses = self._to_save.get()
            try:
                if is_mounted(self._paths) and not self._leaving.is_set():
                    names.save(self._paths.addresses, addresses)
            except OSError as error:
                log.warning("addresses not saved: %s", error)

    def _broker_serves(self) -> bool:
        return self._monitor().serves(self._cluster.health_check_path)

    def _monitor(self) -> Broker:
        return Broker(stored(self._paths, "monitoring"))

    def _complete(self) -> str | None:
        try:
            return missing_nodes(self._cluster.node_names, self._monitor().running_nodes())
        except Unreachable as error:
            return str(error)

    def _watch_lifecycle(self) -> None:
        if self._left or self._imds.get(TARGET_STATE) != "Terminated":
            return
        self._leaving.set()
        hook = Hook(
            lambda: self._aws.autoscaling,
            self._instance.terminate_hook,
            self._instance.asg_name,
            self._instance_id,
            self._clock,
        )
        log.info("the Auto Scaling group is ending this instance")
        with heartbeats(hook):
            handed_over = self._departure().run()
        log.info("ownership handed over" if handed_over else "left without handing over ownership")
        self._left = hook.complete()

    def _departure(self) -> Departure:
        report = Report(self._table, f"departure/{self._instance.node}", self._instance_id, self._clock)
        lock = MaintenanceLock(self._table, self._instance.node, self._instance_id, self._clock)
        return Departure(
            node=HostNode(self._paths, self._services, self._complete, self._clock),
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
            tell=report.waiting,
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
        Agent(paths, Clock()).run()
    except Refusal as refusal:
        log.error("the agent cannot start: %s. To do: %s", refusal, refusal.remedy)
    except NotYet as error:
        log.error("the agent cannot start: %s", error)
    return 1
