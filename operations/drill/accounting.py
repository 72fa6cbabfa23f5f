"""What became of every message, from the clients' event log. Pure functions: a log in, figures out."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class Kind(StrEnum):
    """What a client noted. The letters are what its log holds."""

    PUBLISH = "P"
    CONFIRM = "C"
    REFUSE = "N"
    """The broker took it back: a negative confirmation, or a return as unroutable. It is published again."""
    DELIVER = "D"
    REDELIVER = "R"
    """A delivery that the broker marks as redelivered."""
    UP = "U"
    DOWN = "X"


@dataclass(frozen=True)
class Event:
    """One line of the log. `number` counts a publisher's messages from 0; -1 where no message is meant."""

    at: float
    kind: Kind
    client: str
    number: int = -1
    detail: str = ""

    def line(self) -> str:
        """For the log."""
        return f"{self.at:.4f}\t{self.kind}\t{self.client}\t{self.number}\t{' '.join(self.detail.split())}\n"

    @classmethod
    def parse(cls, line: str) -> "Event":
        """What `line` wrote."""
        at, kind, client, number, detail = line.rstrip("\n").split("\t")
        return cls(float(at), Kind(kind), client, int(number), detail)


def read_events(*logs: Path) -> list[Event]:
    """All events of several logs in the order of time. A last line that was cut short is left out."""
    return sorted((event for log in logs for event in _events(log)), key=lambda event: event.at)


def _events(log: Path) -> Iterator[Event]:
    with log.open() as lines:
        for line in lines:
            if line.endswith("\n"):
                yield Event.parse(line)


@dataclass(frozen=True)
class Gap:
    """The longest time in which one client heard no confirmation."""

    client: str
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.begin


@dataclass(frozen=True)
class Account:
    """What became of the messages of some clients. Counts are of distinct messages, unless said otherwise."""

    published: int = 0
    confirmed: int = 0
    delivered: int = 0
    republished: int = 0
    redelivered: int = 0
    """Deliveries that the broker marked as such."""
    duplicate: int = 0
    """Deliveries of a message that had been delivered before."""
    out_of_order: int = 0
    """First deliveries that came after a younger message of the same publisher. A message that was published or
    delivered again is not counted: its order is lost by definition."""
    reconnects: int = 0
    lost: tuple[tuple[str, int], ...] = ()
    """Confirmed and never delivered."""
    gap: Gap | None = None
    confirmations: dict[int, int] = field(default_factory=dict)
    """By second since the epoch."""
    deliveries: dict[int, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        """For `--json`: without the series."""
        gap = self.gap and {"client": self.gap.client, "begin": self.gap.begin, "seconds": round(self.gap.seconds, 3)}
        counts = ("published", "confirmed", "delivered", "republished", "redelivered", "duplicate", "out_of_order")
        return {name: getattr(self, name) for name in counts} | {
            "reconnects": self.reconnects,
            "lost": len(self.lost),
            "lost_messages": [f"{client}/{number}" for client, number in self.lost[:20]],
            "longest_gap": gap,
        }


def account(events: Sequence[Event], stopped: float | None = None) -> Account:
    """The account of all clients in `events`, which are in the order of time.

    `stopped`: when publishers were told to stop. Until then a client that is no longer confirmed has a gap.
    """
    published: Counter[tuple[str, int]] = Counter()
    confirmed: set[tuple[str, int]] = set()
    delivered: set[tuple[str, int]] = set()
    redelivered, duplicate, opened = 0, 0, 0
    clients: set[tuple[str, str]] = set()
    order: dict[str, list[int]] = defaultdict(list)
    for event in events:
        message = (event.client, event.number)
        if event.kind is Kind.PUBLISH:
            published[message] += 1
        elif event.kind is Kind.CONFIRM:
            confirmed.add(message)
        elif event.kind in (Kind.DELIVER, Kind.REDELIVER):
            redelivered += event.kind is Kind.REDELIVER
            if message in delivered:
                duplicate += 1
            elif event.kind is Kind.DELIVER:
                order[event.client].append(event.number)
            delivered.add(message)
        elif event.kind is Kind.UP:
            opened += 1
            clients.add((event.client, event.detail))
    once = {client: [n for n in numbers if published[client, n] == 1] for client, numbers in order.items()}
    return Account(
        published=len(published),
        confirmed=len(confirmed),
        delivered=len(delivered),
        republished=sum(times > 1 for times in published.values()),
        redelivered=redelivered,
        duplicate=duplicate,
        out_of_order=sum(_late(numbers) for numbers in once.values()),
        reconnects=opened - len(clients),
        lost=tuple(sorted(confirmed - delivered)),
        gap=longest_gap(events, stopped),
        confirmations=per_second(events, Kind.CONFIRM),
        deliveries=per_second(events, Kind.DELIVER, Kind.REDELIVER),
    )


def longest_gap(events: Iterable[Event], stopped: float | None = None) -> Gap | None:
    """The worst client's longest time without a confirmation, from its first confirmation to `stopped`."""
    last: dict[str, float] = {}
    worst: Gap | None = None

    def consider(client: str, begin: float, end: float) -> None:
        nonlocal worst
        if worst is None or end - begin > worst.seconds:
            worst = Gap(client, begin, end)

    for event in events:
        if event.kind is Kind.CONFIRM and (stopped is None or event.at <= stopped):
            if event.client in last:
                consider(event.client, last[event.client], event.at)
            last[event.client] = event.at
    for client, at in last.items():
        if stopped is not None:
            consider(client, at, stopped)
    return worst


def per_second(events: Iterable[Event], *kinds: Kind) -> dict[int, int]:
    """How many events of these kinds each second had; seconds without one are absent."""
    return dict(Counter(int(event.at) for event in events if event.kind in kinds))


def _late(numbers: Sequence[int]) -> int:
    youngest, late = -1, 0
    for number in numbers:
        late += number < youngest
        youngest = max(youngest, number)
    return late
