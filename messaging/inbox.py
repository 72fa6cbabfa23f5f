"""The idempotent consumer: each message takes effect once, however often it is delivered.

The record "this consumer has processed this message" is written in the same transaction as the business data and the
outgoing events, on condition that it isn't there yet. Nothing else decides: the look before the handler runs only saves
work.
"""

import re
import time
from collections.abc import Callable
from datetime import timedelta
from enum import Enum

from messaging import schema
from messaging.database import Database, TransactionCancelledError
from messaging.errors import ConditionFailedError
from messaging.message import Message
from messaging.outbox import Outbox
from messaging.transaction import Transaction
from messaging.writes import put

Handler = Callable[[Message, Transaction], None]
"""Reads what it needs and fills the transaction. It must have no other effect: it may run more than once."""


class Outcome(Enum):
    """What became of a delivery."""

    PROCESSED = "processed"
    DUPLICATE = "duplicate"


class Inbox:
    """The inbox of one consumer.

    `keep`: how long a processed message is remembered. Longer than any copy of it can still arrive: the longest delay
    plus the time within which dead letters are replayed. At least 8 days.
    `check_first`: look for the record before running the handler. An optimisation only.
    `reruns`: how often the handler runs again at once when a condition of its writes failed.
    """

    def __init__(
        self,
        database: Database,
        table: str,
        *,
        consumer: str,
        outbox: Outbox,
        keep: timedelta = timedelta(days=14),
        check_first: bool = True,
        reruns: int = 3,
        now: Callable[[], float] = time.time,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", consumer):
            raise ValueError(f"consumer: {consumer!r} must be 1 to 100 letters, digits, dots, dashes or underscores")
        if keep < schema.MINIMUM_KEEP:
            raise ValueError(
                f"keep: {keep} is shorter than {schema.MINIMUM_KEEP}: a copy that arrives later would take effect again"
            )
        self.consumer = consumer
        self._database = database
        self._table = schema.inbox_table(table)
        self._outbox = outbox
        self._keep = int(keep.total_seconds())
        self._check_first = check_first
        self._reruns = reruns
        self._now = now

    def process(self, message: Message, handler: Handler) -> Outcome:
        """Let a message take effect, unless it has before.

        When this returns, the effect and the outgoing events are in the database, once: acknowledge. When it raises,
        nothing was written, except after OutcomeUnknownError; then process it again to find out. Raises what the
        handler raises, ConditionFailedError (a business condition, also after re-runs), LimitExceededError,
        EventIdTakenError, OutcomeUnknownError or UnavailableError.
        """
        if self._check_first and self._knows(message):
            return Outcome.DUPLICATE
        rerun = 0
        while True:
            transaction = Transaction(self.consumer, message.id)
            handler(message, transaction)
            try:
                return self._commit(message, transaction)
            except ConditionFailedError:
                # DynamoDB need not name every condition that failed. If another delivery of this message was faster,
                # the handler's conditions may have failed just because of that.
                if self._knows(message):
                    return Outcome.DUPLICATE
                if rerun >= self._reruns:
                    raise
                self._database.pause(rerun)
                rerun += 1

    def _commit(self, message: Message, transaction: Transaction) -> Outcome:
        now = int(self._now())
        record = put(
            self._table,
            {
                "id": schema.inbox_id(self.consumer, message.id),
                "processed_at": now,
                schema.EXPIRES_AT: now + self._keep,
            },
            condition="attribute_not_exists(id)",
            role="inbox",
        )
        try:
            self._outbox.commit(transaction, record)
        except TransactionCancelledError as cancelled:
            # The condition on this record, and no other one, tells a duplicate.
            if any(write is record and reason.code == "ConditionalCheckFailed" for write, reason in cancelled.failed):
                return Outcome.DUPLICATE
            raise
        return Outcome.PROCESSED

    def _knows(self, message: Message) -> bool:
        return self._database.get(self._table, {"id": schema.inbox_id(self.consumer, message.id)}) is not None
