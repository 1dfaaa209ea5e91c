"""Admission: a call at the gates (what it asks, what it holds, when it asks again), and the payment for an attempt.

The cooldown is asked first, then the rate, then the adaptive limiter, then the circuit breakers, and last for a place
among the attempts that may be under way. A call leaves the queues of all gates by `leave`, and by nothing else.

Law of payments: whatever was taken (the price of a retry, a token of the rate, one of the limiter, a place in the
waiting room, a hedge within `extra`, the place of a breaker's probe) is either sent with the attempt or given back,
exactly once, and nothing is taken if anything refuses. The place of an attempt is given back in any case: when it is
not sent, or when its flight ends (`land`); until then its endpoint counts it as under way, too. A bucket that is kept
outside this process is asked; its answer counts while it is waited for, and tokens that it grants too late go back to
it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from proxy.retry.apps import NamedApp
from proxy.retry.buckets import ASK, Bucket
from proxy.retry.caller import Caller, Name
from proxy.retry.concurrency import Places
from proxy.retry.endpoints import Choice, Endpoints
from proxy.retry.facts import Outcome
from proxy.retry.fair_order import newest_below
from proxy.retry.hedges import Hedges
from proxy.retry.instants import EPSILON, NEVER
from proxy.retry.limit_account import Price, price_of
from proxy.retry.policy import AutoLimit, Concurrency, Policy
from proxy.retry.rates import Rates
from proxy.retry.reasons import GAVE_UP_ITS_PLACE, TOO_LATE_FOR_A_PLACE, circuit_open, held_in_vain, no_place
from proxy.retry.scope_state import ScopeState
from proxy.retry.token_bucket import REJECTED, TokenGate
from proxy.retry.token_estimate import Estimate
from proxy.retry.waiter import Waiter
from proxy.retry.waiting_room import WaitingRoom

#: The outcome of a call that the governor refuses to hold, by what would hold it.
_REFUSED = {"cooldown": Outcome.COOLING, "limit": Outcome.OVERLOADED, "outage": Outcome.OUTAGE}

#: Calls are held if this part of the wait in a queue, as estimated, is within `hold`: weather becomes better more often
#: than worse, and a call that fails is worse than one that waits. Within the deadline, this part of it: the app waits
#: for no longer than it wanted to.
_HOPE, _HOPE_BY_DEADLINE = 0.8, 0.4

#: Moves the one alarm of a call, to a time in seconds.
Alarm = Callable[[float], None]


class Owed:
    """A price that a bucket outside this process has still to grant. `price`: tokens; `asked`: the bucket was asked for
    them and has not answered; `limit`: the time (seconds) from which a missing answer counts as a refusal.
    """

    __slots__ = ("asked", "limit", "price")

    def __init__(self, price: float, limit: float) -> None:
        self.price = price
        self.limit = limit
        self.asked = False


class Payment:
    """The payment for one attempt: everything that is taken for it.

    `price`: tokens that were taken from the bucket, None if none were due; `owed`: those that have still to be taken,
    None for none. `choice`: the attempt's endpoint, if the core chooses it. `app`: the app that the call belongs to,
    None if the configuration names no apps; `waiter`: the call as gates know it, once one holds it.
    """

    __slots__ = (
        "_hedge", "_load", "_place", "_taken_at", "_tokens", "_under_way", "app", "bucket", "choice", "estimate",
        "owed", "price", "room", "upstream", "waiter",
    )  # fmt: skip

    def __init__(self, bucket: Bucket | None, room: WaitingRoom, upstream: str, app: NamedApp | None = None) -> None:
        self.bucket = bucket
        self.room = room
        self.upstream = upstream
        self.app = app
        self.waiter: Admission | None = None
        self.price: float | None = None
        self.owed: Owed | None = None
        self.choice: Choice | None = None
        self._taken_at = 0.0
        self._hedge: tuple[Hedges, float] | None = None  # the hedges among which this attempt counts, and since when
        self._tokens: tuple[TokenGate | Rates, ...] = ()
        self.estimate: Estimate | None = None  # what was paid to rate buckets that count tokens, until it is settled
        self._under_way: Places | None = None  # the places of which the attempt has one
        self._load: Places | None = None  # the count in which the attempt is under way to its endpoint
        self._place = ""  # the place taken in the waiting room: none, "backoff", or "held" by a gate

    def wait(self, place: str, waiter: Admission | None = None) -> bool:
        """Take a place in the waiting room for the call, in exchange for the one that it has there, if any; False if
        the room is full. `place`: the reason for the wait, "backoff" or "held"; `waiter`: the call as a gate knows it,
        if one holds it.
        """
        if self._place != place:
            self.leave_room()
            self.waiter = waiter
            if not self.room.enter(self.upstream, place == "held", self):
                return False
            self._place = place
        return True

    def leave_room(self) -> None:
        """Free the place in the waiting room, since nothing is waited for any more."""
        if self._place:
            self.room.leave(self.upstream, self._place == "held", self)
            self._place = ""

    @property
    def may_be_ousted(self) -> bool:
        """Whether the call, which a gate holds, may lose its place in the waiting room; one that was the probe of an
        outage keeps it.
        """
        return self.waiter is not None and not self.waiter.was_probe

    def ousted(self) -> None:
        """Note that the waiting room gave the call's place to a call of a better priority; the call, when it asks
        again, is refused.
        """
        self._place = ""
        if self.waiter is not None:
            self.waiter.oust("room")

    def take(self, price: float, now: float) -> bool:
        """Take the price of a retry from the bucket; False if the bucket refuses."""
        if self.bucket is not None and not self.bucket.take(price, now):
            return False
        self.price, self._taken_at = price, now
        return True

    def take_over(self, other: Payment) -> None:
        """Take over the price that `other`, the payment of an attempt, has paid, because that attempt is sent again
        under this payment.
        """
        self.price, other.price = other.price, None
        self._taken_at = other._taken_at

    def owe(self, price: float, limit: float, now: float) -> bool:
        """Note that a retry has still to pay the price, because the bucket's tokens are outside this process and have
        to be asked for. From the time `limit`, a missing answer counts as a refusal. Returns False, with nothing noted,
        if the bucket is not one that can be asked.
        """
        if self.bucket is None or self.bucket.affords(price, now) != ASK:
            return False
        self.owed = Owed(price, limit)
        return True

    def pay(self, now: float) -> bool:
        """Take the owed price of the retry, if this process has the tokens by now; False if it has not."""
        if self.owed is None or not self.take(self.owed.price, now):
            return False
        self.owed = None
        return True

    def granted(self, price: float, now: float) -> bool:
        """Note that the bucket outside this process, which was asked for the price, has granted it. Returns False if
        the payment does not need the price any more, so that the caller has to give it back.
        """
        if not self._waits_for(price):
            return False
        self.price, self._taken_at = price, now
        self.owed = None
        return True

    def refused(self, price: float) -> bool:
        """Note that the bucket outside this process, which was asked for the price, refuses it. The retry may still be
        paid from tokens that this process has. Returns False if the payment does not wait for this answer any more.
        """
        owed = self.owed
        if owed is None or not self._waits_for(price):
            return False
        owed.asked = False
        return True

    def _waits_for(self, price: float) -> bool:
        """Whether the bucket outside this process was asked for this price, and its answer is waited for."""
        return self.owed is not None and self.owed.asked and self.owed.price == price

    def take_hedge(self, hedges: Hedges, share: float, now: float) -> bool:
        """Count the attempt as a hedge, if it was not counted before; False if the scope already has as many hedges as
        allowed, `share` (0 to 1) of its calls.
        """
        if self._hedge is None:
            at = hedges.take(share, now)
            if at is None:
                return False
            self._hedge = hedges, at
        return True

    def pass_gate(self, gate: TokenGate | Rates, waiter: Admission, now: float) -> float:
        """Take what this attempt costs at the gate (that of rate buckets, or of the adaptive limiter), unless it has
        paid there already. Returns a time up to `now` if the attempt has passed the gate, else the later time at which
        to ask again.
        """
        if gate in self._tokens:
            return now
        at = gate.ask(waiter, now)
        if at <= now:
            self._tokens = (*self._tokens, gate)
            if type(gate) is Rates:
                self.estimate = waiter.estimate
        return at

    def settle(self, unused: float, now: float) -> None:
        """Correct the price paid at rate buckets from the estimated tokens to those that the attempt used: put back the
        `unused` ones or, if the number is negative, take as many more. A second call for an attempt does nothing.
        """
        if self.estimate is not None:
            self.estimate = None
            for gate in self._tokens:
                if type(gate) is Rates:
                    gate.settle(now, unused)

    def take_place(self, places: Places, waiter: Waiter, rules: Concurrency, now: float) -> float:
        """Take a place under the concurrency limit for the attempt, if it has none. Returns a time up to `now` if it
        has one then, else the later time at which to ask again, or REJECTED if the call may not wait under the limit's
        `rules`.
        """
        if self._under_way is not None:
            return now
        at = places.ask(waiter, rules, now)
        if at <= now:
            self._under_way = places
        return at

    def has_place(self, places: Places) -> None:
        """Note that the attempt holds one of these places already, from before this payment was made."""
        self._under_way = places

    def land(self, now: float) -> None:
        """Free the attempt's place under the concurrency limit, if it has one: the attempt is not under way any
        more.
        """
        places, self._under_way = self._under_way, None
        if places is not None:
            places.give_back(now)
        load, self._load = self._load, None
        if load is not None:
            load.give_back(now)

    def fly(self, load: Places, now: float) -> None:
        """Count the attempt as under way to its endpoint, in `load`, until it ends. If it was sent to another endpoint
        before, it no longer counts there.
        """
        if self._load is not None:
            self._load.give_back(now)
        load.enter(now)
        self._load = load

    def choose(
        self,
        endpoints: Endpoints,
        avoid: Collection[int],
        now: float,
        only: int | None = None,
        *,
        least: bool = False,
    ) -> bool:
        """Choose the attempt's endpoint, in place of an earlier choice; False if the circuit breakers of all endpoints
        are open. `avoid`: the endpoints to use only if no other is left; `only`: the endpoint that was chosen already;
        `least`: choose the one with the fewest attempts under way.
        """
        self.forgo_choice(now)
        self.choice = endpoints.choose(avoid, now, only, least=least)
        return self.choice is not None

    def forgo_choice(self, now: float) -> None:
        """Undo the choice of the attempt's endpoint; if the attempt was to be the probe of the endpoint's circuit
        breaker, the breaker may choose another.
        """
        if self.choice is not None:
            self.choice.undecided(now)
            self.choice = None

    def give_back(self, now: float) -> None:
        """Give back all that was taken for the attempt, which is not sent."""
        self.leave_room()
        self.forgo_choice(now)
        if self.price is not None and self.bucket is not None:
            self.bucket.give_back(self.price, now, taken_at=self._taken_at)
        self.leave_gates(now)
        self.price = self.owed = None

    def leave_gates(self, now: float) -> None:
        """Give back the tokens, the place and the hedge that gates granted this attempt; the price of the retry stays
        paid.
        """
        self.land(now)
        self.give_back_tokens(now)
        if self._hedge is not None:
            hedges, at = self._hedge
            hedges.give_back(at)
            self._hedge = None

    def give_back_tokens(self, now: float) -> None:
        """Give back the tokens of rate buckets and of the adaptive limiter."""
        for gate in self._tokens:
            if type(gate) is Rates:
                gate.give_back(now, 0.0 if self.estimate is None else self.estimate.price)
            else:
                gate.give_back(now)
        self._tokens, self.estimate = (), None


class Admission:
    """A call at the gates: what it asks of them, and what it holds there. Gates know it as their waiter. Made when a
    gate has to be asked for the first time.

    `alarm` moves the call's one alarm (seconds). `caller`: the call as the governor knows it. `held_by`: the gate that
    holds, or held, the attempt that is next or in flight; `held`: the seconds for which a gate held the attempt
    `held_attempt`. `endpoints`: those whose circuit breakers the call has to pass. `cooled`: the call queues in the
    governor's lanes, or has a place there. `cooling`: the seconds that were left of the cooldown that refused the call,
    and the status that began it. `found_no_place`: no place among the attempts under way became free for it, or
    none was left among the calls that a limit or an outage may hold. `estimate`: what an attempt costs at rate buckets
    that count tokens, None if there are none.
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
        endpoints: Endpoints | None = None,
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
    def tokens(self) -> float:
        """The attempt's price in a language model's tokens."""
        return 0.0 if self.estimate is None else self.estimate.price

    @property
    def was_probe(self) -> bool:
        """Whether an attempt of the call was the probe of an outage."""
        return self.caller.was_probe

    @property
    def latest(self) -> float:
        """The time until which gates may hold the call; if it is still held then, it is refused."""
        return self._patience if self._deadline is None else min(self._patience, self._deadline)

    @property
    def price(self) -> Price:
        """The attempt's price in each unit that limits reported by answers may count: one attempt, and the estimated
        tokens in all, of the prompt and of the output.
        """
        return price_of(self.estimate)

    @property
    def comes_late(self) -> bool:
        """Whether the call came so late in an outage that calls are not held until its end any more."""
        return self._late is not None

    @property
    def was_cooled(self) -> bool:
        """Whether a cooldown has held the call."""
        return self._cooled_before > 0

    @property
    def is_as_new(self) -> bool:
        """Whether nothing has held the call, or begun a delay for it, so that a new object would decide the same."""
        was_held = self.held_by or self._cooled_before > 0 or self in self.scope.governor
        return not (was_held or self._own_delays or self._met_before) and self._late is None

    def retime(self, at: float) -> None:
        """Move the call's alarm to the time `at`, since a gate has changed the time that it had named before. The alarm
        rings at the call's deadline at the latest.
        """
        if self.alarm is not None:
            at = min(at, self._patience)
            self.alarm(at if self._deadline is None else min(at, self._deadline))

    def oust(self, place: str) -> None:
        """Take the call's place from it for a call of a better priority, so that it is refused when it asks again.
        `place`: "room" for one in the waiting room, "limit" for one in the queue of the governor's limit.
        """
        self.caller.ousted = place
        self.retime(-NEVER)

    def ask(
        self, payment: Payment, now: float, deadline: float | None, *, first: bool, waits: bool = True
    ) -> tuple[float, Outcome | None, str]:
        """Ask the gates for the attempt in turn: cooldown, rate, limiter, breakers, places. Returns the time at which
        it may be sent, None, and the gate that holds it; or, if it is refused, a time that is of no use, the outcome,
        and the reason. Tokens and places that the gates grant go into the payment. `deadline`: the call's, None for
        none; `first`: the attempt is the call's first; `waits`: it may wait for a place.
        """
        if self.caller.ousted == "room":
            if self.held_by != "ahead":
                return REJECTED, Outcome.OVERLOADED, GAVE_UP_ITS_PLACE
            self.caller.ousted = ""
            self.forgo_ahead(now)
        self._deadline = deadline
        self.caller.retries = not first
        scope = self.scope
        if scope.governor.holds(now) or self.caller.ahead:
            at, no, why = self._ask_governor(now)
            if at > now:
                self._leave_lines(now)  # a call that the governor holds must not block the other gates' queues
                payment.give_back_tokens(now)
                return at, no, why
        if self._cooled_since is not None:
            self._end_hold(now, self._cooled_since)
        at, no, why = self._ask_later_gates(payment, now, first=first, waits=waits)
        if at > now and self.cooled:
            scope.governor.step_aside(self, now)
        return at, no, why

    def _ask_later_gates(
        self, payment: Payment, now: float, *, first: bool, waits: bool
    ) -> tuple[float, Outcome | None, str]:
        """Ask the gates after the governor in turn. The arguments and the result are those of `ask`."""
        scope = self.scope
        if scope.rate is not None:
            at = payment.pass_gate(scope.rate, self, now)
            if at > now:
                if at == REJECTED:
                    return at, Outcome.RATE_LIMITED, scope.rate.withheld() or "rate"
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
        """Ask for a place under the concurrency limit, the last gate. The time at which a place becomes free can't be
        known, so a call waits up to its deadline. `waits`: it may wait. Returns the time at which the attempt may be
        sent, the outcome that refuses it or None, and the gate or the reason (see `ask`).
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
        """Ask the governor whether the call may be sent: it is refused if the governor would hold it for too long.
        Returns the time at which the call may be sent, the outcome that refuses it or None, and what holds it or the
        reason (see `ask`).
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
        """Wait until the attempt fits into the limits that answers reported, at most until `limit`, or go on without
        waiting if that would be too late for the deadline. `at`: when the governor is asked again; `wait`: the seconds
        until the attempt fits. Resets later than half of what is left of the hold are too far away: a pushback may
        hold the call, too. Returns what `_ask_governor` returns.
        """
        caller, ahead, most = self.caller, self.scope.governor.ahead, (limit - now) / 2
        if now >= limit - EPSILON or (self._deadline is not None and now + wait >= self._deadline - EPSILON):
            self.forgo_ahead(now)
            return self._ask_governor(now)
        if ahead is not None and ahead.test((caller.endpoint, caller.credential()), wait, most, now):
            return self._ask_governor(now)
        self._patience = limit
        return min(at, limit), None, "ahead"

    def _finds_it_full(self, auto: AutoLimit, *, came: bool) -> bool:
        """Whether the queue of calls that the governor's limit holds, whose size `auto` bounds, has no room for this
        call. `came`: the call has just come; else it may have lost its place to a call of a higher priority. If the
        queue is full and has a call of a lower priority than this one's, the newest call of the lowest priority is
        refused to make room.
        """
        if self.caller.ousted == "limit":
            return True
        if not came or self.scope.governor.held() <= auto.queue:
            return False
        if self.app is None:
            return True
        lanes = [lane for lane in self.scope.governor.lanes() if not lane.is_ahead]
        newest = newest_below({each: came for lane in lanes for each, came in lane.queue.items()}, self.app.rank)
        if not isinstance(newest, Admission):
            return True
        newest.oust("limit")
        return False

    def forgo_ahead(self, now: float) -> None:
        """Stop waiting until the attempt fits into the limits that answers reported, and go on without: reported limits
        alone never refuse a call.
        """
        self.caller.ahead = False
        self.scope.governor.leave(self, now)

    def _bound(self, gate: str, now: float, *, came: bool) -> tuple[str, float, float]:
        """The bound on how long the governor may hold the call that ends first: its name (such as "hold" or
        "deadline"), the time at which it ends, and its length in seconds (that of the queue's bound in calls). `gate`:
        what holds the call; `came`: the call has just come to the governor.
        """
        governor, rules, auto, since = self.scope.governor, self.policy.pushback, self.policy.limit, self._cooled_since
        assert since is not None  # the governor holds the call
        if gate == "cooldown" and rules.cooldown == "reject":
            return "reject", now, 0.0
        if gate == "limit" and auto is not None and self._finds_it_full(auto, came=came):
            return "queue", now, auto.queue
        begun = since - self._cooled_before
        bounds = [("hold", begun + rules.hold, rules.hold)]
        if gate == "limit" and auto is not None and auto.wait < rules.hold:
            bounds.append(("wait", begun + auto.wait, auto.wait))
        patience = governor.patience.of(self.caller.route, now)
        if patience < NEVER:
            bounds.append(("patience", begun + patience, patience))
        if gate == "outage":
            late = self._late
            if late is not None:
                bounds.append(("late", since + late, late))
        if self._deadline is not None:
            bounds.append(("deadline", self._deadline - (governor.answer_time(self) if gate == "limit" else 0.0), 0.0))
        return min(bounds, key=lambda each: each[1])

    def held_for(self, now: float) -> float:
        """The seconds for which the governor has held the call so far, with earlier holds; 0 if it does not hold the
        call at `now`.
        """
        return 0.0 if self._cooled_since is None else self._cooled_before + now - self._cooled_since

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
        """Note that an answer to this call itself began this cooldown: the call waits the delay as a pushback, so the
        cooldown does not hold it for that delay as well.
        """
        self._own_delays = (*self._own_delays, self.scope.governor.until(cooldown))

    def claim_place(self, cooldown: Name, due: float) -> None:
        """Note that an answer to this call began the cooldown (see `met`), and reserve the cooldown's first place for
        this call, whose next attempt is due at `due`.
        """
        self.met(cooldown)
        self.cooled = self.scope.governor.claim(self, cooldown, due)

    def move(self, scope: ScopeState, now: float) -> None:
        """Leave the present gates for those of another credential, which the next attempt carries; `scope` is the state
        of that credential.
        """
        self.leave(now)
        met = self._met_before = self._met_before or {}
        met[self.scope] = self._own_delays
        self._own_delays = met.pop(scope, ())
        self.scope = scope

    def leave(self, now: float) -> None:
        """Leave the queues of all gates, since nothing is waited for any more."""
        if self.cooled:
            if self._cooled_since is not None:
                self._end_hold(now, self._cooled_since)
            self.scope.governor.leave(self, now)
            self.cooled = False
        if not self.scope.ungated:
            self._leave_lines(now)

    def _end_hold(self, now: float, since: float) -> None:
        """Note that the governor does not hold the call any more, which it has done since `since`."""
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
