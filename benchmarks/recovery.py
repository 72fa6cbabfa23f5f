"""How the cluster comes back, measured in the lab: formation, losses, rolls, lost messages, and the published design.

    python -m benchmarks.recovery                    everything, about an hour
    python -m benchmarks.recovery --only roll,kill   parts: formation, losses, roll, kill, random, published

It needs a deployed lab (`make deploy`). `published` deploys a cluster of its own, from a copy of this project in which
Consul keeps its data on the instance's disk, under an identity of its own, as the published system did. It disturbs no
other lab, but for good figures none should run beside it: `--only published` after `make destroy`.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from operations.deployment import Deployment
from operations.drill.acts import AWS_REPLACEMENT, Options, power_cut
from operations.drill.catalogue import BY_NAME
from operations.drill.command import run_drills
from operations.drill.field import Field
from operations.drill.run import Result
from operations.drill.traffic import BALANCED, DIRECT
from operations.errors import OperationError
from stacks.environment import Environment

PROJECT = Path(__file__).resolve().parent.parent
PARTS = ("formation", "losses", "roll", "kill", "random", "published")
DRILLS_OF = {"roll": ("roll", "roll-undrained"), "kill": ("lose-one",), "random": ("random",)}
LIMIT = 300.0
"""Seconds a recovery may take before it counts as never."""

console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)


def say(what: str) -> None:
    """Progress, apart from the tables."""
    print(f"  {time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


@contextmanager
def watched(env: str) -> Iterator[Field]:
    """A cluster, watched, without traffic."""
    with tempfile.TemporaryDirectory() as directory, Field(Deployment(Environment.load(env)), Path(directory)) as field:
        field.say = say
        yield field


def settle(field: Field) -> tuple[float | None, str]:
    """Seconds from the last launch to the last condition, or None with what is missing after `LIMIT`."""
    launched = max(field.launched.values())
    settling = field.whole(LIMIT, without=("leaders",))
    if settling.reasons:
        return None, "; ".join(settling.reasons.values())
    last = max((since, name) for name, since in settling.since.items() if since is not None and name != "leaders")
    return last[0] - launched, last[1]


def formation(field: Field) -> tuple[float | None, str]:
    """A first formation on these very hosts: all data and records are removed, then three instances start."""
    before = {node.name: node.instance_id for node in field.look()}
    field.lab.run("fault", "power-cut", "--replace-after=15", *field.names)
    table, dynamodb = field.deployment.parameter("node-table"), field.deployment.aws.dynamodb
    for node in field.names:
        field.lab.run("fault", "empty", node)
        for kind in ("node", "boot"):
            dynamodb.delete_item(TableName=table, Key={"id": {"S": f"{kind}/{node}"}})
    for node in field.names:
        field.wait_replaced(node, before[node] or "")
    return settle(field)


def loss(field: Field, count: int, after: float) -> tuple[float | None, str]:
    """So many nodes at once, replaced after so long."""
    field.whole(LIMIT, without=("leaders",))
    time.sleep(10)
    power_cut(field, field.names[:count], Options(replace_after=after))
    return settle(field)


def recovery_table(env: str, repeat: int, *, losses: bool) -> Table:
    """(a) and (b): formation, and each loss against it."""
    table = Table("what", "seconds", "median", "of formation", "goal", title="recovery, from the last launch")
    with watched(env) as field:
        formed = [formation(field) for _ in range(repeat)]
        base = _row(table, "first formation", formed, None, None)
        for after in (AWS_REPLACEMENT, 0.0) if losses else ():
            for count in (1, 2, 3):
                found = [loss(field, count, after) for _ in range(repeat)]
                _row(table, f"{count} lost, replaced after {after:.0f} s", found, base, 60.0 if after == 0 else None)
    return table


def _row(
    table: Table, what: str, found: list[tuple[float | None, str]], base: float | None, most: float | None
) -> float | None:
    known = [seconds for seconds, _ in found if seconds is not None]
    median = statistics.median(known) if len(known) == len(found) else None
    goal = f"{most:.0f} s" if most else "1.5" if base else ""
    within = median is not None and (median <= most if most else not base or median <= 1.5 * base)
    shown = ", ".join(f"{s:.1f} ({why})" if s is not None else f"never within {LIMIT:.0f}: {why}" for s, why in found)
    ratio = f"{median / base:.2f}" if median and base else ""
    table.add_row(what, shown, f"{median:.1f}" if median else "-", ratio, goal, style="" if within else "red")
    say(f"{what}: {shown}")
    return median


def gap_table(results: list[Result]) -> Table:
    """(c), (d), (e): gaps and losses."""
    columns = ("drill", "gap, every address", "goal", "gap, load balancer", "goal", "confirmed", "lost", "whole after")
    table = Table(*columns, title="longest time without a confirmation, worst client; messages")
    for result in results:
        whole = f"{result.whole_after:.1f}" if result.whole_after is not None else "never"
        direct, balanced = (result.gap(kind) or 0.0 for kind in (DIRECT, BALANCED))
        goals = [f"{goal:.0f}" if goal else "" for goal in (result.drill.gap, result.drill.balanced_gap)]
        confirmed = sum(account.confirmed for account in result.accounts.values())
        cells = [f"{direct:.2f}", goals[0], f"{balanced:.2f}", goals[1], str(confirmed), str(result.lost), whole]
        table.add_row(result.drill.name, *cells, style="red" if result.failures else "")
    return table


def published(port: int, repeat: int) -> Table:
    """(f): the published design on the same hosts, in a cluster of its own."""
    table = Table(
        "what", "seconds", "median", "of formation", "goal", title="the published design, from the last launch"
    )
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "published"
        shutil.copytree(PROJECT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "node_modules", "cdk.out"))
        for name in (".venv", "node_modules"):
            (copy / name).symlink_to(PROJECT / name)
        as_published(copy, port)
        subprocess.run(["make", "deploy", "ENV=published"], cwd=copy, check=True, stdout=subprocess.DEVNULL)
        try:
            code = "import benchmarks.recovery as r, sys; r.published_losses(int(sys.argv[1]))"
            command = [sys.executable, "-c", code, str(repeat)]
            done = subprocess.run(command, cwd=copy, check=True, stdout=subprocess.PIPE, text=True)
        finally:
            subprocess.run(["make", "destroy", "ENV=published"], cwd=copy, check=True, stdout=subprocess.DEVNULL)
    for what, found in json.loads(done.stdout).items():
        _row(table, what, found, None, None)
    return table


def published_losses(repeat: int) -> None:
    """Runs in the copy: one, three and two lost, as JSON. A loss from which nothing comes back ends the series."""
    found: dict[str, list[tuple[float | None, str]]] = {}
    with watched("published") as field:
        for count in (1, 3, 2):
            what = f"{count} lost, replaced after 0 s"
            found[what] = [loss(field, count, 0) for _ in range(repeat)]
            if any(seconds is None for seconds, _ in found[what]):
                break
    print(json.dumps(found))


def as_published(copy: Path, port: int) -> None:
    """Consul's data on the instance's disk, a random identity, joined by tag alone; nobody rejoins by hand."""
    for path, old, new in (
        ("consul/server.json", '"/mnt/rabbitmq/consul"', '"/var/lib/consul"'),
        ("consul/server.json", '"cleanup_dead_servers": false', '"cleanup_dead_servers": true'),
        ("userdata/node/agent.py", '("raft", RAFT_SECONDS, ', '# ("raft", RAFT_SECONDS, '),
        ("userdata/node/paths.py", 'self.mount / "consul"', 'self.root / "var/lib/consul"'),
        ("userdata/node/consul.py", '        "node_id": node_id(instance.node),\n', ""),
        (
            "userdata/node/agent.py",
            '            ("rejoin", REJOIN_SECONDS, ',
            '            # ("rejoin", REJOIN_SECONDS, ',
        ),
    ):
        text = (copy / path).read_text()
        if old not in text:
            raise SystemExit(f"{path} has changed: benchmarks/recovery.py cannot make the published design of it")
        (copy / path).write_text(text.replace(old, new))
    local = (copy / "environments/local.yaml").read_text()
    for old, new in (
        ("name: local", "name: published"), ("rabbitmq-local", "rabbitmq-published"), ("10.77.", "10.79."),
        ("localhost:4566", f"localhost:{port}"),
    ):  # fmt: skip
        local = local.replace(old, new)
    (copy / "environments/published.yaml").write_text(local)


def main() -> None:
    """Runs the chosen parts and prints their tables as they come."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="local")
    parser.add_argument("--rounds", type=int, default=20, help="of random faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3, help="of each formation and loss")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--port", type=int, default=4595, help="of the published design's emulated AWS")
    parser.add_argument("--report", type=Path, default=Path("drill-report"))
    told = parser.parse_args()
    parts = told.only.split(",")
    if unknown := sorted(set(parts) - set(PARTS)):
        parser.error(f"no such parts: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if "formation" in parts or "losses" in parts:
        console.print(recovery_table(told.env, told.repeat, losses="losses" in parts))
    drills = [name for part, names in DRILLS_OF.items() if part in parts for name in names]
    if drills:
        options = Options(rounds=told.rounds, seed=told.seed)
        chosen = [BY_NAME[name] for name in drills]
        console.print(gap_table(run_drills(Environment.load(told.env), chosen, options, told.report, as_json=False)))
    if "published" in parts:
        console.print(published(told.port, 1))


if __name__ == "__main__":
    try:
        main()
    except OperationError as error:
        sys.exit(str(error))
