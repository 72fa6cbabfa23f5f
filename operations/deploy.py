"""`make deploy`: bootstrap where that is ours to do, then `cdk deploy --all` with the nodes' progress beside it."""

import time
from collections.abc import Sequence
from datetime import datetime

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from operations.aws import Aws
from operations.cdk import CdkRun, is_bootstrapped, run_cdk
from operations.deployment import Deployment
from operations.errors import ExitCode, OperationError
from operations.nodes import Node, read_nodes
from operations.view import node_table
from stacks.environment import Environment

READY_LIMIT_SECONDS = 30 * 60
"""How long a cluster may take from deployed stacks to ready: the nodes' own CreationPolicy gives up after as much."""

_POLL_SECONDS = 1.0

_CREATING = "CREATE_IN_PROGRESS"


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
        with CdkRun(environment, ["bootstrap", "--quiet"]) as cdk:
            console.print(f"[bold]cdk bootstrap[/] (its own output: {cdk.log})")
            _checked(cdk, cdk.wait(), console)
    arguments = ["deploy", "--all", "--concurrency", "3"]
    if environment.is_emulated:
        # Directly: a change set costs a second more.
        arguments.append("--method=direct")
    before = {name: at for name, (_, at) in _stacks(environment, aws).items()}
    if environment.is_emulated or approve:
        cdk = CdkRun(environment, [*arguments, "--require-approval", "never"])
        console.print(f"[bold]cdk deploy --all[/] (its own output: {cdk.log})")
        with _Progress(console) as progress:
            _watch(cdk, environment, aws, console, progress)
            nodes = _wait(Deployment(environment, aws), progress, READY_LIMIT_SECONDS)
    else:
        console.print("[bold]cdk deploy --all[/]")
        if code := run_cdk(environment, arguments):  # it may ask, so it has the terminal
            raise OperationError(f"cdk deploy ended with exit code {code}", "Its own message is above.")
        nodes = wait_until_ready(Deployment(environment, aws), console)
    return nodes, before != {name: at for name, (_, at) in _stacks(environment, aws).items()}


def _watch(cdk: CdkRun, environment: Environment, aws: Aws, console: Console, progress: "_Progress") -> None:
    """Shows stacks and nodes while cdk runs. Raises OperationError as soon as the outcome is certain."""
    refusal: OperationError | None = None
    with cdk:
        while (code := cdk.poll()) is None:
            stacks = {name: status for name, (status, _) in _stacks(environment, aws).items()}
            nodes = _nodes_so_far(environment, aws)
            failed = [node for node in nodes if node.has_failed]
            if failed:
                refusal = _refused(failed)
                if stacks.get(environment.stack_name("cluster")) == _CREATING:
                    # Nothing to roll back to, and CloudFormation would wait for the others' half an hour.
                    raise refusal
            progress.show(nodes, "cdk deploy", [f"stack {name}: {status}" for name, status in sorted(stacks.items())])
            time.sleep(_POLL_SECONDS)
    if code and refusal:
        raise OperationError(f"the deployment was rolled back: {refusal.message}", refusal.remedy, refusal.code)
    _checked(cdk, code, console)


def _nodes_so_far(environment: Environment, aws: Aws) -> Sequence[Node]:
    try:
        return read_nodes(Deployment(environment, aws))
    except OperationError:
        return []  # the storage stack, with the table that nodes report to, is not there yet


def _stacks(environment: Environment, aws: Aws) -> dict[str, tuple[str, datetime]]:
    """Status of each of the environment's stacks, and when it was last created or updated."""
    stacks = (s for page in aws.cloudformation.get_paginator("describe_stacks").paginate() for s in page["Stacks"])
    return {
        stack["StackName"]: (stack["StackStatus"], stack.get("LastUpdatedTime") or stack["CreationTime"])
        for stack in stacks
        if stack["StackName"].startswith(f"{environment.cluster_name}-")
    }


def _checked(cdk: CdkRun, returncode: int, console: Console) -> None:
    if returncode:
        console.print(cdk.failures(), markup=False)
        raise OperationError(
            f"cdk ended with exit code {returncode}", f"Its messages are above; all of them: {cdk.log}"
        )


class _Progress:
    """A node table that renews itself on a terminal, a line a change elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console, self._started = console, time.monotonic()
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._shown: set[str] = set()

    def __enter__(self) -> "_Progress":
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._started

    def show(self, nodes: Sequence[Node], what: str, lines: Sequence[str] = ()) -> None:
        """`what` is being waited for; `lines` come below the nodes."""
        if self._console.is_terminal:
            below = Text("\n".join([*lines, f"{what}, {self.elapsed:.0f} s"]), "dim")
            self._live.update(Group(node_table(nodes), below), refresh=True)
            return
        now = [*lines, *(f"{node.name}: {node.progress}" for node in nodes)]
        for line in now:
            if line not in self._shown:
                self._console.print(f"{self.elapsed:5.0f} s  {line}", highlight=False, markup=False)
        self._shown = set(now)


def wait_until_ready(
    deployment: Deployment, console: Console, limit_seconds: float = READY_LIMIT_SECONDS
) -> Sequence[Node]:
    """Shows what each node is doing until all three are ready. Raises OperationError when one refuses or time is up."""
    with _Progress(console) as progress:
        return _wait(deployment, progress, limit_seconds)


def _wait(deployment: Deployment, progress: _Progress, limit_seconds: float) -> Sequence[Node]:
    limit_seconds += progress.elapsed
    while True:
        nodes = read_nodes(deployment)
        if all(node.is_ready for node in nodes):
            progress.show(nodes, "ready")
            return nodes
        failed = [node for node in nodes if node.has_failed]
        if failed:
            raise _refused(failed)
        if progress.elapsed > limit_seconds:
            waiting = "; ".join(f"{node.name}: {node.progress}" for node in nodes if not node.is_ready)
            raise OperationError(
                f"not ready after {limit_seconds:.0f} s: {waiting}",
                "See `journalctl -t rabbitmq-node` on the node (Session Manager, or `python -m lab shell NODE`).",
                ExitCode.NOT_READY,
            )
        progress.show(nodes, "waiting for the cluster")
        time.sleep(_POLL_SECONDS)


def _refused(failed: Sequence[Node]) -> OperationError:
    reports = [(node, node.boot) for node in failed if node.boot]
    return OperationError(
        "; ".join(f"{node.name} ({node.instance_id}) stopped at {node.progress}" for node, _ in reports),
        "; ".join(sorted({report.remedy for _, report in reports if report.remedy})) or "See the node's journal.",
        ExitCode.NOT_READY,
    )
