"""The version profile: releases that fit together, files that are proven."""

from pathlib import Path
from typing import Any

import pytest

from stacks.environment import Environment
from stacks.versions import numbers
from tests.unit.environment_files import ENVIRONMENTS, REMOVED, Changes, assert_only, findings, load

RABBITMQ = "versions.rabbitmq.version"
ERLANG = "versions.erlang.version"
PLUGIN = "versions.delayed_plugin.version"


def wrong(sentence: str, changes: Changes, field: str, reason: str, name: str = "production") -> Any:
    return pytest.param(name, changes, field, reason, id=sentence)


REFUSED = [
    wrong("a plugin of another series", {PLUGIN: "4.1.0"}, PLUGIN, "built for one series of RabbitMQ"),
    wrong("a server without Mnesia", {RABBITMQ: "4.3.3", PLUGIN: "4.3.0"}, RABBITMQ, "4.3 on RabbitMQ has no Mnesia"),
    wrong("a server far beyond", {RABBITMQ: "5.0.0", PLUGIN: "5.0.0"}, RABBITMQ, "has no Mnesia"),
    wrong("the server whose discovery is broken", {RABBITMQ: "3.13.0", PLUGIN: "3.13.0"}, RABBITMQ, "below 3.13.1"),
    wrong("a server before 4.0", {RABBITMQ: "3.13.7", PLUGIN: "3.13.0"}, RABBITMQ, "below 4.0"),
    wrong("a server release of two numbers", {RABBITMQ: "4.2"}, RABBITMQ, "three numbers"),
    wrong("a server release with a letter", {RABBITMQ: "4.2.9-rc.1"}, RABBITMQ, "three numbers"),
    wrong("Erlang 28 for 4.2", {ERLANG: "28.0"}, ERLANG, "a running one cannot be upgraded"),
    wrong("Erlang 26 for 4.2.9, which does not start on it", {ERLANG: "26.2.5"}, ERLANG, "27.0 to 27.x"),
    wrong("Erlang 25 for 4.0", {ERLANG: "25.3.2"}, ERLANG, "26.2 to 27.x", name="local"),
    wrong("Erlang 26.1 for 4.1", {RABBITMQ: "4.1.0", PLUGIN: "4.1.0", ERLANG: "26.1"}, ERLANG, "26.2 to 27.x"),
    wrong("Erlang 27 for 4.0.3", {RABBITMQ: "4.0.3", ERLANG: "27.0"}, ERLANG, "26.2 to 26.x", name="local"),
    wrong("a release that is a word", {ERLANG: "latest"}, ERLANG, "not a release"),
    wrong("a release that YAML takes for a number", {ERLANG: 27.3}, ERLANG, "without quotes this is a number"),
    wrong(
        "a Consul nobody tried",
        {"versions.consul.version": "1.7.0"},
        "versions.consul.version",
        "1.8.7",
        name="local",
    ),
    wrong(
        "a package that Amazon Linux does not have",
        {"versions.erlang.source": "distribution", "versions.erlang.signing_key": REMOVED},
        "versions.erlang.source",
        "Amazon Linux has none",
        name="staging",
    ),
    wrong(
        "a file that nothing proves",
        {"versions.delayed_plugin.sha256": None},
        "versions.delayed_plugin.source",
        "nothing proves",
    ),
    wrong(
        "a proof of a file that is not fetched",
        {"versions.consul.sha256": "0" * 64},
        "versions.consul.sha256",
        "nothing would be checked",
        name="local",
    ),
    wrong(
        "a key nobody defined",
        {"versions.erlang.signing_key": "rabbit"},
        "versions.erlang.signing_key",
        "no key of this",
    ),
    wrong("a short SHA-256", {"versions.consul.sha256": "abc123"}, "versions.consul.sha256", "64 lower-case"),
    wrong("a SHA-256 in capitals", {"versions.consul.sha256": "A" * 64}, "versions.consul.sha256", "64 lower-case"),
    wrong(
        "a short key id",
        {"versions.signing_keys.rabbitmq.fingerprint": "6026DFCA"},
        "versions.signing_keys.rabbitmq.fingerprint",
        "can be forged",
    ),
    wrong(
        "a fingerprint with spaces",
        {"versions.signing_keys.rabbitmq.fingerprint": "0A9A F211 5F46 87BD 2980 3A20 6B73 A36E 6026 DFCA"},
        "versions.signing_keys.rabbitmq.fingerprint",
        "without spaces",
    ),
    wrong(
        "a key fetched without encryption",
        {"versions.signing_keys.rabbitmq.source": "http://example.com/key.asc"},
        "versions.signing_keys.rabbitmq.source",
        "not the https URL",
    ),
    wrong(
        "a file fetched without encryption",
        {"versions.erlang.source": "http://example.com/erlang-{version}.rpm"},
        "versions.erlang.source",
        "neither an https URL",
    ),
    wrong(
        "a placeholder nobody replaces",
        {"versions.erlang.source": "https://example.com/erlang-{version}-{machine}.rpm"},
        "versions.erlang.source",
        "nothing replaces {machine}",
    ),
    wrong(
        "the address of another release",
        {"versions.erlang.source": "https://example.com/erlang-27.3.4.1.rpm"},
        "versions.erlang.source",
        "does not hold the release 27.3.4.2",
    ),
    wrong(
        "the address of a release that begins alike",
        {"versions.delayed_plugin.source": "https://example.com/plugin-4.2.0.1.ez"},
        "versions.delayed_plugin.source",
        "does not hold the release 4.2.0",
    ),
    wrong(
        "a file for another processor",
        {"versions.consul.source": "https://example.com/{version}/consul_linux_amd64.zip"},
        "versions.consul.source",
        "this file is for amd64, and m7g.large is arm64",
    ),
    wrong(
        "a changed instance type with the old files",
        {"instance.type": "m7i.large"},
        "versions.consul.source",
        "for arm64",
    ),
]


