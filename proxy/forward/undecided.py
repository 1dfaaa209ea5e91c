"""A call for which nothing has to be decided: the attempt that is sent at once, and what is known of it without a
`Call`.

Nearly every call is one of these: no gate holds it, the pool has an idle connection or one is opened at once, and the
answer is a success. If anything else happens, the exchange makes a `Call` from what is kept here, as if it had existed
from the start.
"""

from __future__ import annotations

from functools import partial

from proxy.forward.attempt import Attempt, AttemptOwner
from proxy.forward.call_report import add_success, look_for_repeat, report_of
from proxy.forward.context import Context
from proxy.forward.delivery import Delivery
from proxy.forward.request_plan import Plan
from proxy.forward.sending import Send, send_when_open
from proxy.retry.apps import NamedApp
from proxy.retry.at_once import answered, began, pass_gates, succeeded, turn_back
from proxy.retry.credentials import CallKeys
from proxy.retry.endpoints import Choice, Endpoints
from proxy.retry.environment import Env
from proxy.retry.facts import IDEMPOTENT_METHODS, Request
from proxy.retry.scope_state import ScopeState
from proxy.retry.traffic import Traffic
from proxy.transport.connection import Connection
from proxy.transport.origins import Origin
from proxy.transport.streams import UpstreamStream
from proxy.wire.first_bytes import HTTP1, HTTP2


