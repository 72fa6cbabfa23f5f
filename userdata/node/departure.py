"""Leaving the cluster in good order, one node at a time, when the Auto Scaling group is about to end this instance.

Every step can be repeated: an agent that is restarted in the middle begins again. Nothing here can keep the instance
alive for ever, so every wait has a limit; past it the node leaves all the same, in order, and says what it did not
wait for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from node.aws import GONE, AwsError
from node.clock import Clock, wait_for
from node.errors import NotYet
from node.journal import log
from node.lock import Holder, MaintenanceLock, is_dead
from node.ownership import Ownership, Record

LOCK_LIMIT_SECONDS = 3300.0
"""Below the hour that a rolling update gives one node's replacement."""

QUORUM_LIMIT_SECONDS = 1800.0

TARGETS_LIMIT_SECONDS = 600.0
"""A network load balancer takes minutes to find a newly registered target healthy."""

ALIVE_EVERY_SECONDS = 10.0
"""EC2 is asked this often whether the lock's holder still exists."""


class LeavingNode(Protocol):
    """What a departure does to the host."""

    def stop_boot(self) -> None:
        """End a boot that is still going on."""

    def broker_runs(self) -> bool:
        """Whether there is a broker to drain."""

    def quorum_without(self) -> str | None:
        """None if the cluster keeps quorum without this node, else why not."""

    def drain(self) -> bool:
        """Close listeners and connections, move leaders away. Returns whether the node is drained."""

    def let_go(self) -> bool:
        """Stop RabbitMQ and Consul and unmount. Returns whether the directory is free of this host."""


class LoadBalancers(Protocol):
    """What a departure does to the node's place behind the load balancers (`targets.Targets`)."""

    def register(self) -> None:
        """Take new connections again."""

    def deregister(self) -> None:
        """Take no new connection."""

    def others_missing(self) -> str | None:
        """None if clients find another node, else where they do not."""


class LockQueue:
    """One attempt after the other to get the maintenance lock; made for `wait_for`."""

    def __init__(
        self,
        lock: MaintenanceLock,
        record_of: Callable[[str], Record],
        state_of: Callable[[str], str],
        clock: Clock,
        reason: str,
    ) -> None:
        self._lock, self._record_of, self._state_of, self._clock = lock, record_of, state_of, clock
        self._reason = reason
        self._asked_at = float("-inf")

    def attempt(self) -> str | None:
        """None once this node holds the lock, else who does."""
        try:
            if self._lock.acquire(self._reason):
                return None
            holder = self._lock.holder()
            if holder is None:
                return "the maintenance lock was released just now"
            if self._may_ask() and self._is_dead(holder) and self._lock.take_from(holder, self._reason):
                log.warning("took the maintenance lock from %s: %s is gone", holder.node, holder.instance_id)
                return None
        except AwsError as error:
            return f"AWS does not answer: {error}"
        return f"{holder.node} holds the maintenance lock since {holder.acquired_at} ({holder.reason})"

    def _may_ask(self) -> bool:
        if self._clock.monotonic() - self._asked_at < ALIVE_EVERY_SECONDS:
            return False
        self._asked_at = self._clock.monotonic()
        return True

    def _is_dead(self, holder: Holder) -> bool:
        record = self._record_of(holder.node)
        successor = record.owner if record.owner != holder.instance_id else None
        return is_dead(
            holder,
            record,
            instance_gone=self._state_of(holder.instance_id) in GONE,
            successor_lives=bool(successor) and self._state_of(str(successor)) not in GONE,
            now=self._clock.now(),
        )


@dataclass
class Departure:
    """One departure. `begin` is called when nothing is waited for any more, `tell` hears of every wait's reason, `note`
    of what it left without.

    Auto Scaling takes an instance out of its target groups first of all. When it ends all three at once, those that
    wait for their turn go back: else no client would find a node until the first successor serves.
    """

    node: LeavingNode
    targets: LoadBalancers
    ownership: Ownership
    instance_id: str
    queue: LockQueue
    clock: Clock
    begin: Callable[[], None]
    tell: Callable[[str], None]
    note: Callable[[str], None]

    def run(self) -> bool:
        """Leave. Returns whether ownership was handed over; if not, EC2's end of the instance does that."""
        self.node.stop_boot()
        if self.ownership.read().owner != self.instance_id:
            log.info("this instance does not own the node: nothing to hand over")
            self.begin()
            self.node.let_go()
            return False
        self._wait_for_the_lock()
        runs = self.node.broker_runs()
        if runs:
            self._wait("another node behind the load balancers", self.targets.others_missing, TARGETS_LIMIT_SECONDS)
            self._wait("quorum without this node", self.node.quorum_without, QUORUM_LIMIT_SECONDS)
        self.begin()
        if runs:
            self.targets.deregister()
            self.tell("draining")
            if not self.node.drain():
                log.warning("the drain is not complete; the broker's stop does the rest")
        self.tell("stopping")
        if not self.node.let_go():
            self.note("the node's directory may still be written: ownership is kept until EC2 has ended this instance")
            return False
        handed_over = self.ownership.release()
        self.tell("ownership handed over" if handed_over else "another instance owns the node")
        return handed_over

    def _wait_for_the_lock(self) -> None:
        waits = False

        def attempt() -> str | None:
            nonlocal waits
            reason = self.queue.attempt()
            if reason and not waits and self.node.broker_runs():
                waits = True
                log.info("taking connections until it is this node's turn")
                self.targets.register()
            return reason

        self._wait("the maintenance lock", attempt, LOCK_LIMIT_SECONDS)

    def _wait(self, what: str, probe: Callable[[], str | None], limit: float) -> None:
        try:
            wait_for(self.clock, what, probe, limit=limit, interval=2, tick=self.tell)
        except NotYet as error:
            self.note(f"{error}. The instance is going to end anyway: leaving without")
