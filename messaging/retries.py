"""How long to wait between attempts, and which errors of AWS are worth another one."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    HTTPClientError,
    IncompleteReadError,
    ParamValidationError,
)

from messaging.errors import UnavailableError


@dataclass(frozen=True)
class Backoff:
    """Exponential with full jitter: attempt n (from 0) waits between 0 and `first * 2^n` seconds, at most `most`."""

    first: float = 0.05
    most: float = 5.0

    def delay(self, attempt: int) -> float:
        """Seconds to wait after the attempt number `attempt`."""
        # Jitter against herds, not a secret.
        return random.uniform(0, min(self.most, self.first * 2 ** min(attempt, 32)))  # noqa: S311


@dataclass(frozen=True)
class Retries:
    """Attempts spread over at most `seconds`."""

    seconds: float = 30.0
    backoff: Backoff = Backoff()

    def pauses(self, clock: Callable[[], float]) -> Iterator[float]:
        """The pause after each failed attempt. Ends when no time is left."""
        end = clock() + self.seconds
        attempt = 0
        while (left := end - clock()) > 0:
            yield min(left, self.backoff.delay(attempt))
            attempt += 1


NO_ANSWER = (HTTPClientError, ConnectionError, IncompleteReadError)
"""botocore's errors after which nobody knows whether the call took effect."""

_LATER = {
    "InternalServerError",
    "LimitExceededException",
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ServiceUnavailable",
    "ThrottlingException",
    "TransactionConflictException",
    "TransactionInProgressException",
}
_ACCESS = {
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidSignatureException",
    "UnrecognizedClientException",
}
CANCELLED_FOR_NOW = {"None", "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
"""Reasons for cancelling a transaction which say nothing about its content. ("None": this write was not the reason.)"""


def code(error: ClientError) -> str:
    """DynamoDB's name for the error."""
    return error.response.get("Error", {}).get("Code", "")


def is_server_fault(error: ClientError) -> bool:
    """A status of 500 and above: the call may have taken effect nevertheless."""
    return error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500


def is_for_now(error: ClientError) -> bool:
    """Refused for now: the same call may succeed in a moment."""
    return code(error) in _LATER or is_server_fault(error)


def is_infrastructure(error: BaseException) -> bool:
    """Whether DynamoDB, the broker, the network or permissions are at fault, and not the message that was worked on."""
    if isinstance(error, ClientError):
        return is_for_now(error) or code(error) in _ACCESS
    if isinstance(error, BotoCoreError):
        return not isinstance(error, ParamValidationError)
    return isinstance(error, UnavailableError)
