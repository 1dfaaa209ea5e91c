"""The places of one lane (the queue of a group of callers). A call, and then its attempt, has a place while a limit
counts it, until the head of its answer comes.
"""

from __future__ import annotations


class LanePlaces:
    """The places of one lane that are in use. Times are seconds on the callers' clock.

    `taken`: the holders of places (a call, then its attempt), each with the time since which it has its place, in the
    order of these times. `before`: how many attempts under way were sent before the limit began; they have no place,
    but count as if they had.
    """

    __slots__ = ("before", "taken")

    def __init__(self) -> None:
        self.taken: dict[object, float] = {}
        self.before = 0

    def in_use(self) -> int:
        """The number of places in use."""
        return len(self.taken) + self.before

    def own_in_use(self) -> int:
        """The number of places in use by this process."""
        return len(self.taken) + self.before

    def occupy(self, holder: object, now: float) -> None:
        """Give `holder` a place, from the time `now` on."""
        self.vacate(holder)
        self.taken[holder] = now

    def vacate(self, holder: object) -> None:
        """Free the place of `holder`, if it has one."""
        self.taken.pop(holder, None)

    def sent(self, waiter: object, attempt: object) -> bool:
        """Pass the place of the waiting call on to its attempt. Returns whether the call had one."""
        since = self.taken.pop(waiter, None)
        if since is None:
            return False
        self.taken[attempt] = since
        return True

    def limit_began(self, flying: int) -> None:
        """Count the attempts that were under way when the limit began, and have no place. `flying`: how many attempts
        are under way in all.
        """
        self.before = max(0, flying - len(self.taken))

    def free_before(self) -> None:
        """Subtract one from the count of attempts under way that were sent before the limit began: an attempt without a
        place has ended, and was probably one of them.
        """
        self.before = max(0, self.before - 1)

    def expire(self, begun: float, longest: float, now: float) -> None:
        """Take back the places that have been in use for more than `longest` seconds. `begun`: the time at which the
        limit began; the attempts in `before` count as in use since then.
        """
        if self.before and now > begun + longest:
            self.before = 0
        while self.taken:
            holder, since = next(iter(self.taken.items()))
            if since + longest > now:
                return
            self.vacate(holder)

    def oldest(self, begun: float, until: float) -> float:
        """The time since which the place is in use that will be taken back first. It is `begun`, the time at which the
        limit began, if only attempts from before the limit count, and `until` if no place is in use.
        """
        if not self.taken and self.before:
            return begun
        return next(iter(self.taken.values()), until)

    def forget(self) -> None:
        """Free all places, because the attempts that have them say nothing about the upstream any more."""
        self.taken.clear()
        self.before = 0
