"""The penalty of an endpoint that refuses connections (contract, section 6)."""

from __future__ import annotations

from proxy.retry.upstreams.penalty import Penalty


def ends(penalty: Penalty, count: int) -> list[float]:
    """How long each of so many penalties lasts, if the endpoint refuses again as soon as one is over."""
    lengths = []
    for _ in range(count):
        began = penalty.until
        penalty.refused(began)
        lengths.append(penalty.until - began)
    return lengths


def test_each_penalty_is_twice_as_long_up_to_a_minute() -> None:
    assert ends(Penalty(), 6) == [5, 10, 20, 40, 60, 60]


def test_attempts_that_fail_together_count_once() -> None:
    penalty = Penalty()
    for now in (100.0, 100.0, 104.9):
        penalty.refused(now)
    assert penalty.until == 105
    penalty.refused(105.0)
    assert penalty.until == 115


def test_a_connection_ends_it_and_the_next_is_as_the_first() -> None:
    penalty = Penalty()
    assert ends(penalty, 3) == [5, 10, 20]
    penalty.reached()
    assert penalty.until == 0
    assert ends(penalty, 2) == [5, 10]
