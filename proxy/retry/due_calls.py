"""The calls of one lane whose turn has come, and which are not sent yet: those that have a place, and those that
stepped aside, since another gate holds them (the operator's rate).

A call that stepped aside keeps its turn, and has no place. If none is free when it asks again, all calls that stepped
aside return to the head of the queue, in their order. From then on few may step aside at a time: twice as many with
each of them that is sent. So a queue does not go back and forth between two gates that hold it in turn. If none of them
is sent for a while, the queue goes on all the same: calls of other routes need not have the gate that holds these.
"""

from __future__ import annotations

from proxy.retry.waiter import Waiter

#: More calls than ever step aside at a time.
_ANY = 1 << 30


class DueCalls:
    """The calls of one lane whose turn has come: `admitted`, those that have a place, and `aside`, those that another
    gate holds; both in the order of their turns. Times are seconds on the callers' clock.
    """

    __slots__ = ("_at", "_most", "admitted", "aside")

    def __init__(self) -> None:
        self.admitted: dict[Waiter, None] = {}
        self.aside: dict[Waiter, None] = {}
        self._most = 1  # while so many stepped aside, the queue waits
        self._at = 0.0  # when the latest of them stepped aside, or was sent

    def block_until(self, now: float, longest: float) -> float:
        """The time until which the queue waits for the calls in `aside`: `longest` seconds after the latest of them
        stepped aside or was sent. Returns `now` if the queue does not wait. When a call in `aside` is sent, more of
        them may step aside before the queue waits again.
        """
        until = self._at + longest
        if len(self.aside) < self._most:
            return now
        if now >= until:
            self._most = 2 * len(self.aside)
            return now
        return until

    def step_aside(self, waiter: Waiter, now: float) -> None:
        """Note that another gate holds the call, which had a place; if it had stepped aside before, its turn is what it
        was.
        """
        del self.admitted[waiter]
        if waiter not in self.aside:
            self.aside[waiter] = None
            self._at = now

    def recall(self) -> dict[Waiter, None]:
        """Take out the calls that stepped aside and have got no place since, because there is none. Returns them in the
        order of their turns.
        """
        admitted = self.admitted
        back = {call: None for call in self.aside if call not in admitted}
        self.aside, self._most = {call: None for call in self.aside if call in admitted}, 1
        return back

    def take_all(self) -> dict[Waiter, None]:
        """Take out all calls. Returns them in the order of their turns."""
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
        """Remove the call, which sends nothing."""
        self.admitted.pop(waiter, None)
        self.aside.pop(waiter, None)

    def __contains__(self, waiter: object) -> bool:
        return waiter in self.admitted or waiter in self.aside
