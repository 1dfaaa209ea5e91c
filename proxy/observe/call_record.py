"""The record of a call that is over, in the form in which all observers get it. `proxy.observe.call_json` writes it as
JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import lru_cache

from proxy.retry.call.attempt_record import AttemptRecord, FallbackRecord
from proxy.retry.facts import Class, Outcome
from proxy.retry.policies.policy import Backoff, Policy, Strategy

#: The policy of a request that was answered before any policy applied to it.
NO_POLICY = Policy("", "", Strategy("standard", "", 1, Backoff(0.0, 0.0)), None)
#: Names for members of enumerations: see `proxy.retry.facts`.
SUCCESS = Outcome.SUCCESS
_SUCCESS_CLASS = Class.SUCCESS


class Course:
    """The course of a call: how often it was sent, and what was decided about it.

    `history`: every attempt in order; empty if the only attempt was sent at once and succeeded. `fallbacks`: the other
    upstreams that the call went on to, or could not go on to. `detail`: for an answer of the proxy's own, what went
    wrong. `agent`: the product that the app's User-Agent names, as `curl/8.5.0`, if something was decided about the
    call; else "". `app_retry`: the app itself was retrying (contract, section 5). `trace`: the trace and the span that
    the call's log record belongs to, as the value of a traceparent (W3C Trace Context); "" if there are no spans of the
    call. `was_sent_once`: whether the call succeeded with its first attempt; a gate may have held it before that.
    `key`, `key_why`: if `history` is empty, the number of the credential that the only attempt carried (from 0), and
    why that credential was chosen; else None and "".
    """

    __slots__ = (
        "agent", "app_retry", "attempts", "detail", "fallbacks", "history", "key", "key_why", "outcome", "trace",
        "was_sent_once",
    )  # fmt: skip

    def __init__(
        self,
        outcome: Outcome,
        attempts: int,
        history: Sequence[AttemptRecord] = (),
        detail: str = "",
        fallbacks: Sequence[FallbackRecord] = (),
        agent: str = "",
        app_retry: bool = False,
    ) -> None:
        self.begin(outcome, attempts, history, detail, fallbacks, agent, app_retry)

    def begin(
        self,
        outcome: Outcome,
        attempts: int,
        history: Sequence[AttemptRecord],
        detail: str,
        fallbacks: Sequence[FallbackRecord],
        agent: str,
        app_retry: bool,
    ) -> None:
        """Set all of it, on an object that may have been made past its constructor, which takes longer."""
        self.outcome = outcome
        self.attempts = attempts
        self.history = history
        self.detail = detail
        self.fallbacks = fallbacks
        self.agent = agent
        self.app_retry = app_retry
        self.trace = self.key_why = ""
        self.key: int | None = None
        self.was_sent_once = attempts == 1 and outcome is SUCCESS and len(history) < 2 and not fallbacks


#: The course of nearly all calls: the only attempt was sent at once and succeeded. They share one object.
AT_ONCE = Course(SUCCESS, 1)


@lru_cache(maxsize=1024)
def at_once_with(key: int, why: str) -> Course:
    """The course of a call whose only attempt carried the credential of this number, chosen for the reason `why`, was
    sent at once, and succeeded. Such calls share one object.
    """
    course = Course(SUCCESS, 1)
    course.key, course.key_why = key, why
    return course


class CallRecord:
    """The record of a call that is over, or of a CONNECT tunnel, or of a request that was refused (`refused`).

    An observer may keep the record: it holds no body and no connection.

    `wall_started`: when the call began, in seconds since the epoch. `started`: when the request's head was whole, and
    `ended`: when the last byte of the answer was written, or the call was given up; both in seconds on the driver's
    clock. `authority` and `path`: as the app sent them, with the query, unmasked. `client`: the app's address,
    `host:port`; "" on a Unix socket. `status`: the status that the app got; 0 if the app got no answer. `bytes_in` and
    `bytes_out`: the bytes of the bodies from the app and to it. `endpoint`: where the last attempt went, `host:port`;
    "" if there was no attempt. `protocol`: the protocol of the app's connection, and `sent_by`: that of the only
    attempt if there is no history; either is http/1.1 (HTTP/1.0 too), http/2, or "" if it is unknown. `grpc_status`:
    the status with which a gRPC call ended for the app; None for other calls, and if the app got none. `app`: the name
    of the app, "" if the configuration names none. `number`: the call's number among all calls, from 1, once
    `proxy.observe.recent_calls` has numbered it. `course`: what was decided about the call; members of it that are
    often asked for can be read from the record too.
    """

    __slots__ = (
        "app", "authority", "bytes_in", "bytes_out", "client", "course", "ended", "endpoint", "grpc_status", "method",
        "number", "path", "policy", "protocol", "sent_by", "started", "status", "wall_started",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913  a record
        self,
        wall_started: float,
        started: float,
        ended: float,
        policy: Policy,
        method: str,
        authority: str,
        path: str,
        client: str,
        status: int,
        outcome: Outcome,
        attempts: int,
        bytes_in: int,
        bytes_out: int,
        endpoint: str,
        history: Sequence[AttemptRecord] = (),
        detail: str = "",
        app_retry: bool = False,
        number: int = 0,
        fallbacks: Sequence[FallbackRecord] = (),
        protocol: str = "",
        sent_by: str = "",
        grpc_status: int | None = None,
        agent: str = "",
        app: str = "",
    ) -> None:
        self.course = Course(outcome, attempts, history, detail, fallbacks, agent, app_retry)
        self.wall_started = wall_started
        self.started = started
        self.ended = ended
        self.policy = policy
        self.method = method
        self.authority = authority
        self.path = path
        self.client = client
        self.status = status
        self.bytes_in = bytes_in
        self.bytes_out = bytes_out
        self.endpoint = endpoint
        self.app = app
        self.number = number
        self.protocol = protocol
        self.sent_by = sent_by
        self.grpc_status = grpc_status

    @property
    def outcome(self) -> Outcome:
        """How the call ended."""
        return self.course.outcome

    @property
    def attempts(self) -> int:
        """The number of attempts."""
        return self.course.attempts

    @property
    def history(self) -> Sequence[AttemptRecord]:
        """Every attempt in order; empty if the only attempt was sent at once, without a credential, and succeeded."""
        course = self.course
        return course.history if course.key is None else (only_attempt(self, course.key, course.key_why),)

    @property
    def detail(self) -> str:
        """The reason for an answer of the proxy's own, for people; else ""."""
        return self.course.detail

    @property
    def was_sent_once(self) -> bool:
        """Whether the call succeeded with its first attempt."""
        return self.course.was_sent_once

    def with_path(self, path: str) -> CallRecord:
        """A copy of this record with another request path."""
        made = copy(self)
        made.path = path
        return made


