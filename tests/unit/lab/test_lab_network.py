from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from lab.network import Network, bridge_of, cable_of, mac_of
from lab.paths import LabPaths
from lab.system import LabError

SUBNETS = [("10.77.0.0/24", "eu-west-1a"), ("10.77.1.0/24", "eu-west-1b"), ("10.77.2.0/24", "eu-west-1b")]


@pytest.fixture
def paths(tmp_path: Path) -> LabPaths:
    return LabPaths("x", "eu-west-1", 4566, IPv4Network("10.77.0.0/16"), tmp_path / "state", tmp_path / "cache")


def test_interface_names_fit_the_kernel_and_tell_hosts_and_subnets_apart() -> None:
    bridges = {bridge_of(IPv4Network(cidr)) for cidr in ("255.255.255.0/28", "10.77.0.0/24", "10.77.0.16/28")}
    cables = {cable_of(f"i-{number:017x}") for number in (1, 2, 2**40 - 1)}

    assert len(bridges) == len(cables) == 3
    assert all(len(name) <= 15 for name in bridges | cables)


def test_a_hosts_hardware_address_follows_from_its_address_and_is_locally_administered() -> None:
    assert mac_of(IPv4Address("10.77.1.10")) == "02:00:0a:4d:01:0a"


def test_a_subnet_outside_the_vpc_is_refused(paths: LabPaths) -> None:
    with pytest.raises(LabError, match=r"outside the VPC's network 10\.77\.0\.0/16: 10\.78\.0\.0/24"):
        Network(paths, [*SUBNETS, ("10.78.0.0/24", "eu-west-1c")])


def test_the_resolver_knows_aws_and_the_hosts_and_nothing_else(paths: LabPaths) -> None:
    options = Network(paths, SUBNETS).resolver_options()

    assert "--address=/amazonaws.com/10.77.0.2" in options
    assert "--synth-domain=eu-west-1.compute.internal,10.77.0.0/16,ip-" in options
    assert "--address=/#/" in options
    assert "--no-resolv" in options


def test_cutting_a_zone_concerns_all_its_subnets_and_both_directions(paths: LabPaths) -> None:
    rules = Network(paths, SUBNETS)._cut_rules("eu-west-1b")

    assert sorted(rule.removeprefix("preference 10 ") for rule in rules) == [
        "iif br-0a4d0100 blackhole",
        "iif br-0a4d0200 blackhole",
        "to 10.77.1.0/24 blackhole",
        "to 10.77.2.0/24 blackhole",
    ]


def test_a_zone_the_vpc_does_not_have_is_named_with_those_it_has(paths: LabPaths) -> None:
    with pytest.raises(LabError, match=r"no subnet in eu-west-1z.*eu-west-1a, eu-west-1b"):
        Network(paths, SUBNETS).cut("eu-west-1z")
