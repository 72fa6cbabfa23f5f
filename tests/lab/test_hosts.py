"""Two hosts, the VPC, the metadata service and the proxy by themselves, without the emulated AWS or a cluster."""

import http.server
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest
import trustme

from lab.cleanup import clean, leftovers
from lab.haproxy import HAProxy
from lab.health import Checker, marked
from lab.host import Host, HostSpec
from lab.image import ensure_image
from lab.imds import InstanceView, MetadataService
from lab.layer import build_layer
from lab.loadbalancer import Front, HealthCheck, Listener, LoadBalancer, Setup, Target, TargetGroup
from lab.network import Network, bridge_of
from lab.paths import STATE_ROOT, LabPaths, cache_directory
from lab.system import LabError, run

pytestmark = pytest.mark.lab

PORT = 14599  # of the emulator, which is a web server of this test here
USER_DATA = b"""#!/bin/bash
set -e
hostnamectl set-hostname node-of-$(hostname)
python3 -m http.server --directory /run 8080 >/dev/null 2>&1 &
disown
until curl -s http://127.0.0.1:8080 >/dev/null; do sleep 0.05; done
echo "user-data ran" > /run/proof
"""
ZONES = {"eu-west-1a": "10.88.0.0/24", "eu-west-1b": "10.88.1.0/24"}
SPECS = [
    HostSpec(f"i-0000000000000000{n}", IPv4Network(cidr)[10], IPv4Network(cidr), az, Path(), Path(), Path())
    for n, (az, cidr) in enumerate(ZONES.items())
]


@dataclass
class Machine:
    """What every test here starts from."""

    paths: LabPaths
    network: Network
    metadata: MetadataService
    proxy: HAProxy
    checks: Checker
    specs: list[HostSpec]
    certificate: Path
    instances: dict[str, InstanceView]
    hosts: list[Host] = field(default_factory=list)

    def start(self, spec: HostSpec) -> Host:
        self.instances[spec.instance_id] = view(spec)
        host = Host(spec, self.paths)
        host.prepare()
        self.metadata.serve(spec.instance_id, host.namespace)
        host.boot()
        wait_for(lambda: proof(host) == "user-data ran", 20)
        return host

    def setup(self, *hosts: Host, port: int = 5672, dead: bool = False) -> Setup:
        targets = tuple(Target(host.spec.instance_id, str(host.spec.address)) for host in hosts)
        if dead:
            targets += (Target("dead", "10.88.1.99"),)
        check = HealthCheck("HTTP", 8080, "/proof", interval=0.5, timeout=1)
        return Setup(
            (LoadBalancer("nlb", self.paths.nlb_address(), (Listener(port, "TCP", "web"),)),),
            (TargetGroup("web", "TCP", 8080, check, targets),),
            Front(str(self.paths.resolver), self.certificate, PORT),
        )

    def apply(self, setup: Setup) -> set[str]:
        """Tells the proxy what is known of the targets by now, as the supervisor does every round; the healthy ones."""
        groups = marked(setup.target_groups, self.checks.follow(setup.target_groups))
        self.proxy.apply(replace(setup, target_groups=groups))
        return {target.name for target in groups[0].targets if target.healthy}

    def fetch(self, port: int = 5672) -> str:
        url = f"http://{self.paths.nlb_address()}:{port}/proof"
        with urllib.request.urlopen(url, timeout=3) as response:
            return str(response.read().decode().strip())


def wait_for(condition: Callable[[], bool], limit: float) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def proof(host: Host) -> str:
    try:
        return host.run(["cat", "/run/proof"], check=False).stdout.strip()
    except LabError:  # it has no init yet
        return ""


class Emulator(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.headers["Host"].encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    vpc = IPv4Network("10.88.0.0/16")
    paths = LabPaths("selftest", "eu-west-1", PORT, vpc, STATE_ROOT / "selftest", cache_directory())
    clean(paths)
    authority = trustme.CA()
    image = ensure_image(paths.cache)
    layer = build_layer(paths, image, authority.cert_pem.bytes())
    certificate = paths.state / "front.pem"
    issued = authority.issue_cert("sts.eu-west-1.amazonaws.com")
    certificate.write_bytes(issued.private_key_and_cert_chain_pem.bytes())
    specs = [replace(spec, image=image, layer=layer, efs=paths.efs) for spec in SPECS]
    network = Network(paths, [(cidr, az) for az, cidr in ZONES.items()])
    network.up()
    instances: dict[str, InstanceView] = {}
    metadata = MetadataService(instances.get)
    emulator = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Emulator)
    threading.Thread(target=emulator.serve_forever, daemon=True).start()
    checks = Checker(paths.vpc_namespace)
    made = Machine(paths, network, metadata, HAProxy(paths), checks, specs, certificate, instances)
    try:
        made.hosts = [made.start(spec) for spec in specs]
        yield made
    finally:
        clean(paths)
        metadata.close()
        emulator.shutdown()
        emulator.server_close()
    assert leftovers(paths) == []


