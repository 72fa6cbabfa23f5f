"""Faults that only a lab can make, and what only a lab can see: `python -m lab fault --help`."""

import http.client
import json
import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer

from lab.control import ask
from lab.efs_gate import Mode
from lab.host import Host
from lab.network import Network, socket_in_namespace
from lab.paths import LabPaths
from lab.processes import spawn, tail
from lab.system import LabError, run
from stacks.environment import Environment

app = typer.Typer(help="Break something, on purpose. Every fault names its undoing.", no_args_is_help=True)

Env = Annotated[str, typer.Option("--env", help="Environment: the stem of a file in environments/.")]
Nodes = Annotated[list[str], typer.Argument(help="Names of nodes, instance ids or availability zones.")]
Node = Annotated[str, typer.Argument(help="A node's name, its instance id or its availability zone.")]

OBSERVE_EVERY = 0.5


@app.command("power-cut")
def power_cut(
    nodes: Nodes,
    env: Env = "local",
    replace_after: Annotated[float, typer.Option(min=0, help="Seconds until Auto Scaling replaces them.")] = 0,
) -> None:
    """Cut the power of several nodes at once. Auto Scaling undoes it."""
    paths = _paths(env)
    instances = [find_instance(paths, node)["instance_id"] for node in nodes]
    with ThreadPoolExecutor(len(instances)) as threads:
        list(threads.map(lambda i: ask(paths, "kill", instance_id=i, replace_after=replace_after), instances))


@app.command()
def cut(zone: str, env: Env = "local") -> None:
    """Cut an availability zone off from everything. Undone by `heal`."""
    _network(env).cut(zone)


@app.command()
def heal(zone: str, env: Env = "local") -> None:
    """Undo `cut`."""
    _network(env).heal(zone)


@app.command()
def freeze(nodes: Nodes, env: Env = "local") -> None:
    """Stop all processes of nodes where they are; their addresses still answer. Undone by `thaw`."""
    for host in _hosts(env, nodes):
        host.freeze()


@app.command()
def thaw(nodes: Nodes, env: Env = "local") -> None:
    """Undo `freeze`."""
    for host in _hosts(env, nodes):
        host.thaw()


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def systemctl(context: typer.Context, nodes: Nodes, env: Env = "local") -> None:
    """Run systemctl on nodes at once: `fault systemctl NODE NODE -- stop consul`."""
    arguments = context.args
    if not arguments and "--" in sys.argv:  # click gives what follows `--` to the list of nodes
        arguments = sys.argv[sys.argv.index("--") + 1 :]
        nodes = nodes[: len(nodes) - len(arguments)]
    hosts = _hosts(env, nodes)
    with ThreadPoolExecutor(len(hosts)) as threads:
        list(threads.map(lambda host: host.run(["systemctl", *arguments], timeout=120), hosts))


@app.command()
def empty(node: Node, env: Env = "local") -> None:
    """Put an empty directory in the place of a node's EFS directory. The node's host must be gone. Not undone."""
    paths = _paths(env)
    name = find_instance(paths, node)["node"]
    directory = _efs_directory(paths, name)
    aside = directory.with_name(f"{name}.emptied-{int(time.time())}")
    directory.rename(aside)
    directory.mkdir(mode=0o755)
    print(f"{name}: its data is in {aside.name} now")


@app.command()
def efs(
    node: Node,
    mode: Annotated[str, typer.Argument(help="through, " + ", ".join(Mode) + ", direct, bypassed")],
    env: Env = "local",
) -> None:
    """What a node's EFS does. `through` puts a file system in its way, and `direct` takes it out; both count from the
    node's next instance on. In between the other words say what it does, at once. `bypassed`: direct for the next
    instance, while this one's goes on failing."""
    paths = _paths(env)
    name = find_instance(paths, node)["node"]
    if mode == "through":
        _interpose(paths, name)
    elif mode in ("direct", "bypassed"):
        if mode == "direct" and _mode_file(paths, name).exists():
            _mode_file(paths, name).write_text(Mode.NORMAL)
        _remove(paths, name)
    elif mode not in set(Mode):
        raise LabError(f"{mode}: known are through, {', '.join(Mode)}, direct, bypassed")
    elif not _is_mount(_efs_directory(paths, name)):
        raise LabError(f"{name}: nothing is in the way of its EFS. First `efs {name} through`, then a new instance.")
    else:
        _mode_file(paths, name).write_text(mode)


