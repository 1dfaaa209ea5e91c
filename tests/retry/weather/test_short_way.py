"""The short way of a failure (`Governor.failed_freely`) and of an answer (`answered_freely`), against the long way: the
same attempts, reported by the one and by the other, leave two governors that decide and report the same.
"""

from __future__ import annotations

import pytest
from support.governed import Side, play

from proxy.retry.weather.governor import Governor


@pytest.mark.parametrize("seed", range(24))
def test_the_short_way_leaves_what_the_long_way_leaves(seed: int) -> None:
    short, long = Side(Governor(), short=True), Side(Governor(), short=False)
    play([short], [long], seed, 1500)
    assert short.noted > 2
