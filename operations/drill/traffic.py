"""The steady traffic of a drill: one set of clients that knows every node's address, one behind the load balancer."""

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from operations.drill.accounting import Account, account, read_events
from operations.drill.field import Field
from operations.errors import OperationError

DIRECT, BALANCED = "every address", "load balancer"
CLIENTS = 2
RATE = 50.0
"""Messages a second and client; two sets of two make 200 a second in all."""

END_LIMIT = 200.0
"""Seconds within which the clients end after `stop`: more than the limits in `load`."""


@dataclass
class ClientSet:
    """Clients of one kind, in one process."""

    kind: str
    child: "subprocess.Popen[str]"
    log: Path


class Traffic:
    """Started, stopped, accounted for."""

    def __init__(self, field: Field, rate: float = RATE, clients: int = CLIENTS) -> None:
        self._field, self._rate, self._clients = field, rate, clients
        self._sets: list[ClientSet] = []
        self.began = self.stopped = 0.0

    def start(self) -> None:
        """Start all clients; returns once each set runs."""
        endpoint = urlsplit(self._field.deployment.parameter("amqp-endpoint"))
        balancer = self._field.directory / "balancer.json"
        balancer.write_text(json.dumps({"load balancer": endpoint.hostname}))
        direct = self._field.addresses_file
        for kind, addresses, inside, port in (
            (DIRECT, direct, True, 5672),
            (BALANCED, balancer, False, endpoint.port or 5672),
        ):
            short = kind.split()[-1]
            log = self._field.directory / f"{short}.log"
            log.write_text("")
            user = self._field.deployment.credentials("administrator")
            orders = {
                "username": user.username, "password": user.password, "rate": self._rate, "log": str(log), "port": port,
                "addresses": str(addresses), "clients": [f"{short}-{number}" for number in range(1, self._clients + 1)],
            }  # fmt: skip
            child = self._field.spawn("operations.drill.load", orders, short, inside=inside)
            self._sets.append(ClientSet(kind, child, log))
        for clients in self._sets:
            assert clients.child.stdout
            if clients.child.stdout.readline().strip() != "started":
                words = (self._field.directory / f"{clients.kind.split()[-1]}.err").read_text()[-500:]
                raise OperationError(f"the clients ({clients.kind}) did not start: {words}", "See `status`.")
        self.began = time.time()

    def flowing(self) -> bool:
        """Whether every set has confirmations of the last two seconds."""
        for clients in self._sets:
            confirmed = account(read_events(clients.log)).confirmations
            if not any(second in confirmed for second in range(int(time.time()) - 2, int(time.time()) + 1)):
                return False
        return True

    def stop(self) -> None:
        """End the publishing, let what is under way arrive, end the clients."""
        self.stopped = time.time()
        for clients in self._sets:
            if clients.child.stdin and clients.child.poll() is None:
                clients.child.stdin.write("stop\n")
                clients.child.stdin.flush()
        deadline = time.monotonic() + END_LIMIT
        for clients in self._sets:
            try:
                clients.child.wait(max(1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                clients.child.kill()

    def accounts(self) -> dict[str, Account]:
        """By kind of client."""
        return {c.kind: account(read_events(c.log), self.stopped) for c in self._sets}
