"""The state of a call: what has happened to it so far, for all parts that decide about it.

The machine (`proxy.retry.call.machine.Call`) owns one `CallState`, and changes it with every event. The call's flow
(which says how its attempts follow each other) and its plan (which says when the next is due) read it and change it
too. Nothing is decided here.
"""

from __future__ import annotations

from typing import Any

from proxy.retry.answers.classification import read_by
from proxy.retry.answers.event_stream import is_event_stream
from proxy.retry.answers.stream_ends import ends_of
from proxy.retry.call.actions import Actions, Cancel, Discard, Hold
from proxy.retry.call.attempt_record import AttemptRecord
from proxy.retry.call.fallback import Fallbacks
from proxy.retry.call.next_attempt import NextAttempt
from proxy.retry.call.request_hints import NO_HINTS
from proxy.retry.call.states import Done, Flight, Flying, New, Next, State
from proxy.retry.facts import IDEMPOTENT_METHODS, Class, Failure, Outcome, Reply, Request, forwarded
from proxy.retry.policies.dialect import StreamEnds
from proxy.retry.policies.policy import Policy

_NEW = New()
#: Module-level names of enumeration members, which are faster to read: see `proxy.retry.facts`.
_SUCCESS_CLASS = Class.SUCCESS


class CallState:
    """The state of one call.

    `attempts`: how many attempts were made. `earlier`: how many of them at other upstreams, before the call fell back
    to this one. `spared`: how many of them were probes of an outage that were not processed, and do not count for
    `max_attempts`. `ambiguous`: an attempt that has ended here may have been carried out. `committed`: no further
    attempt is possible. `state`: whether attempts are in flight, or what else the call waits for. `history`: the
    records of the attempts that have ended. `failure`: the last failed attempt, while its answer is held. `reply`: the
    last answer that was judged, or is delivered. `delivered`: the attempt whose answer is delivered. `ends`: the ways
    in which a stream that the request asked for may end, None until they are looked up. `resumption`: how often the
    answer went on after a break, None if it has not. `next_attempt`: the next attempt's bucket, gates and endpoint.
    `plan`: the plan of the call's flow, None until it is needed.
    """

    __slots__ = (
        "ambiguous",
        "attempts",
        "committed",
        "deadline",
        "delivered",
        "earlier",
        "ends",
        "failure",
        "fallbacks",
        "hints",
        "history",
        "next_attempt",
        "plan",
        "policy",
        "reply",
        "request",
        "resumption",
        "spared",
        "state",
    )  # fmt: skip

    def __init__(
        self, request: Request, policy: Policy, next_attempt: NextAttempt, fallbacks: Fallbacks | None
    ) -> None:
        self.begin(request, policy, next_attempt, fallbacks)

    def begin(self, request: Request, policy: Policy, next_attempt: NextAttempt, fallbacks: Fallbacks | None) -> None:
        """Begin the call. The machine does this on a new object, past the constructor, which takes longer."""
        self.request = request
        self.policy = policy
        self.next_attempt = next_attempt
        self.fallbacks = fallbacks
        self.state: State = _NEW
        self.attempts = self.earlier = self.spared = 0
        self.deadline: float | None = None
        self.committed = self.ambiguous = False
        self.hints = NO_HINTS
        self.history: tuple[AttemptRecord, ...] = ()
        self.failure: Failure | None = None
        self.reply: Reply | None = None
        self.delivered: Flight | None = None
        self.ends: tuple[StreamEnds, ...] | None = None
        self.resumption: Any = None  # a Resumption, which knows this class
        self.plan: Any = None  # Sequential or Hedged, which know this class

    # -- what drivers read --------------------------------------------------------------------------------------------

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the call; None while it lasts."""
        return self.state.outcome if isinstance(self.state, Done) else None

    @property
    def held_by(self) -> str:
        """The gate that holds, or held, the attempt that is next or in flight; "" for none."""
        admission = self.next_attempt.admission
        return admission.held_by if admission is not None else ""

    @property
    def kept_off(self) -> tuple[float, float]:
        """Two delays in seconds, for the fields of the answer: what was left of the cooldown that ended the call, and
        the delay that the last failed answer asked for. Each is 0 for none.
        """
        asked = self.failure.pushback.delay if self.failure is not None else None
        admission = self.next_attempt.admission
        return (admission.cooling[0] if admission is not None else 0.0), asked or 0.0

    @property
    def found_no_place(self) -> bool:
        """Whether the call ended because no place among the attempts under way became free for it, or because the queue
        of the calls that a limit or an outage holds was full.
        """
        admission = self.next_attempt.admission
        return admission is not None and admission.found_no_place

    # -- what a plan may know -----------------------------------------------------------------------------------------

    def is_idempotent(self) -> bool:
        """Whether the request may be repeated even if it was carried out: because of its method (RFC 9110, section
        9.2.2), because of an idempotency key (contract, "Safety", 3), or because one of the dialects (rules for a
        provider) calls it a read.
        """
        if self.may_be_hedged():
            return True
        rules = self.policy.classify
        return bool(rules.reads) and read_by(rules, self.request) is not None

    def may_be_hedged(self) -> bool:
        """Whether the request is idempotent by its method or its key. For hedging, it is not enough that a dialect
        (rules for a provider) calls the request a read.
        """
        if self.request.method in IDEMPOTENT_METHODS:
            return True
        key = self.policy.idempotency_key
        return self.request.is_idempotent(key.header.lower(), key.inject)

    def stream_ends(self, reply: Reply) -> tuple[StreamEnds, ...]:
        """The events with which the stream of this answer may end. Empty if the answer is no stream of events, or if
        the policy's dialect packs name no such events for this request.
        """
        if not self.policy.classify.stream_ends or not is_event_stream(reply):
            return ()
        if self.ends is None:
            self.ends = ends_of(self.policy.classify, self.request, reply)
        return self.ends

    def has_key(self) -> bool:
        """Whether the request carries an idempotency key, of the app's own or of redrive's."""
        key = self.policy.idempotency_key
        if key.inject and self.request.method in ("POST", "PATCH"):
            return True
        return bool(forwarded(self.request.fields, key.header.lower()))

    def hedging_delay(self, now: float) -> float | None:
        """The seconds from one hedge to the next; None if the strategy asks for a percentile of measured times, and too
        few times have been measured.
        """
        strategy, hedges = self.policy.strategy, self.next_attempt.scope.hedges
        if strategy.hedging_percentile is None or hedges is None:
            return strategy.hedging_delay
        return hedges.delay(strategy.hedging_percentile, now)

    # -- attempts in flight, and the answer that is held --------------------------------------------------------------

    def in_flight(self, attempt: int) -> Flight | None:
        """The object of this attempt while it is under way; None if it is not."""
        state = self.state
        if type(state) is not Flying:
            return None
        flying = state
        return flying.flights.get(attempt)

    def flies(self) -> bool:
        """Whether any attempt is in flight."""
        state = self.state
        return type(state) is Flying and bool(state.flights)

    def expected(self) -> Next | None:
        """The next attempt: the planned retry, or the planned hedge; None if none is planned."""
        state = self.state
        return state.planned if type(state) is Flying else state if type(state) is Next else None

    def cancel_all_but(self, attempt: int, now: float, decision: str = "cancelled") -> Actions:
        """Cancel all attempts in flight except this one, and record `decision` for each. A cancelled attempt counts
        neither as success nor as failure. Returns the actions that cancel these attempts.
        """
        state = self.state
        assert type(state) is Flying
        losers = [flight for number, flight in state.flights.items() if number != attempt]
        for flight in losers:
            del state.flights[flight.attempt]
            flight.cancel(now)
            self.next_attempt.dropped(flight, now)
            self.note(flight, now, decision)
        return tuple([Cancel(flight.attempt) for flight in losers])

    def keep(self, failure: Failure) -> Actions:
        """Hold the answer of the latest failure, in place of the answer held before. If the failure is a fault, it has
        no answer, and the one held before is kept. Returns the actions for the driver.
        """
        before = self.discard()
        if failure.status is not None or not before:
            self.failure = failure
        return () if failure.status is None else (*before, Hold(failure.attempt))

    def discard(self) -> Actions:
        """The action that discards the answer that is held; empty if none is."""
        failure = self.failure
        return () if failure is None or failure.status is None else (Discard(failure.attempt),)

    def plan_no_more(self, now: float) -> None:
        """Cancel the planned hedge, if there is one, and give its payment back; the attempts in flight go on."""
        state = self.state
        if type(state) is Flying and state.planned is not None:
            state.planned = None
            self.next_attempt.give_back(now)

    # -- what is written down -----------------------------------------------------------------------------------------

    def note(
        self, flight: Flight, now: float, decision: str, failure: Failure | None = None, reply: Reply | None = None
    ) -> AttemptRecord:
        """Record the end of an attempt, and the decision after it; return the record. `failure`: how the attempt
        failed, None if it did not. `reply`: the last answer that was judged, which is the attempt's own unless a fault
        ended the attempt.
        """
        record = AttemptRecord.__new__(AttemptRecord)  # past its own constructor, which takes twice as long
        record.attempt = flight.attempt
        record.started = flight.since
        record.ended = now
        record.decision = decision
        record.endpoint = flight.sent_to
        record.protocol = flight.protocol
        record.price = 0.0 if flight.payment is None else flight.payment.price or 0.0
        record.key, record.key_why, record.aside = flight.key, flight.key_why, flight.aside
        record.held = flight.held
        record.held_by = flight.held_by if flight.held else ""
        record.range = flight.range
        record.first_byte = None if flight.body_wait is None else flight.body_wait.seconds(flight.since)
        record.grpc_status = record.fault = record.rst_code = record.delay = None
        record.detail = record.error = record.why = ""
        if failure is not None:
            verdict, pushback = failure.verdict, failure.pushback
            record.status, record.cls, record.because = failure.status, verdict.cls, verdict.because
            record.pushback, record.pushback_delay = pushback.source, pushback.delay
            if failure.fault is not None:
                record.record_fault(failure.fault)
            elif reply is not None and not reply.plain:
                record.grpc_status = reply.grpc_status
        else:
            record.status = record.cls = record.pushback_delay = None
            record.because = record.pushback = ""
            if reply is not None and decision == "delivered":
                record.status, record.cls = reply.status, _SUCCESS_CLASS
        self.history = (self.history + (record,)) if self.history else (record,)  # noqa: RUF005  faster, compiled
        if self.fallbacks is None or not self.fallbacks.has_gone:
            record.upstream = record.route = ""
        else:
            record.upstream, record.route = self.policy.upstream, self.policy.route
        return record
