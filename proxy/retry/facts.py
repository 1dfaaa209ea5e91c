"""The facts that can be known of a call, as values named in the field's standard terms.

Each name has one meaning. A *call* is one request of an app until it has its answer; an *attempt* is one sending of
that request to an upstream, numbered from 1; a *retry* is any attempt after the first. Everything here is a value: no
clock, no socket, no behaviour beyond reading itself. Times are seconds on the driver's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, Protocol

from proxy.retry.apps import NamedApp
from proxy.retry.value_bases import FaultBase, PushbackBase, VerdictBase

#: RFC 9110 section 9.2.2: methods that may be repeated even if the first request may have been carried out.
IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})

#: gRPC status names by number (grpc/doc/statuscodes.md).
GRPC_STATUS_NAMES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
    "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
GRPC_STATUS_NUMBERS = {name: number for number, name in enumerate(GRPC_STATUS_NAMES)}
INTERNAL = GRPC_STATUS_NUMBERS["INTERNAL"]
UNAVAILABLE = GRPC_STATUS_NUMBERS["UNAVAILABLE"]
UNAUTHENTICATED = GRPC_STATUS_NUMBERS["UNAUTHENTICATED"]
#: The gRPC statuses of HTTP/2 error codes: CANCEL, ENHANCE_YOUR_CALM, INADEQUATE_SECURITY. All other codes stand for
#: INTERNAL (gRPC over HTTP/2, "Errors"; contract, section 12).
_OF_CODES = {
    8: GRPC_STATUS_NUMBERS["CANCELLED"],
    11: GRPC_STATUS_NUMBERS["RESOURCE_EXHAUSTED"],
    12: GRPC_STATUS_NUMBERS["PERMISSION_DENIED"],
}
#: The grpc-status that a gRPC client derives from an HTTP status (grpc/doc/http-grpc-status-mapping.md; 431: the
#: contract, section 12). All other statuses stand for UNKNOWN.
_OF_HTTP = {400: 13, 401: 16, 403: 7, 404: 12, 429: 14, 431: 13, 502: 14, 503: 14, 504: 14}


def grpc_status_of_http(status: int) -> int:
    """The grpc-status that an HTTP status stands for if the answer has none."""
    return _OF_HTTP.get(status, GRPC_STATUS_NUMBERS["UNKNOWN"])


class Class(StrEnum):
    """The class of an attempt's end, on which the policy decides. `retryable`: whether a retry may follow such an end;
    this is true only of transient, throttling and timeout.
    """

    TRANSIENT = "transient"
    THROTTLING = "throttling"
    TIMEOUT = "timeout"
    FATAL = "fatal"  # named as not retryable, by a rule or a dialect
    UNNAMED = "unnamed"  # a failure that nothing names: not retried, neither pays nor earns
    SUCCESS = "success"

    retryable: bool

    __hash__ = str.__hash__  # equal to a text, so its hash is that text's; the enumeration's own is a Python function


for (
    _each
) in Class:  # an attribute, since it is read several times for each failure, and a property takes four times as long
    _each.retryable = _each in (Class.TRANSIENT, Class.THROTTLING, Class.TIMEOUT)
#: A module-level name for an enumeration member, which hot code in other modules has too: with Python 3.11
#: `Class.TRANSIENT` takes 258 ns and the name 44 (3.13: 58 and 24). Such names go when 3.11 is no longer supported.
_TRANSIENT = Class.TRANSIENT


class FaultKind(StrEnum):
    """The four ways in which an attempt can end without an answer: no connection, a refused stream, a reset, or a
    timeout.
    """

    CONNECT_FAILURE = "connect_failure"
    REFUSED_STREAM = "refused_stream"
    RESET = "reset"  # also a malformed answer, or one cut before delivery
    ATTEMPT_TIMEOUT = "attempt_timeout"

    __hash__ = str.__hash__  # equal to a text, so its hash is that text's; the enumeration's own is a Python function


class Progress(Enum):
    """How far an attempt got before it ended, from which follows whether the upstream may have carried it out
    (contract, section 4).
    """

    NEVER_SENT = "never sent"  # no byte of the request was written
    REFUSED = "refused"  # the server has it, and says that it did not process it
    UNKNOWN = "unknown"  # it may have been carried out
    ANSWERED = "answered"  # bytes of an answer had come


@dataclass(frozen=True, slots=True)
class Fault(FaultBase):
    """The end of an attempt without a whole answer. `kind`: the way in which it ended. `progress`: how far it got
    before that.

    `reused`: the connection had carried an earlier exchange, and closed before any byte of an answer to this one.
    `detail`: one clause for people, free of secrets. `error`: the RFC 9209 proxy error type. `code`: the error code
    with which an HTTP/2 stream was reset, or its connection closed (RFC 9113 section 7). `ours`: redrive itself reset
    the stream, for something that the upstream did, so the code is no information for the app. `by_attempt`:
    `timeouts.attempt` ended the attempt, and no other limit.
    """

    kind: FaultKind = field()
    progress: Progress = field()
    reused: bool = False
    detail: str = ""
    error: str = "connection_terminated"
    code: int | None = None
    ours: bool = False
    by_attempt: bool = False

    @property
    def grpc_status(self) -> int:
        """The gRPC status that the stream's error code stands for (contract, section 12); UNAVAILABLE if there is no
        code.
        """
        return UNAVAILABLE if self.code is None else _OF_CODES.get(self.code, INTERNAL)


#: Request fields that the core reads at a call's start. A content type of application/grpc steers deciding too, and so
#: does the policy's idempotency key, whatever its name.
STEERING_FIELDS = frozenset(
    {
        "x-retry-disable", "x-retry-timeout", "grpc-timeout", "x-stainless-retry-count", "amz-sdk-request",
        "amz-sdk-invocation-id", "grpc-previous-rpc-attempts", "x-envoy-attempt-count", "idempotency-key",
    }
)  # fmt: skip
#: Answer fields that the core reads, besides those that a rule or a dialect names.
PUSHBACK_FIELDS = frozenset(
    {
        "grpc-status", "retry-after", "retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after",
        "grpc-retry-pushback-ms", "x-grpc-retry-pushback-ms", "x-should-retry", "stripe-should-retry",
        "ratelimit", "ratelimit-remaining", "ratelimit-reset",
    }
)  # fmt: skip


class Fields(Protocol):
    """The header fields of a request or an answer, as the deciding core reads them."""

    def get_all(self, name: str) -> Sequence[str]:
        """Every value of the field of this lower-case name, in order, without the white space around it."""


class NoFields:
    """An empty set of header fields."""

    def get_all(self, name: str) -> Sequence[str]:
        """Return no values, whatever the name."""
        return ()


class MappingFields:
    """Header fields made from (name, value) pairs; used by policy tests, `explain`, and tests."""

    __slots__ = ("_pairs",)

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._pairs = [(name.lower(), value.strip(" \t")) for name, value in pairs]

    def get_all(self, name: str) -> Sequence[str]:
        """Every value of the field of this lower-case name, in order."""
        return [value for key, value in self._pairs if key == name]

    def pairs(self) -> list[tuple[str, str]]:
        """All (name, value) pairs, names in lower case."""
        return list(self._pairs)


def first(fields: Fields, name: str) -> str | None:
    """The first value of the field `name` (lower case), or None if the field is absent."""
    values = fields.get_all(name)
    return values[0] if values else None


def forwarded(fields: Fields, name: str) -> str | None:
    """The first value of the request field `name` (lower case), if the upstream will see the field. None if the field
    is absent, or if `Connection` names it, since such a field ends at the proxy (RFC 9110, section 7.6.1).
    """
    value = first(fields, name)
    if value is not None:
        for options in fields.get_all("connection"):
            for option in options.lower().split(","):
                if option.strip(" \t") == name:
                    return None
    return value


def is_grpc(fields: Fields) -> bool:
    """Whether a request is a gRPC call, by its content type (contract, section 4)."""
    value = first(fields, "content-type")
    return value is not None and is_grpc_media(value)


def is_grpc_media(content_type: str) -> bool:
    """Whether a content type is application/grpc, with any +suffix or parameters; gRPC-Web's types are not."""
    media = content_type.split(";", 1)[0].strip().lower()
    return media == "application/grpc" or media.startswith("application/grpc+")


