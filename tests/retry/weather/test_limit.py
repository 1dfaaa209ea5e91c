"""The limit that redrive finds by itself, its evidence and its trial, without the calls that it holds."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.retry.capacity.chances import tail
from proxy.retry.capacity.evidence import Evidence
from proxy.retry.capacity.traffic import Traffic
from proxy.retry.weather.limit import Limit
from proxy.retry.weather.spacing import SLOWEST


def refuse(limit: Limit, sent: float, now: float, under_way: int, quick: bool, silent: bool = False) -> None:
    """An attempt is refused: under the limit, or, if there is none, so that one may begin."""
    if limit.is_on:
        limit.refused(sent, now, under_way, quick=quick, silent=silent)
    elif limit.evidence.refused("503", now, now >= limit.given_up_until):
        limit.begin_at_half(under_way, now)


def limited(under_way: int = 10) -> tuple[Limit, Traffic]:
    """A limit that three refusals in a row have begun, at 1 s, after a thousand attempts that went well, while so many
    were under way.
    """
    traffic = Traffic()
    traffic.ended = 1000
    limit = Limit(traffic)
    for _ in range(3):
        traffic.ended += 1
        refuse(limit, 0.9, 1.0, under_way, quick=False)
    return limit, traffic


def test_three_refusals_of_the_first_attempts_begin_a_limit_at_half_of_what_was_under_way() -> None:
    limit, _ = limited(10)
    assert limit.is_on
    assert limit.most == 5.0


def test_two_refusals_begin_none() -> None:
    traffic = Traffic()
    limit = Limit(traffic)
    for _ in range(2):
        traffic.ended += 1
        refuse(limit, 0.9, 1.0, 10, quick=False)
    assert not limit.is_on


@given(st.integers(0, 2**32))
def test_failures_by_chance_rarely_look_like_want_of_capacity(seed: int) -> None:
    rng, traffic = random.Random(seed), Traffic()
    evidence = Evidence(traffic)
    for number in range(400):  # a share is learnt first
        traffic.ended += 1
        if rng.random() < 0.05:
            evidence.refused("503", number * 0.01)
    begun = 0
    for number in range(400, 1400):
        traffic.ended += 1
        begun += rng.random() < 0.05 and evidence.refused("503", number * 0.01)
    assert begun <= 10


@given(st.one_of(st.integers(1, 30), st.integers(190, 1_000_000)), st.integers(0, 2000), st.floats(0.0, 1.0))
def test_the_tail_is_a_probability_and_falls(count: int, least: int, share: float) -> None:
    assert -1e-9 <= tail(count, least + 1, share) <= tail(count, least, share) + 1e-9 <= 1.0 + 2e-9


def test_the_tail_of_a_known_case() -> None:
    assert math.isclose(tail(10, 3, 0.05), 0.0115, abs_tol=1e-4)  # any table of the binomial distribution


def test_the_tail_of_many_attempts_is_about_that_of_the_normal_distribution() -> None:
    assert math.isclose(tail(200, 30, 0.1), tail(201, 30, 0.1), rel_tol=0.3)
    assert tail(100_000, 10_500, 0.1) < 1e-6
    assert tail(100_000, 9_500, 0.1) > 0.999


def test_attempts_that_were_sent_before_the_last_cut_do_not_cut_again() -> None:
    limit, _ = limited(16)
    assert limit.most == 8.0
    refuse(limit, 0.95, 1.1, 16, quick=False)
    assert limit.most == 8.0
    refuse(limit, 1.05, 1.2, 8, quick=False)
    assert limit.most == 4.0


def test_quick_answers_let_the_limit_grow_by_one_a_round_trip() -> None:
    limit, _ = limited(8)
    for _ in range(4):
        limit.served(1.1, 1.2, 1.0)
    assert 4.9 < limit.most < 5.0


def test_slow_answers_shrink_it() -> None:
    limit, _ = limited(16)
    for _ in range(4):
        refuse(limit, 0.9, 1.05, 16, quick=False, silent=True)
    for _ in range(4):
        limit.served(1.1, 2.0, 6.0)
    assert limit.most < 8.0


def test_it_stays_at_half_until_it_is_known_whether_load_was_the_reason() -> None:
    limit, _ = limited(16)
    for number in range(16):
        limit.served(1.1, 2.0 + number / 100, 20.0)
    assert limit.most == 8.0


def test_answers_that_stay_as_slow_at_half_the_load_are_the_usual_ones() -> None:
    limit, _ = limited(16)
    for number in range(60):
        at = 1.1 + number / 5
        limit.served(at, at + 1.0, 20.0)
        limit.judge(at + 1.0)
    assert limit.most > 10.0


def slow_from_half_on() -> Limit:
    """A limit that refusals began at 1 s. One answer a second comes from then on, each twenty times as late as usual,
    and the limit is one place: the latest come at 7 s.
    """
    limit, _ = limited(2)
    for number in range(6):
        limit.served(1.0 + number, 2.0 + number, 20.0)
    return limit


def test_the_first_answers_at_half_the_load_do_not_show_that_a_queue_becomes_shorter() -> None:
    """Nothing is known of the answers before. The five seconds count from the beginning of the limit."""
    limit = slow_from_half_on()
    assert limit.slowness(7.0) == 1.0
    for number in range(6, 8):
        limit.served(1.0 + number, 2.0 + number, 20.0)
    assert limit.slowness(9.0) == 20.0


def test_slowness_that_is_usual_stays_so_in_a_limit_that_begins_soon_after_one_was_given_up() -> None:
    limit = slow_from_half_on()
    for number in range(6, 8):
        limit.served(1.0 + number, 2.0 + number, 20.0)
    limit.given_up_until = 15.0
    limit.end(10.0)
    assert limit.slowness(14.9) == 20.0
    assert limit.slowness(15.0) == 1.0
    limit.begin_at_half(2, 11.0)
    assert limit.slowness(11.0) == 20.0
    limit.end(12.0)
    limit.begin_at_half(2, 15.0)
    assert limit.slowness(15.0) == 1.0


@pytest.mark.parametrize(("pace", "is_usual"), [(SLOWEST, True), (2.0 * SLOWEST, False)])
def test_answers_that_stay_slow_at_the_slowest_pace_are_the_usual_ones(pace: float, is_usual: bool) -> None:
    """Fewer attempts can't be sent, so it does not matter who else returns. At any other pace it does."""
    limit = Limit(Traffic())
    limit.return_slowly(1.0)
    limit.halve(6.0)  # it served nothing since the delay before
    limit.pace.slow_down(pace)
    for number in range(8):
        at = 8.0 + 2.0 * number
        limit.served(at - 0.9, at, 20.0)
    assert (limit.most > 1.0) == is_usual


