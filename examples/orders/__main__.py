"""The shop against the lab: `make example`. It brings its own tables, exchange and queues.

Every order is placed twice, and every message `order.placed` is put into its queue once more, as a migration's shovel
does. Each customer gets one e-mail.
"""

import argparse
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pika
from rich.console import Console
from rich.table import Table as Report

from examples.orders.lab import amqp_url, deployed_tables, dynamodb
from examples.orders.shop import EXCHANGE, PretendedProvider, Shop, Tables, confirmations, mailer
from messaging import (
    Consumer,
    Database,
    DeadLetters,
    Handler,
    Inbox,
    Leases,
    Outbox,
    PikaPublisher,
    Relay,
    RelayPolicy,
    Table,
    Worker,
)
from operations.deployment import Deployment
from operations.errors import ExitCode, OperationError
from stacks.environment import Environment, EnvironmentErrors

ORDERS = 50
LIMIT_SECONDS = 60
QUEUES = {"order.placed": f"{EXCHANGE}.confirmations", "email.due": f"{EXCHANGE}.mailer"}
DEAD, COPIES = f"{EXCHANGE}.dead", f"{EXCHANGE}.copies"

console = Console()


def main() -> int:
    """Deploys the tables, runs the shop, and shows what came of it."""
    parser = argparse.ArgumentParser(prog="python -m examples.orders", description="A shop, against the lab.")
    parser.add_argument("--env", default="local", help="an environment with an emulated AWS (default local)")
    try:
        environment = Environment.load(parser.parse_args().env)
        if not environment.is_emulated:
            raise OperationError(
                f"{environment.name} is on AWS, and this example makes up customers",
                "Run it against the lab.",
                ExitCode.BAD_INPUT,
            )
        url = amqp_url(Deployment(environment))
        tables = deployed_tables(environment)
    except EnvironmentErrors as errors:
        print(errors, file=sys.stderr)
        return 2
    except OperationError as error:
        print(error, file=sys.stderr)
        return int(error.code)
    declare(url)
    return run(url, dynamodb(environment), tables)


def declare(url: str) -> None:
    """Exchange and queues, empty."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(EXCHANGE, "direct", durable=True)
        for queue in (*QUEUES.values(), DEAD, COPIES):
            channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
            channel.queue_purge(queue)
        for routing_key, queue in QUEUES.items():
            channel.queue_bind(queue, EXCHANGE, routing_key)
        channel.queue_bind(COPIES, EXCHANGE, "order.placed")


def run(url: str, client: Any, names: dict[str, str]) -> int:
    """The shop, its two consumers and its relay, in threads of this process; 0 when each effect happened once."""
    tables = Tables(orders=Table(names["Orders"], ("order_id",)), emails=Table(names["Emails"], ("email_id",)))
    database = Database(client)
    outbox = Outbox(database, names["Outbox"])
    publisher = PikaPublisher([url])
    relay = Relay(outbox, publisher, Leases(outbox), policy=RelayPolicy(poll_seconds=0.2))
    provider = PretendedProvider()
    stop = threading.Event()

    def consumer(name: str, routing_key: str, handler: Handler) -> Callable[[], None]:
        inbox = Inbox(database, names["Inbox"], consumer=name, outbox=outbox)
        worker = Worker(
            partial(inbox.process, handler=handler),
            consumer=name,
            dead_letters=DeadLetters(publisher, "", DEAD),
            nudge=relay.nudge,
            pause=stop.wait,
        )
        return Consumer([url], QUEUES[routing_key], worker, stop=stop).run

    works: list[Callable[[], None]] = [
        partial(relay.run, stop),
        consumer("confirmations", "order.placed", confirmations(tables)),
        consumer("mailer", "email.due", mailer(tables, provider)),
    ]
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    started = time.monotonic()
    try:
        run_id = f"{time.time():.0f}"
        shop = Shop(outbox, tables)
        placed = sum(
            shop.place(f"{run_id}-{number}", f"customer-{number}@example.com") for number in [*range(ORDERS)] * 2
        )
        relay.nudge()
        copies = copy_again(url)
        left = wait_until_quiet(url, provider)
    finally:
        stop.set()
        relay.nudge()
        for thread in threads:
            thread.join()
        publisher.close()
    report = Report("what", "times", title=f"{ORDERS} orders, {time.monotonic() - started:.1f} s", title_justify="left")
    report.add_row("orders that customers sent", str(2 * ORDERS))
    report.add_row("orders placed", str(placed))
    report.add_row("copies of order.placed put into the queue", str(copies))
    report.add_row("e-mails sent", str(len(provider.sent)))
    report.add_row("messages left, dead letters included", str(left))
    console.print(report)
    as_it_should = placed == copies == len(provider.sent) == ORDERS and not left
    console.print("Every effect happened once." if as_it_should else "[red]That is not as it should be.")
    return 0 if as_it_should else 1


def copy_again(url: str) -> int:
    """Puts every `order.placed` into its consumer's queue once more; how many."""
    count = 0
    end = time.monotonic() + LIMIT_SECONDS
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        while count < ORDERS and time.monotonic() < end:
            method, properties, body = channel.basic_get(COPIES, auto_ack=True)
            if method is None:
                time.sleep(0.05)
                continue
            channel.basic_publish("", QUEUES["order.placed"], body, properties)
            count += 1
    return count


def wait_until_quiet(url: str, provider: PretendedProvider) -> int:
    """Until all e-mails are out and all queues empty, or the time is up; the messages that are left."""
    end = time.monotonic() + LIMIT_SECONDS
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        while True:
            queues = [channel.queue_declare(queue, passive=True).method for queue in (*QUEUES.values(), DEAD)]
            left = sum(int(queue.message_count) for queue in queues)
            if (len(provider.sent) >= ORDERS and not left) or time.monotonic() > end:
                return left
            time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
