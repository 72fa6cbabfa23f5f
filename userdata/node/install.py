"""The programs. Only this file knows one distribution from another."""

from __future__ import annotations

import pwd
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

from node import verify
from node.artifacts import DISTRIBUTION, Artifact, program
from node.commands import Runner, must, run
from node.config import Cluster
from node.delayed_plugin import DelayedPlugin
from node.errors import Refusal
from node.fetch import Fetcher
from node.files import write
from node.journal import log
from node.paths import Paths

INSTALL_LIMIT_SECONDS = 600.0
QUERY_LIMIT_SECONDS = 30.0

HOST_PACKAGES = ("amazon-efs-utils", "openssl", "gnupg2-minimal")

PROGRAMS = ("erlang", "rabbitmq", "consul")

PROFILE_REMEDY = "make the version profile in environments/*.yaml and the host image agree"


class Installer:
    """Brings the version profile onto the host. Everything is verified before anything is installed."""

    def __init__(
        self,
        paths: Paths,
        cluster: Cluster,
        fetcher: Fetcher,
        plugin: DelayedPlugin,
        runner: Runner = run,
    ) -> None:
        self._paths, self._cluster, self._fetcher, self._plugin, self._run = paths, cluster, fetcher, plugin, runner

    @property
    def _versions(self) -> Mapping[str, Any]:
        return self._cluster.versions

    def install(self) -> bool:
        """Install what is missing; returns whether there is a delayed-message plugin.

        Raises Refusal on a mismatch, NotYet if something cannot be had now.
        """
        distribution = distribution_of(self._paths.os_release.read_text())
        if distribution not in ("amzn", "debian"):
            raise Refusal(
                f"no way to install on {distribution or 'an unknown distribution'}",
                str(self._paths.os_release),
                "use an Amazon Linux 2023 image (instance.ami in environments/*.yaml)",
            )
        plugin = self._plugin.find(self._fetcher, self._run)
        if distribution == "amzn":
            self._amazon_linux()
        else:
            self._check_versions(self._debian_version)
        self._account("consul")
        if plugin:
            self._plugin.place(plugin)
        return plugin is not None

    def _check_versions(self, version_of: Callable[[str], str]) -> None:
        found = {name: version_of(name) for name in PROGRAMS}
        wrong = [
            f"{name} is {version or 'not installed'}, the profile says {self._versions[name]['version']}"
            for name, version in found.items()
            if not is_version(version, self._versions[name]["version"])
        ]
        if wrong:
            raise Refusal("; ".join(wrong), "the host", PROFILE_REMEDY)

    def _debian_version(self, name: str) -> str:
        if name == "consul":
            return self._consul_version()
        package = {"rabbitmq": "rabbitmq-server", "erlang": "erlang-base"}[name]
        result = self._run(["dpkg-query", "-W", "-f", "${Version}", package], limit=QUERY_LIMIT_SECONDS)
        return result.output.split(":", 1)[-1] if result.ok else ""

    def _rpm_version(self, name: str) -> str:
        if name == "consul":  # from a zip or from a package
            return self._consul_version()
        package = {"rabbitmq": "rabbitmq-server", "erlang": "erlang"}[name]
        result = self._run(["rpm", "-q", "--queryformat", "%{VERSION}", package], limit=QUERY_LIMIT_SECONDS)
        return result.output if result.ok else ""

    def _consul_version(self) -> str:
        return consul_version(self._run(["consul", "version"], limit=QUERY_LIMIT_SECONDS).output)

    def _amazon_linux(self) -> None:
        missing = [name for name in HOST_PACKAGES if not self._run(["rpm", "-q", name], limit=QUERY_LIMIT_SECONDS).ok]
        if missing:
            must(self._run, ["dnf", "-y", "install", *missing], limit=INSTALL_LIMIT_SECONDS)
        wanted = [self._release_file(name) for name in PROGRAMS]
        files = [
            verify.fetch(self._fetcher, artifact, self._run)
            for artifact in wanted
            if not is_version(self._rpm_version(artifact.name), artifact.version)
        ]
        packages = [str(file) for file in files if file.suffix != ".zip"]
        if packages:
            # Verified, each against its own pinned key; dnf's key ring is not involved.
            must(self._run, ["dnf", "-y", "install", "--nogpgcheck", *packages], limit=INSTALL_LIMIT_SECONDS)
        for file in files:
            if file.suffix == ".zip":
                self._unzip_consul(file)
        self._check_versions(self._rpm_version)

    def _release_file(self, name: str) -> Artifact:
        wanted = program(self._versions, name, self._cluster.architecture)
        if wanted is None:
            raise Refusal(
                f"versions.{name}.source is `{DISTRIBUTION}`, but Amazon Linux has no such package",
                "cluster.json",
                "give the release file's URL in environments/*.yaml",
            )
        return wanted

    def _unzip_consul(self, archive: Path) -> None:
        try:
            with zipfile.ZipFile(archive) as content:
                binary = content.read("consul")
        except (zipfile.BadZipFile, KeyError) as error:
            raise Refusal(
                f"{archive.name} holds no program `consul`: {error}",
                str(archive),
                "give a release file of Consul in environments/*.yaml (versions.consul.source)",
            ) from error
        write(self._paths.consul_program, binary, mode=0o755)

    def _account(self, name: str) -> None:
        try:
            pwd.getpwnam(name)
        except KeyError:
            log.info("creating the system user %s", name)
            command = ["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", name]
            must(self._run, command, limit=QUERY_LIMIT_SECONDS)


def distribution_of(os_release: str) -> str:
    """ID of /etc/os-release."""
    values = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line)
    return values.get("ID", "").strip("\"'")


def consul_version(output: str) -> str:
    """`1.8.7` of `Consul v1.8.7+dfsg1 ...`."""
    words = output.split()
    return words[1].lstrip("v") if len(words) > 1 and words[0] == "Consul" else ""


def is_version(found: str, wanted: str) -> bool:
    """Whether a package's version is the wanted release, whatever the distribution appended to it."""
    return found == wanted or (
        found.startswith(wanted) and not found[len(wanted)].isdigit() and found[len(wanted)] != "."
    )
