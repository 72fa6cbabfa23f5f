"""The lab's one process: the emulated AWS, the supervisor, the metadata services. `python -m lab.daemon ENVIRONMENT`.

Nothing of it survives its end: what it leaves on the machine, the next `up` or `down` removes.
"""

import logging
import os
import signal
import sys
import threading
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab import pki
from lab.control import ControlServer
from lab.emulator import Emulator, Machine
from lab.haproxy import HAProxy
from lab.health import Checker
from lab.host import Host
from lab.image import ensure_image
from lab.imds import Credentials, InstanceView, MetadataService
from lab.layer import build_layer
from lab.network import Network, mac_of
from lab.paths import LabPaths
from lab.supervisor import Base, Machinery, Supervisor
from lab.system import LabError
from stacks.environment import Environment

log = logging.getLogger("lab.daemon")

DELAYED_PLUGIN = "DELAYED_PLUGIN"
"""The environment variable that names the delayed-message plugin's file."""

RETRY = 15.0
"""Seconds until a failed image is tried again: a mirror may have had a moment."""

CREDENTIALS_LIFE = 6 * 3600
"""Seconds for which an instance's credentials are said to be valid."""


class Daemon:
    """All parts of one lab, put together."""

    def __init__(self, environment: Environment) -> None:
        self.paths = paths = LabPaths.of(environment)
        self._architecture = environment.architecture
        for directory in (paths.state, paths.logs, paths.efs, paths.hosts):
            directory.mkdir(parents=True, exist_ok=True)
        paths.state.chmod(0o755)
        self.base = Base(pki.issue(paths))
        self._building = threading.Thread(target=self._build, name="image", daemon=True)
        self._building.start()
        addresses = {"network": paths.nlb_address, "application": paths.alb_address}
        self.emulator = Emulator(paths.region, lambda kind, number: addresses[kind](number))
        self.metadata = MetadataService(self.view)
        machinery = Machinery(
            make_host=lambda spec: Host(spec, paths),
            hosts=lambda: Host.all(paths),
            raise_network=lambda subnets: Network(paths, subnets).up(),
            metadata=self.metadata,
            proxy=HAProxy(paths),
            checks=Checker(paths.vpc_namespace),
        )
        self.supervisor = Supervisor(paths, self.emulator, machinery, self.base)
        self._server = self.emulator.listen("127.0.0.1", paths.endpoint_port)

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set."""
        self._server.start()
        handlers = {"ping": lambda _: "pong", "status": self._status, "kill": self._kill, "terminate": self._terminate}
        control = ControlServer(self.paths, handlers)
        log.info("AWS is at http://localhost:%s", self.paths.endpoint_port)
        self.supervisor.run(stop)
        control.close()
        self._server.stop()

    # -- the hosts' image --------------------------------------------------------------------------------------------

    def _build(self) -> None:
        plugin = os.environ.get(DELAYED_PLUGIN)
        while True:
            try:
                image = ensure_image(self.paths.cache, self._report)
                self.base.image = image
                self.base.layer = build_layer(
                    self.paths, image, self.base.pki.ca_pem, delayed_plugin=Path(plugin) if plugin else None
                )
                self._report("host image: ready")
                return
            except Exception as error:
                log.error("host image: %s", error, exc_info=not isinstance(error, LabError))
                self.base.report = f"host image: {error}"
                time.sleep(RETRY)

    def _report(self, what: str) -> None:
        log.info(what)
        self.base.report = what

    # -- the metadata services ---------------------------------------------------------------------------------------

    def view(self, instance_id: str) -> InstanceView | None:
        """What an instance's metadata service says at this moment."""
        machine = self.emulator.machine(instance_id)
        if machine is None or machine.address is None:
            return None
        return InstanceView(
            instance_id=machine.id,
            address=str(machine.address),
            mac=mac_of(machine.address),
            availability_zone=machine.availability_zone,
            region=self.paths.region,
            account="123456789012",
            instance_type=machine.type,
            image_id=machine.image_id,
            architecture=self._architecture,
            launched=machine.launched,
            user_data=machine.user_data,
            tags=machine.tags,
            role=machine.role,
            credentials=_credentials(machine) if machine.role else None,
            lifecycle_state=machine.target_lifecycle_state,
            subnet_id=machine.subnet_id,
            subnet_cidr=str(machine.subnet_cidr),
            vpc_id=machine.vpc_id,
            vpc_cidr=str(machine.vpc_cidr),
            security_groups=machine.security_groups,
        )

    # -- commands ----------------------------------------------------------------------------------------------------

    def _status(self, _: dict[str, Any]) -> dict[str, Any]:
        hosts = {host.spec.instance_id: host for host in Host.all(self.paths)}
        instances = []
        for machine in self.emulator.machines():
            host = hosts.get(machine.id)
            state = "-" if host is None else "frozen" if host.frozen else "up" if host.alive else "down"
            instances.append(
                {
                    "node": machine.name,
                    "instance_id": machine.id,
                    "availability_zone": machine.availability_zone,
                    "address": str(machine.address) if machine.address else None,
                    "state": machine.state,
                    "lifecycle_state": machine.lifecycle_state,
                    "host": state,
                    "targets": [asdict(target) for target in self.supervisor.targets.get(machine.id, [])],
                    "launched": machine.launched.isoformat(),
                }
            )
        balancers, _groups = self.emulator.load_balancers(self.base.pki.load_balancers)
        return {
            "environment": self.paths.name,
            "endpoint": f"http://localhost:{self.paths.endpoint_port}",
            "image": self.base.report,
            "stacks": [asdict(stack) for stack in self.emulator.stacks()],
            "instances": instances,
            "load_balancers": [
                {"name": b.name, "address": b.address, "ports": [listener.port for listener in b.listeners]}
                for b in balancers
            ],
            "problems": dict(self.supervisor.problems),
        }

    def _kill(self, request: dict[str, Any]) -> None:
        self.supervisor.kill(request["instance_id"], float(request.get("replace_after", 0)))

    def _terminate(self, request: dict[str, Any]) -> None:
        self.emulator.terminate(request["instance_id"])


def _credentials(machine: Machine) -> Credentials:
    """Keys in the form of a role's. The emulator takes any: it does not know who may do what."""
    moment = int(time.time()) // CREDENTIALS_LIFE * CREDENTIALS_LIFE
    begin, end = (datetime.fromtimestamp(at, UTC) for at in (moment, moment + 2 * CREDENTIALS_LIFE))
    return Credentials("ASIALABHOST000000000", "lab", f"lab-{machine.id}", expiration=end, last_updated=begin)


def main(environment: str) -> None:
    """Run the daemon until SIGTERM."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    Daemon(Environment.load(environment)).run(stop)
    if os.getpgrp() == os.getpid():  # an image that is still being built ends with us
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(os.getpgrp(), signal.SIGTERM)


if __name__ == "__main__":
    main(sys.argv[1])
