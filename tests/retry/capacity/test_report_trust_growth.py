"""A remainder that grows by what is sent is what was used, not what is left (contract, section 16, "Ahead": nothing is
worse where a provider's fields lie).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.retry.answers.limit_fields import ReportedLimit
from proxy.retry.capacity.report_trust import ReportTrust

MOST, WINDOW = 100.0, 60.0


def doubted(report: Callable[[float, int], ReportedLimit], *, pace: float, seconds: float) -> bool:
    """Whether a limit is doubted at any time while `pace` attempts a second succeed. `report`: what the answer to an
    attempt says, by its time and its number.
    """
    trust = ReportTrust()
    for number in range(1, int(pace * seconds)):
        now = number / pace
        said = report(now, number)
        if said.remaining < 1:
            return False  # another rule judges that nothing is left
        trust.takes(said, number, now - 0.05, now, order=number)
        if trust.doubts("l", now):
            return True
    return False


def window(now: float) -> float:
    return WINDOW - now % WINDOW


def test_what_is_used_is_told_from_what_is_left() -> None:
    def used(now: float, number: int) -> ReportedLimit:
        return ReportedLimit("l", "attempts", min(MOST, number), MOST, math.ceil(window(now)))

    assert not doubted(used, pace=1.0, seconds=5.0)
    assert doubted(used, pace=1.0, seconds=8.0)


def test_tokens_that_come_back_are_what_is_left() -> None:
    def settled(now: float, number: int) -> ReportedLimit:
        return ReportedLimit("l", "tokens", min(MOST, number), MOST, window(now))

    assert not doubted(settled, pace=1.0, seconds=50.0)


@pytest.mark.parametrize("whole_seconds", [False, True])
@given(
    rate=st.floats(0.5, 200.0),
    most=st.floats(20.0, 5000.0),
    begun=st.floats(0.0, 1.0),
    own=st.floats(0.5, 20.0),
    others=st.floats(0.0, 200.0),
)
def test_a_limit_that_fills_up_all_the_time_is_never_doubted(
    whole_seconds: bool, rate: float, most: float, begun: float, own: float, others: float
) -> None:
    """However much of it this process and others send."""
    left, at = begun * most, 0.0

    def report(now: float, number: int) -> ReportedLimit:
        nonlocal left, at
        left, at = max(0.0, min(most, left + (rate - others) * (now - at)) - 1.0), now
        reset = (most - left) / rate
        return ReportedLimit("l", "attempts", math.floor(left), most, math.ceil(reset) if whole_seconds else reset)

    assert not doubted(report, pace=own, seconds=60.0)
