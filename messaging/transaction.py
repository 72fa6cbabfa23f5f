"""What a handler fills: its writes and its events, to take effect together or not at all."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

from messaging.message import Event, derived_id
from messaging.writes import Item, Table, Write, keyed, put


class Transaction:
    """Collects; sends nothing. The library commits it when the handler has returned.

    Conditions, updates, names and values are DynamoDB's own expressions. Values are plain Python values.
    """

    def __init__(self, consumer: str = "", message_id: str = "") -> None:
        self._origin = (consumer, message_id)
        self._writes: list[Write] = []
        self._events: list[Event] = []

    @property
    def writes(self) -> Sequence[Write]:
        """The business writes so far."""
        return tuple(self._writes)

    @property
    def events(self) -> Sequence[Event]:
        """The events so far, each with its id."""
        return tuple(self._events)

    def put(
        self,
        table: Table,
        item: Item,
        *,
        condition: str | None = None,
        names: dict[str, str] | None = None,
        values: Item | None = None,
    ) -> None:
        """Write a whole item."""
        self._writes.append(put(table, item, condition=condition, names=names, values=values))

    def update(
        self,
        table: Table,
        key: Item,
        update: str,
        *,
        condition: str | None = None,
        names: dict[str, str] | None = None,
        values: Item | None = None,
    ) -> None:
        """Change attributes of an item."""
        self._writes.append(keyed("Update", table, key, update=update, condition=condition, names=names, values=values))

    def delete(
        self,
        table: Table,
        key: Item,
        *,
        condition: str | None = None,
        names: dict[str, str] | None = None,
        values: Item | None = None,
    ) -> None:
        """Remove an item."""
        self._writes.append(keyed("Delete", table, key, condition=condition, names=names, values=values))

    def check(
        self,
        table: Table,
        key: Item,
        condition: str,
        *,
        names: dict[str, str] | None = None,
        values: Item | None = None,
    ) -> None:
        """Demand a condition of an item that the transaction does not write."""
        self._writes.append(keyed("ConditionCheck", table, key, condition=condition, names=names, values=values))

    def emit(self, event: Event) -> str:
        """Publish an event once the transaction is committed. Returns the event's id."""
        if not event.id:
            consumer, message_id = self._origin
            own = derived_id(consumer, message_id, len(self._events)) if message_id else str(uuid4())
            event = replace(event, id=own)
        self._events.append(event)
        return event.id
