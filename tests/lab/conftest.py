"""The lab, deployed once for all of these tests with the commands that the README gives, and destroyed at the end."""

import os
from collections.abc import Iterator

import pytest

from lab.paths import LabPaths
from stacks.environment import Environment
from tests.lab.deployed import PROJECT, Lab, make


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """A cluster deployed with `make deploy`."""
    # As `make` does it: its own variable names another environment than the usual one.
    environment = Environment.load(os.environ.get("ENV", "local"), PROJECT / "environments")
    paths = LabPaths.of(environment)
    assert not paths.state.exists(), (
        "a lab is up already: these tests deploy and destroy it, so run `make destroy` first"
    )
    try:
        yield Lab(environment, paths, make("deploy"))
    finally:
        make("destroy")
