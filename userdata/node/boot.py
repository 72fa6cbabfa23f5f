"""One boot, step by step. Every step can be repeated without harm; a restart of the host repeats them all.

What needs neither the node's identity nor its data comes before the fence, so that a successor waits there, ready,
while the old instance still drains: a planned hand-over then costs one stop and one start of the broker.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Callable

from node import config, credentials, rabbitmq, storage
from node.boot_broker import broker
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
from node.names import NameKeeper, load, save
from node.ownership import Fence
from node.services import CONSUL

FENCE_LIMIT_SECONDS = 7200.0
"""As long as an old instance may drain (the terminating hook's longest heartbeat)."""

SHORT_FENCE_SECONDS = 30.0
"""A longer wait for the old instance is not held against this one: see LATE_SECONDS."""

CONSUL_LIMIT_SECONDS = 60.0

CLUSTER_LIMIT_SECONDS = 1800.0
TARGETS_LIMIT_SECONDS = 300.0


def identity(boot: Boot) -> None:
    """The host takes the node's name; bundle and instance must be where the node lives."""
    boot.cluster = config.load_cluster(boot.paths, boot.instance)
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
    paths = boot.paths
    fetcher = Fetcher(boot.aws.s3, boot.instance.artifact_bucket, paths.cache, paths.image_artifacts, boot.clock)
    boot.has_plugin = Installer(paths, boot.cluster, fetcher, boot.plugin(), boot.run).install()


def secrets(boot: Boot) -> None:
    """From Secrets Manager into root-only files."""
    boot.credentials = credentials.fetch(boot.aws.secretsmanager, boot.instance.secrets)
    credentials.store(boot.paths, boot.credentials)


def ownership(boot: Boot) -> None:
    """The fence: from here on this instance, and no other, is the node."""
    begun = boot.clock.monotonic()
    fence = Fence(boot.ownership, lambda: boot.aws.ec2, boot.instance_id, boot.address, boot.clock)
    wait_for(
        boot.clock,
        f"ownership of {boot.instance.node}",
        fence.attempt,
        limit=FENCE_LIMIT_SECONDS,
        interval=1,
        tick=boot.waiting,
    )
    if boot.clock.monotonic() - begun > SHORT_FENCE_SECONDS:
        boot.attempts.reset_time()


def mount(boot: Boot) -> None:
    """The node's directory, proven writable and proven to be its own."""
    storage.mount(boot.paths, boot.instance, boot.clock, boot.run)
    storage.prove_writable(boot.paths.mount, boot.run)
    record = boot.ownership.read()
    boot.was_member, boot.rebuild = record.member_since is not None, record.rebuild
    storage.check_marker(boot.paths, boot.instance, record, boot.clock, lambda: _stop_services(boot))
    broker, server = boot.account("rabbitmq"), boot.account("consul")
    for path, owner, mode in ((boot.paths.rabbitmq_data, broker, 0o750), (boot.paths.consul_data, server, 0o700)):
        if path.exists() and give_tree(path, owner):
            log.info("%s given to user %d: numbers differ from the last instance's", path, owner.uid)
        directory(path, mode=mode, owner=owner)
    boot.paths.guard.touch()
    give_tree(boot.paths.guard, broker)


def _stop_services(boot: Boot) -> None:
    for unit in (rabbitmq.UNIT, CONSUL):
        if not boot.services.stop(unit):
            raise NotYet(f"{unit} does not stop, and its data is to be set aside")


def consul(boot: Boot) -> None:
    """A Consul server with its raft data on EFS. Nobody waits for a leader: nodes start in parallel."""
    group = Account(0, boot.account("consul").gid)
    etc = boot.paths.consul_etc
    directory(etc, mode=0o750, owner=group)
    changed = [
        write(etc / "server.json", (boot.paths.bundle / "consul/server.json").read_text(), mode=0o640, owner=group),
        write(etc / "node.json", node_config(boot.instance, boot.address), mode=0o640, owner=group),
        write(etc / "gossip.json", gossip_config(boot.credentials.consul_gossip_key), mode=0o640, owner=group),
    ]
    if any(changed):
        boot.services.restart(CONSUL)
    else:
        boot.services.start(CONSUL)
    wait_for(
        boot.clock,
        "Consul's HTTP API",
        lambda: None if Consul().answers() else f"{CONSUL} is {boot.services.state(CONSUL)}",
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
    keeper = NameKeeper(boot.paths.hosts, boot.cluster.node_names, own, boot.table, boot.clock, remember, Consul())
    addresses = keeper.refresh(load(boot.paths.addresses))
    unknown = sorted(set(boot.cluster.node_names) - set(addresses))
    if unknown:
        log.info("no address known yet of %s; the agent adds it when it is", ", ".join(unknown))


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
    if not boot.ownership.record_member():
        raise NotYet(f"another instance owns {boot.instance.node} now")
    order = boot.ownership.read().rebuild
    if order and boot.ownership.record_rebuilt(order):
        # One that came after the directory was judged is void: it must not lie in wait for the next boot.
        log.info(
            "order of %s: %s", order, "rebuilt" if order == boot.rebuild else "the node is whole without a rebuild"
        )
    boot.launch_hook.complete()
    _wait_for_load_balancers(boot)
    # From here on the next node may leave.
    if MaintenanceLock(boot.table, boot.instance.node, boot.instance_id, boot.clock).release():
        log.info("maintenance lock released")
    boot.signals.success()


def _wait_for_load_balancers(boot: Boot) -> None:
    # Auto Scaling makes the instance a target once the launch hook is complete, and the first checks take their time.
    try:
        wait_for(
            boot.clock,
            "the load balancers' health checks",
            boot.targets.missing,
            limit=TARGETS_LIMIT_SECONDS,
            interval=1,
            tick=boot.waiting,
        )
    except NotYet as error:  # the cluster is whole, and must not be held up by what stands before it
        boot.report.note(str(error))


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
