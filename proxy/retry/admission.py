"""One call at the gates: what it asks of them, what it holds there, and when it asks again.

The cooldown is asked first, then the rate, then the adaptive limiter. Whatever is held there is left again by `leave`,
and nothing else leaves anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from proxy.retry.checks import HAIR, NEVER
from proxy.retry.facts import Outcome, Request
from proxy.retry.payment import Payment
from proxy.retry.policy import Policy
from proxy.retry.reasons import held_in_vain
from proxy.retry.registry import ScopeState
from proxy.retry.token_bucket import REJECTED


@dataclass(slots=True, eq=False)
class Admission:
    """What gates know as a waiter; made when one has to be asked for the first time.

    `alarm` moves the call's one alarm (seconds). `cools`: cooldowns hold this call. `held_by`: the gate that holds, or
    held, the attempt that is next or in flight; `held` are the seconds for which one held attempt `held_attempt`.
    `cooled`: the cooldown knows of the call: it queues there, or has a place. `cooling`: what was left of the cooldown
    that refused the call, and the status that began it.
    """

    request: Request
    policy: Policy
    scope: ScopeState
    alarm: Callable[[float], None] | None
    cools: bool
    held_by: str = ""
    held: float = 0.0
    held_attempt: int = 0
    cooled: bool = False
    cooling: tuple[float, int] = (0.0, 503)
    _deadline: float | None = None
    _held_since: float | None = None  # since when a gate holds the next attempt
    _own_delays: tuple[float, ...] = ()  # when the delays are over that began with answers to this call
    _cooled_since: float | None = None  # since when the cooldown holds it
    _cooled_before: float = 0.0  # for how long it did so ahead of earlier attempts
    _patience: float = NEVER  # until when it may: after that the call is answered

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
        self, payment: Payment, now: float, deadline: float | None, *, first: bool
    ) -> tuple[float, Outcome | None, str]:
        """Ask cooldown, rate and limiter in turn: (when, the *no* if it is one, which of them holds or why not). The
        tokens go into the payment. `first`: it is for a first attempt.
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
                return at, (Outcome.RATE_LIMITED if at == REJECTED else None), "rate"
        if scope.limiter is not None and not (first and not self.policy.strategy.delay_first):
            at = payment.pass_gate(scope.limiter, self, now)
            if at > now:
                return at, None, "limiter"
        return now, None, ""

    def _ask_cooldown(self, now: float) -> tuple[float, str]:
        """Now, or when to ask again; or REJECTED and why: the call would be held for longer than it may."""
        cooldown, rules, fields = self.scope.cooldown, self.policy.pushback, self.request.fields
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
        """This gate holds the next attempt."""
        self.held_by = gate
        if self._held_since is None:
            self._held_since = now

    def sent(self, attempt: int, now: float) -> None:
        """Nothing holds this attempt any more: it is being sent."""
        if self.cooled:
            self.cooled = self.scope.cooldown.sent(self)
        if self._held_since is not None:
            self.held, self.held_attempt = now - self._held_since, attempt
            self._held_since = None

    def landed(self, sent: float, now: float, *, well: bool | None) -> None:
        """The attempt sent at `sent`, of which the cooldown knows, has a head or an end; `well`: it is no failure of
        the upstream's; None: that is told later.
        """
        self.scope.cooldown.landed(self, sent, now, well=well)
        self.cooled = well is None

    def claim_place(self, cooldown: bytes, due: float) -> None:
        """An answer to this call began this cooldown, and it will be tried again at `due`: it has the first place."""
        self._own_delays = (*self._own_delays, self.scope.cooldown.until(cooldown))
        self.cooled = self.scope.cooldown.claim(self, cooldown, due)

    def leave(self, now: float) -> None:
        """Nothing is waited for any more."""
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
