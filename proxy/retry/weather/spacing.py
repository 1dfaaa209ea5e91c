"""The spacing of one lane's attempts in time: the least time from one sending to the next, for upstreams where a limit
on the number under way has no effect. A lane is the queue of a group of callers; a pace is a number of sendings a
second.

Contract, sections 5 and 14: "where an upstream refuses without a queue, places say nothing: sendings are then spaced in
time as well, at the pace at which it last served", and a limit is "never below one place; paced in time where places
say nothing".

A refusal cuts the pace to a little below the refused one. It stays there for some seconds; then it grows, slowly at
first and ever faster (as RFC 9438, section 4.3, does beyond the window that was refused last). So a limit that is gone
does not hold calls for long, and one that is still in force is seldom exceeded. Each time that about the same pace is
refused again, the pace stays for longer, because that pace is then more likely to be the upstream's limit. Only seconds
in which calls wait count, since a pace that is not used proves nothing. While the waiting calls become fewer soon
enough, a pace that was found lately does not grow: growth would gain little, and a refusal holds every call for the
delay that it names. The pace also grows when many attempts in a row are sent as soon as it allows while no other call
waits: this shows a client that makes one call at a time, and the pace would delay each of its calls for ever. It grows
too when calls wait at every sending for some seconds: then several such clients wait, each of which the pace delays.

Several clients that share a limit without a queue cause each other's refusals, whatever the pace of each. So if many
calls in a row were served at a pace, a few early refusals do not make it forgotten.
"""

from __future__ import annotations

import math

from proxy.retry.capacity.least_gap import settled

_NEVER = float("inf")

#: The part that a refusal takes from the pace after enough attempts were served; and the part of the pace that is left
#: by a refusal after hardly any.
_CUT, CUT_HARD = 0.1, 0.7
#: The served attempts since the last cut that count as hardly any; and those that prove that the upstream takes this
#: pace.
HARDLY, _PROOF = 5, 10
#: The refusals in a row, each after hardly any served attempt, that disprove the pace that was proven.
_DISPROVED = 4
#: Two refused paces are the same if they differ by at most this part. Each time that the same pace is refused, it is
#: surer that this is the upstream's limit, up to this: less is taken from it, and it stays for longer.
_SAME, _SUREST = 0.15, 4.0
#: The seconds for which a pace stays after a cut.
_STAYS = 2.0
#: How fast the pace grows after it has stayed: its logarithm grows by the first figure times the square of the seconds
#: since then, by the second figure at most.
_GROWTH, _MOST_GROWTH = 0.04, 20.0
#: How fast the pace grows whose limit is not known: by the logarithm of this factor a second.
_FAST = math.log(2.0)
#: The most seconds of that growth for one sending after a refusal that came after hardly any served attempt, and for
#: how many sendings: at a slow pace, that refusal was one second's growth too far; with these the pace comes back to
#: the refused one, and some attempts have been served by then.
_CAREFUL, _CAREFUL_FOR = 0.05, 10
#: The pace grows while so many calls wait that they take more than so many seconds. It grows the faster the longer
#: they take, in units of the second figure, at most by the third figure times faster: so clients with a smaller share
#: catch up.
_PRESSURE, _LONG_WAIT, _MOST_URGENT = 0.25, 4.0, 2.0
#: Seconds in which calls waited at each sending, after which the pace grows although they wait for less. Otherwise
#: clients of one call at a time each would wait for the first of the figures above at each call, for ever.
_PRESSED_FOR = 4.0
#: The served attempts in a row after which a refusal shows that the pace was the only thing wrong: for so many seconds
#: (the second figure) the pace then stays if it is enough.
_STEADY, _STEADY_FOR = 20, 10.0
#: A pace is enough at which the calls that wait, and those that come meanwhile, are sent within so many seconds; and
#: the seconds over which it is counted how many come.
_SOON, _COUNTED_OVER = 30.0, 6.0
#: Seconds for which the pace that the upstream has proved to take is remembered.
_KNOWN = 120.0
#: The weight of the newest gap between sendings in their mean.
_NEWEST = 0.0625
#: A pace of which more than this part is used binds.
_MUCH = 0.6
#: The sendings in a row, each as soon as the pace allowed it and while no other call waits, that show a client
#: of one call at a time: calls that come by chance at the same pace do so once in some thousand times. As soon: within
#: this part of the time between two sendings.
_IN_TURN, _AT_ONCE = 8, 0.1
#: Seconds by which an alarm may come late: an event loop's have a resolution of a millisecond. Sendings that are closer
#: than this go with the alarm that came too late for them, or one call each alarm would be all that is ever sent.
_ALARM = 0.002
#: The slowest pace, in sendings a second.
SLOWEST = 0.5


