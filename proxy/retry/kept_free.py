"""Places and tokens that calls of a lower priority leave to better ones (contract, section 17, "Queues").

Theory. A call that was sent cannot be interrupted. Where a batch holds all places of a limit, a website's call waits
for the first of them to end, whatever its priority. So, while calls of a better priority come, those of a lower one
leave as many places free that hardly one in a hundred of the better calls finds none. Two numbers bound how many those
are. If the calls of a batch end all at the same time, places come back too late, and the better calls need as many as
are ever under way at once: a number with Poisson's distribution. If they end one after the other, the next end gives
a place back before another better call comes with probability 1 - p, where p is their part of all calls, so that all of
n kept places are taken with p**n. The larger number is kept first, and fewer as long as no better call waits.

At a rate, tokens that are kept are not lost, so half of the burst is kept.
"""

from __future__ import annotations

import math

#: Seconds after the latest call of a priority for which places and tokens are kept for it (choice; as
#: `proxy.retry.app_parts.SEEN`).
KEPT_FOR = 60.0
#: The share of the better calls that may find no place, and that with which the lower bound is reckoned (choice).
_RARELY, _RARELY_IN_TURN = 0.01, 0.015
#: A mean from which on Poisson's distribution hardly differs from the normal one, and the standard deviations that one
#: number in a hundred exceeds.
_MANY, _DEVIATIONS = 100.0, 2.33
#: The better calls in a row that find a place, after which one place less is kept; a call that waits takes two such
#: steps back (choice).
_CALM, _STEPS_BACK = 400, 2
#: The part of all places that better calls are taken to use at first, and the calls over which it is measured.
FIRST_PART, _MEASURED = 0.1, 128
#: The largest part that is reckoned with: calls that use more than that are most of the load themselves.
_MOST_PART = 0.5
#: The part of a rate's burst that is kept.
BURST_KEPT = 0.5
#: The ranks for which something may be kept; none is worse than the next one.
BETTER = 2
#: The numbers of a gate: for each of these ranks, when its latest call came (seconds), and which part of the places its
#: calls use; by how many places fewer are kept, and the better calls in a row that found one. First those of a gate at
#: which no call has come.
NOT_SEEN = (*[-math.inf] * BETTER, FIRST_PART, *[0.0] * (BETTER - 1), 0.0, 0.0)
_PART, _FEWER, _IN_A_ROW = BETTER, 2 * BETTER, 2 * BETTER + 1


class KeptFree:
    """The knowledge of one gate's calls of better priorities. `rank`, in all methods: the number of a priority (0
    goes first).
    """

    __slots__ = ()

    def _read(self, index: int) -> float:
        raise NotImplementedError

    def _write(self, index: int, number: float) -> None:
        raise NotImplementedError

    def came(self, rank: int, now: float) -> None:
        """Note that a call comes."""
        if rank < BETTER:
            self._write(rank, now)

    def went(self, rank: int, used: float, *, waited: bool) -> None:
        """Note that a call takes a place. `used`: the share of all places that are in use then (0 to 1); `waited`: the
        call had to wait for it.
        """
        for each in range(BETTER):
            part = self._read(_PART + each)
            self._write(_PART + each, part + (used * (each == rank) - part) / _MEASURED)
        if rank >= BETTER:
            return
        in_a_row = 0.0 if waited else self._read(_IN_A_ROW) + 1
        if waited:
            self._write(_FEWER, max(0.0, self._read(_FEWER) - _STEPS_BACK))
        elif in_a_row >= _CALM:
            in_a_row = 0.0
            self._write(_FEWER, self._read(_FEWER) + 1)
        self._write(_IN_A_ROW, in_a_row)

    def keeps(self, rank: int, now: float) -> bool:
        """Whether calls of this rank leave something to calls of a better one."""
        return any(now - self._read(each) <= KEPT_FOR for each in range(min(rank, BETTER)))

    def places(self, rank: int, most: int, now: float) -> int:
        """How many of `most` places calls of this rank leave free; at least one in eight places is theirs."""
        if not self.keeps(rank, now):
            return 0
        part = min(_MOST_PART, max(1e-9, sum(self._read(_PART + each) for each in range(min(rank, BETTER)))))
        least, greatest = math.ceil(math.log(_RARELY_IN_TURN) / math.log(part)), _at_once(part * most)
        if greatest > least:
            fewer = min(self._read(_FEWER), greatest - least)
            self._write(_FEWER, fewer)
            least = greatest - int(fewer)
        return min(least, most - max(1, most // 8))


def _at_once(mean: float) -> int:
    """How many places more than `mean`, which are in use on average, are hardly ever all in use."""
    if mean > _MANY:
        return math.ceil(_DEVIATIONS * math.sqrt(mean))
    count, chance = 0, math.exp(-mean)
    left = 1 - chance  # the probability of more than `count`
    while left > _RARELY:
        count += 1
        chance *= mean / count
        left -= chance
    return math.ceil(count + 1 - mean)


class KeptFreeHere(KeptFree):
    """The same for a gate that this process alone has."""

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers = list(NOT_SEEN)

    def _read(self, index: int) -> float:
        return self._numbers[index]

    def _write(self, index: int, number: float) -> None:
        self._numbers[index] = number
