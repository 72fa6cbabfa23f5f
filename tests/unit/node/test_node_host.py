"""The host below the node code: programs, files, time, metadata, JSON over HTTP."""

import http.server
import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node import commands, journal, loopback
from node.__main__ import main
from node.clock import Clock, parse_stamp, wait_for
from node.commands import NOT_FOUND
from node.errors import NotYet, Refusal
from node.files import Account, directory, give_tree, write
from node.imds import Imds
from node.services import Services
from tests.unit.node.standins import ManualClock, Programs, Systemd
from tests.unit.node.world import mode_of, myself

# -- programs ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("real_programs")
def test_a_programs_output_and_exit_code_come_back() -> None:
    result = commands.run(["sh", "-c", "echo out; echo err >&2; exit 3"], limit=10)
    assert (result.code, result.output, result.ok) == (3, "out\nerr", False)


@pytest.mark.usefixtures("real_programs")
def test_a_program_that_does_not_exist_is_no_traceback() -> None:
    assert commands.run(["/no/such/program"], limit=10).code == NOT_FOUND


@pytest.mark.usefixtures("real_programs")
def test_a_program_that_does_not_end_is_killed_with_its_children_and_what_it_said_is_kept() -> None:
    begun = time.monotonic()
    result = commands.run(["sh", "-c", "sleep 60 & echo $!; wait"], limit=0.2)
    assert time.monotonic() - begun < 5
    assert result.code is None
    child = Path("/proc", result.output.split()[-1], "stat")
    while child.exists() and child.read_text().split()[2] != "Z":  # whoever inherits it may not have buried it yet
        assert time.monotonic() - begun < 5
        time.sleep(0.01)


@pytest.mark.usefixtures("real_programs")
def test_a_daemon_that_a_program_leaves_behind_is_not_waited_for() -> None:
    begun = time.monotonic()
    result = commands.run(["sh", "-c", "sleep 3 & echo started"], limit=10)
    assert time.monotonic() - begun < 2
    assert result.output == "started"


def test_must_says_which_program_failed_and_with_what(programs: Programs) -> None:
    programs.on("umount", code=32, output="target is busy")
    with pytest.raises(NotYet, match=r"umount.*target is busy"):
        commands.must(programs, ["umount", "/mnt/rabbitmq"], limit=5)


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_file_is_written_whole_with_its_mode_and_only_when_something_differs(tmp_path: Path) -> None:
    path = tmp_path / "new/secret"
    assert write(path, "one", mode=0o600, owner=myself())
    assert (path.read_text(), mode_of(path)) == ("one", "0o600")
    assert not write(path, "one", mode=0o600, owner=myself())
    assert write(path, "one", mode=0o644, owner=myself())
    assert mode_of(path) == "0o644"
    assert write(path, b"two", mode=0o640, owner=myself())


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("kept")
    link.symlink_to(target)
    write(link, "new", owner=myself())
    assert (target.read_text(), link.read_text(), link.is_symlink()) == ("kept", "new", False)


def test_a_write_that_fails_leaves_the_old_file_and_no_scraps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write(path, "old", owner=myself())

    def full(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write(path, "new", owner=myself())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_secret_is_never_readable_by_others_not_even_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: seen.append(os.fstat(descriptor).st_mode & 0o077))
    write(tmp_path / "secret", "x", mode=0o600, owner=myself())
    assert seen == [0]


def test_a_directory_gets_its_mode_whatever_it_was_before(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir(mode=0o777)
    directory(tmp_path / "d", mode=0o750, owner=myself())
    assert mode_of(tmp_path / "d") == "0o750"


def test_a_tree_changes_hands_whole_and_its_top_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "top/inner").mkdir(parents=True)
    (tmp_path / "top/inner/file").touch()
    given: list[str] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", lambda path, *_, **__: given.append(Path(path).name))
    assert give_tree(tmp_path / "top", Account(54321, 54321)) == 3
    assert given == ["file", "inner", "top"]


def test_a_tree_in_the_right_hands_is_not_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "walk", lambda *_, **__: pytest.fail("walked"))
    assert give_tree(tmp_path, Account(os.getuid(), os.getgid())) == 0


# -- time --------------------------------------------------------------------------------------------------------------


def test_a_wait_ends_with_its_probe_and_tells_every_round(clock: ManualClock) -> None:
    reasons = iter(["one", "two", None])
    told: list[str] = []
    wait_for(clock, "it", lambda: next(reasons), limit=60, interval=1, tick=told.append)
    assert told == ["one", "two"]


def test_a_wait_gives_up_with_what_is_missing(clock: ManualClock) -> None:
    with pytest.raises(NotYet, match=r"it: gave up after 6\d s: the reason"):
        wait_for(clock, "it", lambda: "the reason", limit=60, interval=1)