class Spacing:
    """The spacing of one lane's attempts in time. `rate`: the pace, in sendings a second; 0 while sendings are not
    spaced. `next_at`: the time at which the next attempt may be sent (seconds on the callers' clock). `sendings`: how
    many attempts were sent since the pace was last set. `is_guess`: a trial (`proxy.retry.weather.trial`) compares at
    this pace, so that it does not grow yet for a client of one call at a time.
    """

    __slots__ = (
        "_base", "_came", "_careful", "_counted_at", "_counted_from", "_cut_at", "_early", "_gap", "_pressed_since",
        "_proven", "_stays", "_steady_until", "_sure", "_top", "_used", "_waiting", "is_guess", "next_at", "rate",
        "sendings",
    )  # fmt: skip

    def __init__(self) -> None:
        self.rate = 0.0
        self.next_at = -_NEVER
        self._base = 0.0  # the pace after the last cut
        self._cut_at = -_NEVER  # when a pace was refused last
        self._top = 0.0  # the pace that was refused last
        self._proven = 0.0  # a pace at which many were served in a row
        self._early = 0  # refusals in a row after hardly any served attempt
        self._sure = 1.0  # how sure it is that `_top` is the upstream's limit
        self._stays = _STAYS  # for so many seconds of use the pace stays as it is; infinity: it does not grow by itself
        self._used = 0.0  # the seconds of use since the last cut
        self._gap = 0.0  # the mean time between two sendings; 0 if none is known
        self.sendings = 0
        self._pressed_since = _NEVER  # since when calls waited at each sending, or each came as soon as it might
        self.is_guess = False
        self._careful = 0  # for so many sendings it grows less, since it was refused after hardly any served attempt
        self._steady_until = -_NEVER  # so long the pace stays if it is enough
        self._came = 0.0  # calls that have come lately, fading,
        self._counted_from = self._counted_at = -_NEVER  # since when they are counted, when the last was sent,
        self._waiting = 0  # and how many calls waited then

    def holds(self, now: float) -> bool:
        """Whether sendings wait for a time: they are spaced, or the next one may not go yet."""
        return self.rate > 0 or now < self.next_at

    def end(self) -> None:
        """Stop spacing sendings."""
        self.rate, self.next_at = 0.0, -_NEVER
        self._gap = self._came = 0.0
        self._counted_at = -_NEVER

    def cut(self, pace: float, served: int, now: float, delays: bool = True) -> None:
        """Lower the pace, because an attempt was refused at the pace `pace` (sendings a second). `served`: how many
        attempts were served since the last cut. `delays`: the refusal delays all calls, so that further refusals do
        harm, and the pace grows carefully at first. If False, it does not: otherwise too many calls would come to wait,
        all of which are sent if the limit is given up.
        """
        self._cut_at = now
        self._steady_until = now + _STEADY_FOR if served >= _STEADY else now
        if served >= _PROOF:
            self._proven = pace
        if served >= HARDLY:
            self._early = 0
            is_same = abs(pace - self._top) <= _SAME * pace
            self._sure = min(_SUREST, 2.0 * self._sure) if is_same else 1.0
            self._top = pace
            self._begin(pace * (1.0 - _CUT / self._sure), _STAYS * self._sure)
            return
        self._early += 1
        if self._early >= _DISPROVED:
            self._proven, self._early = self._proven * CUT_HARD, 0
        self._begin(pace * CUT_HARD, 0.0)
        self._careful = _CAREFUL_FOR if delays else 0

    def settle(self, pace: float, now: float) -> None:
        """Set the pace to `pace` (sendings a second), which the times between this client's own attempts show that the
        upstream takes (`proxy.retry.capacity.least_gap`), because an attempt was refused.
        """
        pace = settled(pace, self.rate)
        is_same = abs(pace - self._top) <= _SAME * pace
        self._sure = min(_SUREST, 2.0 * self._sure) if is_same else 1.0
        self._cut_at, self._steady_until, self._early = now, now + _STEADY_FOR, 0
        self._top, self._proven = pace, pace / (1.0 - _CUT / self._sure)  # calls return at this very pace
        self._begin(pace, _STAYS * self._sure)

    @property
    def binds(self) -> bool:
        """Whether attempts are sent nearly as often as the pace allows."""
        return self.rate > 0 and self._gap * self.rate * _MUCH < 1.0

    @property
    def keeps_several(self) -> bool:
        """Whether other calls waited when the last attempt was sent."""
        return self._waiting > 0

    def resume(self, now: float) -> None:
        """Space sendings again at a pace that the upstream has been shown to take, if that was found out not long
        ago.
        """
        if self._proven and now - self._cut_at < _KNOWN:
            self._begin(self._proven * (1.0 - _CUT / self._sure), _STAYS * self._sure)

    def explore(self, pace: float) -> None:
        """Begin with `pace` (sendings a second) as a guess. It may be far from what the upstream takes, so it changes
        soon.
        """
        self._begin(pace, 0.0)
        self.is_guess = True

    def slow_down(self, to: float) -> None:
        """Space sendings at the pace `to` (sendings a second), which does not grow by itself: the limit changes it as
        answers come.
        """
        self._begin(to, _NEVER, 0.0)

    def change(self, to: float) -> None:
        """Set the pace, which sendings are spaced at already, to `to` (sendings a second), as `slow_down` does. The
        next sending moves with it: it follows the latest one by one interval of the new pace. Otherwise an answer would
        alter nothing before the sending after the next, and many clients that learn of a queue so late fill and empty
        it in turn.
        """
        before = self.rate
        self.slow_down(to)
        if before:
            self.next_at += 1.0 / self.rate - 1.0 / before

    def drain(self, at: float) -> None:
        """Space sendings at the pace `at` (sendings a second). It grows while calls wait, so that the queue of a limit
        that is given up comes to an end even if more calls come than before.
        """
        self._begin(at, _STAYS)

    def _begin(self, base: float, stays: float, slowest: float = SLOWEST) -> None:
        self.rate = self._base = max(slowest, base)
        self._used, self._stays, self.sendings = 0.0, stays, 0
        self.is_guess, self._careful = False, 0

    def sent(self, now: float, waiting: int) -> None:
        """Note that an attempt is sent; the next may follow one interval later. `waiting`: how many calls wait; while
        some do, the pace grows with time.
        """
        if not self.rate:
            self._waiting = waiting
            return
        if self._counted_at > -_NEVER:
            gap = now - self._counted_at
            self._gap += _NEWEST * (gap - self._gap) if self._gap else gap
        self.sendings += 1
        wait = waiting / self.rate
        is_in_turn = waiting > 0 or now - self.next_at <= _AT_ONCE / self.rate
        if not is_in_turn:
            self._pressed_since = _NEVER
        elif self._pressed_since == _NEVER or (waiting > 0) != (self._waiting > 0):
            self._pressed_since = now
        self._count(waiting, now)
        # The seconds of that many sendings in a row, of which the first one began them; a half is for rounding.
        enough = _PRESSED_FOR if waiting else (_IN_TURN - 1.5) / self.rate
        presses = wait > _PRESSURE or (now - self._pressed_since >= enough and not self.is_guess)
        if self._stays < _NEVER and presses and not (now < self._steady_until and self._is_enough(waiting)):
            stays = self._used < self._stays and self._sure > 1.0
            self._grow((1.0 if stays else 1.0 + min(wait / _LONG_WAIT, _MOST_URGENT)) / self.rate)
        interval = 1.0 / self.rate
        self.next_at = max(now - _ALARM if waiting and interval < _ALARM else now, self.next_at) + interval

    def not_sent(self) -> None:
        """Note that an attempt that was counted as sent is not sent after all, so that the next may go at once."""
        if self.rate:
            self.next_at -= 1.0 / self.rate
            self.sendings -= 1

    def _count(self, waiting: int, now: float) -> None:
        """Count the calls that have come since the last sending. `waiting`: how many calls wait after this one."""
        seconds = now - self._counted_at
        if seconds == _NEVER:
            self._counted_from, self._came, seconds = now, 0.0, 0.0
        else:
            self._came = self._came * math.exp(-seconds / _COUNTED_OVER) + max(0, waiting + 1 - self._waiting)
        self._counted_at, self._waiting = now, waiting

    def _is_enough(self, waiting: int) -> bool:
        """Whether the pace is high enough: at this pace, the `waiting` calls and those that come meanwhile would be
        sent soon.
        """
        over = _COUNTED_OVER * (1.0 - math.exp((self._counted_from - self._counted_at) / _COUNTED_OVER))
        return over > 0.0 and (self.rate - self._came / over) * _SOON > waiting

    def _grow(self, seconds: float) -> None:
        """Let the pace grow, after it has been in use for another `seconds` seconds."""
        self._used += seconds
        proven = self._proven * (1.0 - _CUT / self._sure)
        if not self._stays and (not proven or self.rate < proven):  # nothing says that the upstream takes no more
            self._careful = max(0, self._careful - 1)
            grown = self.rate * math.exp(_FAST * (min(seconds, _CAREFUL) if self._careful else seconds))
            self._base = self.rate = min(grown, proven) if proven else grown
            if self.rate == proven:
                self._used, self._stays = 0.0, _STAYS * self._sure
            return
        over = self._used - self._stays
        if over > 0.0:
            self.rate = self._base * math.exp(min(_GROWTH * over * over, _MOST_GROWTH))
