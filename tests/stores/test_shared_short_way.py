"""The short way of a failure and of an answer against the long way, where two workers share their lanes: both leave the
same in every worker, also once there are lanes of credentials, routes and paths beside the first.
"""

from __future__ import annotations

import pytest
from callers import factories
from support.governed import Side, play

from proxy.stores.shared_memory.records import Memory


@pytest.mark.parametrize("seed", (0, 1, 2, 4, 5, 6, 7))
def test_the_short_way_leaves_what_the_long_way_leaves_in_all_workers(memory: Memory, seed: int) -> None:
    def workers(kind: str) -> list[Side]:
        upstream = f"{kind} {seed}"
        return [Side(each.governor(upstream, "x"), short=kind == "short") for each in factories(memory, 2)]

    short, long = workers("short"), workers("long")
    play(short, long, seed, 600)
    assert sum(side.noted for side in short) > 2
