"""The last fifteen minutes of each upstream, and of all together, in samples of five seconds: the data of the charts.

Counters only grow; a sample is what was added to them since the sample before. If a counter is lower than before, its
process was started again, and all of its value was added since: Prometheus' `increase` works in the same way, so that
no rate is negative.

Memory is bounded. An upstream has a ring of RING bytes only if it had a call or a cooldown in the last fifteen minutes,
and at most MOST upstreams have one. Further upstreams count in the sum of all, and get a ring when another upstream has
been quiet for long enough.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from struct import Struct
from typing import Any

from proxy.admin.upstream_view import Live
from proxy.observe.metrics import BOUNDS

#: Seconds between samples, and how many are kept: fifteen minutes.
SAMPLE, SAMPLES = 5.0, 180
#: The most upstreams, and the most labels of buckets, that have a ring of their own.
MOST = 1000
#: Places in a ring: one more than the samples that are shown, for the one that is being written.
_PLACES = SAMPLES + 1
#: The counters in a sample, as `Live.figures` names them; then p50, p95 and p99 of the calls that ended in it, and the
#: seconds left of a cooldown at its end.
COUNTED = ("calls", "at_once", "after_retries", "failed", "attempts", "retries", "arrived")
MEASURED = ("p50", "p95", "p99", "cooldown")
_ROW = Struct(f"<{len(COUNTED)}I{len(MEASURED)}f")
_NOTHING = _ROW.pack(*[0] * len(COUNTED), math.nan, math.nan, math.nan, 0.0)
#: Bytes of an upstream's ring, besides what Python needs for an object.
RING = _PLACES * _ROW.size
_MOST_COUNTED = 2**32 - 1

#: A histogram's slots in which nothing was counted.
NO_CALLS = (0,) * (len(BOUNDS) + 1)


def quantile(slots: Sequence[int], share: float, seconds: float) -> float | None:
    """The duration in seconds that a share of the counted durations did not exceed; None if none was counted. `slots`:
    a histogram's counts, one for each of BOUNDS and one for longer durations; `share`: from 0 to 1; `seconds`: the sum
    of the durations. The result is an estimate, as Prometheus' `histogram_quantile` makes it: durations are taken to be
    evenly spread within a slot, and those beyond the highest bound count as that bound. Where all are in one slot, they
    are taken to be evenly spread around their mean; a single duration is exact.
    """
    total = sum(slots)
    if not total:
        return None
    full = next(slot for slot, count in enumerate(slots) if count)
    if slots[full] == total and full < len(BOUNDS):
        below, above = BOUNDS[full - 1] if full else 0.0, BOUNDS[full]
        mean = min(max(seconds / total, below), above)
        spread = 0.0 if total == 1 else min(mean - below, above - mean)
        return round(mean + (2 * share - 1) * spread, 6)
    wanted = share * total
    for slot, count in enumerate(slots):
        if count >= wanted:
            if slot == len(BOUNDS):
                break
            below = BOUNDS[slot - 1] if slot else 0.0
            return round(below + (BOUNDS[slot] - below) * wanted / count, 6)
        wanted -= count
    return BOUNDS[-1]


class _Ring:
    """The samples of one upstream, in a ring that overwrites the oldest. `moved` is the number of the last sample that
    was not all zero.
    """

    __slots__ = ("_rows", "moved")

    def __init__(self) -> None:
        self._rows = bytearray(_NOTHING * _PLACES)
        self.moved = 0

    def write(self, number: int, row: bytes) -> None:
        """Write the packed sample `row` as sample `number`, over the oldest sample."""
        at = number % _PLACES * _ROW.size
        self._rows[at : at + _ROW.size] = row
        if row != _NOTHING:
            self.moved = number

    def read(self, numbers: Iterable[int]) -> Iterator[tuple[Any, ...]]:
        """The samples of these numbers."""
        return (_ROW.unpack_from(self._rows, number % _PLACES * _ROW.size) for number in numbers)


class Timeline:
    """The samples of all upstreams and bucket levels. A sample is made by `begin`, a `note` for each upstream, a
    `level` for each bucket, and `end`; the caller may give the loop turns in between, and the sample is not shown
    before its end. Times are seconds on the caller's clock.
    """

    def __init__(self) -> None:
        self._number = 0  # the number of the last complete sample
        self._times = array("d", bytes(8 * _PLACES))
        self._before: dict[str, Live] = {}  # counters at the last sample, by upstream
        self._seen: dict[str, Live] = {}  # counters at the sample that is being made
        self._rings: dict[str, _Ring] = {}
        self._all = _Ring()
        self._sums = [0] * len(COUNTED)
        self._slots = list(NO_CALLS)
        self._seconds = 0.0
        self._cooldown = 0.0
        self._levels: dict[str, array[float]] = {}
        self._shown: set[str] = set()  # labels of buckets in the sample that is being made
        self._moves = False  # whether anything in the sample that is being made differs from the sample before
        self.still = 0  # samples in a row that were as the one before, in which nothing was counted

    # -- sampling -------------------------------------------------------------------------------------------------

    def begin(self, at: float) -> None:
        """Begin the sample that ends the period up to now. `at`: the time, in seconds."""
        self._times[(self._number + 1) % _PLACES] = at
        self._seen = {}
        self._sums, self._slots = [0] * len(COUNTED), list(NO_CALLS)
        self._seconds = self._cooldown = 0.0
        self._shown = set()
        self._moves = False

    def repeat(self, at: float) -> None:
        """Add a sample that ends at `at` (seconds), in which nothing was counted and every level stayed as it was."""
        number = self._number + 1
        self._times[number % _PLACES] = at
        self._all.write(number, _NOTHING)
        for name, ring in list(self._rings.items()):
            self._rest(name, ring, number)
        for levels in self._levels.values():
            levels[number % _PLACES] = levels[self._number % _PLACES]
        self._number = number

    def note(self, row: Live) -> None:
        """Add an upstream to the sample: `row` has its counters so far, of which the increase is kept."""
        before, number = self._before.get(row.name), self._number + 1
        self._seen[row.name] = row
        if number == 1:
            return  # the first sample has no sample before it to be compared with
        ring = self._rings.get(row.name)
        if before is not None and not row.cooldown and _has_not_moved(before, row):
            if ring is not None:
                ring.write(number, _NOTHING)
            return
        self._moves = True
        counted, slots, seconds = _added(before, row)
        self._sums = [total + added for total, added in zip(self._sums, counted, strict=True)]
        if slots is not NO_CALLS:
            self._slots = [total + added for total, added in zip(self._slots, slots, strict=True)]
            self._seconds += seconds
        self._cooldown = max(self._cooldown, row.cooldown)
        packed = _packed(counted, slots, seconds, row.cooldown)
        if ring is None and len(self._rings) < MOST and packed != _NOTHING:
            ring = self._rings[row.name] = _Ring()
        if ring is not None:
            ring.write(number, packed)

    def level(self, label: str, level: float) -> None:
        """Add the level of the bucket with this label to the sample."""
        levels = self._levels.get(label)
        if levels is None:
            if len(self._levels) >= MOST:
                return
            levels = self._levels[label] = array("f", [math.nan]) * _PLACES
        at = (self._number + 1) % _PLACES
        levels[at] = level
        self._moves = self._moves or levels[at] != levels[at - 1]
        self._shown.add(label)

    def end(self) -> None:
        """End a sample. Forget upstreams that have been quiet for as long as samples are kept, and buckets that no
        longer exist.
        """
        number = self._number + 1
        if number > 1:
            self._all.write(number, _packed(self._sums, self._slots, self._seconds, self._cooldown))
        for name, ring in list(self._rings.items()):
            if name not in self._seen:  # if its counters come back, they are compared with these
                self._seen[name] = self._before[name]
                self._rest(name, ring, number)
            elif ring.moved <= number - SAMPLES:
                del self._rings[name]
        for label in self._levels.keys() - self._shown:
            del self._levels[label]
        self._before, self._seen = self._seen, {}
        self._number = number
        self.still = 0 if self._moves else self.still + 1

    def _rest(self, name: str, ring: _Ring, number: int) -> None:
        """Write into the ring of the upstream `name` that nothing was counted in sample `number`; drop the ring once
        that is so of all its samples.
        """
        ring.write(number, _NOTHING)
        if ring.moved <= number - SAMPLES:
            del self._rings[name]

    # -- showing --------------------------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """The number of samples made so far, which is the number of the last one."""
        return self._number

    def knows(self, name: str) -> bool:
        """Whether there was an upstream of this name when the last sample was made."""
        return name in self._before

    def columns(self, name: str | None, to_wall: float) -> dict[str, list[Any]]:
        """The samples of an upstream, or of all together (None), as one list for each figure, the oldest first. `at` is
        when a sample ended (seconds since the epoch: the caller's clock plus `to_wall`), `seconds` how long it lasted.
        """
        numbers = range(max(2, self._number - SAMPLES + 1), self._number + 1)
        ring = self._all if name is None else self._rings.get(name)
        rows = [_ROW.unpack(_NOTHING)] * len(numbers) if ring is None else list(ring.read(numbers))
        times = [self._times[number % _PLACES] for number in (numbers.start - 1, *numbers)] if numbers else []
        found: dict[str, list[Any]] = {
            "at": [round(at + to_wall, 3) for at in times[1:]],
            "seconds": [round(at - before, 3) for before, at in pairwise(times)],
        }
        columns = list(zip(*rows, strict=True)) or [()] * (len(COUNTED) + len(MEASURED))
        for column, values in zip((*COUNTED, *MEASURED), columns, strict=True):
            found[column] = [None if math.isnan(value) else _short(value) for value in values]
        return found

    def levels(self, label: str, most: int) -> list[float | None]:
        """The levels of the bucket with this label at the ends of the last `most` samples, the oldest first; None for
        samples before the bucket was there.
        """
        levels = self._levels.get(label)
        numbers = range(max(1, self._number - min(most, SAMPLES) + 1), self._number + 1)
        if levels is None:
            return [None] * len(numbers)
        found = (levels[number % _PLACES] for number in numbers)
        return [None if math.isnan(level) else _short(level) for level in found]

    def labels(self) -> list[str]:
        """The labels of the buckets whose levels are kept."""
        return list(self._levels)


def _has_not_moved(before: Live, row: Live) -> bool:
    """Whether nothing was counted for an upstream between two samples, `before` and `row`. All counters are compared,
    since a process that was started again may by chance have counted as many calls and attempts as before.
    """
    return (
        before.calls == row.calls
        and before.attempts == row.attempts
        and before.at_once == row.at_once
        and before.after_retries == row.after_retries
    )


def _added(before: Live | None, row: Live) -> tuple[list[int], Sequence[int], float]:
    """The increase of an upstream's counters, of its histogram's slots, and of the seconds of its calls, from the
    sample `before` to `row`. If `before` is None, or anything in `row` is lower than before (its process was started
    again), all that `row` counts is the increase.
    """
    figures = row.figures()
    now = [figures[name] for name in COUNTED]
    if before is None:
        return now, row.slots, row.seconds
    known = before.figures()
    then = [known[name] for name in COUNTED]
    if any(count < earlier for count, earlier in zip((*now, *row.slots), (*then, *before.slots), strict=True)):
        return now, row.slots, row.seconds
    counted = [count - earlier for count, earlier in zip(now, then, strict=True)]
    slots = [count - earlier for count, earlier in zip(row.slots, before.slots, strict=True)]
    return counted, slots, row.seconds - before.seconds


def _packed(counted: Sequence[int], slots: Sequence[int], took: float, cooldown: float) -> bytes:
    times = (quantile(slots, share, took) for share in (0.5, 0.95, 0.99))
    seconds = (math.nan if each is None else each for each in times)
    return _ROW.pack(*(min(count, _MOST_COUNTED) for count in counted), *seconds, cooldown)


def _short(value: float) -> float:
    """A number rounded to five significant digits: samples are kept as packed floats, which are exact to seven."""
    return value if isinstance(value, int) else float(f"{value:.5g}")
