"""Fetching artefacts: from the cluster's own bucket, so that a replacement at night depends on nobody else; else from
upstream.
"""

from __future__ import annotations

import os
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from node.aws import AwsError, error_code
from node.clock import Clock
from node.errors import NotYet
from node.journal import log

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

ATTEMPTS = 4
TIMEOUT_SECONDS = 30.0

_ABSENT = ("404", "NoSuchKey", "403", "AccessDenied")
"""Without permission to list, S3 answers 403 for a key that does not exist."""


class Fetcher:
    """Fetches files into a local cache."""

    def __init__(self, s3: S3Client, bucket: str, cache: Path, clock: Clock) -> None:
        self._s3, self._bucket, self._cache, self._clock = s3, bucket, cache, clock

    def fetch(self, key: str, url: str | None) -> Path | None:
        """The file under `key`, or else from `url`; None if there is none. Raises NotYet if nobody answers."""
        target = self._cache / key
        target.parent.mkdir(parents=True, exist_ok=True)
        problem = ""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                if self._mirrored(key, target):
                    return target
                if url is None:
                    return None
                return self._upstream(url, target)
            except (*AwsError, OSError) as error:
                problem = str(error)
                log.warning("fetch of %s, attempt %d of %d: %s", key, attempt, ATTEMPTS, problem)
            if attempt < ATTEMPTS:
                self._clock.sleep(2.0**attempt)
        raise NotYet(
            f"{key} could not be fetched: {problem}. A mirrored artefact needs no way out of the VPC: "
            "`python -m operations artifacts mirror`"
        )

    def _mirrored(self, key: str, target: Path) -> bool:
        partial = target.with_name(target.name + ".partial")
        try:
            body = self._s3.get_object(Bucket=self._bucket, Key=key)["Body"]
        except ClientError as error:
            if error_code(error) in _ABSENT:
                return False
            raise
        with partial.open("wb") as stream:
            shutil.copyfileobj(body, stream)
        os.replace(partial, target)
        log.info("fetched s3://%s/%s", self._bucket, key)
        return True

    def _upstream(self, url: str, target: Path) -> Path:
        if not url.startswith("https://"):
            raise OSError(f"not an https URL: {url}")
        partial = target.with_name(target.name + ".partial")
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as body, partial.open("wb") as stream:  # noqa: S310
            shutil.copyfileobj(body, stream)
        os.replace(partial, target)
        log.info("fetched %s", url)
        return target
