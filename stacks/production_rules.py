"""What production may not do without. Each rule says nothing about any other tier."""

import ipaddress
from collections.abc import Iterator
from typing import TYPE_CHECKING

from stacks.findings import Violation
from stacks.instance_types import is_burstable

if TYPE_CHECKING:
    from stacks.environment import Environment

_WORLD_OPEN_PREFIX = 8  # a half or a quarter of the internet counts as the internet


def amqp_is_encrypted(environment: "Environment") -> Iterator[Violation]:
    """TLS on."""
    if environment.tier == "production" and not environment.access.amqp.tls:
        yield Violation(
            ("access", "amqp", "tls"),
            "production: passwords and messages would cross the network unencrypted",
            "Set tls: true and give a certificate_arn.",
        )


def amqp_is_never_plain(environment: "Environment") -> Iterator[Violation]:
    """Plain off: a way that is open is used."""
    if environment.tier == "production" and environment.access.amqp.plain:
        yield Violation(
            ("access", "amqp", "plain"),
            "production: as long as the plain listener is there, some client sends its password over it",
            "Set plain: false; clients use amqps and port 5671.",
        )


def amqp_is_not_world_open(environment: "Environment") -> Iterator[Violation]:
    """No network as wide as the internet."""
    if environment.tier != "production":
        return
    for index, cidr in enumerate(environment.access.amqp.allowed_cidrs):
        if ipaddress.IPv4Network(cidr).prefixlen < _WORLD_OPEN_PREFIX:
            yield Violation(
                ("access", "amqp", "allowed_cidrs", index),
                "production: this is the internet, or a large part of it",
                "Name the networks that the applications are in.",
            )


def management_is_encrypted(environment: "Environment") -> Iterator[Violation]:
    """HTTPS for the management UI and API."""
    if environment.tier == "production" and environment.access.management.certificate_arn is None:
        yield Violation(
            ("access", "management", "certificate_arn"),
            "production: without a certificate, administrators' passwords cross the network unencrypted",
            "Give the ARN of a certificate of this region and account.",
        )


def data_is_backed_up(environment: "Environment") -> Iterator[Violation]:
    """Backups on."""
    if environment.tier == "production" and not environment.efs.backups:
        yield Violation(
            ("efs", "backups"),
            "production: deleted or damaged data could not be brought back",
            "Set backups: true.",
        )


def stacks_are_protected(environment: "Environment") -> Iterator[Violation]:
    """Termination protection on."""
    if environment.tier == "production" and not environment.protection.termination:
        yield Violation(
            ("protection", "termination"),
            "production: one mistaken command would delete the cluster",
            "Set termination: true.",
        )


def data_is_retained(environment: "Environment") -> Iterator[Violation]:
    """Data outlives its stack."""
    if environment.tier == "production" and not environment.protection.retain_data:
        yield Violation(
            ("protection", "retain_data"),
            "production: all messages would go with the storage stack",
            "Set retain_data: true.",
        )


def somebody_hears_alarms(environment: "Environment") -> Iterator[Violation]:
    """At least one recipient."""
    if environment.tier == "production" and not environment.alarms.recipients:
        yield Violation(
            ("alarms", "recipients"),
            "production: nobody would hear of a lost node or of storage that runs full",
            "Name at least one e-mail address that is read day and night.",
        )


def delays_are_certain(environment: "Environment") -> Iterator[Violation]:
    """No node without the delayed-message plugin."""
    if environment.tier == "production" and not environment.versions.delayed_plugin.required:
        yield Violation(
            ("versions", "delayed_plugin", "required"),
            "production: a node that boots without the plugin refuses delayed exchanges, and retries built on them "
            "are lost",
            "Set required: true.",
        )


def nodes_have_steady_capacity(environment: "Environment") -> Iterator[Violation]:
    """No instance on credits."""
    if environment.tier == "production" and is_burstable(environment.instance.type):
        yield Violation(
            ("instance", "type"),
            "production: processor and network of a burstable type run on credits, and throughput falls to a "
            "fraction when they are used up",
            "Use an m, c or r family, such as m7g.large.",
        )


PRODUCTION_RULES = (
    amqp_is_encrypted,
    amqp_is_never_plain,
    amqp_is_not_world_open,
    management_is_encrypted,
    data_is_backed_up,
    stacks_are_protected,
    data_is_retained,
    somebody_hears_alarms,
    delays_are_certain,
    nodes_have_steady_capacity,
)
