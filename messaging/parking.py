"""Which waiting events may be published now, and which are set aside: never dropped, and never out of order.

An event may go when its predecessor neither waits nor is parked. Looking at the page that was read is not enough: a
query may see an event before the one that was committed ahead of it (queries are read-committed, and a transaction's
items do not become visible at one moment). TransactGetItems never sees half a transaction, so it decides.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html#transaction-isolation

An event that the broker routes nowhere is parked: counted, and put back by an operator. It stops its key: the key's
later events are parked behind it, so that order survives the repair.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from messaging import schema
from messaging.outbox import Outbox
from messaging.writes import keyed, put

_THERE = "attribute_exists(pk)"


class Parking:
    """The parked events of one outbox. Every move is one transaction: an event is never in two places, nor in none."""

    def __init__(self, outbox: Outbox, *, now: Callable[[], float] = time.time) -> None:
        self._outbox = outbox
        self._database = outbox.database
        self._table = outbox.table
        self._now = now

    def park(self, item: dict[str, Any], reason: str) -> None:
        """Set a pending event aside, with the reason. Nothing happens if it is no longer pending."""
        self._move(item, _shard(item), reason, [])

    def park_behind(self, item: dict[str, Any], ahead: dict[str, Any]) -> None:
        """Set an event aside as long as `ahead` is parked. Nothing happens if that has been put back meanwhile."""
        still = keyed("ConditionCheck", self._table, _key(ahead), condition=_THERE)
        self._move(item, _shard(item), f"waits behind {ahead['id']}", [still])

    def ahead_of(self, shard: int, key: str, sequence: int) -> dict[str, Any] | None:
        """A parked event of a key with a lower number."""
        values = {
            ":parked": schema.parked(shard),
            ":first": schema.keyed_position(key, 0),
            ":last": schema.keyed_position(key, sequence - 1),
        }
        items, _ = self._database.query(self._table, "pk = :parked AND sk BETWEEN :first AND :last", values, limit=1)
        return items[0] if items else None

    def any(self, shard: int) -> bool:
        """Whether any event of a shard is parked."""
        items, _ = self._database.query(self._table, "pk = :parked", {":parked": schema.parked(shard)}, limit=1)
        return bool(items)

    def count(self, shard: int) -> int:
        """How many events of a shard are parked."""
        return self._database.count(self._table, "pk = :parked", {":parked": schema.parked(shard)})

    def all(self) -> Iterator[dict[str, Any]]:
        """Every parked event, those of a key in their order. `parked_reason` and `parked_at` say why and since when."""
        for shard in range(self._outbox.shards):
            yield from self._database.query_all(self._table, "pk = :parked", {":parked": schema.parked(shard)})

    def release(self, wanted: Callable[[dict[str, Any]], bool] = lambda item: True) -> int:
        """Put parked events back to be published, a key's from its first on. How many. Safe while relays run.

        `wanted` chooses by item. Of a key it should take all: those behind one that stays parked are parked again.
        """
        released = 0
        for item in self.all():
            if wanted(item):
                released += self._put_back(item)
        return released

    def _put_back(self, item: dict[str, Any]) -> bool:
        shard = _shard(item)
        back = {name: value for name, value in item.items() if name not in ("parked_reason", "parked_at")}
        return self._database.commit_if(
            [
                put(self._table, {**back, "pk": schema.pending(shard)}),
                keyed("Delete", self._table, _key(item), condition=_THERE),
            ]
        )

    def _move(self, item: dict[str, Any], shard: int, reason: str, also: list[Any]) -> None:
        aside = {**item, "pk": schema.parked(shard), "parked_reason": reason, "parked_at": int(self._now())}
        self._database.commit_if(
            [put(self._table, aside), keyed("Delete", self._table, _key(item), condition=_THERE), *also]
        )


def _key(item: dict[str, Any]) -> dict[str, Any]:
    return {"pk": item["pk"], "sk": item["sk"]}


def _shard(item: dict[str, Any]) -> int:
    return int(item["pk"].rpartition("/")[2])


REMEMBERED_KEYS = 10_000
"""Keys whose last published event is kept in mind, to save a read for the next one."""

_HEADS_AT_A_TIME = 50  # two reads each; TransactGetItems takes 100


class Ordering:
    """Decides for one relay. Parks what stands behind a parked event."""

    def __init__(self, outbox: Outbox, parking: Parking) -> None:
        self._outbox = outbox
        self._parking = parking
        self._published: OrderedDict[str, int] = OrderedDict()

    def ready(self, shard: int, heads: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Those of `heads` (each key's first waiting event, events without a key) that may be published now."""
        unsure = []
        some_parked: bool | None = None
        for item in heads:
            if "key" not in item:
                yield item
            elif item["previous"] is not None:
                if self._published.get(item["key"]) == item["previous"]:
                    yield item
                else:
                    unsure.append(item)
            else:
                # Nothing came before, or so long ago that the key's number expired: then only a parked event can be
                # left.
                if some_parked is None:
                    some_parked = self._parking.any(shard)
                ahead = self._parking.ahead_of(shard, item["key"], int(item["sequence"])) if some_parked else None
                if ahead is None:
                    yield item
                else:
                    self._parking.park_behind(item, ahead)
        for some in _slices(unsure, _HEADS_AT_A_TIME):
            yield from self._with_predecessor_gone(shard, some)

    def published(self, item: dict[str, Any]) -> None:
        """Note that the broker has confirmed this event."""
        if "key" in item:
            self._published[item["key"]] = int(item["sequence"])
            self._published.move_to_end(item["key"])
            if len(self._published) > REMEMBERED_KEYS:
                self._published.popitem(last=False)

    def _with_predecessor_gone(self, shard: int, items: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        places = [
            {"pk": partition, "sk": schema.keyed_position(item["key"], int(item["previous"]))}
            for item in items
            for partition in (schema.pending(shard), schema.parked(shard))
        ]
        found = self._outbox.database.get_together(self._outbox.table, places)
        if found is None:
            # A transaction is at work on one of them. The others need not wait for it.
            if len(items) > 1:
                for item in items:
                    yield from self._with_predecessor_gone(shard, [item])
            return
        for item, waiting, ahead in zip(items, found[::2], found[1::2], strict=True):
            if ahead is not None:
                self._parking.park_behind(item, ahead)
            elif waiting is None:
                yield item


def _slices(items: Sequence[dict[str, Any]], size: int) -> Iterator[Sequence[dict[str, Any]]]:
    """Slices of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
