"""Everywhere a file can come from."""

import io
import urllib.error
from dataclasses import dataclass, field

from node.fetch import Fetcher
from node.paths import Paths
from tests.unit.node.standins import Bucket, ManualClock


@dataclass
class Upstream:
    """The internet: content by URL, and what is raised first."""

    content: dict[str, bytes] = field(default_factory=dict)
    errors: list[Exception] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def __call__(self, url: str, timeout: float) -> io.BytesIO:
        assert timeout > 0
        self.asked.append(url)
        if self.errors:
            raise self.errors.pop(0)
        if url not in self.content:
            raise urllib.error.HTTPError(url, 404, "Not Found", None, None)  # type: ignore[arg-type]
        return io.BytesIO(self.content[url])


@dataclass
class Places:
    """Everywhere a file can come from."""

    paths: Paths
    clock: ManualClock
    upstream: Upstream
    bucket: Bucket = field(default_factory=Bucket)

    @property
    def fetcher(self) -> Fetcher:
        return Fetcher(self.bucket, "artefacts", self.paths.cache, self.paths.image_artifacts, self.clock)  # type: ignore[arg-type]
