"""Which files a node is made of: pure functions from the version profile. Both the install and the mirror use them.

Key layout in the artefact bucket: `artifacts/<name>/<version>/<file name>`; a signing key is called
`signing-key-<name>` and its version is its fingerprint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DISTRIBUTION = "distribution"
"""A source: the package of the host image's own distribution."""

PROGRAMS = ("erlang", "rabbitmq", "delayed_plugin", "consul")

DELAYED_PLUGIN = "rabbitmq_delayed_message_exchange"

_MACHINES = {"x86_64": "x86_64", "arm64": "aarch64"}
"""The profile's architecture to what `uname -m` prints, which is what file names hold."""


@dataclass(frozen=True)
class SigningKey:
    """A publisher's key: the fingerprint is trusted, the file is only fetched."""

    name: str
    fingerprint: str
    url: str
    key: str


@dataclass(frozen=True)
class Artifact:
    """A file to fetch: from `key` in the artefact bucket if it is there, else from `url` (None: no upstream)."""

    name: str
    version: str
    url: str | None
    key: str
    sha256: str | None
    signing_key: SigningKey | None

    @property
    def file_name(self) -> str:
        """Last part of the key."""
        return self.key.rsplit("/", 1)[1]


def artifacts(versions: Mapping[str, Any], architecture: str) -> list[Artifact]:
    """The files of a version profile, as dumped into cluster.json. Packages of the host's distribution are left out."""
    found = [program(versions, name, architecture) for name in PROGRAMS]
    return [artifact for artifact in found if artifact.url is not None]


def program(versions: Mapping[str, Any], name: str, architecture: str) -> Artifact:
    """One program's file."""
    entry = versions[name]
    version, source = entry["version"], entry["source"]
    url = None
    if source != DISTRIBUTION:
        url = source.replace("{version}", version).replace("{arch}", _MACHINES[architecture])
    file_name = _file_name(url) if url else f"{DELAYED_PLUGIN if name == 'delayed_plugin' else name}-{version}.ez"
    return Artifact(
        name=name,
        version=version,
        url=url,
        key=f"artifacts/{name}/{version}/{file_name}",
        sha256=entry.get("sha256"),
        signing_key=signing_key(versions, entry["signing_key"]) if entry.get("signing_key") else None,
    )


def signing_key(versions: Mapping[str, Any], name: str) -> SigningKey:
    """A key of the profile, by its name."""
    entry = versions["signing_keys"][name]
    url, fingerprint = entry["source"], entry["fingerprint"]
    return SigningKey(name, fingerprint, url, f"artifacts/signing-key-{name}/{fingerprint}/{_file_name(url)}")


def signing_keys(versions: Mapping[str, Any]) -> list[SigningKey]:
    """Every key that an artefact of the profile is checked with."""
    names = {versions[name].get("signing_key") for name in PROGRAMS if versions[name]["source"] != DISTRIBUTION}
    return [signing_key(versions, name) for name in sorted(name for name in names if name)]


def _file_name(url: str) -> str:
    return url.rsplit("/", 1)[-1]
