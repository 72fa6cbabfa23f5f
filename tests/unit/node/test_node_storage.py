"""The node's directory: mounted as EFS wants it, proven writable in time, and proven to be this node's."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from node import commands, marker, storage
from node.commands import Result
from node.errors import NotYet, Refusal
from node.marker import Marker
from node.ownership import Record
from node.paths import Paths
from tests.unit.node.standins import BEGIN
from tests.unit.node.world import NODE, World, set_mounted

SINCE = "2026-01-01T00:00:00+00:00"
ORDER = "2026-02-28T09:00:00+00:00"


def mounting(world: World) -> None:
    def mount(_: list[str]) -> Result:
        set_mounted(world.paths)
        return Result(0, "")

    world.programs.react("mount", reaction=mount)


def broker_data(paths: Paths, content: str = "queues") -> Path:
    path = paths.rabbitmq_data / f"rabbit@{NODE}" / "data"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def has_marker(paths: Paths, **changes: str | None) -> None:
    fields = {"node": NODE, "cluster": "rabbitmq-local", "created_at": SINCE, **changes}
    paths.marker.write_text(json.dumps(fields))


def check(world: World, member_since: str | None = None, rebuild: str | None = None) -> None:
    record = Record("i-me", member_since=member_since, rebuild=rebuild)
    storage.check_marker(world.paths, world.instance, record, world.clock, lambda: None)


# -- mount -------------------------------------------------------------------------------------------------------------


def test_the_access_point_is_mounted_with_tls_and_iam(world: World) -> None:
    mounting(world)
    storage.mount(world.paths, world.instance, world.clock, world.programs)
    assert world.programs.calls == [
        [
            *("mount", "-t", "efs", "-o", "tls,iam,accesspoint=fsap-1,noresvport,_netdev", "fs-1:/"),
            str(world.paths.mount),
        ]
    ]


def test_what_is_mounted_is_not_mounted_again(world: World) -> None:
    set_mounted(world.paths)
    storage.mount(world.paths, world.instance, world.clock, world.programs)
    assert world.programs.calls == []


def test_a_mount_is_tried_five_times_and_then_the_boot_begins_again(world: World) -> None:
    world.programs.on("mount", code=32, output="access denied by server")
    with pytest.raises(NotYet, match=r"fs-1 \(fsap-1\) could not be mounted: access denied by server"):
        storage.mount(world.paths, world.instance, world.clock, world.programs)
    assert len(world.programs.calls) == 5
    assert world.clock.passed == 20


def test_a_mount_that_says_yes_without_a_mount_is_not_believed(world: World) -> None:
    world.programs.on("mount", code=0)
    with pytest.raises(NotYet):
        storage.mount(world.paths, world.instance, world.clock, world.programs)


def test_another_mount_below_the_directory_does_not_count(world: World) -> None:
    world.paths.mountinfo.write_text(
        "36 25 0:31 / /mnt/rabbitmq/other rw - nfs4 x rw\n36 25 0:31 / /mnt rw - nfs4 x rw\n"
    )
    assert not storage.is_mounted(world.paths)


# -- proof of a write --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("real_programs")
def test_the_proof_writes_syncs_and_leaves_nothing(tmp_path: Path) -> None:
    storage.prove_writable(tmp_path, commands.run)
    assert list(tmp_path.iterdir()) == []


def test_the_proof_is_on_the_disk_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bytes] = []
    monkeypatch.setattr(os, "fsync", lambda _: synced.append((tmp_path / "proof").read_bytes()))
    monkeypatch.setattr(sys, "argv", ["-c", str(tmp_path / "proof")])
    exec(storage._PROOF, {})
    assert synced == [b"proof"]


@pytest.mark.usefixtures("real_programs")
def test_a_directory_that_takes_no_write_stops_the_boot(tmp_path: Path) -> None:
    with pytest.raises(NotYet, match="does not take a write"):
        storage.prove_writable(tmp_path / "absent", commands.run)


def test_the_proof_has_a_time_limit_and_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    limits: list[float] = []

    def hangs(arguments: list[str], *, limit: float) -> Result:
        assert arguments[0] == sys.executable
        limits.append(limit)
        return Result(None, f"no end within {limit:.0f} s")

    with pytest.raises(NotYet, match="no end within 30 s"):
        storage.prove_writable(tmp_path, hangs)
    assert limits == [storage.PROOF_LIMIT_SECONDS]


# -- marker ------------------------------------------------------------------------------------------------------------


def test_a_new_node_gets_its_marker(world: World) -> None:
    check(world)
    assert marker.read(world.paths.marker) == Marker(NODE, "rabbitmq-local", BEGIN.isoformat())


def test_a_second_boot_of_a_new_node_finds_its_marker_and_keeps_it(world: World) -> None:
    check(world)
    world.clock.sleep(60)
    check(world)
    found = marker.read(world.paths.marker)
    assert found
    assert found.created_at == BEGIN.isoformat()


def test_a_member_with_its_data_goes_on(world: World) -> None:
    has_marker(world.paths, member_since=SINCE)
    broker_data(world.paths)
    check(world, member_since=SINCE)


def test_membership_is_noted_once(world: World) -> None:
    has_marker(world.paths)
    storage.record_member(world.paths, world.clock)
    world.clock.sleep(60)
    storage.record_member(world.paths, world.clock)
    found = marker.read(world.paths.marker)
    assert found
    assert found.member_since == BEGIN.isoformat()


def no_marker(paths: Paths) -> None:
    pass


def marker_without_data(paths: Paths) -> None:
    has_marker(paths, member_since=SINCE)


def marker_of_a_directory_that_was_begun_anew(paths: Paths) -> None:
    has_marker(paths)


@pytest.mark.parametrize("directory", [no_marker, marker_without_data, marker_of_a_directory_that_was_begun_anew])
def test_a_member_without_its_data_is_refused_and_the_remedy_names_the_command(
    directory: Callable[[Paths], None], world: World
) -> None:
    directory(world.paths)
    with pytest.raises(Refusal, match="has been a member since") as refused:
        check(world, member_since=SINCE)
    assert f"python -m operations node rebuild {NODE}" in refused.value.remedy
    assert "fs-1, fsap-1" in refused.value.where


def test_a_directory_that_remembers_a_membership_is_refused_though_the_table_has_lost_it(world: World) -> None:
    marker_without_data(world.paths)
    with pytest.raises(Refusal, match="but its data directory is empty"):
        check(world)


def test_data_without_a_marker_is_not_taken_for_a_new_nodes(world: World) -> None:
    broker_data(world.paths)
    with pytest.raises(Refusal, match="there is broker data without a marker"):
        check(world)


@pytest.mark.parametrize("changes", [{"node": "rabbitmq-local-eu-west-1b"}, {"cluster": "rabbitmq-other"}])
@pytest.mark.parametrize("rebuild", [None, ORDER])
def test_another_nodes_directory_is_refused_whatever_is_ordered(
    changes: dict[str, str], rebuild: str | None, world: World
) -> None:
    has_marker(world.paths, member_since=SINCE, **changes)
    kept = broker_data(world.paths)
    with pytest.raises(Refusal, match="the directory belongs to"):
        check(world, member_since=SINCE, rebuild=rebuild)
    assert kept.exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '"x"', '{"node": "x"}'])
def test_a_marker_that_cannot_be_understood_is_refused(content: str, world: World) -> None:
    world.paths.marker.write_text(content)
    with pytest.raises(Refusal, match="cannot be understood"):
        check(world, rebuild=ORDER)


# -- rebuild -----------------------------------------------------------------------------------------------------------


def test_an_order_to_rebuild_lets_a_member_start_on_an_empty_directory(world: World) -> None:
    check(world, member_since=SINCE, rebuild=ORDER)
    assert marker.read(world.paths.marker) == Marker(NODE, "rabbitmq-local", BEGIN.isoformat(), None, ORDER)


def test_a_rebuild_sets_old_data_aside_and_deletes_nothing(world: World) -> None:
    has_marker(world.paths, member_since=SINCE)
    data = broker_data(world.paths)
    (world.paths.consul_data / "raft").mkdir(parents=True)
    world.paths.addresses.write_text("{}")
    world.paths.guard.touch()
    check(world, member_since=SINCE, rebuild=ORDER)
    aside = world.paths.mount / "set-aside-20260301T120000Z"
    assert (aside / data.relative_to(world.paths.mount)).read_text() == "queues"
    assert (aside / "consul/raft").is_dir()
    assert json.loads((aside / "node.json").read_text())["member_since"] == SINCE
    left = {path.name for path in world.paths.mount.iterdir()}
    assert left == {aside.name, "node.json", "addresses.json", "lock"}


def test_what_was_begun_for_an_order_is_not_set_aside_for_it_again(world: World) -> None:
    check(world, member_since=SINCE, rebuild=ORDER)
    data = broker_data(world.paths, "joined")
    world.clock.sleep(60)
    check(world, member_since=SINCE, rebuild=ORDER)
    assert data.read_text() == "joined"


def test_a_later_order_sets_aside_what_was_begun_for_an_earlier_one(world: World) -> None:
    check(world, member_since=SINCE, rebuild=ORDER)
    data = broker_data(world.paths)
    check(world, member_since=SINCE, rebuild="2026-03-01T09:00:00+00:00")
    assert not data.exists()


def test_a_rebuilt_node_that_began_a_cluster_of_its_own_begins_again(world: World) -> None:
    check(world, member_since=SINCE, rebuild=ORDER)
    data = broker_data(world.paths)
    storage.distrust(world.paths)
    check(world, member_since=SINCE, rebuild=ORDER)
    assert not data.exists()


def test_setting_aside_that_was_cut_off_is_taken_up_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    has_marker(world.paths, member_since=SINCE)
    broker_data(world.paths)
    (world.paths.consul_data / "raft").mkdir(parents=True)
    rename, moves = Path.rename, iter([True, False])

    def dies(path: Path, target: Path) -> Path:
        if not next(moves):
            raise OSError("the host is gone")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", dies)
    with pytest.raises(OSError, match="the host is gone"):
        check(world, member_since=SINCE, rebuild=ORDER)
    monkeypatch.setattr(Path, "rename", rename)
    world.clock.sleep(60)
    check(world, member_since=SINCE, rebuild=ORDER)
    left = {path.name for path in world.paths.mount.iterdir() if not path.name.startswith("set-aside-")}
    assert left == {"node.json"}
    assert len(list(world.paths.mount.glob("set-aside-*/consul"))) == 1


def test_nothing_is_set_aside_below_a_running_broker(world: World) -> None:
    data = broker_data(world.paths)

    def stop() -> None:
        raise NotYet("rabbitmq-server.service does not stop")

    record = Record("i-me", member_since=SINCE, rebuild=ORDER)
    with pytest.raises(NotYet):
        storage.check_marker(world.paths, world.instance, record, world.clock, stop)
    assert data.exists()


def test_after_a_rebuild_the_usual_rules_hold_again(world: World) -> None:
    check(world, member_since=SINCE, rebuild=ORDER)
    storage.record_member(world.paths, world.clock)
    with pytest.raises(Refusal, match="but its data directory is empty"):
        check(world, member_since=SINCE)
