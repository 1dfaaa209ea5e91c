"""The times between a client's own attempts show whether an upstream counts requests over time (decision 0015)."""

from __future__ import annotations

from proxy.retry.capacity.own_gaps import OwnGaps


def served(times: list[float]) -> OwnGaps:
    """The gaps after attempts at these times, all of which were served."""
    found = OwnGaps()
    for number, at in enumerate(times):
        found.sent(number, at)
        found.served(number)
    return found


def test_several_that_were_sent_at_once_and_served_are_noted() -> None:
    assert served([0.0, 0.0, 0.5, 1.0, 1.0]).are_at_once(5.0)
    assert not served([0.0, 0.0, 0.5, 1.0, 1.2]).are_at_once(5.0), "it may be chance once"
    assert not served([0.0, 0.1, 0.2, 0.3]).are_at_once(5.0)


def test_refused_ones_say_nothing() -> None:
    found = OwnGaps()
    for number in range(6):
        found.sent(number, 1.0)
        found.refused(number)
    assert not found.are_at_once(5.0)


def test_what_is_forgotten_says_nothing() -> None:
    found = served([0.0, 0.0, 0.5, 1.0, 1.0])
    found.clear()
    assert not found.are_at_once(5.0)
