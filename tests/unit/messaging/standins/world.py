"""What outlives a killed process: DynamoDB and the broker, behind a socket of the test's process.

A process that dies loses its connection, and with it, as with a real broker, what it has not acknowledged.
"""

import contextlib
import secrets
import threading
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from tests.unit.messaging.standins.direct_dynamodb import DirectDynamoDB
from tests.unit.messaging.standins.stand_in_broker import StandInBroker
from tests.unit.messaging.standins.tables import create_tables


@dataclass
class World:
    """The state of one run."""

    dynamodb: DirectDynamoDB = field(default_factory=DirectDynamoDB)
    broker: StandInBroker = field(default_factory=StandInBroker)
    points: list[str] = field(default_factory=list)
    """The points that the last process passed, if it came to its end."""

    def __post_init__(self) -> None:
        create_tables(self.dynamodb)
        self.broker.declare("orders", "orders.dead", "audit")
        self.broker.bindings[("events", "paid")] = ["audit"]

    def note_points(self, points: list[str]) -> None:
        self.points = points


@dataclass(frozen=True)
class Address:
    """Where a process finds the world."""

    path: str
    key: bytes


class WorldServer:
    """Serves `world`, which a test may replace between runs. One process at a time."""

    def __init__(self) -> None:
        self.world = World()
        key = secrets.token_bytes(16)
        self._listener = Listener(family="AF_UNIX", authkey=key)
        self.address = Address(str(self._listener.address), key)
        self.idle = threading.Event()
        self.idle.set()
        threading.Thread(target=self._serve, name="world", daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = self._listener.accept()
                self.idle.clear()
                self._serve_one(connection)
                self.world.broker.lose_connection()
                self.idle.set()

    def _serve_one(self, connection: Connection) -> None:
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                target, method, arguments, named = connection.recv()
                subject = self.world if target == "world" else getattr(self.world, target)
                try:
                    connection.send((True, getattr(subject, method)(*arguments, **named)))
                except Exception as error:
                    connection.send((False, error))


class Remote:
    """The calling side. Calls of one process go over one connection."""

    def __init__(self, address: Address) -> None:
        self._connection = Client(address.path, family="AF_UNIX", authkey=address.key)

    def part(self, target: str) -> Any:
        """`dynamodb`, `broker` or `world`."""
        return _Part(self, target)

    def call(self, target: str, method: str, *arguments: Any, **named: Any) -> Any:
        self._connection.send((target, method, arguments, named))
        succeeded, answer = self._connection.recv()
        if succeeded:
            return answer
        raise answer


class _Part:
    def __init__(self, remote: Remote, target: str) -> None:
        self._remote = remote
        self._target = target

    limit_seconds = 10.0
    """Of the broker."""

    def __getattr__(self, method: str) -> Any:
        return lambda *arguments, **named: self._remote.call(self._target, method, *arguments, **named)
