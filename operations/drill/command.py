"""`python -m operations drill`: which drills there are, and running them."""

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from operations.deployment import Deployment
from operations.drill.acts import Options
from operations.drill.catalogue import BY_NAME, DRILLS, Drill
from operations.drill.report import markdown, page, result_table
from operations.drill.run import Result, run_drill
from operations.errors import ExitCode, OperationError
from stacks.environment import Environment

console = Console(highlight=False, width=None if sys.stdout.isatty() else 200, stderr=True)


def choose(names: list[str], environment: Environment, *, meant: bool) -> list[Drill]:
    """The drills to run. Raises OperationError with everything that speaks against them; then nothing was done."""
    wanted = list(DRILLS) if names == ["all"] else [BY_NAME[name] for name in names if name in BY_NAME]
    if names == ["all"] and not environment.aws_endpoint:
        wanted = [drill for drill in wanted if drill.gentle]
    problems = [f"there is no drill {name}" for name in names if name not in BY_NAME and names != ["all"]]
    if environment.aws_endpoint is None:
        problems += [
            f"{drill.name} breaks what only the lab can break, and {environment.name} is in AWS"
            for drill in wanted
            if not drill.gentle
        ]
        if environment.tier == "production" and not meant:
            problems.append(f"{environment.name} is production: a drill takes nodes away from real clients")
    if problems:
        gentle = ", ".join(drill.name for drill in DRILLS if drill.gentle)
        raise OperationError(
            "; ".join(problems),
            f"`drill` lists the drills; outside the lab only these run: {gentle}; production needs --i-mean-it.",
            ExitCode.BAD_INPUT,
        )
    return wanted


def list_drills(*, as_json: bool) -> None:
    """What there is, without touching anything."""
    if as_json:
        rows = [{"name": d.name, "fault": d.what, "expected": d.expected, "gentle": d.gentle} for d in DRILLS]
        print(json.dumps(rows, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("Drill", "Fault", "Expected", "Where"):
        table.add_column(column)
    for drill in DRILLS:
        table.add_row(drill.name, drill.what, drill.expected, "anywhere" if drill.gentle else "lab")
    Console(highlight=False, width=None if sys.stdout.isatty() else 160).print(table)


def run_drills(
    environment: Environment, drills: list[Drill], options: Options, directory: Path, *, as_json: bool
) -> list[Result]:
    """Run drills one after the other; the report is written after each, so that an end in the middle loses nothing."""
    deployment, results = Deployment(environment), []
    directory.mkdir(parents=True, exist_ok=True)
    for drill in drills:
        console.print(f"[bold]{drill.name}[/bold]: {drill.what}. Expected: {drill.expected}")
        begun = time.monotonic()

        def say(what: str, begun: float = begun) -> None:
            console.print(f"  {time.monotonic() - begun:6.1f} s  {what}", markup=False)

        result = run_drill(deployment, drill, options, directory / drill.name, say)
        results.append(result)
        say("; ".join(result.failures) or "as expected")
        (directory / "report.html").write_text(page(environment.cluster_name, results))
        (directory / "report.md").write_text(markdown(results) + "\n")
        (directory / "report.json").write_text(json.dumps([r.as_dict() for r in results], indent=2) + "\n")
    if as_json:
        print(json.dumps([result.as_dict() for result in results], indent=2))
    else:
        console.print()
        Console(highlight=False, width=None if sys.stdout.isatty() else 200).print(result_table(results))
    console.print(f"report: {directory / 'report.html'}", soft_wrap=True)
    return results


def drill(
    names: Annotated[list[str] | None, typer.Argument(help="Drills, or `all`. Without one: the list.")] = None,
    env: Annotated[str, typer.Option("--env", help="Environment: the name of a file in environments/.")] = "local",
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    report: Annotated[Path, typer.Option(help="Directory for the report and the clients' logs.")] = Path(
        "drill-report"
    ),
    replace_after: Annotated[float, typer.Option(min=0, help="Seconds from a loss to its replacement's launch.")] = 0,
    seed: Annotated[int, typer.Option(help="Chooses nodes, zones, and the faults of `random`.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of `random`.")] = 20,
    i_mean_it: Annotated[bool, typer.Option("--i-mean-it", help="Run it in production.")] = False,
) -> None:
    """Break the cluster on purpose, under traffic, and account for every message. Exit code 1: not as expected."""
    if not names:
        list_drills(as_json=as_json)
        return
    environment = Environment.load(env)
    chosen = choose(names, environment, meant=i_mean_it)
    options = Options(replace_after=replace_after, rounds=rounds, seed=seed)
    results = run_drills(environment, chosen, options, report.resolve(), as_json=as_json)
    if any(result.failures for result in results):
        raise typer.Exit(ExitCode.NOT_READY)
