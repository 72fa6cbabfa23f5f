"""The instance metadata service, one for each host, all served by the lab's process.

Version 2 only: without a token nothing but 401. A host reaches its own service at 169.254.169.254 because that address
is on the loopback interface of its network namespace, and the listening socket was made there.
"""

import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

from lab.layer import internal_domain
from lab.network import METADATA_ADDRESS, socket_in_namespace
from lab.system import LabError

MAXIMUM_TTL = 21600  # seconds, a token's longest life: EC2's limit
VERSIONS = ("1.0", "2009-04-04", "2016-09-02", "2018-09-24", "2021-03-23", "2024-04-11", "latest")


@dataclass(frozen=True)
class Credentials:
    """Keys of an instance's role."""

    access_key_id: str
    secret_access_key: str
    token: str
    expiration: datetime
    last_updated: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True)
class InstanceView:
    """What an instance's metadata says. The lab makes a new one for every request, so it is always current."""

    instance_id: str
    address: str
    mac: str
    availability_zone: str
    region: str
    account: str
    instance_type: str
    image_id: str
    architecture: str = "x86_64"
    launched: datetime = field(default_factory=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    user_data: bytes | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    role: str | None = None
    credentials: Credentials | None = None
    lifecycle_state: str | None = None
    subnet_id: str = ""
    subnet_cidr: str = ""
    vpc_id: str = ""
    vpc_cidr: str = ""
    security_groups: tuple[str, ...] = ()

    @property
    def hostname(self) -> str:
        """EC2's private DNS name."""
        return f"ip-{self.address.replace('.', '-')}.{internal_domain(self.region)}"


View = Callable[[str], InstanceView | None]
Tree = dict[str, "Tree | str"]


def metadata(view: InstanceView) -> Tree:
    """The tree under `meta-data`."""
    interface: Tree = {
        "device-number": "0",
        "interface-id": f"eni-{view.instance_id.removeprefix('i-')}",
        "local-hostname": view.hostname,
        "local-ipv4s": view.address,
        "mac": view.mac,
        "owner-id": view.account,
        "security-groups": "\n".join(view.security_groups),
        "subnet-id": view.subnet_id,
        "subnet-ipv4-cidr-block": view.subnet_cidr,
        "vpc-id": view.vpc_id,
        "vpc-ipv4-cidr-block": view.vpc_cidr,
        "vpc-ipv4-cidr-blocks": view.vpc_cidr,
    }
    tree: Tree = {
        "ami-id": view.image_id,
        "ami-launch-index": "0",
        "hostname": view.hostname,
        "instance-action": "none",
        "instance-id": view.instance_id,
        "instance-life-cycle": "on-demand",
        "instance-type": view.instance_type,
        "local-hostname": view.hostname,
        "local-ipv4": view.address,
        "mac": view.mac,
        "network": {"interfaces": {"macs": {view.mac: interface}}},
        "placement": {"availability-zone": view.availability_zone, "region": view.region},
        "security-groups": "\n".join(view.security_groups),
        "services": {"domain": "amazonaws.com", "partition": "aws"},
    }
    if view.tags:
        tree["tags"] = {"instance": dict(view.tags)}
    if view.lifecycle_state:
        tree["autoscaling"] = {"target-lifecycle-state": view.lifecycle_state}
    if view.role and view.credentials:
        profile = f"arn:aws:iam::{view.account}:instance-profile/{view.role}"
        info = {"Code": "Success", "LastUpdated": _stamp(view.credentials.last_updated), "InstanceProfileArn": profile}
        tree["iam"] = {
            "info": json.dumps(info),
            "security-credentials": {view.role: _role_document(view.credentials)},
        }
    return tree


def _role_document(credentials: Credentials) -> str:
    document = {
        "Code": "Success",
        "LastUpdated": _stamp(credentials.last_updated),
        "Type": "AWS-HMAC",
        "AccessKeyId": credentials.access_key_id,
        "SecretAccessKey": credentials.secret_access_key,
        "Token": credentials.token,
        "Expiration": _stamp(credentials.expiration),
    }
    return json.dumps(document, indent=2)


def _identity_document(view: InstanceView) -> str:
    document = {
        "accountId": view.account,
        "architecture": view.architecture,
        "availabilityZone": view.availability_zone,
        "imageId": view.image_id,
        "instanceId": view.instance_id,
        "instanceType": view.instance_type,
        "pendingTime": _stamp(view.launched),
        "privateIp": view.address,
        "region": view.region,
        "version": "2017-09-30",
    }
    return json.dumps(document, indent=2)


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def answer(view: InstanceView, path: str) -> bytes | None:
    """What a GET of `path` returns, such as `/latest/meta-data/instance-id`; None where EC2 has nothing (404).

    A directory lists its entries, one a line, directories with a slash, as cloud-init's crawler expects.
    """
    version, *parts = [part for part in path.split("/") if part] or [""]
    if not version:
        return "\n".join(VERSIONS).encode()
    if version not in VERSIONS:
        return None
    if parts == ["user-data"]:
        return view.user_data
    found: Tree | str = {
        "dynamic": {"instance-identity": {"document": _identity_document(view)}},
        "meta-data": metadata(view),
    }
    for part in parts:
        if not isinstance(found, dict) or part not in found:
            return None
        found = found[part]
    if isinstance(found, str):
        return found.encode()
    entries = [f"{name}/" if isinstance(value, dict) else name for name, value in sorted(found.items())]
    if not parts and view.user_data is not None:
        entries.append("user-data")
    return "\n".join(entries).encode()


class _Tokens:
    """Tokens of one instance, forgotten when their time is over."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ends: dict[str, float] = {}

    def issue(self, ttl: int) -> str:
        now = self._clock()
        self._ends = {token: end for token, end in self._ends.items() if end > now}
        token = secrets.token_urlsafe(40)
        self._ends[token] = now + ttl
        return token

    def remaining(self, token: str | None) -> int | None:
        """Seconds a token has left; None when it is no token of this instance or its time is over."""
        left = self._ends.get(token or "", 0.0) - self._clock()
        return int(left) if left > 0 else None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listener: socket.socket, instance_id: str, view: View, clock: Callable[[], float]) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_address = listener.getsockname()
        self.instance_id = instance_id
        self.view = view
        self.tokens = _Tokens(clock)

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: hosts lose power in the middle of a request, and that is no error of this service."""


class _Handler(BaseHTTPRequestHandler):
    server_version = "EC2ws"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = 30

    @property
    def _service(self) -> _Server:
        return cast(_Server, self.server)

    def do_PUT(self) -> None:
        if self.path.rstrip("/") != "/latest/api/token":
            return self._error(404, "Not Found")
        if self.headers.get("X-Forwarded-For"):
            return self._error(403, "Forbidden")
        ttl = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        if not ttl.isdigit() or not 1 <= int(ttl) <= MAXIMUM_TTL:
            return self._error(400, "Bad Request")
        header = ("X-aws-ec2-metadata-token-ttl-seconds", ttl)
        return self._reply(200, self._service.tokens.issue(int(ttl)).encode(), header)

    def do_GET(self) -> None:
        left = self._service.tokens.remaining(self.headers.get("X-aws-ec2-metadata-token"))
        if left is None:
            return self._error(401, "Unauthorized")
        view = self._service.view(self._service.instance_id)
        body = answer(view, self.path.partition("?")[0]) if view else None
        if body is None:
            return self._error(404, "Not Found")
        return self._reply(200, body, ("X-aws-ec2-metadata-token-ttl-seconds", str(left)))

    def _reply(self, code: int, body: bytes, header: tuple[str, str] | None = None) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "text/plain" if code == 200 else "text/html")
        self.send_header("Content-Length", str(len(body)))
        if header:
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(body)

    def _error(self, code: int, title: str) -> None:
        self._reply(code, f"<html><head><title>{code} - {title}</title></head></html>\n".encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a request's line is of no use, and the headers hold tokens."""


def listen_in_namespace(namespace: str, address: str, port: int) -> socket.socket:
    """A listening socket inside a network namespace, for use by this process outside of it."""
    try:
        return socket_in_namespace(namespace, lambda: socket.create_server((address, port), backlog=64))
    except OSError as error:
        raise LabError(f"cannot listen at {address}:{port} in network namespace {namespace}: {error}") from None


class MetadataService:
    """The metadata services of a lab's hosts. `view` gives an instance's data, or None when there is no such one."""

    def __init__(self, view: View, clock: Callable[[], float] = time.monotonic) -> None:
        self._view = view
        self._clock = clock
        self._servers: dict[str, _Server] = {}

    def serve(self, instance_id: str, namespace: str) -> None:
        """Answer at 169.254.169.254:80 inside this host's namespace. To be called between `prepare` and `boot`."""
        self.serve_on(instance_id, listen_in_namespace(namespace, METADATA_ADDRESS, 80))

    def serve_on(self, instance_id: str, listener: socket.socket) -> None:
        """Answer on a socket which listens already."""
        self.withdraw(instance_id)
        server = _Server(listener, instance_id, self._view, self._clock)
        self._servers[instance_id] = server
        threading.Thread(target=server.serve_forever, args=(0.1,), name=f"imds-{instance_id}", daemon=True).start()

    def withdraw(self, instance_id: str) -> None:
        """Stop answering. Until then the host's namespace cannot go away, because the socket is in it."""
        if server := self._servers.pop(instance_id, None):
            server.shutdown()
            server.server_close()

    def close(self) -> None:
        """Withdraw all."""
        for instance_id in list(self._servers):
            self.withdraw(instance_id)
