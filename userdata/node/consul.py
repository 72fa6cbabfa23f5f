"""Consul on this host: generated configuration and the agent's HTTP API on loopback."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from node.config import Instance
from node.loopback import Answer, Unreachable, request

PORT = 8500

RAFT_PORT = 8300

ALIVE = 1
"""Serf's number for a member that answers."""


def node_id(node: str) -> str:
    """The Consul node id: the same for every instance of one node, so that a successor *is* the node it replaces."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, node))


def node_config(instance: Instance, address: str) -> str:
    """`/etc/consul.d/node.json`: what differs. A cluster is a data centre of its own: others cannot join it."""
    tag = f"tag_key=rabbitmq-cluster tag_value={instance.cluster}"
    document = {
        "datacenter": instance.cluster,
        "node_name": instance.node,
        "node_id": node_id(instance.node),
        "bind_addr": address,
        "advertise_addr": address,
        "retry_join": [f"provider=aws region={instance.region} {tag} addr_type=private_v4"],
    }
    return json.dumps(document, indent=2) + "\n"


def gossip_config(key: str) -> str:
    """`/etc/consul.d/gossip.json`: the 32-character secret as Consul wants its key."""
    return json.dumps({"encrypt": base64.b64encode(key.encode()).decode()}, indent=2) + "\n"


@dataclass(frozen=True)
class GossipMember:
    """A server as gossip knows it. Needs no Consul leader."""

    name: str
    address: str
    alive: bool


@dataclass(frozen=True)
class RaftServer:
    """A server as raft's configuration has it."""

    identifier: str
    address: str
    voter: bool


class Consul:
    """The agent's HTTP API. Raises Unreachable when Consul is not there."""

    def __init__(self, port: int = PORT) -> None:
        self._port = port

    def answers(self) -> bool:
        """Whether the agent runs."""
        try:
            return self._call("GET", "/v1/agent/self").status == 200
        except Unreachable:
            return False

    def leader(self) -> str | None:
        """Address of the raft leader that this agent knows, or None."""
        answer = self._call("GET", "/v1/status/leader")
        return answer.body if answer.status == 200 and isinstance(answer.body, str) and answer.body else None

    def peers(self) -> tuple[str, ...]:
        """Addresses of raft's peers."""
        answer = self._call("GET", "/v1/status/peers")
        return tuple(answer.body) if answer.status == 200 and isinstance(answer.body, list) else ()

    def version(self) -> str:
        """The agent's version."""
        answer = self._call("GET", "/v1/agent/self")
        return str(answer.body["Config"]["Version"]) if answer.status == 200 else ""

    def members(self) -> tuple[GossipMember, ...]:
        """All members of the gossip pool that this agent knows."""
        answer = self._call("GET", "/v1/agent/members")
        if answer.status != 200 or not isinstance(answer.body, list):
            return ()
        return tuple(GossipMember(item["Name"], item["Addr"], item["Status"] == ALIVE) for item in answer.body)

    def join(self, address: str) -> bool:
        """Exchange the full membership with another agent now, instead of at the next round of gossip."""
        return self._call("PUT", f"/v1/agent/join/{quote(address)}", timeout=12).status == 200

    def raft_servers(self) -> tuple[RaftServer, ...]:
        """Raft's configuration; none while there is no leader to ask."""
        answer = self._call("GET", "/v1/operator/raft/configuration")
        if answer.status != 200 or not isinstance(answer.body, dict):
            return ()
        return tuple(RaftServer(item["ID"], item["Address"], item["Voter"]) for item in answer.body["Servers"])

    def remove_raft_server(self, identifier: str) -> bool:
        """Take a server out of raft's configuration. A living one is taken in again when a leader looks."""
        return self._call("DELETE", f"/v1/operator/raft/peer?id={quote(identifier)}").status == 200

    def service(self, identifier: str) -> Mapping[str, Any] | None:
        """A service registered at this agent, or None."""
        answer = self._call("GET", f"/v1/agent/service/{quote(identifier, safe='')}")
        return answer.body if answer.status == 200 and isinstance(answer.body, dict) else None

    def passing(self, service: str) -> dict[str, str]:
        """Address by node, where this service is well, as the leader knows it. Empty while there is no leader."""
        answer = self._call("GET", f"/v1/health/service/{quote(service, safe='')}?passing")
        if answer.status != 200 or not isinstance(answer.body, list):
            return {}
        return {item["Node"]["Node"]: item["Node"]["Address"] for item in answer.body}

    def register(self, service: Mapping[str, Any]) -> bool:
        """Register a service at this agent."""
        return self._call("PUT", "/v1/agent/service/register", body=service).status == 200

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None, timeout: float = 3) -> Answer:
        return request(method, self._port, path, body=body, timeout=timeout)
