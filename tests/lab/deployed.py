"""A deployed lab as tests use it: the README's commands, and ways into the cluster."""

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lab.control import ask
from lab.host import Host
from lab.paths import LabPaths
from operations.broker import Broker
from operations.deployment import Credentials, Deployment
from stacks.environment import Environment

PROJECT = Path(__file__).resolve().parents[2]


def make(target: str, limit_seconds: int = 900) -> str:
    """Runs `make TARGET` and returns what it printed. A failure shows all of it."""
    done = subprocess.run(
        ["make", target],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=limit_seconds,
        check=False,
    )
    assert done.returncode == 0, f"make {target} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


@dataclass
class Lab:
    """A deployed lab, and ways into it."""

    environment: Environment
    paths: LabPaths
    deploy_output: str
    deployment: Deployment = field(init=False)

    def __post_init__(self) -> None:
        self.deployment = Deployment(self.environment)

    def status(self) -> dict[str, Any]:
        """`operations status --json`."""
        done = subprocess.run(
            [".venv/bin/python", "-m", "operations", "status", "--env", self.environment.name, "--json"],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return dict(json.loads(done.stdout))

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes of `status`, in the order of their zones."""
        return list(self.status()["nodes"])

    def host(self, instance_id: str) -> Host:
        """The host that runs an instance."""
        return Host.load(instance_id, self.paths)

    def credentials(self, user: str = "administrator") -> Credentials:
        """A user's name and password."""
        return self.deployment.credentials(user)

    def broker(self) -> Broker:
        """The management API through the application load balancer."""
        return Broker(self.deployment.parameter("management-url"), self.credentials())

    def amqp_address(self) -> tuple[str, int]:
        """Host and port of the network load balancer."""
        host, port = self.deployment.parameter("amqp-endpoint").removeprefix("amqp://").split(":")
        return host, int(port)

    def amqp_url(self) -> str:
        """The network load balancer with the administrator's credentials, for this process."""
        host, port = self.amqp_address()
        credentials = self.credentials()
        return f"amqp://{credentials.username}:{quote(credentials.password, safe='')}@{host}:{port}/%2F"

    def dynamodb_endpoint(self) -> str:
        """The emulated DynamoDB."""
        assert self.environment.aws_endpoint
        return self.environment.aws_endpoint

    def kill(self, node: str) -> None:
        """Cut a node's power. It is replaced by itself."""
        [instance] = [found["instance_id"] for found in self.nodes() if found["name"] == node]
        ask(self.paths, "kill", instance_id=instance, replace_after=0)

    def client(self, command: str, address: str, **arguments: Any) -> Any:
        """Runs tests/lab/amqp_client.py inside the VPC, against one node's own address; what it answers."""
        credentials = self.credentials()
        request = {
            "command": command,
            "host": address,
            "username": credentials.username,
            "password": credentials.password,
            **arguments,
        }
        done = subprocess.run(
            [
                "ip",
                "netns",
                "exec",
                self.paths.vpc_namespace,
                PROJECT / ".venv/bin/python",
                PROJECT / "tests/lab/amqp_client.py",
            ],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
