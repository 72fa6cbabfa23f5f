import os
import shutil
import subprocess
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from lab.layer import HOST_FILES, MASKED_UNITS, build_layer, internal_domain
from lab.paths import LabPaths
from lab.system import LabError

CA = b"-----BEGIN CERTIFICATE-----\nlab\n-----END CERTIFICATE-----\n"


@pytest.fixture
def paths(tmp_path: Path) -> LabPaths:
    return LabPaths("x", "eu-west-1", 4566, IPv4Network("10.77.0.0/16"), tmp_path / "state", tmp_path / "cache")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    store = tmp_path / "image/etc/ssl/certs/ca-certificates.crt"
    store.parent.mkdir(parents=True)
    store.write_bytes(b"public authorities\n")
    return tmp_path / "image"


def test_the_hosts_trust_the_labs_authority_besides_the_public_ones(paths: LabPaths, image: Path) -> None:
    layer = build_layer(paths, image, CA)

    assert (layer / "etc/ssl/certs/ca-certificates.crt").read_bytes() == b"public authorities\n" + CA


def test_the_hosts_resolver_and_domain_are_the_vpcs(paths: LabPaths, image: Path) -> None:
    layer = build_layer(paths, image, CA)

    settings = (layer / "etc/lab-resolver").read_text()
    assert settings == "RESOLVER=10.77.0.2\nDOMAIN=eu-west-1.compute.internal\n"
    assert (layer / "etc/systemd/system/multi-user.target.wants/lab-resolver.service").resolve().is_file()
    assert internal_domain("us-east-1") == "ec2.internal"


def test_masked_units_point_to_dev_null(paths: LabPaths, image: Path) -> None:
    layer = build_layer(paths, image, CA)

    assert {os.readlink(layer / "etc/systemd/system" / unit) for unit in MASKED_UNITS} == {"/dev/null"}


def test_the_delayed_plugin_keeps_its_name(paths: LabPaths, image: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "rabbitmq_delayed_message_exchange-4.0.7.ez"
    plugin.write_bytes(b"PK")

    layer = build_layer(paths, image, CA, delayed_plugin=plugin)

    assert (layer / "opt/rabbitmq-artifacts" / plugin.name).read_bytes() == b"PK"
    with pytest.raises(LabError, match=r"missing\.ez is not a file\. DELAYED_PLUGIN must name"):
        build_layer(paths, image, CA, delayed_plugin=tmp_path / "missing.ez")


def test_the_same_content_is_the_same_directory_and_other_content_another(paths: LabPaths, image: Path) -> None:
    first = build_layer(paths, image, CA)
    inode = first.stat().st_ino

    assert build_layer(paths, image, CA).stat().st_ino == inode
    assert build_layer(paths, image, CA + b"renewed\n") != first
    assert first.is_dir()
    assert not list(paths.layer.glob("build-*"))


def test_a_strict_umask_makes_nothing_unreadable_on_the_hosts(paths: LabPaths, image: Path) -> None:
    before = os.umask(0o077)
    try:
        layer = build_layer(paths, image, CA)
    finally:
        os.umask(before)

    modes = {path.stat().st_mode & 0o777 for path in [layer, *layer.rglob("*")] if not path.is_symlink()}
    assert modes == {0o755, 0o644}
    assert (layer / "usr/sbin/mount.efs").stat().st_mode & 0o777 == 0o755


class MountHelper:
    """The lab's mount.efs with a `mount` that only says what it was asked to do."""

    def __init__(self, directory: Path) -> None:
        self.exports = directory / "exports"
        self.target = directory / "target"
        self.target.mkdir()
        (self.exports / "fs-1/fsap-1").mkdir(parents=True)
        self._bin = directory / "bin"
        self._bin.mkdir()
        mount = self._bin / "mount"
        mount.write_text('#!/bin/sh\necho "$@"\n')
        mount.chmod(0o755)
        self._helper = directory / "mount.efs"
        text = (HOST_FILES / "usr/sbin/mount.efs").read_text()
        self._helper.write_text(text.replace("EXPORTS=/run/lab-efs", f"EXPORTS={self.exports}"))
        assert shutil.which("sh")

    def __call__(self, options: str, source: str = "fs-1:/") -> subprocess.CompletedProcess[str]:
        # As mount(8) calls it.
        command = ["sh", str(self._helper), source, str(self.target), "-o", options]
        environment = {"PATH": f"{self._bin}:/usr/bin:/bin"}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def mount_efs(tmp_path: Path) -> MountHelper:
    return MountHelper(tmp_path)


def test_the_efs_mount_helper_binds_the_access_points_directory(mount_efs: MountHelper) -> None:
    done = mount_efs("rw,tls,iam,accesspoint=fsap-1,noresvport,_netdev")

    assert done.returncode == 0
    assert done.stdout == f"--bind -o rw {mount_efs.exports}/fs-1/fsap-1 {mount_efs.target}\n"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("iam,accesspoint=fsap-1", "demands the option tls"),
        ("tls,accesspoint=fsap-1", "demands the option iam"),
        ("tls,iam", "demands the option accesspoint"),
        ("tls,iam,accesspoint=fsap-2", "has no access point fsap-2"),
    ],
)
def test_the_efs_mount_helper_refuses_what_the_file_system_policy_refuses(
    mount_efs: MountHelper, options: str, complaint: str
) -> None:
    done = mount_efs(options)

    assert done.returncode == 32
    assert complaint in done.stderr
    assert "access denied by server while mounting" in done.stderr


@pytest.mark.parametrize(
    ("source", "complaint"),
    [("/dev/sda", "must be a file system id"), ("fs-2:/", "not known"), ("fs-1:/deeper", "the path must be /")],
)
def test_the_efs_mount_helper_refuses_a_source_that_is_no_file_system(
    mount_efs: MountHelper, source: str, complaint: str
) -> None:
    done = mount_efs("tls,iam,accesspoint=fsap-1", source)

    assert done.returncode == 32
    assert complaint in done.stderr
