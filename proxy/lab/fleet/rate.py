"""`rate.lua` in Python: a rate of a fleet, whose refill is given to its holders in parts. `rate.lua` has the theory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from proxy.lab.fleet.tokens import LATE, SCAN_EVERY, SCANNED_A_SECOND, YOUNG

#: The smallest part, in tokens a second.
LEAST = 0.5
#: The share of the rate that is no holder's part, and the same while tokens are owed.
UNPARTED, UNPARTED_IN_DEBT = 0.05, 0.15
#: The value of `fair` while all demands together are less than the rate: nothing limits a holder's part.
ALL_OF_IT = 1e300
#: The most holders that are called at one time.
CALLED = 20


class PartRecord:
    """The entry of one process (a holder) in the key of a rate in Redis: its lease, its part of the rate, its demand,
    and the time of its last report.
    """

    __slots__ = ("changed", "demand", "last", "lease", "most", "part", "seen", "spent")

    def __init__(self, now: float) -> None:
        self.lease = self.spent = self.changed = self.part = self.demand = self.most = 0.0
        self.last, self.seen = 0, now


class RateReport:
    """A process's report to Redis about a rate: the arguments (`words`) of `rate.lua`."""

    __slots__ = (
        "capacity", "changed", "changed_before", "coming", "crowd", "dead", "demand", "first_call", "has", "holder",
        "keep", "known_level", "known_made", "making", "more", "next_calls", "rate", "sequence", "spent",
        "spent_before", "start", "waiting",
    )  # fmt: skip

    def __init__(self, words: Sequence[Any]) -> None:
        self.holder, self.sequence, self.known_made = str(words[0]), int(words[1]), str(words[2])
        self.spent, self.changed, self.spent_before, self.changed_before, self.keep = map(float, words[3:8])
        self.waiting, self.first_call, self.more, self.demand, self.has, self.crowd = map(float, words[8:14])
        self.known_level = float(words[14]) if words[14] != "" else None
        self.start, self.capacity, self.rate = map(float, words[15:18])
        self.coming, self.next_calls = map(float, words[19:21])
        self.making, self.dead = str(words[22]), float(words[23])


