"""The lab's certificate authority: hosts trust it, so AWS's real endpoint names work on them with TLS.

A new one with each lab. Its private key stays in memory and ends with the process; what is on disk are two server
certificates with their keys, for the proxy alone.
"""

from dataclasses import dataclass
from pathlib import Path

import trustme

from lab.paths import LabPaths


@dataclass(frozen=True)
class Pki:
    """Certificates of one lab. The files hold chain and key, as HAProxy wants them, and only root can read them."""

    ca_pem: bytes
    """The authority's certificate, for the hosts' trust store."""
    endpoints: Path
    """Certificate of AWS's endpoints."""
    load_balancers: Path
    """Certificate of the load balancers' TLS and HTTPS listeners."""


def endpoint_names(region: str) -> list[str]:
    """Host names of AWS's APIs in a region. A wildcard covers one label only."""
    return [
        "*.amazonaws.com",
        f"*.{region}.amazonaws.com",
        "*.s3.amazonaws.com",
        f"*.s3.{region}.amazonaws.com",
        f"*.ddb.{region}.amazonaws.com",
        f"*.elb.{region}.amazonaws.com",
    ]


def balancer_addresses(paths: LabPaths) -> list[str]:
    """Every address a load balancer of this lab can have."""
    return [address(number) for address in (paths.nlb_address, paths.alb_address) for number in range(10)]


def issue(paths: LabPaths) -> Pki:
    """A new authority with its certificates, in the lab's directory."""
    authority = trustme.CA(organization_name=f"RabbitMQ on EC2, lab {paths.name}")
    directory = paths.state / "pki"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    endpoints, load_balancers = directory / "endpoints.pem", directory / "load-balancers.pem"
    _write(endpoints, authority.issue_cert(*endpoint_names(paths.region)))
    _write(load_balancers, authority.issue_cert("localhost", *balancer_addresses(paths)))
    (directory / "ca.pem").write_bytes(authority.cert_pem.bytes())
    return Pki(authority.cert_pem.bytes(), endpoints, load_balancers)


def _write(file: Path, certificate: trustme.LeafCert) -> None:
    file.touch(mode=0o600)
    file.write_bytes(
        b"".join(blob.bytes() for blob in certificate.cert_chain_pems) + certificate.private_key_pem.bytes()
    )
