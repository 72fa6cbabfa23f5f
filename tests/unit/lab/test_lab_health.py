"""Health checks as AWS does them."""

import asyncio
import socket
from collections.abc import Sequence

import pytest

from lab.health import Judge, TargetHealth, marked, matches, probe
from lab.loadbalancer import HealthCheck, Target, TargetGroup

CHECK = HealthCheck("HTTP", 15672, "/health", "200", healthy_threshold=2, unhealthy_threshold=3, timeout=0.3)
OK, NO = True, False


@pytest.mark.parametrize(
    ("results", "state"),
    [
        ((), "initial"),
        ((OK,), "healthy"),  # a new target's first success is enough
        ((NO, NO), "initial"),
        ((NO, NO, NO), "unhealthy"),
        ((NO, OK), "healthy"),
        ((OK, NO, NO), "healthy"),  # noticed at the third failure, no sooner
        ((OK, NO, NO, NO), "unhealthy"),
        ((OK, NO, NO, OK, NO, NO), "healthy"),  # in a row
        ((NO, NO, NO, OK), "unhealthy"),
        ((NO, NO, NO, OK, OK), "healthy"),
    ],
)
def test_a_targets_state_follows_its_checks(results: Sequence[bool], state: str) -> None:
    judge = Judge(CHECK)
    for result in results:
        judge.note(result)
    assert judge.state == state


@pytest.mark.parametrize(
    ("matcher", "code", "expected"),
    [
        ("200", 200, True),
        ("200", 204, False),
        ("200-299", 204, True),
        ("200,404", 404, True),
        ("200-299,404", 500, False),
    ],
)
def test_a_matcher_names_statuses_and_ranges(matcher: str, code: int, expected: bool) -> None:
    assert matches(matcher, code) is expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", (True, "HTTP 200")),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", (False, "HTTP 503")),
        (b"AMQP\x00\x00\x09\x01\n", (False, "invalid literal")),
        (b"", (False, "0 bytes read")),
        (None, (False, "no answer within 0.3 s")),
    ],
)
def test_a_check_says_what_it_saw(said: bytes | None, expected: tuple[bool, str]) -> None:
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        if said is None:
            await asyncio.sleep(1)
        else:
            writer.write(said)
            writer.close()

    async def run() -> tuple[bool, str]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            return await probe("127.0.0.1", server.sockets[0].getsockname()[1], CHECK)

    passed, detail = asyncio.run(run())
    assert (passed, detail[: len(expected[1])]) == expected or (passed, expected[1] in detail) == (expected[0], True)
    assert asked[0].startswith(b"GET /health HTTP/1.1\r\n")


def test_a_closed_port_fails_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    passed, detail = asyncio.run(probe("127.0.0.1", port, HealthCheck("TCP")))
    assert not passed
    assert "Connect" in detail


def test_the_proxy_is_told_who_is_healthy_and_nobody_is_before_the_first_check() -> None:
    group = TargetGroup("amqp", "TCP", 5672, CHECK, (Target("a", "10.0.0.1"), Target("b", "10.0.0.2")))
    (found,) = marked([group], {"amqp": {"a": TargetHealth("healthy")}})
    assert [(target.name, target.healthy) for target in found.targets] == [("a", True), ("b", False)]
