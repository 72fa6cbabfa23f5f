"""The lab's command line: an AWS on this machine, and its hosts.

python -m lab up|down|status|shell|logs|exec|inside|kill|terminate|fault|observe
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from lab import faults
from lab.cleanup import clean, leftovers
from lab.control import ask
from lab.faults import find_instance
from lab.host import Host
from lab.image import image_name
from lab.network import in_namespace
from lab.paths import LabPaths
from lab.ports import require_free
from lab.processes import Process, spawn, tail
from lab.system import LabError, clean_environment, require_programs, require_root
from stacks.environment import Environment, EnvironmentErrors

START_LIMIT = 60.0
"""Seconds the daemon may take until it answers. It needs two."""

CONFIGURATION = ("DELAYED_PLUGIN", "XDG_CACHE_HOME", "HOME")
"""Variables of the caller that the daemon gets. All others, credentials above all, it does not."""

app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
app.add_typer(faults.app, name="fault")
app.command()(faults.observe)
console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 200)

Env = Annotated[str, typer.Option("--env", help="Environment: the stem of a file in environments/.")]
Node = Annotated[str, typer.Argument(help="A node's name, its instance id or its availability zone.")]
Command = {"allow_extra_args": True, "ignore_unknown_options": True}


def _paths(env: str) -> LabPaths:
    return LabPaths.of(Environment.load(env))


@app.command()
def up(env: Env = "local") -> None:
    """Start the emulated AWS. It boots a host for every instance that is deployed into it."""
    paths = _paths(env)
    require_root()
    require_programs()
    plugin = os.environ.get("DELAYED_PLUGIN")
    if plugin and not Path(plugin).is_file():
        raise LabError(f"DELAYED_PLUGIN={plugin}: there is no such file. It names the plugin's .ez file.")
    endpoint = f"http://localhost:{paths.endpoint_port}"
    daemon = Process.load(paths.process("daemon"))
    if daemon and daemon.alive:
        _await_answer(paths, daemon)
        console.print(f"lab {env}: already running, AWS at {endpoint}")
        return
    if found := leftovers(paths):
        console.print(f"lab {env}: an earlier run was not ended in order; removing what it left:")
        for line in found:
            console.print(f"  {line}")
        clean(paths)
    require_free("127.0.0.1", paths.endpoint_port, "the emulated AWS")
    _start(paths)
    console.print(f"lab {env}: AWS at {endpoint}")
    if not (paths.cache / image_name()).is_dir():
        console.print(
            "  The hosts' image is not in the cache: it is being built, and hosts start when it is there. "
            f"`python -m lab status --env {env}` says how far it is."
        )
    if not plugin:
        console.print("  Without the delayed-message plugin: DELAYED_PLUGIN=/path/to/file.ez would bring it.")


def _start(paths: LabPaths) -> None:
    variables = {name: os.environ[name] for name in CONFIGURATION if name in os.environ}
    variables["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-m", "lab.daemon", paths.name]
    daemon = spawn(command, log=paths.logs / "daemon.log", environment=variables)
    daemon.save(paths.process("daemon"))
    try:
        _await_answer(paths, daemon)
    except LabError:
        clean(paths)
        raise


def _await_answer(paths: LabPaths, daemon: Process) -> None:
    deadline = time.monotonic() + START_LIMIT
    while True:
        try:
            ask(paths, "ping", timeout=2)
            return
        except LabError:
            if not daemon.alive or time.monotonic() > deadline:
                words = tail(paths.logs / "daemon.log", 15)
                raise LabError(f"the lab's daemon does not answer. Its last words:\n{words}") from None
            time.sleep(0.05)


@app.command()
def down(env: Env = "local") -> None:
    """End everything of this lab and remove it, data included. The cache stays."""
    paths = _paths(env)
    require_root()
    if not leftovers(paths):
        console.print(f"lab {env}: nothing runs, nothing is left")
        return
    clean(paths)
    if still := leftovers(paths):
        raise LabError(f"lab {env}: these could not be removed:\n" + "\n".join(f"  {line}" for line in still))
    console.print(f"lab {env}: ended; no process, namespace, mount, control group or file of it is left")


@app.command()
def status(env: Env = "local", as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False) -> None:
    """Instances, hosts and load balancer targets. The JSON has terminated instances too, for an hour."""
    found = ask(_paths(env), "status")
    if as_json:
        print(json.dumps(found, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("node", "instance", "zone", "address", "state", "lifecycle", "host", "targets"):
        table.add_column(heading)
    for instance in (i for i in found["instances"] if i["state"] != "terminated"):
        targets = " ".join(f"{t['port']}:{_up_or_down(t['state'])}" for t in instance["targets"])
        cells = [instance[k] for k in ("node", "instance_id", "availability_zone", "address", "state")]
        table.add_row(*(str(c or "-") for c in [*cells, instance["lifecycle_state"], instance["host"], targets]))
    console.print(table)
    console.print(f"AWS at {found['endpoint']}; {found['image']}")
    for balancer in found["load_balancers"]:
        console.print(f"load balancer {balancer['name']}: {balancer['address']} {balancer['ports']}", markup=False)
    for part, problem in found["problems"].items():
        console.print(f"problem: {part}: {problem}", style="red", markup=False)


def _up_or_down(state: str) -> str:
    return {"healthy": "UP", "unhealthy": "DOWN"}.get(state, state.upper())


@app.command(context_settings=Command)
def shell(context: typer.Context, node: Node, env: Env = "local") -> None:
    """Enter a node's host, or run a command on it: `shell NODE -- COMMAND`."""
    _enter(_paths(env), node, context.args or ["bash", "--login"])