_NO_FIELDS = NoFields()


class Body(Protocol):
    """A request's body, which may not have come to its end yet."""

    def whole(self) -> Iterable[bytes] | None:
        """The whole body, in pieces; None if it has not come whole, or is not kept."""


class Request:
    """A call's request, as the deciding core needs it. `authority`: the host[:port] that the app named. `body`: the
    request's body, None if it has none, or if the driver did not say.

    `plain`: the reader of the head has seen that the request has none of the fields that deciding depends on
    (STEERING_FIELDS), so that none need be looked up. `timed`: the request has none of these fields but a grpc-timeout.
    `app`: the app that sent the request, None if the configuration names no apps. `user_agent`: the User-Agent, b"" if
    there is none; None until a driver has looked it up. `names`: the `RouteNames` that
    `proxy.retry.weather.route_names` found last for this request, None before that.
    """

    __slots__ = ("app", "authority", "body", "fields", "method", "names", "path", "plain", "timed", "user_agent")

    def __init__(
        self,
        method: str,
        authority: str,
        path: str,
        fields: Fields = _NO_FIELDS,
        plain: bool = False,
        timed: bool = False,
    ) -> None:
        self.method = method
        self.authority = authority
        self.path = path
        self.fields = fields
        self.plain = plain
        self.timed = timed
        self.body: Body | None = None
        self.app: NamedApp | None = None
        self.user_agent: bytes | None = None
        self.names: Any = None  # RouteNames, which know this class

    @property
    def is_grpc(self) -> bool:
        """Whether the request is a gRPC call."""
        return is_grpc(self.fields)

    def is_idempotent(self, key_header: str, injected: bool) -> bool:
        """Whether the request is idempotent: by its method (RFC 9110, 9.2.2), by an idempotency key in the field
        `key_header` (lower case), or by a key that redrive adds (contract, Safety 3). `injected`: redrive adds keys. A
        key that is not forwarded to the upstream does not count.
        """
        if self.method in IDEMPOTENT_METHODS or (injected and self.method in ("POST", "PATCH")):
            return True
        return bool(forwarded(self.fields, key_header))


