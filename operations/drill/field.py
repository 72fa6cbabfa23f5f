"""Where a drill takes place: the cluster, what is seen of it, its clients, and the ways to break it."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from botocore.exceptions import BotoCoreError, ClientError

from operations.deployment import Deployment
from operations.drill.conditions import Settling, View
from operations.errors import ExitCode, OperationError
from operations.nodes import Node, read_nodes
from operations.table import NodeTable
from stacks.environment import Environment

PROJECT = Path(__file__).resolve().parents[2]
POLL = 0.5
"""Seconds between two looks at AWS."""

LEADERS_LIMIT = 90.0
"""Seconds that leaders may stay unbalanced when all else is well."""

HELD = 3.0
"""Seconds all conditions must hold together before a cluster counts as whole."""


@dataclass
class Mark:
    """Something the drill did, for the timeline."""

    at: float
    what: str


@dataclass
class Sample:
    """One look at the cluster, for the timeline: node -> state, queue -> state."""

    at: float
    nodes: dict[str, str]
    queues: dict[str, str]


class Lab:
    """The lab's command line, in child processes: operations know no more of it than a person would."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def command(self, *arguments: str) -> list[str]:
        """`python -m lab ARGUMENTS --env ...`, for what only an emulated environment has."""
        if not self._environment.aws_endpoint:
            raise OperationError(
                f"{self._environment.name} is in AWS: this fault can only be made in the lab",
                "Choose a gentle drill (`drill` lists them), or an environment with an aws_endpoint.",
                ExitCode.BAD_INPUT,
            )
        first, *rest = arguments
        head = [first, rest.pop(0)] if first == "fault" else [first]
        return [sys.executable, "-m", "lab", *head, "--env", self._environment.name, *rest]

    def run(self, *arguments: str, limit: float = 180) -> str:
        """Run it to its end; raises OperationError with its words when it fails."""
        done = subprocess.run(
            self.command(*arguments), cwd=PROJECT, capture_output=True, text=True, timeout=limit, check=False
        )
        if done.returncode != 0:
            raise OperationError(
                f"`python -m lab {' '.join(arguments)}` failed: {(done.stderr or done.stdout).strip()}",
                f"See `python -m lab status --env {self._environment.name}`.",
            )
        return done.stdout

    def inside(self, *argv: str) -> list[str]:
        """The command that runs a program where the nodes' own addresses can be reached."""
        if not self._environment.aws_endpoint:
            return list(argv)
        return [*self.command("inside"), "--", *argv]


