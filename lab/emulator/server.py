"""The HTTP server: moto's application, one request at a time.

moto's models are not made for threads, and the supervisor works on them too: so one lock guards them all. Requests are
read and answers written outside of it, so that a client which stops in the middle (a frozen host) holds nobody up.
"""

import io
import json
import logging
import threading
from collections.abc import Iterable
from typing import Any
from xml.sax.saxutils import escape

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

log = logging.getLogger("lab.emulator")


class _QuietHandler(MotoRequestHandler):
    """moto's request handler without a line in the log for each of the hosts' many requests."""

    timeout = 60  # seconds without a byte until a connection is dropped

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Only what went wrong on the server's side."""
        if str(code).startswith("5"):
            super().log_request(code, size)


class _OneAtATime:
    """WSGI middleware which holds `lock` while the application works."""

    def __init__(self, application: Any, lock: Any) -> None:
        self._application = application
        self._lock = lock

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if "chunked" not in environ.get("HTTP_TRANSFER_ENCODING", ""):
            length = int(environ.get("CONTENT_LENGTH") or 0)
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length) if length else b"")
        with self._lock:
            try:
                answer = self._application(environ, start_response)
                try:
                    return list(answer)
                finally:
                    getattr(answer, "close", lambda: None)()
            except NotImplementedError as error:  # moto's word for a call that it does not know
                log.info("%s", error)
                return _failure(environ, error, start_response)
            except Exception as error:
                log.exception("%s %s", environ["REQUEST_METHOD"], environ["PATH_INFO"])
                return _failure(environ, error, start_response)


def _failure(environ: dict[str, Any], error: Exception, start_response: Any) -> list[bytes]:
    """What a client can show: AWS's form of an error, with the emulator's words in it. No SDK tries a 501 again."""
    message = f"the emulator failed: {type(error).__name__}: {error}"
    if "json" in environ.get("CONTENT_TYPE", ""):
        body, kind = json.dumps({"__type": "InternalFailure", "message": message}), "application/x-amz-json-1.1"
    else:
        text = f"<Error><Code>InternalFailure</Code><Message>{escape(message)}</Message></Error>"
        body, kind = f"<ErrorResponse>{text}</ErrorResponse>", "text/xml"
    start_response("501 Not Implemented", [("Content-Type", kind)])
    return [body.encode()]


class ApiServer:
    """Serves AWS's API at `address:port` (port 0: any free one) from a thread of its own."""

    def __init__(self, address: str, port: int, lock: Any) -> None:
        application = _OneAtATime(DomainDispatcherApplication(create_backend_app), lock)
        self._server = make_server(address, port, application, threaded=True, request_handler=_QuietHandler)
        self._server.daemon_threads = True  # type: ignore[attr-defined]
        self.port: int = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="aws-api", daemon=True)

    def start(self) -> None:
        """Begin to answer. The port has been taken already, so nobody sees a refused connection."""
        self._thread.start()

    def stop(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
