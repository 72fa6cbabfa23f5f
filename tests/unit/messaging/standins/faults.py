"""A DynamoDB client that fails as told: before a call takes effect, or after it (the answer is lost)."""

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError


def client_error(code: str, status: int = 400, reasons: list[str] | None = None) -> ClientError:
    """As botocore raises it."""
    response: Any = {
        "Error": {"Code": code, "Message": code},
        "ResponseMetadata": {"HTTPStatusCode": status},
        "CancellationReasons": [{"Code": reason} for reason in reasons or []],
    }
    return ClientError(response, "stand-in")


def no_answer() -> Exception:
    """The answer did not come in time."""
    return ReadTimeoutError(endpoint_url="stand-in")


class FaultyClient:
    """Wraps a client. `before` and `after` queue errors for the next calls of a name; None lets one call pass."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._before: dict[str, deque[Exception | None]] = defaultdict(deque)
        self._after: dict[str, deque[Exception | None]] = defaultdict(deque)

    def before(self, name: str, *errors: Exception | None) -> None:
        self._before[name].extend(errors)

    def after(self, name: str, *errors: Exception | None) -> None:
        self._after[name].extend(errors)

    def names(self) -> list[str]:
        """The calls so far."""
        return [name for name, _ in self.calls]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(**request: Any) -> Any:
            self.calls.append((name, request))
            _raise_next(self._before[name])
            answer = getattr(self._client, name)(**request)
            _raise_next(self._after[name])
            return answer

        return call


def _raise_next(errors: deque[Exception | None]) -> None:
    if errors and (error := errors.popleft()):
        raise error
