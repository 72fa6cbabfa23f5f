"""The delayed-message plugin: where its file is looked for, and what happens without it."""

import json
from pathlib import Path
from typing import Any

import pytest

from node import artifacts
from node.boot_context import Boot
from node.config import load_cluster
from node.errors import Refusal
from node.fetch import ATTEMPTS
from tests.unit.node.amazon_linux import AmazonLinux, sha256
from tests.unit.node.world import World, install_on


def without_plugin(amazon: AmazonLinux) -> None:
    found = artifacts.program(amazon.versions, "delayed_plugin", amazon.document["architecture"])
    assert found
    del amazon.places.upstream.content[found.url]


def test_a_required_plugin_that_exists_nowhere_stops_the_boot_with_a_remedy(amazon: AmazonLinux) -> None:
    without_plugin(amazon)
    with pytest.raises(Refusal, match="nowhere to be had") as refused:
        amazon.install()
    assert "environments/*.yaml" in refused.value.remedy
    assert amazon.packages == []


def test_an_optional_plugin_that_exists_nowhere_is_a_note(amazon: AmazonLinux) -> None:
    without_plugin(amazon)
    amazon.versions["delayed_plugin"]["required"] = False
    assert not amazon.install()
    [note] = amazon.notes
    assert "which is not required" in note


def test_an_optional_plugin_that_cannot_be_had_now_is_a_note(amazon: AmazonLinux) -> None:
    amazon.versions["delayed_plugin"]["required"] = False
    amazon.places.upstream.errors = [OSError("no route")] * ATTEMPTS
    assert not amazon.install()
    assert "no route" in amazon.notes[0]


def test_an_optional_plugin_with_a_wrong_checksum_is_refused_all_the_same(amazon: AmazonLinux) -> None:
    amazon.versions["delayed_plugin"]["required"] = False
    amazon.serve("delayed_plugin", b"tampered with")
    with pytest.raises(Refusal, match="SHA-256 of delayed_plugin"):
        amazon.install()


@pytest.mark.parametrize("place", ["plugins", "image_artifacts"])
def test_the_plugins_file_is_found_on_the_host(place: str, world: World, debian: Boot) -> None:
    directory: Path = getattr(world.paths, place)
    directory.mkdir(parents=True)
    (directory / "rabbitmq_delayed_message_exchange-4.0.2.ez").write_bytes(b"plugin")
    assert install_on(debian)
    assert (world.paths.plugins / "rabbitmq_delayed_message_exchange-4.0.2.ez").read_bytes() == b"plugin"


@pytest.mark.parametrize("required", [True, False])
def test_a_plugin_that_the_image_lacks(required: bool, world: World, debian: Boot) -> None:
    document: dict[str, Any] = json.loads(world.paths.cluster_file.read_text())
    document["versions"]["delayed_plugin"]["required"] = required
    world.paths.cluster_file.write_text(json.dumps(document))
    debian.cluster = load_cluster(world.paths, debian.instance)
    if required:
        with pytest.raises(Refusal, match="there is no rabbitmq_delayed_message_exchange") as refused:
            install_on(debian)
        assert "put the file into one of these directories" in refused.value.remedy
        assert str(world.paths.image_artifacts) in refused.value.where
    else:
        assert not install_on(debian)


def test_the_images_plugin_is_checked_where_the_profile_can(world: World, debian: Boot) -> None:
    document: dict[str, Any] = json.loads(world.paths.cluster_file.read_text())
    document["versions"]["delayed_plugin"]["sha256"] = sha256(b"plugin")
    world.paths.cluster_file.write_text(json.dumps(document))
    debian.cluster = load_cluster(world.paths, debian.instance)
    world.paths.image_artifacts.mkdir(parents=True)
    file = world.paths.image_artifacts / "rabbitmq_delayed_message_exchange-4.0.7.ez"
    file.write_bytes(b"another")
    with pytest.raises(Refusal, match="SHA-256 of delayed_plugin"):
        install_on(debian)
    file.write_bytes(b"plugin")
    assert install_on(debian)
