"""The hosts' image: a Debian tree in the cache, the read-only base of every host's file system.

What Amazon Linux 2023 plus the node's installation brings on EC2, Debian's packages bring here: RabbitMQ, Consul,
boto3, cloud-init. The tree's name holds a hash of the recipe: a changed recipe is a new image; none is ever changed.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lab.apt import ARCHIVE_KEYRING, debian_mirror, proxy_environment
from lab.processes import tail
from lab.system import LabError, clean_environment, require_programs, require_root, run

Report = Callable[[str], None]

SUITE = "trixie"
PACKAGES = (
    "ca-certificates",
    "cloud-init",
    "curl",
    "dbus",
    "iproute2",
    "jq",
    "libnss-resolve",
    "logrotate",
    "openssl",
    "procps",
    "python3-boto3",
    "rabbitmq-server",
    "systemd",
    "systemd-resolved",
    "systemd-sysv",
)
CONSUL_SUITE = "bullseye"
"""The last release of Debian that has Consul. Its binary needs nothing but libc."""
CONSUL_VERSION = "1.8.7*"

DISABLED_UNITS = ("rabbitmq-server.service", "epmd.service", "epmd.socket", "consul.service")
"""What only the node's boot may start."""

NOT_UNPACKED = ("/usr/share/doc", "/usr/share/info", "/usr/share/locale", "/usr/share/man", "/usr/share/lintian")

INSIDE = """
tree=$1; shift
mount -t proc proc "$tree/proc"
# The cache may be on a file system that is mounted nodev.
mount -t tmpfs -o mode=755 tmpfs "$tree/dev"
for device in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 "$tree/dev/${device%:*}" c 1 "${device#*:}"; done
exec chroot "$tree" "$@"
"""
"""Runs a command in the tree. Its mounts are in the command's own mount namespace and end with it."""

COMPLAINT = re.compile(r"(E:|dpkg: error|Err:)|.*: error")

STEP_LIMIT = 1200
"""Seconds for one step of a build. The longest took 25 s where it was measured; a slow mirror may take longer."""

FINISH = """
set -eu
systemctl disable --quiet DISABLED
apt-get clean
rm -rf /var/lib/apt/lists/* /var/cache/debconf/*-old /var/log/apt /var/log/*.log /usr/sbin/policy-rc.d /consul.deb
rm -rf NOT_UNPACKED
# Each host is to have an identity and secrets of its own. An empty machine-id is filled at boot without systemd taking
# that boot for an installation's first, which would enable every unit again.
rm -rf /var/lib/rabbitmq/.erlang.cookie /var/lib/dbus/machine-id
: > /etc/machine-id
: > /etc/hostname
printf '127.0.0.1\\tlocalhost\\n::1\\tlocalhost ip6-localhost ip6-loopback\\n' > /etc/hosts
ln -sf ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf
# Without these two, systemd rebuilds caches on each host's first boot, as after an upgrade of /usr.
touch /etc/.updated /var/.updated
"""


def recipe() -> dict[str, object]:
    """All that decides what is in the image."""
    return {
        "suite": SUITE,
        "packages": PACKAGES,
        "consul": [CONSUL_SUITE, CONSUL_VERSION],
        "scripts": [INSIDE, _finish_script(), _dpkg_options()],
        "machine": os.uname().machine,
    }


def image_name() -> str:
    """Name of the current recipe's image in the cache."""
    key = hashlib.sha256(json.dumps(recipe(), sort_keys=True).encode()).hexdigest()
    return f"image-{SUITE}-{key[:12]}"


def ensure_image(cache: Path, report: Report = lambda _: None) -> Path:
    """The current image, built when the cache lacks it. `report` hears what is being done.

    Safe to call from several processes at once: one builds, the others wait. A build that fails or is killed leaves
    no image. Raises `LabError` with the last lines of the build's log.
    """
    image = cache / image_name()
    if image.is_dir():
        return image
    require_root()
    require_programs(("debootstrap", "setpriv", "unshare"))
    cache.mkdir(parents=True, exist_ok=True)
    with _lock(cache / "image.lock", report):
        if not image.is_dir():
            _prune(cache)
            _build(image, cache / f"build-{os.getpid()}", report)
    return image


