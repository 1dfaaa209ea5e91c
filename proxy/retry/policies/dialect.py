"""The rules by which answers and faults are classed, and the dialect packs (files with one provider's rules) that they
come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from proxy.retry.facts import Class, FaultKind, Verdict
from proxy.retry.policies.bucket_specs import JsonPath, UsageFields
from proxy.retry.value_bases import ClassifyBase

UnsafeMethods = Literal["never", "unprocessed", "provider", "always"]


#: The status that an error in a success's body counts as unless its rule names another (contract, section 13).
COUNTS_AS = 503


@dataclass(frozen=True, slots=True)
class EventRule:
    """A rule's condition on an event in a stream of server-sent events: the first event that is not one of the
    dialect's empty events. `name`: a glob of the event's name, None for any name. `json`: JSON paths in the event's
    data, each with a glob of the value there.
    """

    name: str | None = None
    json: tuple[tuple[tuple[str, ...], str], ...] = ()  # (path, glob)


@dataclass(frozen=True, slots=True)
class Rule:
    """A line of `classify.rules`, or of a dialect pack. Every part is optional; all parts that are given must match.

    Values are shell globs, matched case-sensitively; "*" means present. `json` keys are dotted paths, `xml` keys are
    element names. `as_`: the class of what the rule matches. `because`: the rule's name in explanations. `counts_as`:
    for an error found in a success, the status that the provider gives such an error outside of a success; this status
    decides whether the provider's client repeats the request.
    """

    as_: Class
    because: str
    statuses: frozenset[int] | None = None
    headers: tuple[tuple[str, str], ...] = ()  # (lower-case name, glob)
    json: tuple[tuple[tuple[str, ...], str], ...] = ()  # (path, glob)
    xml: tuple[tuple[str, str], ...] = ()  # (element, glob)
    grpc: frozenset[int] | None = None
    faults: frozenset[FaultKind] | None = None
    event: EventRule | None = None
    counts_as: int = COUNTS_AS

    @property
    def needs_body(self) -> bool:
        """Whether the beginning of the answer's body must be read to decide this rule."""
        return bool(self.json or self.xml or self.event)

    @property
    def looks_into_success(self) -> bool:
        """Whether the rule may look at the body of an answer below 400: the rule names such a status, and asks for JSON
        or an event (contract, section 13).
        """
        return self.statuses is not None and min(self.statuses, default=400) < 400 and bool(self.json or self.event)


TimeFormat = Literal["seconds", "epoch", "epoch_ms", "duration", "http_date", "rfc3339"]


@dataclass(frozen=True, slots=True)
class ResetField:
    """A field in which a dialect's answers name the time at which a limit is whole again. It is read on throttlings and
    on 429 and 503.

    `format`: how the time is written: "seconds" from now, "epoch" (seconds), "epoch_ms", "duration" (`1m30s`, `250ms`,
    or bare seconds), "http_date", "rfc3339". `remaining`: the name of a field that must be 0 for this one to be read;
    None if there is no such condition. `limit`: paths and globs of the body of a 429 which names this limit as the one
    that was exceeded; if they match, the field is read whatever `remaining` says.
    """

    name: str
    format: TimeFormat
    remaining: str | None = None
    limit: tuple[tuple[tuple[str, ...], str], ...] = ()


@dataclass(frozen=True, slots=True)
class LimitField:
    """A limit of a provider that its answers report. `limit`, `remaining` and `reset` are the names of three fields:
    with the limit itself, with what is left of it, and with the time until it is whole again, which is written in
    `format`. `counts`: what the limit counts, which is "attempts", or a language model's "tokens", or only those of the
    "prompt" or of the "output". `where`: names of fields, each with a value. An answer in which one of these fields has
    another value is about another limit; an absent field does not matter.
    """

    name: str
    remaining: str
    reset: str
    format: TimeFormat
    limit: str = ""
    counts: Literal["attempts", "tokens", "prompt", "output"] = "attempts"
    where: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class BodyDelay:
    """A delay that a dialect reads in the JSON body of a failure: the value at `path`, which is written in `format`."""

    path: tuple[str, ...]
    format: TimeFormat


@dataclass(frozen=True, slots=True)
class Repeats:
    """The failures that a provider's client repeats by default, whatever the method (contract, section 4, "Repeats").

    `client`: the client, its version and the file from which these rules were read. `attempts`: how many attempts the
    client makes in all, 0 if that is not known. `within`: the seconds after the first attempt in which the client
    repeats; None for no limit.

    The client repeats an answer whose status is in `statuses`, and one whose status is in `idempotent_statuses` if the
    method is idempotent. It repeats an attempt that ended with one of `faults`. If the method is in `whole_answers`,
    the client reads an answer completely before it decides, and also repeats a request whose answer broke off after its
    head. With `transient_codes` it repeats failures that the pack's own rules class transient; with `should_retry`, any
    failure with `x-should-retry: true`; with `retry_after`, any failure with Retry-After.

    These rules hold for requests that carry each of `headers` (lower-case name, glob). A request that is one of the
    forms in `unsigned` needs no `authorization` field. With `keyed`, the rules hold only for requests with the policy's
    idempotency key or an idempotent method; with `alone`, only for requests whose client does not retry by itself
    (`amz-sdk-request`).
    """

    client: str
    statuses: frozenset[int] = frozenset()
    idempotent_statuses: frozenset[int] = frozenset()
    faults: frozenset[FaultKind] = frozenset()
    transient_codes: bool = False
    should_retry: bool = False
    retry_after: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    keyed: bool = False
    alone: bool = False
    within: float | None = None
    whole_answers: frozenset[str] = frozenset()
    unsigned: Forms | None = None
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class AskedFor:
    """The requests of one `method` that carry each of `headers` (lower-case name, glob of the value) and the query
    parameter `query` ("" for none).
    """

    method: str
    headers: tuple[tuple[str, str], ...] = ()
    query: str = ""


