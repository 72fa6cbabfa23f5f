"""The programs. Only this file knows one distribution from another."""

from __future__ import annotations

import pwd
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

from node import verify
from node.artifacts import DELAYED_PLUGIN, DISTRIBUTION, Artifact, program
from node.commands import Runner, must, run
from node.config import Cluster
from node.errors import Refusal
from node.fetch import Fetcher
from node.files import write
from node.journal import log
from node.paths import Paths

INSTALL_LIMIT_SECONDS = 600.0
QUERY_LIMIT_SECONDS = 30.0

HOST_PACKAGES = ("amazon-efs-utils", "openssl", "gnupg2-minimal")

PROFILE_REMEDY = "make the version profile in environments/*.yaml and the host image agree"


class Installer:
    """Brings the version profile onto the host."""

    def __init__(
        self, paths: Paths, cluster: Cluster, fetcher: Fetcher, note: Callable[[str], None], runner: Runner = run
    ) -> None:
        self._paths, self._cluster, self._fetcher, self._note, self._run = paths, cluster, fetcher, note, runner

    @property
    def _versions(self) -> Mapping[str, Any]:
        return self._cluster.versions

    def install(self) -> None:
        """Install what is missing. Raises Refusal on a mismatch, NotYet if something cannot be had now."""
        distribution = distribution_of(self._paths.os_release.read_text())
        if distribution == "amzn":
            self._amazon_linux()
        elif distribution == "debian":
            self._debian()
        else:
            raise Refusal(
                f"no way to install on {distribution or 'an unknown distribution'}",
                str(self._paths.os_release),
                "use an Amazon Linux 2023 image (instance.ami in environments/*.yaml)",
            )
        self._account("consul")

    def delayed_plugin(self) -> bool:
        """Put the delayed-message plugin in place; returns whether it is there. Raises Refusal if it must be."""
        entry = self._versions["delayed_plugin"]
        wanted = program(self._versions, "delayed_plugin", self._cluster.architecture)
        if self._plugin_in_place(wanted):
            return True
        fetched = self._fetcher.fetch(wanted.key, wanted.url)
        if fetched is None:
            if entry.get("required", True):
                raise Refusal(
                    f"the delayed-message plugin {wanted.version} is required and not to be had",
                    f"{self._paths.plugins} and the artefact bucket's {wanted.key}",
                    "put the file there, or set versions.delayed_plugin.required to false",
                )
            self._note(f"without the delayed-message plugin {wanted.version}: no file of it, and it is not required")
            return False
        if wanted.sha256 or entry["source"] != DISTRIBUTION:
            verify.artifact(fetched, wanted, None, self._run)
        self._paths.plugins.mkdir(parents=True, exist_ok=True)
        write(self._paths.plugins / f"{DELAYED_PLUGIN}-{wanted.version}.ez", fetched.read_bytes())
        return True

    def _plugin_in_place(self, wanted: Artifact) -> bool:
        places = [self._paths.plugins, *self._paths.server_libraries.glob("rabbitmq_server-*/plugins")]
        found = [path for place in places for path in place.glob(f"{DELAYED_PLUGIN}-{wanted.version}*")]
        return any(not wanted.sha256 or (path.is_file() and verify.sha256(path) == wanted.sha256) for path in found)

    def _debian(self) -> None:
        found = {
            "rabbitmq": self._package_version("rabbitmq-server"),
            "erlang": self._package_version("erlang-base"),
            "consul": consul_version(self._run(["consul", "version"], limit=QUERY_LIMIT_SECONDS).output),
        }
        wrong = [
            f"{name} is {version or 'not installed'}, the profile says {self._versions[name]['version']}"
            for name, version in found.items()
            if not is_version(version, self._versions[name]["version"])
        ]
        if wrong:
            raise Refusal("; ".join(wrong), "the host image", PROFILE_REMEDY)

    def _package_version(self, package: str) -> str:
        result = self._run(["dpkg-query", "-W", "-f", "${Version}", package], limit=QUERY_LIMIT_SECONDS)
        return result.output.split(":", 1)[-1] if result.ok else ""

    def _amazon_linux(self) -> None:
        missing = [name for name in HOST_PACKAGES if not self._run(["rpm", "-q", name], limit=QUERY_LIMIT_SECONDS).ok]
        if missing:
            must(self._run, ["dnf", "-y", "install", *missing], limit=INSTALL_LIMIT_SECONDS)
        packages = []
        for name in ("erlang", "rabbitmq", "consul"):
            wanted = program(self._versions, name, self._cluster.architecture)
            if wanted.url is None:
                raise Refusal(
                    f"versions.{name}.source is `{DISTRIBUTION}`, but Amazon Linux has no such package",
                    "cluster.json",
                    "give the release file's URL in environments/*.yaml",
                )
            if self._installed(wanted):
                continue
            fetched = self._verified(wanted)
            if fetched.suffix == ".zip":
                self._unzip_consul(fetched)
            else:
                packages.append(str(fetched))
        if packages:
            # Verified above, each against its own pinned key; dnf's key ring is not involved.
            must(self._run, ["dnf", "-y", "install", "--nogpgcheck", *packages], limit=INSTALL_LIMIT_SECONDS)

    def _installed(self, wanted: Artifact) -> bool:
        if wanted.key.endswith(".zip"):
            return shutil.which("consul") is not None and is_version(
                consul_version(self._run(["consul", "version"], limit=QUERY_LIMIT_SECONDS).output), wanted.version
            )
        package = {"rabbitmq": "rabbitmq-server"}.get(wanted.name, wanted.name)
        result = self._run(["rpm", "-q", "--queryformat", "%{VERSION}", package], limit=QUERY_LIMIT_SECONDS)
        return result.ok and is_version(result.output, wanted.version)

    def _verified(self, wanted: Artifact) -> Path:
        fetched = self._fetcher.fetch(wanted.key, wanted.url)
        key_file: Path | None = None
        if wanted.signing_key:
            key_file = self._fetcher.fetch(wanted.signing_key.key, wanted.signing_key.url)
        if fetched is None:  # not with an upstream URL
            raise Refusal(
                f"{wanted.name} is nowhere to be had", wanted.key, "mirror it: `python -m operations artifacts mirror`"
            )
        verify.artifact(fetched, wanted, key_file, self._run)
        return fetched

    def _unzip_consul(self, archive: Path) -> None:
        with zipfile.ZipFile(archive) as content:
            write(self._paths.root / "usr/bin/consul", content.read("consul"), mode=0o755)

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
