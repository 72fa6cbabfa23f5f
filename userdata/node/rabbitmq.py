"""RabbitMQ's configuration on this host: the bundle's static files, and beside them what differs."""

from __future__ import annotations

import re

from node import definitions, tls
from node.commands import Runner, run
from node.config import Cluster, Instance
from node.credentials import Credentials
from node.delayed_plugin import NAME as DELAYED_PLUGIN
from node.files import ROOT, Account, directory, write
from node.paths import Paths

UNIT = "rabbitmq-server.service"

STATIC_FILES = ("rabbitmq.conf", "advanced.config", "rabbitmq-env.conf")

FORGET_COMMAND_SECONDS = 120.0
NOT_A_MEMBER = "not_a_cluster_node"

_HEADER = "# Generated at boot by rabbitmq-node; see rabbitmq.conf for everything that does not differ between nodes.\n"

_TLS = """\
listeners.ssl.default = 5671
ssl_options.certfile = {directory}/certificate.pem
ssl_options.keyfile = {directory}/key.pem
ssl_options.verify = verify_none
ssl_options.fail_if_no_peer_cert = false
ssl_options.versions.1 = tlsv1.3
ssl_options.versions.2 = tlsv1.2
"""


def node_config(cluster: Cluster, tls_directory: str) -> str:
    """`/etc/rabbitmq/conf.d/90-node.conf`."""
    listeners = "listeners.tcp.default = 5672\n" if cluster.amqp.plain else "listeners.tcp = none\n"
    if cluster.amqp.tls:
        listeners += _TLS.format(directory=tls_directory)
    return f"{_HEADER}cluster_name = {cluster.name}\n{listeners}"


def enabled_plugins(static: str, *, delayed: bool) -> str:
    """The bundle's enabled_plugins, without the delayed-message plugin where it could not be had.

    It stands there before the first start: enabled later, on Khepri, it needs another restart.
    """
    if delayed:
        return static
    return re.sub(rf",?\s*{DELAYED_PLUGIN}", "", static).replace("[,", "[")


def write_configuration(
    paths: Paths,
    instance: Instance,
    cluster: Cluster,
    credentials: Credentials,
    account: Account,
    *,
    delayed_plugin: bool,
    runner: Runner = run,
) -> bool:
    """Write all files. Returns whether one of them changed."""
    group = Account(0, account.gid)
    etc, source = paths.rabbitmq_etc, paths.bundle / "rabbitmq"
    directory(etc, owner=group)
    directory(etc / "conf.d", owner=group)
    if cluster.amqp.tls:
        tls.ensure_certificate(etc / "tls", instance.node, account, runner)
    plugins = enabled_plugins((source / "enabled_plugins").read_text(), delayed=delayed_plugin)
    changed = [write(etc / name, (source / name).read_text(), owner=ROOT) for name in STATIC_FILES]
    changed += [
        write(etc / "enabled_plugins", plugins),
        write(etc / "conf.d/90-node.conf", node_config(cluster, str(etc / "tls"))),
        write(etc / "definitions.json", definitions.render(credentials.users, cluster.queues), mode=0o640, owner=group),
        write(paths.rabbitmq_home / ".erlang.cookie", credentials.erlang_cookie, mode=0o400, owner=account),
    ]
    return any(changed)


def forget(node: str, peer: str, runner: Runner = run) -> str | None:
    """Have `peer`, which runs, forget `node`, which does not; its queues' members go with it.

    Returns None once `node` is no member, else what RabbitMQ says.
    """
    command = ["rabbitmqctl", "--node", f"rabbit@{peer}", "forget_cluster_node", f"rabbit@{node}"]
    result = runner(command, limit=FORGET_COMMAND_SECONDS)
    if result.ok or NOT_A_MEMBER in result.output:
        return None
    return f"{peer}: {result.output[-200:] or 'no answer'}"