class Reply:
    """The head of an attempt's answer, and what is known about the rest of the answer when the head has come.

    `end`: nothing follows this head (no body; a trailers-only gRPC answer). `trailers`: the trailers that came with the
    head. `plain`: the reader of the head has seen that the head has no field that concerns retrying (PUSHBACK_FIELDS),
    and that no trailers came, so that none need be looked up. `peeked`: the beginning of the body, as far as it was
    read before the decision. `early`: the answer came before the request's last byte was sent. `counts_as`: the status
    that an error in a success's body counts as (contract, section 13). `follows`: the request was not the first on its
    connection; drivers set this for a 421, which may be about the connection. `whole`: all of the body came with the
    head; drivers set this too.

    Four more are None until a function has read them. `media`: the media type (`proxy.retry.answers.event_stream`).
    `coding`: the content coding (`proxy.retry.answers.content_coding`). `opens`: the kind of data that the body can be
    read as (`proxy.retry.answers.rules`). `length`: the Content-Length, if the driver has read it anyway; also None if
    there is none.
    """

    __slots__ = (
        "coding", "counts_as", "early", "end", "fields", "follows", "length", "media", "opens", "peeked", "plain",
        "status", "trailers", "whole",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913  a record of an answer
        self,
        status: int,
        fields: Fields,
        end: bool = False,
        trailers: Fields | None = None,
        plain: bool = False,
        peeked: bytes | None = None,
        early: bool = False,
        counts_as: int | None = None,
    ) -> None:
        self.begin(status, fields, end, trailers, plain, early)
        self.peeked = peeked
        self.counts_as = counts_as

    def begin(self, status: int, fields: Fields, end: bool, trailers: Fields | None, plain: bool, early: bool) -> None:
        """Set what the head tells. A driver calls this on a new object, past the constructor, which takes longer."""
        self.status = status
        self.fields = fields
        self.end = end
        self.trailers = trailers
        self.plain = plain
        self.early = early
        self.peeked = self.counts_as = None
        self.follows = self.whole = False
        self.media: str | None = None
        self.coding: str | None = None
        self.opens: str | None = None
        self.length: int | None = None

    @property
    def grpc_status(self) -> int | None:
        """The grpc-status that the upstream itself sent, in trailers or in a trailers-only head; None if it sent none.
        An unreadable value counts as UNKNOWN (2).
        """
        if self.plain:
            return None
        value = first(self.trailers, "grpc-status") if self.trailers is not None else None
        if value is None:
            value = first(self.fields, "grpc-status")
        if value is None:
            return None
        return int(value) if value.isascii() and value.isdigit() and len(value) < 9 and int(value) <= 16 else 2


