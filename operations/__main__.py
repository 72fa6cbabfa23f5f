"""Command line: `python -m operations --help`."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import wraps
from typing import Annotated, Any, ParamSpec

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console

from operations.artifacts import mirror as mirror_artifacts
from operations.cdk import run_cdk
from operations.deploy import deploy as deploy_environment
from operations.deployment import Deployment
from operations.drill.command import drill
from operations.errors import ExitCode, OperationError
from operations.nodes import Node, read_nodes
from operations.repair import break_lock, look_at_lock, order_rebuild, rebuild_objections, release
from operations.replace import (
    end,
    find,
    objections,
    roll,
    to_replace,
    wait_until_ready_again,
    wait_until_replaced,
    wait_until_safe,
)
from operations.survey import survey
from operations.view import node_table, status_screen, summary, summary_lines
from stacks.environment import Environment, EnvironmentErrors

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Deploy and operate a RabbitMQ cluster.",
    pretty_exceptions_enable=False,
)
artifacts = typer.Typer(no_args_is_help=True, help="The version profile's artefacts in the cluster's own bucket.")
app.add_typer(artifacts, name="artifacts")
node_commands = typer.Typer(no_args_is_help=True, help="One node: end, rebuild, release.")
app.add_typer(node_commands, name="node")
lock_commands = typer.Typer(no_args_is_help=True, help="The maintenance lock: one node at a time leaves on purpose.")
app.add_typer(lock_commands, name="lock")

# A width of its own where there is no terminal: a log must not break lines at 80 columns.
console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
errors = Console(stderr=True, highlight=False)

Env = Annotated[str, typer.Option("--env", help="Environment: the name of a file in environments/.")]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it. Without this nothing is changed.")]
NodeName = Annotated[str, typer.Argument(help="A node's name or its availability zone.")]
P = ParamSpec("P")


def _reported(command: Callable[P, None]) -> Callable[P, None]:
    """Turns what an operator can act on into message and exit code; anything else is a bug and keeps its traceback."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except EnvironmentErrors as error:
            errors.print(str(error), markup=False)
            raise typer.Exit(ExitCode.BAD_INPUT) from error
        except OperationError as error:
            errors.print(f"error: {error}", markup=False)
            raise typer.Exit(error.code) from error
        except (BotoCoreError, ClientError) as error:
            errors.print(f"error: AWS did not do what was asked: {error}", markup=False)
            errors.print(
                "  remedy: Check the credentials in use, what they may do (docs/operations.md) and the network."
            )
            raise typer.Exit(ExitCode.FAILED) from error
        except KeyboardInterrupt:
            errors.print("interrupted; what was started in AWS goes on")
            raise typer.Exit(130) from None

    return run


def _say(as_json: bool) -> Callable[[str], None]:
    """Progress for people; on standard error where standard output is JSON."""
    out = errors if as_json else console
    return lambda text: out.print(text, markup=False, soft_wrap=True)


def _show(document: dict[str, Any], as_json: bool, lines: list[str]) -> None:
    if as_json:
        print(json.dumps(document, indent=2, default=str))
        return
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _time(text: str) -> datetime:
    try:
        # Whole seconds, as EC2 tells launch times: what is launched in this very second is new.
        found = datetime.fromisoformat(text) if text else datetime.now(UTC).replace(microsecond=0)
    except ValueError as error:
        raise OperationError(
            f"--since {text} is no time", "Give it like 2026-12-01T09:00+00:00.", ExitCode.BAD_INPUT
        ) from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _launch_line(node: Node) -> str:
    launched = node.launched_at.isoformat(timespec="seconds") if node.launched_at else "at an unknown time"
    outdated = ", from an older launch template" if node.is_outdated else ""
    return f"{node.name}: {node.instance_id}, launched {launched}{outdated}"


