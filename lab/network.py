"""The VPC: one network namespace with a bridge a subnet, and routing between them.

Every subnet's bridge has the address of a VPC's router (base plus one), the resolver is at the VPC's base plus two. A
host is a namespace of its own with one cable (veth) into its subnet's bridge. The machine's own network stays as it is.
"""

import ctypes
import os
import re
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from lab.layer import internal_domain
from lab.paths import NAMESPACE_ROOT, LabPaths
from lab.processes import Process, spawn, tail
from lab.system import LabError, require_root, run

METADATA_ADDRESS = "169.254.169.254"
_CUT_PREFERENCE = 10  # of the routing rules that cut a zone off: before all others
_LOCAL_PREFERENCE = 100
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Subnet:
    """One subnet of the VPC and its availability zone."""

    cidr: IPv4Network
    az: str

    @property
    def bridge(self) -> str:
        """Its bridge. Interface names have 15 characters at most, so it is the network's address in hexadecimal."""
        return bridge_of(self.cidr)


def bridge_of(subnet: IPv4Network) -> str:
    """Name of a subnet's bridge."""
    return f"br-{int(subnet.network_address):08x}"


def cable_of(instance_id: str) -> str:
    """Name of the VPC's end of a host's cable."""
    return f"veth-{instance_id.removeprefix('i-')[-10:]}"


def mac_of(address: IPv4Address) -> str:
    """A host's hardware address. It follows from the IP address: one used again needs no neighbour to relearn it."""
    return "02:" + ":".join(f"{byte:02x}" for byte in (0, *address.packed))


def namespace_exists(name: str) -> bool:
    """True when there is a network namespace with this name."""
    return (NAMESPACE_ROOT / name).exists()


def delete_namespace(name: str) -> None:
    """Remove a network namespace, if there is one."""
    if namespace_exists(name):
        run(["ip", "netns", "delete", name])


def in_namespace(name: str, *argv: str) -> list[str]:
    """The command that runs a program inside a network namespace, with the mounts of the machine.

    `ip netns exec` would give it mounts of its own, and these would keep every host's file system busy.
    """
    return ["nsenter", f"--net={NAMESPACE_ROOT / name}", "--", *argv]


def enter_namespace(name: str) -> None:
    """Move the calling thread, which is to do nothing else, into a network namespace. Raises OSError."""
    handle = os.open(NAMESPACE_ROOT / name, os.O_RDONLY)
    try:
        if _libc.setns(handle, _CLONE_NEWNET) != 0:  # os.setns came with Python 3.12
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    finally:
        os.close(handle)


def socket_in_namespace(name: str, make: Callable[[], socket.socket]) -> socket.socket:
    """What `make` makes inside a network namespace, for use by this process outside of it. Raises its OSError.

    A socket belongs to the namespace of the thread that made it; so a thread enters, makes it, and ends.
    """
    made: list[socket.socket] = []
    failed: list[OSError] = []

    def work() -> None:
        try:
            enter_namespace(name)
            made.append(make())
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=work, name=f"socket-{name}")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


def _ip(namespace: str, *commands: str, force: bool = False) -> None:
    """Several `ip` commands in one go; `force` goes on after one that fails."""
    options = ["-force"] if force else []
    run(["ip", "-n", namespace, *options, "-batch", "-"], stdin="\n".join(commands) + "\n", check=not force)


