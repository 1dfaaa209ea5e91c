"""Tokens out on lease to this process, and what it has to report of them.

Law: `left` is never more than what Redis has down as leased to us. What is spent leaves the lease; what comes back goes
into it as far as its spending is not reported yet (nobody else has seen it gone), and is reported as earned otherwise.
"""

from __future__ import annotations

import math


class Lease:
    """`spent` and `changed` are sums since the beginning, as they are reported; `*_told`: as far as that was heard.

    A lease that was not confirmed within `lasts` seconds may have been given to others: it is not spent any more.
    """

    __slots__ = ("_sent", "changed", "changed_told", "lasts", "left", "spent", "spent_told", "until")

    def __init__(self, lasts: float) -> None:
        self.lasts = lasts
        self.left = 0.0
        self.until = -math.inf
        self.spent = self.spent_told = 0.0
        self.changed = self.changed_told = 0.0
        self._sent = (0.0, 0.0, 0.0, -math.inf)

    def has(self, amount: float, now: float) -> bool:
        """Whether so much can be spent."""
        return amount <= self.left and now <= self.until

    def spend(self, amount: float) -> None:
        """It was there."""
        self.left -= amount
        self.spent += amount

    def put_back(self, amount: float) -> float:
        """Into the lease, as far as nobody has been told that it was spent; what remains."""
        back = min(amount, max(0.0, self.spent - self.spent_told))
        self.left += back
        self.spent -= back
        return amount - back

    @property
    def unsent(self) -> float:
        """Tokens by which the level differs from what was last heard of it, for our part."""
        return (self.changed - self.changed_told) - (self.spent - self.spent_told)

    def send(self, keep: float, now: float) -> tuple[float, float, float]:
        """What is reported: spent, changed, and how much of the lease is kept. The rest is not ours from now on."""
        if now > self.until:
            keep = 0.0
        self.left = min(self.left, keep)
        self._sent = (self.spent, self.changed, self.left, now)
        return self.spent, self.changed, self.left

    def confirmed(self, lease: float) -> None:
        """The report has been heard; `lease` is what is down as ours now."""
        spent, changed, kept, at = self._sent
        self.left += lease - kept
        self.until = at + self.lasts
        self.spent_told, self.changed_told = spent, changed
        if self.spent < spent:  # what came back meanwhile had been reported as spent
            back = spent - self.spent
            self.spent = spent
            self.left -= back
            self.changed += back
        self.left = max(0.0, self.left)  # a lease that was lost on the way; what was spent of it is reported


class Burn:
    """How much is spent in a while, forgetting what is past."""

    __slots__ = ("_amount", "_at", "_while")

    def __init__(self, seconds: float) -> None:
        self._while = seconds
        self._amount = 0.0
        self._at = -math.inf

    def add(self, amount: float, now: float) -> None:
        """So much was spent."""
        self._amount = self.now(now) + amount
        self._at = now

    def now(self, now: float) -> float:
        """About what was spent in the last while."""
        if self._amount <= 0 or now - self._at > 20 * self._while:
            return 0.0
        return self._amount * math.exp(-max(0.0, now - self._at) / self._while)