def test_the_limit_is_given_up_if_as_many_fail_at_half_the_load() -> None:
    limit, _ = limited(20)
    for number in range(20):  # what was under way: two of ten fail
        if number % 5:
            limit.served(0.9, 1.05, 1.0)
        else:
            refuse(limit, 0.9, 1.05, 20, quick=True)
    given_up = False
    for number in range(40):
        at = 1.1 + number * 0.05
        if number % 5:
            limit.served(at, at + 0.05, 1.0)
        else:
            refuse(limit, at, at + 0.05, 10, quick=True)
        given_up = given_up or limit.judge(at + 0.05)
    assert given_up
    assert not limit.is_on


def test_it_is_kept_if_fewer_fail_at_half_the_load() -> None:
    limit, _ = limited(20)
    for number in range(20):
        if number % 2:
            limit.served(0.9, 1.05, 1.0)
        else:
            refuse(limit, 0.9, 1.05, 20, quick=True)
    for number in range(40):
        at = 1.1 + number * 0.05
        limit.served(at, at + 0.05, 1.0)
        assert not limit.judge(at + 0.05)
    assert limit.is_on


def test_it_is_given_up_if_answers_stay_as_slow_at_half_the_load_and_few_fail() -> None:
    limit, _ = limited(20)
    for _ in range(12):  # what was under way: none fails, so the three that began the limit were chance
        limit.served(0.9, 2.4, 30.0)
    given_up = False
    for number in range(20):
        at = 1.1 + number * 0.2
        if number == 10:
            refuse(limit, at, at + 1.0, 10, quick=False)
        else:
            limit.served(at, at + 1.5, 25.0)
        given_up = given_up or limit.judge(at + 1.5)
    assert given_up


