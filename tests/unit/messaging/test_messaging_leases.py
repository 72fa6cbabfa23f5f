"""One relay a shard at a time, whatever the machines' clocks say."""

from messaging.leases import Leases
from messaging.outbox import Outbox
from tests.unit.messaging.standins.bench import Bench, Clock


def leases(bench: Bench, owner: str, clock: Clock | None = None, shards: int = 4) -> Leases:
    outbox = Outbox(bench.database, "outbox", shards=shards)
    return Leases(outbox, owner=owner, seconds=30, clock=clock or bench.clock, now=bench.clock)


def test_one_relay_alone_takes_all_shards_at_once(bench: Bench) -> None:
    alone = leases(bench, "a")
    assert alone.held() == []
    alone.renew_if_due()
    assert alone.held() == [0, 1, 2, 3]


def test_a_second_relay_gets_its_half_without_waiting_for_a_lease_to_run_out(bench: Bench) -> None:
    first, second = leases(bench, "a"), leases(bench, "b")
    first.renew_if_due()
    second.renew_if_due()
    assert second.held() == []
    bench.clock.sleep(10)
    first.renew_if_due()
    second.renew_if_due()
    assert len(first.held()) == len(second.held()) == 2
    assert not set(first.held()) & set(second.held())


def test_more_relays_than_shards_leave_some_without_work(bench: Bench) -> None:
    relays = [leases(bench, str(number), shards=2) for number in range(3)]
    for _ in range(4):
        for relay in relays:
            relay.renew_if_due()
        bench.clock.sleep(10)
    assert sorted(shard for relay in relays for shard in relay.held()) == [0, 1]


def test_what_is_given_back_can_be_taken_at_once(bench: Bench) -> None:
    first, second = leases(bench, "a"), leases(bench, "b")
    first.renew_if_due()
    first.release()
    assert first.held() == []
    second.renew_if_due()
    assert second.held() == [0, 1, 2, 3]


def test_a_dead_relays_shards_are_taken_once_its_beat_has_stood_still_long_enough(bench: Bench) -> None:
    dead, other = leases(bench, "a"), leases(bench, "b")
    dead.renew_if_due()
    taken_after = 0.0
    other.renew_if_due()
    while not other.held() and taken_after < 100:
        bench.clock.sleep(5)
        taken_after += 5
        other.renew_if_due()
    assert 30 <= taken_after <= 40
    assert other.held() == [0, 1, 2, 3]


def test_the_owner_stops_believing_before_anybody_may_take_its_lease(bench: Bench) -> None:
    owner, other = leases(bench, "a"), leases(bench, "b")
    owner.renew_if_due()
    other.renew_if_due()
    for _ in range(200):
        bench.clock.sleep(0.5)
        other.renew_if_due()
        assert not set(owner.held()) & set(other.held())
    assert other.held() == [0, 1, 2, 3]


def test_a_relay_that_was_frozen_finds_its_leases_gone(bench: Bench) -> None:
    frozen, other = leases(bench, "a"), leases(bench, "b")
    frozen.renew_if_due()
    other.renew_if_due()
    bench.clock.sleep(31)
    other.renew_if_due()
    assert other.held() == [0, 1, 2, 3]
    assert frozen.held() == []
    frozen.renew_if_due()
    assert not set(frozen.held()) & set(other.held())


def test_clocks_that_differ_by_hours_do_no_harm(bench: Bench) -> None:
    ahead, behind = Clock(bench.clock.now + 7200), Clock(0)
    first, second = leases(bench, "a", ahead), leases(bench, "b", behind)
    first.renew_if_due()
    for _ in range(50):
        ahead.sleep(5)
        behind.sleep(5)
        first.renew_if_due()
        second.renew_if_due()
        assert not set(first.held()) & set(second.held())
    assert len(first.held()) == len(second.held()) == 2


def test_a_renewal_whose_answer_was_lost_costs_at_most_a_pause(bench: Bench) -> None:
    relay = leases(bench, "a")
    relay.renew_if_due()
    # The write took effect, and the relay does not know: its beat is one behind.
    relay._beats = {shard: beat - 1 for shard, beat in relay._beats.items()}
    bench.clock.sleep(10)
    relay.renew_if_due()
    assert relay.held() == [0, 1, 2, 3]
