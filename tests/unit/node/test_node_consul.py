"""Consul and names: one identity for every instance of a node, and names that need no leader."""

import itertools
import json
import uuid
from typing import Any

import pytest

from node import names, registration, rejoin
from node.consul import Consul, GossipMember, node_config, node_id
from node.loopback import Answer, Unreachable
from node.names import BEGIN, END, NameKeeper, known_addresses, with_block
from node.raft import RaftAddresses
from node.registration import Registration
from node.rejoin import Rejoin, targets
from tests.unit.node.standins import THROTTLED
from tests.unit.node.world import ADDRESS, NODE, PEERS, PROJECT, World

A, B, C = NODE, *PEERS


def member(name: str, address: str, *, alive: bool = True) -> dict[str, Any]:
    return {"Name": name, "Addr": address, "Status": 1 if alive else 4}


def gossip(world: World, *members: dict[str, Any], leader: str = "10.77.1.5:8300") -> None:
    world.loopback.on("GET /v1/agent/members", list(members))
    world.loopback.on("GET /v1/status/leader", leader)


# -- identity ----------------------------------------------------------------------------------------------------------


def test_every_instance_of_a_node_has_the_same_consul_id_and_no_two_nodes_share_one() -> None:
    assert node_id(A) == node_id(A) == str(uuid.UUID(node_id(A)))
    assert len({node_id(node) for node in (A, B, C)}) == 3


def test_consuls_own_part_names_this_node_its_address_and_how_to_join(world: World) -> None:
    document = json.loads(node_config(world.instance, ADDRESS))
    assert (document["node_name"], document["node_id"]) == (NODE, node_id(NODE))
    assert document["bind_addr"] == document["advertise_addr"] == ADDRESS
    assert document["datacenter"] == "rabbitmq-local"
    assert document["retry_join"] == [
        "provider=aws region=eu-west-1 tag_key=rabbitmq-cluster tag_value=rabbitmq-local addr_type=private_v4"
    ]


def test_what_differs_stands_in_no_static_file(world: World) -> None:
    static = json.loads((PROJECT / "consul/server.json").read_text())
    assert set(static) & set(json.loads(node_config(world.instance, ADDRESS))) == set()


# -- the agent's API ---------------------------------------------------------------------------------------------------


def test_members_come_from_gossip_and_need_no_leader(world: World) -> None:
    gossip(world, member(A, "10.0.0.1"), member(B, "10.0.0.2", alive=False), leader="")
    consul = Consul()
    assert consul.members() == (GossipMember(A, "10.0.0.1", True), GossipMember(B, "10.0.0.2", False))
    assert consul.leader() is None


def test_an_answer_that_is_no_list_is_no_member_and_no_service(world: World) -> None:
    for request in ("GET /v1/agent/members", "GET /v1/health/service/rabbitmq", "GET /v1/status/leader"):
        world.loopback.on(request, "No cluster leader", status=500)
    assert (Consul().members(), Consul().passing("rabbitmq"), Consul().leader()) == ((), {}, None)


@pytest.mark.usefixtures("world")
def test_a_consul_that_is_not_there_is_unreachable() -> None:
    with pytest.raises(Unreachable):
        Consul().members()
    assert not Consul().answers()


# -- names -------------------------------------------------------------------------------------------------------------


def test_the_best_source_that_knows_a_node_wins() -> None:
    found = known_addresses(
        ["a", "b", "c", "d", "e"],
        own={"a": "own"},
        members=[GossipMember("a", "gossip", True), GossipMember("b", "gossip", True), GossipMember("c", "old", False)],
        recorded={"b": "recorded", "c": "recorded"},
        saved={"b": "saved", "c": "saved", "d": "saved"},
    )
    assert found == {"a": "own", "b": "gossip", "c": "recorded", "d": "saved"}


@pytest.mark.parametrize(
    "hosts",
    [
        "",
        "127.0.0.1 localhost\n",
        "127.0.0.1 localhost",
        f"127.0.0.1 localhost\n{BEGIN}\n10.9.9.9 a\n{END}\n::1 ip6-localhost\n",
    ],
)
def test_only_the_block_of_the_hosts_file_is_ours(hosts: str) -> None:
    once = with_block(hosts, {"a": "10.0.0.1"})
    assert with_block(once, {"a": "10.0.0.1"}) == once
    assert once.count(BEGIN) == once.count(END) == once.count("10.0.0.1 a") == 1
    assert "10.9.9.9" not in once
    for line in ("127.0.0.1 localhost", "::1 ip6-localhost"):
        assert (line in once.splitlines()) is (line in hosts.splitlines())


