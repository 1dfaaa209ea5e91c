"""The counts of several workers as one: their series are added up, and their last calls are put in order of time.

Law: nothing that a worker reported is lost when the worker ends, and no count goes down. A worker's newest report of a
series replaces its earlier report of that series; the last report of a worker that has ended is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from proxy.observe.metrics import Metrics, Series, Wires
from proxy.observe.recent_calls import NumberedCall, RecentCalls

Labels: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Report:
    """A worker's counts: the series that have changed since the worker's previous report.

    `seen`: the number of calls that have ended in the worker so far. `calls`: the worker's last calls, in the form in
    which they are shown; None if the parent did not ask for calls. `lines_lost`: the number of log lines that were lost
    since the start. `wires`: the counts of connections and their errors.
    """

    series: list[Series] = field(default_factory=list)
    seen: int = 0
    calls: list[NumberedCall] | None = None
    lines_lost: int = 0
    wires: Wires = field(default_factory=Wires)


class Aggregate:
    """The counts of all workers, written into `metrics` and `recent`.

    Reports are kept until all workers that were asked have answered, and are then added up at once, so that calls of
    different workers are put in order of time.
    """

    def __init__(self, metrics: Metrics, recent: AggregatedCalls) -> None:
        self._metrics = metrics
        self.recent = recent
        self._latest: dict[int, dict[Labels, Series]] = {}
        self._ended: dict[Labels, Series] = {}
        self._shown: dict[int, int] = {}
        self._kept: dict[int, Report] = {}
        self._lines_lost: dict[int, int] = {}
        self._wires: dict[int, Wires] = {}
        self._wires_ended = Wires()

    @property
    def wires(self) -> Wires:
        """The connections and streams that all workers have open, and the errors of all workers, ended ones too."""
        return sum(self._wires.values(), self._wires_ended)

    def seen(self, worker: int) -> int:
        """The number of the last call of a worker that has been added to `recent`."""
        return self._shown.get(worker, 0)

    def keep(self, worker: int, report: Report) -> None:
        """Keep a worker's newest report until `take` adds it to the totals. `worker` is a number that no other worker
        of this run has.
        """
        before = self._kept.get(worker)
        if before is not None:
            report = replace(report, series=[*before.series, *report.series])
            if report.calls is None:  # what was reported of calls is yet to be shown
                report = replace(report, calls=before.calls, seen=before.seen)
        self._kept[worker] = report

    def take(self) -> None:
        """Add the reports that were kept to the totals in `metrics`, and their calls, in order of time, to the last
        calls in `recent`. The reports are no longer kept afterwards.
        """
        reports, self._kept = self._kept, {}
        news, passed = [], 0
        for worker, report in reports.items():
            if report.calls is not None:  # else what has ended since is yet to be shown
                news += [call for call in report.calls if call.number > self.seen(worker)]
                passed += report.seen - self.seen(worker)
                self._shown[worker] = report.seen
        self.recent.merge(news, passed)
        moved: set[Labels] = set()
        for worker, report in reports.items():
            self._metrics.lost(report.lines_lost - self._lines_lost.get(worker, 0))
            self._lines_lost[worker] = report.lines_lost
            self._wires[worker] = report.wires
            latest = {(series.upstream, series.route): series for series in report.series}
            self._latest.setdefault(worker, {}).update(latest)
            moved |= latest.keys()
        for labels in moved:
            self._metrics.put(self._total(labels))

    def _total(self, labels: Labels) -> Series:
        total = Series(*labels)
        for counted in (self._ended, *self._latest.values()):
            series = counted.get(labels)
            if series is not None:
                total.add(series)
        return total

    def ended(self, worker: int) -> None:
        """Note that a worker has ended, after its last report: from now on its counts are kept for good, with those of
        all other workers that have ended.
        """
        self.take()
        self._shown.pop(worker, None)
        self._lines_lost.pop(worker, None)
        wires = self._wires.pop(worker, Wires())
        self._wires_ended += Wires(errors=wires.errors, handed_over=wires.handed_over)
        for labels, series in self._latest.pop(worker, {}).items():
            self._ended.setdefault(labels, Series(*labels)).add(series)


class AggregatedCalls(RecentCalls):
    """The last calls of all workers, numbered in the parent. Calls that were not kept have numbers too, so there may be
    gaps.
    """

    def merge(self, calls: Iterable[NumberedCall], passed: int) -> None:
        """Add the calls that workers reported, in order of time. `passed`: the number of calls that have ended since
        the last merge; it may be higher than the number of `calls`, since workers do not keep all calls.
        """
        news = sorted(calls, key=lambda call: call.wall)
        first = self._seen + passed - len(news) + 1
        for number, call in enumerate(news, first):
            (self._notable if call.notable else self._plain).append(call._replace(number=number))
        self._seen += passed
