"""The driver of one call: it carries out with sockets what `proxy.retry.call.machine` decides.

Theory of operation. Every event is passed to the call with the time, and the actions that the call returns are carried
out in order. Nothing is decided here. The driver owns what a call needs while it lasts: its attempts, the body kept for
another one, one alarm; `Finish` releases all of it, sends the observers a record (`proxy.observe.call_record`), and
gives the app's stream back.

Law: after an action that ends the call, nothing else of the call is done, so an action that may cause the next event at
once (Peek, Deliver, Ask) is always the last of its tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, cast

from proxy.forward.attempt import DELIVERING, HELD, HOLDING, Attempt, AttemptOwner
from proxy.forward.broken_answer import BrokenAnswer
from proxy.forward.call_report import look_for_repeat, report_of_decided
from proxy.forward.context import Context
from proxy.forward.delivery import Delivery
from proxy.forward.fallback import Journey, body_of
from proxy.forward.headers import gave_up
from proxy.forward.request_plan import Plan
from proxy.forward.sending import Sender
from proxy.forward.streams import AppStream
from proxy.forward.timers import Alarm
from proxy.forward.token_prices import expect_price, settle_price
from proxy.forward.undecided import Undecided
from proxy.forward.upload import Upload
from proxy.retry.answers.stream_ends import UNFINISHED
from proxy.retry.call.actions import (
    Action,
    Actions,
    Answer,
    Ask,
    Cancel,
    Deliver,
    Discard,
    FallBack,
    Finish,
    Hold,
    Launch,
    Peek,
    WakeAt,
)
from proxy.retry.call.call_state import CallState
from proxy.retry.call.gates import GATES
from proxy.retry.call.machine import Call
from proxy.retry.facts import Fault, Outcome, Reply
from proxy.transport import faults
from proxy.transport.clock import monotonic
from proxy.transport.connection import Connection
from proxy.transport.streams import UpstreamStream
from proxy.wire.head import Trailers

NEVER = float("inf")
#: Module-level names of enumeration members, which are faster to read: see `proxy.retry.facts`.
_OVERLOADED, _SUCCESS = Outcome.OVERLOADED, Outcome.SUCCESS
#: The outcomes of calls whose first answer is a failure that is not retried.
_NOT_RETRIED = frozenset({Outcome.NOT_RETRYABLE, Outcome.BUCKET_EMPTY})
#: The `Call` and the sender of a driver that is kept for another call.
_NO_CALL, _NO_SENDER = cast(Call, None), cast(Sender, None)


class CallDriver(AttemptOwner):
    """The driver of one call, which makes the `Call` once something has to be decided, and carries out its actions. An
    `Exchange` is one, and reports to itself what the app does.

    Its parts: `delivery` writes to the app, `sender` sends the attempts, `upload` is the request's body, None if it has
    none. If anything had to be decided (`decided`), `call` and `sender` exist. `journey`: the course over several
    upstreams, None if the policy names no other. `due`: when the watch, the timer of all calls, has to check the call's
    deadlines and timeouts (`proxy.forward.timers.Timed`).
    """

    __slots__ = (
        "_alarm", "_make_sender", "_undecided", "_verdict", "_wakes", "call", "context", "delivery", "due", "journey",
        "over", "plan", "sender", "started", "upload",
    )  # fmt: skip

    call: Call
    plan: Plan
    sender: Sender
    started: float

    def __init__(
        self,
        context: Context,
        app: AppStream,
        make_sender: Callable[..., Sender] = Sender,
        make_delivery: Callable[[Context, AppStream], Delivery] = Delivery,
    ) -> None:
        self.context = context
        self.delivery = make_delivery(context, app)
        self.decided = False
        self.flights = {}
        self.upload: Upload | None = None
        self.journey: Journey | None = None
        self.over = True
        self.due = NEVER
        self._make_sender = make_sender
        self._undecided = Undecided(context)
        self._alarm: Alarm | None = None
        self._wakes: Callable[[float], None] | None = None  # `wake_at`, which costs an object each time it is named
        self._verdict: Outcome | None = None  # replaces the call's own outcome if the app is at fault

    # -- the `Call` ---------------------------------------------------------------------------------------------------

    def decider(self) -> Call:
        """Return the call's `Call`. If none exists yet, make it in the state that the call has reached: attempt 1 is in
        flight, or its answer is being delivered.
        """
        if self.decided:
            return self.call
        undecided = self._undecided
        first, body = undecided.first, undecided.body
        assert first is not None  # a call without a `Call` was sent at once
        if body:
            self.upload = Upload(self.delivery.app, self.context.store, body, done=True)
            first.cursor = len(body)
        call, endpoint, answered = self._decide(), first.origin.label, first.state is DELIVERING
        traffic, undecided.traffic = undecided.traffic, None  # from here on the call reports to it
        actions = call.flown(self.started, endpoint, first.protocol, traffic, undecided.choice, answered)
        self.sender.endpoint = endpoint
        if self.plan.policy.timeouts.first_byte is not None:
            self._note_sent(first)
        if answered:
            # The call's action, to deliver, is done already.
            call.head(1, Reply(first.head.status, first.head), first.arrived)
        if actions:
            self.carry_out(actions, self.started)
        if self.upload is not None and self.upload.overfull:  # the body was sent, and is not kept for another attempt
            self._lose(self.upload)
        return call

    def _decide(self) -> Call:
        """Make the `Call`, and the sender of its attempts."""
        app, plan, scope = self.delivery.app, self.plan, self.plan.scope
        elsewhere = None
        if plan.ways is not None:
            self.journey = Journey(self.context, plan)
            elsewhere = partial(self.journey.why_not, self.upload)
        assert scope is not None  # the call has begun
        if self._wakes is None:
            self._wakes = self.wake_at
        body = None if self.upload is None else body_of(self.upload, self.journey)
        plan.request.body = body
        call = self.call = Call(plan.request, plan.policy, scope, self.context.env, self._wakes, elsewhere)
        undecided = self._undecided
        if undecided.keys is not None:
            call.carry(undecided.keys)
            undecided.keys = None  # if the call goes on at another upstream, it gets other credentials there
        if not plan.plain and plan.goes_elsewhere:  # the plan of a tunnel, which is never plain
            call.goes_elsewhere()
        if self.decided:
            self.sender.go_elsewhere(plan, call, body)
        else:
            self.sender = self._make_sender(self.context, app, plan, call, body, self.started)
        self.decided = True
        return call

    def notify(
        self, now: float, event: Callable[..., Actions], facts: tuple[Any, ...], call: Call | None = None
    ) -> None:
        """Report a rare event with its arguments `facts` to the call (to `call`, if given, which may be the one before
        the call went on at another upstream), and carry out the actions that it returns. A defect ends the call, and
        never hangs it. Frequent events are reported in the same way without this method, which costs a tuple and a call
        through the interpreter.
        """
        try:
            self.carry_out(event(self.decider() if call is None else call, *facts), now)
        except Exception as error:
            self.break_down(error, now)

    # -- from attempts ------------------------------------------------------------------------------------------------

    def answered(self, attempt: Attempt, reply: Reply, stream: UpstreamStream | None) -> None:
        """Report to the call the head of an answer for which something has to be decided. If the answer that is being
        delivered broke, and this is the answer to the request for the rest, continue the delivery instead. `stream`:
        the stream that the head came by, which may have ended with it; None if the attempt has none any more.
        """
        if self.delivery.resumer is not None:
            self._take_rest(attempt, attempt.arrived)
            return
        plan = self.plan
        may_log_in = stream is not None and not (reply.plain and plan.plain)
        if may_log_in and (attempt.head.login_bound or (not plan.plain and plan.head.login_bound)):
            assert stream is not None
            self.delivery.app.pin(stream, attempt.origin)
        elif reply.status == 421 and stream is not None and not self.delivery.app.has_pinned:
            reply.follows = not stream.is_first
        now = attempt.arrived
        try:
            call = self.call if self.decided else self.decider()
            self.carry_out(call.head(attempt.number, reply, now), now)
        except Exception as error:
            self.break_down(error, now)

    def peeked(self, attempt: Attempt, body: bytes) -> None:
        """Report to the call that the part of an answer's body that was to be examined has come, or all of it."""
        now = monotonic()
        try:
            self.carry_out(self.decider().peeked(attempt.number, body, now), now)
        except Exception as error:
            self.break_down(error, now)

    def failed(self, attempt: Attempt, fault: Fault) -> None:
        """Report to the call that an attempt ended without a whole answer. If the answer was being delivered to the
        app, ask the upstream for the rest of it; if the answer can't be resumed, break it off for the app.
        """
        now, call = monotonic(), self.decider()
        if attempt.state is DELIVERING:
            if self.plan.policy.resume is not None and self._goes_on(attempt, fault, now):
                return
            self.delivery.break_off(fault, grpc=self.plan.is_grpc)
        else:
            self.flights.pop(attempt.number, None)
            self.sender.avoid(attempt, not fault.reused)
            attempt.drop()
            if self.delivery.resumer is not None:
                self.delivery.resumer.is_sent = False
                self.context.observer.resumed(self.plan.policy, "broke", 0)
        if fault.error == faults.PROHIBITED:
            self.notify(now, Call.denied, (attempt.number, fault.detail, now), call)
        elif fault.error == faults.NO_ROOM:
            self.notify(now, Call.no_room, (attempt.number, fault.detail, now), call)
        else:
            self.notify(now, Call.failed, (attempt.number, fault, now), call)
        if self.upload is not None:
            self._settle(self.upload)  # other attempts get more, which this one had not sent

    def _goes_on(self, attempt: Attempt, fault: Fault, now: float) -> bool:
        """Ask for the rest of the answer that was being delivered and broke by `fault`, and return True; return False
        and do nothing if the answer can't be resumed.
        """
        broken = BrokenAnswer(self.plan, self.sender, self.delivery, self.call)
        try:
            actions = broken.go_on(attempt, fault, self.moved, now)
            if actions is None:
                return False
            deadline = self.call.so_far.deadline
            self.due_by(NEVER if deadline is None else deadline)
            self.carry_out(actions, now)
        except Exception as error:
            self.break_down(error, now)
        return True

    def _take_rest(self, attempt: Attempt, now: float) -> None:
        """Continue the delivered answer, which broke, if the head that came begins its rest; else break it off."""
        broken = BrokenAnswer(self.plan, self.sender, self.delivery, self.call)
        try:
            accepted, actions = broken.take_rest(attempt, now)
            self.carry_out(actions, now)
            if not accepted:
                return
            attempt.state = DELIVERING
            data = attempt.take()
            if data:
                self.forward(attempt, data)
            if self.over:
                return
            if attempt.ended:
                self.answer_ended(attempt)
            else:
                self.stream_on(attempt, now)
        except Exception as error:
            self.break_down(error, now)

    def begun(self, attempt: Attempt) -> None:
        """Note that the proxy has begun to send an attempt's request, and free bytes of the request's body that are no
        longer needed. If the body has outgrown its buffer, that is put off until all attempts that are sent at this
        moment (hedges) have begun, since each of them sends the body from its beginning.
        """
        upload = self.upload
        self._note_sent(attempt)
        if upload is not None:
            self.moved = monotonic()  # the body is read again
            if upload.overfull and max(self.flights, default=0) < self.call.so_far.attempts:
                self.context.loop.call_soon(self._settle, upload)
            else:
                self._settle(upload)

    def report_ended(self, attempt: int, now: float, trailers: Trailers | None) -> None:
        """Report to the call that the delivered answer, that of the attempt with the number `attempt`, has ended well,
        with these trailers (None for none), and carry out the call's actions.
        """
        try:
            call = self.call if self.decided else self.decider()
            self.carry_out(call.ended(attempt, now, trailers), now)
        except Exception as error:
            self.break_down(error, now)

    # -- actions ------------------------------------------------------------------------------------------------------

    def carry_out(self, actions: Actions, now: float) -> None:
        """Carry out the call's actions, in order."""
        action: Any  # what it has is known by its class
        for action in actions:
            kind = type(action)
            if kind is Launch:
                _launch(self, action, now)
            elif kind is Deliver:
                _deliver(self, action, now)
            elif kind is WakeAt:
                _wake_at(self, action, now)
            elif kind is Hold:
                _hold(self, action, now)
            elif kind is Discard:
                discarded: Discard = action
                _end(self, discarded.attempt)
            elif kind is Finish:
                ending: Finish = action
                self.finish(ending.outcome, now)
            else:
                _CARRIED_OUT[kind](self, action, now)

    def stream_on(self, attempt: Attempt, now: float) -> None:
        """Begin to forward this attempt's answer to the app as its bytes come."""
        plan, app, stream = self.plan, self.delivery.app, attempt.stream
        if plan.policy.timeouts.idle is not None:
            self.moved = now
            self.due_by(now + plan.policy.timeouts.idle)
        if plan.policy.resume is not None and plan.policy.resume.stall is not None:
            self.due_by(now + plan.policy.resume.stall)
        if stream is None:
            return
        if app.blocked:
            stream.pause()
        else:
            stream.resume()
        if attempt.head.status == 101 or plan.head.method == "CONNECT":
            self.delivery.open_tunnel(stream)
            return
        direct, connection = self.delivery.direct, stream if isinstance(stream, Connection) else None
        if direct is None or connection is None or direct.chunks is None or self.delivery.resumer is not None:
            return
        connection.pass_chunks_on(attempt.watch is not None)

    def finish(self, outcome: Outcome, now: float) -> None:
        """End the call: release everything, report it, give the app's stream back."""
        context, delivery, call, upload = self.context, self.delivery, self.call, self.upload
        so_far = call.so_far
        self.over = True
        outcome = self._verdict or outcome
        if context.watch.alarms:
            context.watch.remove(self)
        if self._alarm is not None:
            self._alarm.stop()
            self._alarm = None  # breaks a reference cycle
        if delivery.resumer is not None:
            if outcome is not Outcome.CLIENT_GONE:
                context.observer.resumed(self.plan.policy, "broke" if delivery.resumer.is_sent else "refused", 0)
                delivery.break_off(None, grpc=False)
            delivery.resumer = None
        pipe = delivery.pipe
        self._drop_attempts()
        if self.plan.policy.tokens is not None or self.journey is not None:
            settle_price(call, self.flights, self.journey, outcome, now)
        given_up = False
        if outcome is not _SUCCESS:
            no_place = outcome is _OVERLOADED and so_far.found_no_place
            given_up = gave_up(self.plan.policy, outcome, so_far.attempts, no_place)
        if self.journey is not None:
            self.journey.close()
            self.plan = self.journey.first  # the call is reported as it came, whichever upstream it ended at
        if not so_far.attempts and so_far.held_by and not delivery.detail:
            delivery.detail = f"{GATES[so_far.held_by]} held it"
        record = report_of_decided(self.plan, delivery, so_far, outcome, self.started, now)
        record.bytes_in = (0 if upload is None else upload.size) + (0 if pipe is None else pipe.bytes_in)
        record.endpoint = self.sender.endpoint
        if given_up or context.app_repeats.given_up:
            body: Iterable[bytes] | None = () if upload is None else upload.replay.whole()
            look_for_repeat(delivery, self.plan, record, body, given_up, self.plan.request.user_agent or None)
        if upload is not None:
            upload.replay.close()
        if self.plan.traced:
            self.sender.call_ended(record)
        context.observer.call_ended(record)
        last = self.flights.get(so_far.attempts)
        self.flights.clear()
        self._undecided.release()  # breaks a reference cycle
        self._forget_call(so_far, outcome, last)
        self.release_app()

    def _drop_attempts(self) -> None:
        """Release the connections of all attempts, which the call needs no more."""
        pipe = self.delivery.pipe
        for attempt in self.flights.values():
            if pipe is not None and pipe.is_over and attempt.stream is not None:
                attempt.stream.close()  # what was written goes out yet
                attempt.stream = None
            if attempt.stream is not None or attempt.task is not None:
                attempt.drop()

    def _forget_call(self, so_far: CallState, outcome: Outcome, last: Attempt | None) -> None:
        """Make the driver ready for the next call, as it is after a call about which nothing had to be decided, if the
        call, whose state is `so_far`, has succeeded, or its first answer was a failure that was not retried; and if it
        kept nothing but its attempts: no body, and no beginning of an answer. Such a call ends by its answer's head or
        last byte, after which nothing of it reports to the driver, and the driver does nothing more for it. Its `last`
        attempt, if its stream is over, is kept for the next call as well.
        """
        wakes, self._wakes = self._wakes, None  # breaks a reference cycle
        plan, delivered, delivery = self.plan, so_far.delivered, self.delivery
        if self.upload is not None or self.journey is not None or delivery.pipe is not None or delivery.detail:
            return
        if outcome is _SUCCESS:
            is_simple = delivered is not None and delivered.body_wait is None
        else:
            is_first = so_far.attempts == 1 and so_far.reply is not None
            is_simple = is_first and outcome in _NOT_RETRIED and not plan.looks
        if is_simple and plan.plain:
            self.decided = False
            self._wakes = wakes
            if last is not None and last.stream is None and last.task is None:
                last.begin(self, 1, last.origin)
                self._undecided.first = self.flights[1] = last
            self.call, self.sender = _NO_CALL, _NO_SENDER

    def release_app(self) -> None:
        """Give the app's stream back, since the call is over."""
        direct = self.delivery.direct
        if direct is not None:
            direct.done()
        else:
            self.delivery.app.done()

    def retire(self) -> None:
        """Break the reference cycles of a driver that serves no further call, so that its memory is free at once. A
        call of it must not be in progress.
        """
        self.flights.clear()
        self._undecided.release()
        self._wakes = None

    # -- the request's body -------------------------------------------------------------------------------------------

    def _settle(self, upload: Upload) -> None:
        """Read more of the request's body from the app, or pause the app if sending does not keep up and the buffer is
        full.
        """
        if upload.overfull and [a for a in self.flights.values() if a.stream is not None and a.state is not HOLDING]:
            self._lose(upload)
        if not self.over:
            upload.settle(self.flights)

    def _lose(self, upload: Upload) -> None:
        """Stop keeping the request's body, which has outgrown its buffer: only the attempts in flight still get it."""
        if not upload.lose():
            return
        now, idle = monotonic(), self.plan.policy.timeouts.idle
        furthest = max(self.flights.values(), key=lambda each: (each.sent, -each.number), default=None)
        self.notify(now, Call.replay_lost, (now, 0 if furthest is None else furthest.number))
        if not self.over and idle is not None:
            self.due_by(now + idle)

    def _note_sent(self, attempt: Attempt) -> None:
        """Start the timeouts `attempt` and `first_byte`, if this attempt has sent the last byte of its request."""
        sent_at = attempt.sent_at
        if sent_at is None:
            return
        timeouts = self.plan.policy.timeouts
        if timeouts.attempt is not None:
            self.due_by(sent_at + timeouts.attempt)
        if timeouts.first_byte is not None:
            call, replay = self.call, body_of(self.upload, self.journey)
            call.request_sent(sent_at, None if replay is None else replay.whole())
            if call.first_byte is not None:
                self.due_by(sent_at + call.first_byte)

    # -- what is waited for -------------------------------------------------------------------------------------------

    def due_by(self, at: float) -> None:
        """Have the watch check the call's deadlines and timeouts no later than at time `at`."""
        if at < self.due:
            self.due = at
            self.context.watch.sooner(self)

    def wake_at(self, at: float) -> None:
        """Set the call's one alarm to time `at`."""
        if self.over:
            return
        if self._alarm is None:
            self._alarm = Alarm(self.context.loop, _rung, self, at)
        else:
            self._alarm.set(at)

    def attend(self, now: float) -> float:
        """Handle deadlines and timeouts; return when the next one is due."""
        raise NotImplementedError

    def _wake(self, now: float) -> None:
        """Let the call decide what is due at `now`: its alarm has rung, or its deadline has passed."""
        try:
            call = self.call if self.decided else self.decider()
            self.carry_out(call.woke(now), now)
        except Exception as error:
            self.break_down(error, now)


