"""`members.lua` in Python: the processes of a fleet, each with a rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from proxy.lab.fleet.tokens import LATE

#: The least number of seconds between two scans of all members; and the members scanned in a second, on average, where
#: there are many.
SCAN_EVERY, SCANNED_A_SECOND = 0.1, 2500


class Member:
    """A process of the fleet, as the key of its members records it: its rank, when it joined and last reported."""

    __slots__ = ("joined", "last", "rank", "seen")

    def __init__(self, rank: int, joined: float) -> None:
        self.rank, self.joined, self.seen = rank, joined, joined
        self.last = 0


class MembersKey:
    """The key of a fleet's members in the played Redis. Its attributes are the fields of the hash that the script
    describes.
    """

    expires = math.inf  # longer than a simulation

    def __init__(self) -> None:
        self.made = ""
        self.count, self.scanned, self.oldest = 0, -1.0, 0.0
        self.records: dict[str, Member] = {}

    def run(self, words: Sequence[Any], now: float, call: Callable[[str], None]) -> list[Any]:
        """Run the script on this key: take a process's report (`words`, the arguments of the script), and return the
        reply of the script. `call` is not used.
        """
        name, sequence, leaves, dead = str(words[0]), int(words[1]), float(words[3]) > 0, float(words[5])
        own = self.records.get(name)
        if own is not None and sequence <= own.last:
            return LATE
        if not self.made:
            self.made, self.oldest = str(words[4]), now
        if own is None:
            own = Member(self.count, now)
            self.count += 1
        if leaves or now - self.scanned >= max(SCAN_EVERY, self.count / SCANNED_A_SECOND) or now < self.scanned:
            self._scan(name, own, leaves, now, dead)
        if leaves:
            self.records.pop(name, None)
        else:
            own.last, own.seen = sequence, now
            self.records[name] = own
        return [self.made.encode(), self.count, own.rank, 1 if own.joined <= self.oldest else 0]

    def _scan(self, name: str, own: Member, leaves: bool, now: float, dead: float) -> None:
        """Forget the members that have not reported for `dead` seconds, and number the others; the member `name`, which
        reports now, has the record `own`, and is not numbered if it `leaves`.
        """
        self.oldest = now
        found: list[tuple[int, str, Member]] = []
        for other, each in list(self.records.items()):
            if other != name:
                if now - each.seen >= dead or each.seen > now + dead:
                    del self.records[other]
                else:
                    found.append((each.rank, other, each))
                    self.oldest = min(self.oldest, each.seen)
        if not leaves:
            found.append((own.rank, name, own))
        for place, (_, _, each) in enumerate(sorted(found, key=lambda one: one[:2])):
            each.rank = place
        self.count, self.scanned = len(found), now