def _interpose(paths: LabPaths, name: str) -> None:
    directory = _efs_directory(paths, name)
    if _is_mount(directory):
        return
    # A new one each time: the directory of the last time may have been set aside, and its data with it.
    behind = paths.state / "efs-behind" / f"{name}-{time.time_ns()}"
    behind.mkdir(parents=True)
    run(["mount", "--bind", directory, behind])
    run(["mount", "--make-private", behind])
    _mode_file(paths, name).parent.mkdir(exist_ok=True)
    _mode_file(paths, name).write_text(Mode.NORMAL)
    process = spawn(
        [sys.executable, "-m", "lab.efs_fuse", behind, directory, _mode_file(paths, name)],
        log=paths.logs / f"efs-{name}.log",
        environment={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    process.save(paths.process(f"efs-{name}"))
    deadline = time.monotonic() + 10
    while not _is_mount(directory):
        if not process.alive or time.monotonic() > deadline:
            raise LabError(f"no file system for {name}:\n{tail(paths.logs / f'efs-{name}.log')}")
        time.sleep(0.05)


def _remove(paths: LabPaths, name: str) -> None:
    """The instance that is on it goes on using it, so process and source stay until the lab ends."""
    if _is_mount(_efs_directory(paths, name)):
        run(["umount", "--lazy", _efs_directory(paths, name)])


def _efs_directory(paths: LabPaths, name: str) -> Path:
    """Asks nothing of the directory itself: while its file system is stalled, even `stat` would wait."""
    found = {Path(os.path.normpath(link.parent / os.readlink(link))) for link in paths.efs.glob("*/fsap-*")}
    directory = next((path for path in found if path.name == name), None)
    if directory is None:
        raise LabError(f"{name}: none of the access points shows its directory: {sorted(map(str, found))}")
    return directory


def _is_mount(directory: Path) -> bool:
    return any(line.split()[1] == str(directory) for line in Path("/proc/self/mounts").read_text().splitlines())


def _mode_file(paths: LabPaths, name: str) -> Path:
    return paths.state / "efs-mode" / name


def observe(env: Env = "local") -> None:
    """What each host says of Consul, from inside: one JSON line a host and half second, until the reader ends."""
    paths = _paths(env)
    with ThreadPoolExecutor(8) as threads:
        while True:
            begun = time.time()
            hosts = Host.all(paths)
            for line in threads.map(_look, hosts):
                sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
            time.sleep(max(0.0, OBSERVE_EVERY - (time.time() - begun)))


def _look(host: Host) -> dict[str, Any]:
    state = "frozen" if host.frozen else "up" if host.alive else "down"
    seen: dict[str, Any] = {"at": time.time(), "instance": host.spec.instance_id, "host": state, "consul": None}
    if state == "up":
        try:
            leader, peers = (_consul(host, f"/v1/status/{what}") for what in ("leader", "peers"))
            seen["consul"] = {"leader": leader, "peers": [peer.rsplit(":", 1)[0] for peer in peers]}
        except (OSError, ValueError, LabError, http.client.HTTPException):
            pass
    return seen


def _consul(host: Host, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", 8500)
    connection.sock = socket_in_namespace(
        host.namespace, lambda: socket.create_connection(("127.0.0.1", 8500), timeout=2)
    )
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        if answer.status != 200:
            raise ValueError(answer.status)
        return json.loads(answer.read())
    finally:
        connection.close()


# -- what the commands share -------------------------------------------------------------------------------------------


def find_instance(paths: LabPaths, node: str) -> dict[str, Any]:
    """The instance that is meant: of several the youngest that is not on its way out."""
    instances = ask(paths, "status")["instances"]
    found = [i for i in instances if node in (i["node"], i["instance_id"], i["availability_zone"])]
    if not found:
        known = sorted({i["node"] for i in instances}) or ["none: nothing is deployed"]
        raise LabError(f"lab {paths.name} has no node {node}. Its nodes: {', '.join(known)}")
    order = {"running": 3, "pending": 2, "shutting-down": 1}
    return dict(max(found, key=lambda i: (order.get(i["state"], 0), i["launched"])))


def _paths(env: str) -> LabPaths:
    return LabPaths.of(Environment.load(env))


def _hosts(env: str, nodes: list[str]) -> list[Host]:
    paths = _paths(env)
    return [Host.load(find_instance(paths, node)["instance_id"], paths) for node in nodes]


def _network(env: str) -> Network:
    """The VPC as it is: every bridge's alias says which zone and subnet it is."""
    paths = _paths(env)
    links = json.loads(run(["ip", "-n", paths.vpc_namespace, "-json", "link", "show", "type", "bridge"]).stdout)
    subnets = [link["ifalias"].split("=") for link in links if "=" in link.get("ifalias", "")]
    return Network(paths, [(cidr, zone) for zone, cidr in subnets])
