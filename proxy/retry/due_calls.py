"""The calls of one lane whose turn has come, and which are not sent yet: those that have a place, and those that
stepped aside, since another gate holds them (the operator's rate).

A call that stepped aside keeps its turn, and has no place. If none is free when it asks again, all calls that stepped
aside return to the head of the queue, in their order. From then on few may step aside at a time: twice as many with
each of them that is sent. So a queue does not go back and forth between two gates that hold it in turn.
"""

from __future__ import annotations

from proxy.retry.waiter import Waiter

#: More calls than ever step aside at a time.
_ANY = 1 << 30


class DueCalls:
    """The calls of one lane whose turn has come: `admitted`, those that have a place, and `aside`, those that another
    gate holds; both in the order of their turns.
    """

    __slots__ = ("_most", "admitted", "aside")

    def __init__(self) -> None:
        self.admitted: dict[Waiter, None] = {}
        self.aside: dict[Waiter, None] = {}
        self._most = 1  # while so many stepped aside, the queue waits

    @property
    def block(self) -> bool:
        """Whether so many stepped aside that the queue waits until one of them is sent."""
        return len(self.aside) >= self._most

    def step_aside(self, waiter: Waiter) -> None:
        """Note that another gate holds the call, which had a place; if it had stepped aside before, its turn is what it
        was.
        """
        del self.admitted[waiter]
        self.aside[waiter] = None

    def recall(self) -> dict[Waiter, None]:
        """Take out the calls that stepped aside, for which there is no place. Returns them in the order of their
        turns.
        """
        back, self.aside, self._most = self.aside, {}, 1
        return back

    def take_all(self) -> dict[Waiter, None]:
        """Take out all calls. Returns them in the order of their turns."""
        every = {**self.aside, **self.admitted}
        self.aside, self.admitted = {}, {}
        return every

    def sent(self, waiter: Waiter) -> bool:
        """Note that the call is sent. Returns whether it had stepped aside, so that the queue may go on."""
        self.admitted.pop(waiter, None)
        if waiter not in self.aside:
            return False
        del self.aside[waiter]
        self._most = min(_ANY, 2 * self._most)
        return True

    def leave(self, waiter: Waiter) -> None:
        """Remove the call, which sends nothing."""
        self.admitted.pop(waiter, None)
        self.aside.pop(waiter, None)

    def __contains__(self, waiter: object) -> bool:
        return waiter in self.admitted or waiter in self.aside
