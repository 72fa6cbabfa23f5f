"""The account of messages, on logs written by hand and on logs that hypothesis makes up."""

import itertools
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from operations.drill.accounting import Event, Gap, Kind, account, longest_gap, read_events


def log(*steps: str) -> list[Event]:
    """`P3` at the moment of its place in the sequence: message 3 was published. `p/C3`: confirmed, of publisher p."""
    events = []
    for at, step in enumerate(steps):
        client, _, what = step.rpartition("/")
        events.append(Event(float(at), Kind(what[0]), client or "p", int(what[1:] or -1)))
    return events


def test_a_confirmed_message_that_never_comes_is_lost() -> None:
    found = account(log("P0", "C0", "P1", "C1", "D1"))
    assert (found.published, found.confirmed, found.delivered) == (2, 2, 1)
    assert found.lost == (("p", 0),)


def test_an_unconfirmed_message_that_never_comes_is_not_lost() -> None:
    assert account(log("P0", "P1", "C1", "D1")).lost == ()


def test_a_message_published_again_counts_once_and_its_second_delivery_is_a_duplicate() -> None:
    found = account(log("P0", "D0", "P0", "C0", "D0"))
    assert (found.published, found.republished, found.duplicate, found.lost) == (1, 1, 1, ())


def test_the_same_number_of_two_publishers_is_two_messages() -> None:
    found = account(log("a/P0", "a/C0", "b/P0", "b/C0", "b/D0"))
    assert found.published == 2
    assert found.lost == (("a", 0),)


def test_a_first_delivery_after_a_younger_message_is_out_of_order() -> None:
    assert account(log("P0", "P1", "P2", "D0", "D2", "D1")).out_of_order == 1


def test_what_was_published_or_delivered_again_is_not_out_of_order() -> None:
    assert account(log("P0", "P1", "P0", "D1", "D0")).out_of_order == 0
    assert account(log("P0", "P1", "D1", "R0")).out_of_order == 0


def test_the_gap_is_the_worst_clients_and_lasts_until_the_publishers_stop() -> None:
    events = [Event(at, Kind.CONFIRM, client, 0) for at, client in ((0, "a"), (0, "b"), (1, "a"), (5, "b"), (6, "a"))]
    assert longest_gap(events) == Gap("b", 0, 5)
    assert longest_gap(events, stopped=30) == Gap("b", 5, 30)


def test_confirmations_after_the_stop_are_no_part_of_a_gap() -> None:
    events = [Event(at, Kind.CONFIRM, "a", 0) for at in (0.0, 1.0, 50.0)]
    assert longest_gap(events, stopped=2.0) == Gap("a", 0, 1)


def test_without_confirmations_there_is_no_gap_to_measure() -> None:
    assert longest_gap(log("P0", "P1")) is None


def test_opening_again_is_a_reconnect_and_opening_is_not() -> None:
    events = [
        Event(0, Kind.UP, "p", detail="Publisher"),
        Event(0, Kind.UP, "p", detail="Consumer"),
        Event(1, Kind.DOWN, "p", detail="closed"),
        Event(2, Kind.UP, "p", detail="Publisher"),
    ]
    assert account(events).reconnects == 1


def test_logs_are_merged_in_the_order_of_time_and_a_cut_last_line_is_left_out(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    events = [Event(1.5, Kind.PUBLISH, "p", 1), Event(2.5, Kind.DOWN, "p", -1, "closed:\tbye\nbye")]
    first.write_text(events[1].line() + "9.0\tP\tp")
    second.write_text(events[0].line())
    read = read_events(first, second)
    assert [event.at for event in read] == [1.5, 2.5]
    assert read[1].detail == "closed: bye bye"


COURSES = st.lists(
    st.tuples(
        st.integers(1, 3),  # times published
        st.booleans(),  # confirmed
        st.integers(0, 3),  # times delivered
    ),
    max_size=30,
)


@given(COURSES, st.randoms(use_true_random=False))
def test_whatever_happens_every_message_is_accounted_for(courses: list[tuple[int, bool, int]], chance: object) -> None:
    steps: list[tuple[Kind, int]] = []
    for number, (published, confirmed, delivered) in enumerate(courses):
        steps += [(Kind.PUBLISH, number)] * published
        steps += [(Kind.CONFIRM, number)] * confirmed
        steps += [(Kind.DELIVER, number)] * delivered
    chance.shuffle(steps)  # type: ignore[attr-defined]
    found = account([Event(float(at), kind, "p", number) for at, (kind, number) in enumerate(steps)])
    assert found.published == len(courses)
    assert found.confirmed == sum(confirmed for _, confirmed, _ in courses)
    assert found.delivered == sum(times > 0 for _, _, times in courses)
    assert found.delivered + found.duplicate == sum(times for _, _, times in courses)
    assert {number for _, number in found.lost} == {n for n, (_, c, d) in enumerate(courses) if c and not d}
    assert sum(found.deliveries.values()) == found.delivered + found.duplicate
    assert found.out_of_order <= found.delivered


@given(st.lists(st.floats(0, 1000), min_size=1))
def test_no_two_confirmations_of_a_client_are_further_apart_than_its_longest_gap(times: list[float]) -> None:
    times.sort()
    gap = longest_gap([Event(at, Kind.CONFIRM, "p", 0) for at in times], stopped=times[-1])
    assert gap is not None
    assert gap.seconds == max([0.0, *(later - earlier for earlier, later in itertools.pairwise(times))])
