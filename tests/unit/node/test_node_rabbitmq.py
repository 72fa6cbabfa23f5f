"""RabbitMQ: its configuration, users and policies, and when it counts as ready."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from node import definitions, rabbitmq
from node.broker import Broker, QuorumQueue
from node.commands import Result
from node.config import Amqp, Cluster, Queues
from node.credentials import Credentials, Login
from node.loopback import Unreachable
from node.rabbitmq import enabled_plugins, node_config
from node.ready import Readiness, incomplete_queues, missing_nodes
from tests.unit.node.world import COOKIE, GOSSIP_KEY, NODE, PEERS, PROJECT, USERS, World, mode_of, myself

QUEUES = Queues(1000, 2000, 20)


def rendered() -> dict[str, Any]:
    return dict(json.loads(definitions.render(USERS, QUEUES)))


# -- users -------------------------------------------------------------------------------------------------------------


def accepts(stored: str, password: str) -> bool:
    """As rabbit_password_hashing_sha256 checks: base64 of a 4-byte salt and of SHA-256 over salt and password."""
    raw = base64.b64decode(stored)
    return raw[4:] == hashlib.sha256(raw[:4] + password.encode()).digest()


def test_a_hash_known_from_rabbitmqs_documentation_is_made_alike() -> None:
    assert accepts("kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR", "test12")


def test_rabbitmq_accepts_exactly_the_password_of_the_secret() -> None:
    for user in rendered()["users"]:
        login = USERS[user["name"]]
        assert user["hashing_algorithm"] == "rabbit_password_hashing_sha256"
        assert accepts(user["password_hash"], login.password)
        assert not accepts(user["password_hash"], login.password + "x")


def test_three_nodes_arrive_at_the_same_file_and_a_rotation_changes_it() -> None:
    assert definitions.render(USERS, QUEUES) == definitions.render(dict(reversed(USERS.items())), QUEUES)
    rotated = {**USERS, "monitoring": Login("monitoring", "new", "next")}
    assert definitions.render(rotated, QUEUES) != definitions.render(USERS, QUEUES)


def test_salts_differ_between_secrets() -> None:
    salts = {base64.b64decode(user["password_hash"])[:4] for user in rendered()["users"]}
    assert len(salts) == 3


def test_there_are_three_users_each_with_its_rights_and_no_guest() -> None:
    users = {user["name"]: user["tags"] for user in rendered()["users"]}
    assert users == {"administrator": ["administrator"], "monitoring": ["monitoring"], "federation": []}
    rights = {entry["user"]: entry["read"] for entry in rendered()["permissions"]}
    assert rights == {"administrator": ".*", "monitoring": "^$", "federation": ".*"}


# -- policies ----------------------------------------------------------------------------------------------------------


def policy(name: str) -> dict[str, Any]:
    [found] = [policy for policy in rendered()["policies"] if policy["name"] == name]
    return dict(found)


def test_every_queue_has_a_cap_that_refuses_instead_of_dropping() -> None:
    for name in ("quorum-queues", "classic-queues", "holding-queues"):
        definition = policy(name)["definition"]
        assert definition["overflow"] == "reject-publish"
        assert (definition["max-length"], definition["max-length-bytes"]) == (1000, 2000)
    assert policy("streams")["definition"] == {"max-length-bytes": 2000}


def test_messages_delivered_too_often_are_dead_lettered_at_least_once() -> None:
    definition = policy("quorum-queues")["definition"]
    assert definition["delivery-limit"] == 20
    assert definition["dead-letter-exchange"] == "dead-letter"
    assert definition["dead-letter-strategy"] == "at-least-once"


def test_the_holding_queues_do_not_dead_letter_and_their_policy_wins() -> None:
    holding = policy("holding-queues")
    assert "dead-letter-exchange" not in holding["definition"]
    assert holding["pattern"] == "^(dead-letter|unroutable)$"
    assert holding["priority"] > policy("quorum-queues")["priority"]


def test_what_the_dead_letter_exchange_cannot_route_has_a_place() -> None:
    exchanges = {exchange["name"]: exchange["arguments"] for exchange in rendered()["exchanges"]}
    assert exchanges == {"dead-letter": {"alternate-exchange": "unroutable"}, "unroutable": {}}
    assert definitions.HOLDING_QUEUES == ("dead-letter", "unroutable")


# -- files -------------------------------------------------------------------------------------------------------------


def cluster(world: World, *, plain: bool = True, tls: bool = False) -> Cluster:
    found = world.boot().cluster
    return Cluster(**{**found.__dict__, "amqp": Amqp(plain, tls)})


@pytest.mark.parametrize(
    ("plain", "tls", "lines"),
    [
        (True, False, ["listeners.tcp.default = 5672"]),
        (False, True, ["listeners.tcp = none", "listeners.ssl.default = 5671"]),
        (True, True, ["listeners.tcp.default = 5672", "listeners.ssl.default = 5671"]),
    ],
)
def test_the_nodes_own_part_says_which_listeners_there_are(
    plain: bool, tls: bool, lines: list[str], world: World
) -> None:
    text = node_config(cluster(world, plain=plain, tls=tls), "/etc/rabbitmq/tls")
    assert [line for line in text.splitlines() if line.startswith("listeners")] == lines
    assert "cluster_name = rabbitmq-local" in text
    assert ("ssl_options.keyfile = /etc/rabbitmq/tls/key.pem" in text) is tls


def test_the_plugin_is_enabled_before_the_first_start_where_there_is_one() -> None:
    static = (PROJECT / "userdata/rabbitmq/enabled_plugins").read_text()
    assert enabled_plugins(static, delayed=True) == static
    assert (
        enabled_plugins(static, delayed=False)
        == "[rabbitmq_management,rabbitmq_peer_discovery_consul,rabbitmq_prometheus].\n"
    )
    assert enabled_plugins("[rabbitmq_management,rabbitmq_delayed_message_exchange].\n", delayed=False) == (
        "[rabbitmq_management].\n"
    )


def write(world: World, **changes: bool) -> bool:
    credentials = Credentials(USERS, COOKIE, GOSSIP_KEY)
    return rabbitmq.write_configuration(
        world.paths,
        world.instance,
        cluster(world, **changes),
        credentials,
        myself(),
        delayed_plugin=False,
        runner=world.programs,
    )


def test_configuration_is_written_once_and_with_the_right_modes(world: World) -> None:
    assert write(world)
    assert not write(world)
    etc = world.paths.rabbitmq_etc
    assert mode_of(etc / "definitions.json") == "0o640"
    assert mode_of(world.paths.rabbitmq_home / ".erlang.cookie") == "0o400"
    assert (world.paths.rabbitmq_home / ".erlang.cookie").read_text() == COOKIE
    for name in ("rabbitmq.conf", "advanced.config", "rabbitmq-env.conf"):
        assert (etc / name).read_text() == (PROJECT / "userdata/rabbitmq" / name).read_text()


def test_a_certificate_is_made_once_and_its_key_is_for_the_broker_alone(world: World) -> None:
    def openssl(command: list[str]) -> Result:
        for option in ("-keyout", "-out"):
            Path(command[command.index(option) + 1]).write_text(option)
        return Result(0, "")

    world.programs.react("openssl", reaction=openssl)
    write(world, tls=True)
    write(world, tls=True)
    [command] = world.programs.ran("openssl")
    assert f"subjectAltName=DNS:{NODE}" in command
    assert mode_of(world.paths.rabbitmq_etc / "tls/key.pem") == "0o640"


# -- ready -------------------------------------------------------------------------------------------------------------


def test_a_complete_cluster_has_all_its_nodes_running_and_no_stranger() -> None:
    running = {f"rabbit@{node}": True for node in "abc"}
    assert missing_nodes("abc", running) is None
    assert missing_nodes("abc", {**running, "rabbit@c": False}) == "2 of 3 nodes run, missing: rabbit@c"
    assert "do not belong to it: rabbit@d" in str(missing_nodes("abc", {**running, "rabbit@d": False}))


def queue(name: str, *online: str) -> QuorumQueue:
    return QuorumQueue(name, "/", online, online)


def test_queues_without_all_members_online_are_named_and_then_counted() -> None:
    assert incomplete_queues([queue("whole", "a", "b", "c")], 3) is None
    assert (
        incomplete_queues([queue("twice", "a", "a", "b")], 3)
        == "quorum queues without 3 online members: twice (2 of 3)"
    )
    here = QuorumQueue("orders", "/", ("a",), ("a",))
    there = QuorumQueue("orders", "other", tuple("abc"), tuple("abc"))
    assert incomplete_queues([here, there], 3) == "quorum queues without 3 online members: orders (1 of 3)"
    many = [queue(f"q{number}", "a") for number in range(9)]
    assert str(incomplete_queues(many, 3)).endswith("q4 (1 of 3) and 4 more")


def readiness(world: World) -> Readiness:
    return Readiness(Broker(USERS["administrator"]), (NODE, *PEERS), "/", world.clock)


def queues_with(world: World, *nodes: str) -> None:
    members = [f"rabbit@{node}" for node in nodes]
    answer = [{"name": "orders", "vhost": "/", "type": "quorum", "members": members, "online": members}]
    world.loopback.on("GET /api/queues", [*answer, {"name": "old", "vhost": "/", "type": "classic"}])


def test_a_queue_that_lacks_a_member_is_given_one_every_half_minute(world: World) -> None:
    world.cluster_runs(NODE, *PEERS)
    queues_with(world, NODE, PEERS[0])
    grow = f"POST /api/queues/quorum/replicas/on/rabbit%40{PEERS[1]}/grow"
    world.loopback.on(grow, status=204)
    mine = readiness(world)
    for _ in range(61):
        assert mine.queues() == "quorum queues without 3 online members: orders (2 of 3)"
        world.clock.sleep(1)
    assert world.loopback.calls.count(grow) == 3
    queues_with(world, NODE, *PEERS)
    log = {"Last Log Index": 7, "Commit Index": 7}
    leader = {"Node Name": f"rabbit@{NODE}", "Raft State": "leader", **log}
    status = [leader, *({"Node Name": f"rabbit@{peer}", "Raft State": "follower", **log} for peer in PEERS)]
    world.loopback.on("GET /api/queues/quorum/%2F/orders/status", status)
    status[2]["Last Log Index"] = 5
    assert mine.queues() == f"quorum queue orders: rabbit@{PEERS[1]} is 2 log entries behind"
    status[2]["Last Log Index"] = 7
    assert mine.queues() is None


def test_whole_queues_in_an_incomplete_cluster_are_not_enough(world: World) -> None:
    world.cluster_runs(NODE, PEERS[0])
    queues_with(world, NODE, *PEERS)
    assert readiness(world).queues() == f"2 of 3 nodes run, missing: rabbit@{PEERS[1]}"


def test_a_broker_that_does_not_answer_is_a_reason_not_an_error(world: World) -> None:
    mine = readiness(world)
    assert mine.serving() == "the broker does not serve yet"
    assert "connection refused" in str(mine.complete())
    assert "connection refused" in str(mine.queues())


@pytest.mark.parametrize("answer", [("unauthorised", 401), ({"error": "x"}, 200), ([], 503)])
def test_an_answer_that_is_no_list_of_nodes_is_no_answer(answer: tuple[Any, int], world: World) -> None:
    world.loopback.on("GET /api/nodes", answer[0], status=answer[1])
    with pytest.raises(Unreachable, match="GET /api/nodes"):
        Broker(USERS["monitoring"]).running_nodes()


def test_the_health_check_needs_no_password_and_the_api_gets_one(world: World) -> None:
    world.cluster_runs(NODE, *PEERS)
    broker = Broker(USERS["monitoring"])
    assert broker.serves("/")
    broker.running_nodes()
    assert world.loopback.logins == [None, ("monitoring", "the-password-of-monitoring")]
