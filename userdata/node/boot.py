"""One boot, step by step. Every step can be repeated without harm; a restart of the host repeats them all.

What needs neither the node's identity nor its data comes before the fence, so that a successor waits there, ready,
while the old instance still drains: a planned hand-over then costs one stop and one start of the broker.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Callable

from node import credentials, rabbitmq, storage
from node.boot_context import Boot
from node.clock import wait_for
from node.consul import Consul, gossip_config, node_config
from node.definitions import HOLDING_QUEUES, VHOST
from node.errors import NotYet, Refusal
from node.fetch import Fetcher
from node.files import Account, directory, give_tree, write
from node.install import Installer
from node.journal import log
from node.lock import MaintenanceLock
from node.loopback import Unreachable
from node.names import load, save
from node.naming import NameKeeper
from node.ownership import Fence
from node.table import ConditionFailed

FENCE_LIMIT_SECONDS = 7200.0
"""As long as an old instance may drain (the terminating hook's longest heartbeat)."""

CONSUL_LIMIT_SECONDS = 60.0
BROKER_LIMIT_SECONDS = 1800.0
"""After the loss of all nodes a broker waits up to 900 s for the others before it exits and starts again."""

CLUSTER_LIMIT_SECONDS = 1800.0


def identity(boot: Boot) -> None:
    """The host takes the node's name; the instance must be where the node lives."""
    zone = boot.imds.must("placement/availability-zone")
    if zone != boot.instance.availability_zone:
        raise Refusal(
            f"{boot.instance.node} lives in {boot.instance.availability_zone}, this instance is in {zone}",
            "instance metadata",
            "check the subnet of the node's Auto Scaling group: one group, one zone",
        )
    write(boot.paths.hostname, boot.instance.node + "\n")
    write(
        boot.paths.cloud_cfg,
        "# The host name is the node's name; cloud-init must not change it back.\npreserve_hostname: true\n",
    )
    if socket.gethostname() != boot.instance.node:
        socket.sethostname(boot.instance.node)


def install(boot: Boot) -> None:
    """The programs of the version profile, verified."""
    fetcher = Fetcher(boot.aws.s3, boot.instance.artifact_bucket, boot.paths.cache, boot.clock)
    installer = Installer(boot.paths, boot.cluster, fetcher, boot.report.note, boot.run)
    installer.install()
    boot.delayed_plugin = installer.delayed_plugin()


def secrets(boot: Boot) -> None:
    """From Secrets Manager into root-only files."""
    boot.credentials = credentials.fetch(boot.aws.secretsmanager, boot.instance.secrets)
    credentials.store(boot.paths, boot.credentials)


def ownership(boot: Boot) -> None:
    """The fence: from here on this instance, and no other, is the node."""
    fence = Fence(boot.ownership, lambda: boot.aws.ec2, boot.address, boot.clock)
    wait_for(
        boot.clock,
        f"ownership of {boot.instance.node}",
        fence.attempt,
        limit=FENCE_LIMIT_SECONDS,
        interval=1,
        tick=boot.waiting,
    )


def mount(boot: Boot) -> None:
    """The node's directory, proven writable and proven to be its own."""
    storage.mount(boot.paths, boot.instance, boot.clock, boot.run)
    storage.prove_writable(boot.paths.mount, boot.run)
    storage.check_marker(boot.paths, boot.instance, boot.ownership.read().member_since, boot.clock)
    broker, server = boot.account("rabbitmq"), boot.account("consul")
    for path, owner, mode in ((boot.paths.rabbitmq_data, broker, 0o750), (boot.paths.consul_data, server, 0o700)):
        if path.exists() and give_tree(path, owner):
            log.info("%s given to user %d: numbers differ from the last instance's", path, owner.uid)
        directory(path, mode=mode, owner=owner)
    boot.paths.guard.touch()
    give_tree(boot.paths.guard, broker)


def consul(boot: Boot) -> None:
    """A Consul server with its raft data on EFS. Nobody waits for a leader: nodes start in parallel."""
    boot.paths.run.mkdir(parents=True, exist_ok=True)
    group = Account(0, boot.account("consul").gid)
    etc = boot.paths.consul_etc
    directory(etc, mode=0o750, owner=group)
    changed = [
        write(etc / "server.json", (boot.paths.bundle / "consul/server.json").read_text(), mode=0o640, owner=group),
        write(etc / "node.json", node_config(boot.instance, boot.address), mode=0o640, owner=group),
        write(etc / "gossip.json", gossip_config(boot.credentials.consul_gossip_key), mode=0o640, owner=group),
    ]
    if any(changed):
        boot.services.restart("consul.service")
    else:
        boot.services.start("consul.service")
    wait_for(
        boot.clock,
        "Consul's HTTP API",
        lambda: None if Consul().answers() else f"consul.service is {boot.services.state('consul.service')}",
        limit=CONSUL_LIMIT_SECONDS,
        interval=0.3,
        tick=boot.waiting_inside,
    )


def names(boot: Boot) -> None:
    """Short names of all nodes, and `.consul` through Consul's DNS."""
    dropin = (boot.paths.bundle / "consul/resolved.conf").read_text()
    if write(boot.paths.resolved_dropin, dropin) and boot.services.state("systemd-resolved.service") == "active":
        boot.services.restart("systemd-resolved.service")

    def remember(addresses: Mapping[str, str]) -> None:
        save(boot.paths.addresses, addresses)

    own = {boot.instance.node: boot.address}
    keeper = NameKeeper(boot.paths, boot.cluster.node_names, own, boot.table, boot.clock, remember)
    addresses = keeper.refresh(load(boot.paths.addresses))
    unknown = sorted(set(boot.cluster.node_names) - set(addresses))
    if unknown:
        log.info("no address known yet of %s; the agent adds it when it is", ", ".join(unknown))


def broker(boot: Boot) -> None:
    """RabbitMQ, configured and started; waits for its HTTP API, not for other nodes."""
    account = boot.account("rabbitmq")
    changed = rabbitmq.write_configuration(
        boot.paths,
        boot.instance,
        boot.cluster,
        boot.credentials,
        account,
        delayed_plugin=boot.delayed_plugin,
        runner=boot.run,
    )
    if changed and boot.services.state(rabbitmq.UNIT) == "active":
        boot.report.note(
            "RabbitMQ's configuration changed while it runs; it applies after `systemctl restart rabbitmq-server`"
        )
    boot.services.start(rabbitmq.UNIT)
    readiness = boot.readiness()

    def serving() -> str | None:
        reason = readiness.serving()
        if reason is None:
            return None
        restarts = boot.services.restarts(rabbitmq.UNIT)
        return f"{reason}; {rabbitmq.UNIT} is {boot.services.state(rabbitmq.UNIT)}, restarts: {restarts}"

    wait_for(boot.clock, "RabbitMQ", serving, limit=BROKER_LIMIT_SECONDS, interval=0.5, tick=boot.waiting_inside)


def finish(boot: Boot) -> None:
    """A complete cluster with whole queues; then everybody who waits for it hears of it."""
    readiness, limit = boot.readiness(), CLUSTER_LIMIT_SECONDS
    wait_for(boot.clock, "the cluster", readiness.complete, limit=limit, interval=1, tick=boot.waiting)
    administrator = boot.broker("administrator")
    try:
        for queue in HOLDING_QUEUES:
            administrator.declare_queue(VHOST, queue)
            administrator.bind(VHOST, queue, queue)
        wait_for(boot.clock, "quorum queues", readiness.queues, limit=limit, interval=1, tick=boot.waiting)
        administrator.rebalance()
    except Unreachable as error:
        raise NotYet(str(error)) from error
    storage.record_member(boot.paths, boot.clock)
    try:
        boot.ownership.record_member()
    except ConditionFailed as error:
        raise NotYet(f"another instance owns {boot.instance.node} now") from error
    if MaintenanceLock(boot.table, boot.instance.node, boot.instance_id, boot.clock).release():
        log.info("maintenance lock released")
    boot.signals.success()
    boot.launch_hook.complete()


STEPS: Sequence[tuple[str, Callable[[Boot], None]]] = (
    ("identity", identity),
    ("install", install),
    ("secrets", secrets),
    ("ownership", ownership),
    ("storage", mount),
    ("consul", consul),
    ("names", names),
    ("rabbitmq", broker),
    ("ready", finish),
)
