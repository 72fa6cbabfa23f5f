"""What a lab left behind, after a crash or a reboot, and its removal. Only what carries this lab's name is touched."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from lab.cgroups import Cgroup, Layout
from lab.host import Host, remove_traces, traces, unmount
from lab.network import delete_namespace
from lab.paths import NAMESPACE_ROOT, LabPaths
from lab.processes import Process
from lab.system import LabError, run

_INSTANCE_ID = r"i-[0-9a-f]{8,17}"


def leftovers(paths: LabPaths) -> list[str]:
    """Everything of this lab that exists on the machine, one line each, whether or not the lab runs."""
    found = [f"process {process.pid} ({name})" for name, process in _processes(paths)]
    found += [f"control group {group.name} with {len(group.pids())} processes" for group in _cgroups(paths)]
    found += [f"mount {target}" for target in _mounts(paths)]
    found += [f"directories of systemd-nspawn for {name}" for name in traces(_hosts(paths))]
    found += [f"network namespace {name}" for name in _namespaces(paths)]
    found += [f"files in {paths.state}"] if paths.state.exists() else []
    return found


def clean(paths: LabPaths) -> None:
    """Remove all of it. The cache stays. Raises `LabError` naming what could not be removed."""
    for _, process in _processes(paths):
        if process.pid != os.getpid():
            process.end()
    for host in Host.all(paths):
        host.discard()
    for group in _cgroups(paths):
        group.kill()
        group.remove()
    for target in _mounts(paths):
        unmount(target)
    for name in traces(_hosts(paths)):
        remove_traces(name)
    for name in _namespaces(paths):
        delete_namespace(name)
    if still := _mounts(paths):
        raise LabError(f"still mounted, so {paths.state} was left: {', '.join(map(str, still))}")
    run(["rm", "-rf", "--one-file-system", paths.state], timeout=300)
    with contextlib.suppress(OSError):  # other labs have theirs there
        paths.state.parent.rmdir()


def _hosts(paths: LabPaths) -> re.Pattern[str]:
    return re.compile(re.escape(paths.host_namespace("")) + _INSTANCE_ID)


def _processes(paths: LabPaths) -> Iterator[tuple[str, Process]]:
    for file in sorted((paths.state / "run").glob("*.json")):
        process = Process.load(file)
        if process and process.alive:
            yield file.stem, process


def _cgroups(paths: LabPaths) -> list[Cgroup]:
    layout = Layout.detect()
    pattern = re.compile(re.escape(paths.cgroup("")) + _INSTANCE_ID)
    return [Cgroup(name, layout) for name in Cgroup.names(layout) if pattern.fullmatch(name)]


def _mounts(paths: LabPaths) -> list[Path]:
    """Mount points below the lab's directory, the innermost first."""
    targets = (Path(line.split()[1]) for line in Path("/proc/self/mounts").read_text().splitlines())
    return sorted((target for target in targets if target.is_relative_to(paths.state)), reverse=True)


def _namespaces(paths: LabPaths) -> list[str]:
    names = (path.name for path in NAMESPACE_ROOT.glob("*"))
    return sorted(name for name in names if name == paths.vpc_namespace or _hosts(paths).fullmatch(name))
