"""`places.lua` in Python: the places by which a fleet's calls return from a cooldown."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from proxy.lab.fleet.tokens import LATE

#: Seconds between two counts of the holders: the least, and the part that each holder adds to a longer one.
SCAN_EVERY, A_RECORD = 0.05, 0.0001


class Ranked:
    """A process (holder) that holds calls or has attempts with a place. `rank`: its number among the others; `grown`:
    the places that answers to this process have added to the fleet's, in all; `holds`: 1 if it holds calls, else 0.
    """

    __slots__ = ("grown", "holds", "last", "rank", "seen")

    def __init__(self, rank: int, last: int, grown: float, seen: float, holds: int) -> None:
        self.rank, self.last, self.grown, self.seen, self.holds = rank, last, grown, seen, holds


class PlacesReport:
    """A process's report about the places of a cooldown: the arguments (`words`) of `places.lua`."""

    __slots__ = ("age", "dead", "delay", "grown", "holder", "holds", "known", "sequence", "wanted")

    def __init__(self, words: Sequence[Any]) -> None:
        self.holder, self.sequence = str(words[0]), int(words[1])
        self.age = None if words[3] == "" else float(words[3])
        self.delay, self.grown, self.wanted, self.known, self.dead, queued = map(float, words[4:10])
        self.holds = 1 if queued > 0 else 0


class PlacesKey:
    """The key of one cooldown's places in the played Redis. Its attributes are the fields of the hash that the script
    describes; `expires`: when the key is deleted if nothing is reported.
    """

    def __init__(self) -> None:
        self.begun: float | None = None
        self.ends = self.places = self.scanned = 0.0
        self.threshold = -1.0
        self.active = self.holding = 0
        self.records: dict[str, Ranked] = {}
        self.expires = math.inf

    def run(self, words: Sequence[Any], now: float, call: Callable[[str], None]) -> list[Any]:
        """Run the script on this key: take a process's report (`words`, the arguments of the script), and return the
        reply of the script. `call` is not used.
        """
        said = PlacesReport(words)
        if self.begun is None and said.age is None and said.wanted == 0:
            return [b"", said.known, 0, -1, 0]
        begins = said.age is not None and (self.begun is None or now - said.age > self.begun)
        own = None if begins else self.records.get(said.holder)
        if own is not None and said.sequence <= own.last:
            return LATE
        if begins:
            self._begin(now)
        elif self.begun is None:
            self.begun, self.places = now, said.known  # the key is new: take what the first sender knows
        if said.age is not None:
            self.ends = max(self.ends, now + said.delay - said.age)
        rank, before, held = (-1, said.grown, 0) if own is None else (own.rank, own.grown, own.holds)
        self.places += max(0.0, said.grown - before)
        self.holding = max(0, self.holding + said.holds - held)
        if now - self.scanned >= max(SCAN_EVERY, self.active * A_RECORD) or now < self.scanned:
            rank = self._count(said, own, rank, now)
        elif said.wanted > 0 and own is None:
            self.active += 1
        elif said.wanted == 0 and own is not None:
            self.active = max(0, self.active - 1)
        share = 0
        if said.wanted > 0:
            rank = self.active - 1 if rank < 0 else rank
            self.active = max(self.active, rank + 1)
            whole = math.floor(self.places)
            share = whole // self.active + (1 if rank < whole % self.active else 0)
            self.records[said.holder] = Ranked(rank, said.sequence, said.grown, now, said.holds)
        else:
            self.records.pop(said.holder, None)
        self.expires = now + max(0.0, self.ends - now) + 2 * said.dead + 1
        return [f"{self.begun:.17g}".encode(), self.places, share, self.threshold, self.holding - said.holds]

    def _begin(self, now: float) -> None:
        """Begin the cooldown, or begin it again, because of a pushback to an attempt that was sent after it began."""
        if self.begun is not None and (now < self.ends or self.holding > 0):
            self.places = self.threshold = max(1, self.places // 2)
        else:
            self.places, self.threshold = 1, -1
        self.begun = self.scanned = now
        self.ends, self.active, self.holding = 0.0, 0, 0
        self.records.clear()

    def _count(self, said: PlacesReport, own: Ranked | None, rank: int, now: float) -> int:
        """Forget the holders that are silent, and number the others. Returns the rank of the one that reports, whose
        record is `own` (None: it has none), and whose rank was `rank`.
        """
        self.holding = said.holds
        found: list[tuple[int, str, Ranked | None]] = []
        for name, each in list(self.records.items()):
            if name == said.holder:
                continue
            if now - each.seen >= said.dead or each.seen > now + said.dead:
                del self.records[name]
            else:
                found.append((each.rank, name, each))
                self.holding += each.holds
        if own is not None and said.wanted > 0:
            found.append((rank, said.holder, None))
        for place, (_, _, other) in enumerate(sorted(found, key=lambda one: one[:2])):
            if other is None:
                rank = place
            else:
                other.rank = place
        self.active, self.scanned = len(found), now
        if own is None and said.wanted > 0:
            self.active += 1
        return rank
