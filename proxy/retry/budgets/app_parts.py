"""The parts of a retry quota that are reserved for apps (contract, section 17, "Retry tokens").

Each app's part is the capacity times the app's share of all weights, but never less than the price of the dearest
retry. An app spends its own part first. Beyond its part, it spends tokens that no part reserves. After those, it
borrows from the apps that were not seen in the last minute: at most half of what each of them has not spent itself.
Tokens that an app earns fill its own part first, also what others borrowed of it, and then pay the others back. Of the
tokens that time adds to the bucket, every part gets its share. When the bucket is full, every part is full, and nothing
is lent.

Law: the bucket's level is the sum of what the parts have left and what no part reserves. Nothing is borrowed from an
app that was seen in the last minute.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.retry.apps import Shares

#: Seconds for which an app that made a call counts as seen.
SEEN = 60.0
#: A shortfall that is only the rounding of sums counts as none.
_ROUNDING = 1e-9


class AppParts:
    """The parts of one quota of `capacity` tokens. `shares`: the names and weights of the apps. `price`: what the
    dearest retry costs. `level`: the tokens that the quota has at first. `sizes`: the size of each app's part in
    tokens. `index`, in all methods, is the number of an app; levels are those of the whole bucket, in tokens.
    """

    __slots__ = ("_indices", "_lent", "_seen", "_spent", "capacity", "sizes")

    def __init__(self, shares: Shares, capacity: float, price: float, level: float) -> None:
        self.capacity = capacity
        self._indices = {name: index for index, (name, _) in enumerate(shares)}
        self.sizes = _sizes([weight for _, weight in shares], capacity, min(price, capacity))
        missing = 1 - level / capacity if capacity else 0.0
        self._spent = [0.0] * len(shares)  # the tokens of each part that its own app has spent
        self._lent = [size * missing for size in self.sizes]  # and those that other apps have
        self._seen = [float("-inf")] * len(shares)  # when the app made its last call

    def index(self, app: str) -> int:
        """The number of the app with this name; an app without a part of its own has the number that stands for all
        others.
        """
        return self._indices.get(app, len(self.sizes) - 1)

    def state(self) -> tuple[float, ...]:
        """The parts' state as numbers, for stores outside this process (`proxy.stores`)."""
        return (*self._spent, *self._lent, *self._seen)

    def restore(self, state: Sequence[float]) -> None:
        """Take over a state that the method `state` returned, of this object or of another with the same definition."""
        count = len(self.sizes)
        self._spent, self._lent, self._seen = (list(state[at : at + count]) for at in (0, count, 2 * count))

    def came(self, index: int, now: float) -> None:
        """Note that the app with the number `index` makes a call."""
        self._seen[index] = now

    def seen(self, index: int) -> float:
        """The time (seconds) of the last call of the app with the number `index`; minus infinity if there was none."""
        return self._seen[index]

    def own(self, index: int) -> float:
        """The tokens that the app with the number `index` has left of its own part."""
        size, spent, lent = self.sizes[index], self._spent[index], self._lent[index]
        return size - spent - lent

    def affords(self, index: int, low: bool, price: float, level: float, now: float) -> bool:
        """Whether the app with the number `index` may spend the price now, if the bucket has `level` tokens. `low`: the
        app's call has low priority.
        """
        if not low and 0 < price <= level and price <= self.own(index):  # mostly: the other parts do not matter
            return True
        available = self.available(index, low, level, now)
        return available > 0 and price <= available + _ROUNDING

    def available(self, index: int, low: bool, level: float, now: float) -> float:
        """The tokens that the app with the number `index` may spend now, of its own part and beyond it, if the bucket
        has `level` tokens. `low`: the app's call has low priority; such calls get nothing from a bucket that is at most
        half full.
        """
        if low and level <= self.capacity / 2:
            return 0.0
        beyond = max(0.0, self._unreserved(level)) + sum(self._loans(index, now))
        return max(0.0, min(level, self.own(index) + beyond))

    def took(self, index: int, price: float, level: float, now: float) -> None:
        """Note that the app with the number `index` spends the price from a bucket that had `level` tokens before."""
        left = self.own(index)
        if price <= left:
            self._spent[index] += price
            return
        own = max(0.0, left)
        beyond = price - own - max(0.0, self._unreserved(level))
        self._spent[index] += own
        if beyond > 0:
            loans = self._loans(index, now)
            whole = sum(loans)
            for other, loan in enumerate(loans):
                if loan:
                    self._lent[other] += min(loan, loan / whole * beyond)

    def earned(self, index: int, tokens: float, level: float) -> None:
        """Note that the app with the number `index` earned tokens, or got some back. `level`: the bucket's level
        afterwards.
        """
        if level >= self.capacity:
            self._fill()
            return
        spent = self._spent[index]
        own = min(tokens, spent)
        self._spent[index] = spent - own
        if tokens > own:
            self._pay_back(index, tokens - own)

    def _pay_back(self, index: int, tokens: float) -> None:
        """Pay back what apps have borrowed, with tokens that the app with the number `index` earned: first what is
        missing from its own part, then what is missing from the others, in proportion.
        """
        own = min(tokens, self._lent[index])
        self._lent[index] -= own
        owed = sum(self._lent)
        if owed:
            left = max(0.0, 1 - (tokens - own) / owed)
            self._lent = [lent * left for lent in self._lent]

    def refilled(self, before: float, level: float) -> None:
        """Note that the bucket got tokens that no app earned: it had `before` tokens, and has `level` tokens now."""
        if level >= self.capacity:
            self._fill()
        elif level > before:
            left = (self.capacity - level) / (self.capacity - before)
            self._spent = [spent * left for spent in self._spent]
            self._lent = [lent * left for lent in self._lent]

    def _fill(self) -> None:
        """Make all parts full, with nothing lent, since the bucket is full."""
        for index in range(len(self.sizes)):
            self._spent[index] = self._lent[index] = 0.0

    def _unreserved(self, level: float) -> float:
        """The tokens of a bucket at this level that are reserved for no app. The result is below 0 where more tokens
        are reserved than the bucket has: each part has room for one retry, however small the bucket.
        """
        unreserved = level
        for index in range(len(self.sizes)):
            unreserved -= self.own(index)
        return unreserved

    def _loans(self, index: int, now: float) -> list[float]:
        """The tokens that the app with the number `index` may borrow now from each of the apps, listed by the apps'
        numbers; 0 for the app itself and for apps that were seen in the last minute.
        """
        return [
            0.0 if other == index or now - self._seen[other] <= SEEN else max(0.0, (size - spent) / 2 - lent)
            for other, (size, spent, lent) in enumerate(zip(self.sizes, self._spent, self._lent, strict=True))
        ]


def _sizes(weights: Sequence[int], capacity: float, least: float) -> list[float]:
    """The sizes of the parts in tokens: the capacity is divided in proportion to `weights`, except that no part is
    smaller than `least`.
    """
    small: set[int] = set()
    while True:
        whole = sum(weight for index, weight in enumerate(weights) if index not in small)
        rest = max(0.0, capacity - least * len(small))
        more = {index for index, weight in enumerate(weights) if index not in small and rest * weight < least * whole}
        if not more:
            return [least if index in small else rest * weight / whole for index, weight in enumerate(weights)]
        small |= more
