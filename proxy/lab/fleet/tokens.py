"""`tokens.lua` in Python: a bucket that is a level, a quota whose tokens are leased, or a throttle."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

LATE: Final = [b"late"]
#: Seconds between two looks for silent holders, for each thousandth of a second of which there are five holders.
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
        *("capacity", "changed", "changed_before", "dead", "holder", "keep", "known_level", "known_made", "making"),
        *("more", "prices", "rate", "sequence", "spent", "spent_before", "start", "unit"),
    )

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

    def __init__(self) -> None:
        self.made = ""
        self.born = self.pool = self.leased = self.at = self.scanned = 0.0
        self.holders = 0
        self.records: dict[str, LeaseRecord] = {}

    def run(self, words: Sequence[Any], now: float, call: Callable[[str], None]) -> list[Any]:
        """Take a report (`words`: the arguments of the script), and return the reply; `call` is not used."""
        said = TokensReport(words)
        record = self.records.get(said.holder)
        if record is not None and said.sequence <= record.last:
            return LATE
        if not self.made:
            self.made, self.born, self.at, self.scanned = said.making, now, now, now
            self.pool = min(said.capacity, said.start if said.known_level is None else said.known_level)
        if now > self.at:
            self.pool = min(said.capacity - self.leased, self.pool + (now - self.at) * said.rate)
        pause = min(max(SCAN_EVERY, self.holders / SCANNED_A_SECOND), said.dead / 2)
        if now - self.scanned >= pause or now < self.scanned:
            self._scan(said, now)
        if record is None:
            record = self.records[said.holder] = LeaseRecord()
            self._meet(said, now)
        else:
            said.spent_before, said.changed_before = record.spent, record.changed
        self._settle(said, record)
        self._grant(said, record)
        record.last, record.spent, record.changed, record.seen = said.sequence, said.spent, said.changed, now
        self.at = now
        return [self.made.encode(), record.lease, self.pool, self.leased, max(1, self.holders)]

    def _subtract(self, tokens: float) -> None:
        self.pool = max(0.0, self.pool - tokens)

    def _scan(self, said: TokensReport, now: float) -> None:
        """Forget the holders (processes with a lease) that have not reported for `said.dead` seconds, and take their
        leases back.
        """
        alive = 0.0
        for name, each in list(self.records.items()):
            if name != said.holder and each.is_silent(now, said.dead):
                del self.records[name]
                self.pool = min(said.capacity, self.pool + each.lease)
            else:
                alive += each.lease
        self.holders, self.leased, self.scanned = len(self.records), alive, now
        self.pool = min(self.pool, said.capacity - alive)

    def _meet(self, said: TokensReport, now: float) -> None:
        """Count a new holder. If the holder reported to an earlier making of this key (which ended when Redis lost it),
        the sums in its report were counted there, and are not counted again; while the present making is young, its
        level is lowered to the one that the holder knows, if that is lower.
        """
        self.holders += 1
        if said.known_made != self.made and said.known_level is not None:
            said.spent_before, said.changed_before = said.spent, said.changed
            if now - self.born < YOUNG:
                self._subtract(max(0.0, self.pool + self.leased - said.known_level))

    def _settle(self, said: TokensReport, record: LeaseRecord) -> None:
        """Apply a holder's report: what it has spent and earned since the report before, and what it keeps of its
        lease; the rest of the lease goes back to the bucket.
        """
        paid = said.spent - said.spent_before
        from_lease = min(paid, record.lease)
        lease, self.leased = record.lease - from_lease, self.leased - from_lease
        self._subtract(paid - from_lease)
        change = said.changed - said.changed_before
        if change > 0:
            self.pool += min(change, max(0.0, said.capacity - self.pool - self.leased))
        else:
            self._subtract(-change)
        kept = min(said.keep, lease)
        self.pool, self.leased, record.lease = self.pool + lease - kept, self.leased - lease + kept, kept

    def _grant(self, said: TokensReport, record: LeaseRecord) -> None:
        """Grant the holder the prices that its calls wait for, as its report `said` has them, each whole or not at all.
        Grant also a fair share of the rest, in whole units, to keep ready. `record`: the holder's.
        """
        can_pay, needed = record.lease + max(0.0, self.pool) + 1e-9, 0.0
        for price in said.prices:
            if price <= can_pay:
                can_pay, needed = can_pay - price, needed + price
        self._give(min(max(0.0, needed - record.lease), max(0.0, self.pool)), record)
        self.holders = max(1, self.holders)
        spare = min(said.more, max(0.0, self.pool - needed) / (2 * self.holders))
        if said.unit > 0:
            self._give(max(0.0, math.floor(spare / said.unit + 1e-9) * said.unit), record)

    def _give(self, tokens: float, record: LeaseRecord) -> None:
        self.pool, self.leased, record.lease = self.pool - tokens, self.leased + tokens, record.lease + tokens
