"""A call as gates see it: what it asks of them, where it waits, and what it gives back.

Law: whatever is taken for an attempt that is not sent (a place, a token, a price) is given back by `_give_back`, and
nothing else gives anything back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.retry.attempt_record import AttemptRecord
from proxy.retry.backoff import Chance
from proxy.retry.buckets import Bucket
from proxy.retry.facts import IDEMPOTENT_METHODS, Outcome, Request, first
from proxy.retry.gates import REJECTED
from proxy.retry.policy import Policy
from proxy.retry.reasons import held_in_vain
from proxy.retry.registry import ScopeState
from proxy.retry.request_hints import NO_HINTS, RequestHints
from proxy.retry.waiting_room import WaitingRoom

#: Sums of floating-point seconds may miss a deadline that they meet exactly; a wait that ends at it is begun.
HAIR = 1e-9

NEVER = float("inf")


@dataclass(slots=True)
class Env:
    """What the driver lends every call. The wall's clock is `now + wall_offset` (seconds since the epoch)."""

    rng: Chance
    wall_offset: float = 0.0
    waiting: WaitingRoom = field(default_factory=WaitingRoom)


class Gated:
    """What one call knows, as far as gates and buckets go. Defaults live on the class: a call that succeeds at once
    sets few of them.
    """

    attempts: int = 0
    deadline: float | None = None
    hints: RequestHints = NO_HINTS

    _granted: float | None = None  # what the retry that is waited for has paid
    _granted_at: float = 0.0
    _paid: float | None = None  # what the last retry that was sent had paid
    _owed: float | None = None  # what the retry that is waited for has still to pay, to a bucket kept elsewhere
    _asking: bool = False  # that bucket was asked for it, and has not answered
    _parked: str = ""  # "", "backoff" or "held" (by a gate): the place taken in the waiting room
    held_by: str = ""  # the gate that holds, or held, the attempt that is next or in flight
    _held_since: float | None = None  # since when a gate holds the next attempt
    _held: float = 0.0  # for how long one held this attempt:
    _held_attempt: int = 0
    _paid_rate: bool = False
    _paid_pace: bool = False
    _cooled: bool = False  # the cooldown knows of it: it queues there, or has a place
    _own_delays: tuple[float, ...] = ()  # when the delays are over that began with answers to it
    _cooled_since: float | None = None  # since when the cooldown holds it
    _cooled_before: float = 0.0  # for how long it did so ahead of earlier attempts
    _patience: float = NEVER  # until when it may: after that the call is answered
    _cooling: tuple[float, int] = (0.0, 503)  # what was left when it refused the call, and the status that began it

    def __init__(
        self,
        request: Request,
        policy: Policy,
        scope: ScopeState,
        env: Env,
        alarm: Callable[[float], None] | None = None,
    ) -> None:
        self.request = request
        self.policy = policy
        self.scope = scope
        self.env = env
        self.history: list[AttemptRecord] = []
        self.endpoints: dict[int, str] = {}  # where each attempt went last: the driver says so
        self._alarm = alarm

    def retime(self, at: float) -> None:
        """A gate's word changed: ask again at another time, and at the deadline at the latest."""
        if self._alarm is not None:
            at = min(at, self._patience)
            self._alarm(at if self.deadline is None else min(at, self.deadline))

    def alarm_by(self, alarm: Callable[[float], None]) -> None:
        """Another driver goes on: its alarm is the one to move."""
        self._alarm = alarm

    def forget_alarm(self) -> None:
        """The driver has finished with this call: let go of it."""
        self._alarm = None

    @property
    def idempotent(self) -> bool:
        """RFC 9110, section 9.2.2, or a key that makes it so (contract, "Safety", 3)."""
        method = self.request.method
        if method in IDEMPOTENT_METHODS:
            return True
        key = self.policy.idempotency_key
        if key.inject and method in ("POST", "PATCH"):
            return True
        return bool(first(self.request.fields, key.header.lower()))

    @property
    def app_retry(self) -> bool:
        """Whether the app had tried this before by itself."""
        return self.hints.retries_itself

    @property
    def was_cooled(self) -> bool:
        """Whether a cooldown has held it."""
        return self._cooled_before > 0

    @property
    def _bucket(self) -> Bucket | None:
        """The bucket that this call moves: the real one, in observe mode its shadow, none where the mode is off."""
        mode = self.policy.mode
        if mode == "enforce":
            return self.scope.bucket
        return self.scope.shadow if mode == "observe" else None

    @property
    def _disabled(self) -> bool:
        return self.hints.disabled or self.policy.mode != "enforce"

    def _pay(self, now: float) -> bool:
        """Pay what is owed, if it is there."""
        bucket = self._bucket
        if self._owed is None or bucket is None or not bucket.take(self._owed, now):
            return False
        self._granted, self._granted_at, self._owed = self._owed, now, None
        return True

    def _heard_no(self, price: float) -> bool:
        """The bucket's no to what it was asked; whether it is still of interest."""
        if not self._asking or self._owed != price:
            return False
        self._asking = False
        return True

    def _take_grant(self, price: float, now: float) -> bool:
        """The bucket's yes to what it was asked; whether it is still wanted. If not, it goes back."""
        bucket = self._bucket
        if not self._asking or self._owed != price:
            if bucket is not None:
                bucket.give_back(price, now)
            return False
        self._asking = False
        self._granted, self._granted_at, self._owed = price, now, None
        return True

    def _ask_gates(self, now: float) -> tuple[float, Outcome | None, str]:
        """Ask cooldown, rate and limiter in turn: (when, the *no* if it is one, which of them holds or why not)."""
        scope = self.scope
        if scope.cooldown.holds(now) and self.policy.pushback.cooldown != "off" and not self.hints.disabled:
            at, why = self._ask_cooldown(now)
            if at > now:
                self._leave_lines(now)  # who is held here must not stand in the way of others there
                return at, (Outcome.COOLING if at == REJECTED else None), why or "cooldown"
        if self._cooled_since is not None:
            self._end_hold(now)
        if scope.rate is not None and not self._paid_rate:
            at = scope.rate.ask(self, now)
            if at > now:
                return at, (Outcome.RATE_LIMITED if at == REJECTED else None), "rate"
            self._paid_rate = True
        first_goes_free = self.attempts == 0 and not self.policy.strategy.delay_first
        if scope.limiter is not None and not self._paid_pace and not first_goes_free:
            at = scope.limiter.ask(self, now)
            if at > now:
                return at, None, "limiter"
            self._paid_pace = True
        return now, None, ""

    def _ask_cooldown(self, now: float) -> tuple[float, str]:
        """Now, or when to ask again; or REJECTED and why: the call would be held for longer than it may."""
        cooldown, rules, fields = self.scope.cooldown, self.policy.pushback, self.request.fields
        at = cooldown.ask(self, fields, now, self._own_delays)
        self._cooled = True
        if at <= now:
            return now, ""
        if self._cooled_since is None:
            self._cooled_since = now
        limit = self._cooled_since + rules.hold - self._cooled_before
        why = "hold"
        if self.deadline is not None and self.deadline < limit:
            limit, why = self.deadline, "deadline"
        wait = cooldown.wait_of(self, now)
        if rules.cooldown == "wait" and now < limit - HAIR and now + wait <= limit + HAIR:
            self._patience = limit
            return min(at, limit), ""
        left, status = cooldown.left_for(fields, now)
        self._cooling = max(left, wait) if wait < NEVER else left, status
        if rules.cooldown == "reject":
            return REJECTED, held_in_vain(wait, None)
        return REJECTED, held_in_vain(wait, None if why == "deadline" else rules.hold, limit - now)

    def _end_hold(self, now: float) -> None:
        """The cooldown does not hold it any more."""
        if self._cooled_since is not None:
            self._cooled_before += now - self._cooled_since
            self._cooled_since, self._patience = None, NEVER

    def _landed(self, now: float, sent: float, *, well: bool | None) -> None:
        """The attempt sent at `sent` has a head or an end; `well`: it is no failure of the upstream's; None: that is
        told later.
        """
        self.scope.cooldown.landed(self, sent, now, well=well)
        self._cooled = well is None

    def _take_place(self, place: str) -> bool:
        """Take a place in the waiting room, or change the one taken for another kind."""
        if self._parked == place:
            return True
        self._leave_room()
        if not self.env.waiting.enter(self.policy.upstream, held=place == "held"):
            return False
        self._parked = place
        return True

    def _leave_room(self) -> None:
        if self._parked:
            self.env.waiting.leave(self.policy.upstream, held=self._parked == "held")
            self._parked = ""

    def _leave_gates(self, now: float) -> None:
        if self._cooled:
            self._end_hold(now)
            self.scope.cooldown.leave(self, now)
            self._cooled = False
        self._leave_lines(now)

    def _leave_lines(self, now: float) -> None:
        scope = self.scope
        if scope.rate is not None:
            scope.rate.leave(self, now)
        if scope.limiter is not None:
            scope.limiter.leave(self, now)

    def _give_back(self, now: float) -> None:
        """What was paid for an attempt that is not sent comes back."""
        bucket = self._bucket
        if self._granted is not None and bucket is not None:
            bucket.give_back(self._granted, now, taken_at=self._granted_at)
        self._granted = self._owed = None
        self._leave_gates(now)
        if self._paid_rate and self.scope.rate is not None:
            self.scope.rate.bucket.give_back(now)
        if self._paid_pace and self.scope.limiter is not None:
            self.scope.limiter.bucket.give_back(now)
        self._paid_rate = self._paid_pace = False
        self._leave_room()