def keeper(world: World, remembered: list[dict[str, str]] | None = None) -> NameKeeper:
    def remember(addresses: Any) -> None:
        if remembered is not None:
            remembered.append(dict(addresses))

    own = {NODE: ADDRESS}
    return NameKeeper(world.paths.hosts, (A, B, C), own, world.dynamodb.table, world.clock, remember, Consul())


def test_names_work_without_consul_from_recorded_and_saved_addresses(world: World) -> None:
    world.dynamodb.put(f"node/{B}", owner="i-b", address="10.77.2.5")
    found = keeper(world).refresh({C: "10.77.3.5", B: "stale"})
    assert found == {A: ADDRESS, B: "10.77.2.5", C: "10.77.3.5"}
    assert names.block_of(world.paths.hosts) == found


def test_names_work_without_the_table_too(world: World) -> None:
    def fail(_: str) -> None:
        raise THROTTLED

    world.dynamodb.before = fail
    assert keeper(world).refresh({B: "10.77.2.5"}) == {A: ADDRESS, B: "10.77.2.5"}


def test_a_new_address_in_gossip_reaches_the_hosts_file_at_once(world: World) -> None:
    remembered: list[dict[str, str]] = []
    mine = keeper(world, remembered)
    gossip(world, member(B, "10.77.2.5"), member(C, "10.77.3.5"))
    mine.refresh({})
    gossip(world, member(B, "10.77.2.99"), member(C, "10.77.3.5"))
    mine.refresh({})
    mine.refresh({})
    assert names.block_of(world.paths.hosts)[B] == "10.77.2.99"
    assert [addresses[B] for addresses in remembered] == ["10.77.2.5", "10.77.2.99"]


def test_the_table_is_asked_less_and_less_for_a_node_that_stays_away(world: World) -> None:
    asked: list[float] = []
    world.dynamodb.before = lambda call: asked.append(world.clock.passed)
    gossip(world, member(B, "10.77.2.5"))
    mine = keeper(world)
    for _ in range(300):
        mine.refresh({})
        world.clock.sleep(1)
    gaps = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert asked[0] == 0
    assert gaps == sorted(gaps)
    assert gaps[0] == 2
    assert gaps[-1] == 30


def test_saved_addresses_that_cannot_be_read_are_none(world: World) -> None:
    assert names.load(world.paths.addresses) == {}
    world.paths.addresses.write_text("{broken")
    assert names.load(world.paths.addresses) == {}
    names.save(world.paths.addresses, {"b": "2", "a": "1"})
    assert names.load(world.paths.addresses) == {"a": "1", "b": "2"}


# -- joining again -----------------------------------------------------------------------------------------------------

KNOWN = {A: "10.77.1.5", B: "10.77.2.5", C: "10.77.3.5"}


def test_without_a_leader_all_peers_are_joined_else_those_that_gossip_misses() -> None:
    alive = [GossipMember(B, "10.77.2.5", True), GossipMember(C, "10.77.3.5", False)]
    assert targets((B, C), alive, "leader", KNOWN) == ["10.77.3.5"]
    assert targets((B, C), alive, None, KNOWN) == ["10.77.2.5", "10.77.3.5"]
    assert targets((B, C), [], None, {}) == []


def test_a_missing_peer_is_joined_eagerly_first_and_patiently_later(world: World) -> None:
    gossip(world, member(B, "10.77.2.5"))
    world.loopback.on("PUT /v1/agent/join/10.77.3.5")
    mine = Rejoin((B, C), world.clock, Consul())
    joined = []
    for _ in range(200):
        if mine.attempt(KNOWN):
            joined.append(world.clock.passed)
        world.clock.sleep(3)
    eager = [at for at in joined if at <= rejoin.EAGER_SECONDS]
    assert len(eager) == 61
    assert 18 <= len(joined) - len(eager) <= 21


def test_a_whole_consul_is_left_alone_and_a_silent_one_too(world: World) -> None:
    mine = Rejoin((B, C), world.clock, Consul())
    assert mine.attempt(KNOWN) == []
    gossip(world, member(B, "10.77.2.5"), member(C, "10.77.3.5"))
    assert mine.attempt(KNOWN) == []


