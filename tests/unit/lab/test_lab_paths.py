from ipaddress import IPv4Network
from pathlib import Path

import pytest

from lab.paths import LabPaths, cache_directory
from lab.system import LabError
from stacks.environment import Environment


def test_the_names_and_addresses_of_the_local_environment_follow_from_its_file(tmp_path: Path) -> None:
    paths = LabPaths.of(Environment.load("local"), state_root=tmp_path, cache=tmp_path / "cache")

    assert paths.state == tmp_path / "local"
    assert paths.vpc_namespace == "local-vpc"
    assert paths.host_namespace("i-0a1b") == "local-i-0a1b"
    assert paths.cgroup("i-0a1b") == "rabbitmq-lab-local-i-0a1b"
    assert str(paths.resolver) == "10.77.0.2"
    assert paths.nlb_address() == "127.77.214.10"  # 4566 % 256 == 214
    assert paths.alb_address(1) == "127.77.214.21"


def test_an_environment_without_an_emulated_aws_has_no_lab() -> None:
    with pytest.raises(LabError, match="production has no aws_endpoint"):
        LabPaths.of(Environment.load("production"))


def test_the_eleventh_load_balancer_of_a_kind_is_refused(tmp_path: Path) -> None:
    paths = LabPaths("x", "eu-west-1", 4566, IPv4Network("10.77.0.0/16"), tmp_path, tmp_path)

    assert paths.nlb_address(9).endswith(".19")
    with pytest.raises(LabError, match="10 load balancers"):
        paths.nlb_address(10)


def test_the_cache_is_where_the_xdg_specification_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/someone")
    assert cache_directory() == Path("/var/cache/someone/rabbitmq-ec2")

    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_directory() == Path("/home/someone/.cache/rabbitmq-ec2")


def test_only_root_can_look_into_the_state_directory(tmp_path: Path) -> None:
    paths = LabPaths("x", "eu-west-1", 4566, IPv4Network("10.77.0.0/16"), tmp_path / "labs" / "x", tmp_path)

    paths.create()

    assert paths.state.stat().st_mode & 0o777 == 0o700