@app.command()
def logs(
    node: Node, env: Env = "local", follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on.")] = False
) -> None:
    """A node's journal; its console, when its host is gone."""
    paths = _paths(env)
    instance = find_instance(paths, node)
    if instance["host"] == "up":
        _enter(paths, node, ["journalctl", "--no-pager", "--lines=500", *(["--follow"] if follow else [])])
    console_log = paths.console(instance["instance_id"])
    try:
        sys.stdout.write(console_log.read_text(errors="replace"))
    except FileNotFoundError:
        raise LabError(f"{node} has no host yet, so it has written nothing") from None


@app.command("exec", context_settings=Command)
def exec_(context: typer.Context, env: Env = "local") -> None:
    """Run a command which talks to the emulated AWS: `exec -- aws ec2 describe-instances`."""
    if not context.args:
        raise LabError("which command? `python -m lab exec -- COMMAND`")
    paths = _paths(env)
    variables = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    endpoint = f"http://localhost:{paths.endpoint_port}"
    variables |= {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ENDPOINT_URL_S3": endpoint,  # by name: virtual-hosted buckets need one
        "AWS_ACCESS_KEY_ID": "lab",
        "AWS_SECRET_ACCESS_KEY": "lab",
        "AWS_REGION": paths.region,
        "AWS_DEFAULT_REGION": paths.region,
    }
    _become(context.args, variables)


@app.command(context_settings=Command)
def inside(context: typer.Context, env: Env = "local") -> None:
    """Run a command of this machine inside the VPC, where the hosts' own addresses are: `inside -- COMMAND`."""
    if not context.args:
        raise LabError("which command? `python -m lab inside -- COMMAND`")
    require_root()
    _become(in_namespace(_paths(env).vpc_namespace, *context.args), dict(os.environ))


@app.command()
def kill(
    node: Node,
    env: Env = "local",
    replace_after: Annotated[float, typer.Option(min=0, help="Seconds until Auto Scaling replaces it.")] = 0,
) -> None:
    """Cut a node's power: its host is gone at once, and Auto Scaling replaces it."""
    paths = _paths(env)
    instance = find_instance(paths, node)
    ask(paths, "kill", instance_id=instance["instance_id"], replace_after=replace_after)
    console.print(f"{instance['node']} ({instance['instance_id']}): power cut")


@app.command()
def terminate(node: Node, env: Env = "local") -> None:
    """End a node's instance through Auto Scaling: hooks first, and a replacement at once."""
    paths = _paths(env)
    instance = find_instance(paths, node)
    ask(paths, "terminate", instance_id=instance["instance_id"])
    console.print(f"{instance['node']} ({instance['instance_id']}): terminating")


# -- what the commands share -------------------------------------------------------------------------------------------


def _enter(paths: LabPaths, node: str, argv: list[str]) -> NoReturn:
    host = Host.load(find_instance(paths, node)["instance_id"], paths)
    _become(host.enter_command(argv), clean_environment())


def _become(argv: list[str], variables: dict[str, str]) -> NoReturn:
    sys.stdout.flush()
    try:
        os.execvpe(argv[0], argv, variables)  # noqa: S606
    except FileNotFoundError:
        raise LabError(f"{argv[0]}: no such program") from None


def main() -> NoReturn:
    """The command line. Exit code 1 for what went wrong, 2 for a wrong environment."""
    try:
        app(standalone_mode=True)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        sys.exit(1)
    except EnvironmentErrors as errors:
        print(errors, file=sys.stderr)
        sys.exit(2)
    sys.exit(0)


if __name__ == "__main__":
    main()