def test_it_is_kept_if_answers_are_faster_at_half_the_load_and_few_fail() -> None:
    limit, _ = limited(20)
    for _ in range(12):
        limit.served(0.9, 2.4, 30.0)
    for number in range(20):
        at = 1.1 + number * 0.2
        limit.served(at, at + 0.5, 10.0)
        assert not limit.judge(at + 0.5)
    assert limit.is_on


def test_calls_of_a_limit_that_is_given_up_go_at_a_pace_that_no_further_refusal_changes() -> None:
    traffic = Traffic()
    traffic.rate = 8.0
    limit = Limit(traffic)
    limit.drain(30, 1.0)
    pace = limit.pace.rate
    assert pace > 8.0
    for number in range(100):
        refuse(limit, 1.0 + number / 10, 2.0 + number / 10, 20, quick=False)
        assert not limit.judge(2.0 + number / 10)
    assert limit.pace.rate == pace


def slow_at_one_place(limit: Limit) -> float:
    """The limit's places, after ten seconds in which answers take ten times as long as usual."""
    for number in range(30):
        at = 7.0 + number / 3
        limit.served(at, at + 0.33, 10.0)
    return limit.most


def test_a_client_that_others_do_not_leave_a_share_grows_though_answers_are_slow() -> None:
    limit = Limit(Traffic())
    limit.return_slowly(1.0)
    limit.served(2.0, 2.1, 1.0)
    limit.halve(6.0)
    assert slow_at_one_place(limit) > 2.0


def test_clients_that_all_return_from_an_outage_leave_each_other_an_equal_share() -> None:
    limit = Limit(Traffic())
    limit.return_slowly(1.0)
    limit.halve(6.0)  # it served nothing since the delay before
    assert slow_at_one_place(limit) == 1.0


def test_quick_refusals_beside_quick_answers_space_sendings_at_half_the_pace_at_most() -> None:
    limit, _ = limited(4)
    pace = limit.evidence.pace
    limit.served(1.01, 1.05, 1.0)
    assert limit.pace.rate == 0.0
    refuse(limit, 1.06, 1.061, 2, quick=True)
    assert 0.0 < limit.pace.rate <= pace / 2


def test_places_do_not_hold_back_a_pace_whose_answers_take_long() -> None:
    """One place more a round trip of seconds would serve fewer for minutes than the pace allows."""
    limit, _ = limited(4)
    limit.served(1.01, 5.01, 1.0)
    limit.pace.explore(20.0)
    limit.served(5.07, 9.07, 1.0)
    assert limit.round_trip > 1.0
    assert limit.most == pytest.approx(20.0 * (limit.round_trip - 0.1))


@pytest.mark.parametrize("under_way", [4, 2])
def test_quick_refusals_beside_slow_answers_do_not_since_there_is_a_queue(under_way: int) -> None:
    limit, _ = limited(under_way)
    limit.served(1.01, 2.05, 20.0)
    refuse(limit, 2.06, 2.061, 2, quick=True)
    assert limit.pace.rate == 0.0


def test_refusals_before_sendings_were_spaced_do_not_show_that_load_was_not_the_reason() -> None:
    limit, _ = limited(4)
    limit.served(1.01, 1.05, 1.0)
    refuse(limit, 1.06, 1.061, 2, quick=True)
    for number in range(30):
        at = 1.1 + number / 10
        limit.served(at, at + 0.05, 1.0)
        assert not limit.judge(at + 0.05)
    assert limit.is_on


