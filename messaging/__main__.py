"""Parked events, for operators.

python -m messaging parked  --table TABLE [--shards 8]                 list them
python -m messaging release --table TABLE [--shards 8] [--key KEY]     publish them after all
"""

import argparse
import sys

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from messaging.database import Database, client_config
from messaging.errors import MessagingError
from messaging.outbox import Outbox
from messaging.parking import Parking


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0, or 2 with one line about what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m messaging", description="Parked events of an outbox.")
    parser.add_argument("command", choices=["parked", "release"])
    parser.add_argument("--table", required=True, help="the outbox table")
    parser.add_argument("--shards", type=int, default=8, help="of the outbox (default 8)")
    parser.add_argument("--key", help="only the events of this key")
    parser.add_argument("--endpoint", help="another DynamoDB endpoint, for an emulated AWS")
    given = parser.parse_args(arguments)
    try:
        client = boto3.client("dynamodb", endpoint_url=given.endpoint, config=client_config())
        outbox = Outbox(Database(client), given.table, shards=given.shards)
        outbox.open()
        parking = Parking(outbox)
        if given.command == "release":
            print(parking.release(lambda item: given.key is None or item.get("key") == given.key), "events released")
        else:
            for item in parking.all():
                if given.key is None or item.get("key") == given.key:
                    print(
                        item["id"], item["exchange"], item["routing_key"], item.get("key", "-"), item["parked_reason"]
                    )
    except (MessagingError, BotoCoreError, ClientError, ValueError) as error:
        print(f"{given.table}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
