"""The boot's step `rabbitmq`: configured, started, and proven to be a part of the cluster that it belongs to."""

from __future__ import annotations

from node import rabbitmq, storage
from node.boot_context import Boot
from node.clock import wait_for
from node.consul import Consul
from node.errors import NotYet, Refusal
from node.loopback import Unreachable
from node.ready import no_member_to_join

BROKER_LIMIT_SECONDS = 1800.0
"""After the loss of all nodes a broker waits up to 900 s for the others before it exits and starts again."""

FORGET_LIMIT_SECONDS = 600.0

COMPANY_LIMIT_SECONDS = 600.0
"""A rebuilt node waits so long, at a time, for a member to join."""

BLAME_AFTER_RESTARTS = 3
"""A broker that ended so often during this boot is asked what it fails for."""

HOPELESS_AFTER_RESTARTS = 8
"""And one that ended so often, which takes a minute or two, counts as a failed deployment. It is tried on."""


def broker(boot: Boot) -> None:
    """RabbitMQ, configured and started; waits for its HTTP API, not for other nodes."""
    account = boot.account("rabbitmq")
    changed = rabbitmq.write_configuration(
        boot.paths,
        boot.instance,
        boot.cluster,
        boot.credentials,
        account,
        delayed_plugin=boot.has_plugin,
        runner=boot.run,
    )
    if changed and boot.services.state(rabbitmq.UNIT) == "active":
        boot.report.note(
            "RabbitMQ's configuration changed while it runs; it applies after `systemctl restart rabbitmq-server`"
        )
    if boot.rebuild and storage.broker_data_is_empty(boot.paths, boot.instance.node):
        _wait_for_company(boot)
        _be_forgotten(boot)
    boot.services.start(rabbitmq.UNIT)
    if not boot.was_member:
        # All that a new node can do alone is done. It becomes ready only with the others, and at a cluster's creation
        # these may be launched only after this one is in service. Health checks keep clients away meanwhile.
        boot.launch_hook.complete()
    readiness, before = boot.readiness(), boot.services.restarts(rabbitmq.UNIT)
    blamed, complaint = 0, ""

    def serving() -> str | None:
        nonlocal blamed, complaint
        reason = readiness.serving()
        if reason is None:
            return None
        restarts = boot.services.restarts(rabbitmq.UNIT) - before
        if restarts >= BLAME_AFTER_RESTARTS and restarts != blamed:
            blamed, complaint = restarts, boot.services.complaint(rabbitmq.UNIT)
        state = f"{rabbitmq.UNIT} is {boot.services.state(rabbitmq.UNIT)}, restarts: {restarts}"
        if restarts >= HOPELESS_AFTER_RESTARTS:
            boot.signal_failure(complaint or state)
        return f"{reason}; {state}" + (f", and says: {complaint}" if complaint else "")

    wait_for(boot.clock, "RabbitMQ", serving, limit=BROKER_LIMIT_SECONDS, interval=0.5, tick=boot.waiting_inside)
    if boot.rebuild:
        _demand_company(boot)
    if boot.has_plugin:
        _demand_the_plugin(boot)


def _wait_for_company(boot: Boot) -> None:
    # Alone, discovery would choose this node itself as the seed: a second cluster behind the same load balancers.
    peers = [node for node in boot.cluster.node_names if node != boot.instance.node]
    wait_for(
        boot.clock,
        "a member to join",
        lambda: no_member_to_join(peers, Consul()),
        limit=COMPANY_LIMIT_SECONDS,
        interval=1,
        tick=boot.waiting,
    )


def _be_forgotten(boot: Boot) -> None:
    # The cluster still has the member whose data is lost, and would not take another of its name.
    peers = [node for node in boot.cluster.node_names if node != boot.instance.node]

    def ask() -> str | None:
        refused = []
        for peer in peers:
            answer = rabbitmq.forget(boot.instance.node, peer, boot.run)
            if answer is None:
                return None
            refused.append(answer)
        return "; ".join(refused)

    what = "the cluster to forget this node"
    wait_for(boot.clock, what, ask, limit=FORGET_LIMIT_SECONDS, interval=5, tick=boot.waiting)


def _demand_company(boot: Boot) -> None:
    try:
        members = boot.broker("administrator").running_nodes()
    except Unreachable as error:
        raise NotYet(str(error)) from error
    if len(members) < 2:
        boot.services.stop(rabbitmq.UNIT)
        storage.distrust(boot.paths)
        raise NotYet("the rebuilt node founded a cluster of its own; it was stopped and begins again")


def _demand_the_plugin(boot: Boot) -> None:
    try:
        boot.plugin().prove(boot.broker("administrator").exchange_types())
    except Unreachable as error:
        raise NotYet(str(error)) from error
    except Refusal:
        boot.services.stop(rabbitmq.UNIT)  # clients would find their delayed exchanges broken here
        raise
