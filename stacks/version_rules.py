"""What must hold between the releases of a version profile, and between a profile and where it is deployed."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from stacks.findings import Violation
from stacks.versions import DISTRIBUTION, numbers, series

if TYPE_CHECKING:
    from stacks.environment import Environment

_DISCOVERY_FLOOR = (3, 13, 1)  # rabbitmq-server 10760 and 11045: with 3.13.0, discovery leaves nodes standalone
_SERVER_FLOOR = (4, 0, 0)
_FIRST_WITHOUT_MNESIA = (4, 3)  # the delayed-message plugin keeps its messages in Mnesia
_CONSUL_FLOOR = (1, 8, 7)  # the oldest release that this project was run with

# First server release of each span: least and last Erlang/OTP series. From https://www.rabbitmq.com/docs/which-erlang
# and rabbitmq-website pull request 2576: 4.2.9 was the first 4.2 that does not start on Erlang 26. Erlang 28 is left
# out although 4.2 accepts it for new clusters: a cluster on Khepri cannot be brought from 27 to 28 node by node.
_ERLANG: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...] = (
    ((4, 2, 9), (27, 0), (27,)),
    ((4, 0, 4), (26, 2), (27,)),
    ((4, 0, 0), (26, 2), (26,)),
)

_FOREIGN_MACHINE = {"arm64": r"x86[_-]64|amd64", "x86_64": r"aarch64|arm64"}


def server_is_recent(environment: "Environment") -> Iterator[Violation]:
    """RabbitMQ is not below what discovery and the settings need."""
    version = environment.versions.rabbitmq.version
    at = ("versions", "rabbitmq", "version")
    if numbers(version) < _DISCOVERY_FLOOR:
        yield Violation(
            at,
            "below 3.13.1, discovery by Consul can leave a booting node standalone, as a cluster of its own",
            "Use a release of 4.2.",
        )
    elif numbers(version) < _SERVER_FLOOR:
        yield Violation(
            at,
            "below 4.0, quorum queues have no delivery limit by default and other settings used here do not exist",
            "Use a release of 4.2.",
        )


def server_has_mnesia(environment: "Environment") -> Iterator[Violation]:
    """The delayed-message plugin can be loaded by the server at all."""
    if series(environment.versions.rabbitmq.version) >= _FIRST_WITHOUT_MNESIA:
        yield Violation(
            ("versions", "rabbitmq", "version"),
            "from 4.3 on RabbitMQ has no Mnesia, in which the delayed-message plugin keeps its messages: it does "
            "not load",
            "Stay on the last release of 4.2 until no application needs delayed exchanges.",
        )


def plugin_is_of_the_servers_series(environment: "Environment") -> Iterator[Violation]:
    """The plugin was built for this server."""
    server, plugin = environment.versions.rabbitmq.version, environment.versions.delayed_plugin.version
    if series(plugin) != series(server):
        wanted = ".".join(str(number) for number in series(server))
        yield Violation(
            ("versions", "delayed_plugin", "version"),
            f"a plugin is built for one series of RabbitMQ, and the server here is {server}",
            f"Use a plugin release of {wanted}, or a server of the plugin's series.",
        )


def erlang_fits_the_server(environment: "Environment") -> Iterator[Violation]:
    """Erlang is in the range that this server release supports."""
    server, erlang = environment.versions.rabbitmq.version, numbers(environment.versions.erlang.version)
    if not _SERVER_FLOOR <= numbers(server) < _FIRST_WITHOUT_MNESIA:
        return  # refused already, and what it would need is not in the table
    least, last = next((least, last) for first, least, last in _ERLANG if numbers(server) >= first)
    if erlang < least or erlang[:1] > last:
        span = f"{least[0]}.{least[1]} to {last[0]}.x"
        yield Violation(
            ("versions", "erlang", "version"),
            f"RabbitMQ {server} runs on Erlang {span}"
            + ("; 28 suits new clusters only, a running one cannot be upgraded to it" if erlang[:1] == (28,) else ""),
            f"Use a release from {span}.",
        )


def consul_is_recent(environment: "Environment") -> Iterator[Violation]:
    """Consul is not older than what was tried."""
    if numbers(environment.versions.consul.version) < _CONSUL_FLOOR:
        yield Violation(
            ("versions", "consul", "version"),
            "older than 1.8.7, the oldest Consul this project was run with",
            "Use a later release.",
        )


def distribution_is_emulated_only(environment: "Environment") -> Iterator[Violation]:
    """Amazon Linux has none of these packages; the emulated AWS's hosts have."""
    for name, artefact in environment.versions.artefacts.items():
        if artefact.source == DISTRIBUTION and not environment.is_emulated:
            yield Violation(
                ("versions", name, "source"),
                "only the hosts of an emulated AWS bring this package along; Amazon Linux has none",
                "Write the https URL of the release file.",
            )


def every_file_is_proven(environment: "Environment") -> Iterator[Violation]:
    """A SHA-256 or a signature stands for every file that is fetched."""
    for name, artefact in environment.versions.artefacts.items():
        at = ("versions", name)
        if artefact.source != DISTRIBUTION and artefact.sha256 is None and artefact.signing_key is None:
            yield Violation(
                (*at, "source"),
                "nothing proves that the fetched file is the right one",
                "Give its sha256, or the signing_key of a signed package.",
            )
        if artefact.source == DISTRIBUTION and (artefact.sha256 or artefact.signing_key):
            given = "sha256" if artefact.sha256 else "signing_key"
            yield Violation(
                (*at, given),
                "the host image's own package is not fetched, so nothing would be checked",
                f"Remove {given}.",
            )


def signing_keys_exist(environment: "Environment") -> Iterator[Violation]:
    """A key that an artefact names is defined."""
    keys = environment.versions.signing_keys
    for name, artefact in environment.versions.artefacts.items():
        if artefact.signing_key is not None and artefact.signing_key not in keys:
            known = f"is one of {', '.join(keys)}" if keys else "does not exist yet"
            yield Violation(
                ("versions", name, "signing_key"),
                "no key of this name is defined",
                f"Add it under versions.signing_keys; what is there {known}.",
            )


def address_has_the_release(environment: "Environment") -> Iterator[Violation]:
    """A release cannot be changed without its file's address."""
    for name, artefact in environment.versions.artefacts.items():
        if artefact.source not in (DISTRIBUTION,) and not re.search(
            rf"\{{version\}}|(?<![\d.]){re.escape(artefact.version)}(?!\.?\d)", artefact.source
        ):
            yield Violation(
                ("versions", name, "source"),
                f"the address does not hold the release {artefact.version}, so another one would be installed",
                "Write {version} where the release stands in the address.",
            )


def address_has_the_architecture(environment: "Environment") -> Iterator[Violation]:
    """No file is for another processor than the instances'."""
    for name, artefact in environment.versions.artefacts.items():
        foreign = re.search(_FOREIGN_MACHINE[environment.architecture], artefact.source)
        if foreign:
            yield Violation(
                ("versions", name, "source"),
                f"this file is for {foreign[0]}, and {environment.instance.type} is {environment.architecture}",
                "Choose the file of the instances' architecture (and its sha256), or write {arch} in its place.",
            )


VERSION_RULES = (
    server_is_recent,
    server_has_mnesia,
    plugin_is_of_the_servers_series,
    erlang_fits_the_server,
    consul_is_recent,
    distribution_is_emulated_only,
    every_file_is_proven,
    signing_keys_exist,
    address_has_the_release,
    address_has_the_architecture,
)