@dataclass(frozen=True, slots=True)
class ErrorsInside:
    """The errors that may be in the XML body of a success, if it answers one of `requests`. Such a body has `root` as
    its root element. The error is treated like an answer with the status `status`. The server may send white space
    before the root element to keep the connection alive; once this has gone on for `awake` seconds, it is passed on to
    the app.
    """

    requests: tuple[AskedFor, ...]
    root: str
    status: int = 500
    awake: float = 20.0


@dataclass(frozen=True, slots=True)
class EndMark:
    """A description of an event in a stream, by one of three marks: its name `event` (a `*` at the end stands for any
    rest), its whole `data`, or a member at the JSON path `present` of its data that is not null.
    """

    event: str = ""
    data: str = ""
    present: JsonPath = ()


@dataclass(frozen=True, slots=True)
class StreamEnds:
    """How a provider's streams of events end. `ends`: the events that end a stream. `known`: further events of such
    streams. `path`: a request asks for such a stream if its path ends with this. `by_body`: a request also asks for one
    by a body with `stream: true`. `error`: the provider's event for an error of its server.
    """

    ends: tuple[EndMark, ...]
    known: tuple[EndMark, ...] = ()
    by_body: bool = True
    path: str = ""
    error: bytes = b""


@dataclass(frozen=True, slots=True)
class Forms:
    """The POST requests with a form as their body that go to `host` (a glob), and in whose form the field `field` has
    one of `values`.
    """

    host: str
    field: str
    values: frozenset[str]


@dataclass(frozen=True, slots=True)
class Reads:
    """The POSTs of a dialect that change nothing, known by a request field that names the operation.

    `field`: the name of that request field, in lower case. `values`: globs, one of which its value must match.
    `headers`: other fields (lower-case name, glob), each of which must match: without them the provider does not
    promise that the operation in `field` agrees with the body.
    """

    field: str
    values: tuple[str, ...]
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ErrorWords:
    """How a provider words an error, so that the proxy's own answers can be worded alike.

    `json`: (path, template) of members in a JSON body. `fields`: (name, template) of header fields. A template may use
    {message}, {word}, {outcome}, {status}, {type}. `words`: (statuses, word); the first item that has the error's
    status gives {word}. `xml`: (services, elements around the error), for requests with an AWS signature for one of
    these services; an item without services is for any request that sends a form.
    """

    json: tuple[tuple[tuple[str, ...], str], ...] = ()
    fields: tuple[tuple[str, str], ...] = ()
    words: tuple[tuple[frozenset[int], str], ...] = ()
    xml: tuple[tuple[frozenset[str], tuple[str, ...]], ...] = ()

    def word(self, status: int) -> str:
        """Return the provider's word for an error with this status; "" if it has none."""
        return next((word for statuses, word in self.words if status in statuses), "")


@dataclass(frozen=True, slots=True)
class Dialect:
    """A dialect: how one provider words its errors and limits, as data (proxy/config/dialects/*.yaml)."""

    name: str
    rules: tuple[Rule, ...] = ()
    resets: tuple[ResetField, ...] = ()
    grpc: bool = False  # the gRPC dialect's reading of HTTP codes and faults on application/grpc calls
    source: str = ""
    stop_field: str = ""  # the field that its SDKs read instead of x-should-retry
    delays: tuple[BodyDelay, ...] = ()
    repeats: Repeats | None = None
    empty_events: frozenset[str] = frozenset()  # names of events that say nothing yet (section 13, "First byte")
    out_of_quota: tuple[Rule, ...] = ()  # answers after which a key is unusable for a while; they decide no class
    reads: Reads | None = None  # POSTs that are repeated as GETs are
    usage: UsageFields | None = None  # where its requests and answers say how many tokens they cost
    errors: ErrorWords | None = None  # how the proxy's own answers are worded
    inside: ErrorsInside | None = None
    stream_ends: StreamEnds | None = None
    limits: tuple[LimitField, ...] = ()


