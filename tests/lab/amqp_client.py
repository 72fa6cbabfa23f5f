"""An AMQP client for tests, run inside the VPC's namespace: one request as JSON on standard input, one answer.

The password comes on standard input because an argument would stand in the process list.
"""

import json
import sys
from typing import Any

import pika


def publish(channel: Any, queue: str, count: int) -> int:
    """Publishes `count` persistent messages, each confirmed before the next; how many were."""
    channel.confirm_delivery()
    for number in range(count):
        channel.basic_publish("", queue, str(number).encode(), pika.BasicProperties(delivery_mode=2), mandatory=True)
    return count


def consume(channel: Any, queue: str, count: int) -> list[int]:
    """Takes `count` messages in order, or as many as come before five quiet seconds."""
    got = []
    for method, _, body in channel.consume(queue, inactivity_timeout=5):
        if method is None:
            break
        got.append(int(body))
        channel.basic_ack(method.delivery_tag)
        if len(got) == count:
            break
    return got


def main() -> None:
    """Serves one request."""
    request = json.load(sys.stdin)
    credentials = pika.PlainCredentials(request["username"], request["password"])
    connection = pika.BlockingConnection(
        pika.ConnectionParameters(
            request["host"], credentials=credentials, socket_timeout=10, blocked_connection_timeout=30
        )
    )
    channel = connection.channel()
    channel.queue_declare(request["queue"], durable=True)
    command = {"publish": publish, "consume": consume}[request["command"]]
    json.dump(command(channel, request["queue"], request["count"]), sys.stdout)
    connection.close()


if __name__ == "__main__":
    main()
