from pathlib import Path

import pytest

from lab.apt import debian_mirror, sources
from lab.system import LabError


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "os-release").write_text('NAME="Debian GNU/Linux"\nVERSION_CODENAME=bookworm\nID=debian\n')
    return tmp_path


def mirror(machine: Path) -> str:
    return debian_mirror(machine, machine / "os-release")


def test_the_mirror_is_read_from_the_deb822_notation(machine: Path) -> None:
    (machine / "sources.list.d/debian.sources").write_text(
        "Types: deb deb-src\n# a snapshot\nURIs: http://mirror.test/debian/\nSuites: bookworm bookworm-updates\n"
        "Components: main\n contrib\n\n"
        "Types: deb\nURIs: http://security.test/debian-security\nSuites: bookworm-security\nComponents: main\n"
    )

    assert mirror(machine) == "http://mirror.test/debian"
    assert [source.suite for source in sources(machine)] == ["bookworm", "bookworm-updates", "bookworm-security"]
    assert sources(machine)[0].components == ("main", "contrib")


def test_the_mirror_is_read_from_the_one_line_notation(machine: Path) -> None:
    (machine / "sources.list").write_text(
        "# deb http://commented.test/debian bookworm main\n"
        "deb-src http://sources.test/debian bookworm main\n"
        "deb [arch=amd64 signed-by=/usr/share/keyrings/x.gpg] https://mirror.test/debian bookworm main contrib # mine\n"
    )

    assert mirror(machine) == "https://mirror.test/debian"


def test_another_vendors_source_is_not_taken_for_debian(machine: Path) -> None:
    (machine / "sources.list.d/a.list").write_text("deb https://vendor.test/apt cloud-sdk-bookworm main\n")
    (machine / "sources.list.d/b.sources").write_text(
        "Types: deb\nURIs: https://off.test/debian\nSuites: bookworm\nComponents: main\nEnabled: no\n"
    )

    with pytest.raises(LabError, match="names no http, https or file source with component main of Debian bookworm"):
        mirror(machine)


def test_a_machine_that_follows_stable_has_a_mirror_too(machine: Path) -> None:
    (machine / "sources.list").write_text("deb http://mirror.test/debian stable main\n")

    assert mirror(machine) == "http://mirror.test/debian"