@pytest.mark.parametrize(("name", "changes", "field", "reason"), REFUSED)
def test_a_wrong_profile_is_refused(tmp_path: Path, name: str, changes: Changes, field: str, reason: str) -> None:
    assert_only(findings(tmp_path, name, changes), field, reason)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        pytest.param("production", {RABBITMQ: "4.2.8", ERLANG: "26.2.5.3"}, id="4.2.8 still started on Erlang 26.2"),
        pytest.param("production", {RABBITMQ: "4.2.10"}, id="4.2.10 is later than 4.2.9"),
        pytest.param("local", {RABBITMQ: "4.0.3", ERLANG: "26.2"}, id="4.0.3 on Erlang 26.2"),
        pytest.param("local", {RABBITMQ: "4.1.0", PLUGIN: "4.1.0", ERLANG: "27.0"}, id="4.1 on Erlang 27"),
        pytest.param(
            "production",
            {"versions.erlang.source": "https://example.com/erlang-27.3.4.2-1.el9.aarch64.rpm"},
            id="an address that spells release and architecture out",
        ),
    ],
)
def test_releases_that_fit_are_accepted(tmp_path: Path, name: str, changes: Changes) -> None:
    load(tmp_path, name, changes)


def test_releases_compare_by_number() -> None:
    assert numbers("4.2.10") > numbers("4.2.9")


@pytest.mark.parametrize(
    ("release", "path"),
    [("4.0.5", "/"), ("4.1.0", "/"), ("4.1.1", "/api/health/checks/ready-to-serve-clients")],
)
def test_readiness_is_asked_of_servers_that_know_the_question(tmp_path: Path, release: str, path: str) -> None:
    plugin = release.rpartition(".")[0] + ".0"
    assert load(tmp_path, "local", {RABBITMQ: release, PLUGIN: plugin}).health_check_path == path


def test_an_address_is_made_of_release_and_machine() -> None:
    production = Environment.load("production", ENVIRONMENTS)
    erlang = production.versions.erlang
    assert erlang.url(production.architecture).endswith("/v27.3.4.2/erlang-27.3.4.2-1.el9.aarch64.rpm")
    assert erlang.url("x86_64").endswith(".x86_64.rpm")


def test_the_artefacts_are_everything_but_the_keys() -> None:
    versions = Environment.load("production", ENVIRONMENTS).versions
    assert list(versions.artefacts) == ["rabbitmq", "erlang", "delayed_plugin", "consul"]
    assert not any(artefact.is_distribution for artefact in versions.artefacts.values())
