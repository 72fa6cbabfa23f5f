"""Certificates: accepted for AWS's real names, for nobody else, and unreadable to others."""

import ssl
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from lab.paths import LabPaths
from lab.pki import Pki, issue


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    root = tmp_path_factory.mktemp("pki")
    return issue(LabPaths("test", "eu-west-1", 4599, IPv4Network("10.9.0.0/16"), root / "state", root / "cache"))


def _handshake(ca_pem: bytes, certificate: Path, name: str) -> None:
    """A TLS handshake in memory; raises what a client would."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(certificate)
    client_context = ssl.create_default_context(cadata=ca_pem.decode())
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue


@pytest.mark.parametrize(
    "name",
    [
        "ec2.eu-west-1.amazonaws.com",
        "secretsmanager.eu-west-1.amazonaws.com",
        "sts.amazonaws.com",
        "s3.eu-west-1.amazonaws.com",
        "some-bucket.s3.eu-west-1.amazonaws.com",
        "some-bucket.s3.amazonaws.com",
        "123456789012.ddb.eu-west-1.amazonaws.com",
    ],
)
def test_aws_endpoints_have_a_certificate_that_the_hosts_accept(pki: Pki, name: str) -> None:
    _handshake(pki.ca_pem, pki.endpoints, name)


@pytest.mark.parametrize("name", ["example.com", "amazonaws.com.example.com", "a.b.eu-west-1.amazonaws.com"])
def test_other_names_are_not_covered(pki: Pki, name: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(pki.ca_pem, pki.endpoints, name)


def test_load_balancers_are_known_by_their_addresses(pki: Pki) -> None:
    for address in ("127.77.247.10", "127.77.247.19", "127.77.247.20", "localhost"):
        _handshake(pki.ca_pem, pki.load_balancers, address)
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(pki.ca_pem, pki.load_balancers, "127.77.248.10")


def test_only_root_can_read_the_keys(pki: Pki) -> None:
    for file in (pki.endpoints, pki.load_balancers):
        assert b"PRIVATE KEY" in file.read_bytes()
        assert file.stat().st_mode & 0o777 == 0o600
    assert pki.endpoints.parent.stat().st_mode & 0o777 == 0o700


def test_the_authority_s_key_is_nowhere_on_disk(pki: Pki) -> None:
    files = {file.name for file in pki.endpoints.parent.iterdir()}
    assert files == {"ca.pem", "endpoints.pem", "load-balancers.pem"}
    assert b"PRIVATE" not in (pki.endpoints.parent / "ca.pem").read_bytes()
