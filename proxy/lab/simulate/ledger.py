"""Every call and every sending of a play, one by one, for the judge of redrive's defaults (`tools/judge.py`).

The figures of a report need sums only; this costs memory for each call, so it is kept only where somebody asks for it.
"""

from __future__ import annotations

from array import array

from proxy.retry.call.machine import Call
from proxy.retry.facts import Outcome


class Ledger:
    """The calls and sendings of one play, as columns of equal length; times are in seconds.

    Of each call: when it `began` and `ended`, its `sidecar` and `route`, whether it was `served`; `sent` is when its
    first attempt was sent, infinite if none was; `held` is for how long it waited beside its own backoffs, pushbacks
    and attempts. Of each sending: the time (`sendings`), whether it was its call's first (`firsts`), and whether the
    upstream `took` it.
    """

    def __init__(self) -> None:
        self.began = array("d")
        self.ended = array("d")
        self.sidecar = array("l")
        self.route = array("l")
        self.served = array("b")
        self.sent = array("d")
        self.held = array("d")
        self.sendings = array("d")
        self.firsts = array("b")
        self.took = array("b")

    def send(self, now: float, attempt: int, *, took: bool) -> None:
        """Note a sending of attempt number `attempt`. `took`: whether the upstream took it."""
        self.sendings.append(now)
        self.firsts.append(attempt == 1)
        self.took.append(took)

    def end(self, call: Call, began: float, sent: float, ended: float, outcome: Outcome) -> None:
        """Note a call's end. It began at `began` and ended at `ended`; `sent` is when its first attempt was sent,
        infinite if none was.
        """
        self.began.append(began)
        self.ended.append(ended)
        self.sent.append(sent)
        self.served.append(outcome is Outcome.SUCCESS)
        self.held.append(min(sent, ended) - began + _held_between(call, ended))


def _held_between(call: Call, ended: float) -> float:
    """The seconds for which gates held a call after its first attempt: all the time between its attempts, less the
    backoffs and the pushbacks that it waited for itself.
    """
    held, free, own = 0.0, 0.0, 0.0
    history = call.so_far.history
    for number, record in enumerate(history):
        if number and record.started > free:
            held += max(0.0, record.started - free - own)
        free = max(free, ended if record.ended is None else record.ended)
        own = record.delay or 0.0
    if history and ended > free:
        held += max(0.0, ended - free - own)
    return held