class Network:
    """The VPC of one lab. `up` and `down` may be called in any state."""

    def __init__(self, paths: LabPaths, subnets: Sequence[tuple[str, str]]) -> None:
        """`subnets`: CIDR and availability zone of each."""
        self.paths = paths
        self.namespace = paths.vpc_namespace
        self.subnets = [Subnet(IPv4Network(cidr), az) for cidr, az in subnets]
        outside = [str(subnet.cidr) for subnet in self.subnets if not subnet.cidr.subnet_of(paths.vpc_cidr)]
        if outside:
            raise LabError(f"subnets outside the VPC's network {paths.vpc_cidr}: {', '.join(outside)}")

    # -- the VPC -----------------------------------------------------------------------------------------------------

    def up(self) -> None:
        """Namespace, bridges, routing and the resolver; what is there already stays."""
        require_root()
        self.paths.create()
        if not namespace_exists(self.namespace):
            run(["ip", "netns", "add", self.namespace])
        _ip(self.namespace, "link set lo up", f"addr replace {self.paths.resolver}/32 dev lo")
        rules = run(["ip", "-n", self.namespace, "rule", "show"]).stdout
        if f"{_LOCAL_PREFERENCE}:" not in rules:
            # The rule for the namespace's own addresses moves back, so that a cut can come before it.
            _ip(self.namespace, f"rule add preference {_LOCAL_PREFERENCE} lookup local", "rule delete preference 0")
        run(in_namespace(self.namespace, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"))
        present = run(["ip", "-n", self.namespace, "-brief", "link", "show", "type", "bridge"]).stdout
        for subnet in self.subnets:
            if subnet.bridge not in present:
                _ip(
                    self.namespace,
                    f"link add {subnet.bridge} type bridge",
                    f"link set {subnet.bridge} alias {subnet.az}={subnet.cidr}",
                    f"addr add {subnet.cidr.network_address + 1}/{subnet.cidr.prefixlen} dev {subnet.bridge}",
                    f"link set {subnet.bridge} up",
                )
        self._start_resolver()

    def down(self) -> None:
        """Remove the resolver, the namespace and with it the bridges."""
        if resolver := Process.load(self.paths.process("dnsmasq")):
            resolver.end()
        self.paths.process("dnsmasq").unlink(missing_ok=True)
        delete_namespace(self.namespace)

    def _start_resolver(self) -> None:
        running = Process.load(self.paths.process("dnsmasq"))
        if running and running.alive:
            return
        log = self.paths.logs / "dnsmasq.log"
        process = spawn(
            in_namespace(self.namespace, "dnsmasq", "--keep-in-foreground", *self.resolver_options()), log=log
        )
        process.save(self.paths.process("dnsmasq"))
        if process.wait(0.2):
            raise LabError(f"the VPC's resolver (dnsmasq) did not start. {log} ends with:\n{tail(log)}")

    def resolver_options(self) -> list[str]:
        """dnsmasq as AmazonProvidedDNS: AWS's endpoints, the hosts' private names, and no word about anything else."""
        return [
            "--conf-file=/dev/null",
            "--no-hosts",
            "--no-resolv",
            "--log-facility=-",
            "--pid-file=",
            "--bind-interfaces",
            "--except-interface=none",
            f"--listen-address={self.paths.resolver}",
            f"--address=/amazonaws.com/{self.paths.resolver}",
            f"--synth-domain={internal_domain(self.paths.region)},{self.paths.vpc_cidr},ip-",
            "--address=/#/",
        ]

    # -- faults ------------------------------------------------------------------------------------------------------

    def cut(self, az: str) -> None:
        """Isolate an availability zone: nothing gets in or out of it, not even to AWS's endpoints.

        Its hosts still reach each other and their own metadata service. Their connections see no error, only silence.
        """
        self._subnets_of(az)
        self.heal(az)
        _ip(self.namespace, *(f"rule add {rule}" for rule in self._cut_rules(az)))

    def heal(self, az: str) -> None:
        """Undo `cut`. Harmless when the zone is not cut off."""
        _ip(self.namespace, *(f"rule delete {rule}" for rule in self._cut_rules(az)), force=True)

    def cut_zones(self) -> list[str]:
        """The zones that are cut off."""
        rules = run(["ip", "-n", self.namespace, "rule", "show"]).stdout
        cut = set(re.findall(rf"^{_CUT_PREFERENCE}:\s.*iif (\S+)", rules, re.MULTILINE))
        return sorted({subnet.az for subnet in self.subnets if subnet.bridge in cut})

    def _cut_rules(self, az: str) -> list[str]:
        # Both directions: packets that arrive from the zone, and packets to it, also the namespace's own.
        return [
            rule
            for subnet in self._subnets_of(az)
            for rule in (
                f"preference {_CUT_PREFERENCE} iif {subnet.bridge} blackhole",
                f"preference {_CUT_PREFERENCE} to {subnet.cidr} blackhole",
            )
        ]

    def _subnets_of(self, az: str) -> list[Subnet]:
        found = [subnet for subnet in self.subnets if subnet.az == az]
        if not found:
            zones = ", ".join(sorted({subnet.az for subnet in self.subnets}))
            raise LabError(f"the VPC has no subnet in {az}. Its availability zones: {zones}.")
        return found


def attach(paths: LabPaths, instance_id: str, address: IPv4Address, subnet: IPv4Network) -> None:
    """A namespace for a host: a cable into its subnet, its address and route, the metadata service's address."""
    namespace = paths.host_namespace(instance_id)
    cable = cable_of(instance_id)
    run(["ip", "netns", "add", namespace])
    _ip(
        paths.vpc_namespace,
        f"link add {cable} type veth peer name eth0 address {mac_of(address)} netns {namespace}",
        f"link set {cable} master {bridge_of(subnet)}",
        f"link set {cable} up",
    )
    _ip(
        namespace,
        "link set lo up",
        f"addr add {METADATA_ADDRESS}/32 dev lo",
        f"addr add {address}/{subnet.prefixlen} dev eth0",
        "link set eth0 up",
        f"route add default via {subnet.network_address + 1}",
    )


def unplug(paths: LabPaths, instance_id: str) -> None:
    """Pull a host's cable: from now on no packet of it arrives anywhere."""
    run(["ip", "-n", paths.vpc_namespace, "link", "set", cable_of(instance_id), "down"], check=False)


def detach(paths: LabPaths, instance_id: str) -> None:
    """Remove a host's cable and namespace, if they are there."""
    run(["ip", "-n", paths.vpc_namespace, "link", "delete", cable_of(instance_id)], check=False)
    delete_namespace(paths.host_namespace(instance_id))
