"""A process's share of the fleet's tokens, in an outage of Redis.

Law: the shares of all processes add up to at most the whole. Level, capacity and rate of a bucket are divided by the
number of processes. A part that is less than one price could never pay, so whole prices go to the processes in turn. Of
a level, the processes with the lowest numbers get one price each. Of a rate, every N-th token is this process's, in a
fleet of N processes.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from proxy.retry.budgets.token_bucket import TokenBucket


class Share(NamedTuple):
    """The share of one process in what a fleet has: one of `of` equal parts, or nothing if `of` is 0. `rank`: the
    number of the process among the others, from 0 on.
    """

    of: int
    rank: int

    def part(self, tokens: float, price: float) -> float:
        """This process's part of `tokens` tokens: an equal part. If an equal part is less than `price`, the processes
        with the lowest numbers get one whole price each, as many of them as the tokens pay for, and the others nothing.
        """
        if not self.of:
            return 0.0
        part = tokens / self.of
        if part >= price or self.of == 1:
            return part
        return price if self.rank < math.floor(tokens / price + 1e-9) else 0.0


WHOLE: Final = Share(1, 0)
NONE: Final = Share(0, 0)


class Rising(TokenBucket):
    """A token bucket whose rate (tokens a second) is `rate` at first, and `later`, which is no less, from the time `at`
    on.
    """

    __slots__ = ("_later", "_rises_at")

    def __init__(self, rate: float, later: float, at: float, capacity: float, level: float, now: float) -> None:
        super().__init__(rate, capacity, level, now)
        self._later, self._rises_at = later, at

    def wait(self, now: float, tokens: float = 1.0) -> float:
        wait, left = super().wait(now, tokens), self._rises_at - now
        if wait <= left or self.rate == self._later:
            return wait
        short = tokens - self._level - self.rate * left
        return left + short / self._later if self._later > 0 and self.capacity >= 1 else math.inf

    def _refill(self, now: float) -> None:
        if now >= self._rises_at:
            super()._refill(self._rises_at)
            self.rate = self._later
        super()._refill(now)


class Turns:
    """The tokens of a rate that are this process's, if its share of the burst is less than one token: every N-th token
    that is refilled, in a fleet of N processes.

    Law: over any stretch of time t all processes together get at most rate * t + burst + 1 tokens. When its turn has
    come, a token may be taken for as long as the rate takes to refill the burst (at least one token); after that it is
    lost. `level`: the fleet's tokens at the time `now`, when the turns begin. They go at once to the processes with the
    lowest numbers (`Share.rank`), one each; the refilled tokens go to the others in order.
    """

    def __init__(self, rate: float, burst: float, level: float, share: Share, now: float) -> None:
        self._pause = share.of / rate if rate > 0 else math.inf
        self._lasts = max(burst, 1.0) / rate if rate > 0 else math.inf
        wait = share.rank + 1 - math.floor(level + 1e-9)
        self._due = now + wait / rate if rate > 0 else now if wait <= 0 else math.inf

    def level(self, now: float) -> float:
        """The number of tokens that this process may take now: none or one."""
        return 1.0 if self.wait(now) <= 0 else 0.0

    def wait(self, now: float, tokens: float = 1.0) -> float:
        """Seconds until this process may take `tokens` tokens; 0 if it may take them now. The first token comes with
        its next turn, and each further one a turn later.
        """
        if self._due + self._lasts < now:
            self._due += self._pause * math.ceil((now - self._lasts - self._due) / self._pause)
        left = self._due - now
        if tokens > 1:
            left += self._pause * math.ceil(tokens - 1)
        return 0.0 if left <= 1e-9 else left

    def take(self, now: float, price: float = 1.0) -> bool:
        """Take the price (tokens) if this process's turn has come. Returns False if it has not. A price above one token
        uses up later turns, too.
        """
        if self.wait(now) > 0:
            return False
        self._due += self._pause * math.ceil(price)
        return True

    def give_back(self, now: float, tokens: float = 1.0) -> None:
        """Put back tokens that were taken and not used, so that this process's next turn comes earlier again; do
        nothing if the turn at which they were taken is over. A negative number takes more tokens, for what was used
        beyond the price: it uses up later turns.
        """
        turns = self._pause * math.ceil(tokens)
        if self._due - turns + self._lasts >= now:
            self._due -= turns
