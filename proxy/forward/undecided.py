"""A call for which nothing has to be decided: its attempt is sent at once, without a `Call`.

Nearly every call is one of these: no gate holds it, the pool has an idle connection or one is opened at once, and the
answer is a success. If anything else happens, the exchange makes a `Call` from what is kept here, as if that `Call` had
existed from the start.
"""

from __future__ import annotations

from functools import partial

from proxy.forward.attempt import Attempt, AttemptOwner
from proxy.forward.call_report import look_for_repeat, report_of
from proxy.forward.context import Context
from proxy.forward.delivery import Delivery
from proxy.forward.request_plan import Plan
from proxy.forward.sending import AttemptDial, Send
from proxy.observe.call_record import SUCCESS, Course, at_once_with, only_attempt
from proxy.retry.budgets.buckets import Bucket
from proxy.retry.call.at_once import answered, learn_success, pass_gates, turn_back
from proxy.retry.capacity.traffic import Traffic
from proxy.retry.facts import IDEMPOTENT_METHODS, Request
from proxy.retry.scopes.scope_state import ScopeState
from proxy.retry.upstreams.credentials import CallKeys
from proxy.retry.upstreams.endpoints import Choice, Endpoints
from proxy.transport.connection import Connection
from proxy.transport.origins import Origin
from proxy.transport.streams import UpstreamStream
from proxy.wire.first_bytes import HTTP1, HTTP2
from proxy.wire.head import PreparedRequest


