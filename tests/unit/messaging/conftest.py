"""Fixtures of the messaging tests."""

import pytest

from tests.unit.messaging.standins.bench import Bench


@pytest.fixture
def bench() -> Bench:
    """A fresh one for each test."""
    return Bench()


@pytest.fixture(autouse=True)
def _no_real_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "stand-in")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