def _rung(driver: CallDriver, now: float) -> None:
    """Forget the call's alarm, which has rung, and wake the call."""
    driver._alarm = None
    driver._wake(now)


# -- how actions are carried out ----------------------------------------------------------------------------------


def _launch(driver: CallDriver, action: Launch, now: float) -> None:
    """Send the attempt that the action describes."""
    attempt = driver.sender.launch(driver, action, now)
    if attempt.task is None:
        driver.begun(attempt)
    elif driver.upload is not None:
        driver.upload.settle(driver.flights)


def _deliver(driver: CallDriver, action: Deliver, now: float) -> None:
    """Begin to forward the answer of the attempt that the action names to the app."""
    delivery, call, plan = driver.delivery, driver.call, driver.plan
    attempt, outcome = driver.flights[action.attempt], action.outcome
    attempt.state = DELIVERING
    if plan.is_grpc and delivery.lacks_grpc_status(attempt.head, plan, call.so_far, outcome):
        delivery.give_up(attempt, plan, call.so_far, driver.journey, outcome)
        attempt.drop()
        driver.report_ended(attempt.number, now, None)
        return
    ended, trailers = attempt.ended, attempt.trailers
    delivery.deliver(attempt, plan, call.so_far, driver.journey, outcome, now)
    if ended and attempt.watch is not None and attempt.watch.unfinished:
        delivery.end_unfinished(attempt, plan.policy)
        driver.notify(now, Call.failed, (attempt.number, UNFINISHED, now), call)
    elif ended:
        driver.report_ended(attempt.number, now, trailers)
    elif attempt.fault is not None:
        delivery.break_off(attempt.fault, grpc=plan.is_grpc)
        driver.notify(now, Call.failed, (attempt.number, attempt.fault, now), call)
    else:
        driver.stream_on(attempt, now)
        if driver.upload is not None:  # the attempt got no more of the body while its answer was held
            driver.upload.go_on(attempt)
            driver._settle(driver.upload)


