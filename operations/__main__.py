"""Command line: `python -m operations --help`."""

import json
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, ParamSpec

import typer
from rich.console import Console

from operations.artifacts import mirror as mirror_artifacts
from operations.cdk import run_cdk
from operations.deploy import deploy as deploy_environment
from operations.deployment import Deployment
from operations.errors import ExitCode, OperationError
from operations.nodes import read_nodes
from operations.view import node_table, summary, summary_lines
from stacks.environment import Environment, EnvironmentErrors

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Deploy and operate a RabbitMQ cluster.",
    pretty_exceptions_enable=False,
)
artifacts = typer.Typer(no_args_is_help=True, help="The version profile's artefacts in the cluster's own bucket.")
app.add_typer(artifacts, name="artifacts")

# A width of its own where there is no terminal: a log must not break lines at 80 columns.
console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
errors = Console(stderr=True, highlight=False)

Env = Annotated[str, typer.Option("--env", help="Environment: the name of a file in environments/.")]
Json = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]
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
        except KeyboardInterrupt:
            errors.print("interrupted; what was started in AWS goes on")
            raise typer.Exit(130) from None

    return run


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
    """Nodes, endpoints and what each node is doing. Exit code 1 while a node is not ready."""
    deployment = Deployment(Environment.load(env))
    nodes = read_nodes(deployment)
    shown = summary(deployment, nodes)
    if as_json:
        print(json.dumps(shown, indent=2))
    else:
        console.print(node_table(nodes))
        console.print()
        for line in summary_lines(shown):
            console.print(line, markup=False, soft_wrap=True)
    if not all(node.is_ready for node in nodes):
        raise typer.Exit(ExitCode.NOT_READY)


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
