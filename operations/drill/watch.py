"""The drill's eyes on the brokers, in a process of their own beside the clients: `python -m operations.drill.watch`.

Every node is asked on its own address, because during a fault each may see another cluster. One JSON line an answer.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import requests

INTERVAL = 0.5
ANSWER_LIMIT = 4.0
"""Seconds. A broker that has just lost a peer may wait for it."""

NODES = "nodes?columns=name,running"
QUEUES = "queues?disable_stats=true&enable_queue_totals=true&columns=name,vhost,type,leader,online,members"
"""Without statistics the answer is the queues' present state, not what was last counted up to 30 s ago."""


def ask(session: requests.Session, address: str, port: int) -> dict[str, Any]:
    """What one node says of the cluster, or the error."""
    try:
        answers = []
        for path in (NODES, QUEUES):
            answer = session.get(f"http://{address}:{port}/api/{path}", timeout=(1.5, ANSWER_LIMIT))
            answer.raise_for_status()
            answers.append(answer.json())
    except (requests.RequestException, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"[:160]}
    nodes, queues = answers
    return {
        "members": {node["name"]: bool(node.get("running")) for node in nodes},
        "queues": {
            f"{queue['vhost']}{queue['name']}": {
                "leader": queue.get("leader") or "",
                "online": sorted(queue.get("online") or []),
                "members": sorted(queue.get("members") or []),
            }
            for queue in queues
            if queue.get("type") == "quorum"
        },
    }


def follow(node: str, addresses: Path, login: tuple[str, str], port: int) -> None:
    """Ask one node for ever, under whatever address it has at the time."""
    session = requests.Session()
    session.auth, session.trust_env = login, False
    while True:
        asked = time.time()
        address = json.loads(addresses.read_text()).get(node)
        said = ask(session, address, port) if address else {"error": "no address"}
        line = json.dumps({"at": time.time(), "asked": asked, "node": node, "address": address} | said)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        time.sleep(max(0.0, INTERVAL - (time.time() - asked)))


def main() -> None:
    """Until standard input ends."""
    orders = json.loads(sys.stdin.readline())
    for node in orders["nodes"]:
        threading.Thread(
            target=follow,
            args=(node, Path(orders["addresses"]), (orders["username"], orders["password"]), orders["port"]),
            daemon=True,
        ).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
