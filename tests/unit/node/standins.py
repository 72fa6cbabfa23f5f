"""What a node talks to, in small: time, programs, AWS, and the HTTP APIs on its loopback."""

import copy
import io
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError
from moto.dynamodb.exceptions import ConditionalCheckFailed
from moto.dynamodb.models import DynamoDBBackend

from node.clock import Clock
from node.commands import NOT_FOUND, Result
from node.loopback import Answer, Unreachable
from node.table import Table

BEGIN = datetime(2026, 3, 1, 12, 0, 0, tzinfo=timezone.utc)  # noqa: UP017 - the node's own Python is older


class ManualClock(Clock):
    """Time passes only in `sleep`, or when a test says so."""

    def __init__(self) -> None:
        self.passed = 0.0
        self._later: list[tuple[float, Callable[[], object]]] = []

    def monotonic(self) -> float:
        return self.passed

    def sleep(self, seconds: float) -> None:
        self.passed += seconds
        for due in [item for item in self._later if item[0] <= self.passed]:
            self._later.remove(due)
            due[1]()

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self.passed)

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Let something happen during a wait."""
        self._later.append((self.passed + seconds, action))


Reaction = Callable[[list[str]], Result]


class Programs:
    """In place of `commands.run`. A program that nobody has set up does not exist."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self._reactions: list[tuple[tuple[str, ...], Reaction]] = []

    def on(self, *words: str, output: str = "", code: int | None = 0) -> None:
        """What a command that begins with these words answers."""
        self.react(*words, reaction=lambda _: Result(code, output))

    def react(self, *words: str, reaction: Reaction) -> None:
        """What a command that begins with these words does. The latest rule that fits wins."""
        self._reactions.insert(0, (words, reaction))

    def __call__(self, arguments: Sequence[str], *, limit: float) -> Result:
        assert limit > 0
        command = list(arguments)
        self.calls.append(command)
        for words, reaction in self._reactions:
            if tuple(command[: len(words)]) == words:
                return reaction(command)
        return Result(NOT_FOUND, f"{command[0]}: no such program")

    def ran(self, *words: str) -> list[list[str]]:
        """The commands that began with these words."""
        return [command for command in self.calls if tuple(command[: len(words)]) == words]


class Systemd:
    """systemctl and journalctl: units and their states."""

    def __init__(self, programs: Programs) -> None:
        self.states: dict[str, str] = {}
        self.restarts: dict[str, int] = {}
        self.printed: dict[str, str] = {}
        self.asked: list[tuple[str, str]] = []
        self.on_start: dict[str, Callable[[], object]] = {}
        programs.react("systemctl", reaction=self._systemctl)
        programs.react("journalctl", reaction=lambda command: Result(0, self.printed.get(command[1].split("=")[1], "")))

    def _systemctl(self, command: list[str]) -> Result:
        verb, unit = command[1], command[-1]
        if verb == "is-active":
            states = [self.states.get(name, "inactive") for name in command[2:]]
            return Result(0 if "active" in states else 3, "\n".join(states))
        if verb == "show":
            return Result(0, str(self.restarts.get(unit, 0)))
        self.asked.append((verb, unit))
        if verb == "start" and unit in self.on_start:
            self.on_start[unit]()
        if self.states.get(unit) != "stuck":
            self.states[unit] = "inactive" if verb == "stop" else "active"
        return Result(0, "")