class Outcome(StrEnum):
    """The reason why a call ended as it did; each call has exactly one. The same word is the metric's label, the log's
    field and the Proxy-Status member.
    """

    SUCCESS = "success"
    NOT_RETRYABLE = "not_retryable"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    BUCKET_EMPTY = "bucket_empty"
    PUSHBACK_STOP = "pushback_stop"
    PUSHBACK_TOO_LONG = "pushback_too_long"
    DEADLINE = "deadline"
    COMMITTED = "committed"
    DISABLED = "disabled"
    RATE_LIMITED = "rate_limited"
    COOLING = "cooling"
    CIRCUIT_OPEN = "circuit_open"
    OVERLOADED = "overloaded"
    OUTAGE = "outage"
    DENIED = "denied"
    BAD_REQUEST = "bad_request"
    CLIENT_GONE = "client_gone"

    __hash__ = str.__hash__  # equal to a text, so its hash is that text's; the enumeration's own is a Python function


#: Outcomes with which the answer asks the app not to retry on top (contract, section 5, "To the app").
GAVE_UP = frozenset(
    {
        *(Outcome.ATTEMPTS_EXHAUSTED, Outcome.BUCKET_EMPTY, Outcome.PUSHBACK_STOP, Outcome.PUSHBACK_TOO_LONG),
        *(Outcome.DEADLINE, Outcome.COOLING, Outcome.CIRCUIT_OPEN, Outcome.RATE_LIMITED, Outcome.OUTAGE),
    }
)


@dataclass(frozen=True, slots=True)
class Verdict(VerdictBase):
    """The class of an attempt's end (`cls`), and why it has that class.

    `because`: the reason, for people: "rule 2", "dialect aws: SlowDown", "transient: 503". `unprocessed`: the answer
    itself proves that the upstream did not carry the request out (contract, section 4, safety 2). `dialect`: the
    dialect (rules for a provider) whose rule decided, "" if none did. `repeated_by`: the dialect whose provider's own
    client repeats this call after such an end, or "service config" if a gRPC service config's perAttemptRecvTimeout
    ended the attempt; "" if neither (sections 4, "Repeats", and 15). `repeated_within`: for how many seconds after its
    first attempt that client repeats the call (None: no limit). `counts_as`: the status that an error in a success's
    body counts as.
    """

    cls: Class = field()
    because: str = field()
    unprocessed: bool = False
    repeated_by: str = ""
    repeated_within: float | None = None
    dialect: str = ""
    counts_as: int | None = None


@dataclass(frozen=True, slots=True)
class Pushback(PushbackBase):
    """An upstream's statement on when, or whether, to retry. `delay`: the seconds to wait, None if none are named.
    `cooldown`: the part of the delay that holds other callers too (contract, section 5), None for none. `stop`: the
    upstream wants no retry. `retry`: the upstream wants a retry, whatever the class. `source`: the name of the field
    that decided.
    """

    delay: float | None = None
    stop: bool = False
    retry: bool = False
    cooldown: float | None = None
    source: str = ""


NO_PUSHBACK = Pushback()


class Failure:
    """A failed attempt and how it was judged. Exactly one of `status` and `fault` is set. `attempt`: the attempt's
    number. `sent`: the time at which it was sent (seconds). `carried_out`: the head of a success had come, so the
    upstream has carried the request out, and the request is not repeated just because of its method. `goes_on`: another
    attempt may follow, because of the failure's class or, under hedging, because the list `non_fatal` names the
    failure. `payment`: the attempt's payment, if the end of its answer is to settle what it cost; else None.
    """

    __slots__ = ("attempt", "carried_out", "fault", "goes_on", "payment", "pushback", "sent", "status", "verdict")

    def __init__(
        self,
        attempt: int,
        verdict: Verdict,
        pushback: Pushback,
        status: int | None = None,
        fault: Fault | None = None,
        sent: float = 0.0,
    ) -> None:
        self.begin(attempt, verdict, pushback, status, fault, sent)

    def begin(
        self,
        attempt: int,
        verdict: Verdict,
        pushback: Pushback,
        status: int | None,
        fault: Fault | None,
        sent: float,
    ) -> None:
        """Set what is known. The machine calls this on a new object, past the constructor, which takes longer."""
        self.attempt = attempt
        self.payment: Any = None  # a Payment, whose module knows this one
        self.verdict = verdict
        self.pushback = pushback
        self.status = status
        self.fault = fault
        self.sent = sent
        self.carried_out = False
        cls = self.verdict.cls  # of an attribute, whose type is known; a failure is mostly transient
        self.goes_on: bool = cls is _TRANSIENT or cls.retryable
