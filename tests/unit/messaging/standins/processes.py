"""Runs a service in a process of its own, and really kills it (SIGKILL) at one of its crash points."""

import contextlib
import multiprocessing
import os
import signal
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass

from tests.unit.messaging.standins import services
from tests.unit.messaging.standins.bench import START, Clock
from tests.unit.messaging.standins.crash_points import CrashPoints
from tests.unit.messaging.standins.services import Surroundings
from tests.unit.messaging.standins.world import Address, Remote, WorldServer

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__])

KILLED = -signal.SIGKILL
LIMIT_SECONDS = 30


@dataclass(frozen=True)
class Run:
    """How a process ended and, if it came to its end, what it passed."""

    exit_code: int
    points: tuple[str, ...]


def run(server: WorldServer, service: str, kill_at: int | None = None, late_seconds: float = 0) -> Run:
    """Run `services.<service>` against the server's world until it has nothing left to do, or is killed."""
    server.world.points = []
    process = _context.Process(target=_main, args=(server.address, service, kill_at, late_seconds), daemon=True)
    with without_main():
        process.start()
    process.join(LIMIT_SECONDS)
    if process.is_alive():
        process.kill()
        raise AssertionError(f"{service} did not end; kill point {kill_at}")
    # The world learns of the death by the end of the connection.
    server.idle.wait(LIMIT_SECONDS)
    return Run(process.exitcode or 0, tuple(server.world.points))


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """A new process imports the main module again. Here that is pytest, which takes longer than all the rest."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _main(address: Address, service: str, kill_at: int | None, late_seconds: float) -> None:
    remote = Remote(address)
    points = CrashPoints(kill_at, _die)
    getattr(services, service)(
        Surroundings(
            points.watch("dynamodb", remote.part("dynamodb")),
            points.watch("broker", remote.part("broker")),
            Clock(START + late_seconds),
        )
    )
    remote.call("world", "note_points", points.passed)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