def _hold(driver: CallDriver, action: Hold, now: float) -> None:
    """Keep the answer of the attempt that the action names, up to HELD bytes of its body, while the call waits for its
    next attempt.
    """
    attempt = driver.flights[action.attempt]
    attempt.state = HOLDING
    if attempt.kept_size >= HELD and attempt.stream is not None:
        attempt.stream.pause()
    if driver.plan.destination.only is None or attempt.origin.http2:  # else there is nothing to avoid
        driver.sender.avoid(attempt, True)
    if driver.upload is not None:
        driver.upload.settle(driver.flights)  # other attempts get more, which this one has not sent


def _cancel(driver: CallDriver, action: Cancel, now: float) -> None:
    """End the attempt that the action names."""
    _end(driver, action.attempt)


def _end(driver: CallDriver, number: int) -> None:
    """End the attempt with this number, whether its answer is held or has not come."""
    attempt = driver.flights.pop(number, None)
    if attempt is not None:
        attempt.drop()


def _peek(driver: CallDriver, action: Peek, now: float) -> None:
    """Keep the answer of the attempt that the action names until the part of its body that the call has to examine has
    come.
    """
    attempt, idle, body_wait = driver.flights[action.attempt], driver.plan.policy.timeouts.idle, action.body_wait
    if idle is not None:
        driver.due_by(driver.moved + idle)
    if body_wait is not None:
        body_wait.charge(driver.context.store)
        driver.due_by(body_wait.goes_on)
    attempt.peek(action.limit, body_wait)


