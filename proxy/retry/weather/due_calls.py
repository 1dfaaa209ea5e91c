"""The calls of one lane (the queue of a group of callers) whose turn has come, and which are not sent yet. Some have a
place among the calls that may be under way; others stepped aside, since another gate holds them (the operator's rate).

A call that stepped aside keeps its turn, but has no place. If no place is free when it asks again, all calls that
stepped aside return to the head of the queue, in their order. From then on only a few calls may step aside at a time,
and this number doubles with each of them that is sent. So a queue does not go back and forth between two gates that
hold it in turn. If none of them is sent for a while, the queue goes on all the same, since calls of other routes may
not have to pass the gate that holds these. The while is short if they wait for what answers say is left of one
credential's limits, and the lane is for calls with any credential.
"""

from __future__ import annotations

from proxy.retry.queues.waiter import Waiter

#: More calls than ever step aside at a time.
_ANY = 1 << 30
#: Seconds that the queue waits for calls which may wait at a gate that few others have to pass.
_BRIEF = 0.1


class DueCalls:
    """The calls of one lane whose turn has come, both kinds in the order of their turns. `admitted`: the calls that
    have a place. `aside`: the calls that another gate holds. Times are seconds on the callers' clock.
    """

    __slots__ = ("_at", "_is_brief", "_most", "admitted", "aside")

    def __init__(self) -> None:
        self.admitted: dict[Waiter, None] = {}
        self.aside: dict[Waiter, None] = {}
        self._most = 1  # while so many stepped aside, the queue waits
        self._at = 0.0  # when the latest of them stepped aside, or was sent
        self._is_brief = False  # the queue does not wait for long for the latest

    def block_until(self, now: float, longest: float) -> float:
        """The time until which the queue waits for the calls in `aside`: `longest` seconds, or a brief time,
        after the latest of them stepped aside or was sent. Returns `now` if the queue does not wait. If that time is
        over, twice as many calls may step aside before the queue waits again.
        """
        until = self._at + (_BRIEF if self._is_brief else longest)
        if len(self.aside) < self._most:
            return now
        if now >= until:
            self._most = 2 * len(self.aside)
            return now
        return until

    def step_aside(self, waiter: Waiter, now: float, *, is_brief: bool) -> None:
        """Note that another gate holds this call, which had a place. If it had stepped aside before, its turn remains
        the same. `is_brief`: the queue waits only briefly for it.
        """
        del self.admitted[waiter]
        self._is_brief = is_brief
        if waiter not in self.aside:
            self.aside[waiter] = None
            self._at = now

    def recall(self) -> dict[Waiter, None]:
        """Remove and return the calls that stepped aside and have no place, because none is free. They are in the order
        of their turns.
        """
        admitted = self.admitted
        back = {call: None for call in self.aside if call not in admitted}
        self.aside, self._most = {call: None for call in self.aside if call in admitted}, 1
        return back

    def take_all(self) -> dict[Waiter, None]:
        """Remove and return all calls, in the order of their turns."""
        every = {**self.aside, **self.admitted}
        self.aside, self.admitted = {}, {}
        return every

    def sent(self, waiter: Waiter, now: float) -> bool:
        """Note that the call is sent. Returns whether it had stepped aside, so that the queue may go on."""
        self.admitted.pop(waiter, None)
        if waiter not in self.aside:
            return False
        del self.aside[waiter]
        self._most, self._at = min(_ANY, 2 * self._most), now
        return True

    def leave(self, waiter: Waiter) -> None:
        """Remove the call, because it sends nothing any more."""
        self.admitted.pop(waiter, None)
        self.aside.pop(waiter, None)

    def __contains__(self, waiter: object) -> bool:
        return waiter in self.admitted or waiter in self.aside
