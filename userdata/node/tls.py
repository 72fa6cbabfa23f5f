"""The certificate of the AMQPS listener. The load balancer ends clients' TLS and does not verify this."""

from __future__ import annotations

import tempfile
from pathlib import Path

from node.commands import Runner, must, run
from node.files import Account, directory, write

DAYS = 3650


def ensure_certificate(where: Path, node: str, group: Account, runner: Runner = run) -> None:
    """Make a self-signed certificate and key in `where` unless they are there. `group` may read the key."""
    certificate, key = where / "certificate.pem", where / "key.pem"
    directory(where, mode=0o750, owner=Account(0, group.gid))
    if certificate.exists() and key.exists():
        return
    with tempfile.TemporaryDirectory() as scratch:
        new_certificate, new_key = Path(scratch) / "certificate.pem", Path(scratch) / "key.pem"
        must(
            runner,
            [
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                str(DAYS),
                "-subj",
                f"/CN={node[:64]}",
                "-addext",
                f"subjectAltName=DNS:{node}",
                "-keyout",
                str(new_key),
                "-out",
                str(new_certificate),
            ],
            limit=30,
        )
        write(key, new_key.read_bytes(), mode=0o640, owner=Account(0, group.gid))
        write(certificate, new_certificate.read_bytes(), mode=0o644)
