"""What goes on in a cluster while something is done to it: who serves, and whether confirmed messages keep coming."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from types import TracebackType
from typing import Any, Self

import pika
import pika.exceptions

from lab.network import enter_namespace
from operations.deployment import Credentials
from tests.lab.deployed import Lab

AMQP = 5672


def serves(address: str) -> bool:
    """Whether something takes AMQP connections there."""
    with contextlib.suppress(OSError), socket.create_connection((address, AMQP), timeout=0.5):
        return True
    return False


class _Observer:
    """A thread inside the VPC which observes between `with` and its end."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._stop = threading.Event()
        self._addresses: dict[str, list[str]] = {}
        self._threads = [threading.Thread(target=self._guarded, args=(work,)) for work in (self._ask, self._in_vpc)]
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._addresses = self._by_node()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        if kind is None and self._failure:
            raise self._failure

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._failure = error

    def _ask(self) -> None:
        """Outside of the VPC, where the emulated AWS is."""
        while not self._stop.wait(1):
            self._addresses = self._by_node()

    def _by_node(self) -> dict[str, list[str]]:
        """Addresses of each node, as EC2 tells them: several while it is handed over."""
        pages = self._lab.deployment.aws.ec2.describe_instances(
            Filters=[
                {"Name": "tag:rabbitmq-cluster", "Values": [self._lab.environment.cluster_name]},
                {"Name": "instance-state-name", "Values": ["running", "shutting-down"]},
            ]
        )
        known: dict[str, list[str]] = {}
        for instance in (one for reservation in pages["Reservations"] for one in reservation["Instances"]):
            name = next(tag["Value"] for tag in instance["Tags"] if tag["Key"] == "rabbitmq-node")
            known.setdefault(name, []).append(instance["PrivateIpAddress"])
        return known

    def _in_vpc(self) -> None:
        enter_namespace(self._lab.paths.vpc_namespace)
        self._observe()

    def _observe(self) -> None:
        raise NotImplementedError


class Serving(_Observer):
    """Which nodes take AMQP connections, four times a second. `history` has an entry for each change."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab)
        self.history: list[tuple[float, frozenset[str]]] = []

    @property
    def fewest(self) -> int:
        """How many nodes served when the fewest did."""
        return min(len(nodes) for _, nodes in self.history)

    @property
    def went_away(self) -> list[str]:
        """Nodes that stopped serving, in order."""
        return [node for (_, was), (_, now) in pairwise(self.history) for node in sorted(was - now)]

    def _observe(self) -> None:
        while not self._stop.wait(0.25):
            known = self._addresses
            now = frozenset(node for node, found in known.items() if any(serves(address) for address in found))
            if not self.history or self.history[-1][1] != now:
                self.history.append((time.monotonic(), now))


@dataclass
class Account:
    """What became of a publisher's messages."""

    confirmed: list[tuple[float, int]] = field(default_factory=list)
    """When each was confirmed, and its number."""
    reconnects: int = 0

    @property
    def longest_gap(self) -> float:
        """Seconds without a confirmation, at worst."""
        moments = [moment for moment, _ in self.confirmed]
        return max((b - a for a, b in pairwise(moments)), default=float("inf"))


class Publisher(_Observer):
    """Publishes 50 messages a second to a quorum queue, each confirmed, and connects anew to wherever it can.

    It knows the nodes' own addresses: what it measures is the cluster, not a load balancer.
    """

    def __init__(self, lab: Lab, queue: str) -> None:
        super().__init__(lab)
        self._queue, self._credentials = queue, lab.credentials()
        self.account = Account()

    def _observe(self) -> None:
        numbers = count()
        number = next(numbers)
        while not self._stop.is_set():
            for address in [one for found in self._addresses.values() for one in found if serves(one)]:
                with (
                    contextlib.suppress(pika.exceptions.AMQPError, OSError),
                    connected(address, self._credentials) as channel,
                ):
                    channel.queue_declare(self._queue, durable=True)
                    channel.confirm_delivery()
                    while not self._stop.wait(0.02):
                        channel.basic_publish(
                            "", self._queue, str(number).encode(), pika.BasicProperties(delivery_mode=2), mandatory=True
                        )
                        self.account.confirmed.append((time.monotonic(), number))
                        number = next(numbers)
                if self._stop.is_set():
                    return
                self.account.reconnects += 1
            time.sleep(0.1)

    def lost(self, consume: Callable[[str, int], Sequence[int]]) -> set[int]:
        """Confirmed messages that cannot be consumed any more."""
        confirmed = {number for _, number in self.account.confirmed}
        return confirmed - set(consume(self._queue, len(confirmed) + self.account.reconnects + 1))


@contextlib.contextmanager
def connected(address: str, credentials: Credentials) -> Any:
    """A channel at one address, which gives up after seconds and not minutes."""
    connection = pika.BlockingConnection(
        pika.ConnectionParameters(
            address,
            credentials=pika.PlainCredentials(credentials.username, credentials.password),
            socket_timeout=3,
            stack_timeout=5,
            blocked_connection_timeout=10,
            heartbeat=10,
        )
    )
    try:
        yield connection.channel()
    finally:
        with contextlib.suppress(pika.exceptions.AMQPError, OSError):
            connection.close()
