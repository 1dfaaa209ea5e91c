"""The pace (attempts a second) of a lane whose delays hold only the calls that were refused. A lane is the queue of a
group of callers.

Contract, section 9, rule 3, bounds what an upstream in trouble is asked for; but no fewer calls may be served than
without a proxy. How many refusals are too many depends on whose load is the reason for them. If it is this client's
own, fewer attempts are refused at a slower pace, and the pace should stay just below the one at which attempts are
refused. If other clients, or chance, are the reason, a slower pace only leaves more to the others: then calls are sent
no slower than they come, and faster while calls wait and not too many are refused. So where many are refused, a slower
pace is tried, and the shares of refusals at the two paces are compared.

Chance may refuse many of twenty attempts, and few of the next twenty. So the share among all the latest attempts is
compared. If a slower pace is kept, and nearly as many attempts are refused all the same, chance is the reason.
"""

from __future__ import annotations

from proxy.retry.capacity.chances import tail
from proxy.retry.capacity.fading_share import FadingShare
from proxy.retry.capacity.least_gap import settled

#: The attempts that are counted at each of the two paces; the slower one, as a part of the other; and the pace at
#: first, as a part of the calls that come.
_COUNTED, _SLOWER, _AT_FIRST = 20, 0.6, 0.8
#: The share of refused attempts from which the slower pace is tried; and the probability, by that share, of as few
#: refusals at the slower pace, below which the load is this client's own.
_TRIED, _PROBABLE = 0.2, 0.02
#: The attempts at a slower pace that is kept, and the part of the share of refusals before, from which on so many are
#: refused that the load is not this client's own.
_KNOWN_FROM, _AS_MANY = 36, 0.6
#: The share of attempts that may be refused by this client's own load, or by others or chance: the pace at which so
#: many are refused is kept. With two clients, the latter is what rule 3 allows.
_OWN, _OTHERS = 0.1, 0.4
#: The part by which each attempt that is sent while calls wait raises the pace.
_RISE_OWN, _RISE_OTHERS = 0.01, 0.02
#: The same where it is known which pace the upstream takes.
_RISE_SETTLED = 0.002
#: Seconds after which it is measured again.
_AGAIN = 30.0
#: The pace that is always allowed, beside `_LEAST` attempts a second: so many times what is served.
_OF_SERVED = 1.3
#: The least pace, and the highest, as a multiple of the calls that come: beside `_LEAST` attempts a second.
_LEAST, _MOST = 2.0, 3.0


class RefusalPace:
    """The pace of one lane. `rate`: the pace, in attempts a second. Times are seconds on the callers' clock."""

    __slots__ = (
        "_again_at", "_before", "_calls", "_fast", "_is_own", "_is_settled", "_is_slow", "_own", "_refused",
        "_sent", "_served", "_share", "rate",
    )  # fmt: skip

    def __init__(self, calls: float, now: float) -> None:
        self._calls, self._served = calls, 0.0  # how many calls come, and how many attempts are served, a second
        self.rate = max(_LEAST, _AT_FIRST * calls)
        self._sent = self._refused = 0
        self._is_slow = False  # the slower pace is tried,
        self._before = self._share = 0.0  # in place of this one, at which this share was refused
        self._fast = FadingShare()  # of attempts at the pace that is not slower
        self._is_own = False  # a slower pace was refused less,
        self._own = FadingShare()  # and this share is refused since then
        self._is_settled = False  # the upstream's own limit is known
        self._again_at = now  # a slower pace is tried no sooner

    def sent(self, calls: float, served: float, waiting: int, now: float) -> None:
        """Note that an attempt is sent. `calls`: how many calls come in a second. `served`: how many attempts are
        served in a second. `waiting`: how many calls wait.
        """
        self._calls, self._served = calls, served
        self._sent += 1
        if self._is_settled:
            if waiting:
                self.rate = min(self.rate * (1.0 + _RISE_SETTLED), _MOST * calls + _LEAST)
            return
        if self._sent > _COUNTED:
            self._counted(now)
        if waiting and not self._is_slow:
            self._set(self.rate * (1.0 + (_RISE_OWN if self._is_own else _RISE_OTHERS)))

    def settle(self, rate: float) -> None:
        """Set the pace to `rate` (attempts a second), which the upstream is known to take, and let it grow slowly from
        there. 0 if that is not known any more.
        """
        self._is_settled = rate > 0.0
        if self._is_settled:
            self._is_slow, self.rate = False, max(_LEAST, settled(rate, self.rate))

    def refused(self) -> None:
        """Note that an attempt was refused."""
        self._refused += 1
        if not self._is_slow and not self._is_settled:
            self._set(self.rate * (1.0 - (_RISE_OWN / _OWN if self._is_own else _RISE_OTHERS / _OTHERS)))

    def _counted(self, now: float) -> None:
        """Judge the paces, once enough attempts were counted. If the slower pace is being tried, compare its share of
        refusals with that of the pace before. If it was kept, give it up if as many are refused. Otherwise try a slower
        pace if many were refused.
        """
        sent, refused = self._sent, self._refused
        self._sent = self._refused = 0
        if self._is_slow:
            self._is_slow = False
            few = 1.0 - tail(sent, refused + 1, self._share)
            self._judge(few < _PROBABLE, now)
            return
        shares = self._own if self._is_own else self._fast
        shares.add(sent, refused)
        if self._is_own and shares.count >= _KNOWN_FROM and shares.share >= _AS_MANY * self._share:
            self._judge(False, now)
        elif shares.share >= _TRIED and now >= self._again_at:
            self._is_slow, self._before, self._share = True, self.rate, shares.share
            self.rate = max(_LEAST, _SLOWER * self.rate)

    def _judge(self, is_own: bool, now: float) -> None:
        """Keep the slower pace if this client's own load is the reason for the refusals (`is_own`); otherwise return to
        the pace before.
        """
        self._is_own = is_own
        self._again_at = now if is_own else now + _AGAIN
        self._own = FadingShare()
        self._set(self.rate if is_own else self._before)

    def _set(self, rate: float) -> None:
        """Set the pace (attempts a second), within its bounds."""
        least = _LEAST if self._is_own else max(self._calls, _OF_SERVED * self._served + _LEAST)
        self.rate = max(least, min(rate, _MOST * self._calls + _LEAST))