def _ask(driver: CallDriver, action: Ask, now: float) -> None:
    """Ask the bucket to grant the tokens that a retry costs. The call is notified of the bucket's answer, at once or
    later.
    """
    bucket = driver.call.so_far.next_attempt.bucket
    assert bucket is not None  # only a call with a bucket asks
    bucket.ask(action.price, action.due, now, partial(_bucket_answered, driver, driver.call))


def _bucket_answered(driver: CallDriver, call: Call, price: float, granted: bool) -> None:
    """Report to the call whether the bucket granted the price of a retry; if the call is over by then, give the tokens
    of a grant back.
    """
    now = monotonic()
    driver.notify(now, Call.granted if granted else Call.refused, (price, now), call)


def _answer(driver: CallDriver, action: Answer, now: float) -> None:
    """Write the proxy's own answer; nothing if the app has already got the beginning of an upstream's answer that broke
    and was to be resumed.
    """
    if driver.delivery.resumer is not None:
        return
    driver.delivery.answer(action, driver.call.so_far, driver.journey)


def _wake_at(driver: CallDriver, action: WakeAt, now: float) -> None:
    """Set the call's one alarm to the time that the action names. Unless an attempt is in flight, the call now only
    waits, and less of its request's body may be kept: pause the app if that much has come.
    """
    driver.wake_at(action.at)
    if driver.upload is not None and not driver.over:
        driver.upload.settle(driver.flights)


