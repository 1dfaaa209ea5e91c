"""Calls that are retried while all goes as it usually does, driven without an exchange.

Theory of operation. A first attempt that a `Swift` sent has come to a whole answer that may be no success. From here
the call is decided on as every other, by a `proxy.retry.call.Call`; but what most retried calls need of a driver is
little: to keep that answer while a retry is waited for, one alarm, a connection out of the pool, and the next answer,
whole again. An `Again` does that much, and no more: whatever else happens, it makes the exchange that would have been
made at first, hands it the Call and what there is of the answer, and is out of the way.

Law: nothing is decided here. To the app, to the upstream, to buckets and to observers, a call that went this way is
the same as one that an exchange drove.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.forward.alarm import Alarm
from proxy.forward.attempt import HELD, Attempt, reply_of
from proxy.forward.exchange import Exchange
from proxy.forward.headers import gave_up, handed_on, plain_lines
from proxy.forward.means import Means
from proxy.forward.plan import Plan
from proxy.forward.streams import AppStream
from proxy.observe.events import Ended
from proxy.retry.actions import Actions, Deliver, Hold, Launch, WakeAt
from proxy.retry.call import Call
from proxy.retry.commons import ScopeState
from proxy.retry.facts import IDEMPOTENT_METHODS, Fault, Outcome
from proxy.transport.clock import monotonic
from proxy.transport.http1 import Connection
from proxy.wire.head import ResponseHead

_NEVER = float("inf")


class Again:
    """See the module. As `Swift` is, it is what the app connection tells of its request, the listener of the stream
    upstream (`transport.http1.Listener`) and the watch's `Timed`.
    """

    __slots__ = (
        "_alarm",
        "_arrived",
        "_call",
        "_connection",
        "_data",
        "_head",
        "_means",
        "_number",
        "_origin",
        "_plan",
        "_sent_at",
        "app",
        "due",
        "over",
        "status",
    )

    def __init__(
        self, means: Means, app: AppStream, plan: Plan, scope: ScopeState, connection: Connection, since: float
    ) -> None:
        self._means = means
        self.app = app
        self._plan = plan
        self._origin = connection.origin
        self._number = 1  # of the attempt in flight, or whose answer is kept
        self._sent_at = self._arrived = since
        self._connection: Connection | None = connection  # where it flies; None: it is over
        self._head: ResponseHead | None = None  # the answer that is kept meanwhile
        self._data = b""
        self._alarm: Alarm | None = None
        self.due = _NEVER
        self.over = False
        self.status = 0
        self._call = Call(plan.request, plan.policy, scope, means.env, self._set_alarm)
        self._call.flown(since)

    # -- from the stream ------------------------------------------------------------------------------------------

    def on_head(self, head: ResponseHead, data: bytes, end: bool, trailers: bytes) -> None:
        """An answer's head."""
        if not end or trailers or head.login_bound or len(data) > HELD:
            self._flying_on().on_head(head, data, end, trailers)
            return
        self._head, self._data = head, data
        self._connection = None
        self.due = _NEVER
        now = self._arrived = monotonic()
        self._tell(now, self._call.head, self._number, reply_of(head, data, end, trailers), now)

    def on_info(self, head: ResponseHead) -> None:
        """An interim answer."""
        self._flying_on().on_info(head)

    def on_data(self, data: bytes) -> None:
        """Never: a head that is not the whole answer is an exchange's."""

    def on_end(self, trailers: bytes) -> None:
        """Never: a head that is not the whole answer is an exchange's."""

    def on_fault(self, fault: Fault) -> None:
        """The stream broke."""
        self._flying_on().on_fault(fault)

    def on_writable(self) -> None:
        """What was written has gone."""

    # -- from the app and the watch -------------------------------------------------------------------------------

    def app_gone(self) -> None:
        """The app went away."""
        self._give_over().app_gone()

    def cut(self) -> None:
        """The process ends, and waits for this call no longer."""
        self._give_over().cut()

    def app_data(self, data: bytes) -> None:
        """Never: the request was whole."""

    def app_ended(self, trailers: bytes) -> None:
        """Never: the request was whole."""

    def app_broke(self, detail: str) -> None:
        """Never: the request was whole."""

    def app_writable(self) -> None:
        """The app takes bytes again: nothing was kept from it."""

    def attend(self, now: float) -> float:
        """Something may be due: the deadline, or the attempt's own timeout."""
        if now < self.due:
            return self.due
        exchange = self._give_over()
        exchange.due = exchange.attend(now)
        self._means.watch.sooner(exchange)
        return _NEVER

    # -- what the call asks for -----------------------------------------------------------------------------------

    def _tell(self, now: float, event: Callable[..., Actions], *facts: object) -> None:
        """Tell the call what happened, and carry out what it asks for, or let an exchange do so."""
        try:
            actions = event(*facts)
            last = actions[-1] if actions else None
            if type(last) is WakeAt and (len(actions) == 1 or type(actions[0]) is Hold):
                self._set_alarm(last.at)
            elif type(last) is Deliver:
                self._deliver(last.outcome, now)
            elif not (type(last) is Launch and self._launch(last, now)) and actions:
                self._give_over().tell(now, lambda: actions)
        except Exception as error:
            exchange = self._give_over()
            exchange.status = self.status
            exchange.break_down(error, now)

    def _launch(self, launch: Launch, now: float) -> bool:
        """Send the next attempt, if a connection rests; False: nothing has happened."""
        means, plan, origin = self._means, self._plan, self._origin
        connection = means.pool.lease(origin, now, idempotent=plan.request.method in IDEMPOTENT_METHODS)
        if connection is None:
            return False
        self._head, self._data = None, b""
        self._connection = connection
        self._number = launch.attempt
        self._sent_at = now
        policy, deadline = plan.policy, self._call.deadline
        due = _NEVER if deadline is None else deadline
        if policy.timeouts.attempt is not None:
            due = min(due, now + policy.timeouts.attempt)
        self.due = due
        if due <= means.watch.next:
            means.watch.sooner(self)
        head = plan.render(origin, plain_lines(means.via, plan.head.minor, launch.attempt))
        connection.send_whole(self, plan.request.method, head)
        return True

    def _deliver(self, outcome: Outcome, now: float) -> None:
        """Hand the answer on, and be done."""
        call, head, data = self._call, self._head, self._data
        assert head is not None
        drop, add = handed_on(call, head, self._means.via, outcome=outcome, held=now - self._arrived)
        self.status = head.status
        self.app.respond(head, drop, add, data, True, b"")
        call.ended(self._number, now)
        self._finish(len(data), now)

    def _finish(self, size: int, now: float) -> None:
        """The call is over: tell the observers, give the app's stream back."""
        self.over = True
        call, plan, means = self._call, self._plan, self._means
        assert call.outcome is not None
        if means.watch.has_alarms:
            means.watch.remove(self)
        self._label_records()
        call.forget_alarm()
        if self._alarm is not None:
            self._alarm.stop()
            self._alarm = None  # else they would keep each other
        started, client = call.started, self.app.client
        given_up = gave_up(plan.policy, call.outcome)
        if (given_up or means.app_repeats) and means.app_repeats.ended(
            client, plan.request, (), given_up=given_up, now=now
        ):
            means.observer.app_repeated(plan.policy)
        means.observer.call_ended(
            Ended(
                *(plan.policy, plan.request, client, call.outcome, self.status, call.attempts),
                *(tuple(call.history), started, now, started + means.env.wall_offset, 0, size),
                *(self._origin.label, "", False),
            )
        )
        self.app.done()

    def _label_records(self) -> None:
        label = self._origin.label
        for record in self._call.history:
            record.endpoint = label

    def _set_alarm(self, at: float) -> None:
        if self._alarm is None:
            self._alarm = Alarm(self._means.loop, self._ring)
        self._alarm.set(at)

    def _ring(self, now: float) -> None:
        self._tell(now, self._call.woke, now)

    # -- otherwise ------------------------------------------------------------------------------------------------

    def _flying_on(self) -> Attempt:
        """What comes next is an exchange's: its attempt, which listens now."""
        return self._give_over().flights[self._number]

    def _give_over(self) -> Exchange:
        """Let an exchange go on with this call, as it stands."""
        self.over = True
        call, means = self._call, self._means
        if means.watch.has_alarms:
            means.watch.remove(self)
        self._label_records()
        exchange = self._plan.exchange(means, self.app)
        self.app.exchange = exchange
        attempt = exchange.carry_on(call, self._number, self._origin, self._sent_at)
        if self._connection is not None:
            attempt.stream = self._connection
            self._connection.hand_to(attempt)
        elif self._head is not None:
            attempt.keep(self._head, self._data, self._arrived)
        alarm, self._alarm = self._alarm, None
        if alarm is not None and alarm.at < _NEVER:
            exchange.wake_at(alarm.at)
            alarm.stop()
        return exchange