class Loopback:
    """In place of `loopback.request`: answers by method and path (without its query). Otherwise nobody listens."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[Any], Answer]] = {}
        self.calls: list[str] = []
        self.logins: list[tuple[str, str] | None] = []

    def on(self, request: str, body: Any = "", status: int = 200) -> None:
        """`request` is such as `GET /v1/status/leader`."""
        self.answers[request] = lambda _: Answer(status, body() if callable(body) else body)

    def __call__(
        self,
        method: str,
        port: int,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        login: tuple[str, str] | None = None,
        timeout: float = 5,
    ) -> Answer:
        request = f"{method} {path.partition('?')[0]}"
        self.calls.append(request)
        self.logins.append(login)
        if request not in self.answers:
            raise Unreachable(f"127.0.0.1:{port}: connection refused")
        return self.answers[request](body)


def client_error(code: str, message: str = "no", operation: str = "Call") -> ClientError:
    """As boto3 raises it."""
    return ClientError({"Error": {"Code": code, "Message": message}}, operation)


THROTTLED = client_error("Throttling", "Rate exceeded")


class DynamoDB:
    """moto's table called directly, which is a hundred times as fast as through HTTP. `before` hears of every call."""

    def __init__(self) -> None:
        self.backend = DynamoDBBackend("eu-west-1", "123456789012")
        self.before: Callable[[str], object] = lambda call: None
        self.backend.create_table(
            "nodes",
            schema=[{"AttributeName": "id", "KeyType": "HASH"}],
            throughput=None,
            attr=[{"AttributeName": "id", "AttributeType": "S"}],
            global_indexes=None,
            indexes=None,
            streams=None,
            billing_mode="PAY_PER_REQUEST",
            sse_specification=None,
            tags=[],
            deletion_protection_enabled=False,
            warm_throughput=None,
        )

    def get_item(self, *, TableName: str, Key: Any, ConsistentRead: bool = False) -> Any:  # noqa: N803
        assert ConsistentRead, "the fence must not read what was"
        self.before("get_item")
        item = self.backend.get_item(TableName, Key)
        return {"Item": copy.deepcopy(item.to_json()["Attributes"])} if item else {}

    def put_item(self, *, TableName: str, Item: Any) -> None:  # noqa: N803
        self.before("put_item")
        self.backend.put_item(TableName, copy.deepcopy(Item))

    def update_item(self, **request: Any) -> None:
        self.before("update_item")
        try:
            self.backend.update_item(
                request["TableName"],
                request["Key"],
                request["UpdateExpression"],
                request["ExpressionAttributeNames"],
                copy.deepcopy(request["ExpressionAttributeValues"]),
                condition_expression=request["ConditionExpression"],
            )
        except ConditionalCheckFailed as error:
            raise client_error("ConditionalCheckFailedException") from error

    def delete_item(self, **request: Any) -> None:
        self.before("delete_item")
        try:
            self.backend.delete_item(
                request["TableName"],
                request["Key"],
                request["ExpressionAttributeNames"],
                request["ExpressionAttributeValues"],
                request["ConditionExpression"],
            )
        except ConditionalCheckFailed as error:
            raise client_error("ConditionalCheckFailedException") from error

    @property
    def table(self) -> Table:
        """The node's own view of it."""
        return Table(self, "nodes")  # type: ignore[arg-type]

    def put(self, identifier: str, **attributes: Any) -> None:
        """Put an item."""
        self.table.put(identifier, attributes)

    def item(self, identifier: str) -> dict[str, Any]:
        """An item as it is."""
        before, self.before = self.before, lambda call: None
        found = dict(self.table.get(identifier) or {})
        self.before = before
        return found


class Ec2:
    """States by instance id. EC2 does not know any other."""

    def __init__(self, **states: str) -> None:
        self.states = {name.replace("_", "-"): state for name, state in states.items()}
        self.asked: list[str] = []
        self.before: Callable[[str], object] = lambda call: None

    def describe_instances(self, *, InstanceIds: list[str]) -> Any:  # noqa: N803
        self.before("describe_instances")
        [instance] = InstanceIds
        self.asked.append(instance)
        if instance not in self.states:
            raise client_error("InvalidInstanceID.NotFound")
        return {"Reservations": [{"Instances": [{"State": {"Name": self.states[instance]}}]}]}


class LoadBalancing:
    """Target health: state and reason of the target that is asked for, or of all, in every group."""

    def __init__(self) -> None:
        self.health = ("healthy", "")
        self.targets = {"i-peer": ("healthy", "")}
        self.asked: list[str] = []
        self.calls: list[str] = []

    def describe_target_health(self, *, TargetGroupArn: str, Targets: Any = ()) -> Any:  # noqa: N803
        self.asked.append(TargetGroupArn)
        found = {target["Id"]: self.health for target in Targets} or self.targets
        return {
            "TargetHealthDescriptions": [
                {"Target": {"Id": target}, "TargetHealth": {"State": state, "Reason": reason}}
                for target, (state, reason) in found.items()
            ]
        }

    def register_targets(self, **_: Any) -> None:
        self.calls.append("register")

    def deregister_targets(self, **_: Any) -> None:
        self.calls.append("deregister")


class Recorder:
    """A client whose calls are kept: (operation, arguments). `errors` are raised first, in turn."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.errors: list[Exception] = []

    def __getattr__(self, operation: str) -> Callable[..., None]:
        def call(**arguments: Any) -> None:
            if self.errors:
                raise self.errors.pop(0)
            self.calls.append((operation, arguments))

        return call


class Secrets:
    """Secrets Manager: (value, version) by ARN."""

    def __init__(self, values: dict[str, tuple[str, str]]) -> None:
        self.values = values

    def get_secret_value(self, *, SecretId: str) -> dict[str, str]:  # noqa: N803
        value, version = self.values[SecretId]
        return {"SecretString": value, "VersionId": version}


class Bucket:
    """S3: content by key."""

    def __init__(self, **content: bytes) -> None:
        self.content: dict[str, bytes] = dict(content)
        self.errors: list[Exception] = []
        self.asked: list[str] = []

    def get_object(self, *, Bucket: str, Key: str) -> Any:  # noqa: N803
        self.asked.append(Key)
        if self.errors:
            raise self.errors.pop(0)
        if Key not in self.content:
            raise client_error("NoSuchKey")
        return {"Body": io.BytesIO(self.content[Key])}


class Metadata:
    """Instance metadata."""

    def __init__(self, **values: str) -> None:
        self.values = {name.replace("__", "/").replace("_", "-"): value for name, value in values.items()}

    def get(self, name: str) -> str | None:
        return self.values.get(name)

    def must(self, name: str) -> str:
        return self.values[name]


def aws(**services: Any) -> Any:
    """Clients by service."""
    return SimpleNamespace(**services)
