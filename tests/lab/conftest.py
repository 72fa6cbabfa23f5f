"""The lab, deployed once for all of these tests with the commands that the README gives, and destroyed at the end."""

from collections.abc import Iterator

import pytest

from lab.paths import LabPaths
from stacks.environment import Environment
from tests.lab.deployed import PROJECT, Lab, make


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """A cluster deployed with `make deploy`."""
    environment = Environment.load("local", PROJECT / "environments")
    paths = LabPaths.of(environment)
    assert not paths.state.exists(), (
        "a lab is up already: these tests deploy and destroy it, so run `make destroy` first"
    )
    try:
        yield Lab(environment, paths, make("deploy"))
    finally:
        make("destroy")
