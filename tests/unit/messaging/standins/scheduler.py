"""Runs several actors in any interleaving that a test asks for, one step at a time, with crashes and lost answers.

An actor is a thread that stops before each of its effects (a call to DynamoDB or to the broker) until it is told how
the effect goes. So a list of verdicts is a whole history, which hypothesis can choose and shorten.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from messaging.publishing import Fate, Receipt
from tests.unit.messaging.standins.faults import client_error, no_answer


class Verdict(Enum):
    """How an effect goes."""

    DONE = "done"
    CRASH_BEFORE = "the process dies before it"
    CRASH_AFTER = "the process dies after it"
    LOST = "it takes effect, and the answer is lost"
    REFUSED = "it does not take effect"


class Crash(BaseException):
    """The end of a process. Nothing catches it."""


class Actor:
    """One process: `body` is run again and again until it crashes, and from its beginning by a new process after that.

    `body` gets its connection's name, a DynamoDB client and a broker.
    """

    def __init__(self, name: str, body: Callable[[str, Any, Any], None], client: Any, broker: Any) -> None:
        self.name = name
        self.life = 0
        self.died = False
        self._body = body
        self._client = client
        self._broker = broker
        self._arrived = threading.Semaphore(0)
        self._granted = threading.Semaphore(0)
        self._verdict = Verdict.DONE
        self._error: BaseException | None = None
        self._start()

    @property
    def connection(self) -> str:
        return f"{self.name}-{self.life}"

    def step(self, verdict: Verdict) -> None:
        """Let the next effect happen so, and go on to the one after it."""
        self._verdict = verdict
        self._granted.release()
        self._arrived.acquire()
        if self._error:
            raise self._error
        if self.died:
            self._broker.lose_connection(self.connection)
            self.life += 1
            self._start()

    def end(self) -> None:
        """Stop it for good."""
        self._verdict = Verdict.CRASH_BEFORE
        self._granted.release()
        self._arrived.acquire()

    def _start(self) -> None:
        self.died = False
        threading.Thread(target=self._live, name=self.connection, daemon=True).start()
        self._arrived.acquire()

    def _live(self) -> None:
        try:
            self._body(
                self.connection, _Gated(self, self._client, _fail_call), _Gated(self, self._broker, _fail_broker)
            )
        except Crash:
            self.died = True
        except BaseException as error:
            self._error = error
        self._arrived.release()

    def effect(self, act: Callable[[], Any], fail: Callable[[str, Any], Any], method: str) -> Any:
        self._arrived.release()
        self._granted.acquire()
        match self._verdict:
            case Verdict.CRASH_BEFORE:
                raise Crash
            case Verdict.CRASH_AFTER:
                act()
                raise Crash
            case Verdict.LOST:
                return fail(method, act())
            case Verdict.REFUSED:
                return fail(method, None)
        return act()


@dataclass
class _Gated:
    """A client or broker whose calls are effects of an actor."""

    actor: Actor
    subject: Any
    fail: Callable[[str, Any], Any] = field(repr=False)

    limit_seconds: ClassVar[float] = 10
    """Of a broker."""

    def __getattr__(self, method: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            act = lambda: getattr(self.subject, method)(*arguments, **named)  # noqa: E731
            fail = self.fail if method != "publish" else lambda _, done: _unknown(arguments[0])
            return self.actor.effect(act, fail, method)

        return call


def _fail_call(method: str, answer: Any) -> Any:
    if answer is None:
        raise client_error("ThrottlingException")
    raise no_answer()


def _fail_broker(method: str, answer: Any) -> Any:
    """Taking and settling have no answer that could be lost: whoever loses it has lost the connection."""
    raise Crash


def _unknown(messages: Any) -> list[Receipt]:
    return [Receipt(Fate.UNKNOWN, "lost")] * len(messages)