class Undecided:
    """The part of an exchange that sends calls without a `Call`; kept with it from one call to the next. `context`:
    what the exchanges of a worker share.

    `first`: the only attempt of such a call. `body`: the whole body of its request. `scope`: the state that the call
    shares with others; `bucket`: the bucket that its retries would be paid from, None for none. `keys`: the choice of
    the credential that it carries, None if its policy has none. `traffic`: the count of attempts under way that
    includes it, None once its answer came. `endpoints`: the only endpoint, if its circuit breaker has to learn how the
    attempt ends, else None; `choice`: that endpoint as it was chosen, None under `mode: observe` and `off`, which ask
    no breaker.
    """

    __slots__ = ("body", "bucket", "choice", "context", "endpoints", "first", "keys", "scope", "traffic")

    scope: ScopeState

    def __init__(self, context: Context) -> None:
        self.context = context
        self.bucket: Bucket | None = None
        self.first: Attempt | None = None
        self.body = b""
        self.keys: CallKeys[ScopeState] | None = None
        self.traffic: Traffic | None = None
        self.endpoints: Endpoints | None = None
        self.choice: Choice | None = None

    def _pass_gates(self, scope: ScopeState, request: Request, now: float) -> bool:
        """Choose the call's credential, if its policy has any, and let the call pass all gates, at which it takes what
        its attempt costs. Returns whether it has passed: False, with nothing taken, if a gate or a circuit breaker
        might hold it.
        """
        if scope.endpoints is not None and not self._choose_endpoint(scope, request):
            return False
        if scope.keys is not None:
            self.keys = CallKeys(scope.keys, now)
            scope = self.keys.lane
        if scope.mode:
            return True  # no gate holds it: the policy observes, or is off
        if scope.governor.holds(now):
            return False
        return scope.ungated or pass_gates(scope, request.app, now)

    def _choose_endpoint(self, scope: ScopeState, request: Request) -> bool:
        """Note the only endpoint, whose circuit breaker has to learn how the attempt ends; return False if the breaker
        might hold the call.
        """
        assert scope.endpoints is not None  # the caller has looked
        self.endpoints = scope.endpoints.of(request.authority)
        self.choice = None
        if scope.mode:
            return True
        self.choice = self.endpoints.choose_only()
        return self.choice is not None

    def begin(self, owner: AttemptOwner, plan: Plan, scope: ScopeState, body: bytes, now: float) -> Attempt | None:
        """Begin the call, and return its attempt. The attempt is sent on an idle connection. If there is none and the
        request has no body, the attempt is returned without a stream, and `dial` has to open a connection for it.
        Returns None, with nothing taken, if something might hold the call. `owner`: gets the attempt's events; `body`:
        the request's whole body.
        """
        request, destination = plan.request, plan.destination
        if scope.ungated and scope.endpoints is None and not scope.mode:  # the case of most calls
            if scope.governor.holds(now):  # asked, not read: with several workers it is in common memory
                return None
        elif not self._pass_gates(scope, request, now):
            return None
        origin, method = destination.only or destination.next_origin((), now), request.method
        stream = self.context.pool.lease(origin, now, method == "GET" or method in IDEMPOTENT_METHODS)
        if stream is None and (body or not origin.may_dial_at_once):
            turn_back(scope if self.keys is None else self.keys.lane, now)
            return None
        if destination.only is None:
            destination.took(origin)
        app, used = request.app, scope.used
        bucket = used.bucket if app is used.app else scope.used_bucket(app)
        if bucket is not None:
            if bucket.rests:
                bucket.called_at = now
            else:
                bucket.begin(now)
        self.scope, self.bucket, self.body = scope, bucket, body
        if scope.mode == 2:  # off
            self.traffic = None
        else:
            traffic = self.traffic = scope.governor.traffic
            traffic.flying += 1
        first = self.first
        if first is None:
            first = self.first = owner.flights[1] = Attempt(owner, 1, origin)
        first.origin, first.stream = origin, stream
        if stream is None:
            first.sent_at, first.protocol = None, ""
            return first
        first.sent_at = now
        prepared = plan.prepared
        if prepared is None or prepared.head is not plan.head:  # a request with a credential is kept by `keyed_request`
            prepared = self._prepare(plan, origin)
        if isinstance(stream, Connection):
            first.protocol = HTTP1
            connection = stream
            connection.send(first, prepared, body, True, None)
        else:
            first.protocol = HTTP1 if stream.shared is None else HTTP2
            stream.send(first, prepared, body, True, None)
        return first

    def _prepare(self, plan: Plan, origin: Origin) -> PreparedRequest:
        """Return the request as the attempt sends it to `origin`, if the plan has not prepared it yet."""
        if self.keys is not None:
            return plan.keyed_request(origin, self.context.via, self.keys.key)
        return plan.first_request(origin, self.context.via)

    def dial(self, plan: Plan, send: Send) -> None:
        """Open a connection for the attempt that was begun, and then call `send`, which sends its request."""
        first, pool, request = self.first, self.context.pool, plan.request
        assert first is not None  # it was begun
        within = plan.policy.timeouts.connect
        dial = AttemptDial(pool, first, send)
        if dial.begin(within):
            first.task = dial
            return
        idempotent = request.method in IDEMPOTENT_METHODS
        opening = partial(pool.open, first.origin, within=within, idempotent=idempotent, app=request.app)
        first.task = self.context.loop.create_task(dial.wait(opening))

    def send_on(self, plan: Plan, stream: UpstreamStream, now: float) -> None:
        """Send the request of the attempt that was begun on `stream`, which was opened for it."""
        first = self.first
        assert first is not None  # it was begun
        first.stream, first.sent_at, first.protocol = stream, now, HTTP1
        stream.send(first, self._prepare(plan, first.origin), self.body, True, None)

    def answered_well(self, plan: Plan, started: float, now: float) -> None:
        """Report the head of the attempt's answer, which is no failure, to the governor (the object that finds out the
        limits and outages of the upstream), and to the endpoint. `started`: when the call began.
        """
        traffic, self.traffic = self.traffic, None
        if traffic is not None and traffic.went_well(now):
            scope, request = self.scope, plan.request
            scope.governor.answered_undecided(plan.policy.route, request, scope.caller(request), started, now)
        if self.endpoints is not None:
            self.endpoints.reached(0)
            if self.choice is not None:
                answered(self.choice, plan.policy, self.context.env, started, now)

    def succeeded(self, plan: Plan, delivery: Delivery, started: float, now: float, looked: bool) -> None:
        """Report the call, which began at `started` and has succeeded, to the objects that calls share and that learn
        from it (its bucket, limiters and breakers), and to the observers. `looked`: whether its success was judged by
        the answer's body too (`proxy.forward.whole_look`), not by the head alone.
        """
        context, first, keys, bucket = self.context, self.first, self.keys, self.bucket
        assert first is not None  # it was begun
        if bucket is not None and not bucket.rests:
            bucket.succeeded(None, now)
        lane = self.scope if keys is None else keys.lane
        if not (lane.ungated or lane.mode):
            learn_success(lane, now)
        record = report_of(plan, delivery, started, now)
        record.bytes_in = len(self.body)
        record.endpoint = first.origin.label
        record.sent_by = first.protocol
        if looked:
            made = only_attempt(record, None, "") if keys is None else only_attempt(record, keys.key, keys.why)
            if first.sent_at is not None:  # the answer's body had come whole with its head
                made.first_byte = record.ended - first.sent_at
            record.course, self.keys = Course(SUCCESS, 1, (made,)), None
        elif keys is not None:
            record.course, self.keys = at_once_with(keys.key, keys.why), None  # the next call chooses one again
        if self.endpoints is not None:
            self.endpoints = self.choice = None
        if context.app_repeats.given_up:
            look_for_repeat(delivery, plan, record, (self.body,) if self.body else (), False)
        context.observer.call_ended(record)

    def release(self) -> None:
        """Forget the attempt and its body: the call now has a `Call` that decides, and a `Sender` that has its
        attempts.
        """
        self.first = None
        self.body = b""
        self.endpoints = self.choice = None
