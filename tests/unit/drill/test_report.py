"""The report: what a reader sees of a drill, and that the page stands alone."""

import io
import re
from dataclasses import replace
from xml.etree import ElementTree

from rich.console import Console

from operations.drill.accounting import Event, Kind, account
from operations.drill.acts import Options
from operations.drill.catalogue import BY_NAME
from operations.drill.field import Mark, Sample
from operations.drill.report import markdown, page, result_table
from operations.drill.run import Result, judge
from operations.drill.timeline import timeline
from operations.drill.traffic import BALANCED, DIRECT


def result(lost: bool = False, gap: float = 1.0) -> Result:
    """A drill of ten seconds with one gap."""
    times = [*(n / 10 for n in range(20)), *(1.9 + gap + n / 10 for n in range(20))]
    events = []
    for number, at in enumerate(times):
        events += [Event(100 + at, kind, "p", number) for kind in (Kind.PUBLISH, Kind.CONFIRM)]
        if not (lost and number == 7):
            events.append(Event(100 + at, Kind.DELIVER, "p", number))
    samples = [Sample(100.0 + n, {"q-a": "gone" if n == 3 else "serving"}, {"/x": "whole"}) for n in range(10)]
    return Result(
        BY_NAME["roll"], Options(replace_after=45), 100.0, recovered={"members": 7.25, "queues": 8.0},
        accounts=dict.fromkeys((DIRECT, BALANCED), account(events)), samples=samples,
        marks=[Mark(103.0, "power <cut>")],
        seconds=10,
    )  # fmt: skip


def judged(result: Result) -> Result:
    judge(result)
    return result


def test_nothing_lost_and_short_gaps_are_as_expected() -> None:
    assert judged(result()).failures == []


def test_a_loss_is_a_failure_of_both_kinds_of_client() -> None:
    assert judged(result(lost=True)).failures == [
        "1 confirmed messages lost (every address)",
        "1 confirmed messages lost (load balancer)",
    ]


def test_each_kind_of_client_has_its_own_limit_for_the_gap() -> None:
    assert judged(result(gap=3)).failures == ["gap of 3.0 s, 2 s allowed (every address)"]
    assert len(judged(result(gap=6)).failures) == 2


def test_messages_that_were_never_confirmed_are_a_failure() -> None:
    found = result()
    found.accounts[DIRECT] = replace(found.accounts[DIRECT], confirmed=39)
    assert judged(found).failures == ["1 messages never confirmed (every address)"]


def test_a_cluster_is_whole_when_its_last_condition_holds() -> None:
    found = result()
    assert found.whole_after == 8.0
    found.recovered["consul"] = None
    assert found.whole_after is None


def test_the_page_needs_nothing_but_itself_and_escapes_what_it_shows() -> None:
    text = page("q", [judged(result(lost=True))])
    assert not re.search(r"<script|<link|src=|@import|url\(", text)
    assert "power &lt;cut&gt;" in text
    assert "power <cut>" not in text
    assert "1 confirmed messages lost" in text


def test_the_timeline_is_well_formed_and_shows_every_state_on_one_axis() -> None:
    found = result()
    picture = timeline(found.accounts, found.samples, found.marks, 100, 110)
    root = ElementTree.fromstring(picture)
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("longest gap 1.10 s") + texts.count("longest gap 1.00 s") == 2
    titles = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert sum(title.startswith("q-a: gone") for title in titles) == 1
    assert sum(title.startswith("q-a: serving") for title in titles) == 2
    rows = {element.get("x") for element in root.iter("{http://www.w3.org/2000/svg}rect")}
    assert all(195 <= float(x or 0) <= 1140 for x in rows)


def test_the_tables_have_a_row_a_drill_with_fault_figures_and_verdict() -> None:
    found = [judged(result()), judged(result(lost=True))]
    assert [line.count("|") for line in markdown(found).splitlines()] == [9] * 4
    assert "| 8.0 s | 1.0 s | 1.0 s | 2 |" in markdown(found)
    out = io.StringIO()
    Console(file=out, width=250).print(result_table(found))
    assert "replaced after 45 s" in out.getvalue()
    assert "as expected" in out.getvalue()
