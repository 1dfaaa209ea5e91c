"""The driver that carries out a call's actions on a virtual clock.

The driver drives the same `Call` objects that the proxy drives with sockets (`proxy.forward.exchange` is the
counterpart); nothing is decided in this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import proxy.retry.call.actions as act
from proxy.lab.clock import ALARM, DEADLINE, UPSTREAM, Clock
from proxy.lab.request_body import BufferBudget, KeptBody
from proxy.lab.upstream import FAULTS, Sending
from proxy.retry.answers.content_coding import coding_of, decoded
from proxy.retry.answers.event_stream import SseReader
from proxy.retry.answers.first_byte import PEEK_LIMIT, BodyWait
from proxy.retry.answers.stream_ends import UNFINISHED, EndReader
from proxy.retry.answers.token_usage import TokenUsage, UsageReader
from proxy.retry.call.machine import Call
from proxy.retry.facts import FaultKind, Outcome
from proxy.retry.policies.bucket_specs import TokenRules
from proxy.retry.policies.policy import Fallback, Timeouts
from proxy.transport.faults import closed, first_byte_timeout, idle_timeout

#: The body of a request that asks for a stream.
ASKS_FOR_STREAM = b'{"stream": true}'

#: The timeouts of a call that waits for every answer.
NO_TIMEOUTS = Timeouts(idle=None)

#: The fate of a request that has not reached the upstream yet.
_UNKNOWN = Sending(math.inf)

#: Decides what happens to a sending of attempt n (first) that begins now (second).
UpstreamModel = Callable[[int, float], Sending]


class Driver:
    """A driver of one call on the virtual clock. Subclasses observe the call through `launched`, `ended` and `over`.
    `timeouts`: those of the call's policy; `body_size`: the bytes of the request's body; `buffers`: the room for bodies
    that may be sent again, None for as much as is needed.
    """

    #: The pieces of the request's body, unless a call sets its own: they ask for a stream.
    asked: Sequence[bytes] = (ASKS_FOR_STREAM,)

    def __init__(
        self,
        clock: Clock,
        upstream: UpstreamModel,
        *,
        timeouts: Timeouts = NO_TIMEOUTS,
        body_size: int = 0,
        buffers: BufferBudget | None = None,
    ) -> None:
        self.clock = clock
        self.call: Call = None  # type: ignore[assignment]  # until it begins
        self.timeouts = timeouts
        self.body = KeptBody(body_size, buffers)
        self.key: int | None = None  # of the credential that the latest sending carries
        self.began = 0.0
        self.endpoint: int | None = None  # of the latest sending, where the call chose it
        self.delivered: int | None = None
        self.sent_on: Sending | None = None  # the sending whose answer goes to the app
        self.answer: act.Answer | None = None
        self.outcome: Outcome | None = None
        self.finished: float | None = None
        self._upstream = upstream
        self._flying: dict[int, tuple[int, Sending]] = {}
        self._held: dict[int, Sending] = {}
        self._body_waits: dict[int, BodyWait] = {}
        self._sendings = 0
        self._alarm: float | None = None
        self._pending: list[act.Action] | None = None  # what is still to be carried out; None: nothing is being

    # what a subclass may watch

    def launched(self, attempt: int) -> float:
        """Note that the attempt with this number is sent now. Returns the seconds that its request takes to reach the
        upstream.
        """
        return 0.0

    def ended(self, attempt: int) -> None:
        """Note that a sending of the attempt with this number has ended, and that the call has dealt with that."""

    def cancelled(self, attempt: int) -> None:
        """Note that a sending of the attempt with this number was aborted."""

    def over(self) -> None:
        """Note that the call has ended."""

    def call_elsewhere(self, entry: Fallback) -> Call:
        """Return the `Call` that continues this call at the upstream of a fallback entry; for calls that may fall back
        only.
        """
        raise NotImplementedError

    # events

    def begin(self, call: Call) -> None:
        """Begin the call: the app's request has come."""
        self.call = call
        self.began = self.clock.now
        self._carry_out(call.start(self.clock.now))
        self._watch_deadline(call)

    def _watch_deadline(self, call: Call) -> None:
        if call.so_far.deadline is not None and self.finished is None:
            self.watch(call.so_far.deadline)

    def watch(self, deadline: float) -> None:
        """Schedule the end of the call's time, at `deadline`."""
        self.clock.at(deadline, DEADLINE, self._deadline)

    def go_away(self) -> None:
        """End the app's connection, as an app does that no longer waits."""
        if self.finished is None:
            self._carry_out(self.call.app_gone(self.clock.now))

    def set_alarm(self, at: float) -> None:
        """Set the call's one alarm to the time `at`. The call asks for that, or a gate that changed the time at which
        the call may go on.
        """
        self._alarm = at
        self.clock.at(at, ALARM, self._ring, at)

    def _ring(self, at: float) -> None:
        if self._alarm != at or self.finished is not None:
            return  # replaced by a later one
        self._alarm = None
        self._carry_out(self.call.woke(self.clock.now))

    def _deadline(self) -> None:
        if self.finished is None and self.delivered is None:
            self._carry_out(self.call.woke(self.clock.now))

    def _arrive(self, attempt: int, number: int) -> None:
        flying = self._flying.get(attempt)
        if flying is None or flying[0] != number:
            return  # cancelled
        sending = flying[1]
        now = self.clock.now
        if sending.fault is not None:
            del self._flying[attempt]
            self._carry_out(self.call.failed(attempt, sending.fault, now))
        else:
            assert sending.reply is not None
            sending.reply.whole = not sending.pieces and sending.cut is None
            self._carry_out(self.call.head(attempt, sending.reply, now))
            if sending.cut is not None:
                self.clock.at(now + sending.cut, UPSTREAM, self._cut, attempt, number)
            if attempt in self._body_waits:
                return  # more of it is waited for
            self._hold(attempt)
        if attempt != self.delivered or self.finished is not None:  # else the answer is still on its way to the app
            self.ended(attempt)

    def _hold(self, attempt: int) -> None:
        """Keep an attempt's answer after it was judged, until the call says whether it is delivered or dropped."""
        flying = self._flying.pop(attempt, None)
        if flying is not None:
            self._held[attempt] = flying[1]

    def _come(self, attempt: int, number: int, place: int) -> None:
        """Deliver the piece at index `place` of the body of an answer whose head is kept, in sending `number` of the
        attempt.
        """
        flying, body_wait = self._flying.get(attempt), self._body_waits.get(attempt)
        if flying is None or flying[0] != number or body_wait is None:
            return
        now, pieces = self.clock.now, flying[1].pieces
        data, body = pieces[place][1], b"".join(data for _, data in pieces[: place + 1])
        seen = bool(data) and body_wait.feed(data, now)
        flying[1].come = body
        if seen or (place + 1 == len(pieces) and flying[1].cut is None):
            self._seen(attempt)
        elif place + 1 < len(pieces):
            later = pieces[place + 1][0] - pieces[place][0]
            self.clock.at(now + later, UPSTREAM, self._come, attempt, number, place + 1)

    def _seen(self, attempt: int) -> None:
        """Report to the call the bytes of an answer's body that have come so far, because they suffice to judge the
        answer, or because no more is waited for.
        """
        del self._body_waits[attempt]
        body = self._flying[attempt][1].come
        self._carry_out(self.call.peeked(attempt, body[:PEEK_LIMIT], self.clock.now))
        self._hold(attempt)
        if attempt != self.delivered or self.finished is not None:  # else the answer is still on its way to the app
            self.ended(attempt)

    def _go_on(self, attempt: int, number: int) -> None:
        """Stop keeping the head of an attempt's answer, because its body was waited for as long as the policy allows;
        do nothing if sending `number` of the attempt is no longer under way.
        """
        flying, body_wait = self._flying.get(attempt), self._body_waits.get(attempt)
        if flying is None or flying[0] != number or body_wait is None:
            return
        if body_wait.tire(self.clock.now):
            self._seen(attempt)
        elif body_wait.goes_on < math.inf:  # more of it has come meanwhile
            self.clock.at(body_wait.goes_on, UPSTREAM, self._go_on, attempt, number)

    def _cut(self, attempt: int, number: int) -> None:
        """Break off the answer to sending `number` of an attempt, whether the answer is kept or on its way to the
        app.
        """
        flying = self._flying.get(attempt)
        if self.finished is not None or (flying is not None and flying[0] != number):
            return
        if flying is None and attempt != self.delivered:
            return  # it was cancelled, or judged to be a failure
        self._flying.pop(attempt, None)
        self._body_waits.pop(attempt, None)
        rules = self.call.so_far.policy.tokens
        if attempt == self.delivered and self.sent_on is not None and rules is not None:
            self.call.used(self.usage(rules, self.sent_on, whole=False), self.clock.now)
        self._carry_out(self.call.failed(attempt, closed(sent=True, answered=True, reused=False), self.clock.now))
        self.ended(attempt)

    def _stall(self, attempt: int, number: int) -> None:
        """End an attempt for which no first byte that counts came in time, if sending `number` is still under way."""
        flying, body_wait = self._flying.get(attempt), self._body_waits.get(attempt)
        if flying is None or flying[0] != number or body_wait is None or body_wait.due is None:
            return
        del self._flying[attempt], self._body_waits[attempt]
        self._carry_out(self.call.failed(attempt, first_byte_timeout(answered=True), self.clock.now))
        self.ended(attempt)

    # actions

    def _carry_out(self, actions: act.Actions) -> None:
        """Carry out these actions, and the actions that follow from them, in the order in which they were asked for."""
        if self._pending is not None:  # by the loop below, which is under way
            self._pending.extend(actions)
            return
        pending = self._pending = list(actions)
        for action in pending:  # it grows meanwhile
            self._do(action)
        while self.body.has_overflowed:
            pending.clear()
            self._lose_replay()
            for action in pending:
                self._do(action)
        self._pending = None

    def _do(self, action: act.Action) -> None:
        _CARRIED_OUT[type(action)](self, action)

    def _then(self, actions: act.Actions) -> None:
        """Queue actions after all actions that were asked for before."""
        assert self._pending is not None
        self._pending.extend(actions)

    def _do_ask(self, action: act.Ask) -> None:
        assert self.call.so_far.next_attempt.scope.bucket is not None
        self.call.so_far.next_attempt.scope.bucket.ask(action.price, action.due, self.clock.now, self._answered)

    def _do_cancel(self, action: act.Cancel) -> None:
        self._flying.pop(action.attempt, None)
        self._body_waits.pop(action.attempt, None)
        self.cancelled(action.attempt)

    def _do_answer(self, action: act.Answer) -> None:
        self.answer = action

    def _do_fall_back(self, action: act.FallBack) -> None:
        """Continue the call at another upstream."""
        before = self.call
        self._alarm = None
        self.call = self.call_elsewhere(action.entry)
        self._then(self.call.go_on(before, self.clock.now))
        self._watch_deadline(self.call)

    def _do_launch(self, action: act.Launch) -> None:
        self.key, self.endpoint = action.key, action.endpoint
        transit = self.launched(action.attempt)
        if not transit:
            self._reach(action)
            return
        self._sendings += 1
        self._flying[action.attempt] = (self._sendings, _UNKNOWN)
        self.clock.at(self.clock.now + transit, UPSTREAM, self._reach, action, self._sendings)

    def _reach(self, action: act.Launch, number: int = 0) -> None:
        """Let the upstream decide what happens to a request that has reached it. `number`: that of the sending, if it
        was on its way for a time; nothing happens if its attempt was cancelled meanwhile.
        """
        attempt, now = action.attempt, self.clock.now
        if number and self._flying.get(attempt, (0, _UNKNOWN))[0] != number:
            return
        self.key, self.endpoint = action.key, action.endpoint
        sending = self._upstream(attempt, now)
        if not _connecting(sending):  # a sending that never connects reads no body, and waits for no answer
            self.body.read()
            outgrown = self.body.is_lost and not self.call.needs_no_buffer
            limit = self.timeouts.idle if outgrown else self.timeouts.attempt
            if limit is not None and sending.after > limit:
                sending = Sending(limit, fault=FAULTS[FaultKind.ATTEMPT_TIMEOUT])
            self.call.request_sent(now, self.asked)
            if sending.pieces:
                sending.began = now
            first = None if outgrown else self.call.first_byte
            if first is not None and sending.after > first:
                sending = Sending(first, fault=first_byte_timeout(answered=False))
        self._sendings += 1
        self._flying[attempt] = (self._sendings, sending)
        self.clock.at(now + sending.after, UPSTREAM, self._arrive, attempt, self._sendings)

    def _lose_replay(self) -> None:
        self.body.has_overflowed = False
        if self.finished is None and self.delivered is None:
            sending = (attempt for attempt, (_, fate) in self._flying.items() if not _connecting(fate))
            self._then(self.call.replay_lost(self.clock.now, min(sending, default=0)))

    def _do_deliver(self, action: act.Deliver) -> None:
        """Deliver an answer. The delivery is over as soon as it begins if all of the body has come, else with the
        body's last piece.
        """
        attempt = self.delivered = action.attempt
        self.body.free()
        flying = self._flying.pop(attempt, None)
        sending = self._held.pop(attempt) if flying is None else flying[1]
        assert sending.reply is not None
        self.sent_on = sending
        if sending.never_ends:
            self._wait_in_silence(attempt)
            return
        if sending.cut is not None:
            return  # its break ends the call
        last = sending.began + sending.pieces[-1][0] if sending.pieces else 0.0
        if last > self.clock.now:
            sending.handed_on = self.clock.now
            self.clock.at(last, UPSTREAM, self._complete, attempt, sending)
        else:
            self._complete(attempt, sending)

    def _complete(self, attempt: int, sending: Sending) -> None:
        """End the delivery of an answer that is there to its last piece, unless the app has left."""
        if self.finished is not None:
            return
        call, now, came_later = self.call, self.clock.now, self._pending is None
        if call.so_far.policy.unfinished != "tell" and _is_unfinished(call, sending):
            actions = call.failed(attempt, UNFINISHED, now)
        else:
            rules = call.so_far.policy.tokens
            if rules is not None:
                call.used(self.usage(rules, sending), now)
            actions = call.ended(attempt, now, sending.trailers)
        self._carry_out(actions)
        if came_later:
            self.ended(attempt)

    def usage(self, rules: TokenRules, sending: Sending, *, whole: bool = True) -> TokenUsage:
        """The tokens that a delivered answer says it cost. `rules` say where an answer has that number; `sending` has
        the answer. `whole`: all of it has come; if not, what has come by now counts.
        """
        assert sending.reply is not None
        reader, come = UsageReader(rules, sending.reply), self.clock.now - sending.began
        for piece in [data for at, data in sending.pieces if whole or at <= come] if sending.pieces else [sending.body]:
            reader.feed(piece)
        return reader.ended(whole=whole)

    def _wait_in_silence(self, attempt: int) -> None:
        """Wait for the idle timeout of an answer that has begun and sends nothing more."""
        if self.timeouts.idle is not None:
            self.clock.at(self.clock.now + self.timeouts.idle, DEADLINE, self._fall_silent, attempt)

    def _fall_silent(self, attempt: int) -> None:
        if self.finished is None and (attempt == self.delivered or self._body_waits.pop(attempt, None) is not None):
            self._flying.pop(attempt, None)
            self._carry_out(self.call.failed(attempt, idle_timeout(answered=True), self.clock.now))
            self.ended(attempt)

    def _do_peek(self, action: act.Peek) -> None:
        flying, body_wait = self._flying.get(action.attempt), action.body_wait
        if flying is None:
            return
        (number, sending), now = flying, self.clock.now
        seen = body_wait is not None and bool(sending.body) and not sending.pieces and body_wait.feed(sending.body, now)
        if body_wait is None or seen or not (sending.pieces or sending.cut is not None):
            self._then(self.call.peeked(action.attempt, sending.body[: action.limit], now))
            return
        if body_wait.goes_on < math.inf:
            self.clock.at(body_wait.goes_on, UPSTREAM, self._go_on, action.attempt, number)
        self._body_waits[action.attempt] = body_wait
        body_wait.began = now - sending.after
        if sending.never_ends:
            self._wait_in_silence(action.attempt)
        elif sending.pieces:
            self.clock.at(body_wait.began + sending.pieces[0][0], UPSTREAM, self._come, action.attempt, number, 0)
        if body_wait.due is not None:
            self.clock.at(body_wait.due, DEADLINE, self._stall, action.attempt, number)

    def _answered(self, price: float, granted: bool) -> None:
        """Report to the call whether its bucket granted the price of a retry, once the bucket has answered; a call that
        is over gives the granted tokens back.
        """
        answered = self.call.granted if granted else self.call.refused
        self._carry_out(answered(price, self.clock.now))

    def _do_finish(self, action: act.Finish) -> None:
        if self.finished is None:
            self.finished = self.clock.now
            self.outcome = action.outcome
            self.body.free()
            self.over()