class RateKey:
    """The key of one rate in the played Redis. Its attributes are the fields of the hash that the script describes."""

    expires = math.inf  # longer than a simulation

    def __init__(self) -> None:
        self.made = ""
        self.born = self.pool = self.owed = self.leased = self.rooms = self.parts = self.promised = 0.0
        self.at = self.scanned = self.lost = self.large = 0.0
        self.mixed, self.fair = -math.inf, ALL_OF_IT
        self.holders = 0
        self.records: dict[str, PartRecord] = {}

    def run(self, words: Sequence[Any], now: float, call: Callable[[str], None]) -> list[Any]:
        """Run `rate.lua` on this key: take a process's report (`words`, the script's arguments), and return what the
        script replies: the lease, the part, and the state of the rate. `call` is called with the name of each other
        holder that is to report now.
        """
        report = RateReport(words)
        record = self.records.get(report.holder)
        if record is not None and report.sequence <= record.last:
            return LATE
        if not self.made:
            self._make(report, now)
        free = max(0.0, report.rate - self.parts)
        if now > self.at:
            self._gain((now - self.at) * free)
        self._fit(report, self.leased + self.rooms)
        own = self._own(report, record, now)
        record = PartRecord(now) if record is None else record
        shared = report.rate * (1 - (UNPARTED_IN_DEBT if self.owed > 0 else UNPARTED if self.holders > 1 else 0))
        pause = min(max(SCAN_EVERY, self.holders / SCANNED_A_SECOND), report.dead / 2)
        if report.demand > 1.1 * max(record.part, record.demand):
            pause = min(pause, max(0.1, self.holders / 2500))
        if now - self.scanned >= pause or now < self.scanned:
            self._scan(report, shared, now, call)
        self._fit(report, self.leased + self.rooms)
        lease, most = self._settle(report, own)
        self.holders = max(1, self.holders)
        room_each = report.capacity / (2 * max(self.holders, report.crowd))
        if report.waiting > 0 and report.first_call > report.capacity / 2:
            self.large = now + report.dead
        parted = (
            room_each >= 1 and now - self.mixed >= report.dead and now >= self.large and report.first_call <= room_each
        )
        part, target = (
            self._part(report, record, shared, now) if parted and report.demand > 0 else (0.0, self._target(report))
        )
        free = max(0.0, report.rate - self.parts - part)
        lease, most, reserved, first = self._grant(report, lease, most, part, free, now)
        if part > 0:
            room = max(most, min(room_each, report.capacity - self.pool - self.leased - self.rooms))
            part, most = (0.0, most) if room < 1 else (part, room)
        self.leased, self.rooms, self.parts = self.leased + lease, self.rooms + most - lease, self.parts + part
        record.lease, record.part, record.demand, record.most = lease, part, report.demand, most
        record.last, record.spent, record.changed, record.seen = report.sequence, report.spent, report.changed, now
        self.records[report.holder] = record
        self.at = now
        short = 2 if parted and target > 1.05 * part else 1 if report.demand > 1.05 * target else 0
        state = (lease, self.pool - self.owed, self.leased, self.holders, reserved, first, free, part, most, short)
        return [self.made.encode(), *state]

    def _make(self, report: RateReport, now: float) -> None:
        self.made, self.born, self.at, self.scanned = report.making, now, now, now
        self.pool = min(report.capacity, report.start if report.known_level is None else report.known_level)
        if report.known_made:
            self.lost = now + report.dead / 2

    def _target(self, report: RateReport) -> float:
        return min(report.demand, self.fair)

    def _own(self, report: RateReport, record: PartRecord | None, now: float) -> float:
        """Take the reporting holder's `record` (None for a new holder) out of the sums over all holders. Return the
        tokens that the holder has now: its lease and what its part has brought since its last report, less what it has
        spent by this `report`.
        """
        if record is not None:
            report.spent_before, report.changed_before = record.spent, record.changed
            self.leased, self.rooms = self.leased - record.lease, self.rooms - (record.most - record.lease)
            self.parts -= record.part
            own = record.lease + record.part * max(0.0, now - record.seen) - (report.spent - report.spent_before)
        else:
            self.holders += 1
            if report.known_made != self.made and report.known_level is not None:
                self._meet(report, report.known_level, now)
            own = 0.0 - (report.spent - report.spent_before)
        if own < 0:
            self._charge(-own)
            own = 0.0
        return own

    def _meet(self, report: RateReport, known_level: float, now: float) -> None:
        """Adapt this key to a new holder that reported to an earlier making of the key (which ended when Redis lost
        it): while the present making is young, its level is lowered to `known_level`, the one that the holder knows, if
        that is lower.
        """
        if now - self.born < YOUNG:
            self._subtract(max(0.0, self.pool - self.owed + self.leased - known_level))
            self._charge(max(0.0, min(report.spent - report.spent_before, report.has * (now - self.born))))
            if report.known_made:
                self.lost = max(self.lost, self.born + report.dead / 2)
        report.spent_before, report.changed_before = report.spent, report.changed

    def _subtract(self, tokens: float) -> None:
        self.pool = max(0.0, self.pool - tokens)

    def _charge(self, tokens: float) -> None:
        """Take tokens from the pool; those that it lacks are owed."""
        self.owed, self.pool = self.owed + max(0.0, tokens - self.pool), max(0.0, self.pool - tokens)

    def _gain(self, tokens: float) -> None:
        """Pay what is owed, and put the rest into the pool."""
        self.owed, self.pool = max(0.0, self.owed - tokens), self.pool + max(0.0, tokens - self.owed)

    def _fit(self, report: RateReport, filled: float) -> None:
        """Take from the pool what has no room beside `filled`, the room that holders fill."""
        self.pool = max(0.0, min(self.pool, report.capacity - filled))

    def _scan(self, report: RateReport, shared: float, now: float, call: Callable[[str], None]) -> None:
        """Read the records of all holders: forget the silent ones, add the sums up again, and compute `fair`, the
        greatest part that a holder can get if the rate is divided fairly. If the holder that reports now needs some of
        the others' parts, have those holders report (`call`). `shared`: the tokens a second to divide into parts.
        """
        others: list[tuple[str, PartRecord]] = []
        total = report.demand
        self.leased = self.rooms = self.parts = 0.0
        for name, each in list(self.records.items()):
            if name == report.holder:
                continue
            if now - each.seen >= report.dead or each.seen > now + report.dead:
                del self.records[name]
            else:
                others.append((name, each))
                self.leased, self.parts = self.leased + each.lease, self.parts + each.part
                self.rooms = self.rooms + each.most - each.lease
                total += each.demand
        self.holders, self.scanned, self.fair = len(others) + 1, now, ALL_OF_IT
        if total > shared:
            self.fair = _fair(report.demand, [each.demand for _, each in others], shared)
            if min(report.demand, self.fair) > 1.05 * (shared - self.parts):
                self._call(others, now, call)

    def _call(self, others: Sequence[tuple[str, PartRecord]], now: float, call: Callable[[str], None]) -> None:
        """Ask holders that have more than their fair part to report: call `call` with the name of each, at most CALLED
        of them, not always the same ones first. `others`: the names and records of all holders but the reporting one.
        """
        first = round(now % 1 * 1e6) % max(1, len(others))
        called = 0
        for place in range(1, len(others) + 1):
            name, each = others[(first + place) % len(others)]
            if each.part > 1.05 * min(each.demand, self.fair) + 0.01 and called < CALLED:
                called += 1
                call(name)

    def _settle(self, report: RateReport, own: float) -> tuple[float, float]:
        """Apply a holder's `report`: put back what the holder does not keep of the tokens that it has (`own`),
        and add those that its calls have earned. Returns the tokens that it keeps, its lease, and those of them that
        have come: the room that they fill.
        """
        lease = min(report.keep, own)
        most = max(0.0, lease - report.coming)
        self._gain(own - lease)
        filled = self.leased + self.rooms
        self._fit(report, filled + most)
        change = report.changed - report.changed_before
        if change > 0:
            self.pool += min(change, max(0.0, report.capacity - self.pool - filled - most))
        else:
            self._subtract(-change)
        return lease, most

    def _part(self, report: RateReport, record: PartRecord, shared: float, now: float) -> tuple[float, float]:
        """The part of the rate (tokens a second) that the holder gets now, and the part that it is due: what it asks
        for, but no more than the fair level. `shared`: the tokens a second to divide into parts.
        """
        target = self._target(report)
        part = min(target, shared - self.parts)
        if self.owed > 0:
            part = min(part, max(record.part, report.rate - self.promised - self.parts))
        if now < self.lost:
            part = min(part, max(record.part, report.has))
        return 0.0 if part < LEAST else part, 0.0 if target < LEAST else target

    def _grant(
        self, report: RateReport, lease: float, most: float, part: float, free: float, now: float
    ) -> tuple[float, float, float, float]:
        """Grant the holder tokens that its calls wait for: tokens that are there and, if it has no part (`part` 0),
        some of those that the refill (`free`, tokens a second) brings next, which are reserved for it. Grant also a
        fair share of the rest, to keep ready. `lease`: the tokens that it has leased already; `most`: the room that
        they fill. Returns the new lease and room, the number of reserved tokens in the lease, and the seconds until
        the first of these.
        """
        reserved = first = 0.0
        if report.waiting > 0:
            grant = min(report.waiting, math.floor(self.pool + 1e-9))
            self.pool, lease = max(0.0, self.pool - grant), lease + grant
            most += max(0.0, grant - report.next_calls)
            if part <= 0 and free > 0 and report.capacity >= 1 and now - self.mixed >= report.dead:
                reserved = max(0.0, math.ceil(report.next_calls - grant))
                if reserved > 0:
                    first, self.promised = (1 - self.pool + self.owed) / free, free
                    self._charge(reserved)
                    lease += reserved
        spare = math.floor(min(report.more, self.pool / (2 * self.holders)) + 1e-9)
        if spare > 0:
            self.pool, lease, most = self.pool - spare, lease + spare, most + spare
        return lease, most, reserved, first


def _fair(demand: float, demands: Sequence[float], shared: float) -> float:
    """The greatest part that a holder gets if `shared` is divided fairly (max-min): a holder that demands less than
    this gets its demand, all others get this much. `demand`: what the reporting holder asks for; `demands`: what each
    other one does; all in tokens a second.
    """
    fair = shared / (len(demands) + 1)
    while True:
        known, left, many = fair, shared, 0
        for each in (demand, *demands):
            if each > known:
                many += 1
            else:
                left -= each
        if many:
            fair = left / many
        if fair <= known * 1.001 or not many:
            return fair
