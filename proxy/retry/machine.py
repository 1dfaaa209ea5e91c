"""One call as a state machine: events in, actions out.

Theory of operation. A call is handed events with the time at which they happened and answers with actions; it never
sleeps, reads a clock, or raises for a wrong upstream. In every state something flies, or an alarm is set, or the call
is done:

    New -> [Next] -> Flying -> Delivering -> Done
             ^         |
             +---------+                       another attempt was granted; its answer, if any, is held

An event that a state has no use for is answered with nothing: it comes too late. What comes after an attempt is the
word of a plan (`proxy.retry.plans`: one after another, or hedged); what it costs is a `Payment`, taken at once after
the last check has passed; what may hold a call is asked by its `Admission`. A retry is paid for before it is waited
for. A hedge is paid for when it is due, and no gate but the rate holds it. docs/reference/transitions.md shows every
move.

Where the bucket is kept elsewhere and what is here can't pay, the bucket is asked (`Ask`), and the attempt is decided
when it is due: with the price that was granted meanwhile, or with what is here then, or not at all. One that is due
before the bucket has answered waits for the answer.

Once an answer is being delivered the call is committed: nothing leads back. While anything flies the driver watches
`deadline` and says `woke` when it has come.

Where a *no* ends a call that another upstream may take over (`proxy.retry.fallback`), it is over for this one, and a
`Call` of that upstream goes on with what it has: its attempts, its deadline, and the last answer until the next attempt
is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from proxy.retry.actions import Actions, Ask, Cancel, Deliver, Discard, FallBack, Finish, Hold, Launch, Peek, WakeAt
from proxy.retry.admission import Admission, Alarm, Payment
from proxy.retry.attempt_record import FELL_BACK, AttemptRecord
from proxy.retry.backoff import Chance
from proxy.retry.buckets import Bucket
from proxy.retry.classification import MISDIRECTED, NEEDS_BODY, NeedsBody, classify, classify_fault, refuses_credential
from proxy.retry.cooldown import CooldownBegan
from proxy.retry.credentials import CallKeys
from proxy.retry.endpoint_picker import CircuitChanged, EndpointPicker
from proxy.retry.facts import (
    NO_PUSHBACK,
    Class,
    Failure,
    Fault,
    Fields,
    Outcome,
    Progress,
    Reply,
    Request,
    Verdict,
)
from proxy.retry.fallback import GOES_ON, Elsewhere, Fallbacks
from proxy.retry.first_byte import Look, first_byte_of
from proxy.retry.plans import HAIR, Hedged, Next, Sequential, Standing, failure_of, first_no, goes_on
from proxy.retry.plugins import CustomToken
from proxy.retry.policy import Policy
from proxy.retry.reasons import (
    CIRCUIT_OPEN,
    GATES,
    NO_LONGER_SAFE,
    NO_TOKEN,
    OUTGREW,
    SHUT_DOWN,
    TOO_LATE,
    circuit_open,
    held_too_long,
    own_answer,
    why_not,
)
from proxy.retry.registry import ScopeState
from proxy.retry.request_hints import NO_HINTS, read_request_hints
from proxy.retry.states import Delivering, Done, Flight, Flying, New, State
from proxy.retry.token_bucket import REJECTED
from proxy.retry.waiting_room import WaitingRoom

#: To be asked for by these names: of the enumeration it takes ten times as long.
_SUCCESS, _SUCCESS_CLASS, _THROTTLING = Outcome.SUCCESS, Class.SUCCESS, Class.THROTTLING

#: What a circuit breaker counts as a sign of illness (contract, section 13).
_ILL = frozenset({Class.TRANSIENT, Class.TIMEOUT})

#: Contract, section 4: bodies are peeked at up to 64 KiB.
PEEK_LIMIT = 64 * 1024

#: Seconds after which a bucket that was asked and is still silent counts as one that refused. Stores answer sooner.
PATIENCE = 1.0

#: Hedges without a delay that go in one step: each is a few frames deeper than the one before.
_AT_ONCE = 100


@dataclass(slots=True)
class Env:
    """What the driver lends every call. The wall's clock is `now + wall_offset` (seconds since the epoch).
    `circuit_changed` is told where a call opens a circuit breaker, or closes it: upstream, endpoint, whether it is
    open, and the seconds until a probe may go; `credential_aside` where a credential is put aside: upstream, and its
    number, from 1; `cooldown_began` where an answer begins a cooldown.
    """

    rng: Chance
    wall_offset: float = 0.0
    waiting: WaitingRoom = field(default_factory=WaitingRoom)
    circuit_changed: CircuitChanged = lambda upstream, endpoint, is_open, left: None
    credential_aside: Callable[[str, int], None] = lambda upstream, key: None
    cooldown_began: Callable[[CooldownBegan], None] = lambda began: None


_NEW = New()
_DELIVERING_FIRST = Delivering(1, Outcome.SUCCESS)
_DONE = {outcome: Done(outcome) for outcome in Outcome}
_LAUNCH_FIRST: Actions = (Launch(1),)
_DELIVER_FIRST: Actions = (Deliver(1, Outcome.SUCCESS),)
_FINISH: dict[Outcome, Actions] = {outcome: (Finish(outcome),) for outcome in Outcome}


class Call(Standing):
    """One call of an app. `hedged`: several attempts may be in flight (a call that is not safe to hedge is not).

    `alarm` moves the call's alarm when a gate's word changes; drivers give it, tests of ungated calls need none.
    `elsewhere` says which other upstreams can take the call over; without it none can. `earlier` attempts were made at
    others before this one.
    `failure` is the last one, while its answer is held; `reply` the last answer that was judged, or is delivered.
    `first_byte`: within how many seconds of the request's last byte an answer's first byte that counts must come
    (None: any time, or the request has not been sent whole).
    """

    __slots__ = (
        *(
            "_admission",
            "_alarm",
            "_app_paid",
            "_enforces",
            "_flight",
            "_keys",
            "_paid",
            "_payment",
            "_picker",
            "_plan",
        ),
        *("_processed", "_request_sent", "_shared", "env", "failure", "fallbacks", "first_byte", "hedged"),
        *("resent", "scope", "started", "state"),
    )

    def __init__(
        self,
        request: Request,
        policy: Policy,
        scope: ScopeState,
        env: Env,
        alarm: Alarm | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self.request = request
        self.policy = policy
        self.scope = scope
        self.env = env
        self.state: State = _NEW
        self.attempts = self.earlier = 0
        self.started = 0.0
        self.deadline: float | None = None
        self.committed = self.hedged = False
        self.resent = False  # the one transparent retry has been used
        self.hints = NO_HINTS
        self.failure: Failure | None = None
        self.reply: Reply | None = None
        self.first_byte: float | None = None
        self.plugin: CustomToken | None = None
        self.fallbacks: Fallbacks | None = None
        self.bucket: Bucket | None = None
        self.history: list[AttemptRecord] = []
        self._alarm = alarm
        self._picker: EndpointPicker | None = None
        self._plan: Sequential | Hedged | None = None
        self._payment: Payment | None = None  # for the attempt that comes next
        self._admission: Admission | None = None
        self._flight: Flight | None = None  # the attempt whose answer is delivered
        self._keys: CallKeys[ScopeState] | None = None  # which credential its attempts carry
        self._request_sent = False  # an attempt has sent the whole request
        self._processed = False  # an attempt may have been processed: a refusal is not transparent any more
        self._shared = False  # the body outgrew its buffer, but everything that is to be sent has it
        self._paid: float | None = None  # what the last retry that was sent had paid
        self._app_paid: float | None = None  # what an app's own retry was charged
        if scope.endpoints is not None:
            endpoints = scope.endpoints.of(request.authority)
            self._picker = EndpointPicker(endpoints, policy.upstream, env.circuit_changed)
        self._enforces = policy.mode == "enforce"
        if self._enforces:
            strategy = policy.strategy
            self.bucket = scope.bucket
            if elsewhere is not None:
                self.fallbacks = Fallbacks(policy, request, elsewhere)
            if strategy.hedging_delay is not None:
                safe = strategy.safe_methods or policy.classify.unsafe_methods == "always"
                self.hedged = safe or self.may_be_hedged()
        elif policy.mode == "observe":
            self.bucket = scope.shadow

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the call; None while it lasts."""
        return self.state.outcome if isinstance(self.state, Done) else None

    @property
    def sent_by(self) -> str:
        """The protocol of the only attempt, whose answer was delivered; "" of any other call."""
        return self._flight.protocol if self._flight is not None and self.attempts == 1 else ""

    @property
    def app_retry(self) -> bool:
        """Whether the app had tried this before by itself."""
        return self.hints is not NO_HINTS and self.hints.retries_itself

    @property
    def held_by(self) -> str:
        """The gate that holds, or held, the attempt that is next or in flight; "" for none."""
        return self._admission.held_by if self._admission is not None else ""

    @property
    def found_no_place(self) -> bool:
        """Whether what ended the call was that no place among the attempts under way became free for it."""
        return self._admission is not None and self._admission.found_no_place

    @property
    def was_cooled(self) -> bool:
        """Whether a cooldown has held the call."""
        return self._admission is not None and self._admission.was_cooled

    @property
    def kept_off(self) -> tuple[float, float]:
        """Of a call that a cooldown ended: the seconds left of it, and those that its last answer asked for."""
        asked = self.failure.pushback.delay if self.failure is not None else None
        return (self._admission.cooling[0] if self._admission is not None else 0.0), asked or 0.0

    @property
    def needs_no_buffer(self) -> bool:
        """Whether all attempts share the request's stream, so that a body of any size loses nothing: those of
        `hedging_delay: 0s`, once all have gone.
        """
        state = self.state
        all_gone = isinstance(state, Flying) and bool(state.flights) and state.next is None
        return self.hedged and all_gone and self.policy.strategy.hedging_delay == 0

    def hedging_delay(self, now: float) -> float | None:
        """Seconds from one hedge to the next; None while the strategy asks for a percentile and there is none."""
        strategy, hedges = self.policy.strategy, self.scope.hedges
        if strategy.hedging_percentile is None or hedges is None:
            return strategy.hedging_delay
        return hedges.delay(strategy.hedging_percentile, now)

    def goes_elsewhere(self) -> None:
        """It is not sent to its policy's endpoints, nor held by what is known of them: it is the tunnel to a place that
        only a CONNECT names.
        """
        self._picker = None

    def forget_alarm(self) -> None:
        """Let go of the driver, which has finished with this call."""
        self._alarm = None
        if self._admission is not None:
            self._admission.alarm = None

    # -- events -----------------------------------------------------------------------------------------------------

    def start(self, now: float) -> Actions:
        """The request's head is whole."""
        self.started = now
        policy = self.policy
        total = policy.timeouts.total
        if total is not None and (self.deadline is None or now + total < self.deadline):
            self.deadline = now + total
        if not self.request.plain or policy.idempotency_key.header != "Idempotency-Key":
            refusal = self._read_hints(now)
            if refusal:
                return refusal
        bucket = self.bucket
        if bucket is not None:
            bucket.begin(now)
            if self.hints.retries_itself:
                self._app_paid = bucket.charge_app_retry(now)
        if self.scope.keys is not None:
            self.carry(CallKeys(self.scope.keys, now))
        if policy.mode != "enforce":
            return self._launch(now)
        if self.scope.hedges is not None:
            self.scope.hedges.began(now)
        if policy.strategy.custom is not None:
            return self._start_plugin(now)
        if self._picker is None and self.scope.admits(now):
            return self._launch(now)
        return self._admit(Next(now), now)

    def go_on(self, before: Call, now: float) -> Actions:
        """Take the place of `start`, where the call goes on from another upstream (`FallBack`): attempts are counted
        on, the earlier deadline stands, and the last answer is kept until the first attempt here is sent.
        """
        self.attempts = self.earlier = before.attempts
        self.deadline, self.failure, self.reply = before.deadline, before.failure, before.reply
        self.history = before.history
        self.fallbacks = before.fallbacks
        return self.start(now)

    def carry(self, keys: CallKeys[ScopeState]) -> None:
        """Let attempts carry the credentials that are chosen here."""
        self._keys = keys
        self.scope = keys.lane

    def flown(self, since: float) -> None:
        """Take the place of `start`, where the call began undecided: attempt 1 flies since then."""
        self.started = since
        if self.policy.timeouts.total is not None:
            self.deadline = since + self.policy.timeouts.total
        if self.request.timed:
            self._read_hints(since)  # which bring the deadline nearer, and nothing else
        self.attempts = 1
        flight, keys = Flight(since), self._keys
        if keys is not None:
            flight.key, flight.key_why = keys.key, keys.why
        self.state = Flying({1: flight})

    def sent(self, attempt: int, endpoint: str, protocol: str, now: float) -> Actions:
        """An attempt goes to this endpoint, by this protocol. The protocol is empty until there is a connection."""
        flight = self._in_flight(attempt)
        if flight is not None:
            flight.sent_to = endpoint
            if protocol:
                flight.protocol = protocol
        return ()

    def request_sent(self, now: float, body: Iterable[bytes] | None = None) -> Actions:
        """An attempt has sent the whole request. `body`: the request's, None where it is empty or is not kept."""
        if type(self.state) is Flying and not self._request_sent:
            self._request_sent = True
            self.first_byte = first_byte_of(self.policy, self.request, body)
        return ()

    def head(self, attempt: int, reply: Reply, now: float) -> Actions:
        """The final head of an attempt's answer has come (1xx are the driver's to pass on)."""
        flight = self._in_flight(attempt)
        if flight is None or flight.reply is not None:
            return ()
        verdict = classify(self.policy.classify, self.request, reply, None)
        if reply.status < 400 and (verdict is NEEDS_BODY or self.first_byte is not None):
            return self._begun(attempt, flight, reply, verdict, now)
        if verdict is NEEDS_BODY:
            flight.reply = reply
            if self._admission is not None and self._admission.cooled:
                self._admission.landed(flight.since, now, well=None)
            return (Peek(attempt, PEEK_LIMIT),)
        return self._answered(attempt, flight, reply, verdict, now)

    def peeked(self, attempt: int, body: bytes, now: float) -> Actions:
        """As much of the body has come as was asked for, or all of it."""
        flight = self._in_flight(attempt)
        if flight is None or flight.reply is None:
            return ()
        if flight.look is not None:
            flight.look.end(now)
        reply = flight.reply
        reply.peeked = body
        verdict = classify(self.policy.classify, self.request, reply, body)
        assert verdict is not NEEDS_BODY  # it has been looked at
        reply.counts_as = verdict.counts_as
        return self._answered(attempt, flight, reply, verdict, now)

    def ended(self, attempt: int, now: float, trailers: Fields | None = None) -> Actions:
        """The delivered answer has ended well."""
        state = self.state
        if type(state) is not Delivering:
            return ()
        if state.outcome is _SUCCESS:
            if trailers is not None and self.reply is not None and trailers.get_all("grpc-status"):
                return self._ended_by_trailers(attempt, self.reply, trailers, now)
            self._succeeded(attempt, now)
        return self._finish(state.outcome, now)

    def failed(self, attempt: int, fault: Fault, now: float) -> Actions:
        """An attempt has ended without a whole answer."""
        state = self.state
        if type(state) is Delivering and state.attempt == attempt:
            if state.outcome is _SUCCESS:  # else it was learnt when it was judged
                self._learn(False, now)
            why = "its answer had begun to go to the app"
            self._note_delivery(state, now, Outcome.COMMITTED.value, why, fault)
            return self._finish(Outcome.COMMITTED, now)
        flight = self._in_flight(attempt)
        if flight is None:
            return ()
        if flight.reply is None and self._is_transparent(fault):
            self.resent = True
            self._note(attempt, flight, now, "transparent").meet(fault)
            if self.fallbacks is not None:
                self.fallbacks.attempt_failed(fault, classify_fault(self.policy.classify, self.request, fault))
            flight.since = now
            if self._keys is not None and fault.progress not in (Progress.NEVER_SENT, Progress.REFUSED):
                self._keys.bind()
            endpoint = None if self._picker is None else self._picker.take_again(flight, self.state, fault, now)
            return (Launch(attempt, fresh=True, endpoint=endpoint, key=flight.key),)
        if fault.progress not in (Progress.NEVER_SENT, Progress.REFUSED):
            self._processed = True
        self.reply = None
        verdict = classify_fault(self.policy.classify, self.request, fault)
        return self._judge(Failure(attempt, verdict, NO_PUSHBACK, fault=fault, sent=flight.since), flight, now)

    def woke(self, now: float) -> Actions:
        """The alarm has rung, or the deadline has come."""
        state = self.state
        if type(state) is Flying and self.deadline is not None and now >= self.deadline - HAIR:
            return self._end_flight(state, Outcome.DEADLINE, TOO_LATE, now)
        next = self._next()
        if next is None:
            return ()
        if now < next.due - HAIR and not next.gated:
            return (WakeAt(next.due),)
        if self._payment is not None and self._payment.owed is not None:
            return self._decide(self._payment, next, now)
        return self._hedge(next, now) if self.hedged and self.attempts > self.earlier else self._admit(next, now)

    def granted(self, price: float, now: float) -> Actions:
        """The bucket that was asked says yes, and has taken the price. What is not wanted any more goes back."""
        next, payment = self._next(), self._payment
        if next is None or payment is None or not payment.granted(price, now):
            if self.bucket is not None:
                self.bucket.give_back(price, now)
            return ()
        if now >= next.due - HAIR:
            return self._admit(next, now)
        if not self.hedged:
            return ()
        self._give_back(now)  # a pushback came meanwhile: the hedge is paid for when it is due
        return self._wait(next, now)

    def refused(self, price: float, now: float) -> Actions:
        """The bucket that was asked says no. What is here may pay all the same when the attempt is due."""
        next, payment = self._next(), self._payment
        if next is None or payment is None or not payment.refused(price):
            return ()
        return self._decide(payment, next, now) if now >= next.due - HAIR else ()

    def replay_lost(self, now: float, furthest: int = 0) -> Actions:
        """The request's body outgrew its buffer: there is no further attempt, and only silence ends what flies. It
        streams on in `furthest`, the attempt that has sent most of it (the oldest of several), and the others are
        cancelled; where all share the stream nothing is lost but the transparent retry.
        """
        state = self.state
        if self.committed or isinstance(state, Delivering | Done):
            return ()
        if self.needs_no_buffer:
            self._shared = True
            return ()
        self.committed = True
        self.deadline = None
        if type(state) is Flying:
            self._plan_no_more(now)
            return self._cancel_all_but(furthest if furthest in state.flights else min(state.flights), now)
        return self._stop_waiting(Outcome.COMMITTED, now, OUTGREW) if type(state) is Next else ()

    def app_gone(self, now: float) -> Actions:
        """The app went away: nothing more is sent for it, and what was not used comes back."""
        state, gone = self.state, Outcome.CLIENT_GONE.value
        if type(state) is Done:
            return ()
        actions: Actions
        if type(state) is Delivering:
            actions = (Cancel(state.attempt),)
            self._note_delivery(state, now, gone)
        elif type(state) is Flying:
            actions = (*self._cancel_all_but(0, now, gone), *self._discard())
        else:
            actions = self._discard()
            if self.attempts > self.earlier:
                self.history[-1].decision = gone
        self._give_back(now)
        return (*actions, *self._finish(Outcome.CLIENT_GONE, now))

    def cut(self, now: float) -> Actions:
        """The process ends: an answer under way is broken off, a kept one goes to the app, else the app is told."""
        state = self.state
        if type(state) is Delivering:
            self._note_delivery(state, now, Outcome.COMMITTED.value, SHUT_DOWN)
            return (Cancel(state.attempt), *self._finish(Outcome.COMMITTED, now))
        if type(state) is Flying:
            return self._end_flight(state, Outcome.OVERLOADED, SHUT_DOWN, now)
        return () if type(state) is Done else self._stop_waiting(Outcome.OVERLOADED, now, SHUT_DOWN)

    def denied(self, attempt: int, detail: str, now: float) -> Actions:
        """The destination of this attempt is not allowed: it was not sent. The whole call
        ends, since its endpoints are the policy's mistake.
        """
        flight = self._in_flight(attempt)
        if flight is None or flight.reply is not None:
            return ()
        others = self._cancel_all_but(attempt, now)
        if flight.payment is not None:
            flight.payment.give_back(now)
        self._note(attempt, flight, now, Outcome.DENIED.value).because = detail
        self._give_back(now)
        self.attempts -= 1
        answer = own_answer(Outcome.DENIED, None, detail=detail)
        return (*others, answer, *self._finish(Outcome.DENIED, now))

    # -- the beginning ----------------------------------------------------------------------------------------------

    def _read_hints(self, now: float) -> Actions:
        """Heed what the app says of this call; a refusal where it cannot be read."""
        hints = self.hints = read_request_hints(self.request, self.policy, self.scope.seen, now)
        if hints.unreadable:
            detail = "X-Retry-Timeout is neither a duration nor seconds"  # its value is nobody else's to read
            return (own_answer(Outcome.BAD_REQUEST, None, detail=detail), *self._finish(Outcome.BAD_REQUEST, now))
        if hints.timeout is not None and (self.deadline is None or now + hints.timeout < self.deadline):
            self.deadline = now + hints.timeout
        return ()

    def _start_plugin(self, now: float) -> Actions:
        """A strategy of one's own may let the first attempt wait."""
        self.plugin = CustomToken(self.policy.strategy.custom, self.scope.value)
        next = Next(now + self.plugin.initial_delay)
        if next.due <= now:
            return self._admit(next, now)
        if self.deadline is not None and next.due > self.deadline + HAIR:
            return self._give_up(Outcome.DEADLINE, now)
        return self._wait(next, now)

    # -- attempts ---------------------------------------------------------------------------------------------------

    def _gates(self) -> Admission:
        """The call as gates know it, made when it is needed."""
        admission = self._admission
        if admission is None:
            endpoints = None if self._picker is None else self._picker.endpoints
            cools = not self.hedged and self.policy.pushback.cooldown != "off" and not self.hints.disabled
            admission = self._admission = Admission(
                self.request, self.policy, self.scope, self._alarm, cools=cools, endpoints=endpoints
            )
        return admission

    def _next(self) -> Next | None:
        state = self.state
        return state.next if type(state) is Flying else state if type(state) is Next else None

    def _payable(self) -> Payment:
        """The payment for the attempt that comes next, made when it is needed."""
        if self._payment is None:
            self._payment = Payment(self.bucket, self.env.waiting, self.policy.upstream)
        return self._payment

    def _in_flight(self, attempt: int) -> Flight | None:
        state = self.state
        return state.flights.get(attempt) if type(state) is Flying else None

    def _admit(self, next: Next, now: float) -> Actions:
        """An attempt is due: launch it, or wait where a gate says so."""
        if self._keys is not None and self._keys.replace_lost(now):
            self._pass_gates_of(self._keys, now)
        if self._admission is None and self.scope.admits(now) and now <= next.until + HAIR:
            picker = self._picker
            if picker is None or picker.choose(self._payable(), self.state, now):
                return self._launch(now)
            return self._stop_waiting(Outcome.CIRCUIT_OPEN, now, circuit_open(picker.endpoints.seconds_left(now)))
        payment = self._payable()
        is_first = self.attempts == self.earlier
        at, no, gate = self._gates().ask(payment, now, self.deadline, first=is_first)
        held = no is not None or at > now
        if held and no is not Outcome.CIRCUIT_OPEN and self._keys is not None and self._keys.move(now):
            self._pass_gates_of(self._keys, now)
            at, no, gate = self._gates().ask(payment, now, self.deadline, first=is_first)
        if no is None and at <= now <= next.until + HAIR:
            if self._chosen(payment, now):
                return self._launch(now)
            no, gate = Outcome.CIRCUIT_OPEN, CIRCUIT_OPEN
        why = "" if no is None or gate in GATES else gate
        if no is Outcome.RATE_LIMITED and not is_first:
            why = why or NO_TOKEN
        if max(at, now) > next.until + HAIR:
            no, why = Outcome.NOT_RETRYABLE, NO_LONGER_SAFE
        if no is None and self.deadline is not None and at > self.deadline + HAIR:
            no, why = Outcome.DEADLINE, held_too_long(gate, at - now, self.deadline - now)
        if no is None and not payment.wait("held"):
            no, why = Outcome.OVERLOADED, f"{GATES[gate]} holds it, and limits.waiting has no place for it"
        if no is not None:
            return self._stop_waiting(no, now, why)
        self._gates().hold(gate, now)
        kept = self.failure if type(self.state) is Flying else None
        next.due, next.gated = at, True
        self.state = next
        if kept is not None and kept.status is not None:
            return (Hold(kept.attempt), WakeAt(at))
        return (WakeAt(at),)

    def _launch(self, now: float) -> Actions:
        """Send the next attempt, and the hedges behind it that are due as well."""
        attempt = self.attempts = self.attempts + 1
        payment = self._payment
        if payment is not None:
            payment.leave_room()
            self._paid, self._payment = payment.price, None
        if self._admission is not None:
            self._admission.sent(attempt, now)
        endpoint = None if self._picker is None else self._picker.take(payment, self.state, now)
        flight, keys = Flight(now, payment), self._keys
        flight.endpoint = endpoint
        if keys is not None:
            flight.key, flight.key_why = keys.key, keys.why
        discarded: Actions
        if not self.hedged:
            self.state = Flying({attempt: flight})
            if attempt == 1 and endpoint is None and keys is None:
                return _LAUNCH_FIRST
            failure, self.failure = self.failure, None
            alone = failure is not None and failure.verdict is MISDIRECTED
            launch = Launch(attempt, alone, endpoint, flight.key, alone)
            if failure is None or failure.status is None:
                return (launch,)
            return (Discard(failure.attempt), launch)
        state = self.state
        discarded = ()
        if type(state) is Flying:
            state.flights[attempt] = flight
        else:
            state = self.state = Flying({attempt: flight})
            if attempt == self.earlier + 1:  # another upstream's last answer has been held until now
                discarded, self.failure = self._discard(), None
        plan = self._planned()
        assert isinstance(plan, Hedged)
        next = state.next = plan.after_launch(self, now)
        launch = Launch(attempt, False, endpoint, flight.key)
        if next is None:
            return (*discarded, launch)
        # Hedges without a delay go one out of another; before the stack gets deep, the alarm goes on with the next.
        at_once = next.due <= now + HAIR and attempt % _AT_ONCE
        return (*discarded, launch, *(self._hedge(next, now) if at_once else (WakeAt(next.due),)))

    def _chosen(self, payment: Payment, now: float) -> bool:
        """Choose where the next attempt goes, if that is to be chosen; False: every breaker is open."""
        return self._picker is None or self._picker.choose(payment, self.state, now)

    def _pass_gates_of(self, keys: CallKeys[ScopeState], now: float) -> None:
        """The next attempt carries another credential, and passes its gates."""
        self.scope = keys.lane
        if self._payment is not None:
            self._payment.leave_gates(now)
        if self._admission is not None:
            self._admission.move(self.scope, now)

    def named_wait(self, failure: Failure, now: float) -> tuple[bool, float | None]:
        """See `proxy.retry.plans.Standing`."""
        if failure.verdict is MISDIRECTED and failure.pushback.delay is None:
            return True, None
        return (False, failure.pushback.delay) if self._keys is None else self._keys.wait_after(failure, now)

    def _is_transparent(self, fault: Fault) -> bool:
        """Contract, "Safety", 1: one for each call in all, whichever cause."""
        if self.resent or self.committed or self._shared:
            return False
        if fault.progress is Progress.NEVER_SENT:
            return True
        if fault.progress is Progress.REFUSED:
            return not self._processed
        return fault.reused and self.is_idempotent()

    def _answered(self, attempt: int, flight: Flight, reply: Reply, verdict: Verdict, now: float) -> Actions:
        """The class of an answer is known."""
        self._processed = True
        self.reply = reply
        if reply.follows and self._may_go_alone(verdict):
            verdict = MISDIRECTED
        if verdict.cls is not _SUCCESS_CLASS:
            return self._judge(
                failure_of(self, attempt, reply, verdict, flight.since, now + self.env.wall_offset), flight, now
            )
        self._flight = flight
        self.deadline = None
        if self.scope.hedges is not None:
            self._measure(now if flight.look is None else flight.look.counted or now, now)
        if self._admission is not None and self._admission.cooled:
            self._admission.landed(flight.since, now, well=True)
        if flight.endpoint is not None and self._picker is not None:
            self._picker.endpoints.reached(flight.endpoint)
            self._picker.tell_breaker(flight, ill=False, now=now)
        if not self.hedged:
            self.state = _DELIVERING_FIRST if attempt == 1 else Delivering(attempt, _SUCCESS)
            return _DELIVER_FIRST if attempt == 1 else (Deliver(attempt, _SUCCESS),)
        others = self._cancel_all_but(attempt, now)
        self._plan_no_more(now)
        self.state = Delivering(attempt, _SUCCESS)
        return (*others, *self._discard(), Deliver(attempt, _SUCCESS))

    def _may_go_alone(self, verdict: Verdict) -> bool:
        """Whether a 421 is followed by an attempt on a connection of its own: once a call, unless a rule calls it fatal
        or a success. Hedges are judged by `non_fatal` alone.
        """
        if self.hedged or verdict.cls in (Class.SUCCESS, Class.FATAL):
            return False
        return all(record.status != 421 for record in self.history)

    def _measure(self, at: float, now: float) -> None:
        """A success's first byte that counts came `at` this time: hedging learns for how long it was waited for."""
        state, hedges = self.state, self.scope.hedges
        if type(state) is Flying and hedges is not None and self.policy.mode == "enforce":
            hedges.answered(at - min(flight.since for flight in state.flights.values()), now)

    def _begun(self, attempt: int, flight: Flight, reply: Reply, verdict: Verdict | NeedsBody, now: float) -> Actions:
        """An answer below 400 has begun: keep its head where its first byte, or what a rule looks at, is waited for,
        and the attempt can still be made again.
        """
        rules, policy, request = self.policy.classify, self.policy, self.request
        tunnels = reply.status == 101 or request.method == "CONNECT"
        final = reply.early or reply.end or self.committed
        kept = policy.mode == "enforce" and not (final or tunnels or request.is_grpc)
        if not kept and verdict is NEEDS_BODY:
            verdict = classify(rules, request, reply, b"")  # nobody looks into it
        whole = verdict is NEEDS_BODY
        if verdict is not NEEDS_BODY and not (kept and verdict.cls is _SUCCESS_CLASS):
            return self._answered(attempt, flight, reply, verdict, now)
        flight.reply = reply
        look = flight.look = Look(reply, rules.empty_events, self.first_byte, whole=whole)
        if self._admission is not None and self._admission.cooled:
            self._admission.landed(flight.since, now, well=None)
        return (Peek(attempt, PEEK_LIMIT, look),)

    def _cancel_all_but(self, attempt: int, now: float, decision: str = "cancelled") -> Actions:
        """End the other flights, which count neither as success nor as failure."""
        state = self.state
        assert type(state) is Flying
        losers = [(number, flight) for number, flight in state.flights.items() if number != attempt]
        for number, flight in losers:
            del state.flights[number]
            _land(flight, now)
            _cancelled(flight, now)
            self._note(number, flight, now, decision)
        return tuple(Cancel(number) for number, _ in losers)

    # -- judgement --------------------------------------------------------------------------------------------------

    def _planned(self) -> Sequential | Hedged:
        plan = self._plan
        if plan is None:
            plan = self._plan = Hedged() if self.hedged else Sequential(self.policy.strategy, self.env.rng)
        return plan

    def _is_disabled(self) -> bool:
        return not self._enforces or (self.hints is not NO_HINTS and self.hints.disabled)

    def _judge(self, failure: Failure, flight: Flight, now: float) -> Actions:
        """An attempt failed: grant, pay for and set out on another one, or end the call with a *no*."""
        state, plan = self.state, self._planned()
        assert type(state) is Flying
        del state.flights[failure.attempt]
        if self.fallbacks is not None:
            self.fallbacks.attempt_failed(failure.fault or self.reply, failure.verdict)
        _land(flight, now)
        if flight.endpoint is not None and self._picker is not None:
            self._picker.failed(flight, failure.fault, now)
            self._picker.tell_breaker(flight, ill=_is_ill(failure), now=now)
        on = goes_on(self, failure)
        began = self._tell_of(failure, flight, on, now)
        decided: Next | Outcome
        if isinstance(plan, Sequential) and self._enforces:
            sequential = plan
            decided = sequential.after_failure(self, failure, now, on, self._is_disabled())
        elif self.policy.mode == "observe" and not self.hints.disabled:
            decided = self._observe(failure, on, now)
        else:
            decided = plan.after_failure(self, failure, now, on, self._is_disabled())
        if self.hedged:
            return self._hedge_on(failure, flight, decided, on, now)
        self.failure = failure
        if isinstance(decided, Next):
            decided = self._pay_for(decided, now)
        if not isinstance(decided, Next):
            self._note_no(failure, flight, decided, now)
            return self._give_up(decided, now)
        next = decided
        renewed = self._keys if self._keys is not None and self._keys.renew(failure, now) else None
        if began is not None and renewed is not None:  # its first place is for calls with the credential that had it
            self._gates().met(began)
        elif began is not None:
            self._gates().claim_place(began, next.due)
        if renewed is not None:
            self._pass_gates_of(renewed, now)
        self._note(failure.attempt, flight, now, "retried", failure).delay = next.due - now
        payment = self._payment
        assert payment is not None  # it was paid for, or is owed
        owes = payment.owed is not None
        if not owes and next.due <= now:
            return self._admit(next, now)
        self.state = next
        if failure.status is not None and not owes:
            return (Hold(failure.attempt), WakeAt(next.due))
        actions: Actions = (WakeAt(next.due),)
        if payment.owed is not None:
            payment.asked = True
            actions = (WakeAt(next.due), Ask(payment.owed))
        return actions if failure.status is None else (Hold(failure.attempt), *actions)

    def _tell_of(self, failure: Failure, flight: Flight, on: bool, now: float) -> bytes | None:
        """Tell everybody who learns from failures. The cooldown that began with this one, if one did."""
        self._learn(failure.verdict.cls is _THROTTLING, now)
        if self.bucket is not None and (on or failure.pushback.stop):
            self.bucket.failed(now)
        began = None
        if not self._is_disabled() and not self.hedged:  # neither with X-Retry-Disable nor of a hedged call
            began = self.scope.cool_down(failure, self.policy.pushback, self.scope.caller(self.request), now)
            if began is not None:
                self._tell_of_cooldown(began, failure, flight, now)
        if self._admission is not None and self._admission.cooled:
            well = failure.status is not None and not failure.verdict.cls.retryable
            self._admission.landed(failure.sent, now, well=well)
        if self._keys is not None:
            refused = self.reply is not None and refuses_credential(self.policy.classify, self.request, self.reply)
            if self._keys.failed(failure, refused=refused, now=now):
                self.env.credential_aside(self.policy.upstream, self._keys.key + 1)
        return began

    def _tell_of_cooldown(self, group: bytes, failure: Failure, flight: Flight, now: float) -> None:
        """Say with whose answer a cooldown began."""
        pushback, policy, request = failure.pushback, self.policy, self.request
        assert pushback.cooldown is not None and failure.status is not None
        self.env.cooldown_began(
            CooldownBegan(
                upstream=policy.upstream,
                route=policy.route,
                group=group,
                status=failure.status,
                field=pushback.source,
                delay=min(pushback.cooldown, policy.pushback.max_delay),
                at=now,
                method=request.method,
                path=request.path,
                attempt=failure.attempt,
                endpoint=flight.sent_to,
                key=0 if self._keys is None else self._keys.key + 1,
            )
        )

    def _learn(self, throttled: bool, now: float) -> None:
        """The adaptive limiter learns from the end of every attempt."""
        pacing = self.scope.pacing
        if pacing is not None and self._enforces:
            pacing.learn(throttled, now)
            if self.scope.limiter is not None and self.scope.limiter.queue:
                self.scope.limiter.retime(now)

    def _observe(self, failure: Failure, on: bool, now: float) -> Outcome:
        """Mode observe: work out what would have happened against the shadow, and let it show in the record."""
        plan = self._planned()
        real = plan.after_failure(self, failure, now, on, True)
        if real is not Outcome.DISABLED:
            assert isinstance(real, Outcome)
            return real  # a check ahead of the mode's: the same in every mode
        decided = plan.after_failure(self, failure, now, on, False)
        if isinstance(decided, Next):
            decided = self._pay_for(decided, now)
            if self._payment is not None:
                self._payment.leave_room()
            self._payment = None
        if isinstance(decided, Next):
            what = f"would retry after {decided.due - now:.3f} s"
        else:
            what = f"would not retry ({decided.value})"
        failure.verdict = replace(failure.verdict, because=f"{failure.verdict.because}; observed: {what}")
        return Outcome.DISABLED

    def _pay_for(self, next: Next, now: float) -> Next | Outcome:
        """A retry that the plan grants takes a place for its wait and its price, or comes to a *no* after all."""
        payment = Payment(self.bucket, self.env.waiting, self.policy.upstream)
        if next.due > now and not payment.wait("backoff"):
            return Outcome.OVERLOADED
        if not payment.take(next.price, now):
            if not payment.owe(next.price, next.due + PATIENCE, now):
                payment.leave_room()
                return Outcome.BUCKET_EMPTY
            if not payment.wait("backoff"):
                return Outcome.OVERLOADED
        self._payment = payment
        return next

    def _decide(self, payment: Payment, next: Next, now: float) -> Actions:
        """An attempt is due that is not paid for: pay now, wait for the bucket's answer, or end."""
        if payment.pay(now):
            return self._admit(next, now)
        if self.deadline is not None and now >= self.deadline - HAIR:
            why = "the store that keeps the bucket did not answer in time"
            return self._stop_waiting(Outcome.DEADLINE, now, why)
        if not payment.asked or now >= payment.limit - HAIR:
            return self._no_more(Outcome.BUCKET_EMPTY, now, "the store that keeps the bucket did not grant it")
        return (WakeAt(payment.limit if self.deadline is None else min(payment.limit, self.deadline)),)

    # -- hedges -----------------------------------------------------------------------------------------------------

    def _hedge(self, next: Next, now: float) -> Actions:
        """A hedge is due: it pays, the rate lets it go, and it is sent; or it waits, or there are no more."""
        payment, bucket = self._payable(), self.bucket
        if not self._is_within_extra(payment, now):
            self._plan_no_more(now)
            return ()
        if bucket is not None and not bucket.affords(next.price, now):
            return self._no_more(Outcome.BUCKET_EMPTY, now)
        flies = type(self.state) is Flying and bool(self.state.flights)
        at, no, why = self._gates().ask(payment, now, self.deadline, first=False, waits=not flies)
        if no is Outcome.OVERLOADED and flies:
            return self._pass_over(now)
        if no is None and at > now and self.deadline is not None and at > self.deadline + HAIR:
            no = Outcome.DEADLINE
        if no is None and at <= now and not self._chosen(payment, now):
            no = Outcome.CIRCUIT_OPEN
        if no is not None:
            return self._no_more(no, now, "" if why in GATES else why)
        if at > now:
            if not flies:
                self._gates().hold(why, now)
            next.due, next.gated = at, True
            return self._wait(next, now, "held")
        if payment.take(next.price, now):
            return self._launch(now)
        payment.forgo_choice(now)
        limit = now + PATIENCE if self.deadline is None else min(now + PATIENCE, self.deadline)
        if not payment.owe(next.price, limit, now):
            return self._no_more(Outcome.BUCKET_EMPTY, now)
        payment.asked = True
        actions = self._wait(next, now)
        return (*actions, Ask(next.price)) if self._payment is payment else actions  # else there was no room to wait in

    def _is_within_extra(self, payment: Payment, now: float) -> bool:
        """Whether the attempt may be sent beside others; one that nothing flies beside is a retry, which always may."""
        hedges, share, state = self.scope.hedges, self.policy.strategy.extra, self.state
        if hedges is None or share is None or type(state) is not Flying or not state.flights:
            return True
        return payment.take_hedge(hedges, share, now)

    def _pass_over(self, now: float) -> Actions:
        """A hedge found no place among the attempts under way: it is not sent, and the next is thought of after the
        strategy's delay. Where all go at once there is no later one.
        """
        state, plan = self.state, self._planned()
        assert type(state) is Flying
        assert isinstance(plan, Hedged)
        self._give_back(now)
        next = plan.after_launch(self, now)
        if next is not None and next.due <= now + HAIR:
            self._gates().found_no_place = True
            return self._no_more(Outcome.OVERLOADED, now)
        state.next = next
        return () if next is None else (WakeAt(next.due),)

    def _hedge_on(self, failure: Failure, flight: Flight, decided: Next | Outcome, on: bool, now: float) -> Actions:
        """One of several failed: the next one comes, or what else flies goes on, or the call ends."""
        state = self.state
        assert type(state) is Flying
        if isinstance(decided, Next):
            self._note(failure.attempt, flight, now, "hedged on", failure)
            kept = self._keep(failure)
            state.next = decided
            if self._payment is not None and self._payment.owed is not None:  # for one that is due
                return kept if state.flights else (*kept, *self._wait(decided, now))
            if decided.due <= now:
                return (*kept, *self._hedge(decided, now))
            self._give_back(now)  # nobody behind waits for a hedge that is not due
            return (*kept, *self._wait(decided, now))
        self._note_no(failure, flight, decided, now)
        kept = self._keep(failure)
        if not on:
            self._plan_no_more(now)
            return (*kept, *self._cancel_all_but(failure.attempt, now), *self._give_up(decided, now))
        if decided is not Outcome.ATTEMPTS_EXHAUSTED:
            self._plan_no_more(now)
        return kept if state.flights else (*kept, *self._give_up(decided, now))

    def _keep(self, failure: Failure) -> Actions:
        """Hold the latest answer in place of the one held before; a fault leaves the last answer where it is."""
        before = self._discard()
        if failure.status is not None or not before:
            self.failure = failure
        return () if failure.status is None else (*before, Hold(failure.attempt))

    def _discard(self) -> Actions:
        """Let go of the answer that is held, if one is."""
        failure = self.failure
        return () if failure is None or failure.status is None else (Discard(failure.attempt),)

    def _wait(self, next: Next, now: float, place: str = "backoff") -> Actions:
        """A hedge is due later; where nothing else flies, the call waits in the room like any other."""
        state = self.state
        if type(state) is not Flying or not state.flights:
            self.state = next
            if not self._payable().wait(place):
                return self._no_more(Outcome.OVERLOADED, now)
        payment = self._payment
        return (WakeAt(next.due if payment is None or payment.owed is None else payment.limit),)

    def _plan_no_more(self, now: float) -> None:
        """No hedge is to be sent beside what flies."""
        if type(self.state) is Flying and self.state.next is not None:
            self.state.next = None
            self._give_back(now)

    # -- the end ----------------------------------------------------------------------------------------------------

    def _no_more(self, no: Outcome, now: float, why: str = "") -> Actions:
        """The attempt that was waited for does not come; what flies goes on."""
        if isinstance(self._plan, Hedged):
            self._plan.stopped = no
            self._plan_no_more(now)
            if type(self.state) is Flying and self.state.flights:
                return ()
            if self.failure is not None and not why:
                why = self._why_not(no, self.failure, now)
        return self._stop_waiting(no, now, why)

    def _stop_waiting(self, no: Outcome, now: float, why: str = "") -> Actions:
        """A granted retry, or a first attempt, does not happen after all."""
        self._give_back(now)
        if self.attempts > self.earlier:
            self.history[-1].decision, self.history[-1].why = no.value, why
        return self._give_up(no, now, why)

    def _give_up(self, no: Outcome, now: float, why: str = "") -> Actions:
        """No further attempt: the last answer goes to the app as it came, or the proxy's own where there is none."""
        failure = self.failure
        if self.fallbacks is not None and (left := self._leave(self.fallbacks, no, now)):
            return left
        if self.history and self.attempts == self.earlier:  # of another upstream: nothing was sent to this one
            last = self.history[-1]
            last.decision, last.why = no.value, f"{last.why}; {self.policy.upstream}: {why or no.value}"
        if failure is None or failure.status is None:
            return self._refuse(no, now, why)
        self.deadline = None
        self.state = Delivering(failure.attempt, no)
        return (Deliver(failure.attempt, no),)

    def _leave(self, fallbacks: Fallbacks, no: Outcome, now: float) -> Actions:
        """The call is over here, and goes on at another upstream; () where none takes it."""
        if no not in GOES_ON and not (no is Outcome.OVERLOADED and self.found_no_place):
            return ()
        if self.committed or self._shared:
            return ()
        if self.deadline is not None and now >= self.deadline - HAIR:
            return ()  # what is over is the call's time
        entry = fallbacks.next(no)
        if entry is None:
            return ()
        fallbacks.mark(self.history, self.policy)
        if self.attempts > self.earlier:
            last = self.history[-1]
            last.decision, last.why = FELL_BACK, f"{no.value}{f': {last.why}' if last.why else ''}"
        failure, is_kept = self.failure, self.hedged or type(self.state) is not Flying
        self._finish(no, now)
        if failure is None or failure.status is None or is_kept:
            return (FallBack(entry),)
        return (Hold(failure.attempt), FallBack(entry))

    def _refuse(self, no: Outcome, now: float, why: str = "") -> Actions:
        fault = self.failure.fault if self.failure is not None else None
        left = status = None
        if no is Outcome.COOLING:
            left, status = self._gates().cooling
        elif no is Outcome.RATE_LIMITED:
            left = self.scope.rate.seconds_left(now) if self.scope.rate is not None else 0.0
            if left == REJECTED:  # nobody knows when: the store is gone, and is tried again every second
                left = 1.0
        elif no is Outcome.CIRCUIT_OPEN:
            left = self._picker.endpoints.seconds_left(now) if self._picker is not None else 0.0
        elif no is Outcome.OVERLOADED:
            left = 1.0
        detail = None if fault is not None else why or None
        return (own_answer(no, fault, detail=detail, retry_after=left, status=status), *self._finish(no, now))

    def _end_flight(self, state: Flying, no: Outcome, because: str, now: float) -> Actions:
        """The deadline, or the end of the process, ends what flies; an answer that was kept is better than none."""
        if self.hedged:
            actions = self._cancel_all_but(0, now, no.value)
            if self.failure is not None and self.failure.status is None:
                self.failure = None
            return (*actions, *self._stop_waiting(no, now, because))
        ((attempt, flight),) = state.flights.items()
        _land(flight, now)
        _cancelled(flight, now)
        self._learn(False, now)
        if self._admission is not None and self._admission.cooled:
            self._admission.landed(flight.since, now, well=False)
        self._note(attempt, flight, now, no.value).because = because
        if flight.reply is not None and flight.look is None:
            unnamed = Verdict(Class.UNNAMED, "its body did not arrive in time")
            self.failure = Failure(attempt, unnamed, NO_PUSHBACK, status=flight.reply.status)
            return self._give_up(no, now)
        return (Cancel(attempt), *self._refuse(no, now, "" if no is Outcome.DEADLINE else because))

    def _ended_by_trailers(self, attempt: int, reply: Reply, trailers: Fields, now: float) -> Actions:
        """A gRPC answer whose status came after its messages: committed, but the bucket and the app's log are told."""
        flight = self._flight
        assert flight is not None  # it is being delivered
        whole = self.reply = Reply(reply.status, trailers, end=True, trailers=trailers)
        verdict = classify(self.policy.classify, self.request, whole, b"")
        assert verdict is not NEEDS_BODY  # there is nothing to look at
        if verdict.cls is Class.SUCCESS:
            self._succeeded(attempt, now)
            return self._finish(Outcome.SUCCESS, now)
        self.committed = True
        if self._picker is not None and verdict.cls in _ILL:
            self._picker.tell_breaker(flight, ill=True, now=now, after_all=True)
        failure = failure_of(self, attempt, whole, verdict, flight.since, now + self.env.wall_offset)
        on = goes_on(self, failure)
        self._tell_of(failure, flight, on, now)
        no = first_no(self, failure, goes_on=on, disabled=False, safe=True)
        assert no is not None  # it is committed
        self._note_no(failure, flight, no, now, delivered=True)
        return self._finish(no, now)

    def _succeeded(self, attempt: int, now: float) -> None:
        """The call has succeeded: tell everybody who learns from that."""
        self._learn(False, now)
        if self.plugin is not None:
            self.plugin.succeeded()
        bucket = self.bucket
        is_first = self.attempts == self.earlier + 1
        if bucket is not None and self._app_paid is not None and is_first:
            bucket.app_succeeded(self._app_paid, now)
        elif bucket is not None:
            bucket.succeeded(None if is_first else self._paid, now)
        flight = self._flight
        assert flight is not None  # it is being delivered
        gone = self.fallbacks is not None and self.fallbacks.has_gone
        told = self.history or flight.look is not None or gone or self._keys is not None
        if told or (self._admission is not None and self._admission.held_attempt):
            self._note(attempt, flight, now, "delivered")

    def _give_back(self, now: float) -> None:
        """What was taken for an attempt that is not sent comes back, and no gate knows of it any more."""
        if self._payment is not None:
            self._payment.give_back(now)
            self._payment = None
        if self._admission is not None:
            self._admission.leave(now)

    def _finish(self, outcome: Outcome, now: float) -> Actions:
        self.state, admission = _DONE[outcome], self._admission
        if admission is not None and admission.cooled:
            admission.leave(now)
        if self._payment is not None:
            self._payment.leave_room()
        if self._flight is not None:
            _land(self._flight, now)
        return _FINISH[outcome]

    # -- what is written down ---------------------------------------------------------------------------------------

    def _why_not(self, no: Outcome, failure: Failure, now: float, delivered: bool = False) -> str:
        """Why this failure is not followed by another attempt, for people."""
        due = self._planned().due
        return why_not(no, failure, self, now, due=due, goes_on=goes_on(self, failure), delivered=delivered)

    def _note_no(self, failure: Failure, flight: Flight, no: Outcome, now: float, delivered: bool = False) -> None:
        why = self._why_not(no, failure, now, delivered=delivered)
        self._note(failure.attempt, flight, now, no.value, failure).why = why

    def _note_delivery(
        self, state: Delivering, now: float, decision: str, why: str = "", fault: Fault | None = None
    ) -> None:
        """Write down that the answer which the app was being given ends before it is whole."""
        if state.outcome is not _SUCCESS:  # it was noted when it was judged
            return
        assert self._flight is not None
        record = self._note(state.attempt, self._flight, now, decision)
        record.why = why
        if fault is not None:
            record.meet(fault)
        if self.reply is not None:
            record.status = self.reply.status

    def _note(
        self, attempt: int, flight: Flight, now: float, decision: str, failure: Failure | None = None
    ) -> AttemptRecord:
        payment, admission = flight.payment, self._admission
        price = 0.0 if payment is None else payment.price or 0.0
        record = AttemptRecord(attempt, flight.since, now)
        record.decision, record.price = decision, price
        record.endpoint, record.protocol = flight.sent_to, flight.protocol
        if flight.look is not None:
            record.first_byte = flight.look.seconds(flight.since)
        if self._keys is not None:
            record.key, record.key_why, record.aside = flight.key, flight.key_why, attempt in self._keys.asides
        if admission is not None and admission.held and attempt == admission.held_attempt:
            record.held, record.held_by = admission.held, admission.held_by
        if self.fallbacks is not None and self.fallbacks.has_gone:
            record.upstream, record.route = self.policy.upstream, self.policy.route
        if failure is not None:
            record.judge(failure, self.reply)
        elif self.reply is not None and decision == "delivered":
            record.status, record.cls = self.reply.status, _SUCCESS_CLASS
        self.history.append(record)
        return record


def _is_ill(failure: Failure) -> bool:
    """Whether an attempt's end is a sign that its endpoint is ill: a 421 is about a connection."""
    return failure.verdict.cls in _ILL and failure.verdict is not MISDIRECTED


def _land(flight: Flight, now: float) -> None:
    """A flight is not under way any more: it was judged a failure, cancelled, or its answer's last byte has come."""
    if flight.payment is not None:
        flight.payment.land(now)


def _cancelled(flight: Flight, now: float) -> None:
    """An attempt was cancelled: that decides nothing of its endpoint."""
    if flight.payment is not None:
        flight.payment.forgo_choice(now)
