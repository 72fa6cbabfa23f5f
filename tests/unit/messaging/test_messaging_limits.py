"""A transaction that DynamoDB would refuse is refused before it is sent, with everything that is wrong at once."""

from decimal import Decimal

import pytest

from messaging.errors import LimitExceededError
from messaging.transaction import Transaction
from messaging.writes import MAX_ITEM_BYTES, Table, Write, check, loaded, put, size, stored
from tests.unit.messaging.standins.bench import Bench, a_message

ORDERS = Table("orders", ("customer", "order"))


def order(number: int, text: str = "") -> Write:
    return put(ORDERS, {"customer": "c", "order": str(number), "text": text})


def problems(*writes: Write) -> list[str]:
    with pytest.raises(LimitExceededError) as caught:
        check(writes)
    return list(caught.value.problems)


def test_a_hundred_writes_are_fine_and_one_more_is_not() -> None:
    check([order(number) for number in range(100)])
    [problem] = problems(*[order(number) for number in range(101)])
    assert "101 writes, 0 of them for inbox and outbox; at most 100" in problem


def test_an_item_may_have_exactly_400_kib() -> None:
    room = MAX_ITEM_BYTES - order(1).size
    check([order(1, "x" * room)])
    [problem] = problems(order(1, "x" * (room + 1)))
    assert problem.startswith(f"Put orders (customer=c, order=1): {MAX_ITEM_BYTES + 1} bytes")


def test_a_transaction_may_have_four_mib() -> None:
    check([order(number, "x" * 380_000) for number in range(11)])
    [problem] = problems(*[order(number, "x" * 400_000) for number in range(11)])
    assert "at most 4194304 are possible" in problem


def test_the_same_item_twice_is_found_whatever_the_operations() -> None:
    transaction = Transaction()
    transaction.put(ORDERS, {"customer": "c", "order": "1"})
    transaction.check(ORDERS, {"order": "1", "customer": "c"}, "attribute_exists(customer)")
    [problem] = problems(*transaction.writes)
    assert "the same item stands twice" in problem


def test_missing_and_foreign_key_attributes_are_named() -> None:
    transaction = Transaction()
    transaction.put(ORDERS, {"customer": "c"})
    transaction.update(ORDERS, {"customer": "c", "order": "1", "colour": "red"}, "SET n = :n", values={":n": 1})
    assert [problem.partition(": ")[2] for problem in problems(*transaction.writes)] == [
        "key attributes are missing: order",
        "not attributes of the table's key: colour",
    ]


def test_all_problems_come_at_once() -> None:
    assert len(problems(order(1, "x" * 500_000), *[order(number) for number in range(100)])) == 3


def test_nothing_is_sent_when_a_limit_is_exceeded(bench: Bench) -> None:
    def too_much(_: object, transaction: Transaction) -> None:
        for number in range(100):
            transaction.put(ORDERS, {"customer": "c", "order": str(number)})

    with pytest.raises(LimitExceededError, match="101 writes, 1 of them for inbox and outbox"):
        bench.inbox().process(a_message(), too_much)
    assert "transact_write_items" not in bench.client.names()


def test_a_fraction_must_be_a_decimal() -> None:
    with pytest.raises(TypeError, match=r"attribute price: .*use Decimal"):
        stored({"price": 1.5})


def test_values_come_back_as_they_went_in() -> None:
    item = {
        "text": "ü",
        "number": Decimal("1.5"),
        "raw": b"\x00",
        "list": [b"x", {"a": None}],
        "set": {"a"},
        "yes": True,
    }
    assert loaded(stored(item)) == item


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"ab": "ü"}, 2 + 2),
        ({"a": b"xyz"}, 1 + 3),
        ({"a": True, "b": None}, 2 + 2),
        ({"a": [1, "x"]}, 1 + 3 + (1 + 3) + (1 + 1)),
        ({"a": {"b": "x"}}, 1 + 3 + 1 + 1 + 1),
        ({"a": {"x", "yz"}}, 1 + 3),
        ({"a": {1, 22}}, 1 + 3 + 3),
        ({"a": {b"x", b"yz"}}, 1 + 3),
    ],
)
def test_sizes_follow_the_rules_that_aws_publishes(item: dict[str, object], expected: int) -> None:
    assert size(stored(item)) == expected
