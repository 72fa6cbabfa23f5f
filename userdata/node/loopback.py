"""JSON over HTTP to programs on this host, never through a proxy; and whether a port is open."""

from __future__ import annotations

import base64
import http.client
import json
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple

HOST = "127.0.0.1"


class Unreachable(Exception):
    """Nobody listens, or the answer did not come in time."""


class Answer(NamedTuple):
    """Status and decoded body; a body that is not JSON comes as text."""

    status: int
    body: Any


def request(
    method: str,
    port: int,
    path: str,
    *,
    body: Mapping[str, Any] | None = None,
    login: tuple[str, str] | None = None,
    timeout: float = 5,
) -> Answer:
    """One request. Raises Unreachable when there is no answer; any status is an answer."""
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout)
    headers = {"Content-Type": "application/json"}
    if login:
        headers["Authorization"] = "Basic " + base64.b64encode(":".join(login).encode()).decode()
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"{HOST}:{port}: {error}") from error
    finally:
        connection.close()
    try:
        return Answer(response.status, json.loads(text))
    except ValueError:
        return Answer(response.status, text)


def listens(port: int, host: str = HOST) -> bool:
    """Whether somebody takes connections there."""
    try:
        with socket.create_connection((host, port), timeout=2):
            return True
    except OSError:
        return False
