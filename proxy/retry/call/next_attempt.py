"""The next attempt of a call: its payment, its passage through the gates, its endpoint and its credential.

Whatever is taken here is sent with the attempt (`take`), or given back (`give_back`), by the law of payments
(`proxy.retry.call.payment`).
"""

from __future__ import annotations

from proxy.retry.budgets.buckets import Bucket
from proxy.retry.budgets.rates import Rates
from proxy.retry.budgets.token_bucket import REJECTED
from proxy.retry.budgets.token_estimate import Estimate, price_of
from proxy.retry.call.admission import Admission, Alarm
from proxy.retry.call.endpoint_picker import EndpointPicker
from proxy.retry.call.environment import Env
from proxy.retry.call.gates import GATES
from proxy.retry.call.payment import Payment, pay_for
from proxy.retry.call.reasons import CIRCUIT_OPEN, NO_LONGER_SAFE, NO_TOKEN, circuit_open
from proxy.retry.call.states import Flight, Next, State
from proxy.retry.facts import Class, Failure, Fault, Outcome, Request
from proxy.retry.instants import EPSILON
from proxy.retry.policies.policy import Policy
from proxy.retry.scopes.scope_state import ScopeState
from proxy.retry.upstreams.credentials import CallKeys
from proxy.retry.weather.ahead import SentNote
from proxy.retry.weather.caller import Caller
from proxy.retry.weather.cooldown import credential_of
from proxy.retry.weather.route_names import RouteNames, names_of

_THROTTLING = Class.THROTTLING
#: The gates that give tokens, and know when.
_GIVE_TOKENS = ("rate", "limiter")


