"""`tokens.lua` in Python: a bucket that is a level, a quota whose tokens are leased, or a throttle."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

LATE: Final = [b"late"]
#: The least number of seconds between two scans for silent holders; and the holders scanned in a second, on average,
#: where there are many.
SCAN_EVERY, SCANNED_A_SECOND = 0.5, 5000
#: Seconds for which the lowest level that any holder knows counts, after the key was made.
YOUNG = 10.0


class LeaseRecord:
    """A process (holder) as the key of a bucket records it: its lease, the sums that it has reported, and when it last
    reported.
    """

    __slots__ = ("changed", "last", "lease", "seen", "spent")

    def __init__(self) -> None:
        self.lease = self.spent = self.changed = self.seen = 0.0
        self.last = 0

    def is_silent(self, now: float, dead: float) -> bool:
        """Whether the holder has not reported for `dead` seconds."""
        return now - self.seen >= dead or self.seen > now + dead


class TokensReport:
    """A process's report to Redis about a bucket: the arguments (`words`) of `tokens.lua`."""

    __slots__ = (
        "capacity", "changed", "changed_before", "dead", "holder", "keep", "known_level", "known_made", "making",
        "more", "prices", "rate", "sequence", "spent", "spent_before", "start", "unit",
    )  # fmt: skip

    def __init__(self, words: Sequence[Any]) -> None:
        self.holder, self.sequence, self.known_made = str(words[0]), int(words[1]), str(words[2])
        self.spent, self.changed, self.spent_before, self.changed_before, self.keep = map(float, words[3:8])
        self.prices = [float(price) for price in str(words[8]).split()]
        self.more, self.unit = float(words[9]), float(words[10])
        self.known_level = float(words[11]) if words[11] != "" else None
        self.start, self.capacity, self.rate = map(float, words[12:15])
        self.making, self.dead = str(words[16]), float(words[17])


class TokensKey:
    """The key of one bucket in the played Redis. Its attributes are the fields of the hash that the script writes."""

    expires = math.inf  # longer than a simulation

    def __init__(self) -> None:
        self.made = ""
        self.born = self.pool = self.leased = self.at = self.scanned = 0.0
        self.holders = 0
        self.records: dict[str, LeaseRecord] = {}

    def run(self, words: Sequence[Any], now: float, call: Callable[[str], None]) -> list[Any]:
        """Run the script on this key: take a process's report (`words`, the arguments of the script), and return the
        reply of the script. `call` is not used.
        """
        report = TokensReport(words)
        record = self.records.get(report.holder)
        if record is not None and report.sequence <= record.last:
            return LATE
        if not self.made:
            self.made, self.born, self.at, self.scanned = report.making, now, now, now
            self.pool = min(report.capacity, report.start if report.known_level is None else report.known_level)
        if now > self.at:
            self.pool = min(report.capacity - self.leased, self.pool + (now - self.at) * report.rate)
        pause = min(max(SCAN_EVERY, self.holders / SCANNED_A_SECOND), report.dead / 2)
        if now - self.scanned >= pause or now < self.scanned:
            self._scan(report, now)
        if record is None:
            record = self.records[report.holder] = LeaseRecord()
            self._meet(report, now)
        else:
            report.spent_before, report.changed_before = record.spent, record.changed
        self._settle(report, record)
        self._grant(report, record)
        record.last, record.spent, record.changed, record.seen = report.sequence, report.spent, report.changed, now
        self.at = now
        return [self.made.encode(), record.lease, self.pool, self.leased, max(1, self.holders)]

    def _subtract(self, tokens: float) -> None:
        self.pool = max(0.0, self.pool - tokens)

    def _scan(self, report: TokensReport, now: float) -> None:
        """Forget the holders (processes with a lease) that have not reported for `report.dead` seconds, and take their
        leases back.
        """
        alive = 0.0
        for name, each in list(self.records.items()):
            if name != report.holder and each.is_silent(now, report.dead):
                del self.records[name]
                self.pool = min(report.capacity, self.pool + each.lease)
            else:
                alive += each.lease
        self.holders, self.leased, self.scanned = len(self.records), alive, now
        self.pool = min(self.pool, report.capacity - alive)

    def _meet(self, report: TokensReport, now: float) -> None:
        """Count a new holder of the key. If the holder reported before Redis lost the key, which was then made again,
        the sums in its report were counted in the lost one, and are not counted again. While the new key is young, its
        level is lowered to the one that the holder knows, if that is lower.
        """
        self.holders += 1
        if report.known_made != self.made and report.known_level is not None:
            report.spent_before, report.changed_before = report.spent, report.changed
            if now - self.born < YOUNG:
                self._subtract(max(0.0, self.pool + self.leased - report.known_level))

    def _settle(self, report: TokensReport, record: LeaseRecord) -> None:
        """Apply a holder's report: what it has spent and earned since the report before, and what it keeps of its
        lease; the rest of the lease goes back to the bucket.
        """
        paid = report.spent - report.spent_before
        from_lease = min(paid, record.lease)
        lease, self.leased = record.lease - from_lease, self.leased - from_lease
        self._subtract(paid - from_lease)
        change = report.changed - report.changed_before
        if change > 0:
            self.pool += min(change, max(0.0, report.capacity - self.pool - self.leased))
        else:
            self._subtract(-change)
        kept = min(report.keep, lease)
        self.pool, self.leased, record.lease = self.pool + lease - kept, self.leased - lease + kept, kept

    def _grant(self, report: TokensReport, record: LeaseRecord) -> None:
        """Grant the holder the prices that its calls wait for, as its `report` has them, each whole or not at all.
        Grant also a fair share of the rest, in whole units, to keep ready. `record`: the holder's.
        """
        can_pay, needed = record.lease + max(0.0, self.pool) + 1e-9, 0.0
        for price in report.prices:
            if price <= can_pay:
                can_pay, needed = can_pay - price, needed + price
        self._give(min(max(0.0, needed - record.lease), max(0.0, self.pool)), record)
        self.holders = max(1, self.holders)
        spare = min(report.more, max(0.0, self.pool - needed) / (2 * self.holders))
        if report.unit > 0:
            self._give(max(0.0, math.floor(spare / report.unit + 1e-9) * report.unit), record)

    def _give(self, tokens: float, record: LeaseRecord) -> None:
        self.pool, self.leased, record.lease = self.pool - tokens, self.leased + tokens, record.lease + tokens
