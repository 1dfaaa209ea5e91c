"""Columns of the simulation's table played side by side, each in its own process.

A column is the scenario under one way to retry. The figures are the same as in one process: columns share nothing but
the scenario, and each draws from its own random sources, seeded by the scenario.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any

from proxy.lab.simulate.columns import Column
from proxy.lab.simulate.figures import Figures, figures
from proxy.lab.simulate.simulation import play
from proxy.lab.simulate.weather import Scenario
from proxy.resources import processes

#: A function that takes how far a column is: its number, and the share of the scenario's time, from 0 to 1.
Watch = Callable[[int, float], None]


def play_all(scenario: Scenario, columns: Sequence[Column], watch: Watch, cores: int | None = None) -> list[Figures]:
    """Play every column (a way to retry), as many at a time as there are `cores` (None: as many as this process may
    use), and return their figures in the columns' order. `watch` is called with a column's index and the share of it
    that has been played. Raises ChildProcessError if a process ended before its column's end.
    """
    at_a_time = min(len(columns), processes(cores))
    if at_a_time < 2 or "fork" not in multiprocessing.get_all_start_methods():
        return [_play(scenario, column, partial(watch, number)) for number, column in enumerate(columns)]
    return _Apart(scenario, columns, watch).play(at_a_time)


def _play(scenario: Scenario, column: Column, report: Callable[[float], None]) -> Figures:
    """Play one column and return its figures. `report` is called with the share of the scenario that has been played,
    after each hundredth.
    """
    reported = 0

    def at(now: float) -> None:
        nonlocal reported
        hundredths = int(100 * now / scenario.duration)
        if hundredths > reported:
            reported = hundredths
            report(min(1.0, hundredths / 100))

    made = figures(scenario, play(scenario, column, at))
    report(1.0)
    return made


class _Apart:
    """The processes that play the columns, and what these have reported. They are forked, because a policy may hold a
    user's objects, which need not be picklable.
    """

    def __init__(self, scenario: Scenario, columns: Sequence[Column], watch: Watch) -> None:
        self._scenario = scenario
        self._columns = columns
        self._watch = watch
        self._context = multiprocessing.get_context("fork")
        self._running: dict[Connection, tuple[int, Any]] = {}
        self._done: dict[int, Figures] = {}

    def play(self, at_a_time: int) -> list[Figures]:
        """Play all columns, `at_a_time` of them at one time. No process outlives this method, however it ends."""
        waiting = iter(range(len(self._columns)))
        try:
            self._begin(waiting, at_a_time)
            while self._running:
                for ready in wait(list(self._running)):
                    assert isinstance(ready, Connection)
                    if self._hear(ready):
                        self._begin(waiting, 1)
        finally:
            for _, process in self._running.values():
                process.kill()
                process.join()
        return [self._done[number] for number in range(len(self._columns))]

    def _begin(self, waiting: Iterator[int], most: int) -> None:
        for _, number in zip(range(most), waiting, strict=False):  # in this order none is taken in vain
            receiving, sending = self._context.Pipe(duplex=False)
            args = (self._scenario, self._columns[number], sending)
            process = self._context.Process(target=_play_here, args=args, daemon=True)
            process.start()
            sending.close()  # it ends with the process that has the other copy
            self._running[receiving] = number, process

    def _hear(self, receiving: Connection) -> bool:
        """Take a report of the process at the other end of `receiving`: its progress or its figures. Returns whether it
        was the last one (the figures).
        """
        number, process = self._running[receiving]
        try:
            said = receiving.recv()
        except EOFError:
            process.join()
            why = f"signal {-process.exitcode}" if process.exitcode < 0 else f"status {process.exitcode}"
            raise ChildProcessError(f"the process that played {self._columns[number].name} ended by {why}") from None
        if isinstance(said, float):
            self._watch(number, said)
            return False
        self._done[number] = said
        del self._running[receiving]
        receiving.close()
        process.join()
        return True


def _play_here(scenario: Scenario, column: Column, sending: Connection) -> None:
    """Play a column in this child process, and report through `sending`. The parent handles Ctrl-C; if the parent is
    gone, the figures are not wanted.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        sending.send(_play(scenario, column, sending.send))
    except BrokenPipeError:
        os._exit(1)
