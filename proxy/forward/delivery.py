"""The delivery of a call's answer to its app: an upstream's answer, or one of the proxy's own."""

from __future__ import annotations

from typing import cast

from proxy.forward.attempt import Attempt
from proxy.forward.context import Context
from proxy.forward.fallback import Journey
from proxy.forward.headers import attempt_results, forwarded_changes, gave_up, via_line, via_name
from proxy.forward.own_answers import OwnAnswer, answer_of, given_up_answer, grpc_status_of_answer, own_grpc_status
from proxy.forward.pipe import Pipe
from proxy.forward.request_plan import Plan
from proxy.forward.resume import Resumer
from proxy.forward.streams import AppStream, ConnectionStream, Tunnelling
from proxy.forward.token_prices import read_usage
from proxy.retry.answers.stream_ends import UNFINISHED
from proxy.retry.answers.stream_errors import StreamWatch, watch_for_errors
from proxy.retry.answers.token_usage import UsageReader
from proxy.retry.call.actions import Answer
from proxy.retry.call.call_state import CallState
from proxy.retry.facts import UNAVAILABLE, Fault, Outcome, Reply, grpc_status_of_http
from proxy.retry.policies.policy import Policy
from proxy.transport.streams import UpstreamStream
from proxy.wire.head import ResponseHead, Trailers
from proxy.wire.http1.body import data_of

_NO_NAMES: frozenset[bytes] = frozenset()
#: Module-level names of enumeration members, which are faster to read: see `proxy.retry.facts`.
_SUCCESS = Outcome.SUCCESS
#: The app of an exchange that is kept for another call.
_NO_APP = cast(AppStream, None)


