"""How a limit comes back: the length of its window, and whether it is fixed or slides (`Refill`)."""

from __future__ import annotations

import pytest

from proxy.retry.answers.limit_fields import ReportedLimit
from proxy.retry.capacity.limit_refill import Refill


def a_report(reset: float, remaining: float = 5, window: float = 0.0) -> ReportedLimit:
    return ReportedLimit("l", "attempts", remaining, 10, reset, window)


def moves(refill: Refill, since: float, until: float, remaining: float = 5, window: float = 0.0) -> None:
    refill.moves(a_report(until - since, remaining, window), since, until)


def a_refill(window: float = 10) -> Refill:
    refill = Refill()
    refill.window = window
    return refill


@pytest.mark.parametrize(("reset", "took", "window"), [(10, 0.3, 10), (9, 0.9, 10), (10.5, 0, 10.5), (59, 1.2, 60)])
def test_a_window_has_a_usual_length_if_the_reports_allow_it(reset: float, took: float, window: float) -> None:
    """A whole number of seconds may be rounded up by one; a fraction is as it is."""
    refill = Refill()
    refill.learn_window(a_report(reset), took)
    assert refill.window == window


def test_the_first_reset_that_is_named_says_nothing_of_how_the_limit_comes_back() -> None:
    refill = a_refill()
    moves(refill, 0, 4)
    assert not refill.slides
    assert not refill.is_proven


def test_a_reset_that_stays_is_that_of_a_fixed_window() -> None:
    refill = a_refill()
    refill.slides = True
    moves(refill, 0, 10)
    moves(refill, 1.9, 10)
    assert not refill.is_proven
    moves(refill, 2, 10)
    assert refill.is_proven
    assert refill.slides  # it stood for less than half a window
    moves(refill, 5, 10.5)
    assert not refill.slides


def test_a_named_window_with_a_reset_that_stays_does_not_refill_before_it() -> None:
    """Of ten in five seconds, four would have come back after two."""
    refill = a_refill(5)
    moves(refill, 0, 5, 9, window=5)
    moves(refill, 2, 5, 7, window=5)
    assert not refill.is_fixed, "times of resets may be rounded up by a second"
    moves(refill, 2.1, 5, 6, window=5)
    assert refill.is_fixed
    moves(refill, 2.5, 5, 8, window=5)
    assert refill.is_fixed, "calls whose answers came out of order"
    moves(refill, 3, 5, 10, window=5)
    assert not refill.is_fixed, "something came back"


def test_a_named_window_that_refills_evenly_puts_its_reset_off() -> None:
    refill = a_refill(5)
    for number in range(40):  # five a second of two a second
        left = 10 - 0.2 * 3 * number / 3
        moves(refill, 0.2 * number, 0.2 * number + (10 - left) / 2, left, window=5)
    assert not refill.is_fixed


@pytest.mark.parametrize(
    ("since", "until", "slides"),
    [
        (3, 13, True),  # put off by an attempt before it came
        (9.5, 20, False),  # the next window, with the times of resets rounded to seconds
        (10.5, 20.5, False),  # the next window
        (10.5, 13, True),  # too soon for a window that has just begun
    ],
)
def test_a_reset_that_is_put_off_is_that_of_a_sliding_window(since: float, until: float, slides: bool) -> None:
    refill = a_refill()
    moves(refill, 0, 10)
    moves(refill, since, until)
    assert refill.slides is slides
    assert refill.is_proven is slides


def test_a_limit_of_which_only_a_part_came_back_slides_unless_others_use_it() -> None:
    refill = a_refill()
    refill.came_back(4, 10, 20)
    assert (refill.in_part, refill.slides, refill.is_proven) == (True, True, True)
    used_by_others = a_refill()
    used_by_others.learn_others(8, 2, 10, 20)
    used_by_others.came_back(4, 10, 20)
    assert (used_by_others.in_part, used_by_others.slides, used_by_others.is_proven) == (True, False, True)


def test_a_limit_that_came_back_whole_is_proven_and_one_between_says_nothing() -> None:
    refill = a_refill()
    refill.in_part = True
    refill.came_back(8, 10, 20)
    assert (refill.in_part, refill.is_proven) == (True, False)
    refill.came_back(9, 10, 20)
    assert (refill.in_part, refill.is_proven) == (False, True)