def _is_unfinished(call: Call, sending: Sending) -> bool:
    """Whether an answer is a stream of events that ends without its last event."""
    assert sending.reply is not None
    ends = call.so_far.stream_ends(sending.reply)
    if not ends:
        return False
    reader, events = EndReader(ends), SseReader()
    reader.see(events.feed(decoded(sending.body, coding_of(sending.reply.fields))))
    return reader.unfinished and not reader.ends_with(events.cut_short())


def _connecting(sending: Sending) -> bool:
    """Whether a sending fails before it is connected. The policy's `timeouts.attempt` does not bound such a sending,
    since it runs from the request's last byte.
    """
    return sending.fault is not None and sending.fault.kind is FaultKind.CONNECT_FAILURE


#: How each action is carried out: looked up by its type, since a simulation does so a million times.
_CARRIED_OUT: dict[type[Any], Callable[[Driver, Any], Any]] = {
    act.Launch: Driver._do_launch,
    act.WakeAt: lambda driver, action: driver.set_alarm(action.at),
    act.Peek: Driver._do_peek,
    act.Ask: Driver._do_ask,
    act.Cancel: Driver._do_cancel,
    act.Deliver: Driver._do_deliver,
    act.Answer: Driver._do_answer,
    act.FallBack: Driver._do_fall_back,
    act.Finish: Driver._do_finish,
    act.Discard: lambda driver, action: driver._held.pop(action.attempt, None),
    act.Hold: lambda driver, action: None,  # an answer that has come whole is kept anyway
}
