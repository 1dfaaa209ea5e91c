"""The policy of a call: frozen definitions, which the configuration compiles to.

Law: a policy holds no state. What calls share is kept in a bucket, what one call knows in its token. Durations are
seconds, sizes bytes. Names are those of the contract, section 3. `target` is opaque here: data for transport that a
policy only carries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from proxy.retry.app_parts import Shares
from proxy.retry.facts import Class, FaultKind, Verdict

Jitter = Literal["none", "full", "equal", "proportional", "decorrelated"]
Mode = Literal["enforce", "observe", "off"]
UnsafeMethods = Literal["never", "unprocessed", "provider", "always"]
PushbackOf = Literal["endpoint", "upstream"]
Balance = Literal["turns", "least"]
OutageMode = Literal["hold", "fail"]
Unfinished = Literal["tell", "break", "event"]
CooldownMode = Literal["wait", "reject", "off"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff (contract, section 3). `throttling_base` replaces `base` after a throttling error."""

    base: float
    max: float
    multiplier: float = 2.0
    jitter: Jitter = "full"
    throttling_base: float | None = None


@dataclass(frozen=True, slots=True)
class QuotaSpec:
    """AWS's retry quota. `flat_refund`: every success earns `success_refund` (Smithy's example). `refill`: tokens a
    second. `apps`: the apps that have parts of it.
    """

    capacity: float = 500
    retry_cost: float = 5
    timeout_cost: float = 5
    throttling_cost: float = 5
    success_refund: float = 1
    flat_refund: bool = False
    initial: float | None = None
    refill: float = 0.0
    store: Literal["memory", "redis"] = "memory"
    kind: Literal["quota"] = "quota"
    apps: Shares = ()


@dataclass(frozen=True, slots=True)
class ThrottleSpec:
    """gRPC A6's retry throttling. `token_ratio` is in thousandths: further decimals are dropped."""

    max_tokens: float = 10
    token_ratio: float = 0.1
    initial: float | None = None
    store: Literal["memory", "redis"] = "memory"
    kind: Literal["throttle"] = "throttle"


@dataclass(frozen=True, slots=True)
class BudgetSpec:
    """The retry budget of Finagle, Linkerd and Envoy. `window` is seconds. `apps`: the apps that have one each, too."""

    percent: float = 20
    min_per_second: float = 10
    window: float = 10
    store: Literal["memory", "redis"] = "memory"
    kind: Literal["budget"] = "budget"
    apps: Shares = ()


@dataclass(frozen=True, slots=True)
class RateSpec:
    """A classic token bucket on attempts, including first ones. `rate`: tokens a second; `burst`: tokens. `unit`: what
    a token is: an attempt, or a token of a language model (contract, section 16).
    """

    rate: float
    burst: float
    when_empty: Literal["wait", "reject"] = "wait"
    initial: float | None = None
    store: Literal["memory", "redis"] = "memory"
    unit: Literal["attempts", "tokens"] = "attempts"
    kind: Literal["rate"] = "rate"


BucketSpec = QuotaSpec | ThrottleSpec | BudgetSpec | RateSpec