@app.command()
@_reported
def deploy(
    env: Env = "local",
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before widening permissions or network access.")
    ] = False,
) -> None:
    """Deploy every stack, then wait until the cluster serves."""
    environment = Environment.load(env)
    nodes, changed = deploy_environment(environment, console, approve=yes)
    shown = summary(Deployment(environment), nodes)
    console.print()
    state = "ready" if changed else "ready; nothing was to change"
    console.print(node_table(nodes, f"{environment.cluster_name} is {state}"))
    console.print()
    for line in summary_lines(shown):
        console.print(line, markup=False, soft_wrap=True)


@app.command()
@_reported
def status(env: Env = "local", as_json: Json = False) -> None:
    """Everything on one screen. Exit code 0: healthy, 1: degraded, 6: not everything could be asked."""
    deployment = Deployment(Environment.load(env))
    seen = survey(deployment)
    if as_json:
        print(json.dumps(seen.as_dict() | {"endpoints": deployment.endpoints()}, indent=2, default=str))
    else:
        status_screen(console, seen)
        console.print()
        for line in summary_lines(summary(deployment, seen.nodes)):
            console.print(line, markup=False, soft_wrap=True)
    severities = {finding.severity for finding in seen.findings}
    if severities:
        raise typer.Exit(ExitCode.NOT_READY if "degraded" in severities else ExitCode.UNKNOWN)


