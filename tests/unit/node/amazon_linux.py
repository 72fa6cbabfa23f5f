"""An Amazon Linux host and a version profile whose files all have their SHA-256 or their signature."""

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass, field

from node import artifacts
from node.commands import Result
from node.config import load_cluster, load_instance
from node.delayed_plugin import DelayedPlugin
from node.install import Installer
from tests.unit.node.places import Places
from tests.unit.node.standins import Programs

RPM = b"an rpm"
KEY_FILE = b"a key file"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def zipped(name: str = "consul", content: bytes = b"#!consul") -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), content)
    return raw.getvalue()


FINGERPRINT = "0A9AF2115F4687BD29803A206B73A36E6026DFCA"
LISTING = f"pub:-:4096:1:6B73A36E6026DFCA:1463484780:::-:::scESC::::::23::0:\nfpr:::::::::{FINGERPRINT}:\n"
SIGNED = "x.rpm:\n    Header V4 RSA/SHA256 Signature, key ID 6026dfca: OK\n    Payload SHA256 digest: OK"


CONTENT = {"rabbitmq": RPM, "erlang": RPM, "consul": zipped(), "delayed_plugin": b"plugin"}


@dataclass
class AmazonLinux:
    """An AL2023 host and a version profile whose files all have their SHA-256 or their signature."""

    places: Places
    programs: Programs = field(default_factory=Programs)
    notes: list[str] = field(default_factory=list)
    installed: dict[str, str] = field(default_factory=dict)
    """Package to version."""

    def __post_init__(self) -> None:
        self.document = json.loads(self.places.paths.cluster_file.read_text())
        self.versions = self.document["versions"]
        self.versions["consul"].update(
            source="https://releases.example.com/consul_{version}.zip", sha256=sha256(zipped())
        )
        self.versions["delayed_plugin"].update(sha256=sha256(b"plugin"), required=True)
        for program, content in (
            ("rabbitmq", RPM),
            ("erlang", RPM),
            ("consul", zipped()),
            ("delayed_plugin", b"plugin"),
        ):
            self.serve(program, content)
        self.installed = dict.fromkeys(("amazon-efs-utils", "openssl", "gnupg2-minimal"), "1")
        self.programs.react("rpm", reaction=self._rpm)
        self.programs.react("dnf", reaction=self._dnf)
        self.programs.react("consul", "version", reaction=self._consul)
        self.programs.on("gpg", output=LISTING)
        self.programs.on("rpmkeys")
        self.checksig(SIGNED)

    def serve(self, program: str, content: bytes, *, mirrored: bool = False) -> None:
        found = artifacts.program(self.versions, program, self.document["architecture"])
        assert found
        self.places.upstream.content[found.url] = content
        if found.signing_key:
            self.places.upstream.content[found.signing_key.url] = KEY_FILE
        if mirrored:
            self.places.bucket.content[found.key] = content
            if found.signing_key:
                self.places.bucket.content[found.signing_key.key] = KEY_FILE

    def checksig(self, output: str, code: int = 0) -> None:
        def check(command: list[str]) -> Result:
            return Result(code, output) if "--checksig" in command else Result(0, "")

        self.programs.react("rpmkeys", reaction=check)

    def _rpm(self, command: list[str]) -> Result:
        version = self.installed.get(command[-1])
        return Result(0, version) if version else Result(1, f"package {command[-1]} is not installed")

    def _dnf(self, command: list[str]) -> Result:
        for word in command[3:]:
            if word.endswith(".rpm"):
                program = "rabbitmq-server" if "rabbitmq" in word.rsplit("/", 1)[1] else "erlang"
                self.installed[program] = self.versions["rabbitmq" if "rabbitmq" in program else program]["version"]
            elif not word.startswith("-"):
                self.installed[word] = "1"
        return Result(0, "")

    def _consul(self, _: list[str]) -> Result:
        if not self.places.paths.consul_program.exists():
            return Result(127, "consul: no such program")
        return Result(0, f"Consul v{self.versions['consul']['version']}\n")

    def install(self) -> bool:
        paths = self.places.paths
        paths.cluster_file.write_text(json.dumps(self.document))
        cluster = load_cluster(paths, load_instance(paths))
        plugin = DelayedPlugin(cluster.versions, cluster.architecture, paths.plugins, self.notes.append)
        return Installer(paths, cluster, self.places.fetcher, plugin, self.programs).install()

    @property
    def packages(self) -> list[str]:
        """The RPM files that dnf was given."""
        calls = self.programs.ran("dnf", "-y", "install", "--nogpgcheck")
        return [word.rsplit("/", 1)[1] for call in calls for word in call if word.endswith(".rpm")]
