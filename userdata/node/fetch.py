"""Fetching artefacts, from the nearest place that has them: a replacement at night depends on nobody else."""

from __future__ import annotations

import os
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from botocore.exceptions import ClientError

from node.aws import AwsError, error_code
from node.clock import Clock
from node.errors import NotYet, Refusal
from node.journal import log

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

ATTEMPTS = 4
TIMEOUT_SECONDS = 30.0

MISSING_REMEDY = (
    "check version and source in environments/*.yaml; if the publisher has withdrawn the file, put a copy into the "
    "artefact bucket"
)

_ABSENT = ("404", "NoSuchKey")
_NOT_THERE = (404, 410)


class Missing(Refusal):
    """Every place was asked, and none has the file."""


class Fetched(NamedTuple):
    """A file on this host, and where it came from, for messages."""

    path: Path
    origin: str


class Fetcher:
    """Fetches files into a local cache. Nothing here proves what they are: see verify.py."""

    def __init__(self, s3: S3Client, bucket: str, cache: Path, image: Path, clock: Clock) -> None:
        self._s3, self._bucket, self._cache, self._image, self._clock = s3, bucket, cache, image, clock

    def directories(self, prefix: str) -> list[Path]:
        """Where this host may have what the bucket has below `prefix`: the download cache, then what the host image
        brought along.
        """
        return [self._cache / prefix, self._image]

    def fetch(self, key: str, url: str) -> Fetched:
        """The file from the first place that has it: this host, the artefact bucket, upstream.

        Raises Missing if all answer that they do not have it, NotYet if they do not answer.
        """
        prefix, _, name = key.rpartition("/")
        for directory in self.directories(prefix):
            if (directory / name).is_file():
                return Fetched(directory / name, str(directory / name))
        target = self._cache / key
        target.parent.mkdir(parents=True, exist_ok=True)
        problem = ""
        places = (*map(str, self.directories(prefix)), f"s3://{self._bucket}/{key}", url)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._mirrored(key, target) or self._upstream(url, target)
            except (*AwsError, OSError) as error:
                if isinstance(error, urllib.error.HTTPError) and error.code in _NOT_THERE:
                    raise Missing(f"{name} is nowhere to be had", ", ".join(places), MISSING_REMEDY) from error
                problem = str(error)
                log.warning("fetch of %s, attempt %d of %d: %s", key, attempt, ATTEMPTS, problem)
            if attempt < ATTEMPTS:
                self._clock.sleep(2.0**attempt)
        raise NotYet(
            f"{key} could not be fetched: {problem}. A mirrored artefact needs no way out of the VPC: "
            "`python -m operations artifacts mirror`"
        )

    def discard(self, fetched: Fetched) -> None:
        """Forget a download that proved wrong: the next attempt fetches again. What an image brought stays."""
        if self._cache in fetched.path.parents:
            fetched.path.unlink()

    def _mirrored(self, key: str, target: Path) -> Fetched | None:
        try:
            body = self._s3.get_object(Bucket=self._bucket, Key=key)["Body"]
        except ClientError as error:
            if error_code(error) in _ABSENT:
                return None
            if error_code(error) == "AccessDenied":
                log.warning("s3://%s/%s may not be read; trying upstream: %s", self._bucket, key, error)
                return None
            raise
        return _store(body, target, f"s3://{self._bucket}/{key}")  # type: ignore[arg-type]

    def _upstream(self, url: str, target: Path) -> Fetched:
        if not url.startswith("https://"):
            raise OSError(f"not an https URL: {url}")
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as body:  # noqa: S310
            return _store(body, target, url)


def _store(body: IO[bytes], target: Path, origin: str) -> Fetched:
    partial = target.with_name(target.name + ".partial")
    with partial.open("wb") as stream:
        shutil.copyfileobj(body, stream)
    os.replace(partial, target)
    log.info("fetched %s", origin)
    return Fetched(target, origin)