def refused(  # noqa: PLR0913  a record is built
    wall: float,
    client: str,
    status: int,
    outcome: Outcome,
    detail: str,
    method: str = "",
    authority: str = "",
    path: str = "",
    bytes_out: int = 0,
    protocol: str = "",
    grpc_status: int | None = None,
) -> CallRecord:
    """The record of a request that was answered before any policy applied to it. Either the request is malformed,
    misdirected, looping or unmatched, or it is meant for the proxy itself (Max-Forwards: 0, `OPTIONS *`), with the
    outcome success.

    `wall`: seconds since the epoch; `client`: the app's address; `detail`: the reason; `method`, `authority` and
    `path`: as much as could be read; `bytes_out`: the bytes of the answer's body; `protocol`: the version of HTTP that
    the app spoke. The record's duration is zero.
    """
    return CallRecord(
        *(wall, 0.0, 0.0, NO_POLICY, method, authority, path, client, status, outcome, 0, 0, bytes_out, "", (), detail),
        protocol=protocol,
        grpc_status=grpc_status,
    )


def only_attempt(record: CallRecord, key: int | None, key_why: str) -> AttemptRecord:
    """The record of the only attempt of a call that was sent at once and succeeded. `record`: the call's; `key`: the
    number of the credential that the attempt carried, None if it carried none; `key_why`: why that one was chosen.
    """
    made = AttemptRecord(
        1, record.started, record.ended, status=record.status, cls=_SUCCESS_CLASS, decision="delivered"
    )
    made.endpoint, made.protocol = record.endpoint, record.sent_by
    made.key, made.key_why = key, key_why
    return made


class Observer:
    """An object that calls are reported to, on the event loop. Its methods return soon and never raise. This is a base
    class and not a protocol, so that compiled code calls its methods without the interpreter.
    """

    __slots__ = ()

    def call_ended(self, call: CallRecord) -> None:
        """Take the record of a call that is over, or of a request that was refused before it became a call."""

    def stream_failed(self, policy: Policy, error: str) -> None:
        """Take an error that was reported inside an event stream which went to the app. `error` says it in words
        (contract, section 13).
        """

    def stream_unfinished(self, policy: Policy) -> None:
        """Take an event stream that went to the app and ended cleanly without its last event (contract, section 15)."""

    def resumed(self, policy: Policy, result: str, size: int) -> None:
        """Count the `result` of a resumption of an answer that broke (contract, section 15): `done`; `broke`, the rest
        broke too; `rejected`, the answer to the request was not the rest; `refused`, no request for the rest was made;
        `observed`, none was made because of `mode: observe`. `size`: the bytes that the resumption brought.
        """

    def tokens_used(self, policy: Policy, prompt: float, output: float, expected: float) -> None:
        """Take the tokens of a language model that a call has cost: `prompt`, those of its prompt; `output`, those of
        its output; `expected`, the number of both together that was estimated before (contract, section 16).
        """

    def app_repeated(self, policy: Policy) -> None:
        """Count a call that ends now and seems to be the app's own retry of a call that redrive gave up, though the app
        did not mark it as one.
        """

    def last_calls(self) -> list[CallRecord]:
        """Return the last calls of this process that are kept, in no particular order."""
        raise NotImplementedError
