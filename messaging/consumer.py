"""Takes messages from a queue with pika and hands them to worker threads.

The connection's own thread only talks to the broker, so heartbeats go on however long a handler runs. A lost
connection is made anew; what was in work then is delivered again, and the inbox knows it.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any

import pika
from pika.exceptions import AMQPError, ChannelError, ConsumerCancelled

from messaging.message import CREATED_AT, Message
from messaging.pika_publisher import connection_parameters
from messaging.retries import Backoff
from messaging.worker import Decision, Delivery, Settlement, Worker

log = logging.getLogger("messaging.consumer")

STABLE_SECONDS = 30
"""A connection that lasted so long was a good one: after it, waiting starts over at the shortest pause."""
BLOCKED_SECONDS = 60

DELIVERY_COUNT = "x-delivery-count"
REMEMBERED_REDELIVERIES = 10_000


class Consumer:
    """Consumes one queue until it is stopped. The queue must exist, and be a quorum queue: others count no deliveries.

    `concurrency`: worker threads, and so the number of messages in work; 1 keeps the queue's order (of first
    deliveries).
    `prefetch`: messages that the broker sends ahead, at least `concurrency`.
    `grace_seconds`: how long stopping waits for messages in work. Those left come again.
    `stop`: stops this consumer, and whatever else waits for the same event. Give its `wait` to the worker as `pause`.
    """

    def __init__(
        self,
        urls: Sequence[str],
        queue: str,
        worker: Worker,
        *,
        concurrency: int = 10,
        prefetch: int | None = None,
        grace_seconds: float = 20,
        backoff: Backoff = Backoff(first=0.5, most=15),  # noqa: B008
        stop: threading.Event | None = None,
    ) -> None:
        self._prefetch = concurrency if prefetch is None else prefetch
        if not 1 <= concurrency <= self._prefetch:
            raise ValueError(f"concurrency {concurrency} must be at least 1 and at most prefetch ({self._prefetch})")
        self._parameters = [connection_parameters(url, f"messaging consumer {queue}", BLOCKED_SECONDS) for url in urls]
        self._queue = queue
        self._worker = worker
        self._concurrency = concurrency
        self._grace_seconds = grace_seconds
        self._backoff = backoff
        self._stop = stop or threading.Event()

    def stop(self) -> None:
        """Take no more messages, finish those in work, then return from `run`. From any thread, or a signal handler."""
        self._stop.set()

    def run(self) -> None:
        """Consume until `stop`. A broker that is away is waited for, without end."""
        failures = 0
        attempts = 0
        pool = ThreadPoolExecutor(self._concurrency, thread_name_prefix=f"messaging-{self._queue}")
        try:
            while not self._stop.is_set():
                began = time.monotonic()
                try:
                    session = Session(
                        self._parameters[attempts % len(self._parameters)], self._queue, self._worker, pool, self._stop
                    )
                    session.serve(self._prefetch, self._grace_seconds)
                except (AMQPError, ChannelError, OSError) as error:
                    attempts += 1
                    failures = 0 if time.monotonic() - began > STABLE_SECONDS else failures + 1
                    wait = self._backoff.delay(failures)
                    log.warning("queue %s: %s: %s; again in %.1f s", self._queue, type(error).__name__, error, wait)
                    self._stop.wait(wait)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class Session:
    """Serves one connection. Only `_work` runs in the pool's threads; everything else in the one that calls `serve`."""

    _redeliveries: OrderedDict[tuple[str, str], int] = OrderedDict()
    """Of queues that do not count: how often this process saw a message come back."""

    def __init__(
        self, parameters: pika.URLParameters, queue: str, worker: Worker, pool: Executor, stop: threading.Event
    ) -> None:
        self._queue = queue
        self._worker = worker
        self._pool = pool
        self._stop = stop
        self._in_work = 0
        self._cancelled = False
        self._connection: Any = pika.BlockingConnection(parameters)
        self._channel: Any = self._connection.channel()

    def serve(self, prefetch: int, grace_seconds: float) -> None:
        """Until the stop event is set. Raises what pika raises when the connection, or the queue, is lost."""
        try:
            self._channel.add_on_cancel_callback(self._on_cancel)
            self._channel.basic_qos(prefetch_count=prefetch)
            tag = self._channel.basic_consume(self._queue, self._on_message)
            while not self._stop.is_set():
                self._connection.process_data_events(time_limit=0.5)
                if self._cancelled:
                    raise ConsumerCancelled(f"the broker ended the consumer of {self._queue}")
            self._channel.basic_cancel(tag)
            end = time.monotonic() + grace_seconds
            while self._in_work and time.monotonic() < end:
                self._connection.process_data_events(time_limit=0.2)
        finally:
            if self._connection.is_open:
                self._connection.close()

    def _on_cancel(self, _method: Any) -> None:
        self._cancelled = True

    def _on_message(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        message = self._message(method, properties, body)
        self._in_work += 1
        self._pool.submit(self._work, Delivery(message, self._queue), method.delivery_tag)

    def _work(self, delivery: Delivery, tag: int) -> None:
        decision = Decision(Settlement.GIVE_BACK)
        try:
            if not self._stop.is_set():
                decision = self._worker.handle(delivery)
        except Exception:
            log.exception("queue %s: message %s is given back", self._queue, delivery.message.id)
            decision = Decision(Settlement.TRY_AGAIN, after_seconds=1)
        try:
            self._connection.add_callback_threadsafe(partial(self._settle, tag, decision))
        except AMQPError:
            log.info("queue %s: message %s comes again: its connection is gone", self._queue, delivery.message.id)

    def _settle(self, tag: int, decision: Decision) -> None:
        self._in_work -= 1
        if decision.after_seconds and not self._stop.is_set():
            self._connection.call_later(decision.after_seconds, partial(self._settle_now, tag, decision.settlement))
        else:
            self._settle_now(tag, decision.settlement)

    def _settle_now(self, tag: int, settlement: Settlement) -> None:
        match settlement:
            case Settlement.ACKNOWLEDGE:
                self._channel.basic_ack(tag)
            case Settlement.TRY_AGAIN:
                self._channel.basic_reject(tag, requeue=True)
            case Settlement.GIVE_BACK:
                self._channel.basic_nack(tag, requeue=True)

    def _message(self, method: Any, properties: Any, body: bytes) -> Message:
        headers = dict(properties.headers or {})
        created_at = headers.get(CREATED_AT)
        if not isinstance(created_at, int):
            created_at = properties.timestamp * 1000 if properties.timestamp is not None else None
        failed = headers.get(DELIVERY_COUNT)
        if not isinstance(failed, int):
            failed = self._redelivery(properties.message_id) if method.redelivered else 0
        return Message(
            id=properties.message_id or "",
            body=body,
            type=properties.type or "",
            content_type=properties.content_type or "",
            headers=headers,
            created_at_ms=created_at,
            exchange=method.exchange,
            routing_key=method.routing_key,
            delivery_count=failed,
            redelivered=method.redelivered,
        )

    def _redelivery(self, message_id: str | None) -> int:
        """A makeshift count for a queue that has none: of this process only."""
        place = (self._queue, message_id or "")
        count = self._redeliveries.get(place, 0) + 1
        if count == 1:
            log.warning("queue %s does not count deliveries: is it a quorum queue?", self._queue)
        self._redeliveries[place] = count
        self._redeliveries.move_to_end(place)
        if len(self._redeliveries) > REMEMBERED_REDELIVERIES:
            self._redeliveries.popitem(last=False)
        return count
