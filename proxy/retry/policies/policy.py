"""The policy of a call: frozen definitions, which the configuration compiles to.

Law: a policy holds no state. What calls share is kept in a bucket, and what one call knows in its token. Durations are
seconds, and sizes bytes. Names are those of the contract, section 3. The core does not look into `target`, which is
data for the transport.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from proxy.retry.facts import FaultKind
from proxy.retry.policies.bucket_specs import BucketRef, BucketSpec, QuotaSpec, TokenRules
from proxy.retry.policies.dialect import Classify
from proxy.retry.value_bases import (
    BackoffBase,
    HeaderEditsBase,
    PolicyBase,
    PushbackPolicyBase,
    StrategyBase,
    TimeoutsBase,
)

Jitter = Literal["none", "full", "equal", "proportional", "decorrelated"]
Mode = Literal["enforce", "observe", "off"]
PushbackOf = Literal["endpoint", "upstream"]
Balance = Literal["turns", "least"]
OutageMode = Literal["hold", "fail"]
Unfinished = Literal["tell", "break", "event"]
CooldownMode = Literal["wait", "reject", "off"]
#: The rules that class answers where the configuration has none.
_DEFAULT_RULES = Classify()


@dataclass(frozen=True, slots=True)
class Backoff(BackoffBase):
    """Exponential backoff (contract, section 3). `throttling_base` replaces `base` after a throttling error."""

    base: float = field()
    max: float = field()
    multiplier: float = 2.0
    jitter: Jitter = "full"
    throttling_base: float | None = None


@dataclass(frozen=True, slots=True)
class Percentile:
    """A delay that is measured, not configured: the time within which `percent` (50 to 99.9) of 100 measured times
    lie.
    """

    percent: float


@dataclass(frozen=True, slots=True)
class Strategy(StrategyBase):
    """A strategy's definition. `name`: the name that the user gave it. `kind`: one of the kinds in the contract's
    table, or "custom".

    `own_bucket`: the bucket that policies without one of their own use. `hedging_delay`: the seconds before each hedge,
    None for a strategy that does not hedge. `hedging_percentile`: the delay is this percentile (50 to 99.9) of the
    times of the scope's successes; `hedging_delay` then applies only while there is no percentile, and before the
    retries of a call that is not hedged. `extra`: the share of the calls (0 to 1) that may be hedged; None for no
    bound.

    `exact_pushback` (grpc): a pushback replaces the backoff and starts the series again. `pushback_clamp`
    (standard-2026): a pushback counts as at least the backoff, and as at most the backoff plus this number of seconds.
    `paced` (adaptive): the CUBIC limiter is used, which delays first attempts too unless `delay_first` is false.
    `custom`: a RetryStrategy object of the user's (section 7). `remake`: makes a new object like `custom`, without any
    history.
    """

    kind: str = field()
    name: str = field()
    max_attempts: int = field()
    backoff: Backoff = field()
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

    @property
    def default_bucket(self) -> BucketSpec | None:
        """The bucket for a policy without the key `bucket`: the strategy's own. If that is a quota, it also refills
        while few calls are made.
        """
        own = self.own_bucket
        return own.refilled_in_quiet(self.max_attempts) if isinstance(own, QuotaSpec) else own


@dataclass(frozen=True, slots=True)
class Timeouts(TimeoutsBase):
    """The timeouts of a call in seconds; None is off."""

    connect: float = 5.0
    attempt: float | None = None
    first_byte: float | None = None
    total: float | None = 900.0
    idle: float | None = 15 * 60.0


@dataclass(frozen=True, slots=True)
class PushbackPolicy(PushbackPolicyBase):
    """The bounds on pushbacks, in seconds. `max_delay`: the longest delay that is obeyed. `cooldown`: what calls do
    that a cooldown holds. `hold`: the longest that cooldowns hold one call, in all. `of`: whether a delay holds the
    calls to all endpoints, or only those to the endpoint that named it. `ahead`: calls also wait until they fit into
    the limits that answers report.
    """

    max_delay: float = 60.0
    cooldown: CooldownMode = "wait"
    hold: float = 20.0
    of: PushbackOf = "upstream"
    ahead: bool = False

    def forbids(self, delay: float) -> bool:
        """Whether a delay (seconds) that an upstream named is above `max_delay`."""
        return delay > self.max_delay


@dataclass(frozen=True, slots=True)
class AutoLimit:
    """The bounds on waiting for a limit that redrive itself has set up (contract, section 14): at most `queue` calls of
    the scope wait, each for at most `wait` seconds.
    """

    queue: int = 1000
    wait: float = 20.0


@dataclass(frozen=True, slots=True)
class Concurrency:
    """The limit on the attempts of a scope that are under way: at most `max`. Further calls wait: at most `queue` of
    them, each for at most `wait` seconds. `group`: the name of the limit, since an upstream may have several: a limit
    that a route sets for itself has a name of its own.
    """

    max: int
    queue: int = 100
    wait: float = 30.0
    group: str = "concurrency"


@dataclass(frozen=True, slots=True)
class Resume:
    """The bounds on asking for the rest of an answer that broke (contract, section 15). `max`: how often the rest is
    asked for without progress. `wait`: the most seconds in which the app gets nothing. `stall`: an answer that is
    silent for this many seconds counts as broken, None for never. `discard`: the most bytes that are read and dropped
    if the upstream sends the whole answer again.
    """

    max: int = 10
    wait: float = 30.0
    stall: float | None = None
    discard: int = 1024 * 1024


@dataclass(frozen=True, slots=True)
class WholeAnswers:
    """The bounds on holding an answer back until it is complete (contract, section 15). `whole`: the most bytes of body
    that are held. `pause`: the most seconds, from its head, for which an answer without a length is held. `wait`: an
    answer with a length is held until no byte has come for this many seconds.
    """

    whole: int = 64 * 1024
    pause: float = 0.05
    wait: float = 1.0


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The field that carries idempotency keys. `header`: its name in the user's spelling. `inject`: redrive adds a key
    to requests without one. `form`: how such a key is written: `bare`, or `string`, which is a structured field's
    string, as the IETF draft has it (draft-ietf-httpapi-idempotency-key-header, 2.1).
    """

    header: str = "Idempotency-Key"
    inject: bool = False
    form: Literal["bare", "string"] = "bare"


