"""The node bundle: everything an instance runs, in one archive whose bytes depend on nothing but its content."""

import gzip
import hashlib
import io
import json
import os
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from stacks.environment import Environment

PROJECT = Path(__file__).resolve().parent.parent

SOURCES = {
    "boot.sh": "userdata/boot.sh",
    "node": "userdata/node",
    "rabbitmq": "userdata/rabbitmq",
    "systemd": "userdata/systemd",
    "consul": "consul",
}
"""Place in the bundle -> place in the project."""

IGNORED_DIRECTORIES = {"__pycache__"}
IGNORED_SUFFIXES = {".pyc", ".swp", ".orig", ".rej", ".bak", ".md"}
"""What tools leave behind, and documentation: a corrected sentence must not roll the cluster."""


@dataclass(frozen=True)
class Bundle:
    """A packed bundle on disk, and the SHA-256 which instances check before they unpack it."""

    path: Path
    sha256: str


def build(environment: Environment, directory: Path | None = None, project: Path = PROJECT) -> Bundle:
    """Pack the bundle of `environment` into `directory` (default: `cdk.out/bundle` of the project)."""
    content = pack(environment, project)
    sha256 = hashlib.sha256(content).hexdigest()
    directory = directory or project / "cdk.out" / "bundle"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{sha256[:16]}.tar.gz"
    # Whole or not at all: two synthesis runs at once must not read each other's half-written file.
    with tempfile.NamedTemporaryFile(dir=directory, delete=False) as unfinished:
        unfinished.write(content)
    os.replace(unfinished.name, path)
    return Bundle(path, sha256)


def pack(environment: Environment, project: Path = PROJECT) -> bytes:
    """The bundle as bytes: the same for the same content, whatever the files' times, owners, modes and order."""
    members = {name: path.read_bytes() for name, path in _files(project)}
    members["cluster.json"] = (json.dumps(cluster_document(environment), indent=2, sort_keys=True) + "\n").encode()
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(members):
            archive.addfile(_member(name, members[name]), io.BytesIO(members[name]))
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=9, mtime=0) as compressed:
        compressed.write(raw.getvalue())
    return packed.getvalue()


def cluster_document(environment: Environment) -> dict[str, Any]:
    """What every node of one cluster has in common: `cluster.json`. It holds no secret and no token."""
    return {
        "environment": environment.name,
        "cluster": environment.cluster_name,
        "region": environment.region,
        "architecture": environment.architecture,
        "nodes": [{"name": node.name, "availability_zone": node.availability_zone} for node in environment.nodes],
        "versions": environment.versions.model_dump(mode="json"),
        "amqp": {"plain": environment.access.amqp.plain, "tls": environment.access.amqp.tls},
        "queues": environment.queues.model_dump(mode="json"),
        "health_check_path": environment.health_check_path,
    }


def user_data(project: Path = PROJECT) -> str:
    """The script that cloud-init runs: it fetches the bundle. Its placeholder is still in place."""
    return (project / "userdata" / "user-data.sh").read_text()


def _files(project: Path) -> Iterator[tuple[str, Path]]:
    for place, source in SOURCES.items():
        root = project / source
        if root.is_file():
            yield place, root
            continue
        if not root.is_dir():
            raise FileNotFoundError(f"{root}: the node bundle needs it")
        for path in root.rglob("*"):
            relative = path.relative_to(root)
            if path.is_file() and not _is_stray(relative):
                yield str(PurePosixPath(place) / relative.as_posix()), path


def _is_stray(relative: Path) -> bool:
    """Whether a file must not change the bundle."""
    return (
        bool(IGNORED_DIRECTORIES.intersection(relative.parts))
        or any(part.startswith(".") or part.endswith("~") for part in relative.parts)
        or relative.suffix in IGNORED_SUFFIXES
    )


def _member(name: str, content: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    # By content, not by the file's own mode: a checkout's umask must not change the archive.
    member.mode = 0o755 if content.startswith(b"#!") else 0o644
    return member