# -- raft's list -------------------------------------------------------------------------------------------------------

WHOLE = (member(A, ADDRESS), member(B, "10.77.2.5"), member(C, "10.77.3.5"))


def raft(world: World, listed: dict[str, str], *, leader: str = ADDRESS, voters: bool = True) -> list[str]:
    """Raft's list; returns what is removed from it later."""
    servers = [{"ID": node_id(name), "Address": f"{at}:8300", "Voter": voters} for name, at in listed.items()]
    removed: list[str] = []
    gossip(world, *WHOLE, leader=f"{leader}:8300")
    world.loopback.on("GET /v1/operator/raft/configuration", {"Servers": servers})

    def remove(_: Any) -> Answer:
        removed.append("self")
        return Answer(200, "")

    world.loopback.answers["DELETE /v1/operator/raft/peer"] = remove
    return removed


def checks(world: World, count: int = 4) -> list[bool]:
    mine, results = RaftAddresses(A, Consul(), world.clock), []
    for _ in range(count):
        results.append(mine.check())
        world.clock.sleep(1)
    return results


def test_a_leader_with_a_stale_entry_that_stays_gives_up_the_lead_once(world: World) -> None:
    removed = raft(world, {**KNOWN, A: "10.77.1.99"})
    assert checks(world) == [False, False, True, False]
    assert removed == ["self"]


@pytest.mark.parametrize(
    ("listed", "change"),
    [
        pytest.param(KNOWN, {}, id="nothing is stale"),
        pytest.param({**KNOWN, A: "10.77.1.99"}, {"leader": "10.77.2.5"}, id="another leads"),
        pytest.param({**KNOWN, A: "10.77.1.99"}, {"voters": False}, id="not all vote yet"),
        pytest.param({A: "10.77.1.99", B: "10.77.2.5"}, {}, id="one is not in the list"),
    ],
)
def test_raft_is_left_alone_otherwise(world: World, listed: dict[str, str], change: dict[str, Any]) -> None:
    removed = raft(world, listed, **change)
    assert not any(checks(world))
    assert removed == []


def test_a_leader_keeps_the_lead_while_a_member_is_away(world: World) -> None:
    removed = raft(world, {**KNOWN, A: "10.77.1.99"})
    gossip(world, *WHOLE[:2], member(C, "10.77.3.5", alive=False), leader=f"{ADDRESS}:8300")
    assert not any(checks(world))
    assert removed == []


# -- registration ------------------------------------------------------------------------------------------------------


def conf(key: str) -> str:
    lines = (PROJECT / "userdata/rabbitmq/rabbitmq.conf").read_text().splitlines()
    [value] = [line.split(" = ")[1] for line in lines if line.startswith(f"cluster_formation.consul.{key} ")]
    return value


def test_the_registration_is_the_one_that_rabbitmq_makes(world: World) -> None:
    wanted = registration.service(NODE)
    assert wanted["Name"] == conf("svc")
    assert wanted["Check"]["TTL"] == f"{conf('svc_ttl')}s"
    assert wanted["Check"]["DeregisterCriticalServiceAfter"] == f"{conf('deregister_after')}s"
    assert wanted["Meta"] == {"erlang-node-name": f"rabbit@{NODE}"}


def watch(world: World, *, serves: bool) -> Registration:
    return Registration(registration.service(NODE), lambda: serves, Consul())


LOST = f"GET /v1/agent/service/rabbitmq%3A{NODE}"


def test_a_lost_registration_is_put_back(world: World) -> None:
    world.loopback.on(LOST, status=404)
    world.loopback.on("PUT /v1/agent/service/register")
    assert watch(world, serves=True).check()


def test_a_node_that_does_not_serve_is_not_registered(world: World) -> None:
    world.loopback.on(LOST, status=404)
    world.loopback.on("PUT /v1/agent/service/register")
    assert not watch(world, serves=False).check()
    assert "PUT /v1/agent/service/register" not in world.loopback.calls


def test_a_registration_that_is_there_is_left_alone(world: World) -> None:
    world.loopback.on(LOST, {"ID": f"rabbitmq:{NODE}"})
    assert not watch(world, serves=True).check()
    assert world.loopback.calls == [LOST]
