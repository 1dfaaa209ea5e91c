"""The places of one lane that the workers of one machine share.

Theory of places whose worker has died. Each place in use is counted in the generation in which it was taken. There are
three generations. A new generation begins each time half of the longest use of a place has passed. It replaces the
oldest generation, and the places still counted there are counted no more: they are those of dead workers, since a
living worker returns its places before that.
"""

from __future__ import annotations

from proxy.retry.weather.lane_places import LanePlaces
from proxy.stores.shared_memory.longest_wait import LongestWait

#: Generations of places in use; and the base in which their counts are packed into one number, a digit for each.
GENERATIONS, _BASE = 3, 65536


class SharedLanePlaces(LanePlaces):
    """The places of one lane that all workers use. `taken`: the places that this worker has taken; `before`: the
    attempts of all workers that began before the limit; `mine`: those of them that are this worker's; `longest`: which
    worker's first call has waited longest.
    """

    __slots__ = ("_counts", "_opened", "_turn", "_turns", "longest", "mine")

    def __init__(self, longest: LongestWait) -> None:
        super().__init__()
        self.longest = longest
        self.mine = 0
        self._opened = 0.0  # when the newest generation began
        self._turn = 0  # the newest generation's number
        self._counts = [0] * GENERATIONS  # the places in use of each generation, by its number modulo GENERATIONS
        self._turns: dict[object, int] = {}  # the generation in which each place of this worker was taken

    def in_use(self) -> int:
        return sum(self._counts) + self.before

    def own_in_use(self) -> int:
        return len(self.taken) + self.mine

    def occupy(self, holder: object, now: float) -> None:
        super().occupy(holder, now)
        self._turns[holder] = self._turn
        self._counts[self._turn % GENERATIONS] += 1

    def vacate(self, holder: object) -> None:
        super().vacate(holder)
        turn = self._turns.pop(holder, -GENERATIONS)
        if turn > self._turn - GENERATIONS and self._counts[turn % GENERATIONS]:
            self._counts[turn % GENERATIONS] -= 1

    def sent(self, waiter: object, attempt: object) -> bool:
        turn = self._turns.pop(waiter, None)
        if turn is not None:
            self._turns[attempt] = turn
        return super().sent(waiter, attempt)

    def limit_began(self, flying: int) -> None:
        super().limit_began(flying)
        self.mine = self.before

    def limit_came(self, flying: int) -> None:
        """Count the attempts of this worker that were under way when another process found that a limit begins; those
        of other workers are counted already or will be. `flying`: the number of all attempts of this worker that are
        under way.
        """
        self.mine = max(0, flying - len(self.taken))
        self.before += self.mine

    def free_before(self) -> None:
        if self.mine:
            self.mine -= 1
            super().free_before()

    def forget(self) -> None:
        super().forget()
        self.mine = 0
        self._turns.clear()
        self._turn += GENERATIONS  # places of earlier generations that are given back count no more
        self._counts = [0] * GENERATIONS

    def begin_generations(self, half: float, now: float) -> None:
        """Begin the generations that are due. Places are counted by the generation in which they were taken, and a new
        generation replaces the oldest one, whose places are counted no more: so those of a dead worker are forgotten.
        `half`: half of the longest time for which a place is in use, in seconds.
        """
        for _ in range(GENERATIONS):
            if now < self._opened + half:
                return
            self._turn += 1
            self._counts[self._turn % GENERATIONS] = 0
            self._opened += half
        self._opened = max(self._opened, now)

    def restore(self, opened: float, turn: float, counts: float, before: float) -> None:
        """Take over the numbers that `state` returned in another worker."""
        self._opened, self._turn, self.before = opened, int(turn), int(before)
        self._counts = [int(counts) // _BASE**n % _BASE for n in range(GENERATIONS)]

    def state(self) -> tuple[float, float, float, float]:
        """Return the numbers to store in the memory that workers share; `restore` takes them over in another worker."""
        counts = sum(min(count, _BASE - 1) * _BASE**n for n, count in enumerate(self._counts))
        return self._opened, self._turn, counts, self.before
