"""The two documents that tell an instance what it is."""

import json
from pathlib import Path
from typing import Any

import pytest

from node.config import load_cluster, load_instance
from node.errors import Refusal
from node.paths import Paths
from tests.unit.node.world import INSTANCE, NODE, document_of, make_paths


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return make_paths(tmp_path)


def change(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_both_documents_of_every_environment_are_understood(tmp_path: Path) -> None:
    for environment in ("local", "development", "staging", "production"):
        paths = make_paths(tmp_path / environment, environment)
        instance = load_instance(paths)
        cluster = load_cluster(paths, instance)
        assert instance.node == cluster.node_names[0]
        assert len(set(cluster.node_names)) == 3


def test_a_missing_file_is_refused_with_its_path(paths: Paths) -> None:
    paths.instance_file.unlink()
    with pytest.raises(Refusal, match="the file is missing") as refused:
        load_instance(paths)
    assert refused.value.where == str(paths.instance_file)
    assert refused.value.remedy


@pytest.mark.parametrize(("content", "what"), [("{", "not JSON"), ("[]", "not a JSON object")])
def test_a_file_that_is_no_json_object_is_refused(content: str, what: str, paths: Paths) -> None:
    paths.instance_file.write_text(content)
    with pytest.raises(Refusal, match=what):
        load_instance(paths)


def test_everything_wrong_with_a_document_is_said_at_once(paths: Paths) -> None:
    broken = {**INSTANCE, "node": "", "table": 7, "asg_name": "${Token[TOKEN.1]}", "secrets": {}}
    del broken["region"]
    paths.instance_file.write_text(json.dumps(broken))
    with pytest.raises(Refusal) as refused:
        load_instance(paths)
    for finding in ("node: ''", "table: 7", "asg_name", "region: missing", "secrets.erlang_cookie: missing"):
        assert finding in refused.value.what


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"cluster": "rabbitmq-other"}, "it is of cluster rabbitmq-other"),
        ({"region": "us-east-1"}, "it is of region us-east-1"),
        ({"nodes": [{"name": NODE, "availability_zone": "eu-west-1b"}]}, f"no node {NODE} in eu-west-1a"),
        ({"amqp": {"plain": False, "tls": False}}, "both off"),
    ],
)
def test_a_bundle_of_another_cluster_is_refused(changes: dict[str, Any], what: str, paths: Paths) -> None:
    change(paths.cluster_file, **changes)
    with pytest.raises(Refusal, match=what):
        load_cluster(paths, load_instance(paths))


def test_a_number_is_not_taken_for_a_switch(paths: Paths) -> None:
    change(paths.cluster_file, queues={**json.loads(document_of("local"))["queues"], "delivery_limit": True})
    with pytest.raises(Refusal, match=r"queues\.delivery_limit: True is not of type int"):
        load_cluster(paths, load_instance(paths))