@contextlib.contextmanager
def _lock(file: Path, report: Report) -> Iterator[None]:
    with file.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("host image: another process is building it; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _prune(cache: Path) -> None:
    """Remove what an interrupted build left, and images of older recipes which no running host is based on."""
    mounts = _mounts()
    for path in [*cache.glob("build-*"), *cache.glob("image-*-*")]:
        if path.is_dir() and str(path) not in mounts:
            _discard(path)


def _mounts() -> str:
    return Path("/proc/self/mounts").read_text()


def _discard(tree: Path) -> None:
    run(["rm", "-rf", "--one-file-system", tree], timeout=300)


def _build(image: Path, work: Path, report: Report) -> None:
    mirror = debian_mirror()
    started = time.monotonic()
    log = work.parent / "image.log"
    log.write_text("")
    work.mkdir()
    tree = work / "root"

    def step(what: str, argv: Sequence[str | Path]) -> None:
        report(f"host image: {what}")
        _logged(argv, log, what)

    try:
        step(f"fetching Consul from Debian {CONSUL_SUITE}", ["sh", "-euc", _consul_script(work, mirror)])
        step(f"base system, Debian {SUITE}", ["debootstrap", "--variant=minbase", SUITE, tree, mirror])
        shutil.move(next(work.glob("consul_*.deb")), tree / "consul.deb")
        (tree / "etc/dpkg/dpkg.cfg.d/lab").write_text(_dpkg_options())
        policy = tree / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n")  # no daemon starts while packages are being installed
        policy.chmod(0o755)
        # debootstrap left the machine's own resolv.conf there, so apt resolves names inside the tree.
        inside = ["sh", "-euc", INSIDE, "inside", str(tree)]
        apt = [
            *inside,
            "apt-get",
            "-qq",
            "-o",
            "Acquire::Languages=none",
            "-o",
            "Acquire::Retries=3",
            "-o",
            "Dpkg::Use-Pty=0",
        ]
        step("package lists", [*apt, "update"])
        step(
            "RabbitMQ, Consul, cloud-init",
            [*apt, "-o", "APT::Sandbox::User=root", "install", "--no-install-recommends", *PACKAGES, "/consul.deb"],
        )
        step("clean-up", [*inside, "sh", "-c", _finish_script()])
        tree.rename(image)
    except BaseException:
        _discard(work)
        raise
    _discard(work)
    report(f"host image: built in {time.monotonic() - started:.0f} s")


def _logged(argv: Sequence[str | Path], log: Path, what: str) -> None:
    # It ends with this process, and its namespaces with it: nothing stays mounted in the tree and nothing runs on.
    bound = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--"]
    command = [*bound, *map(str, argv)]
    environment = clean_environment({"DEBIAN_FRONTEND": "noninteractive"} | proxy_environment())
    with log.open("ab") as output:
        try:
            code = subprocess.call(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, timeout=STEP_LIMIT
            )
        except subprocess.TimeoutExpired:
            raise LabError(f"the host image could not be built: {what} took longer than {STEP_LIMIT} s") from None
    if code != 0:
        raise LabError(f"the host image could not be built: {what} failed. From {log}:\n{_reason(log)}")


def _reason(log: Path) -> str:
    """The lines in which apt, dpkg or debootstrap complain; without such, the last ones."""
    complaints = [line for line in log.read_text(errors="replace").splitlines() if COMPLAINT.match(line)]
    return "\n".join(complaints[:8]) or tail(log, 8)


def _consul_script(work: Path, mirror: str) -> str:
    """Download the package with an apt of its own: the machine's sources and lists stay as they are."""
    apt = work / "apt"
    options = " ".join(
        f"-o {option}"
        for option in (
            f"Dir::State={apt}",
            f"Dir::Cache={apt}",
            f"Dir::Etc::SourceList={apt}/sources.list",
            f"Dir::Etc::SourceParts={apt}/none",
            "APT::Sandbox::User=root",
            "Acquire::Check-Valid-Until=false",
            "Acquire::Languages=none",
            "Acquire::Retries=3",
        )
    )
    return f"""
mkdir -p {apt}/lists/partial {apt}/archives/partial
echo 'deb [signed-by={ARCHIVE_KEYRING}] {mirror} {CONSUL_SUITE} main' > {apt}/sources.list
cd {work}
apt-get -qq {options} update
apt-get -qq {options} download 'consul={CONSUL_VERSION}'
"""


def _dpkg_options() -> str:
    """Nothing of the image survives a crash of its build, so dpkg need not sync; and nobody reads manuals there."""
    return "force-unsafe-io\n" + "".join(f"path-exclude={path}/*\n" for path in NOT_UNPACKED)


def _finish_script() -> str:
    return FINISH.replace("DISABLED", " ".join(DISABLED_UNITS)).replace("NOT_UNPACKED", " ".join(NOT_UNPACKED))
