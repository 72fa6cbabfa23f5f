"""The programs: each file proven before anything is installed. A mismatch stops the boot."""

import pytest

from node import artifacts
from node.boot_context import Boot
from node.commands import Result
from node.errors import NotYet, Refusal
from node.install import consul_version, distribution_of, is_version
from stacks.environment import Environment
from tests.unit.node.amazon_linux import CONTENT, FINGERPRINT, LISTING, AmazonLinux, sha256, zipped
from tests.unit.node.world import PROJECT, World, install_on

ENVIRONMENTS = ("local", "development", "staging", "production")


# -- what is fetched ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_node_asks_for_exactly_what_the_mirror_stores(name: str) -> None:
    environment = Environment.load(name, PROJECT / "environments")
    mirrored = {(file.key, file.url, file.sha256) for file in environment.versions.downloads(environment.architecture)}
    profile = environment.versions.model_dump(mode="json")
    programs = ("rabbitmq", "erlang", "delayed_plugin", "consul")
    wanted = [artifacts.program(profile, program, environment.architecture) for program in programs]
    asked = {(item.key, item.url, item.sha256) for item in wanted if item}
    asked |= {(item.signing_key.key, item.signing_key.url, None) for item in wanted if item and item.signing_key}
    assert asked == mirrored
    assert bool(asked) is (name != "local")


# -- Amazon Linux ------------------------------------------------------------------------------------------------------


def test_everything_is_fetched_verified_and_installed(amazon: AmazonLinux) -> None:
    assert amazon.install()
    assert [name.split("-")[0] for name in amazon.packages] == ["erlang", "rabbitmq"]
    assert amazon.places.paths.consul_program.read_bytes() == b"#!consul"
    assert amazon.places.paths.consul_program.stat().st_mode & 0o777 == 0o755
    [plugin] = amazon.places.paths.plugins.iterdir()
    assert plugin.name.startswith("rabbitmq_delayed_message_exchange-")
    checked = [call[-1] for call in amazon.programs.ran("rpmkeys") if "--checksig" in call]
    assert len(checked) == 2


def test_a_second_boot_installs_and_fetches_nothing(amazon: AmazonLinux) -> None:
    amazon.install()
    amazon.programs.calls.clear()
    amazon.places.upstream.asked.clear()
    assert amazon.install()
    assert amazon.programs.ran("dnf") == []
    assert amazon.places.upstream.asked == []


def test_a_mirrored_profile_needs_no_way_out_of_the_vpc(amazon: AmazonLinux) -> None:
    for program, content in CONTENT.items():
        amazon.serve(program, content, mirrored=True)
    assert amazon.install()
    assert amazon.places.upstream.asked == []


@pytest.mark.parametrize("program", ["consul", "delayed_plugin"])
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_wrong_checksum_stops_the_boot_before_anything_is_installed(
    program: str, mirrored: bool, amazon: AmazonLinux
) -> None:
    amazon.serve(program, b"something else", mirrored=mirrored)
    with pytest.raises(Refusal, match=f"SHA-256 of {program} is {sha256(b'something else')}, expected") as refused:
        amazon.install()
    assert refused.value.where.startswith("s3://" if mirrored else "https://")
    assert amazon.packages == []
    assert not amazon.places.paths.consul_program.exists()
    assert not amazon.places.paths.plugins.exists()


def test_a_wrong_download_is_thrown_away_so_that_the_next_boot_fetches_again(amazon: AmazonLinux) -> None:
    amazon.serve("consul", b"broken")
    with pytest.raises(Refusal):
        amazon.install()
    amazon.serve("consul", zipped())
    assert amazon.install()


def test_a_key_with_another_fingerprint_is_not_used(amazon: AmazonLinux) -> None:
    amazon.programs.on("gpg", output=LISTING.replace(FINGERPRINT, "F" * 40))
    with pytest.raises(Refusal, match=f"does not hold the key {FINGERPRINT}"):
        amazon.install()
    assert amazon.packages == []


