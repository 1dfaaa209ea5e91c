"""The limit on the attempts under way in one lane (the queue of a group of callers), while the upstream has less
capacity than is asked of it.

Contract, section 14. While all is well there is no limit. A limit begins at half the number of attempts under way (RFC
5681, section 3.1: multiplicative decrease). Further refusals halve it, but only refusals of attempts that were sent
after the limit was last cut. It is also cut if even the fastest answers take several times as long as when all was
well, because calls then wait in the upstream's queue instead of here (Brakmo and Peterson, TCP Vegas, 1995). Other
answers make the limit grow: each adds one place up to a threshold, and above that a whole round trip of answers adds
one. If nothing was refused for some seconds, the limit grows faster and faster, because the upstream has probably
recovered.

Where an upstream refuses without a queue, the number of attempts under way tells nothing about its capacity. Then
sendings are also spaced in time (`proxy.retry.weather.spacing`). The same is done where even one attempt under way for
each client is too much, so that attempts end without an answer in time: the times that answers take then show how far
apart sendings must be (Kumar et al., Swift, 2020, section 3.5: congestion windows of less than one packet).

Failures that happen by chance do not mean that capacity is lacking. If, at half the number under way, as many attempts
fail as before, and answers come as fast as usual, the limit ends, and no new one begins for 5 s, the next time for 10
s, up to a minute. The limit also ends if answers stay as slow at half the number, because then other clients fill the
upstream's queue. Until the trial at half the number is over, the limit is not cut further, as long as most attempts are
served. Clients that all return from the same outage must not take each other's queue for such a sign: the first to do
so would take the shares of the rest.

Where every attempt is refused, without a delay, the limit sends one now and then until one is served
(`proxy.retry.weather.all_refused`).
"""

from __future__ import annotations

import math

from proxy.retry.capacity.chances import tail
from proxy.retry.capacity.evidence import CUTS, Evidence
from proxy.retry.capacity.loads import Loads
from proxy.retry.capacity.throughput import Throughput
from proxy.retry.capacity.traffic import Traffic
from proxy.retry.weather.all_refused import AllRefused
from proxy.retry.weather.answer_times import MUCH_SLOWER, AnswerTimes
from proxy.retry.weather.outage import ANSWERED_WITHIN
from proxy.retry.weather.spacing import CUT_HARD, HARDLY, SLOWEST, Spacing
from proxy.retry.weather.trial import FAST, Trial

_NEVER = float("inf")

