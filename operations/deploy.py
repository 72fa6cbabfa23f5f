"""`make deploy`: bootstrap where that is ours to do, `cdk deploy --all`, then wait until the cluster serves."""

import time
from collections.abc import Sequence
from datetime import datetime

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from operations.aws import Aws
from operations.cdk import is_bootstrapped, run_cdk
from operations.deployment import Deployment
from operations.errors import ExitCode, OperationError
from operations.nodes import Node, read_nodes
from operations.view import node_table
from stacks.environment import Environment

READY_LIMIT_SECONDS = 30 * 60
"""How long a cluster may take from deployed stacks to ready: the nodes' own CreationPolicy gives up after as much."""

_POLL_SECONDS = 1.0


def deploy(environment: Environment, console: Console, *, approve: bool) -> tuple[Sequence[Node], bool]:
    """Deploys every stack; the nodes once all are ready, and whether any stack changed. Raises OperationError."""
    aws = Aws(environment)
    if not is_bootstrapped(aws):
        if not environment.is_emulated:
            raise OperationError(
                f"account {environment.account} is not bootstrapped for the CDK in {environment.region}",
                f"Run `make bootstrap ENV={environment.name}` once, with credentials that may create roles.",
                ExitCode.NOT_DEPLOYED,
            )
        console.print("[bold]cdk bootstrap[/]")
        _checked("bootstrap", run_cdk(environment, ["bootstrap", "--quiet"]))
    console.print("[bold]cdk deploy --all[/]")
    arguments = ["deploy", "--all", "--concurrency", "3"]
    if environment.is_emulated:
        # Directly, because a change set costs a second more, and without asking: there is nothing to be afraid of.
        arguments += ["--method=direct", "--require-approval", "never"]
    elif approve:
        arguments += ["--require-approval", "never"]
    before = _stack_times(environment, aws)
    _checked("deploy", run_cdk(environment, arguments))
    changed = before != _stack_times(environment, aws)
    return wait_until_ready(Deployment(environment, aws), console), changed


def _stack_times(environment: Environment, aws: Aws) -> dict[str, datetime]:
    """When each stack of the environment was last created or updated."""
    stacks = (s for page in aws.cloudformation.get_paginator("describe_stacks").paginate() for s in page["Stacks"])
    return {
        stack["StackName"]: stack.get("LastUpdatedTime") or stack["CreationTime"]
        for stack in stacks
        if stack["StackName"].startswith(f"{environment.cluster_name}-")
    }


def _checked(what: str, returncode: int) -> None:
    if returncode:
        raise OperationError(f"cdk {what} ended with exit code {returncode}", "Its own message is above.")


def wait_until_ready(
    deployment: Deployment, console: Console, limit_seconds: float = READY_LIMIT_SECONDS
) -> Sequence[Node]:
    """Shows what each node is doing until all three are ready. Raises OperationError when one refuses or time is up."""
    started = time.monotonic()
    shown: dict[str, str] = {}
    nodes = read_nodes(deployment)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not all(node.is_ready for node in nodes):
            elapsed = time.monotonic() - started
            failed = [node for node in nodes if node.has_failed]
            if failed:
                raise _refused(failed)
            if elapsed > limit_seconds:
                waiting = "; ".join(f"{node.name}: {node.progress}" for node in nodes if not node.is_ready)
                raise OperationError(
                    f"not ready after {limit_seconds:.0f} s: {waiting}",
                    "See `journalctl -t rabbitmq-node` on the node (Session Manager, or `python -m lab shell NODE`).",
                    ExitCode.NOT_READY,
                )
            if console.is_terminal:
                live.update(
                    Group(node_table(nodes), Text(f"waiting for the cluster, {elapsed:.0f} s", "dim")), refresh=True
                )
            else:
                _print_changes(nodes, shown, console, elapsed)
            time.sleep(_POLL_SECONDS)
            nodes = read_nodes(deployment)
    if not console.is_terminal:
        _print_changes(nodes, shown, console, time.monotonic() - started)
    return nodes


def _print_changes(nodes: Sequence[Node], shown: dict[str, str], console: Console, elapsed: float) -> None:
    for node in nodes:
        if shown.get(node.name) != node.progress:
            shown[node.name] = node.progress
            console.print(f"{elapsed:5.0f} s  {node.name}: {node.progress}", highlight=False)


def _refused(failed: Sequence[Node]) -> OperationError:
    reports = [(node, node.boot) for node in failed if node.boot]
    return OperationError(
        "; ".join(f"{node.name} ({node.instance_id}) stopped at {node.progress}" for node, _ in reports),
        "; ".join(sorted({report.remedy for _, report in reports if report.remedy})) or "See the node's journal.",
        ExitCode.NOT_READY,
    )
