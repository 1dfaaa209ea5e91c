"""Answers that are held back until they are complete, so that an answer which breaks off can be asked for again.

Contract, section 15, "Whole answers". An SDK that retries by itself reads an answer to its end before it passes it to
the app, so it survives an answer that breaks after its head. `proxy.retry.call.broken_answers` decides which answers
are held back here. The machine makes a `WholeAnswer` for its `proxy.retry.answers.first_byte.BodyWait`, and the driver
feeds the body to it.
"""

from __future__ import annotations

from typing import Protocol

from proxy.retry.facts import Reply, first
from proxy.retry.instants import EPSILON
from proxy.retry.policies.policy import WholeAnswers


class Budget(Protocol):
    """The limit on the bytes of bodies that are kept at a time (`buffers.total`). `total`: how many may be kept.
    `used`: how many are.
    """

    used: int
    total: int


class WholeAnswer:
    """The holding of one answer until its body is complete. `answers`: the bounds on this. `goes_on`: the time at which
    the answer is delivered although it is not complete (seconds on the driver's clock). `budget`: the limit on all
    bytes that are kept, set by a driver that has one.
    """

    __slots__ = ("_charged", "_left", "_wait", "budget", "goes_on")

    def __init__(self, answers: WholeAnswers, reply: Reply, now: float) -> None:
        sized = length_of(reply) is not None
        self._left = answers.whole
        self._wait = answers.wait if sized else None
        self._charged = 0
        self.goes_on = now + (answers.wait if sized else answers.pause)
        self.budget: Budget | None = None

    def feed(self, size: int, now: float) -> bool:
        """Count `size` more bytes of the body, which have come. Returns whether the answer has to be delivered now
        although it is not complete, because it is longer than a held answer may be, or because `budget` has no room for
        these bytes.
        """
        self._left -= size
        if self._wait is not None:
            self.goes_on = now + self._wait
        if self.budget is not None:
            if self.budget.used + size > self.budget.total:
                return True
            self.budget.used += size
            self._charged += size
        return self._left < 0

    def is_tired(self, now: float) -> bool:
        """Whether the time for which the answer may be held is over."""
        return now >= self.goes_on - EPSILON

    def release(self) -> None:
        """Stop counting the answer's bytes in `budget`, because they are not kept any more."""
        if self.budget is not None:
            self.budget.used -= self._charged
        self._charged = 0


def length_of(reply: Reply) -> int | None:
    """The length of an answer's body, as its head names it; None if it names none."""
    if reply.fields.get_all("transfer-encoding"):
        return None
    said = first(reply.fields, "content-length")
    return int(said) if said is not None and said.isascii() and said.isdigit() else None