@dataclass(frozen=True, slots=True)
class Classify(ClassifyBase):
    """The rules of a policy that give an attempt's end its class: first `rules`, then those of `dialects`, then the
    lists by status, grpc-status and fault. If several lists name the same end, the compiler of the configuration
    decides which one counts.
    """

    statuses: Mapping[int, Class] = field(default_factory=dict)
    grpc: Mapping[int, Class] = field(default_factory=dict)
    faults: Mapping[FaultKind, Class] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    dialects: tuple[Dialect, ...] = ()
    service_codes: frozenset[int] | None = None  # a service config's codes, in place of lists and grpc dialect
    unsafe_methods: UnsafeMethods = "unprocessed"
    service_retries: bool = False  # a service config's retryPolicy applies, so that an attempt timeout is retried
    own_dialects: bool = False  # the upstream itself names its dialects, so that their clients' repeats count
    key_header: str = "idempotency-key"  # the field of the policy's idempotency key, in lower case
    keys_injected: bool = False
    credentials: bool = False  # the policy has credentials, so that `out_of_quota` of its dialects counts
    service_timeout: bool = False  # a service config's perAttemptRecvTimeout, which retries whatever the method
    service_unnamed: bool = False  # a service config has no policy for the method, so that it names no failures
    hosts: tuple[str, ...] = ()  # those of the upstream's endpoints, if its packs ask for them
    # The other fields are derived from the ones above.
    # plain_below_400: only a grpc-status, or a look into its body, could name an answer below 400
    # looks_below_400: a rule may look into the body of such an answer
    # empty_events: names of the events of streams that do not count
    # grpc_dialect, resets: one of the dialects is gRPC's; one names reset fields or delays
    # delays_in_bodies: a body must be peeked at for a delay, or for the limit that was exceeded
    # stop_fields: fields with which the dialects' SDKs are asked not to retry
    # repeats, out_of_quota, reads: those of the dialects, with the dialect's name; empty if they do not count here
    # inside, stream_ends: those of the dialects
    # known: verdicts by status, filled as answers come; None if anything but the status decides
    # ruleset: the rules prepared for matching (rules.py), made when first needed
    # sought: what is looked for in streams of events (stream_errors.py), by status, made when first needed
    plain_below_400: bool = field(init=False, repr=False, compare=False, default=False)
    looks_below_400: bool = field(init=False, repr=False, compare=False, default=False)
    empty_events: frozenset[str] = field(init=False, repr=False, compare=False, default=frozenset())
    grpc_dialect: bool = field(init=False, repr=False, compare=False, default=False)
    resets: bool = field(init=False, repr=False, compare=False, default=False)
    delays_in_bodies: bool = field(init=False, repr=False, compare=False, default=False)
    stop_fields: tuple[str, ...] = field(init=False, repr=False, compare=False, default=())
    repeats: tuple[tuple[str, Repeats], ...] = field(init=False, repr=False, compare=False, default=())
    out_of_quota: tuple[Rule, ...] = field(init=False, repr=False, compare=False, default=())
    reads: tuple[tuple[str, Reads], ...] = field(init=False, repr=False, compare=False, default=())
    inside: tuple[ErrorsInside, ...] = field(init=False, repr=False, compare=False, default=())
    stream_ends: tuple[StreamEnds, ...] = field(init=False, repr=False, compare=False, default=())
    known: dict[int, Verdict] | None = field(init=False, repr=False, compare=False, default=None)
    ruleset: Any = field(init=False, repr=False, compare=False, default=None)
    sought: dict[int, Any] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        dialects = self.dialects
        rules = [*self.rules, *(rule for dialect in dialects for rule in dialect.rules)]
        repeats = tuple((each.name, each.repeats) for each in dialects if each.repeats is not None)
        if not self.own_dialects or self.unsafe_methods != "provider" or self.service_codes is not None:
            repeats = ()
        grpc = any(dialect.grpc for dialect in dialects)
        plain = min(self.statuses, default=400) >= 400 and not any(_can_name_below_400(rule) for rule in rules)
        quota = tuple(rule for each in dialects for rule in each.out_of_quota) if self.credentials else ()
        by_status_alone = not (rules or repeats or quota or grpc) and self.service_codes is None
        for name, value in {
            "plain_below_400": plain,
            "looks_below_400": any(rule.looks_into_success for rule in rules),
            "empty_events": frozenset(name for dialect in dialects for name in dialect.empty_events),
            "grpc_dialect": grpc,
            "resets": any(dialect.resets or dialect.delays for dialect in dialects),
            "delays_in_bodies": any(each.delays or any(reset.limit for reset in each.resets) for each in dialects),
            "stop_fields": tuple(dialect.stop_field for dialect in dialects if dialect.stop_field),
            "repeats": repeats,
            "out_of_quota": quota,
            "reads": tuple((each.name, each.reads) for each in dialects if each.reads is not None),
            "inside": tuple(each.inside for each in dialects if each.inside is not None),
            "stream_ends": tuple(each.stream_ends for each in dialects if each.stream_ends is not None),
            "known": {} if by_status_alone else None,
        }.items():
            object.__setattr__(self, name, value)


def _can_name_below_400(rule: Rule) -> bool:
    if rule.needs_body or rule.grpc is not None or rule.faults is not None:
        return rule.grpc is not None and 0 in rule.grpc and not rule.needs_body and rule.faults is None
    return rule.statuses is None or min(rule.statuses, default=400) < 400
