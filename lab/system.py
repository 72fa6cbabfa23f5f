"""Running the machine's own programs, and the one exception this package raises on purpose."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Fixed, because root's PATH often lacks sbin and a caller's may name a virtual environment."""

PACKAGE_OF = {
    "debootstrap": "debootstrap",
    "systemd-nspawn": "systemd-container",
    "haproxy": "haproxy",
    "dnsmasq": "dnsmasq-base",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}


class LabError(Exception):
    """Something a reader can act on: what went wrong, where, and what to do."""


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment without the caller's variables: theirs may hold credentials, and hosts must not see them."""
    fixed = {"PATH": PATH, "LANG": "C.UTF-8", "HOME": "/root", "TERM": os.environ.get("TERM", "dumb")}
    return fixed | dict(extra or {})


def run(
    argv: Sequence[str | Path], *, check: bool = True, stdin: str | None = None, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end and return it; raises `LabError` with the program's own words when it fails."""
    command = [str(part) for part in argv]
    environment = clean_environment()
    try:
        done = subprocess.run(
            command, input=stdin or "", capture_output=True, text=True, timeout=timeout, env=environment, check=False
        )
    except FileNotFoundError:
        raise missing([command[0]]) from None
    except subprocess.TimeoutExpired:
        raise LabError(f"`{' '.join(command)}` did not end within {timeout:.0f} s") from None
    if check and done.returncode != 0:
        words = (done.stderr or done.stdout).strip() or "it said nothing"
        raise LabError(f"`{' '.join(command)}` failed with exit code {done.returncode}: {words}")
    return done


def missing(programs: Iterable[str]) -> LabError:
    """The error for programs that are not installed, with the packages which bring them."""
    names = sorted(programs)
    packages = sorted({PACKAGE_OF.get(name, name) for name in names})
    return LabError(f"not installed: {', '.join(names)}. Run `apt-get install {' '.join(packages)}`.")


def require_programs(programs: Iterable[str] = tuple(PACKAGE_OF)) -> None:
    """Raise `LabError` naming every program the lab needs and the machine lacks."""
    absent = [name for name in programs if shutil.which(name, path=PATH) is None]
    if absent:
        raise missing(absent)


def require_root() -> None:
    """Raise `LabError` unless this is root: namespaces, mounts and low ports need it."""
    if os.geteuid() != 0:
        raise LabError("the lab needs root, for namespaces, mounts and ports below 1024. Run it with sudo.")
