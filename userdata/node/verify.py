"""Proof that a file is the one the version profile means. Whatever does not match is a refusal, never a warning."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from node.artifacts import Artifact, SigningKey
from node.commands import Runner, must
from node.errors import Refusal
from node.fetch import Fetched, Fetcher

LIMIT_SECONDS = 60.0

REMEDY = (
    "do not install it; compare the file in the artefact bucket and the publisher's own checksum with the version "
    "profile in environments/*.yaml, and mirror it again with `python -m operations artifacts mirror` once they agree"
)


def sha256(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def fetch(fetcher: Fetcher, wanted: Artifact, runner: Runner) -> Path:
    """Fetch an artefact and check it by everything that the profile says about it.

    Raises Refusal on a mismatch, and if the profile says nothing that this kind of file can be checked with; Missing if
    it exists nowhere; NotYet if it cannot be had now. A download that proved wrong is thrown away.
    """
    key = fetcher.fetch(wanted.signing_key.key, wanted.signing_key.url) if wanted.signing_key else None
    fetched = fetcher.fetch(wanted.key, wanted.url)
    try:
        _check(fetched, wanted, key, runner)
    except Refusal:
        for wrong in filter(None, (fetched, key)):
            fetcher.discard(wrong)
        raise
    return fetched.path


def _check(fetched: Fetched, wanted: Artifact, key: Fetched | None, runner: Runner) -> None:
    checked = False
    if wanted.sha256:
        found = sha256(fetched.path)
        if found != wanted.sha256:
            raise Refusal(f"SHA-256 of {wanted.name} is {found}, expected {wanted.sha256}", fetched.origin, REMEDY)
        checked = True
    if wanted.signing_key and key and fetched.path.suffix == ".rpm":
        _check_signature(fetched, wanted.signing_key, key, runner)
        checked = True
    if not checked:
        raise Refusal(
            f"nothing proves that {fetched.path.name} is {wanted.name} {wanted.version}",
            fetched.origin,
            f"give versions.{wanted.name} a sha256 (or, for an RPM, a signing_key) in environments/*.yaml",
        )


def _check_signature(fetched: Fetched, key: SigningKey, key_file: Fetched, runner: Runner) -> None:
    """Check an RPM's signature against exactly one key, chosen by its full fingerprint, in a key ring of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        pinned = Path(scratch) / "pinned.asc"
        database = f"--dbpath={scratch}/rpmdb"
        pinned.write_text(_export(key, key_file, Path(scratch), runner))
        must(runner, ["rpmkeys", database, "--import", str(pinned)], limit=LIMIT_SECONDS)
        # Without the level an unsigned package passes: its digests are in order.
        check = ["rpmkeys", database, "--define", "_pkgverify_level all", "--checksig", "--verbose", str(fetched.path)]
        result = runner(check, limit=LIMIT_SECONDS)
    lines = [line for line in result.output.splitlines() if "signature" in line.lower()]
    if not result.ok or not lines or not all(line.strip().endswith(": OK") for line in lines):
        raise Refusal(
            f"{fetched.path.name} is not signed by {key.name} ({key.fingerprint}): {result.output[-300:]}",
            fetched.origin,
            REMEDY,
        )


def _export(key: SigningKey, key_file: Fetched, scratch: Path, runner: Runner) -> str:
    home = scratch / "gnupg"
    home.mkdir(mode=0o700)
    gpg = ["gpg", "--homedir", str(home), "--batch", "--no-autostart", "--quiet"]
    must(runner, [*gpg, "--import", str(key_file.path)], limit=LIMIT_SECONDS)
    listing = must(runner, [*gpg, "--with-colons", "--list-keys"], limit=LIMIT_SECONDS)
    if key.fingerprint not in primary_fingerprints(listing):
        raise Refusal(
            f"the key file of {key.name} does not hold the key {key.fingerprint}",
            key_file.origin,
            "find out whether the publisher changed its key; if so, change it under versions.signing_keys",
        )
    return must(runner, [*gpg, "--armor", "--export", key.fingerprint], limit=LIMIT_SECONDS) + "\n"


def primary_fingerprints(listing: str) -> list[str]:
    """Fingerprints of the primary keys in `gpg --with-colons` output; those of subkeys are left out."""
    found, expected = [], False
    for line in listing.splitlines():
        fields = line.split(":")
        if fields[0] in ("pub", "sub"):
            expected = fields[0] == "pub"
        elif fields[0] == "fpr" and expected:
            found.append(fields[9])
            expected = False
    return found
