"""A user's first hour: deploy, look, publish, consume, deploy again, destroy."""

import re
import time
from typing import Any

import pika
import pytest
import requests

from tests.lab.deployed import PROJECT, Lab, make

pytestmark = pytest.mark.lab


def test_three_nodes_run_under_stable_names_in_one_cluster(lab: Lab) -> None:
    expected = {f"rabbit@{node.name}" for node in lab.environment.nodes}
    assert {node["name"] for node in lab.broker().nodes() if node["running"]} == expected
    assert lab.broker().overview()["cluster_name"] == lab.environment.cluster_name
    zones = [(node["name"], node["availability_zone"], node["ready"]) for node in lab.nodes()]
    assert zones == [(node.name, node.availability_zone, True) for node in lab.environment.nodes]


def test_deploy_prints_nodes_endpoints_and_how_to_see_the_password(lab: Lab) -> None:
    printed = lab.deploy_output
    for node in lab.nodes():
        assert re.search(rf"{node['name']} .*{node['instance_id']} .*{re.escape(node['address'])} .*ready", printed)
    assert lab.deployment.parameter("amqp-endpoint") in printed
    assert lab.deployment.parameter("management-url") in printed
    assert "make password ENV=local" in printed
    assert make("password").strip().splitlines()[-1] == lab.credentials().password


def test_a_thousand_confirmed_messages_cross_from_one_node_to_another(lab: Lab) -> None:
    first, second, _ = (node["address"] for node in lab.nodes())
    assert lab.client("publish", first, queue="crossing", count=1000) == 1000
    assert lab.client("consume", second, queue="crossing", count=1000) == list(range(1000))


def test_a_queue_declared_without_a_type_is_a_quorum_queue_on_all_three_nodes(lab: Lab) -> None:
    lab.client("publish", lab.nodes()[0]["address"], queue="typeless", count=1)
    members = {f"rabbit@{node.name}" for node in lab.environment.nodes}
    queue = _eventually(lambda: lab.broker().get("queues/%2F/typeless"), lambda q: set(q.get("online", [])) == members)
    assert queue["type"] == "quorum"
    assert set(queue["members"]) == members


def test_a_client_on_this_machine_uses_the_printed_endpoint(lab: Lab) -> None:
    host, port = lab.amqp_address()
    credentials = lab.credentials()
    parameters = pika.ConnectionParameters(
        host, port, credentials=pika.PlainCredentials(credentials.username, credentials.password)
    )
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("endpoint", durable=True)
        channel.basic_publish("", "endpoint", b"hello", mandatory=True)
        _, _, body = channel.basic_get("endpoint", auto_ack=True)
        assert body == b"hello"


def test_the_management_page_opens(lab: Lab) -> None:
    page = requests.get(lab.deployment.parameter("management-url"), timeout=10)
    assert page.status_code == 200
    assert "RabbitMQ Management" in page.text


def test_users_are_the_three_declared_ones_and_each_can_log_in(lab: Lab) -> None:
    tags = {user["name"]: user["tags"] for user in lab.broker().get("users")}
    assert tags == {"administrator": ["administrator"], "monitoring": ["monitoring"], "federation": []}
    url = lab.deployment.parameter("management-url")
    for name, status in (("administrator", 200), ("monitoring", 200)):
        user = lab.credentials(name)
        assert requests.get(f"{url}/api/whoami", auth=(user.username, user.password), timeout=10).status_code == status
    assert requests.get(f"{url}/api/whoami", auth=("guest", "guest"), timeout=10).status_code == 401


def test_consul_has_the_three_nodes_as_voting_peers_at_their_addresses(lab: Lab) -> None:
    nodes = lab.nodes()
    expected = sorted((node["name"], node["address"]) for node in nodes)
    for node in nodes:
        listed = lab.host(node["instance_id"]).run(["consul", "operator", "raft", "list-peers"], timeout=20).stdout
        peers = [line.split() for line in listed.splitlines()[1:]]
        assert sorted((peer[0], peer[2].split(":")[0]) for peer in peers) == expected
        members = lab.host(node["instance_id"]).run(["consul", "members"], timeout=20).stdout
        assert len(re.findall(r"\balive\s+server\b", members)) == 3


def test_no_secret_is_in_a_process_list_a_journal_or_a_world_readable_file(lab: Lab) -> None:
    arns = [value for name, value in lab.deployment.parameters().items() if name.endswith("-secret-arn")]
    secrets = [lab.credentials(name).password for name in ("administrator", "monitoring", "federation")]
    listed = lab.deployment.aws.secrets.list_secrets()["SecretList"]
    plain = [s["ARN"] for s in listed if s["Name"].endswith(("erlang-cookie", "consul-gossip-key"))]
    assert len(arns) >= 3
    assert len(plain) == 2
    secrets += [lab.deployment.aws.secrets.get_secret_value(SecretId=arn)["SecretString"] for arn in plain]
    assert all(len(secret) >= 16 for secret in secrets)
    patterns = "\n".join(secrets)
    for node in lab.nodes():
        host = lab.host(node["instance_id"])
        # The patterns come on standard input: as arguments they would be in the process list that is searched.
        for what, command in (
            ("process list", "ps axeww -o args= | grep -F -f /dev/fd/3"),
            ("journal", "journalctl --no-pager -o cat | grep -F -f /dev/fd/3"),
            (
                "world-readable file",
                "find / -xdev -type f -perm -o+r -not -path '/proc/*' -not -path '/sys/*' -not -path '/usr/*' -print0"
                " | xargs -0 -r grep -l -F -f /dev/fd/3; find /mnt/rabbitmq -type f -perm -o+r -print0"
                " | xargs -0 -r grep -l -F -f /dev/fd/3",
            ),
        ):
            script = f"cat > /run/patterns; chmod 600 /run/patterns; exec 3</run/patterns; rm /run/patterns; {command}"
            found = host.run(["sh", "-c", script], timeout=120, input=patterns, check=False).stdout
            assert not found.strip(), f"{node['name']}: a secret stands in the {what}: {_masked(found, secrets)}"


def test_deploying_again_changes_nothing_and_says_so(lab: Lab) -> None:
    before = [node["instance_id"] for node in lab.nodes()]
    printed = make("deploy")
    log = PROJECT / "cdk.out" / f"deploy-{lab.environment.name}.log"
    assert log.read_text().count("(no changes)") == 5, log.read_text()
    assert "nothing was to change" in printed
    assert [node["instance_id"] for node in lab.nodes()] == before


def _masked(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "****")
    return text[:500]


def _eventually(read: Any, holds: Any, limit_seconds: float = 60) -> Any:
    end = time.monotonic() + limit_seconds
    while True:
        value = read()
        if holds(value) or time.monotonic() > end:
            return value
        time.sleep(0.5)
