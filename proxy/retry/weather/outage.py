"""The outage of one lane (the queue of a group of callers): all its attempts end without an answer, so that only one
attempt at a time is sent, as a probe.

Contract, section 14, "An outage". An outage begins with at least five attempts in a row that ended without an answer,
over at least 100 ms, if chance does not explain them; or with two refused connections of one call. From then on a
single attempt at a time is sent, the probe: the first after 100 ms, each further one after twice the last interval, up
to 1 s. An answer ends the outage. Calls are held only for an endpoint that answered within the ten minutes before. If
no attempt is made for ten seconds, the outage is forgotten, and only new failures can begin one.

What happens once an outage has held a call for as long as a call may be held? The contract has two sentences on this.
One says that calls are then sent, and fail, as if there were no outage. The other says that a call that comes late is
answered at once, unless a probe is under way or the last was more than two seconds ago. (choice) To send every call,
with its retries, would be the load on an upstream in trouble that section 9 forbids. To refuse all calls but one in two
seconds would lose calls that the upstream could serve again. So probes are sent as often as section 9 allows: half a
second apart if calls come one shortly after another. Calls wait for the end of the next probe if that is within a
second, since the outage may be over by then; others are answered at once. An outage that begins again before an answer
has come counts as the same one, and no further call is held for it.
"""

from __future__ import annotations

import math

from proxy.retry.weather.lost_rows import LostRow

_NEVER = float("inf")

#: An outage begins with at least so many attempts in a row without an answer, over so many seconds.
_IN_A_ROW, _OVER = 5, 0.1
#: The probability, if attempts fail by chance, below which such a row is an outage.
_CHANCE = 1e-3
#: Seconds after an endpoint's last answer within which attempts without an answer can begin an outage.
ANSWERED_WITHIN = 600.0
#: Seconds between probes: at first, and at most.
FIRST_PROBE, LAST_PROBE = 0.1, 1.0
#: The usual time of an answer (seconds) above which a probe takes long.
LONG = 2.0
#: Seconds without an attempt after which an outage is not known any more.
UNKNOWN_AFTER = 10.0
#: Seconds for which a call that comes late in an outage waits at most for a probe; and the age of the last probe from
#: which on such a call waits to be the next.
LATE_WAIT, _PROBE_AGE = 1.0, 2.0
#: Calls come one shortly after another if so many were turned away in a row, each so many seconds after the one before
#: at most; once a call was held in vain, probes are then so many seconds apart, and otherwise the last number, since a
#: probe that can't connect is sent again at once (section 9, rule 3: two attempts a second for each sidecar).
_TURNED_AWAY, _SHORTLY, _BUSY_GAP, _SELDOM_GAP = 3, 1.0, 0.55, 1.3
#: Seconds that calls which wait for the next probe then give it to end, so that those which come just after the
#: outage's end are not refused.
_FOR_PROBE = 0.2
#: Seconds between two probes of one endpoint at most, however many endpoints take turns: fewer than those after which
#: an outage is not known any more.
_LONGEST_TURN = 8.0