def view(spec: HostSpec) -> InstanceView:
    return InstanceView(
        instance_id=spec.instance_id,
        address=str(spec.address),
        mac=spec.mac,
        availability_zone=spec.az,
        region="eu-west-1",
        account="123456789012",
        instance_type="m7i.large",
        image_id="ami-0123456789abcdef0",
        user_data=USER_DATA,
        tags={"Name": f"node-{spec.az}"},
    )


def test_a_host_runs_its_user_data_as_root_under_a_name_it_gave_itself(machine: Machine) -> None:
    host = machine.hosts[0]

    assert host.run(["hostname"]).stdout.strip() == "node-of-ip-10-88-0-10"
    assert host.run(["id", "-u"]).stdout.strip() == "0"
    assert json.loads(host.run(["cloud-init", "status", "--format=json"]).stdout)["errors"] == []
    assert host.run(["systemctl", "--failed", "--quiet", "--no-legend"]).stdout == ""


def test_nothing_of_the_cluster_runs_before_the_nodes_boot_starts_it(machine: Machine) -> None:
    running = machine.hosts[0].run(["ps", "-eo", "comm="]).stdout.split()

    assert not {"beam.smp", "epmd", "consul"} & set(running)


def test_each_host_has_an_identity_and_no_secret_of_its_image(machine: Machine) -> None:
    identities = {host.run(["cat", "/etc/machine-id"]).stdout for host in machine.hosts}

    assert len(identities) == 2
    assert machine.hosts[0].run(["test", "-e", "/var/lib/rabbitmq/.erlang.cookie"], check=False).returncode == 1


def test_awss_names_lead_to_the_emulator_and_its_certificate_is_trusted(machine: Machine) -> None:
    machine.apply(machine.setup(*machine.hosts))

    said = machine.hosts[1].run(["curl", "-sS", "--max-time", "5", "https://sts.eu-west-1.amazonaws.com/"])

    assert said.stdout == "sts.eu-west-1.amazonaws.com"


def test_names_in_the_vpc_resolve_and_others_do_not(machine: Machine) -> None:
    host = machine.hosts[0]

    def resolve(name: str) -> str:
        return " ".join(host.run(["getent", "hosts", name], check=False).stdout.split()[:1])

    assert resolve("ip-10-88-1-10") == "10.88.1.10"
    assert resolve("ec2.eu-west-1.amazonaws.com") == "10.88.0.2"
    assert resolve("example.com") == ""


def test_an_access_point_is_shared_by_hosts_and_needs_the_right_options(machine: Machine) -> None:
    (machine.paths.efs / "fs-1/fsap-1").mkdir(parents=True)
    options = "tls,iam,accesspoint=fsap-1,noresvport,_netdev"
    for host in machine.hosts:
        host.run(["mkdir", "-p", "/mnt/rabbitmq"])
        assert host.run(["mount", "-t", "efs", "fs-1:/", "/mnt/rabbitmq"], check=False).returncode == 32
        host.run(["mount", "-t", "efs", "-o", options, "fs-1:/", "/mnt/rabbitmq"])

    machine.hosts[0].run(["sh", "-c", "echo kept > /mnt/rabbitmq/marker"])

    assert machine.hosts[1].run(["cat", "/mnt/rabbitmq/marker"]).stdout == "kept\n"
    locked = ["flock", "--nonblock", "/mnt/rabbitmq/lock", "sleep", "1"]
    holder = threading.Thread(target=machine.hosts[0].run, args=(locked,))
    holder.start()
    wait_for(lambda: (machine.paths.efs / "fs-1/fsap-1/lock").exists(), 5)
    second = machine.hosts[1].run(["flock", "--nonblock", "/mnt/rabbitmq/lock", "true"], check=False)
    holder.join()
    assert second.returncode == 1


def test_the_proxy_balances_over_healthy_targets_and_follows_changes_without_a_restart(machine: Machine) -> None:
    first, second = machine.hosts
    wait_for(lambda: machine.apply(machine.setup(first)) == {first.spec.instance_id}, 10)
    process = (machine.paths.state / "run/haproxy.json").read_text()

    assert machine.apply(machine.setup(first, second)) == {first.spec.instance_id}  # not before it was checked
    wait_for(lambda: len(machine.apply(machine.setup(first, second))) == 2, 0.4)  # which happens at once

    assert machine.fetch() == "user-data ran"
    assert (machine.paths.state / "run/haproxy.json").read_text() == process


def test_a_moved_listener_keeps_what_is_known_about_the_targets(machine: Machine) -> None:
    living = {host.spec.instance_id for host in machine.hosts}
    before = machine.setup(*machine.hosts, dead=True)
    wait_for(lambda: machine.apply(before) == living, 10)

    moved = machine.setup(*machine.hosts, port=5673, dead=True)
    assert machine.apply(moved) == living  # at once: neither forgotten nor, the dead one, taken for healthy

    assert [machine.fetch(5673) for _ in range(4)] == ["user-data ran"] * 4
    machine.apply(machine.setup(*machine.hosts))