def returning(rate: float = 8.0) -> Limit:
    """A limit of calls that return from an outage of attempts that timed out, at 100 s, while the probe's answer took
    five times the usual time; before it, `rate` attempts were made a second.
    """
    traffic = Traffic()
    traffic.rate = rate
    limit = Limit(traffic)
    limit.timed_out_at, limit.last_ratio = 99.0, 5.0
    limit.return_slowly(100.0, cooldown=False)
    return limit


def test_calls_return_at_half_the_usual_rate_where_other_clients_fill_the_queue() -> None:
    assert returning(8.0).pace.rate == 4.0


def test_calls_return_without_a_pace_where_the_queue_is_short() -> None:
    limit = Limit(Traffic())
    limit.timed_out_at, limit.last_ratio = 99.0, 1.2
    limit.return_slowly(100.0, cooldown=False)
    assert limit.most == 1.0
    assert limit.pace.rate == 0.0


def test_where_one_place_is_too_much_answers_tell_the_pace() -> None:
    limit = returning()
    limit.served(100.1, 100.2, 1.0)
    quick = limit.pace.rate
    limit.served(100.3, 100.5, 4.0)
    assert limit.pace.rate == quick, "it becomes slower"
    limit.served(100.6, 100.8, 4.0)
    slower = limit.pace.rate
    assert quick > 4.0
    assert 0.0 < slower - quick < quick - 4.0
    limit.served(100.7, 101.1, 10.0)
    assert limit.pace.rate < slower
    assert limit.most == 1.0


def test_where_one_place_is_too_much_an_attempt_without_an_answer_cuts_the_pace_once() -> None:
    limit = returning()
    refuse(limit, 100.1, 100.6, 1, quick=False, silent=True)
    assert math.isclose(limit.pace.rate, 2.4)
    refuse(limit, 100.5, 100.9, 1, quick=False, silent=True)  # sent before the cut
    assert math.isclose(limit.pace.rate, 2.4)


def test_the_smaller_pace_grows_by_the_larger_part() -> None:
    grown = []
    for pace in (1.0, 4.0):
        limit = returning()
        refuse(limit, 100.1, 100.6, 1, quick=False, silent=True)
        limit.pace.slow_down(pace)
        limit.served(101.0, 101.3, 3.0)
        grown.append(limit.pace.rate / pace)
    assert grown[0] > grown[1] > 1.0


@pytest.mark.parametrize(("gap", "least", "most"), [(1.0, 0.0, 0.5), (0.05, 0.5, 1.0)])
def test_the_pace_grows_less_while_answers_become_slower(gap: float, least: float, most: float) -> None:
    """Answers that come shortly after one another differ by chance: their difference counts for less."""
    grown = []
    for first in (2.5, 1.0):
        limit = returning()
        limit.served(100.1, 100.2, first)
        limit.pace.slow_down(4.0)
        limit.served(100.1, 100.2 + gap, 2.5)
        grown.append(limit.pace.rate - 4.0)
    as_slow, slower = grown
    assert least * as_slow <= slower < most * as_slow


def test_answers_that_take_more_than_half_of_the_time_after_which_attempts_are_lost_are_too_slow() -> None:
    limit = returning()
    limit.served(100.0, 100.2, 4.0)  # usually 50 ms
    pace = limit.pace.rate
    limit.served(100.1, 100.3, 4.0)
    assert limit.pace.rate > pace
    refuse(limit, 100.1, 100.4, 1, quick=False, silent=True)  # lost after six times as long
    pace = limit.pace.rate
    limit.served(100.5, 100.7, 4.0)
    assert limit.pace.rate < pace


def test_a_pace_ends_where_one_place_is_the_smaller_limit() -> None:
    limit, at = returning(), 100.0
    while limit.pace.rate:
        at += 0.1
        limit.served(at, at + 0.05, 1.0)
    assert at < 110.0
    assert limit.threshold == limit.most == 1.0  # from there on it grows by one a round trip


