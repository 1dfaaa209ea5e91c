"""`weather.lua` in Python: the limit and the outage of one lane, for all processes of a fleet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from proxy.lab.fleet.tokens import LATE

#: Seconds for which the right to probe is lent; for which a holder keeps a place that others want too, at least; after
#: which a silent holder wants no places, at least; and after which nothing is known of a lane.
PROBING, TURN, WANTS_NONE, SILENT = 1.0, 0.5, 2.0, 15.0
#: Seconds between two counts of the holders: the part that each holder adds, and the most.
A_RECORD, LONGEST = 0.0001, 0.2


class Wanting:
    """A process (holder) that wants places, as the key of a lane records it. `joined`: the beginning of the limit to
    which it has added places; `line`: since when it wants places; `got`: since when it has one.
    """

    __slots__ = ("got", "grown", "joined", "line", "name", "part", "queued", "seen", "sequence", "wanted")

    def __init__(self, name: str, now: float, grown: float) -> None:
        self.name, self.seen, self.grown = name, now, grown
        self.sequence = 0
        self.joined = self.part = self.wanted = self.queued = 0.0
        self.line = self.got = now


class WeatherReport:
    """A process's report about a lane: the arguments (`words`) of `weather.lua`."""

    __slots__ = (
        "cut", "cut_age", "dead", "grown", "holder", "leaves", "limit_began", "limit_over", "making", "outage_began",
        "outage_over", "own", "pause", "probe_age", "queued", "sequence", "served_age", "since_age", "wanted",
    )  # fmt: skip

    def __init__(self, words: Sequence[Any]) -> None:
        self.holder, self.sequence = str(words[0]), int(words[1])
        happened = (float(each) > 0 for each in words[3:7])
        self.limit_began, self.limit_over, self.outage_began, self.outage_over = happened
        self.own, self.cut, self.cut_age, self.grown, self.wanted, self.queued = map(float, words[7:13])
        self.since_age, self.probe_age = float(words[13]), float(words[14])
        self.leaves = float(words[15]) > 0
        self.pause = float(words[16])
        self.served_age = float(words[17])
        self.making, self.dead = str(words[18]), float(words[19])