#: A path into a JSON document: names of members, and "*" for each item of a list.
JsonPath = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UsageFields:
    """The places where a provider's requests and answers say how many of a language model's tokens they cost.

    Of a request: `maximum`, the most output tokens; `choices`, how many outputs it asks for; `model`; `media`, the
    members whose strings are media wherever they stand: a name, or two with a dot, of which the first is that of the
    object that it is in. Of an answer, or of an event of a stream: `prompt` and `output`, numbers
    of tokens that add up; `prompt_free`, tokens within `prompt` that the provider does not count (cached input);
    `text`, the output's text. All but `media` are JSON paths.
    """

    maximum: tuple[JsonPath, ...] = ()
    choices: tuple[JsonPath, ...] = ()
    model: tuple[JsonPath, ...] = ()
    media: frozenset[str] = frozenset()
    prompt: tuple[JsonPath, ...] = ()
    prompt_free: tuple[JsonPath, ...] = ()
    output: tuple[JsonPath, ...] = ()
    text: tuple[JsonPath, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The estimate of an attempt's price in a language model's tokens (contract, section 16). `output`: output tokens
    if the request names no maximum; `bytes`: bytes of text for each token; `burst`: the most tokens that a bucket
    holds, above which no maximum counts; `fields`: those of the policy's packs.
    """

    output: float = 1024
    bytes: float = 4
    burst: float = 1.0
    fields: tuple[UsageFields, ...] = ()


@dataclass(frozen=True, slots=True)
class BucketRef:
    """A reference to a bucket. `name` is that of one that `buckets:` defines, shared by all that name it; None means a
    bucket of its own for each pair of strategy definition and scope value within an upstream.

    `group`, unless None, replaces the strategy definition in that pair: a bucket written as a mapping is one for all
    the strategies that inherit it, and a service config's throttling is one for all its methods.
    """

    spec: BucketSpec
    name: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Percentile:
    """A delay that is measured, not configured: `percent` (50 to 99.9) of the measured times are not longer."""

    percent: float


@dataclass(frozen=True, slots=True)
class Strategy:
    """A strategy's definition. `name` is what the user called it; `kind` one of the contract's table, or "custom".

    `hedging_delay`: hedging, with so many seconds before each hedge. `hedging_percentile`: the delay is this percentile
    (50 to 99.9) of the times of the scope's successes, and `hedging_delay` applies only while there is no percentile,
    and before the retries of a call that is not hedged. `extra`: the share of the calls (0 to 1) that may be hedged;
    None for no bound.

    `exact_pushback` (grpc): a pushback replaces the backoff and starts the series again. `pushback_clamp`
    (standard-2026): a pushback is clamped to [d(n), d(n) + clamp]. `paced` (adaptive): the CUBIC limiter, which delays
    first attempts too unless `delay_first` is false. `custom` is a section 7 RetryStrategy object, and `remake` makes a
    new one like it, without any history.
    """

    kind: str
    name: str
    max_attempts: int
    backoff: Backoff
    own_bucket: BucketSpec | None = None
    exact_pushback: bool = False
    pushback_clamp: float | None = None
    paced: bool = False
    delay_first: bool = True
    hedging_delay: float | None = None  # seconds; not None: hedging
    hedging_percentile: float | None = None
    extra: float | None = None
    non_fatal: frozenset[int | str | FaultKind] = frozenset()  # HTTP statuses (int), gRPC names (str), fault kinds
    safe_methods: bool = False  # a service config's hedgingPolicy says that its methods are safe to hedge
    custom: Any = None
    remake: Callable[[], Any] | None = field(default=None, compare=False, repr=False)


#: The status that an error in a success's body counts as unless its rule names another (contract, section 13).
COUNTS_AS = 503


@dataclass(frozen=True, slots=True)
class EventRule:
    """A rule's condition on the first event, in a stream of server-sent events, that is not one of the dialect's empty
    events. `name`: a glob of the event's name, None for any; `json`: the JSON paths in the event's data, each with a
    glob of its value.
    """

    name: str | None = None
    json: tuple[tuple[tuple[str, ...], str], ...] = ()  # (path, glob)


@dataclass(frozen=True, slots=True)
class Rule:
    """A line of `classify.rules`, or of a dialect pack. Every part is optional; all given must match.

    Values are shell globs, matched case-sensitively; "*" means present. `json` keys are dotted paths, `xml` keys are
    element names. `because` is the rule's name in explanations. `counts_as`: for an error found in a success, the
    status that its provider gives such an error elsewhere, which decides whether clients repeat it.
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
        """Whether the answer's body must be peeked at to decide this rule."""
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
    """A dialect's reset field, read on throttlings and on 429 and 503. `remaining`: a field that must be 0 then; None:
    no such field is needed.

    `format`: "seconds" from now, "epoch" seconds, "epoch_ms", "duration" (`1m30s`, `250ms`, or bare seconds),
    "http_date", "rfc3339". `limit`: (path, glob) of a 429's body that names this limit as the one that was exceeded;
    then the field is read whatever remains.
    """

    name: str
    format: TimeFormat
    remaining: str | None = None
    limit: tuple[tuple[tuple[str, ...], str], ...] = ()


@dataclass(frozen=True, slots=True)
class BodyDelay:
    """A delay that a dialect reads in the JSON body of a failure: the value at `path`, in this format."""

    path: tuple[str, ...]
    format: TimeFormat


@dataclass(frozen=True, slots=True)
class Repeats:
    """The failures that a provider's client repeats by default, whatever the method (contract, section 4, "Repeats").

    `client` says where this was read: the client, its version and file. Repeated are: `statuses`, and for idempotent
    methods also `idempotent_statuses`; `faults`, and with a method among `whole_answers` an answer that broke after its
    head, since the client reads it whole before it decides; with `transient_codes`, failures that the pack's own rules
    class transient; with `should_retry`, any failure with `x-should-retry: true`; with `retry_after`, any failure with
    Retry-After. All of that holds only for requests that carry every one of `headers` (lower-case name, glob); if
    `keyed`, that have the policy's idempotency key or an idempotent method; and if `alone`, whose client does not retry
    by itself (`amz-sdk-request`). `within`: for how many seconds after the first attempt it holds; None: no limit.
    `unsigned`: forms that need no `authorization` among these headers. `attempts`: how many the client makes in all, 0
    if that is not known.
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
    """Requests of a method that carry each of `headers` (lower-case name, glob), and the query parameter `query` (""
    for any).
    """

    method: str
    headers: tuple[tuple[str, str], ...] = ()
    query: str = ""


@dataclass(frozen=True, slots=True)
class ErrorsInside:
    """The errors that may be in a success's XML: in answers to one of `requests`, if the root element is `root`. Such
    an error is read as an answer with `status` is. White space before the root is passed on once it has come for
    `awake` seconds.
    """

    requests: tuple[AskedFor, ...]
    root: str
    status: int = 500
    awake: float = 20.0


@dataclass(frozen=True, slots=True)
class EndMark:
    """A mark of an event in a stream: its name `event` (a `*` at the end stands for any rest), its whole `data`, or a
    member `present` in its data that is not null.
    """

    event: str = ""
    data: str = ""
    present: JsonPath = ()


@dataclass(frozen=True, slots=True)
class StreamEnds:
    """How a provider's streams of events end: with one of `ends`. `known`: further events of such streams. They are
    asked for by a path that ends with `path`, or (`by_body`) by a body with `stream: true`. `error`: the provider's
    event for an error of its server.
    """

    ends: tuple[EndMark, ...]
    known: tuple[EndMark, ...] = ()
    by_body: bool = True
    path: str = ""
    error: bytes = b""


@dataclass(frozen=True, slots=True)
class Forms:
    """POSTs of a form to a host (glob) whose `field` has one of `values`."""

    host: str
    field: str
    values: frozenset[str]


@dataclass(frozen=True, slots=True)
class Reads:
    """The POSTs of a dialect that change nothing, known by a request field that names the operation.

    `field` (lower case) has one of `values` (globs), and each of `headers` (lower-case name, glob) matches: without
    those the provider does not promise that the field agrees with the body.
    """

    field: str
    values: tuple[str, ...]
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ErrorWords:
    """How a provider words an error, for the proxy's own answers.

    `json`: (path, template) of members in a JSON body; `fields`: (name, template) of header fields. A template may use
    {message}, {word}, {outcome}, {status}, {type}. `words`: (statuses, word), of which the first that has the status
    gives {word}. `xml`: (services, elements around the error), for requests with an AWS signature for one of these
    services; without services for any that sends a form.
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
    """How a provider words its errors and limits, as data (proxy/config/dialects/*.yaml)."""

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


@dataclass(frozen=True, slots=True)
class Classify:
    """How an attempt's end gets its class: by rules, then dialects, then lists (precedence in the lists resolved)."""

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


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The timeouts of a call in seconds; None is off."""

    connect: float = 5.0
    attempt: float | None = None
    first_byte: float | None = None
    total: float | None = 900.0
    idle: float | None = 15 * 60.0


@dataclass(frozen=True, slots=True)
class PushbackPolicy:
    """The bounds on pushbacks, in seconds. `hold`: the longest that cooldowns hold one call, in all."""

    max_delay: float = 60.0
    cooldown: CooldownMode = "wait"
    hold: float = 20.0
    of: PushbackOf = "upstream"


@dataclass(frozen=True, slots=True)
class AutoLimit:
    """The bounds on a limit that redrive finds by itself (contract, section 14): at most `queue` calls of the scope
    wait for it, for at most `wait` seconds each.
    """

    queue: int = 1000
    wait: float = 20.0


@dataclass(frozen=True, slots=True)
class Concurrency:
    """The limit on the attempts of a scope that are under way: at most `max`; others wait, at most `queue` of them, for
    at most `wait` seconds. `group` names the limit, since an upstream may have several: a route that sets a limit of
    its own has its own name.
    """

    max: int
    queue: int = 100
    wait: float = 30.0
    group: str = "concurrency"


@dataclass(frozen=True, slots=True)
class Resume:
    """The bounds on going on with an answer that broke (contract, section 15): at most `max` resumptions without
    progress, while the app gets nothing for at most `wait` seconds. `stall`: an answer that is silent for so many
    seconds has broken, None for never. `discard`: the most bytes that are read over if the upstream sends all again.
    """

    max: int = 10
    wait: float = 30.0
    stall: float | None = None
    discard: int = 1024 * 1024


@dataclass(frozen=True, slots=True)
class WholeAnswers:
    """The bounds on answers that are kept until they are whole (contract, section 15): at most `whole` bytes of body;
    an answer without a length for at most `pause` seconds from its head, one with a length until it has been silent for
    `wait` seconds.
    """

    whole: int = 64 * 1024
    pause: float = 0.05
    wait: float = 1.0


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The idempotency key's field. `header` is in the user's spelling. `form`: how a key that redrive adds is written:
    `string` is a structured field's string, as the IETF draft has it (draft-ietf-httpapi-idempotency-key-header, 2.1).
    """

    header: str = "Idempotency-Key"
    inject: bool = False
    form: Literal["bare", "string"] = "bare"


@dataclass(frozen=True, slots=True)
class HeaderEdits:
    """The edits of the header fields of a request or an answer: `set` replaces or adds fields; `remove` takes out the
    fields of these lower-case names.
    """

    set: tuple[tuple[str, str], ...] = ()
    remove: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Fallback:
    """An upstream that takes over calls that would fail at the first. `to` is its name. `json` are members to set at
    the top level of the body, each with its value as JSON text. `keep` are fields and query parameters, in lower case,
    that are passed on although their names mark them as secrets of the first upstream.
    """

    to: str
    json: tuple[tuple[str, bytes], ...] = ()
    keep: frozenset[str] = frozenset()


class KeyFile:
    """A file that has the value of a credential. `format`: the field's value, {} standing for the file's content.
    `renewed_at`: when the content was found to be another one after a 401 (seconds).
    """

    __slots__ = ("_read_at", "format", "path", "renewed_at")

    def __init__(self, path: str, format: str) -> None:
        self.path = path
        self.format = format
        self.renewed_at = self._read_at = -float("inf")

    def is_due(self, now: float) -> bool:
        """Whether the file may be read again now: at most once a second (contract, section 16)."""
        if now < self._read_at + 1.0:
            return False
        self._read_at = now
        return True


@dataclass(frozen=True, slots=True)
class Credentials:
    """The keys of an upstream: each attempt carries one of `values` in the field `header` (in the user's spelling).

    `values` are whole field values as they were when the configuration was read, and never shown; people see their
    numbers, from 1. `files`: the file of each value that stands in one; empty if none does. `lines` and `digests` are
    those of the values in force; `digests` identify them wherever state is kept for each.
    """

    header: str
    values: tuple[str, ...] = field(repr=False)
    pick: Literal["next", "first"] = "next"
    files: tuple[KeyFile | None, ...] = field(default=(), repr=False, compare=False)
    name: str = field(init=False, repr=False, compare=False, default="")  # the field's name in lower case
    lines: list[bytes] = field(init=False, repr=False, compare=False)  # the field lines, with CRLF
    digests: list[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, value in {
            "name": self.header.lower(),
            "lines": [_field_line(self.header, value) for value in self.values],
            "digests": [_digest(value) for value in self.values],
        }.items():
            object.__setattr__(self, name, value)

    def renew(self, number: int, content: str, now: float) -> None:
        """Use the content of this value's file from now on, if it is another one than before."""
        file = self.files[number]
        assert file is not None  # the value stands in a file
        value = file.format.replace("{}", content)
        if _digest(value) != self.digests[number]:
            self.lines[number], self.digests[number] = _field_line(self.header, value), _digest(value)
            file.renewed_at = now


def _field_line(header: str, value: str) -> bytes:
    return f"{header}: {value}\r\n".encode("latin-1")


def _digest(value: str) -> str:
    return hashlib.blake2b(value.encode(), digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class Scope:
    """The property that calls must have in common to share the strategy's own bucket, limiter and cooldown. `header` is
    a lower-case name if `by` is "header".
    """

    by: Literal["host", "upstream", "header"] = "host"
    header: str = ""


@dataclass(frozen=True, slots=True)
class BreakerSpec:
    """The circuit breaker of each endpoint (contract, section 13). `failure_ratio` is 0 to 1; times are seconds."""

    failure_ratio: float = 0.5
    minimum_attempts: int = 20
    window: float = 30.0
    open: float = 10.0


@dataclass(frozen=True, slots=True)
class EndpointShare:
    """An endpoint of an upstream, as far as the core chooses among endpoints. `label` is the name of its circuit
    breaker: host:port, with the path if several endpoints of the upstream have that host:port.
    """

    label: str
    weight: int = 1
    priority: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """Everything that applies to one call. `upstream` and `route` are metric labels ("" = no route matched).

    `rate` and `more_rates`: the rate buckets, all of which each attempt pays; `tokens`: the price of an attempt in a
    language model's tokens, if one of them counts those. `endpoints`: those of the target, in its order, if the core
    chooses among them; else the driver takes turns. `via`: requests and answers carry a Via of ours; without it a field
    of our own reveals loops.
    """

    upstream: str
    route: str
    strategy: Strategy
    bucket: BucketRef | None
    rate: BucketRef | None = None
    scope: Scope = Scope()
    timeouts: Timeouts = Timeouts()
    classify: Classify = Classify()
    attempt_headers: frozenset[str] = frozenset()
    idempotency_key: IdempotencyKey = IdempotencyKey()
    pushback: PushbackPolicy = PushbackPolicy()
    mode: Mode = "enforce"
    request_headers: HeaderEdits = HeaderEdits()
    response_headers: HeaderEdits = HeaderEdits()
    target: Any = None  # transport's: endpoints, TLS, parent proxy
    fallback: tuple[Fallback, ...] = ()
    concurrency: Concurrency | None = None
    limit: AutoLimit | None = None
    outage: OutageMode = "fail"
    circuit_breaker: BreakerSpec | None = None
    endpoints: tuple[EndpointShare, ...] = ()
    balance: Balance = "turns"
    credentials: Credentials | None = None
    via: bool = True
    answers: WholeAnswers | None = None
    unfinished: Unfinished = "tell"
    resume: Resume | None = None
    more_rates: tuple[BucketRef, ...] = ()
    tokens: TokenRules | None = None

    @property
    def rates(self) -> tuple[BucketRef, ...]:
        """Every rate bucket of the policy, in the order of the configuration."""
        return () if self.rate is None else (self.rate, *self.more_rates)

    @property
    def chooses(self) -> bool:
        """Whether the core chooses the endpoint of each attempt."""
        return self.circuit_breaker is not None or bool(self.endpoints)