@dataclass(frozen=True, slots=True)
class HeaderEdits(HeaderEditsBase):
    """The edits of the header fields of a request or an answer. `set`: fields that are replaced or added. `remove`: the
    lower-case names of fields that are removed.
    """

    set: tuple[tuple[str, str], ...] = ()
    remove: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Fallback:
    """An upstream that takes over calls which would fail at the first. `to`: its name. `json`: members to set at the
    top level of the body, each with its value as JSON text. `keep`: fields and query parameters, in lower case, that
    are passed on although their names mark them as secrets of the first upstream.
    """

    to: str
    json: tuple[tuple[str, bytes], ...] = ()
    keep: frozenset[str] = frozenset()


class KeyFile:
    """A file that has the value of a credential. `path`: its path. `format`: the field's value, in which {} stands for
    the file's content. `is_stale`: whether the file could not be read when the configuration was last loaded, so that
    the value is an earlier one. `renewed_at`: the time at which a 401 last led to the discovery of a new content
    (seconds).
    """

    __slots__ = ("_read_at", "format", "is_stale", "path", "renewed_at")

    def __init__(self, path: str, format: str, is_stale: bool = False) -> None:
        self.path = path
        self.format = format
        self.is_stale = is_stale
        self.renewed_at = self._read_at = -float("inf")

    def is_due(self, now: float) -> bool:
        """Whether the file may be read again now, which is allowed once a second (contract, section 16). If so, it
        counts as read now.
        """
        if now < self._read_at + 1.0:
            return False
        self._read_at = now
        return True


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Credentials:
    """The keys of an upstream: each attempt carries one of `values` in the field `header` (in the user's spelling).

    `values`: whole field values, as they were when the configuration was read; they are never shown, and people see
    their numbers, from 1. `pick`: "next" to take turns, or "first" to use the first that may be used. `files`: for each
    value, the file that it is from, or None; empty if no value is from a file. `lines`: the field lines with the values
    in force, which may have been read from their files again. `digests`: the hashes of these values, under which state
    is kept for each.
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
        """Use `content`, the new content of the file of the credential with the number `number`, as the credential's
        value from now on. Nothing changes if that is its value already.
        """
        file = self.files[number]
        assert file is not None  # the value stands in a file
        self.replace(number, file.format.replace("{}", content), now)

    def replace(self, number: int, value: str, now: float) -> None:
        """Use `value`, a whole field value with the new content of a file, for the credential with the number `number`
        from now on. Nothing changes if that is its value already.
        """
        file = self.files[number]
        assert file is not None  # the value stands in a file
        if _digest(value) != self.digests[number]:
            self.lines[number], self.digests[number] = _field_line(self.header, value), _digest(value)
            file.renewed_at = now


def _field_line(header: str, value: str) -> bytes:
    return f"{header}: {value}\r\n".encode("latin-1")


def _digest(value: str) -> str:
    return hashlib.blake2b(value.encode(), digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class Scope:
    """The property that calls must have in common to share the strategy's own bucket, limiter and cooldown. `by`: what
    it is. `header`: the field's lower-case name if `by` is "header".
    """

    by: Literal["host", "upstream", "header"] = "host"
    header: str = ""


@dataclass(frozen=True, slots=True)
class BreakerSpec:
    """The circuit breaker of each endpoint (contract, section 13). `failure_ratio`: the share of failures (0 to 1) at
    which it opens. `minimum_attempts`: the fewest attempts for that. `window`: the seconds over which attempts count.
    `open`: the seconds for which it stays open at first.
    """

    failure_ratio: float = 0.5
    minimum_attempts: int = 20
    window: float = 30.0
    open: float = 10.0


@dataclass(frozen=True, slots=True)
class EndpointShare:
    """The label, weight and priority of an endpoint, by which the core chooses among an upstream's endpoints. `label`:
    host:port, with the path if several endpoints of the upstream have that host:port; it is also the name of the
    endpoint's circuit breaker.
    """

    label: str
    weight: int = 1
    priority: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Policy(PolicyBase):
    """Everything that applies to one call. `upstream` and `route`: labels for metrics; the route is "" if none matched.

    `rate` and `more_rates`: the rate buckets, all of which each attempt pays. `tokens`: the rules by which an attempt's
    price in a language model's tokens is estimated, if a bucket counts those. `endpoints`: the endpoints of the target,
    in its order, if the core chooses among them; empty if the driver lets them take turns. `via`: redrive adds its Via
    field to requests and answers. If it is False, redrive adds another field of its own to requests, so that it
    recognizes those that come back to it in a loop.
    """

    upstream: str = field()
    route: str = field()
    strategy: Strategy = field()
    bucket: BucketRef | None = field()
    rate: BucketRef | None = None
    scope: Scope = Scope()
    timeouts: Timeouts = Timeouts()
    classify: Classify = _DEFAULT_RULES
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
    # What follows from the other fields, kept by those who work it out; None until then.
    # undecided: whether calls may start without a `Call` (request_hints)
    # course: what a plan of calls needs of the policy (forward/request_plan.py)
    undecided: bool | None = field(init=False, repr=False, default=None)
    course: tuple[bool, float, bool] | None = field(init=False, repr=False, default=None)

    @property
    def rates(self) -> tuple[BucketRef, ...]:
        """Every rate bucket of the policy, in the order of the configuration."""
        return () if self.rate is None else (self.rate, *self.more_rates)

    @property
    def chooses(self) -> bool:
        """Whether the core chooses the endpoint of each attempt."""
        return self.circuit_breaker is not None or bool(self.endpoints)
