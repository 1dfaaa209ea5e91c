"""One call at the gates: what it asks of them, what it holds there, when it asks again; and what its attempts pay.

The cooldown is asked first, then the rate, then the adaptive limiter, then the circuit breakers, and last for a place
among the attempts that may be under way. Whatever is held there is left again by `leave`, and nothing else leaves
anything.

Law of payments: whatever was taken (the price of a retry, a token of the rate, one of the limiter, a place to wait in,
a hedge of those that `extra` allows, the place of a breaker's probe) is either sent with the attempt or given back,
exactly once, and nothing is taken where anything refuses. The place of an attempt is given back in any case: as it is
not sent, or as its flight ends (`land`). A bucket that is kept elsewhere is asked; its answer counts while it is waited
for, and what it grants too late goes back to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from proxy.retry.buckets import ASK, Bucket
from proxy.retry.concurrency import Places
from proxy.retry.endpoints import Choice, Endpoints
from proxy.retry.facts import Outcome, Request
from proxy.retry.hedges import Hedges
from proxy.retry.plans import HAIR, NEVER
from proxy.retry.policy import Concurrency, Policy
from proxy.retry.reasons import TOO_LATE_FOR_A_PLACE, circuit_open, held_in_vain, no_place
from proxy.retry.registry import ScopeState
from proxy.retry.token_bucket import REJECTED, TokenGate, Waiter
from proxy.retry.waiting_room import WaitingRoom

#: Moves the one alarm of a call, to a time in seconds.
Alarm = Callable[[float], None]


class Payment:
    """What is paid for one attempt. `price`: tokens that were taken from the bucket, None where nothing had to be
    paid; `owed`: tokens that the bucket has still to be paid, None: nothing; `asked`: the bucket was asked for them and
    has not answered; `limit`: when its silence counts as a no (seconds). `choice`: where the attempt goes, where the
    core chooses that.
    """

    __slots__ = (
        "_hedged_at", "_hedges", "_place", "_taken_at", "_tokens", "_under_way", "asked", "bucket", "choice", "limit",
        "owed", "price", "room", "upstream",
    )  # fmt: skip

    def __init__(self, bucket: Bucket | None, room: WaitingRoom, upstream: str) -> None:
        self.bucket = bucket
        self.room = room
        self.upstream = upstream
        self.price: float | None = None
        self.owed: float | None = None
        self.asked = False
        self.limit = 0.0
        self.choice: Choice | None = None
        self._taken_at = 0.0
        self._hedges: Hedges | None = None  # where this one is counted as a hedge, and at which instant
        self._hedged_at = 0.0
        self._tokens: tuple[TokenGate, ...] = ()
        self._under_way: Places | None = None  # where the attempt has a place
        self._place = ""  # the place taken in the waiting room: none, "backoff", or "held" by a gate

    def wait(self, place: str) -> bool:
        """Take a place in the waiting room ("backoff" or "held"), for the one had before; False: there is none."""
        if self._place != place:
            self.leave_room()
            if not self.room.enter(self.upstream, place == "held"):
                return False
            self._place = place
        return True

    def leave_room(self) -> None:
        """Free the place in `limits.waiting`: nothing is waited for any more."""
        if self._place:
            self.room.leave(self.upstream, self._place == "held")
            self._place = ""

    def take(self, price: float, now: float) -> bool:
        """Take the price of a retry, if the bucket has it; whether it has."""
        if self.bucket is not None and not self.bucket.take(price, now):
            return False
        self.price, self._taken_at = price, now
        return True

    def owe(self, price: float, limit: float, now: float) -> bool:
        """The price could not be taken here: the bucket is to be asked for it. False: there is nothing to ask."""
        if self.bucket is None or self.bucket.affords(price, now) != ASK:
            return False
        self.owed, self.limit = price, limit
        return True

    def pay(self, now: float) -> bool:
        """Pay what is owed, if it is there by now; whether it was."""
        if self.owed is None or not self.take(self.owed, now):
            return False
        self.owed = None
        return True

    def granted(self, price: float, now: float) -> bool:
        """The bucket that was asked has taken the price; whether that is still of interest."""
        if not self.asked or self.owed != price:
            return False
        self.price, self._taken_at = price, now
        self.asked, self.owed = False, None
        return True

    def refused(self, price: float) -> bool:
        """The bucket that was asked says no; whether that is still of interest. What is here may pay all the same."""
        if not self.asked or self.owed != price:
            return False
        self.asked = False
        return True

    def take_hedge(self, hedges: Hedges, share: float, now: float) -> bool:
        """Count the attempt, once, as one beside another, if this share of the calls has room; whether it has."""
        if self._hedges is None:
            at = hedges.take(share, now)
            if at is None:
                return False
            self._hedges, self._hedged_at = hedges, at
        return True

    def pass_gate(self, gate: TokenGate, waiter: Waiter, now: float) -> float:
        """Take a gate's token, once: not after `now` where it is taken, else when to ask again."""
        if gate in self._tokens:
            return now
        at = gate.ask(waiter, now)
        if at <= now:
            self._tokens = (*self._tokens, gate)
        return at

    def take_place(self, places: Places, waiter: Waiter, rules: Concurrency, now: float) -> float:
        """Take a place among the attempts under way, once: not after `now` where it is taken, else as `places` says."""
        if self._under_way is not None:
            return now
        at = places.ask(waiter, rules, now)
        if at <= now:
            self._under_way = places
        return at

    def land(self, now: float) -> None:
        """The attempt is not under way any more: its place, if it has one, is free."""
        places, self._under_way = self._under_way, None
        if places is not None:
            places.give_back(now)

    def choose(self, endpoints: Endpoints, avoid: Collection[int], now: float) -> bool:
        """Choose where the attempt goes, again if it was chosen before; False: every breaker is open by now."""
        self.forgo_choice(now)
        self.choice = endpoints.choose(avoid, now)
        return self.choice is not None

    def forgo_choice(self, now: float) -> None:
        """The attempt does not go there, not now at least."""
        if self.choice is not None:
            self.choice.undecided(now)
            self.choice = None

    def give_back(self, now: float) -> None:
        """The attempt is not sent: all that was taken for it comes back."""
        self.leave_room()
        self.forgo_choice(now)
        if self.price is not None and self.bucket is not None:
            self.bucket.give_back(self.price, now, taken_at=self._taken_at)
        self.leave_gates(now)
        self.price = self.owed = None
        self.asked = False

    def leave_gates(self, now: float) -> None:
        """Give back what gates granted this attempt; its price stays paid."""
        self.land(now)
        for gate in self._tokens:
            gate.bucket.give_back(now)
        self._tokens = ()
        if self._hedges is not None:
            self._hedges.give_back(self._hedged_at)
            self._hedges = None


