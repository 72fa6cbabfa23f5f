"""The version profile's artefacts in the cluster's own bucket: a replacement at 3 a.m. depends on no third party."""

import hashlib
import tempfile
from collections.abc import Callable
from typing import IO, Any

import requests
from botocore.exceptions import ClientError

from operations.deployment import Deployment
from operations.errors import ExitCode, OperationError
from stacks.versions import Download

_CHUNK = 1 << 20
_TIMEOUT_SECONDS = 60

Fetch = Callable[[str, IO[bytes]], None]


def fetch(url: str, into: IO[bytes]) -> None:
    """Writes what `url` answers into a file. Raises OperationError when it does not answer with success."""
    try:
        with requests.get(url, stream=True, timeout=_TIMEOUT_SECONDS) as response:
            response.raise_for_status()
            for chunk in response.iter_content(_CHUNK):
                into.write(chunk)
    except requests.RequestException as error:
        raise OperationError(
            f"{url} cannot be fetched: {error}", "Check the address in the version profile, and the network."
        ) from error


def mirror(deployment: Deployment, fetch: Fetch = fetch) -> list[dict[str, Any]]:
    """Copies every artefact and signing key that the bucket lacks; one row a file: key, result, detail.

    A file whose SHA-256 the profile names is compared before the upload: on a difference nothing of it is stored
    and OperationError is raised. Signatures are checked by each node before it installs anything, whatever the source.
    A key of the bucket holds one version for ever, so a second run stores nothing.
    """
    bucket = deployment.parameter("artifact-bucket")
    downloads = deployment.environment.versions.downloads(deployment.environment.architecture)
    if not downloads:
        raise OperationError(
            f"{deployment.environment.name}: nothing to mirror: every artefact is the host image's own package",
            "Mirror an environment whose version profile names URLs.",
            ExitCode.BAD_INPUT,
        )
    return [_mirror_one(deployment, bucket, download, fetch) for download in downloads]


def _mirror_one(deployment: Deployment, bucket: str, download: Download, fetch: Fetch) -> dict[str, Any]:
    s3 = deployment.aws.s3
    try:
        stored = s3.head_object(Bucket=bucket, Key=download.key)
        return {
            "key": download.key,
            "result": "kept",
            "detail": f"{stored['ContentLength']} bytes, since {stored['LastModified']:%Y-%m-%d}",
        }
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("404", "NoSuchKey", "NotFound"):
            raise OperationError(
                f"s3://{bucket}/{download.key} cannot be read: {error}", "Check the AWS credentials in use."
            ) from error
    with tempfile.TemporaryFile() as file:
        fetch(download.url, file)
        digest = _sha256(file)
        if download.sha256 and digest != download.sha256:
            raise OperationError(
                f"{download.url} is not the file that the profile names: SHA-256 {digest},"
                f" expected {download.sha256}; nothing was stored",
                "Find out which is right before anything else: a changed release file can be an attack.",
            )
        size = file.tell()
        file.seek(0)
        s3.put_object(Bucket=bucket, Key=download.key, Body=file, Metadata={"sha256": digest, "source": download.url})
    return {"key": download.key, "result": "stored", "detail": f"{size} bytes, SHA-256 {digest}"}


def _sha256(file: IO[bytes]) -> str:
    file.seek(0)
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()
