"""How an attempt failed, as it is reported to the governor, the object that decides which calls may be sent
(`proxy.retry.call.feedback`).
"""

from __future__ import annotations


class AttemptEnding:
    """How an attempt failed, for the governor. `well`: its answer is no failure of the upstream's own (a 404, say),
    since no retry could help. `refused`: it failed for want of capacity. `throttled`: the upstream refused it because a
    limit was exceeded (429, say), which concerns its credential alone. `quick`: an answer reported the failure, so that
    it was known soon. `lost`: "" if the upstream itself answered the attempt; otherwise "endpoint" or "route", for
    whichever of them the missing answer counts. `how`: the status or the kind of fault, for observers.
    """

    __slots__ = ("how", "lost", "quick", "refused", "throttled", "well")

    def __init__(self, well: bool, refused: bool, throttled: bool, quick: bool, lost: str, how: str) -> None:
        self.well = well
        self.refused = refused
        self.throttled = throttled
        self.quick = quick
        self.lost = lost
        self.how = how
