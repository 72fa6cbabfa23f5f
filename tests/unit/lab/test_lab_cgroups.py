from pathlib import Path

import pytest

from lab.cgroups import Cgroup, Layout
from lab.system import LabError

HYBRID = """tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
"""
UNIFIED = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n"
LEGACY = "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"


def detect(tmp_path: Path, mounts: str, *, systemd: bool = False) -> Layout:
    (tmp_path / "mounts").write_text(mounts)
    return Layout.detect(tmp_path / "mounts", tmp_path if systemd else tmp_path / "absent")


def test_a_hybrid_machine_has_two_hierarchies_for_a_host(tmp_path: Path) -> None:
    layout = detect(tmp_path, HYBRID)

    assert layout == Layout(Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup/systemd"), systemd_is_init=False)


def test_a_machine_run_by_systemd_is_asked_for_a_delegated_scope(tmp_path: Path) -> None:
    group = Cgroup("rabbitmq-lab-x-i-1", detect(tmp_path, UNIFIED, systemd=True))

    assert group.path == Path("/sys/fs/cgroup/system.slice/rabbitmq-lab-x-i-1.scope")
    command = group.launcher()
    assert command[:2] == ["systemd-run", "--scope"]
    assert "--property=Delegate=yes" in command
    assert "--unit=rabbitmq-lab-x-i-1" in command
    assert command[-1] == "--"


def test_a_machine_without_the_unified_hierarchy_is_told_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="mount -t cgroup2"):
        detect(tmp_path, LEGACY)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A hybrid machine made of directories."""
    for name in ("unified", "systemd"):
        (tmp_path / name).mkdir()
    return Layout(tmp_path / "unified", tmp_path / "systemd", systemd_is_init=False)


def test_the_launcher_enters_both_hierarchies_before_the_program_starts(layout: Layout, tmp_path: Path) -> None:
    command = Cgroup("x", layout).launcher()

    assert command[:2] == ["sh", "-ec"]
    assert command[2].index("unified/x/cgroup.procs") < command[2].index('exec "$@"')
    assert command[2].index("systemd/x/cgroup.procs") < command[2].index('exec "$@"')
    assert (tmp_path / "unified/x").is_dir()
    assert (tmp_path / "systemd/x").is_dir()
    assert Cgroup.names(layout) == ["x"]


def test_processes_in_the_groups_below_are_the_hosts_too(layout: Layout, tmp_path: Path) -> None:
    group = Cgroup("x", layout)
    group.launcher()
    below = tmp_path / "unified/x/payload/system.slice"
    below.mkdir(parents=True)
    (below / "cgroup.procs").write_text("12\n11\n")
    (tmp_path / "unified/x/cgroup.procs").write_text("10\n")

    assert group.pids() == [10, 11, 12]


def test_removal_starts_with_the_innermost_group(layout: Layout, tmp_path: Path) -> None:
    group = Cgroup("x", layout)
    group.launcher()
    (tmp_path / "unified/x/payload/system.slice/a.service").mkdir(parents=True)

    group.remove()

    assert Cgroup.names(layout) == []


def test_a_group_that_does_not_freeze_is_an_error_with_its_name(layout: Layout, tmp_path: Path) -> None:
    group = Cgroup("x", layout)
    with pytest.raises(LabError, match="x does not exist"):
        group.freeze()

    group.launcher()
    (tmp_path / "unified/x/cgroup.events").write_text("populated 1\nfrozen 0\n")
    with pytest.raises(LabError, match="control group x to freeze"):
        group.freeze(timeout=0.05)
    assert (tmp_path / "unified/x/cgroup.freeze").read_text() == "1"
