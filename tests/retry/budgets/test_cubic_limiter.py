from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.retry.budgets.cubic_limiter import MIN_FILL_RATE, CubicLimiter
from proxy.retry.call.payment import Payment
from proxy.retry.queues.waiting_room import WaitingRoom


class Waiter:
    """An attempt that asks the gate."""

    estimate = None

    def retime(self, at: float) -> None:
        """Its next look is elsewhere."""


def test_nobody_waits_before_the_first_throttling() -> None:
    limiter = CubicLimiter(1000.0)
    for n in range(50):
        assert limiter.wait(1000 + n / 100) == 0
        assert limiter.take(1000 + n / 100)
        assert limiter.reserve(1000 + n / 100) == 0
        limiter.learn(False, 1000 + n / 100)
    assert not limiter.enabled


def test_an_attempt_that_passed_while_the_limiter_was_off_does_not_wait_when_it_is_asked_again() -> None:
    """A cooldown may hold it after that gate, until others were throttled."""
    limiter, waiter = CubicLimiter(), Waiter()
    passed, comes = (Payment(None, WaitingRoom(), "u") for _ in range(2))
    assert passed.pass_gate(limiter.gate, waiter, 0.4) == 0.4
    limiter.learn(True, 0.5)
    assert passed.pass_gate(limiter.gate, waiter, 0.6) == 0.6
    assert comes.pass_gate(limiter.gate, waiter, 0.6) > 0.6


def test_a_throttling_sets_seventy_percent_of_what_was_measured() -> None:
    limiter = CubicLimiter()
    limiter.learn(True, 0.5)
    assert limiter.enabled
    assert limiter.measured_rate == pytest.approx(1.6)
    assert limiter.fill_rate == pytest.approx(1.12)
    assert limiter.wait(0.6) == pytest.approx(0.792857, abs=1e-6)
    assert not limiter.take(0.6)
    assert limiter.take(0.6 + limiter.wait(0.6))


def test_it_is_measured_from_its_making_on() -> None:
    limiter = CubicLimiter(3_000_000.25)
    limiter.learn(False, 3_000_000.75)
    assert limiter.measured_rate == pytest.approx(1.6)  # one in the half second since the whole second of its making


def test_a_second_throttling_starts_from_the_lower_of_measured_and_allowed() -> None:
    limiter = CubicLimiter()
    for n in range(1, 41):
        limiter.learn(False, n / 40)
    limiter.learn(True, 1.0)
    first = limiter.fill_rate
    limiter.learn(True, 1.1)
    assert limiter.fill_rate == pytest.approx(0.7 * min(first, limiter.measured_rate))


def test_reservations_queue_up() -> None:
    limiter = CubicLimiter()
    limiter.learn(True, 0.5)
    waits = [limiter.reserve(0.5) for _ in range(3)]
    assert waits == pytest.approx([1 / 1.12, 2 / 1.12, 3 / 1.12])
    assert limiter.level(0.5) == 0


def test_a_token_that_was_not_used_can_be_taken_again() -> None:
    limiter = CubicLimiter()
    limiter.learn(True, 0.5)
    now = 0.5 + limiter.wait(0.5)
    assert limiter.take(now)
    limiter.give_back(now)
    assert [limiter.take(now), limiter.take(now)] == [True, False]


@given(st.lists(st.tuples(st.floats(0, 3), st.sampled_from(["ok", "throttled", "send", "unused"])), max_size=80))
def test_rates_and_levels_stay_within_bounds(steps: list[tuple[float, str]]) -> None:
    limiter, now = CubicLimiter(), 0.0
    for pause, what in steps:
        now += pause
        if what == "send":
            wait = limiter.wait(now)
            assert limiter.take(now) is (wait == 0)
        elif what == "unused":
            limiter.give_back(now)
        else:
            limiter.learn(what == "throttled", now)
            assert limiter.fill_rate >= MIN_FILL_RATE
            assert limiter.fill_rate <= max(MIN_FILL_RATE, 2 * limiter.measured_rate)
            assert limiter.enabled or what == "ok"
        assert 0 <= limiter.level(now) <= max(1.0, limiter.fill_rate)
