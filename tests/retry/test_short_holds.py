"""How long a long delay holds other calls (contract, sections 5 and 9, rule 1; decision 0015)."""

from __future__ import annotations

from proxy.retry.delays_by_chance import DelaysByChance
from proxy.retry.lane import Lane
from proxy.retry.short_holds import SHORT, ShortHolds
from proxy.retry.traffic import Traffic


class Held:
    """A call that waits in a lane."""

    def retime(self, now: float) -> None:
        """Do nothing: nothing wakes this call."""


def lane(calls: int = 40) -> Lane:
    """A lane in which an answer has named ten seconds at the time 0, and in which so many calls wait."""
    made = Lane(Traffic())
    assert made.start(10.0, 503, -1.0, 0.0)
    made.limit.delay_holds(object(), 0.0)
    for _ in range(calls):
        made.ask(Held(), 0.5)
    return made


def serve(made: Lane, now: float, count: int = 3) -> None:
    """Let so many attempts be served."""
    for _ in range(count):
        made.landed(object(), now - 0.1, now, well=True)


def test_a_delay_holds_for_all_of_its_time() -> None:
    assert lane().until == 10.0


def test_where_hardly_any_call_is_served_the_next_delay_holds_for_a_second() -> None:
    made = lane()
    serve(made, 10.1)
    assert made.start(10.0, 503, 10.2, 10.3)
    assert made.until == 10.3 + SHORT


def test_where_half_of_the_calls_are_served_it_holds_for_all_of_its_time() -> None:
    made = lane()
    serve(made, 10.1, count=30)
    assert made.start(10.0, 503, 10.2, 10.3)
    assert made.until == 20.3


def test_where_no_call_is_served_it_holds_for_all_of_its_time() -> None:
    """Such an upstream is not asked every second: it may be away."""
    made = lane()
    assert made.start(10.0, 503, 10.2, 10.3)
    assert made.until == 20.3


def test_a_short_delay_is_held_as_it_is() -> None:
    test = DelaysByChance()
    assert test.held_for(0.5, 1.0) == 0.5
    assert test.held_for(30.0, 1.0) == 30.0


def begun() -> ShortHolds:
    """Short holds that began at the time 100, when a tenth of the calls were served."""
    short = ShortHolds()
    assert short.may_begin(100.0)
    assert not short.are_used(100.0)
    short.begin(0.1, 100.0)
    assert short.are_used(100.0)
    assert not short.may_begin(100.0)
    return short


def test_short_holds_that_serve_more_stay_until_nothing_was_refused_for_two_minutes() -> None:
    short = begun()
    short.refused(0.3, 125.0)
    assert short.are_used(244.0)
    short.refused(0.3, 200.0)
    assert short.are_used(319.0)
    assert not short.are_used(320.0)


def test_nothing_is_judged_before_the_time_is_over() -> None:
    short = begun()
    short.refused(0.0, 119.0)
    assert short.are_used(119.0)


def test_short_holds_that_serve_no_more_end_and_are_tried_again_ever_later() -> None:
    short = begun()
    short.refused(0.12, 121.0)
    assert not short.are_used(121.0)
    assert not short.may_begin(180.0)
    assert short.may_begin(181.0)
    short.begin(0.1, 181.0)
    short.refused(0.1, 201.0)
    assert not short.may_begin(320.0)
    assert short.may_begin(321.0)