class Admission:
    """What gates know as a waiter; made when one has to be asked for the first time.

    `alarm` moves the call's one alarm (seconds). `cools`: cooldowns hold this call. `held_by`: the gate that holds, or
    held, the attempt that is next or in flight; `held` are the seconds for which one held attempt `held_attempt`.
    `endpoints`: whose breakers the call has to pass. `cooled`: the cooldown knows of the call: it queues there, or has
    a place. `cooling`: what was left of the cooldown that refused the call, and the status that began it.
    `found_no_place`: no place among the attempts under way became free for it.
    """

    __slots__ = (
        "_cooled_before", "_cooled_since", "_deadline", "_held_since", "_met_before", "_own_delays", "_patience",
        "alarm", "cooled", "cooling", "cools", "endpoints", "found_no_place", "held", "held_attempt", "held_by",
        "policy", "request", "scope",
    )  # fmt: skip

    def __init__(
        self,
        request: Request,
        policy: Policy,
        scope: ScopeState,
        alarm: Alarm | None,
        cools: bool,
        endpoints: Endpoints | None = None,
    ) -> None:
        self.request = request
        self.policy = policy
        self.scope = scope
        self.alarm = alarm
        self.cools = cools
        self.endpoints = endpoints
        self.held_by = ""
        self.held = 0.0
        self.held_attempt = 0
        self.cooled = False
        self.cooling: tuple[float, int] = (0.0, 503)
        self.found_no_place = False
        self._deadline: float | None = None
        self._held_since: float | None = None  # since when a gate holds the next attempt
        self._met_before: dict[ScopeState, tuple[float, ...]] | None = None  # the next, of other credentials
        self._own_delays: tuple[float, ...] = ()  # when the delays are over that began with answers to this call
        self._cooled_since: float | None = None  # since when the cooldown holds it
        self._cooled_before = 0.0  # for how long it did so ahead of earlier attempts
        self._patience = NEVER  # until when it may: after that the call is answered

    @property
    def was_cooled(self) -> bool:
        """Whether a cooldown has held the call."""
        return self._cooled_before > 0

    def retime(self, at: float) -> None:
        """A gate's word changed: the call asks again at another time, and at its deadline at the latest."""
        if self.alarm is not None:
            at = min(at, self._patience)
            self.alarm(at if self._deadline is None else min(at, self._deadline))

    def ask(
        self, payment: Payment, now: float, deadline: float | None, *, first: bool, waits: bool = True
    ) -> tuple[float, Outcome | None, str]:
        """Ask cooldown, rate, limiter, breakers and places in turn: (when, the *no* if it is one, which of them holds
        or why not). What they give goes into the payment. `first`: it is for a first attempt; `waits`: it may wait for
        a place.
        """
        self._deadline = deadline
        scope = self.scope
        if self.cools and scope.cooldown.holds(now):
            at, why = self._ask_cooldown(now)
            if at > now:
                self._leave_lines(now)  # who is held here must not stand in the way of others there
                return at, (Outcome.COOLING if at == REJECTED else None), why or "cooldown"
        if self._cooled_since is not None:
            self._end_hold(now, self._cooled_since)
        if scope.rate is not None:
            at = payment.pass_gate(scope.rate, self, now)
            if at > now:
                if at == REJECTED:
                    return at, Outcome.RATE_LIMITED, scope.rate.bucket.withheld() or "rate"
                return at, None, "rate"
        if scope.limiter is not None and not (first and not self.policy.strategy.delay_first):
            at = payment.pass_gate(scope.limiter, self, now)
            if at > now:
                return at, None, "limiter"
        if self.endpoints is not None:
            left = self.endpoints.seconds_left(now)
            if left > HAIR:
                return REJECTED, Outcome.CIRCUIT_OPEN, circuit_open(left)
        if scope.places is not None:
            return self._ask_for_place(payment, scope.places, now, waits=waits)
        return now, None, ""

    def _ask_for_place(
        self, payment: Payment, places: Places, now: float, *, waits: bool
    ) -> tuple[float, Outcome | None, str]:
        """The last gate: when a place comes free cannot be told, so a call waits up to its deadline."""
        rules, waited = self.policy.concurrency, self in places.queue
        assert rules is not None  # else there are no places
        at = payment.take_place(places, self, rules if waits else replace(rules, queue=0), now)
        self.found_no_place = waits and at == REJECTED
        if at == REJECTED:
            return at, Outcome.OVERLOADED, no_place(rules, waited=waited)
        if at > now and self._deadline is not None:
            if now >= self._deadline - HAIR:
                return at, Outcome.DEADLINE, TOO_LATE_FOR_A_PLACE
            at = min(at, self._deadline)
        return at, None, "concurrency"

    def _ask_cooldown(self, now: float) -> tuple[float, str]:
        """Now, or when to ask again; or REJECTED and why: the call would be held for longer than it may."""
        cooldown, rules, fields = self.scope.cooldown, self.policy.pushback, self.scope.caller(self.request)
        at = cooldown.ask(self, fields, now, self._own_delays)
        self.cooled = True
        if at <= now:
            return now, ""
        if self._cooled_since is None:
            self._cooled_since = now
        limit = self._cooled_since + rules.hold - self._cooled_before
        why = "hold"
        if self._deadline is not None and self._deadline < limit:
            limit, why = self._deadline, "deadline"
        wait = cooldown.wait_of(self, now)
        if rules.cooldown == "wait" and now < limit - HAIR and now + wait <= limit + HAIR:
            self._patience = limit
            return min(at, limit), ""
        left, status = cooldown.left_for(fields, now)
        self.cooling = max(left, wait) if wait < NEVER else left, status
        if rules.cooldown == "reject":
            return REJECTED, held_in_vain(wait, None)
        return REJECTED, held_in_vain(wait, None if why == "deadline" else rules.hold, limit - now)

    def hold(self, gate: str, now: float) -> None:
        """Note that this gate holds the next attempt."""
        self.held_by = gate
        if self._held_since is None:
            self._held_since = now

    def sent(self, attempt: int, now: float) -> None:
        """Note that this attempt is being sent: no gate holds it any more."""
        if self.cooled:
            self.cooled = self.scope.cooldown.sent(self)
        if self._held_since is not None:
            self.held, self.held_attempt = now - self._held_since, attempt
            self._held_since = None

    def landed(self, sent: float, now: float, *, well: bool | None) -> None:
        """The attempt sent at `sent` has a head or an end; `well`: no failure of the upstream's; None: told later."""
        self.scope.cooldown.landed(self, sent, now, well=well)
        self.cooled = well is None

    def met(self, cooldown: bytes) -> None:
        """An answer to this call began this cooldown: what it asked for is the call's own wait, and no hold."""
        self._own_delays = (*self._own_delays, self.scope.cooldown.until(cooldown))

    def claim_place(self, cooldown: bytes, due: float) -> None:
        """The same, and it will be tried again at `due`: it has the first place."""
        self.met(cooldown)
        self.cooled = self.scope.cooldown.claim(self, cooldown, due)

    def move(self, scope: ScopeState, now: float) -> None:
        """The next attempt carries another credential: it passes that one's gates."""
        self.leave(now)
        met = self._met_before = self._met_before or {}
        met[self.scope] = self._own_delays
        self._own_delays = met.pop(scope, ())
        self.scope = scope

    def leave(self, now: float) -> None:
        """Leave the queues of all gates: nothing is waited for any more."""
        if self.cooled:
            if self._cooled_since is not None:
                self._end_hold(now, self._cooled_since)
            self.scope.cooldown.leave(self, now)
            self.cooled = False
        if not self.scope.ungated:
            self._leave_lines(now)

    def _end_hold(self, now: float, since: float) -> None:
        """The cooldown, which has held the call since then, does not hold it any more."""
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
