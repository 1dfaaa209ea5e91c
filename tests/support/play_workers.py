"""Plays of a scenario's defaults over the workers of one machine, which share what they know in one memory.

The simulator's sidecars share nothing but Redis. Here each is a worker with its own row of a shared memory.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from support.weather_judge import Result, judged, result

from proxy.lab.fleet.factory import PlayedFleet
from proxy.lab.simulate.weather import Scenario
from proxy.stores.shared_memory.factory import SharedFactory, open_memory
from proxy.stores.shared_memory.records import descriptor


def over_workers(scenario: Scenario, workers: int) -> Result:
    """The result of the defaults where so many workers get the scenario's calls. 1 is a process that shares nothing, 0
    is no proxy: the calls are not retried. The scenario's policy may keep no bucket in Redis.
    """
    scenario, columns = judged(replace(scenario, sidecars=max(1, workers)))
    if workers == 0:
        return result(scenario, next(each for each in columns if each.name == "none"))
    if workers == 1:
        return result(scenario, columns[0])
    with _one_memory(workers):
        return result(scenario, columns[0])


@contextmanager
def _one_memory(workers: int) -> Iterator[None]:
    """Give each sidecar that is made meanwhile a row of one memory."""
    opened = descriptor()
    memory = open_memory(opened)
    memory.words[memory.row(0)] = workers
    rows = itertools.count(1)
    try:
        with patch.object(PlayedFleet, "factory", lambda _: SharedFactory(memory, row=next(rows))):
            yield
    finally:
        os.close(opened)
