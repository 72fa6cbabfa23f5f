"""Mirroring: verified before anything is stored, and never stored twice."""

import hashlib
from typing import IO

import boto3
import pytest
from moto import mock_aws

from operations.artifacts import mirror
from operations.deployment import Deployment
from operations.errors import OperationError
from stacks.environment import Environment

BUCKET = "artifacts"


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    made = Deployment(Environment.load("production"))
    made._parameters = {"artifact-bucket": BUCKET}
    return made


def make_bucket(deployment: Deployment) -> None:
    region = deployment.environment.region
    boto3.client("s3", region_name=region).create_bucket(
        Bucket=BUCKET,
        CreateBucketConfiguration={"LocationConstraint": region},  # type: ignore[typeddict-item]
    )


def unpinned(deployment: Deployment) -> None:
    """Takes the SHA-256s out of the profile: no file made up here could have them."""
    versions = deployment.environment.versions
    artefacts = {name: artefact.model_copy(update={"sha256": None}) for name, artefact in versions.artefacts.items()}
    copy = versions.model_copy(update=artefacts)
    deployment.environment = deployment.environment.model_copy(update={"versions": copy})


@mock_aws
def test_every_artefact_and_signing_key_is_stored_once_with_its_digest(deployment: Deployment) -> None:
    make_bucket(deployment)
    unpinned(deployment)
    fetched: list[str] = []

    def fetch(url: str, into: IO[bytes]) -> None:
        fetched.append(url)
        into.write(url.encode())

    rows = mirror(deployment, fetch)
    assert {row["result"] for row in rows} == {"stored"}
    assert len(rows) == len(set(fetched)) >= 5
    stored = deployment.aws.s3.get_object(Bucket=BUCKET, Key=rows[0]["key"])
    assert stored["Metadata"]["sha256"] == hashlib.sha256(stored["Body"].read()).hexdigest()
    before = len(fetched)
    assert {row["result"] for row in mirror(deployment, fetch)} == {"kept"}
    assert len(fetched) == before


@mock_aws
def test_a_file_with_another_digest_is_not_stored(deployment: Deployment) -> None:
    make_bucket(deployment)

    def fetch(url: str, into: IO[bytes]) -> None:
        into.write(b"not what was released")

    with pytest.raises(OperationError, match=r"not the file that the profile names: SHA-256 [0-9a-f]{64}"):
        mirror(deployment, fetch)
    keys = [o["Key"] for o in deployment.aws.s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])]
    pinned = [d.key for d in deployment.environment.versions.downloads(deployment.environment.architecture) if d.sha256]
    assert pinned
    assert not set(keys) & set(pinned)
