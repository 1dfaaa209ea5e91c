"""Admission: what a call asks of the gates, what it holds there, and when it asks again.

A gate is a limit that may hold a call before an attempt. The governor's cooldown is asked first, then the rate, the
adaptive limiter and the circuit breakers, and last `concurrency`, for a place among the attempts that may be under way.
The tokens and places that they grant go into the attempt's payment (`proxy.retry.call.payment`). A call leaves the
queues of all gates by `leave`, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from proxy.retry.apps import NamedApp
from proxy.retry.budgets.concurrency import Places
from proxy.retry.budgets.rates import Rates
from proxy.retry.budgets.token_bucket import REJECTED
from proxy.retry.budgets.token_estimate import Estimate, Price, price_of
from proxy.retry.call.gates import GATES
from proxy.retry.call.payment import Payment
from proxy.retry.call.reasons import (
    GAVE_UP_ITS_PLACE,
    NO_LONGER_SAFE,
    TOO_LATE_FOR_A_PLACE,
    circuit_open,
    held_in_vain,
    held_too_long,
    no_place,
    wanted_past_deadline,
    wanted_too_late,
)
from proxy.retry.facts import Outcome
from proxy.retry.instants import EPSILON, NEVER
from proxy.retry.policies.policy import AutoLimit, Policy
from proxy.retry.queues.fair_order import newest_below
from proxy.retry.scopes.scope_state import ScopeState
from proxy.retry.upstreams.endpoints import Endpoints
from proxy.retry.weather.caller import Caller, Name

#: The outcome of a call that the governor refuses to hold, by what would hold it.
_REFUSED = {"cooldown": Outcome.COOLING, "limit": Outcome.OVERLOADED, "outage": Outcome.OUTAGE}

#: Calls are held if this part of the wait in a queue, as estimated, is within `hold`: weather becomes better more often
#: than worse, and a call that fails is worse than one that waits. Within the deadline, this part of it: the app waits
#: for no longer than it wanted to.
_HOPE, _HOPE_BY_DEADLINE = 0.8, 0.4
#: Most answers take at most this multiple of their mean time.
_SPREAD = 1.5

#: Moves the one alarm of a call, to a time in seconds.
Alarm = Callable[[float], None]


class Admission:
    """The dealings of one call with the gates: what it asks of them, and what it holds there. To the gates, this object
    is the waiting call (their "waiter"). It is made when the call first has to ask a gate.

    `alarm`: the function that moves the call's only alarm to a time in seconds. `caller`: the call as the governor
    knows it. `held_by`: the gate that holds, or held, the attempt that is next or in flight; "" for none. `held`: the
    seconds for which a gate held the attempt with the number `held_attempt`. `endpoints`: the endpoints whose circuit
    breakers the call has to pass. `cooled`: the call queues in the governor's lanes, or has a place there. `cooling`:
    the seconds that were left of the cooldown that refused the call, and the status of the answer that began the
    cooldown. `found_no_place`: no place among the attempts under way became free for the call, or the queue of the
    calls that a limit or an outage holds was full. `estimate`: what an attempt costs at rate buckets that count tokens;
    None if there are none.
    """

    __slots__ = (
        "_cooled_before",
        "_cooled_since",
        "_deadline",
        "_held_since",
        "_late",
        "_met_before",
        "_own_delays",
        "_patience",
        "alarm",
        "caller",
        "cooled",
        "cooling",
        "endpoints",
        "estimate",
        "found_no_place",
        "held",
        "held_attempt",
        "held_by",
        "policy",
        "scope",
    )  # fmt: skip

    def __init__(
        self,
        policy: Policy,
        scope: ScopeState,
        alarm: Alarm | None,
        caller: Caller,
        endpoints: Endpoints | None,
    ) -> None:
        self.policy = policy
        self.scope = scope
        self.alarm = alarm
        self.caller = caller
        self.endpoints = endpoints
        self.estimate: Estimate | None = None
        self.held_by = ""
        self.held = 0.0
        self.held_attempt = 0
        self.cooled = False
        self.cooling: tuple[float, int] = (0.0, 503)
        self.found_no_place = False
        self._deadline: float | None = None
        self._held_since: float | None = None  # since when a gate holds the next attempt
        self._met_before: dict[ScopeState, tuple[float, ...]] | None = (
            None  # the same as `_own_delays`, for other credentials
        )
        self._own_delays: tuple[float, ...] = ()  # the ends of the delays that answers to this call began
        self._cooled_since: float | None = None  # since when the cooldown holds it
        self._late: float | None = None  # how long it may wait in an outage for which it comes late
        self._cooled_before = 0.0  # seconds for which it held the call in all, before that
        self._patience = NEVER  # until when the cooldown may hold it; then the call is answered

    @property
    def app(self) -> NamedApp | None:
        """The app that the call belongs to; None if the configuration names no apps."""
        return self.caller.request.app

    @property
    def was_probe(self) -> bool:
        """Whether an attempt of the call was the probe of an outage."""
        return self.caller.was_probe

    @property
    def latest(self) -> float:
        """The time until which gates may hold the call. If a gate still holds it then, the call is refused."""
        return self._patience if self._deadline is None else min(self._patience, self._deadline)

    @property
    def price(self) -> Price:
        """The attempt's price in each unit that an upstream's reported limits may count: one attempt, the estimated
        tokens in all, those of the prompt, and those of the output.
        """
        return price_of(self.estimate)

    @property
    def comes_late(self) -> bool:
        """Whether the call came so late in an outage that such calls are no longer held until the outage ends."""
        return self._late is not None

    @property
    def held_in_all(self) -> float:
        """The seconds for which governors have held the call, at this upstream and at those that the call tried before
        it. A hold that still lasts is not counted.
        """
        return self.caller.held_before + self._cooled_before

    @property
    def is_as_new(self) -> bool:
        """Whether a new object would decide the same as this one, since nothing has held the call, or begun a delay for
        it.
        """
        was_held = self.held_by or self._cooled_before > 0 or self in self.scope.governor
        return not (was_held or self._own_delays or self._met_before) and self._late is None

    def retime(self, at: float) -> None:
        """Move the call's alarm to the time `at`, since a gate now names another time at which the call should ask
        again. The alarm rings at the call's deadline at the latest.
        """
        if self.alarm is not None:
            at = min(at, self._patience)
            self.alarm(at if self._deadline is None else min(at, self._deadline))

    def oust(self, place: str) -> None:
        """Take this call's place in a queue away, for a call of higher priority. This call is refused when it asks
        again. `place`: "room" for a place in the waiting room, "limit" for one in the queue of the governor's limit.
        """
        self.caller.ousted = place
        self.retime(-NEVER)

    def ask(
        self, payment: Payment, now: float, deadline: float | None, *, first: bool, waits: bool = True
    ) -> tuple[float, Outcome | None, str]:
        """Ask the gates in turn whether the next attempt may be sent: cooldown, rate, limiter, circuit breakers,
        places. The tokens and places that the gates grant go into `payment`.

        Returns three values. If the attempt may be sent now or later: the time at which to send it or ask again, None,
        and the gate that holds it ("" for none). If it is refused: a time without a meaning, the call's outcome, and
        the reason. `deadline`: the call's deadline, None for none. `first`: the attempt is the call's first. `waits`:
        the call may wait for a place.
        """
        if self.caller.ousted == "room":
            if self.held_by != "ahead":
                return REJECTED, Outcome.OVERLOADED, GAVE_UP_ITS_PLACE
            self.caller.ousted = ""
            self.forgo_ahead(now)
        self._deadline = deadline
        self.caller.retries = not first
        scope = self.scope
        governor = scope.governor
        at: float = now
        no: Outcome | None = None
        why = ""
        if governor.holds(now) or (self.caller.ahead and not governor.holds_none):
            at, no, why = self._ask_governor(now)
        if at > now:
            self._leave_lines(now)  # a call that the governor holds must not block the other gates' queues
        else:
            if self._cooled_since is not None:
                if deadline is not None and now > deadline - self._answer_time(self.held_by) + EPSILON:
                    return self._too_late(deadline, now)
                self._end_hold(now, self._cooled_since)
            at, no, why = self._ask_later_gates(payment, now, first=first, waits=waits)
            if at > now and self.cooled:
                governor.step_aside(self, now)
        if at > now:
            payment.give_back_tokens(now)  # calls that waited with tokens would later be sent at once
        return at, no, why

    def _ask_later_gates(
        self, payment: Payment, now: float, *, first: bool, waits: bool
    ) -> tuple[float, Outcome | None, str]:
        """Ask the gates that come after the cooldown (rate, limiter, circuit breakers, places), until one holds or
        refuses the attempt. The arguments and the result are those of `ask`.
        """
        scope = self.scope
        if scope.rate is not None:
            at = payment.pass_gate(scope.rate, self, now)
            if at > now:
                if at == REJECTED:
                    short = scope.rate.shortage(now, self.estimate) if isinstance(scope.rate, Rates) else ""
                    return at, Outcome.RATE_LIMITED, scope.rate.withheld() or short or "rate"
                return at, None, "rate"
        if scope.limiter is not None and not (first and not self.policy.strategy.delay_first):
            at = payment.pass_gate(scope.limiter, self, now)
            if at > now:
                return at, None, "limiter"
        if self.endpoints is not None:
            left = self.endpoints.seconds_left(now)
            if left > EPSILON:
                return REJECTED, Outcome.CIRCUIT_OPEN, circuit_open(left)
        if scope.places is not None:
            return self._ask_for_place(payment, scope.places, now, waits=waits)
        return now, None, ""

    def _ask_for_place(
        self, payment: Payment, places: Places, now: float, *, waits: bool
    ) -> tuple[float, Outcome | None, str]:
        """Ask for a place under the concurrency limit, which is the last gate. It is not known when a place becomes
        free, so a call waits up to its deadline. `waits`: the call may wait. Returns what `ask` returns.
        """
        rules, waited = self.policy.concurrency, self in places.queue
        assert rules is not None  # places exist only with such rules
        at = payment.take_place(places, self, rules if waits else replace(rules, queue=-1), now)
        self.found_no_place = waits and at == REJECTED
        if at == REJECTED:
            return at, Outcome.OVERLOADED, no_place(rules, waited=waited)
        if at > now and self._deadline is not None:
            if now >= self._deadline - EPSILON:
                return at, Outcome.DEADLINE, TOO_LATE_FOR_A_PLACE
            at = min(at, self._deadline)
        return at, None, "concurrency"

    def _ask_governor(self, now: float) -> tuple[float, Outcome | None, str]:
        """Ask the governor whether the call may be sent. The call is refused if the governor would hold it for too
        long. Returns what `ask` returns; what holds the call is "cooldown", "limit", "outage" or "ahead".
        """
        governor, rules, caller = self.scope.governor, self.policy.pushback, self.caller
        came = self not in governor
        if came:
            self._late = governor.late_wait(caller, rules.hold, now)
            if self._late == 0.0:
                self.cooling = 0.0, 503
                return REJECTED, Outcome.OUTAGE, held_in_vain("outage", NEVER, "late", 0.0, 0.0)
        at, gate = governor.ask(self, caller, now, self._own_delays)
        self.cooled = True
        if at <= now:
            return now, None, ""
        if self._cooled_since is None:
            self._cooled_since = now
        bound, limit, most = self._bound(gate, now, came=came)
        wait = governor.wait_of(self, now, rules.hold)
        if gate == "ahead":
            return self._wait_ahead(at, wait, limit, now)
        if bound in ("hold", "deadline") and wait > limit - now:
            delay = min(wait, governor.left_for(caller, now)[0])
            wait = delay + (_HOPE if bound == "hold" else _HOPE_BY_DEADLINE) * (wait - delay)
        if bound != "reject" and now < limit - EPSILON and now + wait <= limit + EPSILON:
            self._patience = limit
            return min(at, limit), None, gate
        if gate == "outage" and bound == "hold" and not came:
            governor.held_in_vain(self, rules.hold, now)
        left, status = governor.left_for(caller, now)
        self.cooling = max(left, wait) if wait < NEVER else left, status
        self.found_no_place = gate == "limit"
        return REJECTED, _REFUSED[gate], held_in_vain(gate, wait, bound, most, limit - now)

    def _wait_ahead(self, at: float, wait: float, limit: float, now: float) -> tuple[float, Outcome | None, str]:
        """Decide how long to wait until the attempt fits into the limits that the upstream's answers reported: at most
        until `limit`, and not at all if no answer could come in time for the deadline after that. If several calls wait
        for a reset that is more than half of the remaining hold away, since a pushback may hold them too, or so many
        that the last would wait for longer than that, one of them is sent as a test.

        `at`: when to ask the governor again. `wait`: the seconds until the attempt fits. Returns what `_ask_governor`
        returns.
        """
        caller, ahead, most = self.caller, self.scope.governor.ahead, limit - now
        whose = caller.endpoint, caller.credential()
        latest = NEVER if self._deadline is None or ahead is None else self._deadline - ahead.answers_take(whose)
        if now >= min(limit, latest) - EPSILON or now + wait >= latest - EPSILON:
            self.forgo_ahead(now)
            return self._ask_governor(now)
        if ahead is not None and ahead.test(whose, wait, most, now, others=self.scope.governor.held()):
            return self._ask_governor(now)
        self._patience = min(limit, latest)
        return min(at, self._patience), None, "ahead"

    def _finds_it_full(self, auto: AutoLimit, *, came: bool) -> bool:
        """Whether the queue of the calls that the governor's limit holds has no room for this call. `auto`: has the
        queue's size. `came`: the call has just come; if False, it is in the queue, but may have lost its place to a
        call of higher priority. If the queue is full and has calls of lower priority than this one, the newest call of
        the lowest priority is refused to make room.
        """
        if self.caller.ousted == "limit":
            return True
        if not came or self.scope.governor.held() <= auto.queue:
            return False
        if self.app is None:
            return True
        lanes = [lane for lane in self.scope.governor.all_lanes() if not lane.is_ahead]
        newest = newest_below({each: came for lane in lanes for each, came in lane.queue.calls.items()}, self.app.rank)
        if not isinstance(newest, Admission):
            return True
        newest.oust("limit")
        return False

    def forgo_ahead(self, now: float) -> None:
        """End the wait for room within the limits that the upstream's answers reported: the attempt goes on at once,
        since those limits alone never refuse a call.
        """
        self.caller.ahead = False
        self.scope.governor.forgo_ahead(self, now)

    def _bound(self, gate: str, now: float, *, came: bool) -> tuple[str, float, float]:
        """Return the bound on how long the governor may hold the call: of several, the one that ends first. Returned
        are its name (such as "hold" or "deadline"), the time at which it ends, and its size. The size is the bound's
        length in seconds, with two exceptions: for "queue" it is a number of calls, and for "deadline" it is how many
        seconds before the deadline the bound ends, because an answer takes that long.

        `gate`: what holds the call. `came`: the call has just come to the governor.
        """
        governor, rules, auto, since = self.scope.governor, self.policy.pushback, self.policy.limit, self._cooled_since
        assert since is not None  # the governor holds the call
        if gate == "cooldown" and rules.cooldown == "reject":
            return "reject", now, 0.0
        if gate == "limit" and auto is not None and self._finds_it_full(auto, came=came):
            return "queue", now, auto.queue
        begun_here = since - self._cooled_before
        begun = begun_here - self.caller.held_before
        bounds = [("hold", begun + rules.hold, rules.hold)]
        if gate == "limit" and auto is not None:  # `wait` bounds the wait in this upstream's queue alone
            bounds.append(("wait", begun_here + auto.wait, auto.wait))
        patience = governor.patience.of(self.caller.names.route, now)
        if patience < NEVER:
            bounds.append(("patience", begun + patience, patience))
        if gate == "outage":
            late = self._late
            if late is not None:
                bounds.append(("late", since + late, late))
        if self._deadline is not None:
            usual = self._answer_time(gate)
            bounds.append(("deadline", self._deadline - usual, usual))
        return min(bounds, key=lambda each: each[1])

    def _answer_time(self, gate: str) -> float:
        """The seconds before the deadline from which on an answer would probably come too late: a request that is sent
        later is worked on in vain. 0 for `ahead`, whose limits alone never refuse a call. `gate`: what holds it.
        """
        if gate not in _REFUSED:
            return 0.0
        mean, since = self.scope.governor.answer_time(self, self.caller.names.timed), self._cooled_since
        if self._deadline is None or since is None:
            return _SPREAD * mean
        slack = self._deadline - since - mean  # half of the slack is for waiting, or no hold, however short, would do
        return min(_SPREAD * mean, mean + max(0.0, 0.5 * slack))

    def _too_late(self, deadline: float, now: float) -> tuple[float, Outcome, str]:
        """Refuse the call, whose turn has come so late that no answer would come before `deadline`. Returns what `ask`
        returns.
        """
        gate, usual = self.held_by, self._answer_time(self.held_by)
        self.cooling = self.scope.governor.left_for(self.caller, now)
        return REJECTED, _REFUSED[gate], held_in_vain(gate, 0.0, "deadline", usual, deadline - usual - now)

    def held_for(self, now: float) -> float:
        """The seconds for which the governor has held the call so far, including earlier holds; 0 if it does not hold
        the call at the moment.
        """
        return 0.0 if self._cooled_since is None else self.held_in_all + now - self._cooled_since

    def hold(self, gate: str, now: float) -> None:
        """Note that this gate holds the next attempt."""
        self.held_by = gate
        if self._held_since is None:
            self._held_since = now

    def sent(self, flight: object, attempt: int, now: float) -> None:
        """Note that this attempt (`flight`, number `attempt`) is being sent: no gate holds it any more."""
        if self.cooled:
            self.cooled = self.scope.governor.sent(self, flight, now)
        if self._held_since is not None:
            self.held, self.held_attempt = now - self._held_since, attempt
            self._held_since = None

    def met(self, cooldown: Name) -> None:
        """Note that an answer to this very call began this cooldown. The call waits the answer's delay as its own
        pushback, so the cooldown does not hold it for that delay as well.
        """
        self._own_delays = (*self._own_delays, self.scope.governor.until(cooldown))

    def claim_place(self, cooldown: Name, due: float) -> None:
        """Note that an answer to this call began the cooldown (see `met`), and reserve the cooldown's first place for
        this call, whose next attempt is due at `due`.
        """
        self.met(cooldown)
        self.cooled = self.scope.governor.claim(self, cooldown, due)

    def move(self, scope: ScopeState, now: float) -> None:
        """Leave the gates of the present credential for those of another, which the next attempt carries. `scope`: the
        state of the other credential.
        """
        self.leave(now)
        met = self._met_before = self._met_before or {}
        met[self.scope] = self._own_delays
        self._own_delays = met.pop(scope, ())
        self.scope = scope

    def leave(self, now: float) -> None:
        """Leave the queues of all gates, since the call waits for nothing any more."""
        if self.cooled:
            if self._cooled_since is not None:
                self._end_hold(now, self._cooled_since)
            self.scope.governor.leave(self, now)
            self.cooled = False
        if not self.scope.ungated:
            self._leave_lines(now)

    def wait_for_gate(
        self, gate: str, payment: Payment, at: float, usual: float, now: float
    ) -> tuple[float, Outcome | None, str]:
        """Wait for the gate that holds the next attempt until the time `at`, if the deadline allows it and the waiting
        room has a place. `usual`: the seconds before the deadline after which a token of the gate would come too late.
        Returns what `ask` returns.
        """
        deadline = self._deadline
        if deadline is not None and at > deadline - usual + EPSILON:
            return at, Outcome.DEADLINE, held_too_long(gate, at - now, deadline - now, usual)
        if not payment.wait("held", self):
            self.found_no_place = gate in ("limit", "outage")
            return at, Outcome.OVERLOADED, f"{GATES[gate]} holds it, and limits.waiting has no place for it"
        self.hold(gate, now)
        return at, None, gate

    def wait_for_own(
        self, payment: Payment, left: float, until: float, now: float, deadline: float | None
    ) -> tuple[float, Outcome | None, str]:
        """Wait for `left` seconds more before the next attempt, because its endpoint's own answer to this call asked
        for that. No gate holds the call meanwhile. `until`: the time until which the attempt may be sent. Returns what
        `ask` returns.
        """
        at = now + left
        if self.policy.pushback.forbids(left):
            return at, Outcome.PUSHBACK_TOO_LONG, wanted_too_late(left)
        if at > until + EPSILON:
            return at, Outcome.NOT_RETRYABLE, NO_LONGER_SAFE
        if deadline is not None and at > deadline + EPSILON:
            return at, Outcome.DEADLINE, wanted_past_deadline(left, deadline - now)
        if not payment.wait("backoff"):
            return at, Outcome.OVERLOADED, ""
        self.leave(now)
        self.held_by, self._held_since = "", None
        return at, None, ""

    def _end_hold(self, now: float, since: float) -> None:
        """Note that the governor no longer holds the call. `since`: the time at which the hold began."""
        self._cooled_before += now - since
        self._cooled_since, self._patience = None, NEVER

    def _leave_lines(self, now: float) -> None:
        scope = self.scope
        if scope.rate is not None:
            scope.rate.leave(self, now)
        if scope.limiter is not None:
            scope.limiter.leave(self, now)
        if scope.places is not None:
            scope.places.leave(self, now)
