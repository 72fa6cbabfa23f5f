"""RabbitMQ's registration in Consul, put back when Consul has lost it.

RabbitMQ registers once, at its start, and from then on only reports that it is well. If the agent has lost the
registration, it answers 404 to that and RabbitMQ never registers again (rabbitmq-server #17211). This registers the
same service, with the same check, at the same agent: RabbitMQ's next report finds it. It costs a request; asking the
broker to register would cost a call of its command line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from node.consul import Consul
from node.journal import log
from node.loopback import Unreachable

TTL_SECONDS = 30
DEREGISTER_AFTER_SECONDS = 90
"""As cluster_formation.consul.svc_ttl and .deregister_after in rabbitmq.conf."""

AMQP_PORT = 5672
"""What RabbitMQ registers whatever its listeners are: cluster_formation.consul.svc_port's default."""


def service(node: str) -> dict[str, Any]:
    """The registration as RabbitMQ makes it."""
    return {
        "ID": f"rabbitmq:{node}",
        "Name": "rabbitmq",
        "Address": node,
        "Port": AMQP_PORT,
        "Meta": {"erlang-node-name": f"rabbit@{node}"},
        "Check": {
            "Notes": "RabbitMQ Consul-based peer discovery plugin TTL check",
            "TTL": f"{TTL_SECONDS}s",
            "Status": "passing",
            "DeregisterCriticalServiceAfter": f"{DEREGISTER_AFTER_SECONDS}s",
        },
    }


class Registration:
    """Watches this node's own registration. `serves` says whether there is a broker to register."""

    def __init__(self, wanted: Mapping[str, Any], serves: Callable[[], bool], consul: Consul) -> None:
        self._wanted, self._serves, self._consul = wanted, serves, consul

    def check(self) -> bool:
        """Register if the registration is gone while the broker serves. Returns whether it did."""
        try:
            if self._consul.service(self._wanted["ID"]) is not None or not self._serves():
                return False
            log.warning("Consul has lost the registration of %s: registering it again", self._wanted["ID"])
            return self._consul.register(self._wanted)
        except Unreachable:
            return False
