"""How things are broken and mended, one function a drill. Each returns when its last fault is over, or the last
replacement has been launched."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from operations.drill.field import Field, undone
from operations.drill.load import queue_of
from operations.errors import OperationError

REPLACED_LIMIT = 300.0
WHOLE_LIMIT = 300.0
AWS_REPLACEMENT = 45.0
"""Seconds: on AWS a replacement never comes sooner after a loss."""


@dataclass(frozen=True)
class Options:
    """What a drill can be told. `replace_after`: seconds from a loss to the replacement's launch."""

    replace_after: float = 0.0
    rounds: int = 20
    seed: int = 1


def instances(field: Field) -> dict[str, str]:
    """Instance id by node."""
    return {node.name: node.instance_id or "" for node in field.look()}


def power_cut(field: Field, nodes: Sequence[str], options: Options) -> None:
    """Cut the power of nodes at the same moment; returns when the last replacement has been launched."""
    before = instances(field)
    when = f", replaced after {options.replace_after:.0f} s" if options.replace_after else ""
    field.mark(f"power cut: {short(field, nodes)}{when}")
    field.lab.run("fault", "power-cut", f"--replace-after={options.replace_after:g}", *nodes)
    for node in nodes:
        field.wait_replaced(node, before[node], options.replace_after + 60)
    field.mark(f"launched: {short(field, nodes)}")


def short(field: Field, nodes: Sequence[str]) -> str:
    """Names without the cluster's, for people."""
    return ", ".join(node.removeprefix(field.environment.cluster_name + "-") for node in nodes)


def wait_ready(field: Field, node: str) -> None:
    """Wait until a node is ready in its own and in AWS's eyes."""
    field.wait_until(f"{node} to be ready", lambda view: view.progress.get(node) == "ready", REPLACED_LIMIT)


def lose(count: int) -> Callable[[Field, Options], None]:
    """So many nodes at once, chosen by the seed."""

    def act(field: Field, options: Options) -> None:
        chosen = random.Random(options.seed).sample(field.names, count)  # noqa: S311 - not for secrets
        power_cut(field, chosen, options)

    return act


def lose_in_turn(count: int) -> Callable[[Field, Options], None]:
    """One after the other, each as soon as the one before is ready again."""

    def act(field: Field, options: Options) -> None:
        for node in field.names[:count]:
            power_cut(field, [node], options)
            if node != field.names[count - 1]:
                wait_ready(field, node)

    return act


def lose_overlapping(field: Field, options: Options) -> None:
    """Three nodes five seconds apart: the next is lost while the one before still boots."""
    before = instances(field)
    for node in field.names:
        field.mark(f"power cut: {short(field, [node])}")
        field.lab.run("fault", "power-cut", f"--replace-after={options.replace_after:g}", node)
        time.sleep(5)
    for node in field.names:
        field.wait_replaced(node, before[node], options.replace_after + 60)


def lose_consul_leader(field: Field, options: Options) -> None:
    """The node whose Consul leads."""
    hosts = field.now().hosts or {}
    address = next((said["consul"]["leader"].split(":")[0] for said in hosts.values() if said["consul"]), "")
    leader = next((node for node, own in field.now().addresses.items() if own == address), field.names[0])
    power_cut(field, [leader], options)


def lose_queue_leader(field: Field, options: Options) -> None:
    """The node that leads most of the queues with traffic."""
    led = [
        queue["leader"].removeprefix("rabbit@")
        for said in field.now().brokers.values()
        for name, queue in said.get("queues", {}).items()
        if queue_of("") in name
    ]
    power_cut(field, [max(field.names, key=led.count)], options)


def partition(seconds: float) -> Callable[[Field, Options], None]:
    """One zone cut off from everything, for a while."""

    def act(field: Field, options: Options) -> None:
        zones = field.environment.availability_zones
        zone = random.Random(options.seed).choice(list(zones))  # noqa: S311
        with undone(lambda: field.lab.run("fault", "heal", zone)):
            field.lab.run("fault", "cut", zone)
            field.mark(f"{zone} cut off")
            time.sleep(seconds)
        field.mark(f"{zone} healed")

    return act


def freeze(seconds: float) -> Callable[[Field, Options], None]:
    """All processes of one node stand still, for a while."""

    def act(field: Field, options: Options) -> None:
        node = random.Random(options.seed).choice(field.names)  # noqa: S311
        with undone(lambda: field.lab.run("fault", "thaw", node)):
            field.lab.run("fault", "freeze", node)
            field.mark(f"{short(field, [node])} frozen")
            time.sleep(seconds)
        field.mark(f"{short(field, [node])} goes on")

    return act


