"""What a departure does to this host: RabbitMQ's own tools, systemd, and the mount."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from node.clock import Clock
from node.commands import Runner, run
from node.journal import log
from node.loopback import listens
from node.paths import Paths
from node.rabbitmq import UNIT
from node.services import BOOT, CONSUL, Services
from node.storage import is_mounted

QUORUM_COMMAND_SECONDS = 20
DRAIN_LIMIT_SECONDS = 180.0
UNMOUNT_LIMIT_SECONDS = 30.0
UNMOUNT_ATTEMPTS = 5

CLIENT_PORTS = (5671, 5672, 15672)


class HostNode:
    """The node on this host. `complete` says what the cluster lacks, cheaply, before RabbitMQ's tool is asked; `writes`
    whether the node's file system takes writes.
    """

    def __init__(
        self,
        paths: Paths,
        services: Services,
        complete: Callable[[], str | None],
        writes: Callable[[], bool],
        clock: Clock,
        runner: Runner = run,
        ports: Sequence[int] = CLIENT_PORTS,
    ) -> None:
        self._paths, self._services, self._complete, self._clock = paths, services, complete, clock
        self._writes = writes
        self._run, self._ports = runner, ports

    def stop_boot(self) -> None:
        """End a boot that is still going on; a finished one is only forgotten."""
        self._services.stop(BOOT)

    def broker_runs(self) -> bool:
        """Whether systemd has it up, on a disk that works: else the cluster does without it already, and it could
        answer neither a question for the quorum nor a drain.
        """
        return self._services.state(UNIT) == "active" and self._writes()

    def quorum_without(self) -> str | None:
        """RabbitMQ's own check covers quorum queues, streams and Khepri."""
        reason = self._complete()
        if reason:
            return reason
        command = ["rabbitmq-upgrade", "await_online_quorum_plus_one", "--timeout", str(QUORUM_COMMAND_SECONDS)]
        result = self._run(command, limit=QUORUM_COMMAND_SECONDS + 30)
        return None if result.ok else f"await_online_quorum_plus_one: {result.output[-200:] or 'no answer'}"

    def drain(self) -> bool:
        """The command has been seen to fail on a node that it did drain: the listeners tell."""
        result = self._run(["rabbitmq-upgrade", "drain"], limit=DRAIN_LIMIT_SECONDS)
        if result.ok:
            return True
        log.warning("rabbitmq-upgrade drain: %s", result.output[-300:])
        return not any(listens(port) for port in self._ports)

    def let_go(self) -> bool:
        """Returns whether the directory is free of this host. Consul stays a raft peer: its successor is the same
        server.
        """
        down = [self._services.stop(unit) for unit in (UNIT, CONSUL)]
        return all(down) and self._unmount()

    def _unmount(self) -> bool:
        # Only a complete unmount counts: a lazy one could still have writes on their way.
        for _ in range(UNMOUNT_ATTEMPTS):
            if not is_mounted(self._paths):
                return True
            result = self._run(["umount", str(self._paths.mount)], limit=UNMOUNT_LIMIT_SECONDS)
            if not result.ok:
                log.warning("umount: %s", result.output[-200:])
                self._clock.sleep(2)
        return not is_mounted(self._paths)
