"""How the lab's commands talk to its daemon: one JSON document each way over a unix socket that only root can open."""

import contextlib
import json
import logging
import os
import socket
import socketserver
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.paths import LabPaths
from lab.system import LabError

log = logging.getLogger("lab.control")

Handler = Callable[[dict[str, Any]], Any]


def socket_path(paths: LabPaths) -> Path:
    """The daemon's socket."""
    return paths.state / "run" / "control.sock"


def ask(paths: LabPaths, command: str, *, timeout: float = 90, **arguments: Any) -> Any:
    """The daemon's answer. Raises `LabError` when it does not run, or with its own words when it refuses."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        try:
            connection.connect(str(socket_path(paths)))
            connection.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
            with connection.makefile() as stream:
                answer = json.loads(stream.readline() or '{"error": "it ended"}')
        except (OSError, ValueError) as error:
            raise LabError(
                f"the lab of environment {paths.name} does not answer ({error}). "
                f"Start it with `python -m lab up --env {paths.name}`."
            ) from None
    if "error" in answer:
        raise LabError(answer["error"])
    return answer["result"]


class ControlServer:
    """Answers `ask` with what `handlers` return, each request in a thread of its own."""

    def __init__(self, paths: LabPaths, handlers: dict[str, Handler]) -> None:
        path = socket_path(paths)
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()

        class Request(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(json.dumps(_answer(handlers, self.rfile.readline())).encode() + b"\n")

        mask = os.umask(0o177)
        try:
            self._server = socketserver.ThreadingUnixStreamServer(str(path), Request)
        finally:
            os.umask(mask)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="control", daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


def _answer(handlers: dict[str, Handler], line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
        return {"result": handlers[request.pop("command")](request)}
    except LabError as error:
        return {"error": str(error)}
    except Exception as error:
        log.exception("control")
        return {"error": f"the lab's daemon failed: {type(error).__name__}: {error}"}