def consul_stop(count: int, seconds: float = 60) -> Callable[[Field, Options], None]:
    """Consul stopped on so many nodes while RabbitMQ runs."""

    def act(field: Field, _: Options) -> None:
        nodes = field.names[:count]
        with undone(lambda: field.lab.run("fault", "systemctl", *nodes, "--", "start", "consul.service")):
            field.lab.run("fault", "systemctl", *nodes, "--", "stop", "consul.service")
            field.mark(f"Consul stopped: {short(field, nodes)}")
            time.sleep(seconds)
        field.mark("Consul started again")

    return act


def kill_rabbitmq(field: Field, options: Options) -> None:
    """The broker of one node killed eight times, as soon as systemd has started it again."""
    node = random.Random(options.seed).choice(field.names)  # noqa: S311
    for number in range(8):
        field.lab.run("fault", "systemctl", node, "--", "kill", "--signal=KILL", "rabbitmq-server.service")
        field.mark(f"RabbitMQ killed on {short(field, [node])} ({number + 1})")
        time.sleep(9)


def two_alive(field: Field, _: Options) -> None:
    """Auto Scaling lets go of a living instance and launches another: the fence must keep that one waiting."""
    node = field.names[0]
    old = instances(field)[node]
    scaling, ec2 = field.deployment.aws.autoscaling, field.deployment.aws.ec2
    scaling.detach_instances(InstanceIds=[old], AutoScalingGroupName=node, ShouldDecrementDesiredCapacity=False)
    field.mark(f"{short(field, [node])}: {old} detached, and goes on running")
    with undone(lambda: ec2.terminate_instances(InstanceIds=[old])):
        field.wait_replaced(node, old)
        field.wait_until(
            "the successor to wait at the fence",
            lambda view: f"{old} owns the node" in view.progress.get(node, ""),
            60,
        )
        field.mark("the successor waits at the fence")
        time.sleep(20)
        if f"{old} owns the node" not in field.now().progress.get(node, ""):
            raise OperationError("the successor went past the fence while the owner lived", "Look at its journal.")
    field.mark(f"{old} terminated")


def efs(mode: str, count: int, seconds: float) -> Callable[[Field, Options], None]:
    """EFS stalls, is full or read-only on so many nodes, for a while. Needs `efs_way("through")`."""

    def act(field: Field, _: Options) -> None:
        nodes = field.names[:count]

        def tell(word: str) -> None:
            for node in nodes:
                field.lab.run("fault", "efs", node, word)

        with undone(lambda: tell("normal")):
            tell(mode)
            field.mark(f"EFS {mode}: {short(field, nodes)}")
            time.sleep(seconds)
        field.mark("EFS as before")

    return act


GIVEN_UP_LIMIT = 480.0
"""Seconds: five minutes of patience, a report, the departure from a file system that does not answer, and a margin."""


def efs_dead(field: Field, _: Options) -> None:
    """One node can never write again, and has to ask for another instance. Needs `efs_way("through")`."""
    node = field.names[0]
    before = instances(field)[node]
    with undone(lambda: field.lab.run("fault", "efs", node, "direct")):
        field.lab.run("fault", "efs", node, "read-only")
        field.lab.run("fault", "efs", node, "bypassed")
        field.mark(f"EFS read-only for good: {short(field, [node])}")
        field.wait_replaced(node, before, GIVEN_UP_LIMIT)
        field.mark(f"replaced: {short(field, [node])}")
        wait_ready(field, node)


def efs_way(word: str, count: int) -> Callable[[Field], None]:
    """Put the failing file system in the way of so many nodes' EFS (`through`), or take it out (`direct`)."""

    def change(field: Field) -> None:
        nodes = field.names[:count]
        for node in nodes:
            field.lab.run("fault", "efs", node, word)
        power_cut(field, nodes, Options())
        field.whole(WHOLE_LIMIT)
        field.marks.clear()

    return change


STEPS = ("identity", "install", "secrets", "ownership", "storage", "consul", "names", "rabbitmq", "ready")


def die_at_every_step(field: Field, _: Options) -> None:
    """A replacement is lost at each step of its boot."""
    node = field.names[0]
    table = field.deployment.parameter("node-table")
    dynamodb = field.deployment.aws.dynamodb
    for step in STEPS:
        before = instances(field)[node]
        field.lab.run("fault", "power-cut", node)
        field.wait_replaced(node, before)
        victim = instances(field)[node]
        deadline = time.monotonic() + 120
        seen = ""
        while time.monotonic() < deadline:
            item = dynamodb.get_item(TableName=table, Key={"id": {"S": f"boot/{node}"}}).get("Item", {})
            if item.get("instance_id", {}).get("S") == victim:
                seen = item.get("step", {}).get("S", "")
                if seen in STEPS[STEPS.index(step) :] or item.get("state", {}).get("S") == "ready":
                    break
            time.sleep(0.005)
        field.mark(f"replacement dies at {seen} (wanted: {step})")
    before = instances(field)[node]
    field.lab.run("fault", "power-cut", node)
    field.wait_replaced(node, before)
    field.mark("the last replacement may live")