@dataclass
class Field:
    """One cluster, watched. Use as a context manager: the watching ends with it."""

    deployment: Deployment
    directory: Path
    marks: list[Mark] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    launched: dict[str, float] = field(default_factory=dict)
    """When each instance was first seen, by instance id."""
    say: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        self.environment = self.deployment.environment
        self.lab = Lab(self.environment)
        self.names = [node.name for node in self.environment.nodes]
        self.addresses_file = self.directory / "addresses.json"
        hosts: dict[str, Any] | None = {} if self.environment.aws_endpoint else None
        self.view = View(self.names, hosts=hosts)
        self._nodes: list[Node] = []
        self._instance_of: dict[str, str] = {}
        self._stop = threading.Event()
        self._children: list[subprocess.Popen[str]] = []
        self._lock = threading.Lock()

    # -- life --------------------------------------------------------------------------------------------------------

    def __enter__(self) -> "Field":
        self.directory.mkdir(parents=True, exist_ok=True)
        self.look()
        user = self.deployment.credentials("administrator")
        orders = {
            "username": user.username, "password": user.password, "nodes": self.names, "port": 15672,
            "addresses": str(self.addresses_file),
        }  # fmt: skip
        self.listen(self.spawn("operations.drill.watch", orders, "watch"), self._broker_said)
        if self.environment.aws_endpoint:
            child = subprocess.Popen(
                self.lab.command("observe"), cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                stderr=(self.directory / "observe.err").open("w"),
            )  # fmt: skip
            self._children.append(child)
            self.listen(child, self._host_said)
        threading.Thread(target=self._watch_aws, name="aws", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for child in self._children:
            child.terminate()
        for child in self._children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(5)

    def spawn(self, module: str, orders: dict[str, Any], name: str, *, inside: bool = True) -> "subprocess.Popen[str]":
        """Start a child on the clients' side. Its orders, a password among them, come on standard input."""
        argv = [sys.executable, "-m", module]
        child = subprocess.Popen(
            self.lab.inside(*argv) if inside else argv,
            cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=(self.directory / f"{name}.err").open("w"),
        )  # fmt: skip
        assert child.stdin
        child.stdin.write(json.dumps(orders) + "\n")
        child.stdin.flush()
        self._children.append(child)
        return child

    def listen(self, child: "subprocess.Popen[str]", hear: Callable[[dict[str, Any]], None]) -> None:
        """Hand every JSON line of a child to `hear`."""
        assert child.stdout
        threading.Thread(target=_each_line, args=(child.stdout, hear), daemon=True).start()

    # -- what is seen ------------------------------------------------------------------------------------------------

    def look(self) -> list[Node]:
        """Ask AWS now."""
        nodes = read_nodes(self.deployment)
        now = time.time()
        with self._lock:
            self._nodes = nodes
            for node in nodes:
                if node.instance_id:
                    self.launched.setdefault(node.instance_id, now)
                    self._instance_of[node.instance_id] = node.name
            self.view.progress = {node.name: node.progress for node in nodes}
            self.view.instances = {node.name: node.instance_id or "" for node in nodes}
            self.view.addresses = {node.name: node.address for node in nodes if node.address}
        # What clients know: the owners' addresses. A successor is launched long before it serves, and an address stays
        # until there is another one.
        records = NodeTable(self.deployment).items([f"node/{name}" for name in self.names]).values()
        known = json.loads(self.addresses_file.read_text()) if self.addresses_file.exists() else {}
        wanted = known | {item["id"].removeprefix("node/"): item["address"] for item in records if "address" in item}
        if wanted != known:
            write_whole(self.addresses_file, json.dumps(wanted))
        return nodes

    @property
    def nodes(self) -> list[Node]:
        """As AWS was last seen."""
        with self._lock:
            return list(self._nodes)

    def now(self) -> View:
        """The latest view."""
        with self._lock:
            self.view.at = time.time()
            return self.view

    def _watch_aws(self) -> None:
        while not self._stop.wait(POLL):
            with contextlib.suppress(BotoCoreError, ClientError, OperationError):
                self.look()
            self.samples.append(self._sample())

    def _broker_said(self, said: dict[str, Any]) -> None:
        with self._lock:
            self.view.brokers[said["node"]] = said

    def _host_said(self, said: dict[str, Any]) -> None:
        with self._lock:
            node = self._instance_of.get(said["instance"])
            if node and self.view.hosts is not None and self.view.instances.get(node) == said["instance"]:
                self.view.hosts[node] = said

    def _sample(self) -> Sample:
        view = self.now()
        return Sample(
            view.at,
            {node: node_state(view, node) for node in self.names},
            queue_states(view),
        )

    # -- what is done ------------------------------------------------------------------------------------------------

    def mark(self, what: str) -> float:
        """Note what is done, for the reader; returns when."""
        at = time.time()
        self.marks.append(Mark(at, what))
        self.say(what)
        return at

    def wait_until(self, what: str, holds: Callable[[View], bool], limit: float) -> None:
        """Wait until the view is as it should be. Raises OperationError after `limit` seconds."""
        deadline = time.monotonic() + limit
        while not holds(self.now()):
            if time.monotonic() > deadline:
                raise OperationError(f"waited {limit:.0f} s for {what}", "See the drill's report for what happened.")
            time.sleep(0.2)

    def whole(self, limit: float, *, without: Sequence[str] = ()) -> Settling:
        """Wait until all conditions hold and go on holding, for at most `limit` seconds; what was reached and when."""
        settling, deadline = Settling(ignored=without), time.monotonic() + limit
        while settling.held_for(time.time()) < HELD and time.monotonic() < deadline:
            settling.look(self.now())
            if set(settling.reasons) == {"leaders"}:  # nothing else is to be waited for, and it should not take long
                deadline = min(deadline, time.monotonic() + LEADERS_LIMIT)
            time.sleep(0.2)
        return settling

    def operations(self, *arguments: str, limit: float = 600) -> str:
        """Another operation, as a person would run it. Raises OperationError with its words when it fails."""
        command = [sys.executable, "-m", "operations", *arguments, "--env", self.environment.name]
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=limit, check=False)
        if done.returncode != 0:
            raise OperationError(
                f"`operations {' '.join(arguments)}` ended with {done.returncode}: {done.stderr or done.stdout}",
                "Run it by hand and look.",
            )
        return done.stdout

    def wait_replaced(self, node: str, before: str, limit: float = 120) -> float:
        """Wait until a node has another instance; returns when that was first seen."""
        self.wait_until(f"a replacement of {node}", lambda v: v.instances.get(node, "") not in ("", before), limit)
        return self.launched[self.view.instances[node]]


def _each_line(stream: IO[str], hear: Callable[[dict[str, Any]], None]) -> None:
    for line in stream:
        with contextlib.suppress(ValueError):
            hear(json.loads(line))


def write_whole(path: Path, text: str) -> None:
    """Replace a file so that a reader sees the old one or the new one."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    os.replace(fresh, path)


def node_state(view: View, node: str) -> str:
    """One word for the timeline: serving, alone, booting, waiting, frozen, silent or gone."""
    host = (view.hosts or {}).get(node)
    if not view.instances.get(node):
        return "gone"
    if host and host["host"] == "frozen":
        return "frozen"
    said = view.broker(node)
    if said and sum(said["members"].values()) == len(view.nodes):
        return "serving"
    if said:
        return "alone" if sum(said["members"].values()) == 1 else "incomplete"
    progress = view.progress.get(node, "")
    return "silent" if progress == "ready" or "load balancers" in progress else "booting"


def queue_states(view: View) -> dict[str, str]:
    """One word a queue, in the eyes of the node that sees most of it."""
    states: dict[str, str] = {}
    for said in filter(None, (view.broker(node) for node in view.nodes)):
        for name, queue in said["queues"].items():
            online = len(set(queue["online"]) & view.expected) if queue["leader"] else 0
            state = "whole" if online == len(view.nodes) else "reduced" if online >= 2 else "unavailable"
            order: Sequence[str] = ("unavailable", "reduced", "whole")
            states[name] = max(state, states.get(name, "unavailable"), key=order.index)
    return states


@contextlib.contextmanager
def undone(*undo: Callable[[], object]) -> Iterator[None]:
    """Run `undo` at the end, come what may."""
    try:
        yield
    finally:
        for action in undo:
            action()