def _fall_back(driver: CallDriver, action: FallBack, now: float) -> None:
    """Go on at the upstream for which the request was prepared last (`Journey.prepare`): a new `Call` continues the
    call there.
    """
    journey, before = driver.journey, driver.call
    assert journey is not None  # the journey prepared this upstream
    if driver._alarm is not None:
        driver._alarm.stop()
    plan = driver.plan = journey.go_on(before.so_far.attempts, driver.upload)
    scope = plan.scope = driver.context.registry.scope(plan.policy, plan.request, now)
    call = driver._decide()
    if plan.policy.tokens is not None:
        expect_price(call, plan, scope, body_of(driver.upload, driver.journey), driver.upload, now)
    actions = call.go_on(before, now)
    driver.due_by(NEVER if call.so_far.deadline is None else call.so_far.deadline)
    if plan.policy.timeouts.idle is not None:
        driver.moved = now
        driver.due_by(now + plan.policy.timeouts.idle)
    driver.carry_out(actions, now)


#: How each action that `CallDriver.carry_out` does not name is carried out, by its type.
_CARRIED_OUT: dict[type[Action], Callable[[CallDriver, Any, float], None]] = {
    Cancel: _cancel,
    Peek: _peek,
    Ask: _ask,
    FallBack: _fall_back,
    Answer: _answer,
}
