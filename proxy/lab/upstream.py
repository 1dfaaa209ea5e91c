"""The upstream's reaction to one sending of a request, as a policy test or a question describes it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from proxy.retry.facts import Fault, FaultKind, Fields, MappingFields, Progress, Reply
from proxy.transport.faults import attempt_timeout, closed, dialling


@dataclass(slots=True)
class Sending:
    """The upstream's reaction to one sending of a request: an answer or a fault, `after` seconds.

    `pieces`: the body, if it does not come with the head; each piece has the seconds after which it comes, and the last
    one completes the answer. `cut`: the seconds from the head after which the answer breaks off, None if it does not;
    `come`, `began` and `handed_on` are noted by the driver: the pieces that have come so far, the time of the sending
    (seconds), and the time at which the answer began to go to the app, if its body was not whole then.
    """

    after: float
    reply: Reply | None = None
    body: bytes = b""
    trailers: Fields | None = None
    fault: Fault | None = None
    pieces: tuple[tuple[float, bytes], ...] = ()
    cut: float | None = None
    come: bytes = b""
    began: float = 0.0
    handed_on: float | None = None

    @property
    def never_ends(self) -> bool:
        """Whether nothing follows the answer's head, not even the end of its body."""
        return bool(self.pieces) and self.pieces[0][0] == math.inf


#: Each kind of fault as the wire tells it, in its words.
FAULTS = {
    fault.kind: fault
    for fault in (
        dialling(ConnectionRefusedError()),
        Fault(FaultKind.REFUSED_STREAM, Progress.REFUSED, detail="the stream was refused"),
        closed(sent=True, answered=False, reused=False),
        attempt_timeout(),
    )
}
#: gRPC A6's pushback, published and draft.
_GRPC_PUSHBACK = frozenset({"grpc-retry-pushback-ms", "x-grpc-retry-pushback-ms"})


@dataclass(frozen=True, slots=True)
class UpstreamStep:
    """The upstream's reaction to one sending, as a script says it: `fail`, or an answer.

    `after` (seconds) is None if the script does not say it. `code`: the HTTP/2 error code of a reset. `ends_bare`: the
    answer ends with its head, without grpc-status; otherwise a status below 400 is a success of a gRPC call too. `key`
    is the number, from 1, of the credential whose attempts get this reaction, `key_version` the version of its file,
    from 1, `endpoint` the label of the endpoint; None for any. `first_byte`: seconds from the sending to the first byte
    of the body, as for `after`; `events`: the body of an event stream, each event with the seconds since the one before
    it. `cut`: the seconds from the answer's head after which the connection breaks, None if it does not.
    """

    status: int = 200
    fail: FaultKind | None = None
    after: float | None = None
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    grpc_status: int | None = None
    trailers: tuple[tuple[str, str], ...] = ()
    code: int | None = None
    ends_bare: bool = False
    key: int | None = None
    key_version: int | None = None
    endpoint: str | None = None
    first_byte: float | None = None
    events: tuple[tuple[float, bytes], ...] | None = None
    cut: float | None = None

    @property
    def streams(self) -> bool:
        """Whether the answer's body comes later than its head, in pieces, as in a stream."""
        return self.first_byte is not None or self.events is not None

    def answering(self, method: str) -> UpstreamStep:
        """The reaction to a request with this method: an answer to HEAD ends with its head, as those with the statuses
        204 and 304 do (RFC 9112, 6.3), whatever body the script gives.
        """
        if method != "HEAD" and self.status not in (204, 304):
            return self
        return replace(self, body=b"", events=None, first_byte=None, cut=None)

    def sending(self, attempt_timeout: float | None) -> Sending:
        """The reaction on the virtual clock: `after` seconds from the sending if that is given, else at once; a timeout
        without `after` comes after `attempt_timeout` seconds.
        """
        if self.fail is not None:
            timeout = (attempt_timeout or 0.0) if self.fail is FaultKind.ATTEMPT_TIMEOUT else 0.0
            fault = FAULTS[self.fail] if self.code is None else replace(FAULTS[self.fail], code=self.code)
            return Sending(timeout if self.after is None else self.after, fault=fault)
        after, head, trailers = self.after or 0.0, list(self.headers), list(self.trailers)
        if self.grpc_status is not None:
            trailers.append(("grpc-status", str(self.grpc_status)))
            if not self.body:  # trailers-only: the head is the trailers
                return Sending(after, Reply(self.status, MappingFields([*head, *trailers]), end=True))
            # A pushback comes where the status comes (gRPC A6: in the trailing metadata).
            trailers += [field for field in head if field[0].lower() in _GRPC_PUSHBACK]
            head = [field for field in head if field[0].lower() not in _GRPC_PUSHBACK]
        if self.events is not None and not any(name.lower() == "content-type" for name, _ in head):
            head.append(("content-type", "text/event-stream"))
        pieces = self._pieces(after) if self.streams else ()
        body = b"".join(data for _, data in pieces) if pieces else self.body
        is_all = not body and not pieces and not trailers and (self.ends_bare or self.status >= 400)
        is_all = is_all and self.cut is None
        reply = Reply(self.status, MappingFields(head), end=is_all)
        return Sending(after, reply, body, MappingFields(trailers) if trailers else None, pieces=pieces, cut=self.cut)

    def _pieces(self, after: float) -> tuple[tuple[float, bytes], ...]:
        """The pieces of the answer's body, each with the seconds after which it comes; the answer's head comes `after`
        seconds from the sending.
        """
        begins = max(after, self.first_byte or 0.0)
        if self.events is None:
            return ((begins, self.body),)
        pieces: list[tuple[float, bytes]] = []
        at = after
        for wait, data in self.events:
            at = max(at + wait, begins)
            pieces.append((at, data))
        return tuple(pieces) or ((begins, b""),)