def test_a_port_in_use_is_an_error_that_names_the_holder(machine: Machine) -> None:
    machine.apply(machine.setup(*machine.hosts))
    with (
        socket.create_server((machine.paths.nlb_address(), 5674)),
        pytest.raises(LabError, match=r"5674: \S+ \(process \d+\) does already"),
    ):
        machine.apply(machine.setup(*machine.hosts, port=5674))

    assert machine.fetch() == "user-data ran"


def arrives(machine: Machine, host: Host) -> bool:
    """Whether the VPC's own addresses take packets from a host."""
    route = ["route", "get", str(machine.paths.resolver), "from", str(host.spec.address)]
    command = ["ip", "-n", machine.paths.vpc_namespace, *route, "iif", bridge_of(host.spec.subnet)]
    return run(command, check=False).returncode == 0


def test_a_zone_cut_off_reaches_nothing_but_its_metadata_until_it_is_healed(machine: Machine) -> None:
    first, second = machine.hosts
    setup = machine.setup(first, second)
    machine.apply(setup)
    fetch = ["curl", "-sS", "--max-time", "1", f"http://{second.spec.address}:8080/proof"]
    endpoint = ["curl", "-sS", "--max-time", "1", "--insecure", "https://10.88.0.2/"]
    token = ["curl", "-sS", "--max-time", "1", "-X", "PUT", "-H", "X-aws-ec2-metadata-token-ttl-seconds: 60"]

    machine.network.cut("eu-west-1b")
    try:
        assert machine.network.cut_zones() == ["eu-west-1b"]
        assert first.run(fetch, check=False).returncode == 28  # curl's "timed out": silence, not a refusal
        assert second.run(endpoint, check=False).returncode == 28
        assert first.run(endpoint, check=False).returncode == 0
        assert not arrives(machine, second)  # not even what needs no answer
        assert arrives(machine, first)
        assert second.run([*token, "http://169.254.169.254/latest/api/token"]).stdout
        wait_for(lambda: machine.apply(setup) == {first.spec.instance_id}, 10)
    finally:
        machine.network.heal("eu-west-1b")

    assert machine.network.cut_zones() == []
    assert first.run(fetch).stdout == "user-data ran\n"
    wait_for(lambda: len(machine.apply(setup)) == 2, 10)


def test_a_frozen_host_stands_still_and_goes_on(machine: Machine) -> None:
    host = machine.hosts[1]
    fetch = ["curl", "-sS", "--max-time", "1", f"http://{host.spec.address}:8080/proof"]

    host.freeze()
    assert host.frozen
    assert host.alive
    assert machine.hosts[0].run(fetch, check=False).returncode == 28

    host.thaw()
    assert machine.hosts[0].run(fetch).stdout == "user-data ran\n"


def test_a_command_that_takes_too_long_is_ended_on_the_host(machine: Machine) -> None:
    host = machine.hosts[0]

    with pytest.raises(LabError, match=r"`sleep 4242` on host \S+ did not end within 0\.2 s"):
        host.run(["sleep", "4242"], timeout=0.2)

    assert "sleep 4242" not in host.run(["ps", "-eo", "args="]).stdout
    assert host.run(["sh", "-c", "exit 124"], check=False).returncode == 124


def test_a_host_that_lost_power_is_replaced_under_the_same_address(machine: Machine) -> None:
    spec = replace(machine.specs[1], instance_id="i-000000000000000ff")
    second = Host.load(machine.hosts[1].spec.instance_id, machine.paths)  # as another run of the lab would find it
    second.power_loss()
    machine.metadata.withdraw(second.spec.instance_id)

    assert not second.alive
    assert [host.spec.instance_id for host in Host.all(machine.paths)] == [machine.hosts[0].spec.instance_id]
    with pytest.raises(LabError, match="does not run"):
        second.run(["true"])

    replacement = machine.start(spec)
    fetch = ["curl", "-sS", "--max-time", "1", f"http://{spec.address}:8080/proof"]
    assert machine.hosts[0].run(fetch).stdout == "user-data ran\n"
    machine.hosts[1] = replacement


def test_a_graceful_stop_lets_services_end_in_order(machine: Machine) -> None:
    spec = replace(machine.specs[1], instance_id="i-000000000000000fe", address=IPv4Address("10.88.1.20"))
    host = machine.start(spec)
    (machine.paths.efs / "proof").mkdir(parents=True)
    unit = "--property=ExecStop=touch /run/lab-efs/proof/stopped"
    host.run(["systemd-run", "--quiet", unit, "--property=Type=exec", "sleep", "600"])

    host.stop(20)

    assert (machine.paths.efs / "proof/stopped").exists()
    assert not host.alive
    assert "Reached target" in host.console()


def test_what_a_crashed_lab_left_is_found_and_named(machine: Machine) -> None:
    found = "\n".join(leftovers(machine.paths))

    assert "(dnsmasq)" in found
    assert "(haproxy)" in found
    assert f"control group {machine.paths.cgroup(machine.hosts[0].spec.instance_id)}" in found
    assert f"network namespace {machine.paths.vpc_namespace}" in found
    assert f"mount {machine.hosts[0].root}" in found
