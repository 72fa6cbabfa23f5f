"""Messages that take effect once: inbox, outbox and versioned records, for RabbitMQ and DynamoDB.

docs/messaging.md shows how to use it in ten lines, and says what is guaranteed and what is not.
"""

from messaging.consumer import Consumer
from messaging.database import Database, client_config
from messaging.errors import (
    ConditionFailedError,
    EventIdTakenError,
    EventsUndeliveredError,
    LimitExceededError,
    MessagingError,
    MissingMessageIdError,
    OutboxMismatchError,
    OutcomeUnknownError,
    RejectedError,
    TooOldToTellError,
    UnavailableError,
)
from messaging.inbox import Handler, Inbox, Outcome
from messaging.leases import Leases
from messaging.message import Event, Message, id_from_content, id_from_header, id_from_property
from messaging.metrics import CloudWatchMetrics, LoggedMetrics, Metrics
from messaging.outbox import Outbox
from messaging.parking import Parking
from messaging.pika_publisher import PikaPublisher
from messaging.publishing import Fate, Outgoing, Publisher, Receipt
from messaging.relay import Relay, RelayPolicy
from messaging.retries import Backoff, Retries
from messaging.transaction import Transaction
from messaging.versioned import Change, DynamoDBRecords, History, Record, RecordStore, VersionedRecords
from messaging.worker import DeadLetters, Worker, WorkerPolicy
from messaging.writes import Table

__all__ = [
    "Backoff",
    "Change",
    "CloudWatchMetrics",
    "ConditionFailedError",
    "Consumer",
    "Database",
    "DeadLetters",
    "DynamoDBRecords",
    "Event",
    "EventIdTakenError",
    "EventsUndeliveredError",
    "Fate",
    "Handler",
    "History",
    "Inbox",
    "Leases",
    "LimitExceededError",
    "LoggedMetrics",
    "Message",
    "MessagingError",
    "Metrics",
    "MissingMessageIdError",
    "Outbox",
    "OutboxMismatchError",
    "Outcome",
    "OutcomeUnknownError",
    "Outgoing",
    "Parking",
    "PikaPublisher",
    "Publisher",
    "Receipt",
    "Record",
    "RecordStore",
    "RejectedError",
    "Relay",
    "RelayPolicy",
    "Retries",
    "Table",
    "TooOldToTellError",
    "Transaction",
    "UnavailableError",
    "VersionedRecords",
    "Worker",
    "WorkerPolicy",
    "client_config",
    "id_from_content",
    "id_from_header",
    "id_from_property",
]
