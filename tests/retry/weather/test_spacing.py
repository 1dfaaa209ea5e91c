"""The pace at which sendings are spaced: what a refusal takes, what is remembered, when most of it is used."""

from __future__ import annotations

from proxy.retry.weather.spacing import Spacing

#: Enough attempts that were served at a pace to prove it.
PROVEN = 20


def sent(spacing: Spacing, gap: float, count: int, now: float) -> float:
    """Send so many attempts, one after each `gap`, while no call waits; the time after them."""
    for _ in range(count):
        now += gap
        spacing.sent(now, 0)
    return now


def test_a_refusal_takes_a_little_from_a_pace_at_which_many_were_served() -> None:
    spacing = Spacing()
    spacing.cut(10.0, PROVEN, 1.0)
    assert 8.0 < spacing.rate < 10.0


def test_the_same_pace_refused_again_is_cut_less() -> None:
    once, twice = Spacing(), Spacing()
    once.cut(10.0, PROVEN, 1.0)
    for now in (1.0, 20.0):
        twice.cut(10.0, PROVEN, now)
    assert once.rate < twice.rate < 10.0
    twice.cut(20.0, PROVEN, 40.0)  # another pace: nothing is sure of it
    assert twice.rate == 2 * once.rate


def test_a_proven_pace_is_taken_up_again_before_long() -> None:
    spacing = Spacing()
    spacing.cut(10.0, PROVEN, 1.0)
    before = spacing.rate
    spacing.end()
    spacing.resume(60.0)
    assert spacing.rate == before
    spacing.end()
    spacing.resume(1000.0)
    assert spacing.rate == 0


def test_a_pace_that_was_never_proven_is_not_taken_up() -> None:
    spacing = Spacing()
    spacing.cut(10.0, 0, 1.0)
    spacing.end()
    spacing.resume(2.0)
    assert spacing.rate == 0


def test_a_pace_binds_where_most_of_it_is_used() -> None:
    used, unused = Spacing(), Spacing()
    for spacing in (used, unused):
        spacing.slow_down(10.0)
    sent(used, 0.1, 20, 0.0)
    sent(unused, 1.0, 20, 0.0)
    assert used.binds
    assert not unused.binds
    assert not Spacing().binds


def test_an_attempt_follows_at_the_pace() -> None:
    spacing = Spacing()
    spacing.slow_down(4.0)
    spacing.sent(1.0, 0)
    assert spacing.next_at == 1.25
    spacing.sent(1.25, 0)
    assert spacing.next_at == 1.5


def pace_after(refused_after: int, *, waiting: int, coming: int) -> float:
    """The pace as a multiple of that after a refusal at 50 sendings a second, which came after so many served attempts;
    four seconds after it. `waiting` calls waited, and `coming` come each second.
    """
    spacing = Spacing()
    spacing.cut(50.0, refused_after, 1.0)
    began, now, left = spacing.rate, 1.0, float(waiting)
    while now < 5.0:
        gap = 1.0 / spacing.rate
        now, left = now + gap, left + coming * gap - 1.0
        spacing.sent(now, round(left))
    return spacing.rate / began


def test_a_pace_that_was_found_lately_stays_if_the_calls_that_wait_become_fewer() -> None:
    assert pace_after(PROVEN, waiting=60, coming=30) == 1.0


def test_it_grows_if_they_become_more() -> None:
    assert pace_after(PROVEN, waiting=60, coming=60) > 1.0


def test_it_grows_if_it_was_refused_soon_since_others_may_have_been_the_reason() -> None:
    assert pace_after(6, waiting=60, coming=30) > 1.0


def sendings(spacing: Spacing, count: int, waiting: int = 100) -> list[float]:
    """The paces after each of so many sendings, each as soon as it may be sent, while so many calls wait."""
    paces = []
    for _ in range(count):
        spacing.sent(max(spacing.next_at, 1.0), waiting)
        paces.append(spacing.rate)
    return paces


