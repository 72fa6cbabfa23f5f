"""Where files come from: the nearest place that has them, and what happens when none does."""

import io
import urllib.request
from collections.abc import Callable

import pytest

from node.errors import NotYet
from node.fetch import ATTEMPTS, Missing
from tests.unit.node.places import Places
from tests.unit.node.standins import THROTTLED, client_error

FILE, URL = "artifacts/consul/1/consul.zip", "https://releases.example.com/consul.zip"


def in_the_cache(places: Places, content: bytes) -> None:
    path = places.paths.cache / FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(content)


def on_the_image(places: Places, content: bytes) -> None:
    places.paths.image_artifacts.mkdir(parents=True)
    (places.paths.image_artifacts / "consul.zip").write_bytes(content)


def in_the_bucket(places: Places, content: bytes) -> None:
    places.bucket.content[FILE] = content


def at_the_publisher(places: Places, content: bytes) -> None:
    places.upstream.content[URL] = content


NEAREST_FIRST: list[Callable[[Places, bytes], None]] = [in_the_cache, on_the_image, in_the_bucket, at_the_publisher]


@pytest.mark.parametrize("nearest", range(len(NEAREST_FIRST)))
def test_a_file_comes_from_the_nearest_place_that_has_it(nearest: int, places: Places) -> None:
    for distance, put in enumerate(NEAREST_FIRST[nearest:], nearest):
        put(places, str(distance).encode())
    assert places.fetcher.fetch(FILE, URL).path.read_bytes() == str(nearest).encode()
    assert bool(places.upstream.asked) is (nearest == 3)
    assert bool(places.bucket.asked) is (nearest >= 2)


def test_a_mirrored_file_is_fetched_once(places: Places) -> None:
    in_the_bucket(places, b"x")
    places.fetcher.fetch(FILE, URL)
    places.fetcher.fetch(FILE, URL)
    assert places.bucket.asked == [FILE]


def test_a_bucket_that_may_not_be_read_does_not_stop_the_boot(places: Places) -> None:
    places.bucket.errors = [client_error("AccessDenied")]
    at_the_publisher(places, b"x")
    assert places.fetcher.fetch(FILE, URL).origin == URL


@pytest.mark.parametrize("where", ["bucket", "upstream"])
def test_a_place_that_stumbles_is_asked_again(where: str, places: Places) -> None:
    if where == "bucket":
        in_the_bucket(places, b"x")
        places.bucket.errors = [THROTTLED, THROTTLED]
    else:
        at_the_publisher(places, b"x")
        places.upstream.errors = [OSError("reset"), TimeoutError()]
    assert places.fetcher.fetch(FILE, URL).path.read_bytes() == b"x"
    assert places.clock.passed == 6


def test_places_that_do_not_answer_are_left_for_the_next_attempt(places: Places) -> None:
    places.upstream.errors = [OSError("no route")] * ATTEMPTS
    with pytest.raises(NotYet, match=r"could not be fetched: no route.*artifacts mirror"):
        places.fetcher.fetch(FILE, URL)
    assert len(places.upstream.asked) == ATTEMPTS


def test_a_file_that_exists_nowhere_is_refused_at_once_with_all_places(places: Places) -> None:
    with pytest.raises(Missing, match=r"consul\.zip is nowhere to be had") as refused:
        places.fetcher.fetch(FILE, URL)
    for place in (str(places.paths.cache), str(places.paths.image_artifacts), f"s3://artefacts/{FILE}", URL):
        assert place in refused.value.where
    assert places.clock.passed == 0


def test_nothing_is_fetched_without_tls(places: Places) -> None:
    with pytest.raises(NotYet, match="not an https URL"):
        places.fetcher.fetch(FILE, "http://releases.example.com/consul.zip")
    assert places.upstream.asked == []


def test_a_download_that_breaks_off_leaves_no_file(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError("connection reset")

    monkeypatch.setattr(urllib.request, "urlopen", lambda url, timeout: Broken())
    with pytest.raises(NotYet, match="connection reset"):
        places.fetcher.fetch(FILE, URL)
    assert not (places.paths.cache / FILE).exists()