def empty_directory(field: Field, _: Options) -> None:
    """A node comes back to an empty directory: it must refuse, and `node rebuild` must bring it back."""
    node = field.names[0]
    before = instances(field)[node]
    field.mark(f"{short(field, [node])}: power cut, directory emptied")
    field.lab.run("fault", "power-cut", "--replace-after=5", node)
    field.lab.run("fault", "empty", node)
    field.wait_replaced(node, before)
    field.wait_until(
        "the node to refuse",
        lambda view: any(n.has_failed and n.name == node for n in field.nodes),
        120,
    )
    field.mark("it refuses to serve")
    time.sleep(10)
    field.operations("node", "rebuild", node, "--yes")
    field.mark("node rebuild")


def roll(field: Field, _: Options) -> None:
    """A planned replacement of all three with `operations roll`, which waits for a whole cluster before each."""
    field.mark("`operations roll` begins")
    field.operations("roll", "--yes", limit=3600)
    field.mark("`operations roll` is done")


def roll_at_once(field: Field, _: Options) -> None:
    """A hand that ends all three instances: the maintenance lock makes one after the other of it."""
    before = instances(field)
    for node in field.names:
        field.deployment.aws.autoscaling.terminate_instance_in_auto_scaling_group(
            InstanceId=before[node], ShouldDecrementDesiredCapacity=False
        )
    field.mark("all three instances are told to end")
    field.wait_until(
        "all three to be replaced and ready",
        lambda view: all(
            view.instances[node] not in ("", before[node]) and view.progress[node] == "ready" for node in field.names
        ),
        900,
    )
    field.mark("all three are replaced")


def roll_undrained(field: Field, _: Options) -> None:
    """The roll as others do it: nobody drains, the instance just shuts down."""
    for node in field.names:
        before = instances(field)[node]
        field.lab.run("fault", "systemctl", node, "--", "stop", "rabbitmq-node-agent.service")
        scaling = field.deployment.aws.autoscaling
        scaling.terminate_instance_in_auto_scaling_group(InstanceId=before, ShouldDecrementDesiredCapacity=False)
        field.mark(f"{short(field, [node])} is replaced, without a drain")
        deadline = time.monotonic() + 60
        while True:
            states = scaling.describe_auto_scaling_instances(InstanceIds=[before])["AutoScalingInstances"]
            if not states or states[0]["LifecycleState"] != "Terminating:Wait":
                if not states or time.monotonic() > deadline:
                    break
                time.sleep(0.2)
                continue
            scaling.complete_lifecycle_action(
                LifecycleHookName="terminate", AutoScalingGroupName=node, InstanceId=before,
                LifecycleActionResult="CONTINUE",
            )  # fmt: skip
            break
        field.wait_replaced(node, before)
        if node != field.names[-1]:
            wait_ready(field, node)


def random_rounds(field: Field, options: Options) -> None:
    """Faults chosen by the seed, one after the other, each from a whole cluster."""
    chance = random.Random(options.seed)  # noqa: S311
    field.mark(f"seed {options.seed}, {options.rounds} rounds")
    for number in range(1, options.rounds + 1):
        name, act = chance.choice(ROUNDS)
        told = Options(replace_after=chance.choice([0, 0, 10, 30]), seed=chance.randrange(1 << 30))
        field.mark(f"round {number}: {name}")
        act(field, told)
        if reasons := field.whole(WHOLE_LIMIT).reasons:
            raise OperationError(
                f"not whole again after round {number} ({name}): {'; '.join(reasons.values())}",
                f"Run it again with seed {options.seed}, or look at the cluster as it is.",
            )


ROUNDS: Sequence[tuple[str, Callable[[Field, Options], None]]] = (
    ("lose-one", lose(1)),
    ("lose-two", lose(2)),
    ("lose-three", lose(3)),
    ("lose-overlapping", lose_overlapping),
    ("partition-20", partition(20)),
    ("freeze-20", freeze(20)),
    ("consul-stop-3", consul_stop(3, 10)),
    ("lose-queue-leader", lose_queue_leader),
)