def test_answers_that_take_no_time_do_not_end_a_pace() -> None:
    limit = returning()
    limit.served(100.1, 100.1, 1.0)
    assert limit.pace.rate > 0.0


def test_an_answer_that_comes_once_a_limit_with_a_pace_is_over_changes_nothing() -> None:
    limit = returning()
    assert limit.pace.rate > 0
    limit.end(100.2)
    limit.served(100.3, 100.4, 1.0)
    assert not limit.is_on and not limit.pace.rate


events = st.lists(
    st.tuples(st.sampled_from(["served", "refused", "waits", "sent", "halve"]), st.floats(0.001, 3.0), st.booleans()),
    max_size=80,
)


@given(events)
def test_there_is_always_a_place_and_a_pace(events: list[tuple[str, float, bool]]) -> None:
    limit, traffic = limited(10)
    now = 1.0
    for event, seconds, flag in events:
        now += seconds / 10
        traffic.ended += 1
        if event == "served":
            limit.served(now - seconds / 10, now, seconds * 3)
        elif event == "refused":
            refuse(limit, now - seconds / 10, now, 5, quick=flag)
        elif event == "waits":
            limit.asked_to_wait(now - seconds / 10, now, quick=flag)
        elif event == "sent":
            limit.pace.sent(now, 5 if flag else 0)
        elif limit.is_on:
            limit.halve(now)
        limit.judge(now)
        assert limit.most >= 1.0
        assert limit.pace.rate == 0.0 or limit.pace.rate >= SLOWEST
        assert limit.wait_for(5, now) >= 0.0
        if limit.pace.rate:
            assert limit.pace.next_at <= now + 100 / SLOWEST


def slowed_down(share: float, seed: int) -> int:
    """How many of 600 attempts of a client of one call at a time wait for more than 0.6 s, if this share of them fails
    by chance.
    """
    rng, traffic = random.Random(seed), Traffic()
    limit, now, slowest = Limit(traffic), 1.0, 0
    for _ in range(600):
        sent = now = max(now + 0.1, limit.pace.next_at)
        now += 0.02
        traffic.ended += 1
        if rng.random() < share:
            refuse(limit, sent, now, 1, quick=True)
        else:
            limit.served(sent, now, 1.0)
        limit.judge(now)
        limit.pace.sent(sent, 0)
        slowest += limit.pace.next_at > sent + 0.6
    return slowest


@pytest.mark.parametrize("share", [0.3, 0.6, 0.7])
def test_a_client_of_one_call_at_a_time_is_not_slowed_down_for_good_by_failures_of_chance(share: float) -> None:
    """Most attempts may fail by chance: the limit is given up, and no trial sends fewer than two attempts a second. Of
    thirty clients, some are less lucky: five were slowed down for more than thirty attempts, of which 0.6 or 0.7 fail.
    """
    assert sum(slowed_down(share, seed) >= 30 for seed in range(1, 31)) <= 6


def after_a_spell(share: float, seed: int) -> float:
    """The seconds that the last 500 of 1,000 calls of a client of one call at a time take, each 0.1 s after the last
    was answered in 0.02 s, if this share of its 20th to 80th call is refused, and no other.
    """
    rng, traffic = random.Random(seed), Traffic()
    limit, now, half = Limit(traffic), 1.0, 0.0
    for number in range(1000):
        half = now if number == 500 else half
        came = now + 0.1
        sent = max(came, limit.pace.next_at) if limit.is_on else came
        now = sent + 0.02
        if limit.is_on:
            limit.held(came, sent)
            limit.sent(0.0)
            limit.pace.sent(sent, 0)
        traffic.ended += 1
        is_refused = 20 <= number < 80 and rng.random() < share
        if not limit.is_on:
            if is_refused and limit.evidence.refused("429", now, now >= limit.given_up_until):
                limit.begin_at_half(1, now)
            continue
        if is_refused:
            limit.refused(sent, now, 1, quick=True)
        else:
            limit.served(sent, now, 1.0)
        limit.judge(now)
        if limit.is_over(0, now):
            limit.end(now)
    return now - half