class WeatherKey:
    """The key of one lane in the played Redis. Its attributes are the fields of the hash that the script describes;
    `expires`: when the key is deleted if nothing is reported.
    """

    def __init__(self) -> None:
        self.made = self.prober = ""
        self.seen = self.most = self.threshold = self.begun = self.cut = self.out = self.until = self.probed = 0.0
        self.scanned = self.wants = self.queued = self.served = 0.0
        self.count = self.level = 0
        self.records: dict[str, Wanting] = {}
        self.expires = math.inf

    def run(self, words: Sequence[Any], now: float, call: Callable[[str], None]) -> list[Any]:
        """Play the Redis script by which a sidecar reports its weather: note the report in `words`, the script's
        arguments, and return the script's reply. `call`, which runs Redis commands, is not used.
        """
        said = WeatherReport(words)
        if not self.made and said.wanted == 0 and not said.limit_began and not said.outage_began:
            return [b"", 0, -1, 0, 0, 0, -1, 0, 0, -1]
        its = self._record(said, now)
        if its is None:
            return LATE
        self.made = self.made or said.making
        if said.served_age < 1e9:
            self.served = max(self.served, now - said.served_age)
        if now - self.seen > SILENT:
            self.most = self.out = 0.0
        self._note_events(said, its, now)
        self._note_limit(said, its, now)
        if self.out > 0:
            self._lend_probes(said, now)
        if now - self.scanned >= min(max(LONGEST, said.pause / 2), self.count * A_RECORD) or now < self.scanned:
            self._count(its, said, now)
        elif self.most > 0:
            its.part = min(said.wanted, max(self.level, its.part))
        share = its.part
        if self.most > self.wants:
            share = max(share, said.wanted) + math.ceil((self.most - self.wants) / max(1, self.count))
        may_probe = self.prober == said.holder
        if said.leaves:
            self.records.pop(said.holder, None)
            self.prober = "" if may_probe else self.prober
            may_probe = False
        else:
            self.records[said.holder] = its
        self.seen, self.expires = now, now + 4 * SILENT
        others = max(0.0, self.queued - said.queued), max(0.0, self.wants - said.wanted)
        since = now - self.out if self.out > 0 else -1
        ages = since, now - self.probed
        served = now - self.served if self.served > 0 else -1
        return [self.made.encode(), self.most, self.threshold, share, *others, *ages, 1 if may_probe else 0, served]

    def _record(self, said: WeatherReport, now: float) -> Wanting | None:
        """The new record of the holder that reports, and the places that it has added; None if a later report has
        overtaken this one.
        """
        its, before = Wanting(said.holder, now, said.grown), self.records.get(said.holder)
        if before is not None:
            if said.sequence <= before.sequence:
                return None
            its.joined, its.wanted, its.part = before.joined, before.wanted, before.part
            its.line, its.got = before.line, before.got
            if self.most > 0 and its.joined == self.begun:
                self.most += max(0.0, said.grown - before.grown)
        if its.wanted <= 0:
            its.line = now
        its.wanted, its.queued, its.sequence = said.wanted, said.queued, said.sequence
        return its

    def _begin(self, its: Wanting, most: float, threshold: float, now: float) -> None:
        self.most, self.threshold, self.begun, self.cut = most, threshold, now, now
        its.joined = now

    def _note_events(self, said: WeatherReport, its: Wanting, now: float) -> None:
        """Note that an outage began or is over."""
        if said.outage_over and self.out > 0:
            self.out, self.prober = 0.0, ""
            self._begin(its, 1, -1, now)
        elif said.outage_began and self.out == 0:
            self.out, self.probed, self.prober, self.until = now - said.since_age, now, said.holder, now + PROBING

    def _note_limit(self, said: WeatherReport, its: Wanting, now: float) -> None:
        """Note that a limit began or is over, or has more places or fewer."""
        if said.limit_over:
            self.most = 0.0
        elif said.limit_began and self.most == 0:
            self._begin(its, max(1.0, said.own), max(1.0, said.own), now)
        elif self.most > 0 and its.joined != self.begun:
            its.joined = self.begun
            if self.threshold >= 0 and self.cut == self.begun:
                self.most += said.own
                self.threshold += said.own
        elif self.most > 0 and said.cut < 1 and now - said.cut_age > self.cut:
            self.most = self.threshold = max(1.0, self.most * said.cut)
            self.cut = now

    def _lend_probes(self, said: WeatherReport, now: float) -> None:
        """Lend the right to probe to the holder that reports, if it holds calls and no other holder has the right."""
        is_prober = self.prober == said.holder
        if is_prober:
            self.probed = max(self.probed, now - said.probe_age)
            if said.wanted <= 0:
                self.until = 0.0
        if said.wanted > 0 and (is_prober or now >= self.until or now + 10 * PROBING < self.until):
            self.prober, self.until = said.holder, now + PROBING

    def _count(self, its: Wanting, said: WeatherReport, now: float) -> None:
        """Count all holders, and set the part of each. A holder that was not heard for too long is dropped. As in the
        script, the new record of a holder is kept only if its part changes. `its`: the record of the holder that asks;
        `said`: its report.
        """
        found, dead = [its], said.dead
        for name, record in list(self.records.items()):
            if name == its.name:
                continue
            if now - record.seen >= dead or record.seen > now + dead:
                del self.records[name]
                continue
            each = copy(record)
            if now - each.seen >= max(WANTS_NONE, 3 * said.pause):
                each.wanted = each.queued = 0.0
            found.append(each)
        self.count, self.scanned = len(found), now
        self.wants = sum(each.wanted for each in found)
        self.queued = sum(each.queued for each in found)
        rest = float(math.floor(self.most))
        self.level = _equal_part([each.wanted for each in found], rest)
        for each in found:
            if self.level == 0 and each.part > 0 and now - each.got >= max(TURN, said.pause):
                each.line = now
            rest -= min(each.wanted, self.level)
        for each in sorted(found, key=lambda one: (one.line, one.name)):
            part, before = min(each.wanted, self.level), each.part
            if each.wanted > self.level and rest > 0:
                part, rest = part + 1, rest - 1
            if before <= 0 < part:
                each.got = now
            each.part = part
            if part != before and each is not its:
                self.records[each.name] = each


def _equal_part(needs: list[float], places: float) -> int:
    """The whole number of places that each holder may have, if holders that need fewer leave the rest to the others.
    `needs`: the places that each needs.
    """
    level, left = 0, places
    for number, need in enumerate(sorted(needs)):
        level = math.floor(left / (len(needs) - number))
        if need > level:
            break
        left -= need
    return level
