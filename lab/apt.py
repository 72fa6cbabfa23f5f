"""What this machine's own apt says about where packages come from."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.system import LabError, run

ARCHIVE_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


@dataclass(frozen=True)
class Source:
    """One package source: an address, one suite, its components."""

    uri: str
    suite: str
    components: tuple[str, ...]


def _one_line(text: str) -> Iterator[Source]:
    for line in text.splitlines():
        words = re.sub(r"\[[^]]*\]", " ", line.partition("#")[0]).split()
        if len(words) >= 4 and words[0] == "deb":
            yield Source(words[1], words[2], tuple(words[3:]))


def _deb822(text: str) -> Iterator[Source]:
    for stanza in re.split(r"\n\s*\n", text):
        fields: dict[str, list[str]] = {}
        key = ""
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1].isspace():
                fields.setdefault(key, []).extend(line.split())
            elif ":" in line:
                key, _, value = line.partition(":")
                key = key.strip().lower()
                fields[key] = value.split()
        if "deb" not in fields.get("types", []) or fields.get("enabled") == ["no"]:
            continue
        for uri in fields.get("uris", []):
            for suite in fields.get("suites", []):
                yield Source(uri, suite, tuple(fields.get("components", [])))


def sources(configuration: Path = Path("/etc/apt")) -> list[Source]:
    """Every enabled source of binary packages, in both of apt's notations."""
    found: list[Source] = []
    parts = configuration / "sources.list.d"
    lists = [configuration / "sources.list", *sorted(parts.glob("*.list"))]
    for file in lists:
        if file.is_file():
            found += _one_line(file.read_text())
    for file in sorted(parts.glob("*.sources")):
        found += _deb822(file.read_text())
    return found


def debian_mirror(configuration: Path = Path("/etc/apt"), os_release: Path = Path("/etc/os-release")) -> str:
    """The mirror this machine gets Debian itself from; raises `LabError` when apt has none that can be used."""
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', os_release.read_text(), re.MULTILINE))
    suites = {release.get("VERSION_CODENAME", ""), "stable", "testing", "unstable", "sid"} - {""}
    for source in sources(configuration):
        if source.suite in suites and "main" in source.components and re.match(r"(https?|file):", source.uri):
            return source.uri.rstrip("/")
    raise LabError(
        f"{configuration} names no http, https or file source with component main of Debian "
        f"{release.get('VERSION_CODENAME', '(unknown release)')}. "
        "The hosts' image is built from the machine's own mirror: add one to /etc/apt/sources.list."
    )


def proxy_environment() -> dict[str, str]:
    """`http_proxy` and `https_proxy` as apt has them configured, for programs which know only the variables."""
    found: dict[str, str] = {}
    for scheme in ("http", "https"):
        words = run(["apt-config", "dump", "--format=%v%n", f"Acquire::{scheme}::Proxy"]).stdout.split()
        if words and words[0] != "DIRECT":
            found[f"{scheme}_proxy"] = words[0]
    return found
