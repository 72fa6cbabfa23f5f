"""The version profile: which RabbitMQ, Erlang, delayed-message plugin and Consul run together, each file proven."""

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field

from stacks.fields import Section, Shape, refuse
from stacks.instance_types import Architecture

DISTRIBUTION = "distribution"
"""A source: the package of the host image's own distribution. Only the emulated AWS's hosts have one."""

Version = Annotated[
    str,
    Shape(
        r"\d+\.\d+(\.\d+){0,2}",
        "not a release: two to four numbers with dots between them are expected",
        "Write it as in the release's name, such as 4.2.9, in quotes if it has one dot only.",
    ),
]
ServerVersion = Annotated[
    str, Shape(r"\d+\.\d+\.\d+", "not a release of three numbers", "Write it as in the release's name, such as 4.2.9.")
]
Sha256 = Annotated[
    str,
    Shape(r"[0-9a-f]{64}", "a SHA-256 has 64 lower-case hexadecimal digits", "Copy it from `sha256sum FILE`."),
]
Fingerprint = Annotated[
    str,
    Shape(
        r"[0-9A-F]{40}",
        "a fingerprint has 40 upper-case hexadecimal digits without spaces; shorter key ids can be forged",
        "Copy it from `gpg --show-keys FILE`.",
    ),
]
KeyUrl = Annotated[
    str,
    Shape(
        r"https://[^\s/{}]+/[^\s{}]+",
        "not the https URL of a key file",
        "Write the publisher's URL of the armoured key.",
    ),
]


def _source(value: str) -> str:
    if value == DISTRIBUTION:
        return value
    if not re.fullmatch(r"https://[^\s/]+/\S+", value):
        raise refuse(
            f"neither an https URL nor `{DISTRIBUTION}`",
            "Write the release file's URL; {version} and {arch} may stand in it.",
        )
    unknown = set(re.findall(r"\{[^}]*\}?|\}", value)) - {"{version}", "{arch}"}
    if unknown:
        raise refuse(
            f"nothing replaces {' or '.join(sorted(unknown))} in an address",
            "Use {version} and {arch} only; {arch} becomes what `uname -m` prints, x86_64 or aarch64.",
        )
    return value


Source = Annotated[
    str, AfterValidator(_source), Field(json_schema_extra={"pattern": rf"^({DISTRIBUTION}|https://[^\s/]+/\S+)$"})
]


def numbers(version: str) -> tuple[int, ...]:
    """`version` in a form that compares as releases do: "4.10.0" after "4.9.1"."""
    return tuple(int(part) for part in version.split("."))


def series(version: str) -> tuple[int, ...]:
    """The release series, such as (4, 2): what a plugin must share with its server."""
    return numbers(version)[:2]


class Artefact(Section):
    """One program: which release, where it comes from, and what proves that the file is the right one."""

    version: Version = Field(
        description="Release, two to four numbers. Pinned, because three nodes that boot months apart must run the "
        "same."
    )
    source: Source = Field(
        description="https URL of the release file, in which {version} and {arch} (x86_64 or aarch64, as `uname "
        "-m` prints it) are replaced. Or `distribution`: the host image's own package, which only an emulated AWS "
        "has."
    )
    sha256: Sha256 | None = Field(
        default=None,
        description="SHA-256 of the file, 64 lower-case hexadecimal digits. Without it a signing key must vouch "
        "for the file.",
    )
    signing_key: str | None = Field(
        default=None,
        description="Name of the key under `signing_keys` that signed the package. Without it a SHA-256 must be given.",
    )

    @property
    def is_distribution(self) -> bool:
        """Whether this is the host image's own package."""
        return self.source == DISTRIBUTION

    def url(self, architecture: Architecture) -> str:
        """The file's address for `architecture`. Meaningless for the host image's own package."""
        machine = "aarch64" if architecture == "arm64" else architecture
        return self.source.replace("{version}", self.version).replace("{arch}", machine)


class Server(Artefact):
    """RabbitMQ itself."""

    version: ServerVersion = Field(
        description="RabbitMQ release, three numbers, 4.0.0 to the last 4.2: older ones lack settings that are "
        "used here, newer ones cannot load the delayed-message plugin."
    )


class DelayedPlugin(Artefact):
    """The delayed-message exchange plugin."""

    required: bool = Field(
        default=True,
        description="Whether a node refuses to boot without the plugin's file. False only where no application "
        "needs delays.",
    )


class SigningKey(Section):
    """A publisher's key. What is trusted is the fingerprint; the address only says where the key can be fetched."""

    source: KeyUrl = Field(description="https URL of the armoured public key.")
    fingerprint: Fingerprint = Field(
        description="Full fingerprint, 40 upper-case hexadecimal digits. A key with any other is not used."
    )


class Versions(Section):
    """What is installed on every node, release by release."""

    rabbitmq: Server = Field(description="RabbitMQ server.")
    erlang: Artefact = Field(description="Erlang/OTP, inside the range which that server supports.")
    delayed_plugin: DelayedPlugin = Field(
        description="Delayed-message exchange plugin, of the server's own series: it is compiled against it."
    )
    consul: Artefact = Field(description="Consul, 1.8.7 (the oldest tried) or later: discovery and node names.")
    signing_keys: dict[str, SigningKey] = Field(
        default_factory=dict, description="Publishers' keys, by the name that artefacts refer to."
    )

    @property
    def artefacts(self) -> dict[str, Artefact]:
        """Every artefact, by its key in the file."""
        names = [name for name in type(self).model_fields if name != "signing_keys"]
        return {name: getattr(self, name) for name in names if name in self.__dict__}

    def downloads(self, architecture: Architecture) -> list["Download"]:
        """Every file that a node of `architecture` fetches: the artefacts, then the keys that some of them need."""
        artefacts = {name: artefact for name, artefact in self.artefacts.items() if not artefact.is_distribution}
        files = [
            Download.of(name, artefact.version, artefact.url(architecture), artefact.sha256, artefact.signing_key)
            for name, artefact in artefacts.items()
        ]
        for name in sorted({artefact.signing_key for artefact in artefacts.values() if artefact.signing_key}):
            key = self.signing_keys[name]
            files.append(Download.of(f"signing-key-{name}", key.fingerprint, key.source, None, None))
        return files


@dataclass(frozen=True)
class Download:
    """One file of the profile: where it comes from, and its key in the cluster's artefact bucket."""

    name: str
    url: str
    key: str
    sha256: str | None
    signing_key: str | None

    @classmethod
    def of(cls, name: str, version: str, url: str, sha256: str | None, signing_key: str | None) -> "Download":
        """The key holds name, version and file name: a key never changes its content."""
        return cls(name, url, f"artifacts/{name}/{version}/{url.rsplit('/', 1)[-1]}", sha256, signing_key)
