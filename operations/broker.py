"""RabbitMQ's HTTP API, as much of it as operations read."""

from typing import Any
from urllib.parse import quote

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from operations.deployment import Credentials
from operations.errors import ExitCode, OperationError


class Broker:
    """The management API behind one URL. Every call is bounded by `timeout_seconds`."""

    def __init__(self, url: str, credentials: Credentials, timeout_seconds: float = 10) -> None:
        self._url = url.rstrip("/")
        self._timeout = timeout_seconds
        self._http = requests.Session()
        self._http.auth = (credentials.username, credentials.password)
        # Just after a node is lost the load balancer may still send a request there.
        retries = Retry(total=3, backoff_factor=1, status_forcelist=(502, 503, 504), raise_on_status=False)
        for scheme in ("http://", "https://"):
            self._http.mount(scheme, HTTPAdapter(max_retries=retries))
        self._http.trust_env = False  # no proxy, no netrc: this is a private address

    def get(self, path: str) -> Any:
        """The JSON that `/api/<path>` answers. Raises OperationError when it does not answer with success."""
        try:
            response = self._http.get(f"{self._url}/api/{path}", timeout=self._timeout)
            response.raise_for_status()
        except requests.RequestException as error:
            raise OperationError(
                f"the management API at {self._url} did not answer /api/{path}: {error}",
                "Run this from a network that the load balancer lets in, and see `status` for the nodes.",
                ExitCode.NOT_READY,
            ) from error
        return response.json()

    def overview(self) -> dict[str, Any]:
        """Versions, cluster name, totals."""
        return dict(self.get("overview"))

    def nodes(self) -> list[dict[str, Any]]:
        """Every member of the cluster, running or not."""
        return list(self.get("nodes"))

    def queues(self, virtual_host: str | None = None) -> list[dict[str, Any]]:
        """Queues with their members and leader."""
        return list(self.get("queues" if virtual_host is None else f"queues/{quote(virtual_host, safe='')}"))
