"""The node's directory on EFS: mounted, proven to take a write, and proven to be this node's."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from pathlib import Path

from node import marker
from node.clock import Clock
from node.commands import Runner, run
from node.config import Instance
from node.errors import NotYet
from node.journal import log
from node.ownership import Record
from node.paths import Paths

MOUNT_LIMIT_SECONDS = 60.0
MOUNT_ATTEMPTS = 5
PROOF_LIMIT_SECONDS = 30.0

SET_ASIDE = "set-aside-"

OPTIONS = "tls,iam,accesspoint={access_point},noresvport,_netdev"

_PROOF = """
import os, sys
descriptor = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
os.write(descriptor, b"proof")
os.fsync(descriptor)
os.close(descriptor)
os.unlink(sys.argv[1])
"""


def is_mounted(paths: Paths) -> bool:
    """Whether something is mounted at the mount point, by the kernel's list (asking the file system could hang)."""
    point = "/" + str(paths.mount.relative_to(paths.root))
    return any(line.split()[4] == point for line in paths.mountinfo.read_text().splitlines() if len(line.split()) > 4)


def mount(paths: Paths, instance: Instance, clock: Clock, runner: Runner = run) -> None:
    """Mount the access point unless it is mounted. Raises NotYet after MOUNT_ATTEMPTS."""
    if is_mounted(paths):
        return
    paths.mount.mkdir(parents=True, exist_ok=True)
    options = OPTIONS.format(access_point=instance.access_point_id)
    command = ["mount", "-t", "efs", "-o", options, f"{instance.file_system_id}:/", str(paths.mount)]
    for attempt in range(1, MOUNT_ATTEMPTS + 1):
        result = runner(command, limit=MOUNT_LIMIT_SECONDS)
        if result.ok and is_mounted(paths):
            return
        log.warning(
            "mount of %s, attempt %d of %d: %s", instance.file_system_id, attempt, MOUNT_ATTEMPTS, result.output[-300:]
        )
        if attempt < MOUNT_ATTEMPTS:
            clock.sleep(2.0 * attempt)
    raise NotYet(f"{instance.file_system_id} ({instance.access_point_id}) could not be mounted: {result.output[-300:]}")


def prove_writable(directory: Path, runner: Runner = run) -> None:
    """Write and fsync a file in a child process. Raises NotYet if that fails or takes too long."""
    proof = directory / f".proof-{os.getpid()}"
    result = runner([sys.executable, "-I", "-S", "-c", _PROOF, str(proof)], limit=PROOF_LIMIT_SECONDS)
    if not result.ok:
        raise NotYet(f"{directory} does not take a write: {result.output[-300:]}")


def broker_data_is_empty(paths: Paths, node: str) -> bool:
    """Whether the broker has never kept anything in this directory."""
    data = paths.rabbitmq_data / f"rabbit@{node}"
    return not (data.is_dir() and any(data.iterdir()))


def check_marker(paths: Paths, instance: Instance, record: Record, clock: Clock, stop: Callable[[], None]) -> None:
    """Judge the directory by its marker and give a new one its marker. Raises Refusal (see `marker.judge`).

    If the record orders a rebuild that this directory was not begun for, everything in it is set aside first. `stop`
    makes sure that nothing on this host writes it, or raises.
    """
    where = f"{instance.file_system_id}, {instance.access_point_id}, mounted at {paths.mount}"
    found = marker.read(paths.marker)
    marker.refuse_foreign(found, node=instance.node, cluster=instance.cluster, where=where)
    if record.rebuild and (found is None or found.rebuild != record.rebuild):
        stop()
        aside = set_aside(paths, clock)
        if aside:
            log.warning("rebuild ordered at %s: the old data is in %s now", record.rebuild, aside)
        found = marker.Marker(instance.node, instance.cluster, clock.stamp(), rebuild=record.rebuild)
        marker.save(paths.marker, found)
    is_new = marker.judge(
        found,
        node=instance.node,
        member_since=record.member_since,
        rebuild=record.rebuild,
        empty=broker_data_is_empty(paths, instance.node),
        where=where,
    )
    if is_new:
        marker.save(paths.marker, marker.Marker(instance.node, instance.cluster, clock.stamp()))
        log.info("a new node: marker written")


def set_aside(paths: Paths, clock: Clock) -> Path | None:
    """Move the node's data into a directory beside it and return that, or None if there is none. Nothing is deleted."""
    kept = (paths.guard, paths.addresses)
    old = [path for path in paths.mount.iterdir() if path not in kept and not path.name.startswith(SET_ASIDE)]
    if not old:
        return None
    target = paths.mount / f"{SET_ASIDE}{clock.now():%Y%m%dT%H%M%SZ}"
    target.mkdir(mode=0o700, exist_ok=True)
    for path in old:
        path.rename(target / path.name)
    return target


def distrust(paths: Paths) -> None:
    """Have the next boot of a rebuild begin anew: what is in the directory now must not be used."""
    found = marker.read(paths.marker)
    if found:
        marker.save(paths.marker, dataclasses.replace(found, rebuild=None))


def record_member(paths: Paths, clock: Clock) -> None:
    """Note in the marker, once, that the node has been a member."""
    found = marker.read(paths.marker)
    if found and not found.member_since:
        marker.save(paths.marker, dataclasses.replace(found, member_since=clock.stamp()))