def test_a_slow_pace_that_was_refused_at_once_takes_some_sendings_to_come_back() -> None:
    for pace in (1.0, 5.0, 20.0):
        spacing = Spacing()
        spacing.cut(pace, 1, 1.0)
        begun = spacing.rate
        paces = sendings(spacing, 20)
        assert begun < paces[4] < pace
        assert paces[-1] > pace


def test_a_refusal_that_names_no_delay_lets_the_pace_come_back_sooner() -> None:
    named, unnamed = Spacing(), Spacing()
    named.cut(3.0, 1, 1.0, True)
    unnamed.cut(3.0, 1, 1.0, False)
    assert sendings(unnamed, 5)[-1] > 3.0 > sendings(named, 5)[-1]


def test_a_pace_grows_though_none_waits_behind_a_client_that_makes_one_call_at_a_time() -> None:
    """Each call of such a client waits for the pace, and the next comes after it: the pace must not stay for ever."""
    spacing = Spacing()
    spacing.cut(2.0, PROVEN, 1.0)
    assert sendings(spacing, 60, waiting=0)[-1] > 2.5


def test_so_does_one_that_was_refused_after_hardly_any_served_attempt() -> None:
    spacing = Spacing()
    spacing.cut(0.5, 1, 1.0)
    assert sendings(spacing, 30, waiting=0)[-1] > 1.0


def test_a_guess_does_not_grow_so_while_a_trial_compares_at_it() -> None:
    spacing = Spacing()
    spacing.explore(2.0)
    assert sendings(spacing, 30, waiting=0)[-1] == 2.0
    spacing.is_guess = False
    assert sendings(spacing, 5, waiting=0)[-1] > 2.0


def test_a_pace_of_which_a_part_is_used_does_not_grow() -> None:
    spacing = Spacing()
    spacing.cut(2.0, PROVEN, 1.0)
    begun = spacing.rate
    sent(spacing, 0.7, 60, 1.0)
    assert spacing.rate == begun


def test_a_change_of_the_pace_moves_the_next_sending() -> None:
    """Thirty clients at half the capacity learn of the upstream's queue from their answers: 97.6 % of their calls are
    served if the next sending follows the answer, 96.8 % if the one after it does (`half_capacity`, four seeds).
    """
    spacing = Spacing()
    spacing.slow_down(2.0)
    spacing.sent(10.0, 5)
    assert spacing.next_at == 10.5
    spacing.change(1.0)
    assert spacing.next_at == 11.0
    spacing.change(4.0)
    assert spacing.next_at == 10.25


def test_a_first_pace_moves_no_sending() -> None:
    spacing = Spacing()
    spacing.next_at = 3.0
    spacing.change(2.0)
    assert (spacing.rate, spacing.next_at) == (2.0, 3.0)


def test_alarms_that_come_late_do_not_bound_a_fast_pace() -> None:
    spacing, sendings = Spacing(), 0
    spacing.slow_down(10_000.0)
    for tick in range(1, 1001):  # the alarms of an event loop, each a millisecond after the other
        now = tick / 1000
        while now >= spacing.next_at:
            spacing.sent(now, 100)
            sendings += 1
    assert 9_900 <= sendings <= 10_050


def test_an_alarm_that_comes_late_does_not_bring_two_sendings_of_a_slow_pace_closer() -> None:
    spacing = Spacing()
    spacing.slow_down(100.0)
    spacing.sent(1.0, 100)
    spacing.sent(1.011, 100)
    assert spacing.next_at == 1.011 + 0.01


def ten_clients(*, rests: bool) -> float:
    """The pace that is 100 sendings a second at first, after ten seconds of ten clients of one call at a time each.
    `rests`: once a second no other call waits.
    """
    spacing = Spacing()
    spacing.drain(100.0)
    now = 0.0
    while now < 10.0:
        now = max(now + 1e-6, spacing.next_at)
        spacing.sent(now, 0 if rests and now % 1.0 < 0.01 else 9)
    return spacing.rate


def test_a_pace_at_which_calls_wait_all_the_time_grows_though_each_waits_for_less_than_it_may() -> None:
    assert ten_clients(rests=False) > 110.0
    assert ten_clients(rests=True) == 100.0
