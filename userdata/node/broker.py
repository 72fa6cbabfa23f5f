"""RabbitMQ's HTTP API on loopback. The command line costs 1.5 s of processor time a call, this a millisecond."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from node.credentials import Login
from node.loopback import Answer, Unreachable, request

PORT = 15672


@dataclass(frozen=True)
class QuorumQueue:
    """A quorum queue's members, as RabbitMQ node names."""

    name: str
    vhost: str
    members: tuple[str, ...]
    online: tuple[str, ...]


class Broker:
    """The broker on this host. Raises Unreachable when it does not answer."""

    def __init__(self, login: Login, port: int = PORT) -> None:
        self._login, self._port = login, port

    def serves(self, health_check_path: str) -> bool:
        """Whether the load balancers would find this node healthy."""
        try:
            return request("GET", self._port, health_check_path).status == 200
        except Unreachable:
            return False

    def running_nodes(self) -> dict[str, bool]:
        """Every node that the cluster knows, and whether it runs."""
        return {item["name"]: bool(item.get("running")) for item in self._get("/api/nodes?columns=name,running")}

    def quorum_queues(self) -> tuple[QuorumQueue, ...]:
        """All quorum queues with their members."""
        columns = "name,vhost,type,members,online"
        return tuple(
            QuorumQueue(item["name"], item["vhost"], tuple(item.get("members", ())), tuple(item.get("online", ())))
            for item in self._get(f"/api/queues?columns={columns}")
            if item.get("type") == "quorum"
        )

    def grow(self, node: str) -> None:
        """Give every quorum queue a member on `node`. Needs an administrator."""
        body = {"strategy": "all", "vhost_pattern": ".*", "queue_pattern": ".*"}
        self._change("POST", f"/api/queues/quorum/replicas/on/{quote(node)}/grow", body, timeout=60)

    def rebalance(self) -> None:
        """Spread the queues' leaders over the nodes. Goes on in the background. Needs an administrator."""
        self._change("POST", "/api/rebalance/queues", None)

    def declare_queue(self, vhost: str, name: str) -> None:
        """Declare a durable quorum queue unless it exists."""
        body = {"durable": True, "auto_delete": False, "arguments": {"x-queue-type": "quorum"}}
        self._change("PUT", f"/api/queues/{quote(vhost, safe='')}/{quote(name, safe='')}", body)

    def bind(self, vhost: str, exchange: str, queue: str) -> None:
        """Bind a queue to an exchange unless it is bound."""
        path = f"/api/bindings/{quote(vhost, safe='')}/e/{quote(exchange, safe='')}/q/{quote(queue, safe='')}"
        self._change("POST", path, {"routing_key": "", "arguments": {}})

    def _get(self, path: str) -> Any:
        answer = self._call("GET", path)
        if answer.status != 200 or not isinstance(answer.body, list):
            raise Unreachable(f"GET {path}: HTTP {answer.status}: {str(answer.body)[:200]}")
        return answer.body

    def _change(self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float = 10) -> None:
        answer = self._call(method, path, body, timeout)
        if answer.status not in (200, 201, 204):
            raise Unreachable(f"{method} {path}: HTTP {answer.status}: {str(answer.body)[:200]}")

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None, timeout: float = 10) -> Answer:
        login = (self._login.username, self._login.password)
        return request(method, self._port, path, body=body, login=login, timeout=timeout)
