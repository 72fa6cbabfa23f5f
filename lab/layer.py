"""The configuration layer: what a lab lays over the hosts' image, the same for all its hosts.

The image is Debian and knows nothing of the lab; this directory makes it look like an EC2 instance of this VPC. Files
which are always the same stand in `lab/hostfs`; what depends on the lab is written here.
"""

import hashlib
import os
import shutil
from pathlib import Path

from lab.paths import LabPaths
from lab.system import LabError

HOST_FILES = Path(__file__).parent / "hostfs"
DATASOURCE = Path(__file__).parent / "cloudinit_datasource.py"
DATASOURCE_ON_HOST = Path("usr/lib/python3/dist-packages/cloudinit/sources/DataSourceEc2Lab.py")
TRUST_STORE = Path("etc/ssl/certs/ca-certificates.crt")
ARTIFACTS = Path("opt/rabbitmq-artifacts")
UNITS = Path("etc/systemd/system")

MASKED_UNITS = (
    "apt-daily-upgrade.timer",
    "apt-daily.timer",
    "cloud-init-hotplugd.socket",
    "console-getty.service",
    "dev-hugepages.mount",
    "dpkg-db-backup.timer",
    "fstrim.timer",
    "getty.target",
    "ldconfig.service",
    "logrotate.timer",
    "modprobe@.service",
    "remote-fs.target",
    "sys-fs-fuse-connections.mount",
    "systemd-ask-password-console.path",
    "systemd-ask-password-wall.path",
    "systemd-firstboot.service",
    "systemd-journal-catalog-update.service",
    "systemd-logind.service",
    "systemd-pstore.service",
    "systemd-sysusers.service",
    "systemd-update-done.service",
)
"""Of no use on a host that lives for an hour in a container, and each costs boot time."""


def internal_domain(region: str) -> str:
    """The domain of EC2's private names in a region."""
    return "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"


def build_layer(paths: LabPaths, image: Path, ca_pem: bytes, *, delayed_plugin: Path | None = None) -> Path:
    """The layer's directory, made when there is none with this content.

    `ca_pem`: the certificate authority which the hosts trust besides the public ones. `delayed_plugin`: a file to
    place in `/opt/rabbitmq-artifacts`, under its own name.
    Raises `LabError` when the plugin's file does not exist. Directories in use are never changed.
    """
    if delayed_plugin is not None and not delayed_plugin.is_file():
        raise LabError(f"{delayed_plugin} is not a file. DELAYED_PLUGIN must name the delayed plugin's .ez file.")
    paths.create()
    work = paths.layer / f"build-{os.getpid()}"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(HOST_FILES, work, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))

    _write(work / DATASOURCE_ON_HOST, DATASOURCE.read_bytes())
    _write(work / TRUST_STORE, (image / TRUST_STORE).read_bytes() + ca_pem)
    _write(work / "usr/local/share/ca-certificates/lab.crt", ca_pem)
    settings = f"RESOLVER={paths.resolver}\nDOMAIN={internal_domain(paths.region)}\n"
    _write(work / "etc/lab-resolver", settings.encode())
    wants = work / UNITS / "multi-user.target.wants"
    wants.mkdir()
    (wants / "lab-resolver.service").symlink_to("../lab-resolver.service")
    for unit in MASKED_UNITS:
        (work / UNITS / unit).symlink_to("/dev/null")
    if delayed_plugin is not None:
        _write(work / ARTIFACTS / delayed_plugin.name, delayed_plugin.read_bytes())

    _set_modes(work)
    layer = paths.layer / _digest(work)
    if layer.is_dir():
        shutil.rmtree(work)
    else:
        work.rename(layer)
    return layer


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def _set_modes(tree: Path) -> None:
    """Readable for all on the hosts, whatever the umask here or at the project's checkout."""
    for path in [tree, *tree.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def _digest(tree: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(tree.rglob("*")):
        if file.is_symlink():
            content = os.readlink(file).encode()
        elif file.is_file():
            content = file.read_bytes()
        else:
            continue
        for part in (str(file.relative_to(tree)).encode(), oct(file.lstat().st_mode).encode(), content):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:16]
