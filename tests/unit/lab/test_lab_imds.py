import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

from lab.imds import Credentials, InstanceView, MetadataService, answer, listen_in_namespace
from lab.system import LabError

TOKEN = "X-aws-ec2-metadata-token"
TTL = "X-aws-ec2-metadata-token-ttl-seconds"

VIEW = InstanceView(
    instance_id="i-0123456789abcdef0",
    address="10.77.1.10",
    mac="02:00:0a:4d:01:0a",
    availability_zone="eu-west-1b",
    region="eu-west-1",
    account="123456789012",
    instance_type="m7i.large",
    image_id="ami-0123456789abcdef0",
    user_data=b"#!/bin/bash\n",
    tags={"rabbitmq-node": "rabbitmq-local-eu-west-1b"},
    role="node-role",
    credentials=Credentials("AKIA", "secret", "a-token", datetime(2026, 12, 1, 18, tzinfo=UTC)),
    lifecycle_state="InService",
)


class Service:
    """A metadata service on loopback, with a clock to turn and a view to change."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.view: InstanceView | None = VIEW
        self._service = MetadataService(lambda _: self.view, clock=lambda: self.now)
        listener = socket.create_server(("127.0.0.1", 0))
        self._url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._service.serve_on(VIEW.instance_id, listener)

    def request(self, method: str, path: str, headers: dict[str, str]) -> "Reply":
        request = urllib.request.Request(self._url + path, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=5) as response:
                return Reply(response.status, response.read().decode(), dict(response.headers))
        except urllib.error.HTTPError as error:
            return Reply(error.code, error.read().decode(), dict(error.headers))

    def token(self, ttl: int = 60) -> str:
        return self.request("PUT", "/latest/api/token", {TTL: str(ttl)}).body

    def get(self, path: str, token: str | None = None) -> "Reply":
        return self.request("GET", path, {TOKEN: token or self.token()})

    def close(self) -> None:
        self._service.close()


@dataclass(frozen=True)
class Reply:
    code: int
    body: str
    headers: dict[str, str]


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.close()


def test_without_a_token_there_is_no_answer(service: Service) -> None:
    assert service.request("GET", "/latest/meta-data/instance-id", {}).code == 401
    assert service.request("GET", "/latest/meta-data/instance-id", {TOKEN: "guessed"}).code == 401


def test_with_a_token_there_is(service: Service) -> None:
    reply = service.get("/latest/meta-data/instance-id")

    assert (reply.code, reply.body) == (200, "i-0123456789abcdef0")


def test_a_token_ends_with_its_time(service: Service) -> None:
    token = service.token(ttl=60)
    service.now += 59
    assert service.get("/latest/meta-data/mac", token).headers[TTL] == "1"

    service.now += 1
    assert service.get("/latest/meta-data/mac", token).code == 401


@pytest.mark.parametrize("ttl", ["", "0", "21601", "soon"])
def test_a_token_needs_a_time_from_one_second_to_six_hours(service: Service, ttl: str) -> None:
    assert service.request("PUT", "/latest/api/token", {TTL: ttl} if ttl else {}).code == 400


def test_a_request_through_a_proxy_gets_no_token(service: Service) -> None:
    assert service.request("PUT", "/latest/api/token", {TTL: "60", "X-Forwarded-For": "10.0.0.1"}).code == 403


def test_one_instances_token_is_not_anothers(service: Service) -> None:
    other = Service()
    try:
        assert other.get("/latest/meta-data/mac", service.token()).code == 401
    finally:
        other.close()


def test_the_answer_follows_the_instance_as_it_changes(service: Service) -> None:
    path = "/latest/meta-data/autoscaling/target-lifecycle-state"
    assert service.get(path).body == "InService"

    service.view = replace(VIEW, lifecycle_state="Terminated")
    assert service.get(path).body == "Terminated"

    service.view = None
    assert service.get(path).code == 404


def test_user_data_is_given_byte_for_byte_and_is_absent_when_there_is_none(service: Service) -> None:
    assert service.get("/latest/user-data").body == "#!/bin/bash\n"

    service.view = replace(VIEW, user_data=None)
    assert service.get("/latest/user-data").code == 404


def body(path: str) -> str:
    found = answer(VIEW, path)
    assert found is not None
    return found.decode()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("local-ipv4", "10.77.1.10"),
        ("local-hostname", "ip-10-77-1-10.eu-west-1.compute.internal"),
        ("placement/availability-zone", "eu-west-1b"),
        ("placement/region", "eu-west-1"),
        ("tags/instance/rabbitmq-node", "rabbitmq-local-eu-west-1b"),
        ("network/interfaces/macs/02:00:0a:4d:01:0a/local-ipv4s", "10.77.1.10"),
    ],
)
def test_metadata_has_what_the_node_reads(path: str, value: str) -> None:
    assert body(f"/latest/meta-data/{path}") == value


@pytest.mark.parametrize("version", ["2009-04-04", "2021-03-23", "latest"])
def test_every_version_cloud_init_asks_for_is_there(version: str) -> None:
    assert body(f"/{version}/meta-data/instance-id") == VIEW.instance_id


def test_a_crawl_over_the_directories_reaches_every_value() -> None:
    def crawl(path: str) -> list[str]:
        if not path.endswith("/"):
            return [path]
        return [leaf for entry in body(path).splitlines() for leaf in crawl(path + entry)]

    leaves = crawl("/latest/meta-data/")

    assert "/latest/meta-data/iam/security-credentials/node-role" in leaves
    assert "/latest/meta-data/tags/instance/rabbitmq-node" in leaves
    assert all(answer(VIEW, leaf) is not None for leaf in leaves)


def test_a_directory_is_the_same_with_and_without_a_slash() -> None:
    assert body("/latest/meta-data") == body("/latest/meta-data/")
    assert body("/latest/").splitlines() == ["dynamic/", "meta-data/", "user-data"]
    entries = body("/latest/meta-data/").splitlines()
    assert entries == sorted(entries)


def test_the_roles_credentials_are_as_an_sdk_expects_them() -> None:
    assert body("/latest/meta-data/iam/security-credentials/") == "node-role"
    document = json.loads(body("/latest/meta-data/iam/security-credentials/node-role"))

    assert document["Code"] == "Success"
    assert (document["AccessKeyId"], document["SecretAccessKey"], document["Token"]) == ("AKIA", "secret", "a-token")
    assert document["Expiration"] == "2026-12-01T18:00:00Z"


def test_the_identity_document_names_the_instance() -> None:
    document = json.loads(body("/latest/dynamic/instance-identity/document"))

    assert document["instanceId"] == VIEW.instance_id
    assert document["accountId"] == "123456789012"
    assert document["availabilityZone"] == "eu-west-1b"


@pytest.mark.parametrize(
    "path", ["/latest/meta-data/nothing", "/latest/meta-data/mac/deeper", "/1999-01-01/meta-data", "/favicon.ico"]
)
def test_what_ec2_does_not_have_is_not_found(path: str) -> None:
    assert answer(VIEW, path) is None


def test_an_instance_without_role_tags_and_lifecycle_has_no_such_directories() -> None:
    bare = replace(VIEW, role=None, tags={}, lifecycle_state=None)

    assert answer(bare, "/latest/meta-data/iam/") is None
    assert answer(bare, "/latest/meta-data/tags/instance/") is None
    assert answer(bare, "/latest/meta-data/autoscaling/target-lifecycle-state") is None


def test_a_namespace_that_does_not_exist_is_named_in_the_error() -> None:
    with pytest.raises(LabError, match=r"169\.254\.169\.254:80 in network namespace no-such-namespace"):
        listen_in_namespace("no-such-namespace", "169.254.169.254", 80)
