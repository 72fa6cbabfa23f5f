"""What the drill's clients are told of the cluster."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from operations.drill import field as module
from operations.drill.field import Field
from operations.nodes import Node
from stacks.environment import Environment

LOCAL = Environment.load("local")
FIRST, SECOND, THIRD = (node.name for node in LOCAL.nodes)


def test_clients_know_the_owners_addresses_and_not_those_of_successors_that_do_not_serve_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records: dict[str, dict[str, Any]] = {FIRST: {"address": "10.0.0.1"}, SECOND: {"address": "10.0.0.2"}, THIRD: {}}
    launched = [Node(name, "z", f"i-{name}", "InService", f"10.9.9.{number}") for number, name in enumerate(records)]
    monkeypatch.setattr(module, "read_nodes", lambda _: launched)

    def table(_: Any) -> Any:
        items = {f"node/{name}": {"id": f"node/{name}", **record} for name, record in records.items()}
        return SimpleNamespace(items=lambda identifiers: {name: items[name] for name in identifiers})

    monkeypatch.setattr(module, "NodeTable", table)
    field = Field(SimpleNamespace(environment=LOCAL), tmp_path)  # type: ignore[arg-type]
    field.look()
    assert json.loads(field.addresses_file.read_text()) == {FIRST: "10.0.0.1", SECOND: "10.0.0.2"}
    records[FIRST] = {}  # handed over: until its successor serves nobody knows better
    records[SECOND]["address"] = "10.9.9.1"
    field.look()
    assert json.loads(field.addresses_file.read_text()) == {FIRST: "10.0.0.1", SECOND: "10.9.9.1"}
    assert field.view.addresses[FIRST] == "10.9.9.0"
