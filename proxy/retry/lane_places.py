"""The places of one lane: a call or its attempt has one while a limit counts it, until the head of its answer comes."""

from __future__ import annotations


class LanePlaces:
    """The places of one lane that are in use. Times are seconds on the callers' clock.

    `taken`: who has a place (a call, then its attempt), and since when, in that order; `before`: the attempts under way
    that were sent before the limit began, which have no place, and count as if they had.
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
        """Give `holder` a place, from `now` on."""
        self.vacate(holder)
        self.taken[holder] = now

    def vacate(self, holder: object) -> None:
        """Free the place of `holder`, if it has one."""
        self.taken.pop(holder, None)

    def sent(self, waiter: object, attempt: object) -> bool:
        """Give the waiter's place to its attempt. Returns whether it has one."""
        since = self.taken.pop(waiter, None)
        if since is None:
            return False
        self.taken[attempt] = since
        return True

    def limit_began(self, flying: int) -> None:
        """Count the attempts that were under way when the limit began. `flying`: all that are under way."""
        self.before = max(0, flying - len(self.taken))

    def free_before(self) -> None:
        """Subtract one from the count of attempts under way that were sent before the limit began: an attempt that
        holds no place has ended, and was probably one of them.
        """
        self.before = max(0, self.before - 1)

    def expire(self, begun: float, longest: float, now: float) -> None:
        """Take back the places that have been in use for more than `longest` seconds. The attempts in `before` count as
        in use since `begun`, when the limit began.
        """
        if self.before and now > begun + longest:
            self.before = 0
        while self.taken:
            holder, since = next(iter(self.taken.items()))
            if since + longest > now:
                return
            self.vacate(holder)

    def oldest(self, begun: float, until: float) -> float:
        """The time since which the place is in use that is taken back first: `begun`, at which the limit began, if only
        attempts from before the limit count; `until` if no place is in use.
        """
        if not self.taken and self.before:
            return begun
        return next(iter(self.taken.values()), until)

    def forget(self) -> None:
        """Free all places, because the attempts that have them say nothing any more."""
        self.taken.clear()
        self.before = 0
