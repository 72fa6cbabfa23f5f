"""RabbitMQ's definitions: users, permissions, policies and the dead-letter exchanges, in one file that each node
imports.

The file is the same, byte for byte, on all nodes, so that it makes no difference which of them imports it first, or
last.

Dead-lettering. Since 4.0 a message that is delivered too often is dropped unless it has somewhere to go. Every quorum
queue dead-letters, at least once, to the exchange `dead-letter` and so into the queue `dead-letter`. At-least-once
dead-lettering holds messages back while no queue takes them, so whatever that exchange cannot route goes on to
`unroutable`. The two queues themselves have a policy of higher priority (one policy a queue, the highest priority
wins): a cap, but no dead-lettering, or a message could go round for ever. Queues are not in the file: an import
declares them only on a cluster that is complete. The `ready` step declares them.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from node.config import Queues
from node.credentials import Login

VHOST = "/"
DEAD_LETTER = "dead-letter"
UNROUTABLE = "unroutable"

HOLDING_QUEUES = (DEAD_LETTER, UNROUTABLE)
"""Queues that the `ready` step declares, each bound to the fanout exchange of its name."""

TAGS = {"administrator": ["administrator"], "monitoring": ["monitoring"], "federation": []}

PERMISSIONS = {
    "administrator": {"configure": ".*", "write": ".*", "read": ".*"},
    # Reads statistics through its tag; no access to messages.
    "monitoring": {"configure": "^$", "write": "^$", "read": "^$"},
    # The other cluster's links declare their queues and bindings here, and read from them.
    "federation": {"configure": ".*", "write": ".*", "read": ".*"},
}


def password_hash(login: Login) -> str:
    """RabbitMQ's salted SHA-256. The salt comes from the secret's version: all nodes arrive at the same hash."""
    salt = hashlib.sha256(login.version.encode()).digest()[:4]
    return base64.b64encode(salt + hashlib.sha256(salt + login.password.encode()).digest()).decode()


def render(users: Mapping[str, Login], queues: Queues) -> str:
    """The definitions file."""
    document = {
        "vhosts": [{"name": VHOST, "metadata": {"description": "Default", "tags": [], "default_queue_type": "quorum"}}],
        "users": [_user(role, login) for role, login in sorted(users.items())],
        "permissions": [
            {"user": login.username, "vhost": VHOST, **PERMISSIONS[role]} for role, login in sorted(users.items())
        ],
        "policies": _policies(queues),
        "exchanges": [
            _exchange(DEAD_LETTER, {"alternate-exchange": UNROUTABLE}),
            _exchange(UNROUTABLE, {}),
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _user(role: str, login: Login) -> dict[str, Any]:
    return {
        "name": login.username,
        "password_hash": password_hash(login),
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        "tags": TAGS[role],
        "limits": {},
    }


def _exchange(name: str, arguments: Mapping[str, str]) -> dict[str, Any]:
    return {
        "vhost": VHOST,
        "name": name,
        "type": "fanout",
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": dict(arguments),
    }


def _policies(queues: Queues) -> list[dict[str, Any]]:
    # A queue left to grow by mistake must stop its own publishers and fill nothing.
    cap = {"max-length": queues.max_length, "max-length-bytes": queues.max_length_bytes, "overflow": "reject-publish"}
    dead_lettering = {
        "delivery-limit": queues.delivery_limit,
        "dead-letter-exchange": DEAD_LETTER,
        "dead-letter-strategy": "at-least-once",  # needs reject-publish
    }
    holding = "^(" + "|".join(HOLDING_QUEUES) + ")$"
    return [
        _policy("quorum-queues", ".*", "quorum_queues", 0, {**cap, **dead_lettering}),
        _policy("classic-queues", ".*", "classic_queues", 0, cap),
        _policy("streams", ".*", "streams", 0, {"max-length-bytes": queues.max_length_bytes}),
        # -1: no delivery limit. Whoever looks into these queues and rejects must not lose what is there.
        _policy("holding-queues", holding, "quorum_queues", 100, {**cap, "delivery-limit": -1}),
    ]


def _policy(name: str, pattern: str, apply_to: str, priority: int, definition: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "vhost": VHOST,
        "name": name,
        "pattern": pattern,
        "apply-to": apply_to,
        "priority": priority,
        "definition": dict(definition),
    }
