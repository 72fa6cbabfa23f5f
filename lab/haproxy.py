"""The HAProxy process: told about targets and their health while it runs, reloaded only when a listener changes."""

import contextlib
import csv
import hashlib
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab import loadbalancer
from lab.loadbalancer import SLOTS, UNUSED, Setup, Target, TargetGroup, fail_open, slot
from lab.paths import LabPaths
from lab.ports import require_free
from lab.processes import Process, spawn, tail
from lab.system import LabError, run


class HAProxy:
    """The proxy of one lab. A later run finds the running process again."""

    def __init__(self, paths: LabPaths) -> None:
        self._paths = paths
        self._config = paths.state / "haproxy.cfg"
        self._socket = paths.state / "run" / "haproxy.sock"
        self._state = paths.state / "run" / "haproxy.state"
        self._log = paths.logs / "haproxy.log"
        self._file = paths.process("haproxy")
        self._lock = threading.Lock()

    @property
    def running(self) -> bool:
        """True while the process runs."""
        process = Process.load(self._file)
        return process is not None and process.alive

    def apply(self, setup: Setup) -> None:
        """Make the proxy do this, from whatever it does now. Changed targets alone interrupt nothing.

        Raises `LabError` when a port is taken (naming the holder) or HAProxy refuses the configuration.
        """
        key = self._key(setup)
        with self._lock:
            if not self.running:
                self._start(setup, key)
            elif key != self._applied_key():
                self._reload(setup, key)
            for group in setup.target_groups:
                self._place(group)

    def stop(self) -> None:
        """End the proxy at once, with all its connections."""
        if process := Process.load(self._file):
            process.end()  # SIGTERM to the master stops its worker as well
        for file in (self._file, self._socket, self._state, self._config):
            file.unlink(missing_ok=True)

    # -- process -----------------------------------------------------------------------------------------------------

    def _render(self, setup: Setup, places: loadbalancer.Places | None = None) -> str:
        return loadbalancer.render(setup, self._paths.vpc_namespace, self._socket, self._state, places)

    def _key(self, setup: Setup) -> str:
        certificates = {listener.certificate for balancer in setup.balancers for listener in balancer.listeners}
        certificates.add(setup.front.certificate if setup.front else None)
        digest = hashlib.sha256(self._render(setup).encode())
        for file in sorted(certificates - {None}, key=str):
            digest.update(Path(str(file)).read_bytes())
        return digest.hexdigest()

    def _applied_key(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self._config.read_text().partition("\n")[0].removeprefix("# ")
        return ""

    def _write(self, text: str, key: str) -> None:
        candidate = self._config.with_suffix(".new")
        candidate.parent.mkdir(parents=True, exist_ok=True)
        self._socket.parent.mkdir(parents=True, exist_ok=True)
        candidate.write_text(f"# {key}\n{text}")
        checked = run(["haproxy", "-c", "-f", candidate], check=False)
        if checked.returncode != 0:
            raise LabError(f"HAProxy refuses {candidate}: {(checked.stderr or checked.stdout).strip()}")
        candidate.rename(self._config)

    def _start(self, setup: Setup, key: str) -> None:
        for balancer in setup.balancers:
            for listener in balancer.listeners:
                require_free(balancer.address, listener.port, f"load balancer {balancer.name}")
        self._write(self._render(setup), key)
        self._state.write_text("1\n")  # an empty state: only the format's version
        process = spawn(["haproxy", "-W", "-f", self._config], log=self._log)
        process.save(self._file)
        self._await_worker(None)

    def _reload(self, setup: Setup, key: str) -> None:
        before = self._worker()
        listening = {(row["pxname"]) for rows in self._rows().values() for row in rows if row["svname"] == "FRONTEND"}
        for balancer in setup.balancers:
            for listener in balancer.listeners:
                if f"{balancer.name}:{listener.port}" not in listening:
                    require_free(balancer.address, listener.port, f"load balancer {balancer.name}")
        # The new process takes over addresses from its configuration and health from the state file.
        places = {group.name: self._addresses(group.name) for group in setup.target_groups}
        self._write(self._render(setup, places), key)
        self._state.write_text(self._ask("show servers state"))
        process = Process.load(self._file)
        if process is None or not process.send(signal.SIGUSR2):
            raise LabError(f"HAProxy ended while it was to be reloaded. {self._log} ends with:\n{tail(self._log)}")
        self._await_worker(before)

    def _await_worker(self, before: str | None, timeout: float = 10) -> None:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self.running:
            with contextlib.suppress(LabError):
                if self._worker() != before:
                    return
            time.sleep(0.02)
        raise LabError(f"HAProxy did not {'re' if before else ''}start. {self._log} ends with:\n{tail(self._log, 10)}")

    # -- runtime API -------------------------------------------------------------------------------------------------

    def _ask(self, command: str) -> str:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(5)
                connection.connect(str(self._socket))
                connection.sendall(command.encode() + b"\n")
                answer = b""
                while part := connection.recv(65536):
                    answer += part
        except OSError as error:
            raise LabError(f"HAProxy does not answer at {self._socket}: {error}") from None
        return answer.decode()

    def _tell(self, command: str) -> None:
        answer = self._ask(command).strip()
        # Silence is consent; so are the two remarks about what has changed.
        if answer and not answer.startswith(("IP changed from", "no need to change", "port changed from")):
            raise LabError(f"HAProxy, told `{command}`: {answer}")

    def _worker(self) -> str:
        lines = self._ask("show info").splitlines()
        return next((line for line in lines if line.startswith("Pid:")), "")

    def _rows(self) -> dict[str, list[dict[str, str]]]:
        """`show stat`, by proxy."""
        rows: dict[str, list[dict[str, str]]] = {}
        for row in csv.DictReader(self._ask("show stat").removeprefix("# ").splitlines()):
            rows.setdefault(row["pxname"], []).append(row)
        return rows

    def _addresses(self, group: str, rows: Mapping[str, list[dict[str, str]]] | None = None) -> list[str]:
        """What is in each place of a group now."""
        known = {row["svname"]: row for row in (rows or self._rows()).get(group, [])}
        return [known[slot(n)]["addr"].rpartition(":")[0] if slot(n) in known else UNUSED for n in range(SLOTS)]

    def _place(self, group: TargetGroup) -> None:
        rows = self._rows()
        places = self._addresses(group.name, rows)
        wanted = {target.address: target for target in group.targets}
        for number, address in enumerate(places):
            if address not in wanted and address != UNUSED:
                self._empty(group, number)
                places[number] = UNUSED
        for target in group.targets:
            if target.address not in places:
                number = self._free_place(group, places)
                places[number] = target.address
                self._fill(group, number, target)
        status = {row["svname"]: row["status"] for row in self._rows().get(group.name, [])}
        for target in group.targets:
            number = places.index(target.address)
            self._set_state(group, number, target, status.get(slot(number), ""))

    def _free_place(self, group: TargetGroup, places: Sequence[str]) -> int:
        if UNUSED not in places:
            raise LabError(
                f"target group {group.name} has more than {SLOTS} targets, more than the lab's proxy has room for"
            )
        return places.index(UNUSED)

    def _twins(self, group: TargetGroup, number: int) -> tuple[str, str]:
        return f"{group.name}/{slot(number)}", f"{fail_open(group.name)}/{slot(number)}"

    def _empty(self, group: TargetGroup, number: int) -> None:
        for server in self._twins(group, number):
            self._tell(f"set server {server} state maint")
            self._tell(f"shutdown sessions server {server}")
            self._tell(f"set server {server} addr {UNUSED}")

    def _fill(self, group: TargetGroup, number: int, target: Target) -> None:
        checked, unchecked = self._twins(group, number)
        for server in (checked, unchecked):
            self._tell(f"set server {server} addr {target.address} port {group.port}")
        self._tell(f"set server {unchecked} state ready")
        # In one go: HAProxy takes what becomes ready as healthy, and a new target gets nothing before its first check.
        self._tell(f"set server {checked} state ready; set server {checked} health down")

    def _set_state(self, group: TargetGroup, number: int, target: Target, status: str) -> None:
        checked, _ = twins = self._twins(group, number)
        if target.draining != status.startswith("DRAIN"):
            for server in twins:
                self._tell(f"set server {server} state {'drain' if target.draining else 'ready'}")
        if not target.draining and target.healthy == status.startswith(("DOWN", "DRAIN")):
            self._tell(f"set server {checked} health {'up' if target.healthy else 'down'}")
