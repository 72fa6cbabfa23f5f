"""Health checks of the load balancers' targets, as AWS does them, from inside the VPC.

HAProxy could check, but not so: a new target is checked at once and is healthy after its first success ("it must pass
one health check"), an unhealthy one needs `healthy_threshold` in a row, and a dead one is noticed after
`unhealthy_threshold` failures at the configured interval, no sooner. A draining target is not checked.
"""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lab.loadbalancer import HealthCheck, Target, TargetGroup
from lab.network import enter_namespace

State = Literal["initial", "healthy", "unhealthy", "draining"]


@dataclass(frozen=True)
class TargetHealth:
    """A target's state in ELB's words, and the last check's result."""

    state: State
    detail: str = ""


Health = Mapping[str, Mapping[str, TargetHealth]]
"""By target group's and target's name."""


class Judge:
    """Makes one target's state of its checks' results."""

    def __init__(self, check: HealthCheck) -> None:
        self._check = check
        self._in_a_row = 0
        self._last: bool | None = None
        self.state: State = "initial"

    def note(self, passed: bool) -> State:
        """The state after one more check."""
        self._in_a_row = self._in_a_row + 1 if passed == self._last else 1
        self._last = passed
        needed = self._check.healthy_threshold if passed else self._check.unhealthy_threshold
        if passed and self.state == "initial":
            needed = 1
        if self._in_a_row >= needed:
            self.state = "healthy" if passed else "unhealthy"
        return self.state


def matches(matcher: str, code: int) -> bool:
    """Whether a status is among a matcher's, such as `200` or `200-299,404`."""
    for part in matcher.split(","):
        first, _, last = part.strip().partition("-")
        if int(first) <= code <= int(last or first):
            return True
    return False


def marked(groups: Sequence[TargetGroup], health: Health) -> tuple[TargetGroup, ...]:
    """The groups with each target's health."""
    return tuple(
        replace(
            group,
            targets=tuple(
                replace(target, healthy=_state(health, group, target).state == "healthy") for target in group.targets
            ),
        )
        for group in groups
    )


def _state(health: Health, group: TargetGroup, target: Target) -> TargetHealth:
    return health.get(group.name, {}).get(target.name, TargetHealth("initial"))


async def probe(address: str, port: int, check: HealthCheck) -> tuple[bool, str]:
    """One check: whether it passed, and what there was to see."""
    try:
        async with asyncio.timeout(check.timeout):
            return await _ask(address, port, check)
    except TimeoutError:
        return False, f"no answer within {check.timeout:g} s"
    except Exception as error:  # whatever it is, it is no success, and the next check follows
        return False, str(error) or type(error).__name__


async def _ask(address: str, port: int, check: HealthCheck) -> tuple[bool, str]:
    unverified = ssl._create_unverified_context() if check.protocol == "HTTPS" else None  # noqa: S323 (as AWS's)
    reader, writer = await asyncio.open_connection(address, port, ssl=unverified)
    try:
        if check.protocol == "TCP":
            return True, "connected"
        writer.write(
            f"GET {check.path} HTTP/1.1\r\nHost: {address}:{port}\r\nConnection: close\r\n"
            "User-Agent: ELB-HealthChecker/2.0\r\n\r\n".encode()
        )
        line = (await reader.readuntil(b"\n")).decode(errors="replace").split()
        code = int(line[1]) if len(line) > 1 else 0
        return matches(check.matcher, code), f"HTTP {code}"
    finally:
        writer.close()


class Checker:
    """Checks the targets of all groups from a thread of its own, which lives in a network namespace."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watched: dict[tuple[str, Target, HealthCheck], asyncio.Task[None]] = {}
        self._health: dict[str, dict[str, TargetHealth]] = {}

    def follow(self, groups: Sequence[TargetGroup]) -> Health:
        """Check these targets from now on, and no others; what is known of them by now."""
        loop = self._loop = self._loop or self._start()
        done = threading.Event()

        def change() -> None:
            try:
                self._follow(groups)
            finally:
                done.set()

        loop.call_soon_threadsafe(change)
        done.wait(5)
        with self._lock:
            return {
                group.name: {
                    target.name: TargetHealth("draining")
                    if target.draining
                    else self._health.get(group.name, {}).get(target.name, TargetHealth("initial"))
                    for target in group.targets
                }
                for group in groups
            }

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        entered: list[BaseException | None] = []
        ready = threading.Event()

        def work() -> None:
            try:
                enter_namespace(self._namespace)
                entered.append(None)
            except OSError as error:
                entered.append(error)
                return
            finally:
                ready.set()
            loop.run_forever()

        threading.Thread(target=work, name="health", daemon=True).start()
        ready.wait(5)
        if entered and entered[0]:
            raise entered[0]
        return loop

    def _follow(self, groups: Sequence[TargetGroup]) -> None:
        wanted = {
            (group.name, replace(target, healthy=False), group.health_check): group
            for group in groups
            for target in group.targets
            if not target.draining
        }
        for key in [key for key in self._watched if key not in wanted]:
            self._watched.pop(key).cancel()
            with self._lock, contextlib.suppress(KeyError):
                del self._health[key[0]][key[1].name]
        for key, group in wanted.items():
            if key not in self._watched:
                self._watched[key] = asyncio.get_running_loop().create_task(self._watch(group, key[1]))

    async def _watch(self, group: TargetGroup, target: Target) -> None:
        check, judge = group.health_check, Judge(group.health_check)
        loop = asyncio.get_running_loop()
        while True:
            begun = loop.time()
            passed, detail = await probe(target.address, check.port or group.port, check)
            with self._lock:
                self._health.setdefault(group.name, {})[target.name] = TargetHealth(judge.note(passed), detail)
            await asyncio.sleep(max(0.0, begun + check.interval - loop.time()))