#: The weight of the newest round trip in their mean (RFC 6298, section 2.3).
_NEWEST = 0.125
#: An answer came much slower than usual above this multiple of the usual time.
SLOW = 3.5
#: The part of the limit, or of the pace, that a cut for slow answers leaves at least.
_SLOW_CUT = 0.7
#: Seconds after an attempt without an answer in which slow answers space sendings, since more such attempts are likely.
_TIMES_OUT = 30.0
#: The growth of the pace while even one place is too much: the most by which one answer raises it, as a part of the
#: pace; the most beside that, as a part of half the usual rate, so that small paces catch up; and how steeply the
#: former falls as answers become slower. The first is meant for so many answers a second (the fourth figure); at
#: another pace it is taken to a power in proportion, between the last two figures.
_MORE, _MORE_OF_USUAL, _STEEP = 0.15, 0.8, 6.0
_A_SECOND, _LEAST_AT_ONCE, _MOST_AT_ONCE = 2.0, 0.5, 3.0
#: The part of the pace that is left after an attempt without an answer in time; and how much of the share by which an
#: answer took too long is taken from the pace.
_SILENT_CUT, _GENTLY = 0.6, 0.5
#: Seconds: within a round trip that is no longer, places that a cut has taken are soon regained.
_SOON_REGAINED = 0.1
#: More places than are ever in use: a limit of so many limits only the pace of sendings (`Limit.drain`).
ANY_PLACES = 1e9
#: The seconds over which a limit that is given up spreads the calls that it held, beside twice the usual rate.
_DRAIN = 7.0
#: The number of answers of which the fastest is compared with the usual time; and the same while less than one place is
#: used.
_FASTEST_OF, _FASTEST_OF_SPACED = 4, 2
#: The part of the earlier time from which on answers at half the limit count as equally slow.
_AS_SLOW = 0.75
#: Seconds for which answers stay slow before that is called usual: a queue in the upstream has gone by then.
_SLOW_FOR = 5.0
#: Seconds since the last refusal for which answers that stay slow are not called usual, if the upstream named two
#: delays and served nothing between: its clients return together, and may fill its queue. Later it has become slower.
_MISSED_FOR = 20.0
#: Seconds without a refusal, or slow answers, after which the limit grows faster.
_QUIET = 5.0
#: A call that waits for longer (seconds) is held by a limit that binds; others came at the same time by chance.
_LONG = 0.1
#: The largest share of failures that is called usual.
_MOST_BY_CHANCE = 0.4
#: Seconds for which a limit that was given up is not tried again: at first, and at most.
_GIVEN_UP, _GIVEN_UP_LONGEST = 5.0, 60.0
#: Seconds without a held call after which a limit that does not bind ends; the factor by which they are more if
#: sendings are spaced; their bound, since they double each time that a limit begins soon after the one before ended;
#: and the seconds that count as soon.
_UNBOUND, _PACED, _UNBOUND_LONGEST, _AGAIN = 2.0, 2.5, 30.0, 15.0
#: The pace, in sendings a second, that no trial goes below: section 9, rule 3, allows a sidecar as much at any time,
#: and a client of one call at a time would wait for it.
_ALWAYS = 2.0
#: The pace, in sendings a second, for an upstream that serves nothing; the least of clients that call less often.
_PROBES, _SELDOM = 1.0, 0.1
#: The seconds in which the places double while calls return from an outage and answers take more than twice as long.
DOUBLES = 1.0
#: The first pace is so many times the calls that come at most, if an answer that names a delay shows that places alone
#: allow too fast a pace, and no usual rate is known: each refusal delays all calls, while a slow pace soon grows.
_FIRST = 1.5


