"""A drill's outcome: a table on the terminal, and a page of its own in HTML that needs nothing else."""

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from rich.table import Table
from rich.text import Text

from operations.drill.accounting import Account
from operations.drill.run import Result
from operations.drill.timeline import COLOURS, MEANING, timeline
from operations.drill.traffic import BALANCED, DIRECT

STYLE = """
body{font:14px/1.5 system-ui,sans-serif;color:#1d2127;background:#fff;max-width:1160px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;margin-bottom:.2rem}
h2{font-size:1.15rem;margin:2.4rem 0 .3rem;border-top:1px solid #d7dbe0;padding-top:1rem}
table{border-collapse:collapse;margin:.6rem 0} th,td{text-align:left;padding:.2rem .9rem .2rem 0;vertical-align:top}
th{font-weight:600;border-bottom:1px solid #b9bfc7} td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.passed{color:#23763f;font-weight:600}.failed{color:#a32626;font-weight:600} p,ul,ol{margin:.3rem 0}
svg{width:100%;height:auto;font-family:system-ui,sans-serif} .key{font-size:12px;color:#3b414a}
.key span{display:inline-block;width:11px;height:11px;margin:0 .3rem 0 .9rem;vertical-align:-1px}
ol{columns:2;font-size:13px}
"""


def seconds(value: float | None, none: str = "never") -> str:
    """For a table."""
    return none if value is None else f"{value:.1f} s"


def result_table(results: Sequence[Result]) -> Table:
    """One row a drill."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("Drill", "Fault", "Expected", "Whole after", "Gap", "Gap (NLB)", "Lost", "Seen"):
        table.add_column(column, no_wrap=column == "Drill", justify="right" if column in _RIGHT else "left")
    for result in results:
        seen = Text("as expected", "green") if not result.failures else Text("; ".join(result.failures), "bold red")
        table.add_row(*_cells(result), seen)
    return table


_RIGHT = ("Whole after", "Gap", "Gap (NLB)", "Lost")


def _cells(result: Result) -> list[str]:
    after = f", replaced after {result.options.replace_after:.0f} s" if result.options.replace_after else ""
    return [
        result.drill.name,
        result.drill.what + after,
        result.drill.expected,
        seconds(result.whole_after),
        seconds(result.gap(DIRECT), "-"),
        seconds(result.gap(BALANCED), "-"),
        str(result.lost),
    ]


def markdown(results: Sequence[Result]) -> str:
    """The table for a README."""
    rows = [
        "| drill | fault | expected | whole again after | longest gap | through the NLB | lost | seen |",
        "|" + "---|" * 8,
    ]
    for result in results:
        seen = "as expected" if not result.failures else "; ".join(result.failures)
        rows.append("| " + " | ".join([*_cells(result), seen]) + " |")
    return "\n".join(rows)


def page(cluster: str, results: Sequence[Result]) -> str:
    """The whole report as one HTML document."""
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    passed = sum(not result.failures for result in results)
    body = "".join(_section(result) for result in results)
    summary = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _cells(result))}<td>{_verdict(result)}</td></tr>"
        for result in results
    )
    heads = ("Drill", "Fault", "Expected", "Whole after", "Gap", "Gap (NLB)", "Lost", "Seen")
    head = "".join(f"<th>{name}</th>" for name in heads)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Drills of {escape(cluster)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head><body>'
        f"<h1>Drills of {escape(cluster)}</h1><p>{when}: {passed} of {len(results)} as expected.</p>"
        f"<table><tr>{head}</tr>{summary}</table>{body}</body></html>\n"
    )


def _verdict(result: Result) -> str:
    if not result.failures:
        return '<span class="passed">as expected</span>'
    return f'<span class="failed">{escape("; ".join(result.failures))}</span>'


def _section(result: Result) -> str:
    picture = timeline(result.accounts, result.samples, result.marks, result.began, result.began + result.seconds)
    marks = "".join(f"<li>{escape(mark.what)}, at {mark.at - result.began:.0f} s</li>" for mark in result.marks)
    reached = "; ".join(f"{name} {seconds(value)}" for name, value in result.recovered.items())
    used = {s for sample in result.samples for s in (*sample.nodes.values(), *sample.queues.values())}
    keys = {COLOURS[state]: f"{state}: {MEANING[state]}" for state in COLOURS if state in used}
    key = "".join(f'<span style="background:{colour}"></span>{escape(text)}' for colour, text in keys.items())
    return (
        f'<h2 id="{escape(result.drill.name)}">{escape(result.drill.name)}: {escape(result.drill.what)}</h2>'
        f"<p>Expected: {escape(result.drill.expected)}. Seen: {_verdict(result)}.</p>"
        f"<p>Seconds from the last replacement's launch, or the fault's end, to each condition: {escape(reached)}.</p>"
        f"{_accounts(result.accounts)}{picture}"
        '<p class="key"><span style="background:#8fb8e8"></span>confirmations a second'
        f'<span style="background:#d2691e"></span>deliveries a second{key}</p><ol>{marks}</ol>'
    )


def _accounts(accounts: dict[str, Account]) -> str:
    names = (
        "published",
        "confirmed",
        "delivered",
        "republished",
        "redelivered",
        "duplicate",
        "out_of_order",
        "reconnects",
    )
    head = "".join(f'<th class="n">{name.replace("_", " ")}</th>' for name in (*names, "lost", "longest gap"))
    rows = ""
    for kind, account in accounts.items():
        numbers = [str(getattr(account, name)) for name in names]
        numbers += [str(len(account.lost)), f"{account.gap.seconds:.2f} s" if account.gap else "-"]
        rows += f"<tr><td>{escape(kind)}</td>{''.join(f'<td class=n>{n}</td>' for n in numbers)}</tr>"
    return f"<table><tr><th>clients</th>{head}</tr>{rows}</table>"