@pytest.mark.parametrize("share", [0.3, 0.7, 0.9])
def test_after_a_spell_of_refusals_a_client_of_one_call_at_a_time_is_as_fast_as_before(share: float) -> None:
    """No call ever waits behind another of such a client, however slow the pace is that the refusals left."""
    assert max(after_a_spell(share, seed) for seed in range(40)) < 1.05 * 500 * 0.12


@pytest.mark.parametrize("waiting", [0, 5])
def test_more_than_half_is_chance_only_if_no_call_waits(waiting: int) -> None:
    """Five of eight are refused at half the pace and less: as few attempts can't tell that from load for sure."""
    traffic = Traffic()
    limit, now, given_up = Limit(traffic), 1.0, 0
    for number in range(200):
        sent = now = max(now + 0.1, limit.pace.next_at)
        now += 0.02
        traffic.ended += 1
        if number % 8 in (0, 1, 3, 4, 6):
            refuse(limit, sent, now, 1, quick=True)
        else:
            limit.served(sent, now, 1.0)
        given_up += limit.judge(now)
        limit.pace.sent(sent, waiting)
    assert bool(given_up) == (not waiting)


def test_what_fails_nine_times_of_ten_is_never_chance() -> None:
    traffic = Traffic()
    limit, now = Limit(traffic), 1.0
    for number in range(200):
        sent = now = max(now + 0.1, limit.pace.next_at)
        now += 0.02
        traffic.ended += 1
        if number % 10 != 2:
            refuse(limit, sent, now, 1, quick=True)
        else:
            limit.served(sent, now, 1.0)
        assert not limit.judge(now)
        limit.pace.sent(sent, 0)


def test_attempts_from_before_the_first_refusal_do_not_hide_how_many_are_refused() -> None:
    traffic = Traffic()
    evidence = Evidence(traffic)
    traffic.ended = 100
    for number in range(3):
        traffic.ended += 1
        evidence.refused("503", 1.0 + number / 10)
    assert evidence.latest_share(evidence.ended) == 1.0
    traffic.ended += 2
    evidence.refused("503", 2.0)
    assert evidence.latest_share(evidence.ended) == 0.75


def returning_to_an_idle_upstream() -> Limit:
    """A limit of one place, at 10 s, by which calls return from an outage."""
    limit = Limit(Traffic())
    limit.return_slowly(10.0, cooldown=False)
    return limit


def test_a_usual_time_from_bad_weather_does_not_let_a_queue_grow() -> None:
    """Answers took 400 ms before an outage, and 50 ms afterwards: 200 ms are a queue then."""
    limit = returning_to_an_idle_upstream()
    for number in range(8):
        limit.served(10.0 + number, 10.05 + number, 0.05 / 0.4)
    grown = limit.most
    assert grown >= 8.0
    for number in range(8):
        limit.served(20.0 + number, 20.2 + number, 0.2 / 0.4)
    assert limit.most < grown


def test_a_few_quick_answers_do_not_make_the_usual_ones_slow() -> None:
    limit = returning_to_an_idle_upstream()
    for number in range(40):
        quick = number % 8 != 7  # seven in a row come at once, from a cache
        limit.served(10.0 + number, 10.05 + number, 0.01 if quick else 1.0)
    grown = limit.most
    for number in range(8):
        limit.served(50.0 + number, 50.4 + number, 1.0)
    assert limit.most > grown


def test_an_attempt_without_an_answer_at_one_place_spaces_sendings_and_the_next_one_further() -> None:
    limit, _ = limited(2)
    assert limit.most == 1.0
    refuse(limit, 1.1, 1.35, 1, quick=False, silent=True)
    assert math.isclose(limit.pace.rate, 0.7 / 0.25)  # it was lost after a quarter of a second
    assert limit.most == 1.0
    refuse(limit, 1.4, 1.65, 1, quick=False, silent=True)
    assert math.isclose(limit.pace.rate, 0.6 * 0.7 / 0.25)


