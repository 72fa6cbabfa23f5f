"""One drill from a whole cluster to a whole cluster, with traffic all through, and its verdict."""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from operations.deployment import Deployment
from operations.drill.accounting import Account
from operations.drill.acts import Options
from operations.drill.catalogue import Drill
from operations.drill.conditions import CONDITIONS, Settling
from operations.drill.field import Field, Mark, Sample
from operations.drill.traffic import BALANCED, DIRECT, Traffic
from operations.errors import OperationError

BEFORE_LIMIT, AFTER_LIMIT, FLOWING_LIMIT = 180.0, 300.0, 30.0
LEAD, TAIL = 5.0, 5.0
"""Seconds of undisturbed traffic before and after."""


@dataclass
class Result:
    """What a drill showed."""

    drill: Drill
    options: Options
    began: float
    failures: list[str] = field(default_factory=list)
    recovered: dict[str, float | None] = field(default_factory=dict)
    """Seconds from the last replacement's launch, or from the fault's end, to each condition; None: not reached."""
    accounts: dict[str, Account] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def whole_after(self) -> float | None:
        """Seconds until the last condition held."""
        known = [seconds for seconds in self.recovered.values() if seconds is not None]
        return max(known) if known and len(known) == len(self.recovered) else None

    @property
    def lost(self) -> int:
        """Confirmed messages that never came, over all clients."""
        return sum(len(account.lost) for account in self.accounts.values())

    def gap(self, kind: str) -> float | None:
        """The longest gap of one kind of client, in seconds."""
        found = self.accounts.get(kind)
        return found.gap.seconds if found and found.gap else None

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "drill": self.drill.name,
            "fault": self.drill.what,
            "expected": self.drill.expected,
            "passed": not self.failures,
            "failures": self.failures,
            "replace_after": self.options.replace_after,
            "seed": self.options.seed,
            "seconds": round(self.seconds, 1),
            "recovered_after": {k: v if v is None else round(v, 1) for k, v in self.recovered.items()},
            "clients": {kind: account.as_dict() for kind, account in self.accounts.items()},
            "marks": [{"at": round(mark.at - self.began, 1), "what": mark.what} for mark in self.marks],
        }


def run_drill(
    deployment: Deployment, drill: Drill, options: Options, directory: Path, say: Callable[[str], None]
) -> Result:
    """Run one drill. Raises OperationError when the cluster is not whole beforehand; afterwards that is a failure."""
    shutil.rmtree(directory, ignore_errors=True)
    with Field(deployment, directory, say=say) as place:
        _start_whole(place)
        if drill.before:
            drill.before(place)
        traffic = Traffic(place)
        result = Result(drill, options, time.time(), marks=place.marks, samples=place.samples)
        traffic.start()
        try:
            _flow(traffic)
            time.sleep(LEAD)
            try:
                drill.act(place, options)
            except OperationError as error:
                result.failures.append(error.message)
            over = place.marks[-1].at if place.marks else time.time()
            settling = place.whole(AFTER_LIMIT)
            _note(result, settling, over)
            time.sleep(TAIL)
        finally:
            traffic.stop()
        result.accounts = traffic.accounts()
        result.seconds = time.time() - result.began
        result.marks, result.samples = list(place.marks), list(place.samples)
        judge(result)
        if drill.after:
            drill.after(place)
        return result


def judge(result: Result) -> None:
    """Add what was not as expected to the failures."""
    for kind, account in result.accounts.items():
        if account.lost:
            result.failures.append(f"{len(account.lost)} confirmed messages lost ({kind})")
        if account.out_of_order:
            result.failures.append(f"{account.out_of_order} messages out of order ({kind})")
        if account.confirmed < account.published:
            result.failures.append(f"{account.published - account.confirmed} messages never confirmed ({kind})")
    for kind, limit in ((DIRECT, result.drill.gap), (BALANCED, result.drill.balanced_gap)):
        gap = result.gap(kind)
        if limit is not None and gap is not None and gap > limit:
            result.failures.append(f"gap of {gap:.1f} s, {limit:g} s allowed ({kind})")


def _start_whole(place: Field) -> None:
    """All but the leaders' balance: that depends on which queues there are, and a drill brings its own."""
    settling = place.whole(BEFORE_LIMIT, without=("leaders",))
    if settling.reasons:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in settling.reasons.items())
        raise OperationError(
            f"the cluster is not whole, so no drill was begun: {reasons}",
            f"See `python -m operations status --env {place.environment.name}`, and drill a healthy cluster.",
        )


def _flow(traffic: Traffic) -> None:
    deadline = time.monotonic() + FLOWING_LIMIT
    while not traffic.flowing():
        if time.monotonic() > deadline:
            raise OperationError("the clients get no confirmations", "Look at *.err in the drill's directory.")
        time.sleep(0.5)


def _note(result: Result, settling: Settling, over: float) -> None:
    result.recovered = {
        name: None if (since := settling.since[name]) is None else max(0.0, since - over) for name in CONDITIONS
    }
    result.failures += [f"{name} not reached: {reason}" for name, reason in settling.reasons.items()]
