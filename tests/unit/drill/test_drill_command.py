"""Which drills may run where, before anything is touched."""

import json

import pytest
from typer.testing import CliRunner

from operations.__main__ import app
from operations.drill.catalogue import BY_NAME, DRILLS
from operations.drill.command import choose
from operations.drill.field import Lab
from operations.errors import ExitCode, OperationError
from stacks.environment import Environment


def refusal(names: list[str], environment: str, *, meant: bool = False) -> str:
    with pytest.raises(OperationError) as raised:
        choose(names, Environment.load(environment), meant=meant)
    assert raised.value.code == ExitCode.BAD_INPUT
    return str(raised.value)


def test_the_lab_takes_every_drill() -> None:
    assert choose(["all"], Environment.load("local"), meant=False) == list(DRILLS)


def test_an_unknown_drill_and_a_harsh_one_are_refused_together() -> None:
    said = refusal(["lose-on", "lose-two"], "staging")
    assert "there is no drill lose-on" in said
    assert "lose-two breaks what only the lab can break" in said


def test_outside_the_lab_all_means_the_gentle_ones() -> None:
    assert choose(["all"], Environment.load("staging"), meant=False) == [drill for drill in DRILLS if drill.gentle]


def test_production_wants_it_in_so_many_words() -> None:
    assert "--i-mean-it" in refusal(["roll"], "production")
    assert choose(["roll"], Environment.load("production"), meant=True) == [BY_NAME["roll"]]
    assert "only the lab" in refusal(["lose-one"], "production", meant=True)


def test_a_fault_is_refused_outside_the_lab_even_if_a_drill_asks_for_one() -> None:
    with pytest.raises(OperationError, match="only be made in the lab"):
        Lab(Environment.load("production")).run("fault", "cut", "eu-west-1a")


def test_names_are_unique_and_without_arguments_they_are_listed() -> None:
    assert len(BY_NAME) == len(DRILLS)
    listed = json.loads(CliRunner().invoke(app, ["drill", "--json"]).stdout)
    assert [row["name"] for row in listed] == [drill.name for drill in DRILLS]


def test_a_refusal_has_exit_code_2_and_says_what_to_do() -> None:
    done = CliRunner().invoke(app, ["drill", "lose-one", "--env", "production"])
    assert done.exit_code == ExitCode.BAD_INPUT
    assert "remedy:" in done.output