class NextAttempt:
    """The next attempt of one call.

    `scope`: the state that calls with the credential in use share. `bucket`: the bucket that retries are paid from.
    `cools`: cooldowns hold this call. `governs`: the governor may hold this call, and learns from its attempts.
    `payment`: what was taken for the attempt, None for nothing. `admission`: the call as gates know it, None until one
    was asked. `picker`: picks the call's endpoints, if the core chooses them. `keys`: picks the call's credentials, if
    the policy has some. `alarm`: the function that moves the call's only alarm. `paid`: the tokens that the latest
    retry paid, None if none has paid. `app_paid`: the tokens that were charged for the call as a whole, because it is
    itself a retry that the app makes. `estimate`: what an attempt costs at rate buckets that count a language model's
    tokens. `held_before`: the seconds for which earlier upstreams held the call, before it fell back to this one;
    `hold` bounds all holds of a call together.
    """

    __slots__ = (
        "_caller",
        "admission",
        "alarm",
        "app_paid",
        "bucket",
        "cools",
        "env",
        "estimate",
        "governs",
        "held_before",
        "keys",
        "paid",
        "payment",
        "picker",
        "policy",
        "request",
        "scope",
    )  # fmt: skip

    def __init__(
        self,
        request: Request,
        policy: Policy,
        scope: ScopeState,
        env: Env,
        alarm: Alarm | None,
    ) -> None:
        self.begin(request, policy, scope, env, alarm)

    def begin(self, request: Request, policy: Policy, scope: ScopeState, env: Env, alarm: Alarm | None) -> None:
        """Begin with nothing taken. A call does this on a new object, past the constructor, which takes longer."""
        self.request = request
        self.policy = policy
        self.scope = scope
        self.env = env
        self.alarm = alarm
        self.cools = False
        self._caller: Caller | None = None
        self.governs = False
        self.held_before = 0.0
        self.paid: float | None = None
        self.app_paid: float | None = None
        self.bucket: Bucket | None = self.scope.used_bucket(self.request.app)  # of attributes, whose types are known
        self.keys: CallKeys[ScopeState] | None = None
        self.picker: EndpointPicker | None = None
        self.payment: Payment | None = None
        self.admission: Admission | None = None
        self.estimate: Estimate | None = None
        if self.scope.endpoints is not None:
            endpoints = self.scope.endpoints.of(request.authority)
            self.picker = EndpointPicker(endpoints, policy, env.circuit_changed)

    @property
    def held_in_all(self) -> float:
        """The seconds for which governors have held the call, including those of earlier upstreams."""
        return self.held_before if self.admission is None else self.admission.held_in_all

    @property
    def was_held(self) -> bool:
        """Whether a gate has held any attempt of the call."""
        return self.admission is not None and self.admission.held_attempt != 0

    def payable(self) -> Payment:
        """The payment for the attempt; it is made here if there is none yet."""
        if self.payment is None:
            self.payment = self._new_payment()
        return self.payment

    def _new_payment(self) -> Payment:
        return Payment(self.bucket, self.env.waiting, self.policy.upstream, self.request.app)

    def gates(self) -> Admission:
        """The call as gates know it; it is made here if there is none yet."""
        admission = self.admission
        if admission is None:
            endpoints = None if self.picker is None else self.picker.endpoints
            admission = self.admission = Admission(self.policy, self.scope, self.alarm, self.caller(), endpoints)
            admission.estimate = self.estimate
        return admission

    def caller(self) -> Caller:
        """The call as the governor knows it; it is made here if there is none yet."""
        caller = self._caller
        if caller is None:
            request, policy = self.request, self.policy
            caller = self._caller = Caller(request, self.scope.caller(request), policy.route)
            if self.governs and request.method != "CONNECT":  # a tunnel's end says nothing of the calls in it
                caller.limits = policy.limit is not None
                caller.outages = policy.outage == "hold"
            caller.ahead = self._may_wait_ahead()
            caller.whole = policy.pushback.of == "upstream"
            caller.held_before = self.held_before
        caller.cools = self.cools
        return caller

    def plain_names(self) -> RouteNames | None:
        """The names of the call's route, in the simple case in which the governor needs nothing else of the call while
        all is well: no gate was asked, there is one endpoint, and limits and outages may hold the call. None in any
        other case.
        """
        policy, picker = self.policy, self.picker
        if self.admission is not None or policy.limit is None or policy.outage != "hold":
            return None
        if self.request.method == "CONNECT" or (picker is not None and picker.several):
            return None
        return names_of(policy.route, self.request)

    def _may_wait_ahead(self) -> bool:
        """Whether the call may wait until it fits into the limits that answers reported; a hedged call may not."""
        rules = self.policy.pushback
        if not rules.ahead or not self.governs or self.request.method == "CONNECT":
            return False
        return self.cools or rules.cooldown == "off"

    def forget_gates(self) -> None:
        """Drop the objects by which gates and the governor know the call, if they say nothing about earlier attempts. A
        call that waits for its backoff then takes less memory; the objects are made again when a gate is asked.
        """
        if self.admission is not None and not self.admission.is_as_new:
            return
        self.admission, caller = None, self._caller
        if caller is not None and caller.is_as_new and caller.ahead == self._may_wait_ahead():
            self._caller = None

    def carry(self, keys: CallKeys[ScopeState]) -> None:
        """Let the call's attempts carry the credentials that `keys`, the call's choice among the policy's credentials,
        picks.
        """
        self.keys = keys
        self.scope = keys.lane

    def pass_gates_of(self, keys: CallKeys[ScopeState], now: float) -> None:
        """Move the call to the gates of the credential that `keys` has chosen, since the attempt now carries that
        one.
        """
        self.scope = keys.lane
        if self._caller is not None:
            self._caller.move(self.scope.caller(self.request))
        if self.payment is not None:
            self.payment.leave_gates(now)
        if self.admission is not None:
            self.admission.move(self.scope, now)

    def replace_lost_key(self, now: float) -> float:
        """Choose another credential if another call has put the one in use aside, because the upstream refuses it.
        Returns the seconds for which this call may not use the new one yet, by the delays that answers to it named; 0
        if it may, or if the credential stays.
        """
        if self.keys is None or not self.keys.replace_lost(now):
            return 0.0
        self.pass_gates_of(self.keys, now)
        return self.keys.own_left(now)

    def choose(self, state: State, now: float, only: int | None = None) -> bool:
        """Choose the attempt's endpoint, if the core does so. Returns False if the circuit breakers of all endpoints
        are open. `state`: the call's state, which shows the endpoints in use. `only`: the number of the only endpoint
        that may be chosen, as `prefer` returned it.
        """
        return self.picker is None or self.picker.choose(self.payable(), state, now, only)

    def prefer(self, state: State, now: float) -> int | None:
        """Choose the endpoint whose lanes the call asks next, move the call there, and return its number. None if the
        core does not choose among several endpoints, or if no call is held. `state`: the call's state, which shows the
        endpoints in use.
        """
        picker, governor = self.picker, self.scope.governor
        if picker is None or not picker.several:
            return None
        if not (governor.holds(now) or governor.ahead is not None or picker.is_pushed):
            return None
        caller, waiter = self.caller(), self.gates()
        preferred = picker.prefer(state, now, lambda label: governor.wait_at(waiter, caller, label, now))
        if preferred is not None:
            governor.move(waiter, caller, picker.label(preferred), now)
        return preferred

    def another_at_once(self, failure: Failure, now: float) -> bool:
        """Whether the next attempt is sent to another endpoint at once: by `pushback.of: endpoint`, a delay that one
        endpoint names does not hold calls to the others (contract, section 5, "Whose word it is").
        """
        return self._is_word_of_endpoint(failure) and self.is_free_elsewhere(now)

    def sooner_elsewhere(self, failure: Failure, now: float) -> float | None:
        """The seconds until another endpoint is free for the call, if that is sooner than the delay which this failure
        names for its own endpoint; None if it is not, or if the delay holds for all endpoints.
        """
        picker, delay = self.picker, failure.pushback.delay
        if picker is None or delay is None or self.keys is not None or not self._is_word_of_endpoint(failure):
            return None  # of several credentials, the next attempt may carry one that was refused there
        governor, caller, waiter = self.scope.governor, self.caller(), self.gates()
        sooner = picker.sooner(now, lambda label: governor.wait_at(waiter, caller, label, now))
        return sooner if sooner < delay else None

    def _is_word_of_endpoint(self, failure: Failure) -> bool:
        """Whether an answer like this failure speaks for its endpoint alone, of several."""
        picker, policy = self.picker, self.policy
        if picker is None or policy.pushback.of != "endpoint" or not picker.several or failure.status is None:
            return False
        return failure.verdict.cls is _THROTTLING or (failure.status == 503 and failure.pushback.delay is not None)

    def is_free_elsewhere(self, now: float) -> bool:
        """Whether there is an endpoint at which the call has not failed, and to which it could be sent now."""
        picker = self.picker
        if picker is None or not picker.several:
            return False
        governor, caller, waiter = self.scope.governor, self.caller(), self.gates()
        return picker.is_left(now, lambda label: governor.wait_at(waiter, caller, label, now))

    def why_no_endpoint(self, now: float) -> str:
        """The reason, for people, why no endpoint could be chosen."""
        assert self.picker is not None  # `choose` returned False
        return circuit_open(self.picker.endpoints.seconds_left(now))

    def ask(
        self, planned: Next, state: State, now: float, deadline: float | None, *, first: bool
    ) -> tuple[float, Outcome | None, str]:
        """Ask the gates for the planned attempt. If the result is that it may be sent at once, its endpoint has been
        chosen.

        Returns three values. If the attempt may be sent now or later: the time at which to send it or ask again, None,
        and the gate that holds it ("" if it waits for a delay of its own). If it is refused: a time without a meaning,
        the call's outcome, and the reason. `state`: the call's state, which shows the endpoints in use. `deadline`: the
        call's deadline (seconds), None for none. `first`: this is the call's first attempt at this upstream.
        """
        payment, keys, picker = self.payable(), self.keys, self.picker
        only = self.prefer(state, now)
        left = 0.0 if picker is None or only is None else picker.left(only, now)
        if left > 0:  # the others hold the call for longer than its own pushback does here, or are not able to take it
            return self.gates().wait_for_own(payment, left, planned.until, now, deadline)
        at, no, gate = self.gates().ask(payment, now, deadline, first=first)
        held = no is not None or at > now
        if held and no is not Outcome.CIRCUIT_OPEN and keys is not None and keys.move(now, self._fits):
            self.pass_gates_of(keys, now)
            at, no, gate = self.gates().ask(payment, now, deadline, first=first)
        if no is None and at <= now <= planned.until + EPSILON:
            if self.choose(state, now, only):
                return now, None, ""
            no, gate = Outcome.CIRCUIT_OPEN, CIRCUIT_OPEN
        why = "" if no is None or gate in GATES else gate
        if no is Outcome.RATE_LIMITED and not first:
            why = why or NO_TOKEN
        if max(at, now) > planned.until + EPSILON:
            return at, Outcome.NOT_RETRYABLE, NO_LONGER_SAFE
        if no is not None:
            return at, no, why
        if gate == "ahead" and not payment.wait("held", self.admission):
            self.gates().forgo_ahead(now)
            return self.ask(planned, state, now, deadline, first=first)
        return self.gates().wait_for_gate(gate, payment, at, self._answer_time(gate), now)

    def _fits(self, scope: ScopeState, now: float) -> bool:
        """Whether the attempt would fit into the rest of the limits that answers reported for a credential. `scope`:
        the state of that credential.
        """
        ahead = scope.governor.ahead
        if ahead is None or scope.who is None:
            return True
        whose = self.caller().endpoint, credential_of(scope.who)
        return ahead.wait(whose, self.gates(), now) <= 0

    def _answer_time(self, gate: str) -> float:
        """The seconds in which answers of the call's route usually come, at the least. A token that a gate gives this
        shortly before the deadline is lost, and another call could have used it. 0 if the time is not known, for gates
        that give no tokens, and where the policy's `concurrency` is not `auto`.
        """
        if gate not in _GIVE_TOKENS or self.policy.limit is None or not self.governs:
            return 0.0
        return self.scope.governor.usual.of_alone(self.caller().names.timed)

    def pay_for(self, planned: Next, now: float) -> Next | Outcome:
        """Take the price of a retry that the plan grants (`planned`), and a place in the waiting room for the time
        until it is due. Returns the retry; if price or place is refused, the outcome of the call.
        """
        room, upstream, app = self.env.waiting, self.policy.upstream, self.request.app
        paid = pay_for(self.bucket, room, upstream, app, planned.price, planned.due, now)
        if not isinstance(paid, Payment):
            return paid
        self.payment = paid
        return planned

    def take(self, attempt: int, state: State, now: float) -> Flight:
        """Return the object that stands for the attempt while it is under way, since the attempt is sent now with
        everything that was taken for it. `attempt`: its number. `state`: the call's state, from which the picker of
        endpoints reads which have been tried.
        """
        payment, admission, keys = self.payment, self.admission, self.keys
        if payment is not None:
            payment.leave_room()
            if payment.price is not None:  # an attempt in place of one that does not count pays nothing
                self.paid = payment.price
            self.payment = None
        flight = Flight.__new__(Flight)
        flight.begin(attempt, now, payment)
        if admission is not None:
            admission.sent(flight, attempt, now)
            if admission.held_attempt == attempt:
                flight.held, flight.held_by = admission.held, admission.held_by
        if self.picker is not None:
            flight.endpoint = self.picker.take(payment, state, now)
            self._count(flight, now)
        ahead = self.scope.governor.ahead
        if ahead is not None and self.policy.pushback.ahead:
            whose = self.endpoint_of(flight), self.caller().credential()
            flight.note = SentNote(whose, ahead.account(whose), price_of(self.estimate), now)
        if self.governs:
            picker, scope = self.picker, self.scope
            several = picker is not None and picker.several
            traffic = scope.governor.lanes.traffic_of(self.endpoint_of(flight)) if several else scope.governor.traffic
            flight.traffic = traffic
            traffic.flying += 1
        if keys is not None:
            flight.key, flight.key_why = keys.key, keys.why
        return flight

    def take_again(self, flight: Flight, state: State, fault: Fault, now: float) -> int | None:
        """Choose and count the endpoint of a transparent retry: the attempt `flight` is sent once more, because its
        first sending ended with `fault` before it was processed. Returns the endpoint's number; None if the driver
        chooses it. `state`: the call's state, which shows the endpoints in use.
        """
        picker, governor = self.picker, self.scope.governor
        if picker is None:
            return None

        def waits(label: str) -> float:
            return governor.wait_at(self.gates(), self.caller(), label, now) if governor.holds(now) else 0.0

        endpoint = picker.take_again(flight, state, fault, now, waits)
        self._count(flight, now)
        return endpoint

    def _count(self, flight: Flight, now: float) -> None:
        """Count the attempt as under way to its endpoint, if the choice of endpoints depends on such counts."""
        assert self.picker is not None  # it chose the endpoint
        load = None if flight.endpoint is None else self.picker.load(flight.endpoint)
        if load is not None:
            if flight.payment is None:
                flight.payment = Payment(None, self.env.waiting, self.policy.upstream)
            flight.payment.fly(load, now)

    def learn_patience(self, now: float) -> None:
        """Report to the governor, if it holds the call, that the call's app has left: the governor learns how long apps
        wait (contract, section 14, "An app's patience is learnt").
        """
        held = 0.0 if self.admission is None else self.admission.held_for(now)
        if held > 0.0:
            self.scope.governor.patience.left(self.policy.route, held, now)

    def give_back(self, now: float) -> None:
        """Give back everything that was taken for an attempt that is not sent, and leave the gates."""
        if self.payment is not None:
            self.payment.give_back(now)
            self.payment = None
        if self.admission is not None:
            self.admission.leave(now)

    def finish(self, now: float) -> None:
        """Remove the call, which has ended, from the governor's queues and the waiting room, and free the place that it
        may hold after a cooldown.
        """
        if self.admission is not None and self.admission.cooled:
            self.admission.leave(now)
        if self.payment is not None:
            self.payment.leave_room()

    def endpoint_of(self, flight: Flight) -> str:
        """The name by which the governor knows the endpoint of an attempt: the endpoint's label, or "" if there is only
        one.
        """
        picker = self.picker
        return "" if picker is None or flight.endpoint is None or not picker.several else picker.label(flight.endpoint)

    def freed(self, flight: Flight, now: float, waits: bool) -> None:
        """Report to the governor that the head of this attempt's answer has come, which frees the attempt's place. How
        the attempt ends is reported later. `waits`: the first byte that counts is waited for, and has not come.
        """
        if self.admission is not None:
            self.scope.governor.freed(flight, flight.since, now, waits)

    def dropped(self, flight: Flight, now: float) -> None:
        """Report to the governor that the attempt was cancelled, or ended in a way that says nothing about its
        upstream.
        """
        traffic = flight.traffic
        if traffic is not None:
            flight.traffic = None
            traffic.dropped()
            self.scope.governor.dropped(flight, flight.since, now)

    @property
    def comes_late(self) -> bool:
        """Whether the call came so late in an outage that it is not held until the outage ends."""
        return self.admission is not None and self.admission.comes_late

    def hold_again(self, flight: Flight, now: float) -> float:
        """Put the call first into the queue of the outage whose probe was the attempt `flight`. The price of that
        attempt pays for the next one. Returns the price in tokens.
        """
        payment = self.payment = self._new_payment()
        if flight.payment is not None:
            payment.take_over(flight.payment)
            if payment.price is not None:
                self.paid = None  # until the next attempt is sent with it
        admission = self.gates()
        self.scope.governor.stays(admission, self.caller(), now)
        admission.cooled = admission.caller.was_probe = True
        return payment.price or 0.0

    @property
    def found_limit(self) -> bool:
        """Whether the call is refused because it found no place under a limit that redrive itself has set up
        (`concurrency: auto`).
        """
        return self.policy.limit is not None and self.admission is not None and self.admission.found_no_place

    def retry_after(self, no: Outcome, now: float) -> tuple[float | None, int | None]:
        """The seconds after which an app whose call ends with the outcome `no` may ask again, and the status with which
        the proxy answers the call. Each is None if nothing determines it.
        """
        if no is Outcome.COOLING:
            return self.gates().cooling
        if no is Outcome.OUTAGE or (no is Outcome.OVERLOADED and self.found_limit):
            return max(1.0, self.gates().cooling[0]), None
        left: float | None = None
        if no is Outcome.RATE_LIMITED:
            left = self._rate_left(now)
            if left == REJECTED:  # the store is unreachable, and is tried again every second
                left = 1.0
        elif no is Outcome.CIRCUIT_OPEN:
            left = self.picker.endpoints.seconds_left(now) if self.picker is not None else 0.0
        elif no is Outcome.OVERLOADED:
            left = 1.0
        return left, None

    def _rate_left(self, now: float) -> float:
        """The seconds until the rate buckets can pay for the attempt; 0 if none has to be paid."""
        rate = self.scope.rate
        if rate is None:
            return 0.0
        return rate.seconds_left(now, self.estimate) if isinstance(rate, Rates) else rate.seconds_left(now)
