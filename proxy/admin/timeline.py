"""The last fifteen minutes of each upstream, and of all together, in samples of five seconds: what charts are drawn of.

Counters only grow; a sample is what was added to them since the one before. A counter that is lower than before began
again (its process did), and what it shows now was added: as Prometheus' `increase` has it, so that no rate is negative.

Memory is bounded: an upstream that has had no call and no cooldown for fifteen minutes has no ring, and MOST upstreams
have one, of RING bytes each. Those that come beyond that are in the sum, and have a ring once another has gone quiet.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from struct import Struct
from typing import Any

from proxy.admin.views import Live
from proxy.observe.metrics import BOUNDS

#: Seconds between samples, and how many are kept: fifteen minutes.
SAMPLE, SAMPLES = 5.0, 180
#: Upstreams, and labels of buckets, that have a ring of their own.
MOST = 1000
#: One place more than what is shown: the one that is being written.
_PLACES = SAMPLES + 1
#: What is counted in a sample, as `Live.figures` names it; behind it p50, p95 and p99 of the calls that ended in it,
#: and the seconds left of a cooldown at its end.
COUNTED = ("calls", "at_once", "after_retries", "failed", "attempts", "retries", "arrived")
MEASURED = ("p50", "p95", "p99", "cooldown")
_ROW = Struct(f"<{len(COUNTED)}I{len(MEASURED)}f")
_NOTHING = _ROW.pack(*[0] * len(COUNTED), math.nan, math.nan, math.nan, 0.0)
#: Bytes of an upstream's ring, beside what Python needs for an object.
RING = _PLACES * _ROW.size
_MOST_COUNTED = 2**32 - 1

#: A histogram's slots in which nothing was counted.
NO_CALLS = (0,) * (len(BOUNDS) + 1)


def quantile(slots: Sequence[int], share: float) -> float | None:
    """Seconds that this share of what was counted stayed below; None where nothing was. As Prometheus estimates it
    (`histogram_quantile`): evenly spread within a slot, so that it is off by a slot's width at most, and the highest
    bound for what lies beyond all.
    """
    total = sum(slots)
    if not total:
        return None
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
    """The samples of one upstream. `moved`: the number of the last one in which anything was."""

    __slots__ = ("_rows", "moved")

    def __init__(self) -> None:
        self._rows = bytearray(_NOTHING * _PLACES)
        self.moved = 0

    def write(self, number: int, row: bytes) -> None:
        """Write a sample in the place of the oldest."""
        at = number % _PLACES * _ROW.size
        self._rows[at : at + _ROW.size] = row
        if row != _NOTHING:
            self.moved = number

    def read(self, numbers: Iterable[int]) -> Iterator[tuple[Any, ...]]:
        """The samples of these numbers."""
        return (_ROW.unpack_from(self._rows, number % _PLACES * _ROW.size) for number in numbers)


class Timeline:
    """See the module. A sample is made in a `begin`, a `note` for each upstream, a `level` for each bucket, and an
    `end`, with turns of the loop in between as its maker likes: until its end it is not shown. Times are seconds on the
    maker's clock.
    """

    def __init__(self) -> None:
        self._number = 0  # of the last sample that is whole
        self._times = array("d", bytes(8 * _PLACES))
        self._before: dict[str, Live] = {}  # what was counted at the last sample
        self._seen: dict[str, Live] = {}  # the same at this one
        self._rings: dict[str, _Ring] = {}
        self._all = _Ring()
        self._sums = [0] * len(COUNTED)
        self._slots = list(NO_CALLS)
        self._cooldown = 0.0
        self._levels: dict[str, array[float]] = {}
        self._shown: set[str] = set()  # labels that this sample has had

    # -- sampling -------------------------------------------------------------------------------------------------

    def begin(self, at: float) -> None:
        """Begin a sample."""
        self._times[(self._number + 1) % _PLACES] = at
        self._seen = {}
        self._sums, self._slots, self._cooldown = [0] * len(COUNTED), list(NO_CALLS), 0.0
        self._shown = set()

    def note(self, row: Live) -> None:
        """Note what an upstream has counted so far."""
        before, number = self._before.get(row.name), self._number + 1
        self._seen[row.name] = row
        if number == 1:
            return  # it is what the others are compared with
        ring = self._rings.get(row.name)
        if before is not None and before.calls == row.calls and before.attempts == row.attempts and not row.cooldown:
            if ring is not None:
                ring.write(number, _NOTHING)
            return
        counted, slots = _added(before, row)
        self._sums = [total + added for total, added in zip(self._sums, counted, strict=True)]
        if slots is not NO_CALLS:
            self._slots = [total + added for total, added in zip(self._slots, slots, strict=True)]
        self._cooldown = max(self._cooldown, row.cooldown)
        packed = _packed(counted, slots, row.cooldown)
        if ring is None and len(self._rings) < MOST and packed != _NOTHING:
            ring = self._rings[row.name] = _Ring()
        if ring is not None:
            ring.write(number, packed)

    def level(self, label: str, level: float) -> None:
        """Note the level of a bucket."""
        levels = self._levels.get(label)
        if levels is None:
            if len(self._levels) >= MOST:
                return
            levels = self._levels[label] = array("f", [math.nan]) * _PLACES
        levels[(self._number + 1) % _PLACES] = level
        self._shown.add(label)

    def end(self) -> None:
        """The sample is whole. What has gone, or has been quiet for as long as the ring is, is forgotten."""
        number = self._number + 1
        if number > 1:
            self._all.write(number, _packed(self._sums, self._slots, self._cooldown))
        for name, ring in list(self._rings.items()):
            if name not in self._seen:  # counters that went and come back are compared with what they were
                ring.write(number, _NOTHING)
                self._seen[name] = self._before[name]
            if ring.moved <= number - SAMPLES:
                del self._rings[name]
        for label in self._levels.keys() - self._shown:
            del self._levels[label]
        self._before, self._seen = self._seen, {}
        self._number = number

    # -- showing --------------------------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        """How many samples were made."""
        return self._number

    def knows(self, name: str) -> bool:
        """Whether the last sample had an upstream of this name."""
        return name in self._before

    def columns(self, name: str | None, to_wall: float) -> dict[str, list[Any]]:
        """What was counted in each sample of an upstream, or of all together (None), the oldest first. `at` is when a
        sample ended (seconds since the epoch: the maker's clock and `to_wall`), `seconds` how long it lasted.
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
        """The levels of a bucket at the ends of so many samples, the oldest first; None where there was none yet."""
        levels = self._levels.get(label)
        numbers = range(max(1, self._number - min(most, SAMPLES) + 1), self._number + 1)
        if levels is None:
            return [None] * len(numbers)
        found = (levels[number % _PLACES] for number in numbers)
        return [None if math.isnan(level) else _short(level) for level in found]

    def labels(self) -> list[str]:
        """The labels of the buckets whose levels are kept."""
        return list(self._levels)


def _added(before: Live | None, row: Live) -> tuple[list[int], Sequence[int]]:
    """What was added to an upstream's counters, and to its histogram's slots."""
    figures = row.figures()
    now = [figures[name] for name in COUNTED]
    if before is None:
        return now, row.slots
    known = before.figures()
    then = [known[name] for name in COUNTED]
    if any(count < earlier for count, earlier in zip((*now, *row.slots), (*then, *before.slots), strict=True)):
        return now, row.slots
    counted = [count - earlier for count, earlier in zip(now, then, strict=True)]
    return counted, [count - earlier for count, earlier in zip(row.slots, before.slots, strict=True)]


def _packed(counted: Sequence[int], slots: Sequence[int], cooldown: float) -> bytes:
    times = (quantile(slots, share) for share in (0.5, 0.95, 0.99))
    seconds = (math.nan if each is None else each for each in times)
    return _ROW.pack(*(min(count, _MOST_COUNTED) for count in counted), *seconds, cooldown)


def _short(value: float) -> float:
    """A number as short as it is exact: what is packed has seven digits."""
    return value if isinstance(value, int) else float(f"{value:.5g}")
