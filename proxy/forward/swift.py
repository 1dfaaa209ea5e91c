"""Calls that succeed at once, driven without an exchange.

Theory of operation. Nearly every call goes one way: nothing holds it, a connection rests in the pool, the answer is a
success and comes whole. A `Swift` takes a request that way with nothing allocated: an app connection has one,
and uses it for call after call. An answer that came whole and is no success is an `Again`'s (`forward.again`); whatever
else happens, of the answer, the app or the clock, it makes the exchange that would have been made at first, hands
everything to it, and is out of the way. `proxy.retry.at_once` decides what the way is, and the call is told of it.

Law: to the app, to the upstream, to buckets and to observers, a call that went this way is the same as any other.
"""

from __future__ import annotations

from proxy.forward.again import Again
from proxy.forward.attempt import DELIVERING, Attempt
from proxy.forward.headers import plain_lines
from proxy.forward.means import Means
from proxy.forward.plan import Plan
from proxy.forward.streams import AppStream
from proxy.retry.at_once import began, is_success, nothing_holds, succeeded
from proxy.retry.commons import ScopeState
from proxy.retry.facts import IDEMPOTENT_METHODS, Fault, Request
from proxy.retry.policy import Policy
from proxy.transport.clock import monotonic
from proxy.transport.http1 import Connection
from proxy.transport.origins import Origin
from proxy.wire.head import ResponseHead

_NEVER = float("inf")
_NO_NAMES: frozenset[bytes] = frozenset()


