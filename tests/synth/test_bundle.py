"""The bundle's bytes depend on its content alone, so that an unchanged node is never rolled."""

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from stacks.bundle import build, cluster_document, pack
from tests.synth.synthesis import PROJECT, Synthesis, load

FILES = {
    "userdata/boot.sh": "#!/bin/bash\necho boot\n",
    "userdata/node/__main__.py": "print('boot')\n",
    "userdata/node/steps/storage.py": "mount = True\n",
    "userdata/rabbitmq/rabbitmq.conf": "heartbeat = 60\n",
    "userdata/systemd/rabbitmq-node-boot.service": "[Service]\n",
    "consul/server.json": "{}\n",
}


def make_project(directory: Path, files: dict[str, str] = FILES) -> Path:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return directory


def members(content: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        return {member.name: member for member in archive.getmembers()}


def test_packing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    assert pack(load("local"), project) == pack(load("local"), project)


def test_the_archive_records_neither_the_time_nor_the_name_of_its_making(tmp_path: Path) -> None:
    header = pack(load("local"), make_project(tmp_path))[:10]
    flags, modified = header[3], header[4:8]
    assert (flags, modified) == (0, bytes(4))


def test_another_checkout_gives_the_same_bytes(tmp_path: Path) -> None:
    first = make_project(tmp_path / "first")
    umask = os.umask(0o077)
    try:
        second = make_project(tmp_path / "second", dict(reversed(FILES.items())))
    finally:
        os.umask(umask)
    for index, name in enumerate(FILES):
        os.utime(second / name, (index, index))
    (second / "userdata/boot.sh").chmod(0o700)
    assert pack(load("local"), first) == pack(load("local"), second)


@pytest.mark.parametrize(
    "stray",
    [
        "userdata/node/__pycache__/__main__.cpython-311.pyc",
        "userdata/node/leftover.pyc",
        "userdata/node/.storage.py.swp",
        "userdata/rabbitmq/rabbitmq.conf~",
        "userdata/rabbitmq/.mypy_cache/x.json",
        "consul/server.json.orig",
        "consul/README.md",
    ],
)
def test_what_does_not_run_on_a_node_does_not_change_the_bundle(stray: str, tmp_path: Path) -> None:
    project = make_project(tmp_path)
    before = pack(load("local"), project)
    make_project(project, {stray: "left behind"})
    assert pack(load("local"), project) == before


@pytest.mark.parametrize("name", FILES)
def test_every_file_counts(name: str, tmp_path: Path) -> None:
    project = make_project(tmp_path)
    before = pack(load("local"), project)
    make_project(project, {name: FILES[name] + "# changed\n"})
    assert pack(load("local"), project) != before


def test_files_lie_where_the_node_looks_for_them(tmp_path: Path) -> None:
    packed = members(pack(load("local"), make_project(tmp_path)))
    assert {name: oct(member.mode) for name, member in packed.items()} == {
        "boot.sh": "0o755",
        "cluster.json": "0o644",
        "consul/server.json": "0o644",
        "node/__main__.py": "0o644",
        "node/steps/storage.py": "0o644",
        "rabbitmq/rabbitmq.conf": "0o644",
        "systemd/rabbitmq-node-boot.service": "0o644",
    }
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in packed.values()} == {(0, 0, "", "", 0)}


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    (project / "userdata/boot.sh").unlink()
    with pytest.raises(FileNotFoundError, match=r"boot\.sh: the node bundle needs it"):
        pack(load("local"), project)


def test_the_file_on_disk_has_the_hash_that_instances_check(tmp_path: Path) -> None:
    bundle = build(load("local"), tmp_path / "out", make_project(tmp_path))
    assert hashlib.sha256(bundle.path.read_bytes()).hexdigest() == bundle.sha256
    assert bundle.path.name == f"{bundle.sha256[:16]}.tar.gz"


def test_what_the_nodes_share_stands_in_cluster_json(synthesis: Synthesis) -> None:
    environment = synthesis.environment
    document = cluster_document(environment)
    assert document == json.loads(json.dumps(document))
    assert document == {
        "environment": environment.name,
        "cluster": environment.cluster_name,
        "region": environment.region,
        "architecture": environment.architecture,
        "nodes": [{"name": node.name, "availability_zone": node.availability_zone} for node in environment.nodes],
        "versions": environment.versions.model_dump(mode="json"),
        "amqp": {"plain": environment.access.amqp.plain, "tls": environment.access.amqp.tls},
        "queues": {
            "max_length": environment.queues.max_length,
            "max_length_bytes": environment.queues.max_length_bytes,
            "delivery_limit": environment.queues.delivery_limit,
        },
        "health_check_path": environment.health_check_path,
    }


def test_instances_fetch_and_check_the_very_file_that_is_published(synthesis: Synthesis) -> None:
    [asset] = synthesis.directory.glob("asset.*.gz")
    template = json.dumps(synthesis.templates["cluster"])
    assert template.count(hashlib.sha256(asset.read_bytes()).hexdigest()) == 3
    assert template.count(asset.name.split(".")[1] + ".gz") == 3


def test_the_projects_own_sources_make_a_complete_bundle() -> None:
    packed = members(pack(load("local"), PROJECT))
    wanted = {"boot.sh", "cluster.json", "node/__main__.py", "rabbitmq/rabbitmq.conf", "consul/server.json"}
    assert wanted <= set(packed)
    assert any(name.startswith("systemd/") for name in packed)
