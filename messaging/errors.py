"""What can go wrong, by what the caller should do about it."""

from collections.abc import Sequence


class MessagingError(Exception):
    """Base of everything this package raises on purpose."""


class RejectedError(MessagingError):
    """The message itself is at fault; trying again cannot help. Handlers raise it to make it a dead letter at once."""


class MissingMessageIdError(RejectedError):
    """A message without an id: nobody could tell a duplicate of it."""


class TooOldToTellError(RejectedError):
    """A versioned record no longer remembers whether it has processed this message."""


class LimitExceededError(MessagingError):
    """A transaction which DynamoDB would refuse. Nothing was sent. `problems` lists everything that is wrong."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("the transaction cannot be sent:\n" + "\n".join(f"- {problem}" for problem in problems))
        self.problems = tuple(problems)


class ConditionFailedError(MessagingError):
    """A condition of a business write was not met. Nothing was written. `writes` names those whose condition failed."""

    def __init__(self, writes: Sequence[str]) -> None:
        super().__init__("a condition of the transaction was not met: " + "; ".join(writes))
        self.writes = tuple(writes)


class EventIdTakenError(MessagingError):
    """An event of the same, explicitly chosen id still waits in the outbox."""


class OutboxMismatchError(MessagingError):
    """The outbox table was set up with another number of shards: events would wait where no relay looks."""


class EventsUndeliveredError(MessagingError):
    """The broker takes a versioned record's outgoing events from nobody: they stay in the record."""


class UnavailableError(MessagingError):
    """DynamoDB or the broker could not do it now. No message is at fault; the same thing may work later."""


class OutcomeUnknownError(UnavailableError):
    """The call may or may not have taken effect: its answer never came, and there was no time left to ask again."""