class Swift:
    """See the module. As an exchange and its attempt are, it is what the app connection tells of its request, the
    listener of the stream upstream (`transport.http1.Listener`) and the watch's `Timed`.
    """

    __slots__ = (
        "_body",
        "_connection",
        "_means",
        "_moved",
        "_origin",
        "_raw",
        "_raw_first",
        "_rendered",
        "_scope",
        "_streaming",
        "app",
        "bytes_out",
        "client",
        "due",
        "over",
        "plan",
        "policy",
        "request",
        "started",
        "status",
    )

    plan: Plan
    policy: Policy
    request: Request
    _connection: Connection
    _origin: Origin
    _scope: ScopeState

    def __init__(self, means: Means, app: AppStream) -> None:
        self._means = means
        self.app = app
        self.client = app.client
        self.over = True
        self.due = _NEVER
        self.status = self.bytes_out = 0
        self.started = 0.0
        self._body = b""
        self._streaming: ResponseHead | None = None  # the answer that is being handed on
        self._moved = 0.0  # when last something of it came
        self._raw = b""  # the head of the last answer, and how it was handed on to which request
        self._raw_first: Request | None = None
        self._rendered = b""

    def start(self, plan: Plan, body: bytes, now: float) -> bool:
        """Send the request on its way, if nothing holds it and a connection rests; False: nothing has happened."""
        means = self._means
        destination = plan.destination
        origin = destination.only or destination.next((), now)
        if not origin.idle:
            return False
        policy = self.policy = plan.policy
        request = self.request = plan.request
        scope = self._scope = means.commons.scope(policy, request, now)
        if not nothing_holds(scope, now):
            return False
        connection = means.pool.lease(origin, now, idempotent=request.method in IDEMPOTENT_METHODS)
        if connection is None:
            return False
        began(scope, now)
        if destination.only is None:
            destination.took(origin)
        self.plan = plan
        self._origin, self._connection = origin, connection
        self._body = body
        self.started = now
        self.due = now + plan.patience
        self.over = False
        app = self.app
        if not app.watched:
            means.watch.enter(app, now)
        if self.due <= means.watch.next:
            means.watch.sooner(self)
        head = plan.rendered
        if not head:
            head = plan.render(origin, plain_lines(means.via, plan.head.minor, 1))
            if destination.only is not None:
                plan.rendered = head
        connection.send_whole(self, request.method, head + body if body else head)
        return True

    # -- from the stream ------------------------------------------------------------------------------------------

    def on_head(self, head: ResponseHead, data: bytes, end: bool, trailers: bytes) -> None:
        """The answer's head: the end of the call, if it is a success and whole."""
        means, app = self._means, self.app
        if head.raw == self._raw and self.plan.first is self._raw_first and end and not trailers and not app.closing:
            app.respond_again(self._rendered + data)  # heads that have met before, on whichever connection
        elif not trailers and not head.login_bound and is_success(head.status, head):
            rendered = app.respond(head, _NO_NAMES, plain_lines(means.via, head.minor, 1), data, end, b"")
            if rendered:
                self._raw, self._rendered, self._raw_first = head.raw, rendered, self.plan.first
            if not end:
                self._stream(head, len(data))
                return
        elif end and not self._body and self.plan.destination.only is not None:
            self._judge().on_head(head, data, end, trailers)
            return
        else:
            self._decide(answered=end).on_head(head, data, end, trailers)
            return
        self.status = head.status
        self.bytes_out = len(data)
        self._succeed()

    def _stream(self, head: ResponseHead, size: int) -> None:
        """The answer is a success, and comes as it comes."""
        self._streaming = head
        self.status = head.status
        self.bytes_out = size
        self._moved = monotonic()
        self.due = self._moved + self.plan.silence
        self._means.watch.sooner(self)
        if self.app.blocked:
            self._connection.pause()

    def _succeed(self) -> None:
        """The answer has been handed on whole."""
        means = self._means
        started, now, request = self.started, monotonic(), self.request
        succeeded(self._scope, now)
        self.over = True
        self._streaming = None
        if means.watch.has_alarms:
            means.watch.remove(self)
        if means.app_repeats and means.app_repeats.ended(self.client, request, (self._body,), given_up=False, now=now):
            means.observer.app_repeated(self.policy)
        means.observer.succeeded(
            (
                started + means.env.wall_offset,
                now - started,
                self.policy,
                request.method,
                request.authority,
                request.path,
                self.client,
                self.status,
                len(self._body),
                self.bytes_out,
                self._origin.label,
            )
        )
        self.app.done()

    def on_info(self, head: ResponseHead) -> None:
        """An interim answer."""
        self._decide().on_info(head)

    def on_data(self, data: bytes) -> None:
        """More of the answer's body."""
        self._moved = monotonic()
        self.bytes_out += len(data)
        self.app.write(data)
        if self.app.blocked:
            self._connection.pause()

    def on_end(self, trailers: bytes) -> None:
        """The answer is whole."""
        if trailers:
            self._decide(answered=True).on_end(trailers)
        else:
            self.app.finish(b"")
            self._succeed()

    def on_fault(self, fault: Fault) -> None:
        """The stream broke."""
        self._decide(answered=True).on_fault(fault)

    def on_writable(self) -> None:
        """What was written has gone."""

    # -- from the app and the watch -------------------------------------------------------------------------------

    def app_gone(self) -> None:
        """The app went away."""
        self._decide().exchange.app_gone()

    def cut(self) -> None:
        """The process ends, and waits for this call no longer."""
        self._decide().exchange.cut()

    def app_data(self, data: bytes) -> None:
        """Never: the request's body was whole."""

    def app_ended(self, trailers: bytes) -> None:
        """Never: the request's body was whole."""

    def app_broke(self, detail: str) -> None:
        """Never: the request's body was whole."""

    def app_writable(self) -> None:
        """The app takes bytes again."""
        if self._streaming is not None:
            self._connection.resume()

    def attend(self, now: float) -> float:
        """Something is due."""
        if self._streaming is not None:
            self.due = self._moved + self.plan.silence
        if now < self.due:
            return self.due
        exchange = self._decide().exchange
        exchange.due = exchange.attend(now)
        self._means.watch.sooner(exchange)
        return _NEVER

    # -- otherwise ------------------------------------------------------------------------------------------------

    def _judge(self) -> Again:
        """The whole answer has come, and may be no success: let it be judged, and the request sent again perhaps."""
        self.over = True
        means = self._means
        if means.watch.has_alarms:
            means.watch.remove(self)
        again = Again(means, self.app, self.plan, self._scope, self._connection, self.started)
        self.app.exchange = again
        return again

    def _decide(self, *, answered: bool = False) -> Attempt:
        """This call is not that simple: let an exchange go on with it. `answered`: its stream is over already."""
        self.over = True
        means = self._means
        if means.watch.has_alarms:
            means.watch.remove(self)
        exchange = self.plan.exchange(means, self.app)
        self.app.exchange = exchange
        attempt = exchange.take_over(self.started, self._connection, self._origin, self._body)
        if self._streaming is not None:
            exchange.take_over_answer(attempt, self._streaming, self.bytes_out, self._moved)
            self._streaming = None
        if answered:
            attempt.stream = None if attempt.state is DELIVERING else attempt.stream
        else:
            self._connection.hand_to(attempt)
        return attempt