class Undecided:
    """The part of an exchange that sends calls without a `Call`; kept with it from one call to the next.

    `first`: the only attempt of such a call. `body`: the whole body of its request. `keys`: the choice of the
    credential that it carries, None if its policy has none. `traffic`: the count of attempts under way that includes
    it, None once its answer came. `endpoints`: the only endpoint, if its circuit breaker has to learn how the attempt
    ends, else None; `choice`: that endpoint as it was chosen, None under `mode: observe` and `off`, which ask no
    breaker.
    """

    __slots__ = ("body", "choice", "endpoints", "first", "keys", "traffic")

    def __init__(self) -> None:
        self.first: Attempt | None = None
        self.body = b""
        self.keys: CallKeys[ScopeState] | None = None
        self.traffic: Traffic | None = None
        self.endpoints: Endpoints | None = None
        self.choice: Choice | None = None

    def pass_gates(self, scope: ScopeState, request: Request, now: float) -> bool:
        """Choose the call's credential, if its policy has any, and let the call pass all gates, where it takes what its
        attempt costs; return False, with nothing taken, if any of them, or a circuit breaker, might hold it.
        """
        self.endpoints = self.choice = None
        if scope.endpoints is not None:
            endpoints = self.endpoints = scope.endpoints.of(request.authority)
            if not scope.mode:
                self.choice = endpoints.choose_only()
                if self.choice is None:
                    return False
        if scope.keys is None:
            return pass_gates(scope, request.app, now)
        self.keys = CallKeys(scope.keys, now)
        return pass_gates(self.keys.lane, request.app, now)

    def turn_back(self, scope: ScopeState, now: float) -> None:
        """Give back what the call took at the gates: the pool has no idle connection for it, so it does not begin
        without a `Call`.
        """
        turn_back(scope if self.keys is None else self.keys.lane, now)

    def begin(
        self,
        owner: AttemptOwner,
        scope: ScopeState,
        app: NamedApp | None,
        origin: Origin,
        stream: UpstreamStream | None,
        body: bytes,
        now: float,
    ) -> None:
        """Begin the call of this app (None if it has no name): count it, and make its attempt to `origin`. `stream`:
        the stream to send it on, None if one has to be opened. `owner`: gets the attempt's events; `body`: the
        request's whole body.
        """
        self.traffic = began(scope, app, now)
        first = self.first
        if first is None:
            first = self.first = owner.flights[1] = Attempt(owner, 1, origin)
        first.origin, first.stream = origin, stream
        if stream is None:
            first.sent_at, first.protocol = None, ""
        else:
            first.sent_at = now
            first.protocol = HTTP1 if not origin.http2 or stream.shared is None else HTTP2
        self.body = body

    def dial(self, owner: AttemptOwner, plan: Plan, context: Context, send: Send) -> None:
        """Open a connection for the attempt that was begun, and then call `send`, which sends its request. `owner`:
        gets the attempt's events; `context`: what the exchanges of a worker share.
        """
        first, pool, request = self.first, context.pool, plan.request
        assert first is not None  # it was begun
        idempotent = request.method in IDEMPOTENT_METHODS
        within = plan.policy.timeouts.connect
        opening = partial(pool.open, first.origin, within=within, idempotent=idempotent, app=request.app)
        first.task = context.loop.create_task(send_when_open(owner, pool, first, opening, send))

    def send_on(self, plan: Plan, stream: UpstreamStream, via: str, now: float) -> None:
        """Send the request of the attempt that was begun on `stream`, which was opened for it. `via`: the name in our
        Via line.
        """
        first = self.first
        assert first is not None  # it was begun
        first.stream, first.sent_at, first.protocol = stream, now, HTTP1
        self.send(plan, stream, via)

    def send(self, plan: Plan, stream: UpstreamStream, via: str) -> None:
        """Send the request of the attempt that was begun on `stream`. `via`: the name in our Via line."""
        first, keys = self.first, self.keys
        assert first is not None  # it was begun
        prepared = plan.prepared if keys is None else plan.keyed_request(first.origin, via, keys.key)
        if prepared is None or prepared.head is not plan.head:
            prepared = plan.first_request(first.origin, via)
        connection = stream if isinstance(stream, Connection) else None
        if connection is not None:
            connection.send(first, prepared, self.body, True, None)
        else:
            stream.send(first, prepared, self.body, True, None)

    def answered_well(self, plan: Plan, scope: ScopeState, env: Env, started: float, now: float) -> None:
        """Report the head of the attempt's answer, which is no failure, to the governor (the object that finds out the
        limits and outages of the upstream), and to the endpoint. `env`: what all calls share; `started`: when the call
        began.
        """
        traffic, self.traffic = self.traffic, None
        if traffic is not None and traffic.went_well(now):
            request = plan.request
            scope.governor.answered_undecided(plan.policy.route, request, scope.caller(request), started, now)
        if self.endpoints is not None:
            self.endpoints.reached(0)
            if self.choice is not None:
                answered(self.choice, plan.policy, env, started, now)

    def succeeded(self, scope: ScopeState, app: NamedApp | None, now: float) -> None:
        """Report the call's success to the objects that calls share and that learn from it: its buckets, limiters and
        breakers.
        """
        succeeded(scope, scope if self.keys is None else self.keys.lane, app, now)

    def report(self, plan: Plan, delivery: Delivery, started: float, now: float, looked: bool) -> None:
        """Report the call, which began at `started` and has succeeded, to the observers. `looked`: whether its success
        was judged by the answer's body too (`proxy.forward.whole_look`), not by the head alone.
        """
        context, first, body = delivery.context, self.first, self.body
        assert first is not None  # it was begun
        record = report_of(plan, delivery, started, now)
        add_success(record, first, len(body), self.keys, looked)
        self.keys = None  # the next call chooses one again
        if context.app_repeats:
            look_for_repeat(delivery, plan, record, (body,) if body else (), False)
        context.observer.call_ended(record)

    def take_traffic(self) -> Traffic | None:
        """Return the count of attempts under way that includes this attempt, None if there is none, and keep it no
        longer: the call now has a `Call`, which reports the attempt's end to that count.
        """
        traffic, self.traffic = self.traffic, None
        return traffic

    def take_keys(self) -> CallKeys[ScopeState] | None:
        """Return the choice of the call's credential, None if there is none, and keep it no longer: the call now has a
        `Call`, which keeps it. If the call goes on at another upstream, it gets other credentials there.
        """
        keys, self.keys = self.keys, None
        return keys

    def release(self) -> None:
        """Forget the attempt and its body: the call now has a `Call` that decides, and a `Sender` that has its
        attempts.
        """
        self.first = None
        self.body = b""
        self.endpoints = self.choice = None