def test_the_fingerprint_of_a_subkey_is_not_the_keys(amazon: AmazonLinux) -> None:
    other = LISTING.replace(FINGERPRINT, "F" * 40)
    amazon.programs.on("gpg", output=other + LISTING.replace("pub:", "sub:"))
    with pytest.raises(Refusal, match="does not hold the key"):
        amazon.install()


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("x.rpm:\n    Header SHA256 digest: OK\n    Payload SHA256 digest: OK", 0),  # not signed
        ("x.rpm:\n    Header V4 RSA/SHA256 Signature, key ID 11111111: NOKEY", 1),  # signed by somebody else
        ("x.rpm:\n    Header V4 RSA/SHA256 Signature, key ID 6026dfca: BAD", 1),
        ("x.rpm:\n    Header V4 RSA/SHA256 Signature, key ID 6026dfca: OK\n    MD5 digest: BAD", 1),
        ("x.rpm:\n  V4 RSA/SHA256 Signature, key ID 6026dfca: OK\n  V3 RSA Signature, key ID 1: NOKEY", 0),
    ],
)
def test_a_package_that_the_pinned_key_did_not_sign_is_not_installed(
    output: str, code: int, amazon: AmazonLinux
) -> None:
    amazon.checksig(output, code)
    with pytest.raises(Refusal, match=f"is not signed by .* \\({FINGERPRINT}\\)"):
        amazon.install()
    assert amazon.packages == []


def test_a_file_that_nothing_vouches_for_is_not_installed(amazon: AmazonLinux) -> None:
    amazon.versions["consul"]["sha256"] = None  # and a signing key alone proves nothing of a zip
    with pytest.raises(Refusal, match="nothing proves that"):
        amazon.install()


@pytest.mark.parametrize("content", [b"no zip", zipped("readme.txt")])
def test_an_archive_without_the_program_is_refused(content: bytes, amazon: AmazonLinux) -> None:
    amazon.versions["consul"]["sha256"] = sha256(content)
    amazon.serve("consul", content)
    with pytest.raises(Refusal, match="holds no program `consul`"):
        amazon.install()


def test_a_package_of_another_version_than_its_name_says_is_noticed(amazon: AmazonLinux) -> None:
    amazon.programs.react("dnf", reaction=lambda _: Result(0, "Nothing to do."))
    with pytest.raises(Refusal, match="rabbitmq is not installed, the profile says"):
        amazon.install()


def test_a_dnf_that_fails_is_tried_again(amazon: AmazonLinux) -> None:
    amazon.programs.on("dnf", code=1, output="Curl error (28)")
    with pytest.raises(NotYet, match="Curl error"):
        amazon.install()


def test_the_distributions_own_packages_are_not_for_amazon_linux(amazon: AmazonLinux) -> None:
    amazon.versions["erlang"]["source"] = "distribution"
    with pytest.raises(Refusal, match="Amazon Linux has no such package"):
        amazon.install()


# -- a host image with packages of its own -----------------------------------------------------------------------------


def test_versions_of_the_image_are_checked_all_at_once(world: World, debian: Boot) -> None:
    world.programs.on("dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server", output="4.1.0-1")
    world.programs.on("consul", "version", code=127)
    with pytest.raises(Refusal) as refused:
        install_on(debian)
    assert "rabbitmq is 4.1.0-1, the profile says 4.0.5" in refused.value.what
    assert "consul is not installed" in refused.value.what


def test_an_unknown_distribution_is_refused(world: World, debian: Boot) -> None:
    world.paths.os_release.write_text("ID=gentoo\n")
    with pytest.raises(Refusal, match="no way to install on gentoo"):
        install_on(debian)


def test_the_user_consul_is_made_if_it_is_missing(world: World, debian: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise KeyError(name)

    monkeypatch.setattr("pwd.getpwnam", missing)
    world.programs.on("useradd")
    install_on(debian)
    [command] = world.programs.ran("useradd")
    assert "/usr/sbin/nologin" in command


@pytest.mark.parametrize(
    ("found", "wanted", "same"),
    [
        ("4.2.9", "4.2.9", True),
        ("4.2.9-1.el8", "4.2.9", True),
        ("27.3.4.1+dfsg-1", "27.3.4.1", True),
        ("4.2.90", "4.2.9", False),
        ("4.2.9.1", "4.2.9", False),
        ("4.2", "4.2.9", False),
        ("", "4.2.9", False),
    ],
)
def test_a_release_is_told_from_one_whose_name_begins_alike(found: str, wanted: str, same: bool) -> None:
    assert is_version(found, wanted) is same


def test_what_programs_say_of_themselves_is_read() -> None:
    assert consul_version("Consul v1.8.7+dfsg1\nProtocol 2 spoken") == "1.8.7+dfsg1"
    assert consul_version("consul: no such program") == ""
    assert distribution_of('NAME="Amazon Linux"\nID="amzn"\nID_LIKE="fedora"\n') == "amzn"
    assert distribution_of("PRETTY_NAME=x\nID=debian\n") == "debian"
    assert distribution_of("") == ""
