"""Every point between two effects: before and after each call to DynamoDB and to the broker."""

from collections.abc import Callable, Collection
from typing import Any


class CrashPoints:
    """Counts the points that a process passes, and ends it at one of them.

    `die` is called at the point number `at` (from 0) and does not return.
    """

    def __init__(self, at: int | None, die: Callable[[], None]) -> None:
        self._at = at
        self._die = die
        self.passed: list[str] = []

    def point(self, name: str) -> None:
        if len(self.passed) == self._at:
            self._die()
            raise AssertionError("still alive")
        self.passed.append(name)

    def watch(self, name: str, subject: Any, *, but: Collection[str] = ()) -> Any:
        """The same object, with a point before and after each call of a method, `but` some."""
        return _Watched(self, name, subject, but)


class _Watched:
    def __init__(self, points: CrashPoints, name: str, subject: Any, but: Collection[str]) -> None:
        self._points = points
        self._name = name
        self._subject = subject
        self._but = but

    @property
    def limit_seconds(self) -> float:
        """Not a call: it has no before and after."""
        return self._subject.limit_seconds  # type: ignore[no-any-return]

    def __getattr__(self, method: str) -> Any:
        if method in self._but:
            return getattr(self._subject, method)

        def call(*arguments: Any, **named: Any) -> Any:
            label = f"{self._name}.{method}"
            self._points.point(f"before {label}")
            answer = getattr(self._subject, method)(*arguments, **named)
            self._points.point(f"after {label}")
            return answer

        return call