def test_a_wait_whose_reason_stays_is_logged_once_a_minute(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(NotYet):
        wait_for(clock, "it", lambda: "the reason", limit=170, interval=1)
    assert caplog.text.count("waiting") == 3


def test_nodes_do_not_knock_in_step(clock: ManualClock) -> None:
    at: list[float] = []

    def probe() -> str | None:
        at.append(clock.passed)
        return "no" if len(at) < 50 else None

    wait_for(clock, "it", probe, limit=100, interval=1)
    gaps = {round(later - earlier, 3) for earlier, later in itertools.pairwise(at)}
    assert len(gaps) > 10
    assert all(0.8 <= gap <= 1.2 for gap in gaps)


def test_stamps_of_other_writers_are_read_too() -> None:
    assert parse_stamp("2026-03-01T12:00:00Z") == parse_stamp("2026-03-01T12:00:00+00:00")
    assert parse_stamp(Clock().stamp()).tzinfo is not None


# -- metadata and loopback ---------------------------------------------------------------------------------------------


class Server(http.server.BaseHTTPRequestHandler):
    """IMDSv2 in small, and a JSON API."""

    tokens: list[str] = []
    valid = "t0"

    def do_PUT(self) -> None:
        type(self).valid = f"t{len(self.tokens)}"
        self.tokens.append(self.headers["X-aws-ec2-metadata-token-ttl-seconds"])
        self._answer(200, self.valid)

    def do_GET(self) -> None:
        if self.path.startswith("/api"):
            self._answer(503, json.dumps({"login": self.headers.get("Authorization")}))
        elif self.headers["X-aws-ec2-metadata-token"] != self.valid:
            self._answer(401, "")
        elif self.path.endswith("/instance-id"):
            self._answer(200, "i-me")
        else:
            self._answer(500 if self.path.endswith("/broken") else 404, "")

    def _answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    Server.tokens.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield int(server.server_address[1])
        server.shutdown()


def test_metadata_is_read_with_one_token_that_is_renewed_when_it_is_refused(port: int) -> None:
    imds = Imds(f"http://127.0.0.1:{port}/latest")
    assert [imds.get("instance-id"), imds.get("instance-id"), imds.get("absent")] == ["i-me", "i-me", None]
    assert len(Server.tokens) == 1
    Server.valid = "another"
    assert imds.get("instance-id") == "i-me"
    assert len(Server.tokens) == 2


def test_metadata_that_is_missing_or_broken_is_not_yet(port: int) -> None:
    imds = Imds(f"http://127.0.0.1:{port}/latest")
    with pytest.raises(NotYet, match="no absent"):
        imds.must("absent")
    with pytest.raises(NotYet, match="HTTP 500"):
        imds.get("broken")
    with pytest.raises(NotYet, match="does not answer"):
        Imds("http://127.0.0.1:1/latest").get("instance-id")


def test_any_status_is_an_answer_and_silence_is_none(port: int) -> None:
    answer = loopback.request("GET", port, "/api", login=("user", "password"))
    assert answer == (503, {"login": "Basic dXNlcjpwYXNzd29yZA=="})
    assert loopback.listens(port)
    assert not loopback.listens(1)
    with pytest.raises(loopback.Unreachable):
        loopback.request("GET", 1, "/")


# -- systemd -----------------------------------------------------------------------------------------------------------


def test_starting_never_blocks_and_stopping_tells_whether_it_is_down(programs: Programs) -> None:
    systemd, services = Systemd(programs), Services(programs)
    services.start("consul.service")
    services.restart("consul.service")
    assert all("--no-block" in command for command in programs.calls)
    assert services.stop("consul.service")
    systemd.states["consul.service"] = "stuck"
    assert not services.stop("consul.service")


def test_states_come_in_order_or_are_unknown(programs: Programs) -> None:
    systemd, services = Systemd(programs), Services(programs)
    systemd.states |= {"a.service": "active", "b.service": "failed"}
    assert services.states("b.service", "a.service", "c.service") == ["failed", "active", "inactive"]
    programs.on("systemctl", "is-active", code=1, output="Failed to connect to bus")
    assert services.states("a.service", "b.service") == ["unknown", "unknown"]


def test_the_last_complaint_of_a_unit_is_found_and_cut(programs: Programs) -> None:
    systemd, services = Systemd(programs), Services(programs)
    systemd.printed["x.service"] = "Error: first\nall is well\n  ERROR: " + "x" * 999 + "\nbye\n"
    assert services.complaint("x.service").startswith("ERROR: xxx")
    assert len(services.complaint("x.service")) == 300
    assert services.complaint("y.service") == ""


def test_a_refusal_says_what_where_and_what_to_do() -> None:
    refusal = Refusal("no marker", "fs-1", "rebuild it")
    assert (str(refusal), refusal.remedy) == ("no marker (in fs-1)", "rebuild it")


def test_the_journal_gets_a_priority_on_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    handlers = list(journal.log.handlers)
    try:
        journal.set_up()
        journal.log.error("one\ntwo")
    finally:
        journal.log.handlers[:] = handlers
    assert capsys.readouterr().out == "<3>one\n<3>two\n"


@pytest.mark.parametrize("arguments", [[], ["bot"], ["boot", "now"]])
def test_the_program_knows_two_commands(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    handlers = list(journal.log.handlers)
    assert main(arguments) == 2
    journal.log.handlers[:] = handlers
    assert "usage: python3 -m node boot|agent" in capsys.readouterr().err
