"""How inbox and outbox tables are laid out. The CDK stack and the library agree through this file.

Outbox, partition key `pk` and sort key `sk`:

| pk | sk | what |
|---|---|---|
| pending/SHARD | k#KEY#SEQUENCE or e#ID | an event that waits to be published |
| parked/SHARD | the same | an event that the broker routes nowhere, or one that waits behind it |
| sequence/KEY | sequence | the last sequence number of a key |
| control | outbox | the number of shards |
| control | lease/SHARD | which relay works on a shard |
| control | relay/OWNER | a relay that is alive |
"""

import hashlib
from datetime import timedelta
from urllib.parse import quote

from messaging.writes import Table

INBOX_KEY = "id"
OUTBOX_PARTITION_KEY = "pk"
OUTBOX_SORT_KEY = "sk"
EXPIRES_AT = "expires_at"
"""The TTL attribute of both tables: seconds since 1970."""

CONTROL = "control"
SEQUENCE_DIGITS = 20

MINIMUM_KEEP = timedelta(days=8)
"""What the inbox must remember: the longest delay in use (7 days) and a day to replay dead letters."""

KEY_LENGTH = 256
"""Characters of an ordering key, percent-encoded. Sort keys end at 1024 bytes."""


def inbox_table(name: str) -> Table:
    """An inbox table."""
    return Table(name, (INBOX_KEY,))


def outbox_table(name: str) -> Table:
    """An outbox table."""
    return Table(name, (OUTBOX_PARTITION_KEY, OUTBOX_SORT_KEY))


def inbox_id(consumer: str, message_id: str) -> str:
    """The key of an inbox record. Consumer names hold no `#`, so two of them never meet."""
    return f"{consumer}#{message_id}"


def shard_of(key: str, shards: int) -> int:
    """The shard of an ordering key or, for an event without one, of its id. The same in every process and release."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) % shards


def pending(shard: int) -> str:
    """The partition of a shard's waiting events."""
    return f"pending/{shard}"


def parked(shard: int) -> str:
    """The partition of a shard's parked events."""
    return f"parked/{shard}"


def sequence_of(key: str) -> str:
    """The partition of a key's sequence number."""
    return f"sequence/{_encoded(key)}"


def keyed_position(key: str, sequence: int) -> str:
    """Where an event of a key stands among the others of its shard."""
    return f"k#{_encoded(key)}#{sequence:0{SEQUENCE_DIGITS}d}"


def free_position(event_id: str) -> str:
    """Where an event without a key stands."""
    return f"e#{event_id}"


def _encoded(key: str) -> str:
    """Without `#` and `/`: one key's positions can't look like another's."""
    encoded = quote(key, safe="")
    if not 0 < len(encoded) <= KEY_LENGTH:
        raise ValueError(
            f"an event's key has 1 to {KEY_LENGTH} characters (percent-encoded); this has {len(encoded)}: {key!r}"
        )
    return encoded
