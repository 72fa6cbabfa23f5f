"""One synthesis per environment and test run: the tests read its templates and change none of them."""

import functools
from pathlib import Path

import pytest

from tests.synth.synthesis import ENVIRONMENTS, Synthesis, Synthesiser, load, synthesise


@pytest.fixture(scope="session")
def synthesised(tmp_path_factory: pytest.TempPathFactory) -> Synthesiser:
    """The synthesis of an environment by name, made once."""

    @functools.cache
    def of(name: str) -> Synthesis:
        return synthesise(load(name), Path(tmp_path_factory.mktemp(name)))

    return of


@pytest.fixture(scope="session", params=ENVIRONMENTS)
def synthesis(request: pytest.FixtureRequest, synthesised: Synthesiser) -> Synthesis:
    """Every environment in turn."""
    return synthesised(request.param)
