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
    leader: str = ""


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
        return {item["name"]: bool(item.get("running")) for item in self._get("/api/nodes?columns=name,running", list)}

    def partitions(self, name: str) -> list[str]:
        """The nodes from which one considers itself split, in its own words. Always none on Khepri."""
        nodes = self._get("/api/nodes?columns=name,partitions", list)
        return [peer for item in nodes if item["name"] == name for peer in item.get("partitions") or ()]

    def versions(self, node: str, plugin: str) -> dict[str, str]:
        """Of the broker, of Erlang and, where it runs, of the plugin, on one node."""
        overview = self._get("/api/overview?columns=rabbitmq_version,erlang_version", dict)
        running = self._get(f"/api/nodes/{quote(node)}?columns=applications", dict).get("applications", ())
        found = {"rabbitmq": str(overview["rabbitmq_version"]), "erlang": str(overview["erlang_version"])}
        for item in running:
            if item["name"] == plugin:
                found["delayed_plugin"] = str(item["version"])
        return found

    def exchange_types(self) -> tuple[str, ...]:
        """The exchange types of this node, those of its plugins included."""
        types = self._get("/api/overview?columns=exchange_types", dict).get("exchange_types", ())
        return tuple(item["name"] for item in types)

    def quorum_queues(self) -> tuple[QuorumQueue, ...]:
        """All quorum queues with their members; those of every virtual host for an administrator only."""
        columns = "name,vhost,type,members,online,leader"
        return tuple(
            QuorumQueue(
                item["name"],
                item["vhost"],
                tuple(item.get("members", ())),
                tuple(item.get("online", ())),
                item.get("leader", ""),
            )
            for item in self._get(f"/api/queues?columns={columns}", list)
            if item.get("type") == "quorum"
        )

    def quorum_status(self, vhost: str, name: str) -> list[dict[str, Any]]:
        """One item for each member, as `rabbitmq-queues quorum_status` shows them; none if there is no such queue.

        RabbitMQ before 3.13.7 cannot be asked so, and answers as if there were none.
        """
        path = f"/api/queues/quorum/{quote(vhost, safe='')}/{quote(name, safe='')}/status"
        answer = self._call("GET", path)
        if answer.status == 404:
            return []
        if answer.status != 200 or not isinstance(answer.body, list):
            raise Unreachable(f"GET {path}: HTTP {answer.status}: {str(answer.body)[:200]}")
        return answer.body

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

    def _get(self, path: str, kind: type) -> Any:
        answer = self._call("GET", path)
        if answer.status != 200 or not isinstance(answer.body, kind):
            raise Unreachable(f"GET {path}: HTTP {answer.status}: {str(answer.body)[:200]}")
        return answer.body

    def _change(self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float = 10) -> None:
        answer = self._call(method, path, body, timeout)
        if answer.status not in (200, 201, 204):
            raise Unreachable(f"{method} {path}: HTTP {answer.status}: {str(answer.body)[:200]}")

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None, timeout: float = 10) -> Answer:
        login = (self._login.username, self._login.password)
        return request(method, self._port, path, body=body, login=login, timeout=timeout)