@app.command("roll")
@_reported
def roll_(
    env: Env = "local",
    since: Annotated[
        str, typer.Option(help="Replace what was launched before this time (ISO 8601); the default is now.")
    ] = "",
    only_outdated: Annotated[
        bool, typer.Option("--only-outdated", help="Only nodes from another launch template version.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Replace the nodes one at a time, each only while the cluster is whole; stops at the first failure."""
    begun = _time(since)
    deployment = Deployment(Environment.load(env))
    plan = to_replace(read_nodes(deployment), since=begun, only_outdated=only_outdated)
    say = _say(as_json)
    if not yes:
        _show({"would_replace": [node.as_dict() for node in plan]}, as_json, [_launch_line(node) for node in plan])
        say("dry run: nothing was changed; --yes replaces these, one after the other" if plan else "nothing to replace")
        return
    again = "--only-outdated" if only_outdated else f"--since {begun.isoformat(timespec='seconds')}"
    say(f"to go on after an interruption: python -m operations roll --env {env} --yes {again}")
    done = [node.name for node in roll(deployment, since=begun, only_outdated=only_outdated, say=say)]
    wait_until_safe(deployment, say)
    _show({"replaced": done}, as_json, [f"replaced: {', '.join(done) or 'nothing'}; the cluster is whole"])


@node_commands.command("terminate")
@_reported
def node_terminate(
    node: NodeName,
    env: Env = "local",
    force: Annotated[bool, typer.Option("--force", help="Even if queues lose their quorum by it.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Replace one node: its instance leaves in good order, and Auto Scaling launches the next."""
    deployment = Deployment(Environment.load(env))
    seen = survey(deployment)
    found = find(seen.nodes, node)
    against = objections(seen)
    say = _say(as_json)
    if against and not force:
        raise OperationError(
            f"{found.name} is not ended: {'; '.join(against)}",
            "Wait until the cluster is whole (`status`). --force ends it all the same: queues may lose their quorum.",
            ExitCode.REFUSED,
        )
    for reason in against:
        say(f"forced, although {reason}")
    if not yes:
        say(f"dry run: --yes ends {found.instance_id} ({found.name}, {found.address}) and waits for its successor")
        return
    gone = end(deployment, found)
    new = wait_until_replaced(deployment, found.name, gone, say)
    _show({"node": new.as_dict(), "ended": gone}, as_json, [f"{new.name} is {new.instance_id} now, and ready"])


@node_commands.command("rebuild")
@_reported
def node_rebuild(node: NodeName, env: Env = "local", yes: Yes = False, as_json: Json = False) -> None:
    """Let a node whose data is lost start again, empty: the others forget it, and it joins them as a new member."""
    deployment = Deployment(Environment.load(env))
    found = find(read_nodes(deployment), node)
    against = rebuild_objections(deployment, found)
    if against:
        raise OperationError(
            f"{found.name} is not rebuilt: {'; '.join(against)}",
            "Only a node that does not run is rebuilt, and only while the others are whole: they hold the only copies.",
            ExitCode.REFUSED,
        )
    say = _say(as_json)
    if not yes:
        say(
            f"dry run: --yes lets {found.name} ({found.instance_id}) start empty; what its directory holds is set aside"
        )
        return
    order = order_rebuild(deployment, found)
    say(f"ordered at {order}; the node's agent takes it up within seconds")
    new = wait_until_ready_again(deployment, found.name, say)
    _show({"node": new.as_dict(), "ordered_at": order}, as_json, [f"{new.name} is a member again, and ready"])


@node_commands.command("release")
@_reported
def node_release(
    node: NodeName,
    dead: Annotated[str, typer.Option("--i-know-instance-is-dead", help="The instance that owns the node now.")],
    env: Env = "local",
) -> None:
    """Force the fence: a successor may take the node over although EC2 does not call its owner terminated.

    If that instance still runs, two brokers write one directory, and its data is lost.
    """
    deployment = Deployment(Environment.load(env))
    release(deployment, node, dead)
    console.print(f"{node} is free: the instance that waits at the fence takes it over within seconds")


@lock_commands.command("show")
@_reported
def lock_show(env: Env = "local", as_json: Json = False) -> None:
    """Who holds the maintenance lock, for how long, and whether they will give it back."""
    held = look_at_lock(Deployment(Environment.load(env)))
    lines = ["the maintenance lock is free"]
    if held:
        lock = held.lock
        lines = [
            f"held by {lock.node} ({lock.instance_id}) for {held.age_seconds:.0f} s: {lock.reason}",
            held.reason_to_keep or "nobody is left to give it back: `lock break` frees it",
        ]
    _show({"lock": asdict(held) if held else None}, as_json, lines)


@lock_commands.command("break")
@_reported
def lock_break(
    env: Env = "local",
    force: Annotated[bool, typer.Option("--force", help="Although its holder may still be at work.")] = False,
    yes: Yes = False,
) -> None:
    """Free the maintenance lock. Another node may then leave while the holder's is still away."""
    deployment = Deployment(Environment.load(env))
    held = look_at_lock(deployment)
    if held is None:
        console.print("the maintenance lock is free: nothing to break")
        return
    if held.reason_to_keep and not force:
        raise OperationError(
            f"the lock of {held.lock.node} is not broken: {held.reason_to_keep}",
            "Wait for it. --force breaks it all the same: two nodes may then be away at once, and queues lose quorum.",
            ExitCode.REFUSED,
        )
    if not yes:
        console.print(f"dry run: --yes frees the lock that {held.lock.node} ({held.lock.instance_id}) holds")
        return
    break_lock(deployment, held)
    console.print("the maintenance lock is free")


@app.command()
@_reported
def password(
    env: Env = "local",
    user: Annotated[str, typer.Option(help="administrator, monitoring or federation.")] = "administrator",
) -> None:
    """Print a user's password, and nothing else."""
    print(Deployment(Environment.load(env)).credentials(user).password)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
@_reported
def cdk(context: typer.Context, env: Env = "local") -> None:
    """Run the CDK CLI for an environment: `cdk --env staging diff --all`."""
    if not context.args:
        raise OperationError("no cdk command was given", "For example: cdk --env local diff --all", ExitCode.BAD_INPUT)
    raise typer.Exit(run_cdk(Environment.load(env), context.args))


app.command()(_reported(drill))


@artifacts.command()
@_reported
def mirror(env: Env = "local", as_json: Json = False) -> None:
    """Copy what the version profile names into the cluster's bucket; what is there already is kept."""
    rows: list[dict[str, Any]] = mirror_artifacts(Deployment(Environment.load(env)))
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        console.print(f"{row['result']:<10} {row['key']}  {row['detail']}", markup=False)


if __name__ == "__main__":
    sys.exit(app())
