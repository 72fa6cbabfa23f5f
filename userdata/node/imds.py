"""The instance metadata service, version 2."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request

from node.errors import NotYet

URL = "http://169.254.169.254/latest"

TOKEN_SECONDS = 21600
"""IMDSv2's longest token life."""

_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


class Imds:
    """Reads metadata. One token is kept and renewed when it is no longer accepted."""

    def __init__(self, url: str = URL, timeout: float = 3) -> None:
        self._url, self._timeout = url, timeout
        self._token: str | None = None
        self._lock = threading.Lock()

    def get(self, name: str) -> str | None:
        """The value of `meta-data/<name>`, or None if there is none. Raises NotYet if the service does not answer."""
        try:
            return self._get(name)
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise NotYet(f"instance metadata {name}: HTTP {error.code}") from error
            self._token = None
        except OSError as error:
            raise NotYet(f"instance metadata does not answer: {error}") from error
        try:
            return self._get(name)
        except OSError as error:
            raise NotYet(f"instance metadata does not answer: {error}") from error

    def must(self, name: str) -> str:
        """Like `get`, for what every instance has."""
        value = self.get(name)
        if not value:
            raise NotYet(f"instance metadata has no {name}")
        return value

    def _get(self, name: str) -> str | None:
        headers = {"X-aws-ec2-metadata-token": self._current_token()}
        try:
            return self._read(urllib.request.Request(f"{self._url}/meta-data/{name}", headers=headers))  # noqa: S310
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def _current_token(self) -> str:
        with self._lock:
            if self._token is None:
                headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
                request = urllib.request.Request(f"{self._url}/api/token", method="PUT", headers=headers)  # noqa: S310
                self._token = self._read(request)
            return self._token

    def _read(self, request: urllib.request.Request) -> str:
        with _open(request, timeout=self._timeout) as response:
            return str(response.read().decode())
