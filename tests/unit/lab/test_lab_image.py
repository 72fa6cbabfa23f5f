import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab import image
from lab.system import LabError


class Builder:
    """Stands in for debootstrap, apt and the rest: makes the tree, or fails at a step."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.fail_at = ""
        self.wait_at = ""
        self.proceed = threading.Event()
        self.reached = threading.Event()

    def __call__(self, argv: Sequence[str | Path], log: Path, what: str) -> None:
        self.steps.append(what)
        if self.wait_at and self.wait_at in what:
            self.reached.set()
            assert self.proceed.wait(10)
        if self.fail_at and self.fail_at in what:
            raise LabError(f"{what} failed")
        work = next(log.parent.glob("build-*"))
        if "Consul from" in what:
            (work / "consul_1.8.7_amd64.deb").touch()
        if "base system" in what:
            (work / "root/etc/dpkg/dpkg.cfg.d").mkdir(parents=True)
            (work / "root/usr/sbin").mkdir(parents=True)


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Builder:
    made = Builder()
    monkeypatch.setattr(image, "_logged", made)
    monkeypatch.setattr(image, "debian_mirror", lambda: "http://mirror.test/debian")
    monkeypatch.setattr(image, "require_root", lambda: None)
    monkeypatch.setattr(image, "require_programs", lambda _: None)
    return made


def test_an_image_is_built_once_and_then_taken_from_the_cache(builder: Builder, tmp_path: Path) -> None:
    first = image.ensure_image(tmp_path)
    steps = len(builder.steps)
    second = image.ensure_image(tmp_path)

    assert first == second == tmp_path / image.image_name()
    assert (first / "consul.deb").exists()
    assert steps == len(builder.steps) > 0
    assert not list(tmp_path.glob("build-*"))


def test_another_recipe_is_another_image(monkeypatch: pytest.MonkeyPatch) -> None:
    before = image.image_name()
    monkeypatch.setattr(image, "PACKAGES", (*image.PACKAGES, "one-more"))

    assert image.image_name() != before


def test_a_build_that_fails_leaves_neither_image_nor_half_of_one(builder: Builder, tmp_path: Path) -> None:
    builder.fail_at = "RabbitMQ"

    with pytest.raises(LabError, match="RabbitMQ, Consul, cloud-init failed"):
        image.ensure_image(tmp_path)

    assert not list(tmp_path.glob("image-*-*"))
    assert not list(tmp_path.glob("build-*"))

    builder.fail_at = ""
    assert image.ensure_image(tmp_path).is_dir()


def test_a_second_process_waits_for_the_first_ones_build(builder: Builder, tmp_path: Path) -> None:
    builder.wait_at = "base system"
    said: list[str] = []
    waiting = threading.Event()

    def report(line: str) -> None:
        said.append(line)
        waiting.set()

    first = threading.Thread(target=image.ensure_image, args=(tmp_path,))
    first.start()
    assert builder.reached.wait(10)
    second = threading.Thread(target=image.ensure_image, args=(tmp_path, report))
    second.start()
    assert waiting.wait(10)
    builder.proceed.set()
    first.join(10)
    second.join(10)

    assert said == ["host image: another process is building it; waiting for it"]
    assert sum("base system" in step for step in builder.steps) == 1


def test_images_of_older_recipes_and_interrupted_builds_are_removed(builder: Builder, tmp_path: Path) -> None:
    for name in ("image-trixie-0123456789ab", "build-4242"):
        (tmp_path / name / "etc").mkdir(parents=True)

    image.ensure_image(tmp_path)

    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [image.image_name()]


def test_an_older_image_which_a_host_is_based_on_is_kept(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = tmp_path / "image-trixie-0123456789ab"
    used.mkdir()
    monkeypatch.setattr(image, "_mounts", lambda: f"overlay /x overlay rw,lowerdir=/layer:{used},upperdir=/u 0 0\n")

    image.ensure_image(tmp_path)

    assert used.is_dir()


def test_the_error_of_a_failed_build_quotes_what_the_programs_complained_about(tmp_path: Path) -> None:
    log = tmp_path / "image.log"

    log.write_text("Get:1 fine\nE: Unable to locate package x\nSetting up y\ndpkg: error processing z\nmore\n")
    assert image._reason(log) == "E: Unable to locate package x\ndpkg: error processing z"

    log.write_text("something else\nwent wrong\n")
    assert image._reason(log) == "something else\nwent wrong"


def test_no_unit_of_the_cluster_starts_before_the_nodes_boot() -> None:
    disabled = "systemctl disable --quiet rabbitmq-server.service epmd.service epmd.socket consul.service"
    assert disabled in str(image.recipe())