class SinceCut:
    """The attempts that were sent since the limit was last cut. `sent`, `served`, `refused`: how many were. `latest`:
    how many answers came since `fastest` was last looked at. `fastest`: the time of the fastest of these answers, as a
    multiple of the usual time; infinity for none. `unanswered`: how many places there may be before answers come, since
    they take long; 0 if answers have to come first. `doubled_at`: when the places were doubled so last, or the first
    attempt was sent (seconds).
    """

    __slots__ = ("doubled_at", "fastest", "latest", "refused", "sent", "served", "unanswered")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Set all counts to zero, because the limit is cut."""
        self.sent = self.served = self.refused = self.latest = 0
        self.fastest, self.unanswered, self.doubled_at = _NEVER, 0.0, -_NEVER


class Limit:
    """The limit on the attempts of one lane. Times are seconds on the callers' clock. `most`: how many attempts may be
    under way at a time (only whole ones count), infinity while there is no limit. `threshold`: the number of places up
    to which each answer adds one. `pace`: the spacing of sendings in time. `all_refused`: the time in which every
    attempt is refused. `evidence`: the evidence that a limit is needed.
    """

    __slots__ = (
        "_answers", "_base", "_cut_at", "_ended_at", "_given_up_for", "_quick_at",
        "_since_cut", "_slow", "_slow_most", "_slow_since", "_spaced", "_trial", "_unbound",
        "all_refused", "begun", "evidence", "given_up_until", "grown", "held_at", "is_draining", "last_ratio", "most",
        "pace", "part", "returns", "round_trip", "threshold", "timed_out_at", "was_chance",
    )  # fmt: skip

    def __init__(self, traffic: Traffic) -> None:
        self.evidence = Evidence(traffic)
        self.most = _NEVER
        self.was_chance = False  # the last limit was given up, since attempts fail by chance
        self.returns = False  # held calls return from a cooldown, and nothing has cut the limit since
        self.grown = 0.0  # the places that answers have added in all
        self.held_at = -_NEVER  # when the limit held a call last
        self.round_trip = 0.0  # the mean round trip; 0 if none is known
        self.part = 1.0  # the part of the limit's places that this machine uses, if machines share them
        self.pace = Spacing()
        self.threshold = _NEVER
        self.begun = -_NEVER  # when the limit began
        self._cut_at = -_NEVER  # attempts that were sent before say nothing about the limit in force
        self._answers = AnswerTimes()
        self._since_cut = SinceCut()
        self.given_up_until = -_NEVER  # until then refusals are taken for chance
        self._given_up_for = 0.0
        self._base = 1.0  # the multiple of the usual time that is usual for now
        self._spaced = 0.0  # the pace at one place, once even that was too much
        self.is_draining = False  # it is given up, and calls that it held are sent
        self.timed_out_at = -_NEVER  # when an attempt had no answer in time
        self.last_ratio = 0.0  # the multiple of the usual time that the last answer took
        self._slow = 0.0  # the multiple at which answers were called slow first, when the limit was `_slow_most`
        self._slow_most = self._slow_since = 0.0
        self._quick_at = -_NEVER  # when an answer refused without a queue, and named a delay
        self._ended_at = -_NEVER
        self._unbound = _UNBOUND  # for so many seconds no call has to be held before the limit is over
        self._trial = Trial()
        self.all_refused = AllRefused()

    @property
    def is_on(self) -> bool:
        """Whether there is a limit."""
        return self.most < _NEVER

    @property
    def has_evidence(self) -> bool:
        """Whether the limit began because attempts were refused, not because held calls return."""
        return self._trial.is_on

    def slowness(self, now: float) -> float:
        """The multiple of the usual time that answers take for now, although less is sent: other clients fill the
        upstream's queue, say. It is 1 unless there is a limit, or one was given up not long ago.
        """
        return self._base if self.is_on or now < self.given_up_until else 1.0

    def return_slowly(self, now: float, cooldown: bool = True, slowness: float = 1.0) -> None:
        """Begin a limit of one place, so that the calls which were held return one by one. `cooldown`: True if a
        cooldown held them, False if an outage did. `slowness`: that of the limit of all calls to the endpoint.
        """
        self._begin(1.0, _NEVER, now)
        self._base = max(self._base, slowness)
        self.returns = cooldown
        if not cooldown and self.last_ratio > SLOW and self._times_out(now):
            self._spaced = max(self._slowest(), self.evidence.traffic.rate / 2)
            self.pace.slow_down(self._spaced)
        if cooldown and self._quick_at == now:
            self.pace.resume(now)

    def halve(self, now: float) -> None:
        """Halve the limit, because the upstream asked again to wait; but not if the refused attempt was part of a test
        of delays. If the limit let all calls go, calls return slowly from now on, beginning with half as many places as
        attempts are under way.
        """
        if self.evidence.was_tested:
            return
        if self.most >= ANY_PLACES:
            self.return_slowly(now)
            self.most = max(1.0, self.evidence.traffic.flying / 2)
            return
        self._answers.asked_to_wait_again(now, served=self._since_cut.served > 0)
        self.most = self.threshold = max(self._least(), self.most // 2)
        self._cut(now)

    def delay_holds_none(self, attempt: object, sent: float, ended: int, flying: int, now: float) -> bool:
        """Note that an attempt was refused by an answer that names a delay, while delays hold only their own calls.
        `ended`: how many attempts have ended so far. `flying`: how many are under way. Returns whether a test had shown
        before that holding does not pay.
        """
        by_chance = self.evidence.by_chance
        assert by_chance is not None
        was_known = by_chance.is_known(now)
        self.evidence.refused_quickly(sent, now)
        by_chance.refused(attempt, ended, flying, now)
        by_chance.settle(self.evidence.known_pace(now))
        if by_chance.is_known(now) and not was_known:
            self.evidence.learn(min(_MOST_BY_CHANCE, by_chance.share), now)
        if by_chance.paces(now) and not self.is_on:
            self.drain(0, now, by_chance.pace(now))
        return was_known

    def _least(self) -> float:
        """The fewest places that a refusal or an answer leaves. It is one in general. Where an upstream refuses without
        a queue, and its answers take long, it is as many as the pace uses, since places return only one in a round
        trip.
        """
        if not self.pace.rate or self._spaced or not self._answers_fast():
            return 1.0
        return max(1.0, self.pace.rate * (self.round_trip - _SOON_REGAINED))

    def begin_elsewhere(self, most: float, threshold: float, now: float) -> None:
        """Begin with the limit that another machine has found. `most`: its number of places. `threshold`: the number up
        to which the places double with each round trip.
        """
        self._begin(most, threshold, now)

    def end(self, now: float) -> None:
        """End the limit: the number of attempts under way is not bounded any more."""
        self.most, self.part, self._spaced = _NEVER, 1.0, 0.0
        self.all_refused.is_on = False
        self.pace.end()
        self._ended_at = now
        self._trial.end()
        if self.held_at > self.begun:
            self.evidence.skip(now)
        self.evidence.traffic.skip(now)

    def is_over(self, in_use: int, now: float) -> bool:
        """Whether the limit has held no call for a while and less than half of it is used, so that it may end.
        `in_use`: how many of its places are in use.
        """
        if self.all_refused.is_known(now):
            return False
        if self.is_draining:
            return self.evidence.by_chance is None or not self.evidence.by_chance.paces(now)
        quiet = self._unbound * (_PACED if self.pace.rate else 1.0)
        return self.is_on and in_use < self.most / 2 and now - self.held_at >= quiet and not self.pace.binds

    def held(self, since: float, now: float) -> None:
        """Note that a call is sent which has waited since the time `since`. If it waited for longer than a round trip,
        the limit counts as needed, and stays in force for a while.
        """
        if now - since > max(_LONG, self.round_trip):
            self.held_at = now

    def add_under_way(self, more: int) -> None:
        """Raise a limit that has just begun, because another process of this machine has attempts too: the limit begins
        at half of all attempts. `more`: how many attempts the other process has under way.
        """
        if self._cut_at == self.begun:
            self.most += more / 2
            self.threshold += more / 2

    def _begin(self, most: float, threshold: float, now: float) -> None:
        if not self.is_on:
            is_again = now - self._ended_at < _AGAIN
            self._unbound = min(_UNBOUND_LONGEST, 2.0 * self._unbound) if is_again else _UNBOUND
        self.most, self.threshold = most, threshold
        self.returns = self.was_chance = False
        self._slow_most = self._spaced = 0.0
        if now >= self.given_up_until:
            self._base = 1.0
        self.is_draining = False
        self._trial.end()
        self._answers.restart()
        self.held_at = self.begun = now
        self.pace.end()
        if self.evidence.least_gap is not None:
            self.evidence.least_gap.begin()
        self._cut(now)

    def _cut(self, now: float) -> None:
        self._cut_at = now
        self._since_cut.clear()

    # -- how attempts end -------------------------------------------------------------------------------------------

    def sent(self, now: float) -> None:
        """Note that an attempt is sent under the limit."""
        if not self._since_cut.sent:
            self._since_cut.doubled_at = now
        self._since_cut.sent += 1
        self._trial.sent()
        if self.evidence.least_gap is not None:
            self.evidence.least_gap.sent(now)

    def served(self, sent: float, now: float, ratio: float) -> None:
        """Note that an attempt was served, and let its answer change the limit. `sent`: the time at which the attempt
        was sent. `ratio`: the time that the answer took as a multiple of its route's usual time, 0 if that is not
        known.
        """
        self._trial.count(ratio, sent, self.begun, refused=False)
        if self.all_refused.served(sent):
            self._end_all_refused(now)
            return
        if sent < self._cut_at or self.is_draining:
            return
        if self.evidence.throughput is not None:
            self.evidence.throughput.served(sent)
        trip = now - sent
        self._answers.came(trip, ratio, now)
        self.round_trip += _NEWEST * (trip - self.round_trip) if self.round_trip else trip
        self._since_cut.served += 1
        self._since_cut.latest += 1
        self._since_cut.fastest = min(self._since_cut.fastest, ratio)
        usual = self._answers.usual_for_now(ratio, self._base)
        if usual < self._base:
            self._base, self._slow_most = usual, 0.0
        if self._spaced:
            self._respace(now, ratio)
            return
        if self._since_cut.latest >= _FASTEST_OF:
            fastest, self._since_cut.fastest, self._since_cut.latest = self._since_cut.fastest, _NEVER, 0
            if self._is_slow(fastest, now) and not self._trial.is_careful:
                if self.most <= 1.0 and fastest > MUCH_SLOWER * self._base and self._times_out(now):
                    self._space()
                self.most = self.threshold = max(1.0, self.most * max(_SLOW_CUT, SLOW * self._base / fastest))
                self._cut(now)
                return
        if ratio <= FAST * self._base:
            more = 1.0 if self.most < self.threshold else min(1.0, self._growth(now) / self.most)
            self.most += more
            self.grown += more
            if self.pace.rate:  # no requests queue, so that the pace says more than places
                self.most = max(self.most, self._least())

    def _respace(self, now: float, ratio: float) -> None:
        """Change the spacing of sendings after an answer, while even one place is too much: the slower answers come,
        the fewer attempts are sent (Kumar et al., Swift, 2020, section 3.1). `ratio`: the time that the answer took as
        a multiple of the usual time.
        """
        if self._since_cut.latest >= _FASTEST_OF_SPACED:
            fastest, self._since_cut.fastest, self._since_cut.latest = self._since_cut.fastest, _NEVER, 0
            self._is_slow(fastest, now)
        slower = ratio / self._base
        pace, most, expected = self.pace.rate, self._answers.much_slower, self._answers.expected(slower)
        if slower > most:
            self._space_more(max(_SLOW_CUT, 1.0 - _GENTLY * (1.0 - most / slower)), now)
            return
        room = 1.0 - (max(1.0, min(most, expected)) - 1.0) / (most - 1.0)
        by = 1.0 + _MORE * room ** (_STEEP if self._cut_at > self.begun else 2.0)
        by **= min(_MOST_AT_ONCE, max(_LEAST_AT_ONCE, _A_SECOND / pace))
        more = _MORE_OF_USUAL * (self.evidence.traffic.rate or _PROBES) / 2.0 * room * room
        self._space_less(pace * by + more / pace)

    def _space_more(self, by: float, now: float) -> None:
        """Space sendings further apart, because their pace was too fast. `by`: the factor below one by which the pace
        is multiplied.
        """
        pace = self.pace.rate
        self.pace.change(max(min(pace, self._slowest()), pace * by))
        self._cut(now)

    def _slowest(self) -> float:
        """The pace, in sendings a second, below which it is not cut because attempts time out: one a second, or half of
        the usual rate, if that is less. Many clients that seldom call would otherwise ask for more than they do while
        all is well, and the upstream would never recover.
        """
        rate = self.evidence.traffic.rate
        return min(_PROBES, max(_SELDOM, rate / 2.0)) if rate else _PROBES

    def grow_unanswered(self, usual: float, oldest: float, now: float) -> None:
        """Double the places, while calls return from an outage, if all of them have been in use for a second, and
        nothing is refused, although no answer has come yet. This is done only where answers take longer, and up to as
        many places as are usually in use: calls that wait for a long poll's end would wait in vain. `usual`: the usual
        time of an answer in seconds. `oldest`: how long the oldest attempt is under way, in seconds.
        """
        since, is_slow_start = self._since_cut, self.threshold == _NEVER and not self.returns
        since.unanswered = self.evidence.traffic.rate * usual if is_slow_start and oldest <= FAST * usual else 0.0
        more = min(self.most, since.unanswered - self.most)
        if more > 0.0 and since.sent and not since.refused and now >= since.doubled_at + DOUBLES:
            since.doubled_at = now
            self.most += more
            self.grown += more

    def doubles_at(self, now: float) -> float:
        """The time at which `grow_unanswered` may double the places next; infinity if answers have to come first."""
        at = self._since_cut.doubled_at + DOUBLES
        return at if now < at and self.most < self._since_cut.unanswered else _NEVER

    def _growth(self, now: float) -> float:
        """The number of places by which the limit grows in a round trip: one, and more and more once nothing was
        refused for a while.
        """
        quiet = now - self._cut_at
        return 1.0 if self._since_cut.refused or quiet < _QUIET else (quiet / _QUIET) ** 3

    def _is_slow(self, fastest: float, now: float) -> bool:
        """Whether even the fastest of the latest answers is so slow that calls must be waiting in the upstream's queue.
        `fastest`: the time of that answer as a multiple of its usual time. If answers stay as slow at half the limit,
        there is another reason, and their time counts as the usual one from then on.
        """
        if fastest < self._base:
            self._base = max(min(1.0, self._base), fastest)
        if fastest <= SLOW * self._base:
            self._slow_most = 0.0
            return False
        if not self._slow_most:
            self._slow, self._slow_most, self._slow_since = fastest, self._level(), now
        elif fastest < _AS_SLOW * self._slow < _NEVER:  # the queue becomes shorter
            self._slow, self._slow_since = fastest, now
        self._slow = min(self._slow, fastest)
        returns_alone = now - self._answers.missing_at >= _MISSED_FOR
        is_less = returns_alone and self._level() <= max(1.0, self._slow_most / 2)
        is_less = is_less or 0.0 < self.pace.rate <= SLOWEST
        if is_less and now - self._slow_since >= _SLOW_FOR and not self._times_out(now):
            self._base, self._slow_most = fastest, 0.0
            if self._trial.is_on:  # so refusals are no more for this load than for half of it, too
                self.evidence.learn(min(_MOST_BY_CHANCE, self._trial.second.share), now)
            return False
        return True

    def refused(self, sent: float, now: float, under_way: int, quick: bool, silent: bool = False) -> None:
        """Note that an attempt was refused for want of capacity under the limit. `sent`: the time at which it was sent.
        `under_way`: how many attempts were under way. `quick`: an answer refused it, sooner than a request that is
        served is answered. `silent`: no answer came.
        """
        if quick:
            self.evidence.refused_quickly(sent, now)
        if self.is_draining and self.evidence.refused_at_loads(self.evidence.ended, now, quick):
            self.begin_at_half(under_way, now)
            return
        self._answers.refused(now)
        if self.is_draining:
            return
        self._trial.count(_NEVER, sent, self.begun, refused=True, silent=silent, late=not quick)
        if not silent and sent >= self.begun and self._are_all_refused(sent, under_way, now):
            return
        if self.held_at == self.begun:
            self.evidence.refused_under_limit(now)
        if silent:
            self._answers.given_up(now - sent, least=SLOW)
        if not self._trial.is_on and not self.returns and (not silent or self._spaced):
            # chance may have begun the outage from which calls return, too; no limit was needed at the usual rate
            before = self.evidence.pace or (self.evidence.traffic.rate if silent else 0.0)
            self._trial.begin(before, self.evidence.latest_share(self.evidence.ended), now, silent=silent)
        if sent < self._cut_at:
            return
        self._since_cut.refused += 1
        if quick and not self.pace.rate and self._trial.is_first and self._trial.shows_no_queue:
            # a refusal frees its place so soon that places alone would not send less
            self.pace.explore(max(self._trial.pace / 2, _ALWAYS))
            self._trial.restart(now)
        if self._trial.is_careful:
            return
        if self._spaced and silent:
            self._space_more(_SILENT_CUT, now)
            return
        ended = self._since_cut.served + self._since_cut.refused
        if quick:  # what was sent before, and is not refused yet, is probably accepted
            ended = max(ended, self._since_cut.sent)
        is_own = quick and self.evidence.is_alone(now)  # each refusal was this client's own doing
        if not is_own and tail(ended, self._since_cut.refused, self.evidence.share()) >= CUTS:
            return
        if (quick and self._answers_fast()) or (self.most < 2.0 and not quick):
            self._slow_down(sent, now, quick=quick)
        self.most = self.threshold = max(self._least() if quick else 1.0, self.most / 2)
        self._cut(now)

    def _are_all_refused(self, sent: float, under_way: int, now: float) -> bool:
        """Whether every attempt is being refused, now that one more was. If so, the next is sent after a while. `sent`:
        the time at which the refused attempt was sent. `under_way`: how many attempts were under way.
        """
        all_refused, most, threshold = self.all_refused, self.most, self.threshold
        was_on = all_refused.is_on
        if not was_on and now - self.evidence.traffic.served_at > ANSWERED_WITHIN:
            return False  # it may never answer, and holding calls for it would be in vain
        if not all_refused.refused(sent, self.evidence.share(), under_way <= 1, now):
            return False
        if not was_on:
            all_refused.most, all_refused.threshold = most, threshold
        self.most = self.threshold = 1.0
        self.pace.next_at = now + all_refused.gap
        return True

    def _end_all_refused(self, now: float) -> None:
        """Go on after the time in which every attempt was refused, since an attempt was served. If that time was so
        short that it may have been chance, the limit becomes what it was before.
        """
        if self.all_refused.lasted(now):
            self.return_slowly(now, cooldown=False)
        else:
            self.most, self.threshold = self.all_refused.most, self.all_refused.threshold
            self.pace.next_at = now
            self._trial.restart(now)  # so few attempts were sent that the limit had no part in it

    def begin_at_half(self, under_way: int, now: float) -> None:
        """Begin a limit of half of the attempts that are under way. Also begin its trial, which compares with the pace
        and the share of refusals that showed the limit to be needed. `under_way`: how many attempts are under way.
        """
        pace, share = self.evidence.found
        self._begin(max(1.0, under_way / 2), max(1.0, under_way / 2), now)
        self._trial.begin(pace, share, now)
        self._slow, self._slow_most, self._slow_since = _NEVER, 2.0 * self.most, now
        row, since = self.evidence.latest_row(now)
        self.all_refused.begin(row, since, share < 1.0, self.evidence.traffic.served_at)
        if (known := self.evidence.known_pace(now)) > 0.0:
            self.pace.settle(known, now)

    def asked_to_wait(self, sent: float, now: float, quick: bool) -> None:
        """Note that an attempt was refused by an answer that names a delay; afterwards the caller calls `halve` or
        `return_slowly`. Sendings are spaced in time if the upstream refuses without a queue. `sent`: the time at which
        the attempt was sent. `quick`: the answer came sooner than a request that is served is answered.
        """
        if not quick:
            return
        self.evidence.refused_quickly(sent, now)
        if self.evidence.was_tested:
            return
        if self.evidence.throughput is None:
            self.evidence.throughput = Throughput()
        if not self.is_on:
            self._quick_at = now
        elif sent >= self._cut_at and self._answers_fast():
            self._quick_at = now
            self._slow_down(sent, now, quick=quick, delays=True)

    def _answers_fast(self) -> bool:
        """Whether the attempts that were served lately were answered about as fast as usual, so that no requests queue
        in the upstream; also True if none was served.
        """
        return self._since_cut.fastest == _NEVER or self._since_cut.fastest <= FAST * self._base

    def judge(self, now: float) -> bool:
        """End the limit if its trial shows that attempts fail by chance, not for want of capacity. Returns whether the
        limit has ended.
        """
        share = self._trial.chance(now, self.pace.keeps_several)
        if share and self.evidence.is_alone(now):
            share = 0.0
        if not self._trial.is_first:
            self.pace.is_guess = False
        if not share:
            return False
        loads = self.evidence.loads
        if loads is None:
            loads = self.evidence.loads = Loads()
        pace, ended, refused = self._trial.sent_since(now)
        if loads.explain(pace, ended, refused, now):
            return False
        loads.add(pace, ended, refused, now)
        self.evidence.limit_given_up(now)
        self._give_up(share, now)
        return True

    def _give_up(self, share: float, now: float) -> None:
        self._given_up_for = min(_GIVEN_UP_LONGEST, self._given_up_for * 2 or _GIVEN_UP)
        self.given_up_until, self.was_chance = now + self._given_up_for, True
        self.end(now)
        self.evidence.learn(share, now)

    # -- pace -------------------------------------------------------------------------------------------------------

    def _slow_down(self, sent: float, now: float, quick: bool, delays: bool = False) -> None:
        """Space sendings in time, or further apart, because an attempt was refused. An upstream that serves nothing
        still gets one attempt a second. `sent`: the time at which the attempt was sent. `quick`: an answer refused it,
        sooner than a request that is served is answered. `delays`: that answer named a delay.
        """
        pace, served = self.pace.rate or self.most * self.part / max(self.round_trip, 0.001), self._since_cut.served
        if quick:
            if not delays and (known := self.evidence.known_pace(now)) > 0.0:
                self.pace.settle(known, now)
                return
            if self.round_trip > _SOON_REGAINED:  # places may have allowed less, and most attempts have no answer yet
                pace = min(pace, self.most * self.part / (self.round_trip - _SOON_REGAINED))
                served = max(served, self.pace.sendings - 1)
            throughput, by_chance = self.evidence.throughput, self.evidence.by_chance
            is_first = delays and not self.pace.rate and not self.evidence.traffic.rate
            if is_first and served < HARDLY and by_chance is not None:
                pace = min(pace, max(_ALWAYS, _FIRST * by_chance.calls) / CUT_HARD)
            if served > 0:
                if delays and throughput is not None:
                    pace = throughput.bound(pace, served, now)
                self.pace.cut(pace, served, now, delays)
        else:
            if not self._spaced:
                self._spaced = pace = self.pace.rate or 1.0 / max(now - sent, 0.001)
            self.pace.change(max(min(pace, self._slowest()), pace * _SLOW_CUT))

    def _space(self) -> None:
        """Space sendings so far apart that fewer than one attempt is under way on average, because answers take much
        longer than usual even with one at a time.
        """
        pace = self.pace.rate
        if not self._spaced:
            self._spaced = pace = pace or 1.0 / max(self._answers.gap_long, self.round_trip, 0.001)
        self.pace.change(max(min(SLOWEST, self._slowest()), (pace or self._spaced) * _SLOW_CUT))

    def _space_less(self, pace: float) -> None:
        """Space sendings less far apart, because an answer did not take long. `pace`: the new number of sendings a
        second. End the spacing if the number of places alone would allow no more than that.
        """
        if pace * self.round_trip > 2.0 * self.most:
            self._spaced = 0.0
            self.threshold = self.most
            self.pace.end()
        else:
            self.pace.change(pace)

    def _times_out(self, now: float) -> bool:
        """Whether attempts ended without an answer in time, lately or since the limit began. Only then do slow answers
        lead to spaced sendings.
        """
        return self.timed_out_at >= self.begun or now - self.timed_out_at < _TIMES_OUT

    def _level(self) -> float:
        """The load that the limit allows, in attempts under way; a fraction of one while sendings are spaced because
        even one attempt at a time is too much.
        """
        return self.most if self.most > 1.0 or not self._spaced else min(1.0, self.pace.rate / self._spaced)

    def drain(self, waiting: int, now: float, pace: float = 0.0) -> None:
        """Send the calls that still wait when the limit is given up one after another, over a few seconds, instead of
        all at once. `waiting`: how many calls wait. `pace`: the sendings a second to use; 0 if the limit chooses.
        """
        self._begin(ANY_PLACES, ANY_PLACES, now)
        self.is_draining = True
        if pace > 0.0:
            self.pace.slow_down(pace)
            return
        self.pace.drain(waiting / _DRAIN + 2.0 * max(self.evidence.traffic.rate, self._trial.pace))

    def set(self, most: float, threshold: float) -> None:
        """Set the number of places (`most`), and the number up to which the places double with each round trip
        (`threshold`).
        """
        self.most, self.threshold = most, threshold

    def wait_for(self, ahead: int, now: float, share: float = _NEVER) -> float:
        """An estimate of the seconds until a waiting call is sent. `ahead`: how many calls are before it in the queue.
        `share`: how many of the places this process may use.
        """
        trip = self.round_trip if self.most >= self._since_cut.unanswered else min(DOUBLES, self.round_trip)
        most = max(1.0, min(self.most, share))
        wait = (
            math.log2(1 + ahead / most) * trip if most < self.threshold else ahead * trip / most
        )  # fewer than one a round trip is not known
        if self.pace.rate:
            wait = max(wait, ahead / self.pace.rate)
        answers = self._answers
        return min(wait, ahead * answers.gap, ahead * answers.gap_long) if answers.gap else wait
