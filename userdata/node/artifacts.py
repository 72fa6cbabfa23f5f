"""Which files a node is made of: pure functions from the version profile, as dumped into cluster.json.

Key layout in the artefact bucket, as `operations artifacts mirror` fills it: `artifacts/<name>/<version>/<file name>`;
a signing key is called `signing-key-<name>` and its version is its fingerprint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DISTRIBUTION = "distribution"
"""A source: the package of the host image's own distribution."""

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
    """A file to fetch: from `key` in the artefact bucket if it is there, else from `url`."""

    name: str
    version: str
    url: str
    key: str
    sha256: str | None
    signing_key: SigningKey | None


def program(versions: Mapping[str, Any], name: str, architecture: str) -> Artifact | None:
    """One program's file; None if the profile means the package of the host's own distribution."""
    entry = versions[name]
    if entry["source"] == DISTRIBUTION:
        return None
    version = entry["version"]
    url = entry["source"].replace("{version}", version).replace("{arch}", _MACHINES[architecture])
    return Artifact(
        name=name,
        version=version,
        url=url,
        key=f"artifacts/{name}/{version}/{file_name(url)}",
        sha256=entry.get("sha256"),
        signing_key=_signing_key(versions, entry["signing_key"]) if entry.get("signing_key") else None,
    )


def _signing_key(versions: Mapping[str, Any], name: str) -> SigningKey:
    entry = versions["signing_keys"][name]
    url, fingerprint = entry["source"], entry["fingerprint"]
    return SigningKey(name, fingerprint, url, f"artifacts/signing-key-{name}/{fingerprint}/{file_name(url)}")


def file_name(key: str) -> str:
    """Last part of a key or URL."""
    return key.rsplit("/", 1)[-1]
