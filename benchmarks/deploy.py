"""How long deploying and synthesising takes on this machine, as a table.

    python benchmarks/deploy.py            warm: the host image is in the cache
    python benchmarks/deploy.py --cold     first removes the host image and the CDK CLI

It deploys the lab from nothing and destroys it again, so it refuses to run while a lab is up.
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lab.paths import LabPaths
from operations.aws import process_environment
from stacks.environment import Environment

PROJECT = Path(__file__).resolve().parent.parent
ROUNDS = 3

_EMPTY_APP = """
import aws_cdk as cdk
app = cdk.App(outdir={outdir!r})
cdk.Stack(app, "Empty")
app.synth()
"""


def seconds(*command: str) -> float:
    """Wall-clock seconds of one command that has to succeed; its output is shown only if it does not."""
    started = time.monotonic()
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    elapsed = time.monotonic() - started
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    return elapsed


def synth_seconds(source: list[str], environment: Environment) -> float:
    """Median of a few runs of an app in a process of its own, as the CDK CLI runs it."""
    variables = process_environment(environment) | {"PYTHONPATH": str(PROJECT)}
    times = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as outdir:
            command = [sys.executable, *(argument.format(outdir=outdir) for argument in source)]
            started = time.monotonic()
            subprocess.run(
                command, cwd=PROJECT, env=variables | {"CDK_OUTDIR": outdir}, check=True, capture_output=True
            )
            times.append(time.monotonic() - started)
    return statistics.median(times)


def main() -> None:
    """Runs everything once and prints the table."""
    console = Console()
    environment = Environment.load("local")
    paths = LabPaths.of(environment)
    if paths.state.exists():
        sys.exit("a lab is up: run `make destroy` first, this benchmark starts from nothing")
    cold = "--cold" in sys.argv[1:]
    if cold:
        shutil.rmtree(paths.cache, ignore_errors=True)
        shutil.rmtree(PROJECT / "node_modules", ignore_errors=True)
    table = Table("what", "seconds", "bound", title="deploy and synth, this machine", title_justify="left")

    def row(what: str, value: float, bound: float) -> None:
        table.add_row(what, f"{value:.1f}", f"{bound:.1f}", style="" if value <= bound else "red")

    empty = synth_seconds(["-c", _EMPTY_APP], environment)
    ours = synth_seconds(["app.py"], environment)
    row(
        "make deploy, cold (no image)" if cold else "make deploy, from nothing",
        seconds("make", "deploy"),
        300 if cold else 60,
    )
    row("make deploy again, no change", seconds("make", "deploy"), 30)
    row("make destroy", seconds("make", "destroy"), 30)
    row("synth of an app with one empty stack", empty, empty)
    row("synth of one environment", ours, 1.3 * empty + 1.5)
    row("unit and synth tests", seconds("make", "unit"), 30)
    console.print(table)


if __name__ == "__main__":
    main()