class Delivery:
    """The delivery of one call's answer to its app, and the figures of what was sent.

    `app`: the stream to write to; `direct`: the same stream if it is a whole connection (HTTP/1), else None. `client`:
    the app's address. `status`: the status that the app got, 0 for none; `grpc_status`: the status with which a gRPC
    call ended for the app. `bytes_out`: bytes of the answer's body. `detail`: what went wrong, for the record. `pipe`:
    the tunnel, None if there is none. `resumer`: the resumption of the answer, None if it has not broken.
    """

    __slots__ = (
        "app", "bytes_out", "client", "context", "detail", "direct", "grpc_status", "pipe", "resumer", "status",
    )  # fmt: skip

    app: AppStream
    client: str
    direct: ConnectionStream | None

    def __init__(self, context: Context, app: AppStream) -> None:
        self.context = context
        self.status = 0
        self.grpc_status: int | None = None
        self.bytes_out = 0
        self.detail = ""
        self.pipe: Pipe | None = None
        self.resumer: Resumer | None = None
        self.serve(app)

    def serve(self, app: AppStream) -> None:
        """Write the answer to this stream of the app from now on."""
        self.app = app
        self.direct = app if isinstance(app, ConnectionStream) else None
        self.client = app.client

    def release(self) -> None:
        """Forget the app's stream."""
        self.app = _NO_APP
        self.direct = None

    def respond(
        self,
        head: ResponseHead,
        drop: frozenset[bytes],
        add: bytes,
        data: bytes,
        end: bool,
        trailers: Trailers | None,
    ) -> None:
        """Write the head of an answer, and the part of its body that came with it (`AppStream.respond`)."""
        direct = self.direct
        if direct is not None:
            direct.respond(head, drop, add, data, end, trailers)
        else:
            self.app.respond(head, drop, add, data, end, trailers)

    # -- an upstream's answer -------------------------------------------------------------------------------------

    def inform(
        self, attempt: Attempt, head: ResponseHead, plan: Plan, journey: Journey | None, *, resent: bool
    ) -> None:
        """Forward an interim answer (1xx) of this attempt. `journey`: the call's course over several upstreams, None
        for a call that can't fall back; `resent`: whether the proxy has repeated the request by itself.
        """
        self.app.inform(head, via_line(self._via(attempt, plan, journey), head.version), resent=resent)

    def deliver(
        self, attempt: Attempt, plan: Plan, call: CallState, journey: Journey | None, outcome: Outcome, now: float
    ) -> None:
        """Forward the answer of this attempt: its head, and the body so far. `journey`: the call's course over several
        upstreams, None for a call that can't fall back; `outcome`: how the call ends by this answer.
        """
        head, policy = attempt.head, plan.policy
        answers = policy if journey is None else journey.policy_of(attempt.number)
        held = now - attempt.arrived
        drop, add = forwarded_changes(call, answers, head, self.context.via, outcome, held, plan.is_grpc)
        if journey is not None:
            drop |= journey.dropped(attempt.number)
        data = attempt.take()
        self.bytes_out += len(data)
        rules, reads = policy.classify, None
        if answers.tokens is not None or (outcome is _SUCCESS and (rules.looks_below_400 or rules.stream_ends)):
            reply, watch = Reply(head.status, head), None
            if outcome is _SUCCESS:
                watch = watch_for_errors(rules, reply, call.stream_ends(reply) if rules.stream_ends else ())
            reads = attempt.watch = read_usage(answers, reply, watch)
            if reads is not None and data:
                self.read_along(attempt, data, policy)
        ended = attempt.ended and not (reads is not None and reads.unfinished)
        self.respond(head, drop, add, data, ended, attempt.trailers)
        self.status = head.status  # set last: an answer that could not be written does not count
        if ended and plan.is_grpc:
            self.note_grpc_status(head, attempt.trailers)

    def forward(self, attempt: Attempt, data: bytes, policy: Policy) -> None:
        """Forward `data`, more of an answer's body. `policy`: that of the upstream that answered."""
        self.bytes_out += len(data)
        direct = self.direct
        if direct is not None:
            direct.write(data)
        else:
            self.app.write(data)
        if attempt.watch is not None:
            self.read_along(attempt, data, policy)
        if (self.app.blocked if direct is None else direct.blocked) and attempt.stream is not None:
            attempt.stream.pause()

    def forward_chunks(self, attempt: Attempt, chunks: bytes, size: int, owed: int) -> None:
        """Forward more of an answer's body, in chunks as they came. `size`: the bytes of data in them, without the
        chunks' framing; `owed`: the bytes of the last chunk that are still missing, 0 if that chunk is whole.
        """
        direct = self.direct
        if direct is None or direct.chunks is None:  # the app has left
            return
        self.bytes_out += size
        if attempt.watch is not None and owed < 0:
            owed = 0  # what is found in these chunks may come between them and the end
        direct.chunks.pass_on(chunks, owed)
        if direct.blocked and attempt.stream is not None:
            attempt.stream.pause()

    def end_unfinished(self, attempt: Attempt, policy: Policy) -> None:
        """End a stream of events that ended cleanly without its last event, as the policy says: end the answer as it
        came, break it off, or add the event by which the provider itself reports an error of its server.
        """
        self.detail = UNFINISHED.detail
        self.context.observer.stream_unfinished(policy)
        wanted = policy.unfinished if policy.mode == "enforce" else "tell"
        error = b"" if wanted != "event" else error_event(attempt.watch, attempt.head)
        if error:
            self.bytes_out += len(error)
            self.app.write(error)
        if wanted == "tell" or error:
            self.app.finish(attempt.trailers)
        else:
            self.app.reset(UNFINISHED)

    def note_grpc_status(self, head: ResponseHead, trailers: Trailers | None) -> None:
        """Note the status that the app of a gRPC call derives from an answer that is whole, with this head and these
        trailers (None for none).
        """
        status = Reply(head.status, head, trailers=trailers).grpc_status
        self.grpc_status = grpc_status_of_http(head.status) if status is None else status

    def break_off(self, fault: Fault | None, *, grpc: bool) -> None:
        """Break off an answer that the app has begun to get. `fault`: the fault of the upstream's stream, None if that
        did not cause it; `grpc`: whether the call is a gRPC call.
        """
        if grpc:
            self.grpc_status = UNAVAILABLE if fault is None else fault.grpc_status
        self.resumer = None
        self.app.reset(fault)

    def open_tunnel(self, stream: UpstreamStream) -> None:
        """Carry bytes both ways between the app and `stream`, the upstream's, because the app asked for a tunnel or for
        an upgrade.
        """
        app = cast(Tunnelling, self.app)
        self.pipe = Pipe(app, stream)
        app.tunnel()

    def _via(self, attempt: Attempt, plan: Plan, journey: Journey | None) -> str:
        """Return the proxy's name for the Via line of an attempt's answer; "" if the policy of the upstream that
        answered adds no Via. `journey`: the call's course over several upstreams, None for a call that can't fall back.
        """
        policy = plan.policy if journey is None else journey.policy_of(attempt.number)
        return via_name(policy, self.context.via)

    def read_chunks(self, attempt: Attempt, chunks: bytes, size: int, policy: Policy) -> None:
        """Look for errors in `chunks`, whole ones of an answer's body with so many bytes of data (`size`), with the
        attempt's `watch`. Each but the last ends with the end of a line.
        """
        reads = attempt.watch
        if type(reads) is StreamWatch:
            watch = reads
            if watch.passes_over(chunks, size):
                return  # nearly every event ends here
        self.read_along(attempt, data_of(chunks, size), policy)

    def read_along(self, attempt: Attempt, data: bytes, policy: Policy) -> None:
        """Look for errors in `data`, the next forwarded bytes of an answer's body, with the attempt's `watch`."""
        reads = attempt.watch
        if type(reads) is StreamWatch:
            watch = reads
            found = watch.feed(data)
        else:
            assert reads is not None  # the callers have asked
            found = reads.feed(data)
        for error in found:
            self.detail = f"its stream reported an error: {error}"
            self.context.observer.stream_failed(policy, error)

    # -- an answer of the proxy's own -----------------------------------------------------------------------------

    def answer(self, action: Answer, call: CallState, journey: Journey | None) -> None:
        """Write the answer of the proxy's own that `action` asks for. `journey`: the call's course over several
        upstreams, whose attempts the answer then lists; None for a call that can't fall back.
        """
        grpc = call.request.is_grpc
        self.detail = action.detail
        before = attempt_results(call.history) if journey is not None and journey.since else ""
        self.status, lines, body = answer_of(action, call, before)
        self.grpc_status = grpc_status_of_answer(action) if grpc else None
        self.bytes_out = len(body)
        self.app.answer(self.status, lines, body)

    def lacks_grpc_status(self, head: ResponseHead, plan: Plan, call: CallState, outcome: Outcome) -> bool:
        """Whether a gRPC call on HTTP/2 is being given up with an answer that has no grpc-status, so that `give_up`
        must add one. `head`: the answer's; `outcome`: how the call ends.
        """
        if not plan.head.is_http2 or head.get(b"grpc-status") is not None:
            return False
        return gave_up(plan.policy, outcome, call.attempts, no_place=call.found_no_place)

    def give_up(self, attempt: Attempt, plan: Plan, call: CallState, journey: Journey | None, outcome: Outcome) -> None:
        """Answer a gRPC call that is given up. In place of the HTTP error of this attempt, the app gets the grpc-status
        that the HTTP status maps to. `journey`: the call's course over several upstreams, None for a call that can't
        fall back.
        """
        head, via = attempt.head, self._via(attempt, plan, journey)
        self.status = 200
        self.grpc_status = grpc_status_of_http(head.status)
        self.app.answer(200, given_up_answer(call, head, via, outcome=outcome), b"")

    def break_down(self, upstream: str, *, grpc: bool) -> None:
        """Answer that the call failed by a defect of the proxy; if an answer has begun, break it off instead.
        `upstream`: the name of the call's upstream; `grpc`: whether the call is a gRPC call.
        """
        if self.status:
            self.app.reset(None)
            return
        self.detail = "the proxy failed; its log says more"
        outcome = Outcome.NOT_RETRYABLE
        answer = OwnAnswer(500, "Internal Server Error", self.detail, outcome, upstream, grpc=grpc)
        self.status, lines, body = answer.render()
        self.grpc_status = own_grpc_status(500) if grpc else None
        self.app.answer(self.status, lines, body)


def error_event(watch: StreamWatch | UsageReader | None, head: ResponseHead) -> bytes:
    """Return the event by which the provider itself reports an error of its server in a stream of events, so that the
    app's SDK reports an error. Return b"" if the event can't follow the bytes that the app has got: the answer has a
    length or a coding, or broke within an event. `watch`: the reader of the answer; `head`: the answer's head.
    """
    reads = watch.watch if isinstance(watch, UsageReader) else watch
    if reads is None or reads.ends is None or not reads.is_between_events:
        return b""
    return b"" if head.content_length is not None else reads.ends.error
