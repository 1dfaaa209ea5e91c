"""`budget.lua` in Python: the calls and retries of a fleet in a sliding window, and its retries of the last second."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from proxy.lab.fleet.tokens import LATE, YOUNG

#: The slices of a window, and those of the last second.
SLICES, OF_A_SECOND = 100, 20


class Sliced:
    """Counts of events in a sliding window of `span` seconds, kept in slices of `width` seconds. `keeps_part`: the
    oldest slice counts as long as any part of it may be in the window.
    """

    def __init__(self, width: float, span: float, *, keeps_part: bool) -> None:
        self.slices: dict[int, float] = {}
        self.total = 0.0
        self.oldest: int | None = None
        self._width, self._span, self._keeps_part = width, span, keeps_part

    def slice_of(self, at: float) -> int:
        """The number of the slice that contains the time `at` (seconds): slices are numbered from the time 0 on."""
        return math.floor(at / self._width)

    def first(self, now: float) -> int:
        """The number of the oldest slice whose events still belong to the window that ends at `now`."""
        edge = self.slice_of(now - self._span)
        return edge if self._keeps_part else edge + 1

    def add(self, number: int, events: float) -> None:
        """Count events in the slice of this number."""
        self.slices[number] = self.slices.get(number, 0.0) + events
        self.total += events
        self.oldest = number if self.oldest is None else min(self.oldest, number)

    def expire(self, now: float) -> None:
        """Remove the slices that have left their window."""
        edge = self.first(now)
        if self.oldest is not None and self.oldest < edge:
            for number in range(self.oldest, min(edge - 1, self.oldest + SLICES + 2) + 1):
                self.total -= self.slices.pop(number, 0.0)
            self.oldest = edge

    def take_back(self, events: float, now: float) -> None:
        """Subtract events that were counted and did not happen after all, from the newest slices first."""
        left, number = min(events, self.total), self.slice_of(now)
        while left > 0 and self.oldest is not None and number >= self.oldest:
            less = min(self.slices.get(number, 0.0), left)
            if less > 0:
                self.slices[number] -= less
                self.total -= less
                left -= less
            number -= 1


class BudgetReport:
    """A process's report to Redis about a budget: the arguments (`words`) of `budget.lua`."""

    __slots__ = (
        "age", "before", "dead", "holder", "known", "known_made", "making", "minimum", "percent", "sequence",
        "sums", "window",
    )  # fmt: skip

    def __init__(self, words: Sequence[Any]) -> None:
        self.holder, self.sequence, self.known_made = str(words[0]), int(words[1]), str(words[2])
        self.sums, self.before = (float(words[3]), float(words[4])), (float(words[5]), float(words[6]))
        self.age = float(words[7])
        self.known = None if words[8] == "" else (float(words[8]), float(words[9]), float(words[10]))
        self.window, self.percent, self.minimum = float(words[11]), float(words[12]), float(words[13])
        self.making, self.dead = str(words[14]), float(words[15])


class BudgetKey:
    """The state of one budget's key in the played Redis, and the script that works on it."""

    expires = math.inf  # longer than a simulation

    def __init__(self) -> None:
        self.made = ""
        self.born = self.scanned = 0.0
        self.records: dict[str, tuple[int, tuple[float, float], float]] = {}  # sequence, sums, seen
        self.calls = self.retries = self.second = Sliced(1.0, 1.0, keeps_part=False)

    def run(self, words: Sequence[Any], now: float, call: Callable[[str], None]) -> list[Any]:
        """Run the script on this key: take a process's report (`words`, the arguments of the script), and return the
        reply of the script. `call` is not used.
        """
        report = BudgetReport(words)
        record = self.records.get(report.holder)
        if record is not None and report.sequence <= record[0]:
            return LATE
        if not self.made:
            self._make(report, now)
        else:
            for each in (self.calls, self.retries, self.second):
                each.expire(now)
        before = report.before
        if record is not None:
            before = record[1]
        elif report.known_made not in (self.made, ""):
            before = report.sums
            if report.known is not None and now - self.born < YOUNG:
                self._believe(report.known, report, now)
        self._count(report, before, now)
        if now - self.scanned >= report.dead or now < self.scanned:
            self._scan(report, now)
        self.records[report.holder] = report.sequence, report.sums, now
        return [self.made.encode(), self.calls.total, self.retries.total, self.second.total]

    def _make(self, report: BudgetReport, now: float) -> None:
        self.made, self.born, self.scanned = report.making, now, now
        width = report.window / SLICES
        self.calls = Sliced(width, report.window, keeps_part=False)
        self.retries = Sliced(width, report.window, keeps_part=True)
        self.second = Sliced(1 / OF_A_SECOND, 1.0, keeps_part=True)
        if report.known is not None:
            calls, retries, second = report.known
            if calls > 0:
                self.calls.add(self.calls.slice_of(now - report.window / 2), calls)
            if retries > 0:
                self.retries.add(self.retries.slice_of(now), retries)
            if second > 0:
                self.second.add(self.second.slice_of(now), second)

    def _believe(self, known: tuple[float, float, float], report: BudgetReport, now: float) -> None:
        """Add retries to the counts until this key allows no more retries than `known` would: the calls, the retries,
        and the retries of the last second that the reporting process knows from an earlier making of this key, which
        ended when Redis lost it.
        """
        calls, retries, second = known
        level = max(0.0, report.percent * calls / 100 - retries, report.minimum - second)
        share = math.ceil(report.percent * self.calls.total / 100 - self.retries.total - level)
        if share > 0:
            self.retries.add(self.retries.slice_of(now), share)
        if report.minimum - self.second.total > level:
            self.second.add(self.second.slice_of(now), math.ceil(report.minimum - self.second.total - level))

    def _count(self, report: BudgetReport, before: tuple[float, float], now: float) -> None:
        calls, more = report.sums[0] - before[0], report.sums[1] - before[1]
        if calls > 0:
            began = self.calls.slice_of(now - max(0.0, report.age))
            self.calls.add(max(self.calls.first(now), began), calls)
        for each in (self.retries, self.second):
            if more > 0:
                each.add(each.slice_of(now), more)
            else:
                each.take_back(-more, now)

    def _scan(self, report: BudgetReport, now: float) -> None:
        """Forget the holders (processes) that have not reported for `report.dead` seconds, other than the one that
        reports now.
        """
        for name, (_, _, seen) in list(self.records.items()):
            if name != report.holder and (now - seen >= report.dead or seen > now + report.dead):
                del self.records[name]
        self.scanned = now
