"""For every test: a heap that is not walked over and over, and work for two processes that neither does twice."""

import gc

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# Imports make a million objects that live to the end: a fifth of the tests' time was the collector's walks over them.
gc.disable()


def pytest_collection_finish() -> None:
    """Set apart what the imports made, and collect what the tests leave behind."""
    gc.freeze()
    gc.enable()


class BySubject(LoadScopeScheduling):  # type: ignore[misc]
    """A file's tests stay together, and so do all that synthesise: one process starts the CDK, once."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "tests/synth" if file.startswith("tests/synth/") else file


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> BySubject | None:
    """`--dist loadgroup` means these groups. xdist's own need a mark, and pytest 9 does not let it write node ids."""
    return BySubject(config, log) if config.getvalue("dist") == "loadgroup" else None
