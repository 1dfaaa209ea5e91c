"""How an attempt failed, as the governor is told it (`proxy.retry.feedback`)."""

from __future__ import annotations


class AttemptEnding:
    """How an attempt failed, for the governor. `well`: its answer is no failure of the upstream's own (a 404, say),
    since no retry could help; `refused`: it failed for want of capacity; `throttled`: the upstream refused it because a
    limit was exceeded (429, say), which concerns its credential alone; `quick`: an answer said that it failed, so that
    this was known soon; `lost`: "endpoint" or "route", for which of them it counts that the attempt ended without an
    answer of the upstream's own, "" if it was answered. `how`: the status or the kind of fault, for observers.
    """

    __slots__ = ("how", "lost", "quick", "refused", "throttled", "well")

    def __init__(self, well: bool, refused: bool, throttled: bool, quick: bool, lost: str, how: str) -> None:
        self.well = well
        self.refused = refused
        self.throttled = throttled
        self.quick = quick
        self.lost = lost
        self.how = how