class Outage:
    """The outage of one lane. `since`: the time at which the first attempt of the outage ended, infinity if there is no
    outage. `endings`: how the attempts ended that show it, as far as they are known. `begins_again`: the next attempt
    without an answer begins a new row, since an outage was forgotten. `answered_at`: the time of the last answer.
    `in_vain`: a call was held for as long as a call may be, and no answer has come since. `probe`: the probe under way,
    None for none. `probe_at`: the time from which the next probe may be sent. `long_at`: the time from which it may be
    sent although another is under way, infinity if that is answered soon as a rule. `late`: earlier probes of this
    process that are still under way, since they take that long. Times are seconds on the callers' clock.
    """

    __slots__ = (
        "_gap", "_probed_at", "_since", "_tried_at", "_turned", "_turned_at", "answered_at", "begins_again",
        "endings", "in_vain", "late", "long_at", "probe", "probe_at", "since",
    )  # fmt: skip

    def __init__(self) -> None:
        self.since = _NEVER
        self.answered_at = -_NEVER  # when an answer came last
        self.in_vain = False  # a call was held for as long as it may be, and no answer has come since
        self._since = _NEVER  # when the first attempt ended without an answer, also while the outage is forgotten
        self._turned = 0  # calls that came late and were turned away in a row, one shortly after another,
        self._turned_at = -_NEVER  # the last of them at this time
        self.probe: object | None = None
        self.probe_at = -_NEVER  # when the next probe may be sent
        self.long_at = _NEVER
        self.late: tuple[object, ...] = ()
        self._gap = FIRST_PROBE
        self._probed_at = -_NEVER  # when the last probe ended
        self.endings: list[str] = []
        self.begins_again = False
        self._tried_at = -_NEVER  # when an attempt ended last

    @property
    def is_on(self) -> bool:
        """Whether there is an outage."""
        return self.since < _NEVER

    def is_known(self, now: float) -> bool:
        """Whether a probe is under way, or an attempt was made within the last ten seconds. If not, it is unknown
        whether the outage lasts; the outage then ends, and only new failures can begin one.
        """
        return self.probe is not None or now - max(self._tried_at, self._probed_at) < UNKNOWN_AFTER

    def forget(self) -> None:
        """End the outage, because it is no longer known whether it lasts."""
        self.since, self.probe, self.late = _NEVER, None, ()
        self.begins_again, self.endings = True, []

    def answered(self, now: float) -> bool:
        """Note that an attempt was answered. Returns whether this ends an outage."""
        was_on, self.since = self.since < _NEVER, _NEVER
        self.answered_at, self.in_vain = now, False
        self.probe, self.late, self.endings = None, (), []
        return was_on

    def lost(self, now: float, share: float, row: LostRow, again: bool = False, of_path: int = 0) -> bool:
        """Note that an attempt ended without an answer. Returns whether an outage begins.

        `share`: the usual share (0 to 1) of such attempts. `row`: the attempts in a row that ended so, including this
        one. `again`: this is the second attempt of its call that could not connect. `of_path`: how many attempts in a
        row on this attempt's path ended so, including this one. If all of `row` were on that path, no outage begins
        here, since the path may have one of its own.
        """
        self._tried_at = now
        self.begins_again = False
        if self.since < _NEVER or (now - self.answered_at > ANSWERED_WITHIN and not self.in_vain):
            return False
        count = row.count
        begins = (again and count >= 2) or (count > of_path and is_row(count, now - row.since, share))
        if begins:
            self.begin(now, row, self.answered_at)
        return begins

    def begin(self, now: float, row: LostRow, answered_at: float) -> None:
        """Begin an outage. `row`: the attempts in a row that ended without an answer. `answered_at`: the time of the
        last answer.
        """
        self.answered_at = max(self.answered_at, answered_at)
        if not self.in_vain or self.answered_at > self._since:
            self._since, self.in_vain = row.since, False
        self.since = self._since
        self.endings = [*row.endings]
        self._gap = FIRST_PROBE
        self._tried_at = self._probed_at = now
        self.probe_at = now + FIRST_PROBE

    def is_due(self, now: float) -> bool:
        """Whether a probe may be sent now."""
        return now >= (self.probe_at if self.probe is None else self.long_at)

    def probes(self, probe: object) -> None:
        """Note that this attempt is sent as the probe."""
        if self.probe is not None:
            self.stays_late(self.probe)
        self.probe = probe
        self.long_at = _NEVER

    def stays_late(self, probe: object) -> None:
        """Note that this probe is still under way, although another one follows it."""
        self.late = (*self.late, probe)

    def is_probe(self, attempt: object) -> bool:
        """Whether this attempt is a probe: the one under way, or one that another has followed."""
        return attempt is self.probe or attempt in self.late

    def sent(self, waiter: object, attempt: object) -> None:
        """Note that the waiting call's attempt is being sent, if it is a probe."""
        if self.probe is waiter:
            self.probe = attempt
        elif waiter in self.late:
            self.late = tuple([attempt if each is waiter else each for each in self.late])

    def ended(self, attempt: object, now: float, lost: bool) -> bool:
        """Note that an attempt has ended. Returns whether it was a probe. `lost`: as for `probe_ended`."""
        if attempt is self.probe:
            self.probe_ended(now, lost)
        elif attempt in self.late:
            self.late = tuple([each for each in self.late if each is not attempt])
            self._tried_at = now
        else:
            return False
        return True

    def expect_late(self, now: float) -> None:
        """Note that the probe which is sent now takes long to answer even if all is well (a long poll, say), which
        would show too late that the outage is over: a second later another probe may be sent.
        """
        self.long_at = now + LAST_PROBE

    def probe_ended(self, now: float, lost: bool) -> None:
        """Note that the probe has ended, and set the time of the next. `lost`: the probe ended without an answer, so
        that the next waits for longer; if False, it was not sent, or was cancelled, and the next is due at once.
        """
        self.probe = None
        self._probed_at = now
        if lost:
            most = _BUSY_GAP if self.turns_away(now) else _SELDOM_GAP if self.in_vain else LAST_PROBE
            self._gap = min(most, 2 * self._gap)
        self.probe_at = now + self._gap if lost else now

    def probe_soon(self, now: float) -> None:
        """Let the next probe be sent after the short interval with which an outage begins, because another endpoint of
        the same upstream, which was out as well, has answered.
        """
        self._gap = FIRST_PROBE
        if self.probe is None:
            self.probe_at = min(self.probe_at, now + FIRST_PROBE)

    def keep_apart(self, other: Outage, out: int) -> None:
        """Change the time of the next probe, so that it is not near that of the outage `other`, of another endpoint.
        `out`: how many endpoints are out.

        If two endpoints are out, and both probes are due at about the same time, this one is sent half an interval
        sooner, so that the end of both outages is noticed sooner. Three and more endpoints take turns once their
        interval is the longest, so that all of them together are not probed more often than section 9, rule 3, allows;
        but each is probed often enough that its outage stays known.
        """
        if self.probe is not None:
            return
        if out <= 2:
            if abs(self.probe_at - other.probe_at) < self._gap / 4:
                self.probe_at = self._probed_at + self._gap / 2
        elif self._gap >= _BUSY_GAP:
            at = max(self.probe_at, other.probe_at + _BUSY_GAP)
            self.probe_at = min(at, self._probed_at + _LONGEST_TURN)

    def held_in_vain(self) -> None:
        """Note that a call was held for as long as a call may be held: until an answer comes, no further outage holds
        calls.
        """
        self.in_vain = True

    def late_wait(self, now: float, hold: float, *, is_first: bool, retries: bool) -> float | None:
        """The seconds that a call may wait which comes more than `hold` seconds after the outage began. LATE_WAIT if a
        probe is under way, or if the call may be the next probe; fewer until the end of another call's probe, once a
        call was held in vain; 0 if the call is to be answered at once; None if it does not come that late. `is_first`:
        no other call waits. `retries`: the call has made an attempt.
        """
        if not self.is_late(now, hold):
            return None
        if self.probe is not None or now - self._probed_at > _PROBE_AGE:
            return LATE_WAIT
        if is_first and (now - self._turned_at > _PROBE_AGE if retries else self.turns_away(now)):
            return LATE_WAIT  # the only call is not delayed
        self._turned = self._turned + 1 if now - self._turned_at <= _SHORTLY else 1
        self._turned_at = now
        wait = max(0.0, self.probe_at - now) + _FOR_PROBE
        return wait if self.in_vain and not retries and wait <= LATE_WAIT else 0.0

    @property
    def probed_at(self) -> float:
        """The time at which the last probe ended; minus infinity if none has."""
        return self._probed_at

    def goes_on(self, since: float, probed_at: float, now: float) -> None:
        """Note an outage that other machines have found. `since`: the time at which it began. `probed_at`: the time at
        which its last probe ended.
        """
        if not self.is_on:
            self.since = self._since = since
            self._gap, self.probe_at = FIRST_PROBE, now + FIRST_PROBE
        self._probed_at = max(self._probed_at, probed_at)

    def is_late(self, now: float, hold: float) -> bool:
        """Whether a call that comes now comes later than `hold` seconds after the outage began."""
        return now > self.since + hold

    def turns_away(self, now: float) -> bool:
        """Whether new calls are refused at once, because a call was held in vain for the end of this outage, and calls
        come one shortly after another.
        """
        return self.in_vain and self._turned >= _TURNED_AWAY and now - self._turned_at <= _SHORTLY


def is_row(attempts: int, seconds: float, share: float) -> bool:
    """Whether attempts that ended without an answer are an outage. `attempts`: how many there were in a row. `seconds`:
    the time over which they ended. `share`: the usual share (0 to 1) of such attempts.
    """
    if attempts < _IN_A_ROW or seconds < _OVER:
        return False
    return attempts >= math.ceil(math.log(_CHANCE) / math.log(min(max(share, 1e-3), 0.99)))
