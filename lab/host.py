"""A host: what the lab starts for an EC2 instance.

Its root is an overlay over the read-only image, its network a namespace of its own with one cable into the VPC, its
processes a systemd-nspawn container in a control group of its own. Everything about it is on disk under
`hosts/<instance id>`, so that a later run finds it (`Host.load`) and never touches a process that is not its.
"""

import contextlib
import json
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from lab import network
from lab.cgroups import Cgroup
from lab.paths import NAMESPACE_ROOT, LabPaths
from lab.processes import Process, spawn, tail
from lab.system import LabError, clean_environment, require_root, run

EFS_ON_HOST = "/run/lab-efs"
"""Where the lab's mount.efs finds the file systems."""

NSPAWN_STATE = Path("/run/systemd/nspawn")

HALT = signal.SIGRTMIN + 3
"""systemd's signal for an orderly halt."""


@dataclass(frozen=True)
class HostSpec:
    """What a host is made of."""

    instance_id: str
    address: IPv4Address
    subnet: IPv4Network
    az: str
    image: Path
    layer: Path
    efs: Path

    @property
    def hostname(self) -> str:
        """The name EC2 gives an instance, from its address. The node renames itself when it boots."""
        return f"ip-{str(self.address).replace('.', '-')}"

    @property
    def mac(self) -> str:
        """Hardware address of its only interface."""
        return network.mac_of(self.address)

    def to_json(self) -> str:
        """For `hosts/<instance id>/spec.json`."""
        return json.dumps({key: str(value) for key, value in asdict(self).items()}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> "HostSpec":
        """What `to_json` wrote."""
        raw = json.loads(text)
        return cls(
            instance_id=raw["instance_id"],
            address=IPv4Address(raw["address"]),
            subnet=IPv4Network(raw["subnet"]),
            az=raw["az"],
            image=Path(raw["image"]),
            layer=Path(raw["layer"]),
            efs=Path(raw["efs"]),
        )


class Host:
    """One host. Methods may be called from several threads as long as each has a host of its own."""

    def __init__(self, spec: HostSpec, paths: LabPaths) -> None:
        self.spec = spec
        self.paths = paths
        self.directory = paths.host(spec.instance_id)
        self.root = self.directory / "root"
        self.namespace = paths.host_namespace(spec.instance_id)
        self.cgroup = Cgroup(paths.cgroup(spec.instance_id))
        self._process_file = self.directory / "nspawn.json"

    @classmethod
    def find(cls, instance_id: str, paths: LabPaths) -> "Host | None":
        """The host which an earlier call or an earlier run prepared; None when there is none."""
        try:
            return cls(HostSpec.from_json((paths.host(instance_id) / "spec.json").read_text()), paths)
        except (FileNotFoundError, ValueError, KeyError):
            return None

    @classmethod
    def load(cls, instance_id: str, paths: LabPaths) -> "Host":
        """`find`, but raises `LabError` when there is none."""
        host = cls.find(instance_id, paths)
        if host is None:
            raise LabError(f"lab {paths.name} has no host for instance {instance_id}: {paths.hosts} has no such one.")
        return host

    @classmethod
    def all(cls, paths: LabPaths) -> list["Host"]:
        """Every host there is on disk, running or not."""
        ids = sorted(path.name for path in paths.hosts.glob("*") if path.is_dir())
        return [host for host in (cls.find(instance_id, paths) for instance_id in ids) if host]

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """`prepare` and `boot`. Where something must happen in between (the metadata service), call the two."""
        self.prepare()
        self.boot()

    def prepare(self) -> None:
        """Root file system and network namespace, but no process yet. Raises `LabError`, and then leaves nothing."""
        require_root()
        if self.directory.exists():
            raise LabError(f"host {self.spec.instance_id} exists already: {self.directory}")
        self.paths.create()
        try:
            for name in ("upper", "work", "root"):
                (self.directory / name).mkdir(parents=True)
            (self.directory / "upper").chmod(0o755)  # what / has on the host
            (self.directory / "spec.json").write_text(self.spec.to_json())
            # volatile: the host's own disk dies with the host, so nobody needs it synced. EFS is not on it.
            layers = f"lowerdir={self.spec.layer}:{self.spec.image}"
            disk = f"upperdir={self.directory / 'upper'},workdir={self.directory / 'work'},volatile"
            run(["mount", "-t", "overlay", "overlay", "-o", f"{layers},{disk}", self.root])
            network.attach(self.paths, self.spec.instance_id, self.spec.address, self.spec.subnet)
        except BaseException:
            self.discard()
            raise

    def boot(self) -> None:
        """Power on. Raises `LabError` and discards the host when the container does not start."""
        self.spec.efs.mkdir(parents=True, exist_ok=True)
        self.spec.efs.chmod(0o700)
        console = self.paths.console(self.spec.instance_id)
        command = [
            "systemd-nspawn",
            "--quiet",
            "--settings=no",
            f"--directory={self.root}",
            "--boot",
            "--register=no",
            "--keep-unit",
            f"--machine={self.namespace}",
            f"--hostname={self.spec.hostname}",
            f"--network-namespace-path={NAMESPACE_ROOT / self.namespace}",
            "--resolv-conf=off",
            "--timezone=off",
            "--link-journal=no",
            "--console=read-only",
            f"--bind={self.spec.efs}:{EFS_ON_HOST}",
        ]
        # Since systemd 258 a container must have the unified hierarchy; here it has it on every machine.
        settings = {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1", "TERM": "dumb"}
        process = spawn([*self.cgroup.launcher(), *command], log=console, environment=settings)
        process.save(self._process_file)
        if process.wait(0.1):
            self.discard()
            raise LabError(f"host {self.spec.instance_id} did not start. {console} ends with:\n{tail(console)}")

    def stop(self, timeout: float) -> None:
        """Shut down in order, and remove the host. What does not end within `timeout` seconds is killed."""
        process = Process.load(self._process_file)
        init = self._init()
        if process and init:
            if self.frozen:
                self.thaw()
            init.send(HALT)
            process.wait(timeout)
        self.discard()

    def power_loss(self) -> None:
        """The instance is gone from one moment to the next: its network, then all its processes, then its disk."""
        network.unplug(self.paths, self.spec.instance_id)
        self.discard()

    def freeze(self) -> None:
        """Stop all its processes where they are, as on an instance that hangs. Its address still answers ping."""
        self.cgroup.freeze()

    def thaw(self) -> None:
        """Undo `freeze`."""
        self.cgroup.thaw()

    def discard(self) -> None:
        """Remove everything of this host, whatever state it is in. The console stays among the logs."""
        # Without its init the container ends, and nspawn then removes its lock and its directories by itself.
        process = Process.load(self._process_file)
        init = self._init()
        if process and init:
            init.send(signal.SIGKILL)
            init.wait(2)
            if self.frozen:
                self.thaw()
            process.wait(2)
        self.cgroup.kill()
        if process:
            process.end(timeout=5)
        remove_traces(self.namespace)
        unmount(self.root)
        network.detach(self.paths, self.spec.instance_id)
        self.cgroup.remove()
        shutil.rmtree(self.directory, ignore_errors=True)

    # -- use ---------------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """True while the container runs (frozen or not)."""
        process = Process.load(self._process_file)
        return process is not None and process.alive

    @property
    def frozen(self) -> bool:
        """True after `freeze`."""
        return self.cgroup.frozen

    def console(self) -> str:
        """All that the host wrote to its console; user-data's output is there too."""
        try:
            return self.paths.console(self.spec.instance_id).read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def enter_command(self, argv: Sequence[str]) -> list[str]:
        """The command which runs `argv` on this host as root, in all its namespaces; for a terminal or a pipe."""
        init = self._init()
        if init is None:
            console = self.paths.console(self.spec.instance_id)
            raise LabError(f"host {self.spec.instance_id} does not run. Its console: {console}")
        return ["nsenter", f"--target={init.pid}", "--all", "--root", "--wd", "--", *argv]

    def run(
        self, argv: Sequence[str], timeout: float = 60, input: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the host as root. Raises `LabError` when it fails (with `check`) or takes too long."""
        # Limited from inside: ending nsenter alone would leave the command running on the host.
        command = self.enter_command(["timeout", "--kill-after=2", f"{timeout:g}", *argv])
        started = time.monotonic()
        try:
            done = subprocess.run(
                command, input=input or "", capture_output=True, text=True, errors="replace", timeout=timeout + 5,
                env=clean_environment(), check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            done = subprocess.CompletedProcess(command, 124, "", "")
        where = f"`{' '.join(argv)}` on host {self.spec.instance_id}"
        if done.returncode in (124, 137, -9) and time.monotonic() - started >= timeout:
            raise LabError(f"{where} did not end within {timeout:g} s")
        if check and done.returncode != 0:
            raise LabError(f"{where} failed with exit code {done.returncode}: {(done.stderr or done.stdout).strip()}")
        return done

    def _init(self) -> Process | None:
        if not self.alive:
            return None
        pid = self.cgroup.init()
        return Process.of(pid) if pid else None


def traces(machine: re.Pattern[str]) -> list[str]:
    """Names of the machines that match of which nspawn has left a directory."""
    return sorted({path.name for path in NSPAWN_STATE.glob("*/*") if machine.fullmatch(path.name)})


def remove_traces(machine: str) -> None:
    """Remove what a killed nspawn could not, and what it dares not remove where /run is no tmpfs.

    While its mount is there, systemd 256 and later refuse to start a machine with this name again.
    """
    for kind in ("propagate", "unix-export"):
        directory = NSPAWN_STATE / kind / machine
        unmount(directory)
        with contextlib.suppress(OSError):
            directory.rmdir()


def unmount(target: Path) -> None:
    """Unmount, if it is mounted. What the kernel still holds for a moment after a kill is retried, then detached."""
    for _ in range(20):
        if str(target) not in (line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()):
            return
        if run(["umount", target], check=False).returncode == 0:
            return
        time.sleep(0.05)
    run(["umount", "--lazy", target])