def test_an_attempt_without_an_answer_at_two_places_takes_a_place() -> None:
    limit, _ = limited(4)
    refuse(limit, 1.1, 1.35, 1, quick=False, silent=True)
    assert limit.most == 1.0
    assert limit.pace.rate == 0.0


def test_where_quick_refusals_spaced_sendings_an_attempt_without_an_answer_spaces_them_further() -> None:
    limit, _ = limited(2)
    limit.served(1.01, 1.05, 1.0)
    refuse(limit, 1.06, 1.061, 1, quick=True)
    pace = limit.pace.rate
    assert pace > 0.0
    refuse(limit, 1.1, 1.2, 1, quick=False, silent=True)
    assert math.isclose(limit.pace.rate, 0.7 * pace)


def test_each_quick_refusal_after_served_attempts_spaces_sendings_further() -> None:
    limit, _ = limited(4)
    limit.served(1.01, 1.05, 1.0)
    refuse(limit, 1.06, 1.061, 2, quick=True)
    pace = limit.pace.rate
    limit.served(1.1, 1.15, 1.0)
    refuse(limit, 1.2, 1.201, 1, quick=True)
    assert 0.0 < limit.pace.rate < pace


@pytest.mark.parametrize(("rate", "most"), [(0.0, 15.0), (40.0, 31.5)])
def test_the_first_pace_is_little_faster_than_calls_come_if_no_usual_rate_is_known(rate: float, most: float) -> None:
    """Two places and answers of 44 ms would be 45 attempts a second. Each refusal holds all calls for a second."""
    traffic = Traffic()
    traffic.rate = rate
    limit = Limit(traffic)
    limit.return_slowly(10.0)
    limit.served(10.9, 10.944, 1.0)
    limit.set(2.0, 100.0)
    limit.evidence.delay_holds(object(), 10.0)
    by_chance = limit.evidence.by_chance
    assert by_chance is not None
    for _ in range(10):
        by_chance.came(10.0)
    by_chance.came(11.0)
    assert by_chance.calls == pytest.approx(10.5, rel=0.1)
    limit.evidence.delay_holds(object(), 11.0)
    limit.asked_to_wait(10.99, 11.0, quick=True)
    assert limit.pace.rate == pytest.approx(most, rel=0.1)


def with_one_place(rate: float) -> Limit:
    """A limit of one place, by which calls return after an outage that ended at 100 s; `rate`: attempts a second while
    all was well. Its only attempt is sent at once.
    """
    traffic = Traffic()
    traffic.rate = rate
    limit = Limit(traffic)
    limit.return_slowly(100.0, cooldown=False)
    limit.sent(100.0)
    return limit


def test_places_double_each_second_while_long_answers_are_not_due_up_to_what_is_usually_under_way() -> None:
    limit, most = with_one_place(0.5), []
    for now in range(100, 106):
        limit.grow_unanswered(10.0, now - 100.0, float(now))
        most.append(limit.most)
    assert most == [1.0, 2.0, 4.0, 5.0, 5.0, 5.0]


def test_places_do_not_double_if_an_attempt_was_refused() -> None:
    limit = with_one_place(10.0)
    limit.refused(100.0, 100.5, 1, quick=False)
    limit.grow_unanswered(10.0, 1.0, 101.0)
    assert limit.most == 1.0


def test_places_do_not_double_if_answers_are_late() -> None:
    limit = with_one_place(10.0)
    limit.grow_unanswered(10.0, 26.0, 126.0)
    assert limit.most == 1.0


@pytest.mark.parametrize(("rate", "pace"), [(0.7, 0.35), (5.0, 1.0), (0.0, 1.0), (0.05, 0.1)])
def test_timeouts_cut_the_pace_of_a_client_that_seldom_calls_below_one_a_second(rate: float, pace: float) -> None:
    limit = returning(rate)
    for number in range(20):
        now = 101.0 + number
        limit.timed_out_at = now
        limit.refused(now - 0.5, now, 1, quick=False, silent=True)
    assert limit.pace.rate == pytest.approx(pace)
