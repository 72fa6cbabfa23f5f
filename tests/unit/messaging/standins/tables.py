"""The tables of the tests: the library's two as the CDK stack makes them, and one of an application."""

from typing import Any

from messaging.schema import INBOX_KEY, OUTBOX_PARTITION_KEY, OUTBOX_SORT_KEY
from messaging.writes import Table

ACCOUNTS = Table("accounts", ("account",))


def create_tables(client: Any, prefix: str = "") -> None:
    """`inbox`, `outbox`, `records` and `accounts`, with a prefix."""
    _create(client, f"{prefix}inbox", INBOX_KEY)
    _create(client, f"{prefix}outbox", OUTBOX_PARTITION_KEY, OUTBOX_SORT_KEY)
    _create(client, f"{prefix}records", "id")
    _create(client, f"{prefix}accounts", "account")


def accounts(prefix: str = "") -> Table:
    """The application's table."""
    return Table(f"{prefix}{ACCOUNTS.name}", ACCOUNTS.key)


def _create(client: Any, name: str, *keys: str) -> None:
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in zip(keys, ("HASH", "RANGE"), strict=False)],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
        BillingMode="PAY_PER_REQUEST",
    )
