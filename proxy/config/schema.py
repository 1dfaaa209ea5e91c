"""The file's format, key by key: the table that every file is checked against, and that `redrive schema` prints.

One table is the check, the defaults and the JSON Schema. Each key has one reader, one default, written as a user would
write it, and one line for the editor's help; the keys are in the contract's order. Rules between keys (a kind's own
keys, references, overlaps) are in strategies.py, compile.py and advice.py; those between the parts of a classification
rule, in rule_section.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from proxy.config import addresses, units
from proxy.config.rule_section import RuleSection
from proxy.config.schema_language import (
    Anything,
    Either,
    Form,
    JsonValue,
    Key,
    ListOf,
    MapOf,
    Secrets,
    Section,
    Word,
)
from proxy.config.settings import MOST_WORKERS

# -- scalars: each a reader with its JSON Schema, which accepts all that the reader accepts, and any text with a ${NAME}

_ENV = r".*\$\{.+\}.*"  # any scalar may come from the environment


def like(expression: str, *types: str) -> dict[str, Any]:
    """The JSON Schema of a text that matches the regular expression or is a ${NAME}; values of one of the JSON `types`
    are valid too.
    """
    return {"type": [*types, "string"] if types else "string", "pattern": f"^({expression}|{_ENV})$"}


def one_word(*words: str) -> Word:
    """Make the form of a scalar that is one of several words. If `off` is among them, false is valid too: some editors
    read a bare off as false.
    """
    also: list[dict[str, Any]] = [{"const": False}] if "off" in words else []
    return Word(units.one_of(*words), {"anyOf": [{"enum": list(words)}, *also, like(_ENV)]})


def off_or_mapping(key: str, such_as: str) -> Word:
    """The word `off`, of a key that is otherwise a mapping. `such_as` is an example of the mapping for the error
    message.
    """

    def read(value: Any) -> str:
        if not units.is_off(value):
            wanted = f"write {key}: {{{such_as}}}, or {key}: {{}} for its defaults"
            raise ValueError(f"{units.written(value)} is not off; {wanted}")
        return "off"

    return Word(read, {"anyOf": [{"const": "off"}, {"const": False}, like(_ENV)]})


def whole(least: int, most: int = 2**31) -> Word:
    """Make the form of a whole number from `least` to `most`."""
    bounds = {"minimum": least} if most == 2**31 else {"minimum": least, "maximum": most}
    return Word(units.whole(least, most), {"anyOf": [{"type": "integer", **bounds}, like("[0-9]+")]})


def number_of(reader: Callable[[Any], float]) -> Word:
    """Make the form of a number of zero or more, which `reader` reads."""
    return Word(reader, {"anyOf": [{"type": "number", "minimum": 0}, like(r"[0-9.]+([eE][-+]?[0-9]+)?")]})


_LONG = r"[0-9]+(\.[0-9]+)?(ms|s|m|h)|0"
_LONG_OR_OFF = {"anyOf": [like(f"{_LONG}|off"), {"const": False}, {"const": 0}]}
ANY = {"type": ["string", "number", "boolean"]}
TEXT = {"type": "string"}

duration = Word(units.duration, {"anyOf": [like(_LONG), {"const": 0}]})
delay_or_percentile = Word(
    units.delay_or_percentile, {"anyOf": [like(rf"{_LONG}|p([5-9][0-9])(\.[0-9]+)?"), {"const": 0}]}
)
positive_duration = Word(units.positive_duration, like(_LONG))
duration_or_off = Word(units.duration_or_off, _LONG_OR_OFF)
clamp = Word(units.clamp, _LONG_OR_OFF)
size = Word(units.size, {"anyOf": [like(r"[0-9]+(\.[0-9]+)?(B|KiB|MiB|GiB)|0"), {"const": 0}]})
positive_size = Word(units.positive_size, like(r"[0-9]+(\.[0-9]+)?(B|KiB|MiB|GiB)"))
rate = Word(units.rate, like(r"[0-9]+(\.[0-9]+)?/(s|m|h)"))
refill = Word(units.refill, {"anyOf": [like(r"[0-9]+(\.[0-9]+)?/(s|m|h)|0"), {"const": 0}]})
percent = Word(units.percent, like(r"[0-9]+(\.[0-9]+)? ?%?", "number"))
share = Word(units.share, like(r"[0-9]+(\.[0-9]+)? ?%?", "number"))
ratio = Word(units.ratio, like(r"[0-9]+(\.[0-9]+)? ?%?", "number"))
number = number_of(units.number)
positive_number = number_of(units.positive_number)
flag = Word(
    units.flag, {"anyOf": [{"type": "boolean"}, {"enum": ["true", "false", "yes", "no", "on", "off"]}, like(_ENV)]}
)
word = Word(units.word, ANY)
text = Word(units.text, ANY)
glob = Word(units.text, ANY)
admin_name = Word(addresses.admin_name, ANY)
admin_token = Word(addresses.admin_token, ANY)
header_value = Word(addresses.header_value, ANY)
header_name = Word(addresses.header_name, ANY)
key_header = Word(addresses.key_header, ANY)
token = Word(addresses.token, ANY)
address = Word(addresses.address, TEXT)
address_or_off = Word(addresses.address_or_off, {"anyOf": [TEXT, {"const": False}]})
redis_url = Word(addresses.redis_url, like(r"(redis|valkey)s?(\+[a-z]+)?://.+|unix:///.+"))
parent_proxy = Word(addresses.parent_proxy, {"anyOf": [like("none|off|false|http://.+"), {"const": False}]})
network = Word(addresses.network, TEXT)
failure = Word(units.failure, {"type": ["integer", "string"]})
status = Word(units.status, {"type": ["integer", "string"]})
grpc_status = Word(units.grpc_status, TEXT)
fault = Word(units.fault, TEXT)
endpoint = Word(addresses.endpoint, ANY)
host_pattern = Word(addresses.host_pattern, ANY)
service = Word(addresses.service_pattern, ANY)
prefix = Word(addresses.prefix_or_off, ANY)
concurrency_word = Word(units.concurrency_word, {"anyOf": [{"enum": ["auto", "off"]}, {"const": False}, like(_ENV)]})
most_attempts = Word(
    units.most_attempts,
    {"anyOf": [{"type": "integer", "minimum": 1}, {"const": "auto"}, like(r"0*[1-9][0-9]*"), like(_ENV)]},
)
jitter = one_word("none", "full", "equal", "proportional", "decorrelated")
trimmed_glob = Word(addresses.trimmed_glob, ANY)
header_globs = MapOf(trimmed_glob, key=addresses.header_name)
route_path = Word(addresses.route_path, TEXT)


#: The error for an empty list of values of which a call or an answer must have one.
NOTHING_MATCHES = "must not be empty: nothing would match; leave the key out to match anything"


def section(name: str, doc: str, /, **keys: Key | Form) -> Section:
    """Make the form of a mapping with these keys. A key given as a form alone, not as a `Key`, has no default and no
    help text.
    """
    return Section(name, doc, {name: key if isinstance(key, Key) else Key(key) for name, key in keys.items()})


def several(form: Form, empty: str = "") -> Either:
    """Make the form of a value or a list of such values. `empty` is the error for an empty list; "" allows it."""
    return Either(word=form, list=ListOf(form, empty))


# -- buckets and strategies --------------------------------------------------------------------------------------------

BUCKET = section(
    "bucket",
    "A store of retry tokens. Which keys there are depends on its kind.",
    kind=Key(one_word("quota", "throttle", "budget", "rate"), doc="without it, merged into the inherited bucket"),
    capacity=Key(number, doc="quota: the tokens it holds (500); with 0, only free retries are granted"),
    retry_cost=Key(number, doc="quota: what a retry costs (5)"),
    timeout_cost=Key(number, doc="quota: what a retry after a timeout costs (retry_cost)"),
    throttling_cost=Key(number, doc="quota: what a retry after a throttling error costs (retry_cost)"),
    success_refund=Key(number, doc="quota: what a first attempt's success returns (1)"),
    refund=Key(one_word("last", "flat"), doc="quota: flat returns success_refund on every success instead"),
    refill=Key(refill, doc="quota: tokens regained over time, such as 10/s, up to capacity (0/s)"),
    max_tokens=Key(positive_number, doc="throttle: the tokens it holds; retries only above half of them (10)"),
    token_ratio=Key(positive_number, doc="throttle: what a success returns (0.1)"),
    percent=Key(percent, doc="budget: retries as a percentage of the window's calls (20)"),
    min_per_second=Key(number, doc="budget: retries a second that are always granted (10)"),
    window=Key(positive_duration, doc="budget: how far back calls and retries are counted (10s)"),
    rate=Key(rate, doc="rate: attempts a second, as 100/s"),
    burst=Key(positive_number, doc="rate: the most attempts at once (one second's worth)"),
    unit=Key(one_word("attempts", "tokens"), doc="rate: what a token is: an attempt, or a language model's token"),
    when_empty=Key(one_word("wait", "reject"), doc="rate: what happens to a call when there is no token (wait)"),
    initial=Key(number, doc="quota, throttle, rate: the tokens at the start (full)"),
    store=Key(one_word("memory", "redis"), doc="redis shares it between machines (memory)"),
)

BACKOFF = section(
    "backoff",
    "cap(n) = min(max, base * multiplier^(n-1)); the jitter draws from it.",
    base=Key(duration, doc="the first cap"),
    throttling_base=Key(duration, doc="replaces base after a throttling error"),
    max=Key(duration, doc="the highest cap"),
    multiplier=Key(number, doc="the factor from one cap to the next"),
    jitter=Key(jitter, doc="which part of the cap is drawn"),
)

STRATEGY = replace(
    section(
        "strategy",
        "How a call is retried. Which keys there are depends on its kind; a module:Class takes any.",
        kind=Key(
            Word(
                units.word,
                like("standard|standard-2026|legacy|adaptive|smithy|grpc|hedging|none|[A-Za-z_][\\w.]*:[A-Za-z_]\\w*"),
            ),
            doc="a built-in kind or module:Class; without it, merged into the inherited strategy",
        ),
        max_attempts=Key(whole(1), doc="attempts, including the first"),
        backoff=Key(BACKOFF, doc="keys left out keep the kind's values"),
        pushback_clamp=Key(clamp, doc="standard-2026: a pushback is clamped to [d(n), d(n) + this] (5s)"),
        delay_first=Key(flag, doc="adaptive: whether the limiter delays first attempts too (true)"),
        initial_backoff=Key(duration, doc="grpc: backoff.base"),
        max_backoff=Key(duration, doc="grpc: backoff.max"),
        multiplier=Key(number, doc="grpc: backoff.multiplier"),
        jitter=Key(jitter, doc="grpc: backoff.jitter"),
        hedging_delay=Key(
            delay_or_percentile,
            doc="hedging: the time between hedges (500ms), or p95: that percentile of what successes took",
        ),
        extra=Key(share, doc="hedging: the most hedges, as a share of the last minute's calls (10% with a percentile)"),
        non_fatal=Key(ListOf(failure), doc="hedging: the failures after which it goes on"),
    ),
    open=True,
)

#: Other clients' names for a strategy's keys: urllib3, requests, botocore, axios-retry, tenacity, Envoy, Polly.
IN_STRATEGY = {
    **dict.fromkeys(
        ("retries", "max_retries", "num_retries", "retry_count", "retry_limit", "attempts", "retry_attempts", "tries",
         "total_max_attempts", "max_attempt_number", "max_retry_attempts", "stop_after_attempt"),
        "max_attempts, which counts the first attempt too",
    ),
    **dict.fromkeys(
        ("backoff_factor", "retry_delay", "initial_delay", "base_delay", "min_delay", "base_interval", "delay",
         "base_ms", "initial_interval"),
        "backoff.base",
    ),
    **dict.fromkeys(
        ("max_backoff", "backoff_max", "retry_max_delay", "max_interval", "max_backoff_time", "retry_wait_max"),
        "backoff.max",
    ),
    **dict.fromkeys(("exponential_base", "backoff_multiplier", "backoff_rate"), "backoff.multiplier"),
    **dict.fromkeys(("backoff_jitter",), "backoff.jitter"),
}  # fmt: skip
#: Their names for a policy's keys, with the key's path here.
ELSEWHERE = {
    **{name: f"strategy.{there}" for name, there in IN_STRATEGY.items()},
    **{name: f"strategy.{name}" for name in ("max_attempts", "backoff")},
    **dict.fromkeys(("retry", "retry_policy", "retry_strategy"), "strategy"),
    **dict.fromkeys(("request_timeout", "read_timeout", "deadline"), "timeouts.total"),
    **dict.fromkeys(("per_try_timeout", "try_timeout", "attempt_timeout"), "timeouts.attempt"),
    **dict.fromkeys(("connect_timeout", "connection_timeout"), "timeouts.connect"),
    **dict.fromkeys(("first_byte_timeout", "time_to_first_byte", "ttfb"), "timeouts.first_byte"),
    **dict.fromkeys(("idle_timeout",), "timeouts.idle"),
    **dict.fromkeys(("status_forcelist", "retry_on", "retryable_status_codes"), "classify.transient"),
    **dict.fromkeys(("allowed_methods", "method_whitelist", "retry_non_idempotent"), "classify.unsafe_methods"),
    **dict.fromkeys(("respect_retry_after_header", "retry_after"), "pushback"),
    **dict.fromkeys(("rate_limit", "ratelimit", "requests_per_second"), "rate"),
    **dict.fromkeys(("outlier_detection", "circuit_breakers", "breaker"), "circuit_breaker"),
    **dict.fromkeys(
        (
            "max_concurrency",
            "max_concurrent_requests",
            "max_in_flight",
            "max_requests",
            "concurrency_limit",
            "bulkhead",
        ),
        "concurrency.max",
    ),
    **dict.fromkeys(("max_pending_requests", "queue_size"), "concurrency.queue"),
}

# -- a policy ----------------------------------------------------------------------------------------------------------

TIMEOUTS = section(
    "timeouts",
    "The time limits of a call; each but connect can be off.",
    connect=Key(positive_duration, "5s", "from the look-up of the name to the end of the TLS handshake"),
    attempt=Key(duration_or_off, "off", "from the last byte of the request body to the final response head"),
    first_byte=Key(
        duration_or_off, "off", "from the last byte of the request to the first of the answer's body that counts"
    ),
    total=Key(duration_or_off, "15m", "all attempts and waits, up to the first byte that is passed on"),
    idle=Key(duration_or_off, "15m", "the longest silence of a body, a stream or a tunnel"),
)

EVENT = section(
    "event",
    "The first event that counts of a text/event-stream.",
    event=Key(glob, doc="its name (message where it has none); any if left out"),
    json=Key(MapOf(glob), doc="dotted.path: glob, in its data"),
)

_RULE = section(
    "rule",
    "Every part is optional, and all that are given must match; values are globs, * means present.",
    status=Key(several(status, NOTHING_MATCHES), doc="an HTTP status, 5xx, 520-527, or a list"),
    grpc_status=Key(several(grpc_status, NOTHING_MATCHES), doc="a gRPC status name, or a list"),
    fail=Key(several(fault, NOTHING_MATCHES), doc="a fault kind: reset, connect_failure, …, or a list"),
    header=Key(header_globs, doc="name: glob"),
    json=Key(MapOf(glob), doc="dotted.path: glob, in the body; with event, in its data"),
    event=Key(EVENT, doc="of a stream (status below 400): the first event that counts, by its name and JSON"),
    xml=Key(MapOf(trimmed_glob), doc="element: glob, in the body"),
    **{
        "as": Key(
            one_word("transient", "throttling", "timeout", "success", "fatal"),
            doc="transient, throttling, timeout, success or fatal",
            required=True,
        )
    },
)

RULE = RuleSection(_RULE.name, _RULE.doc, _RULE.keys)

OUT_OF_QUOTA = RuleSection(
    "out_of_quota",
    "An answer after which a key is of no use until somebody pays or its next period begins.",
    {name: _RULE.keys[name] for name in ("status", "header", "json", "event")},
)

CLASSIFY = section(
    "classify",
    "HTTP statuses, 5xx, 520-527, gRPC statuses, fault kinds; throttling beats timeout, timeout beats transient.",
    transient=Key(ListOf(failure), ["connect_failure", "refused_stream", "reset", 425, 500, 502, 503]),
    throttling=Key(ListOf(failure), [429]),
    timeout=Key(ListOf(failure), ["attempt_timeout", 408, 504]),
    unsafe_methods=Key(
        one_word("never", "unprocessed", "provider", "always"),
        "provider",
        "when methods that are not idempotent are retried; provider: also what the dialect's own client repeats",
    ),
    rules=Key(ListOf(RULE), [], "the first match wins, ahead of dialects and lists"),
)

IDEMPOTENCY_KEY = section(
    "idempotency_key",
    "A call that carries this header is idempotent.",
    header=Key(key_header, "Idempotency-Key"),
    inject=Key(flag, False, "a POST or PATCH without a key gets one"),
    form=Key(one_word("bare", "string"), "bare", 'how that key is written: string is "…", as the IETF draft has it'),
)

PUSHBACK = section(
    "pushback",
    "What an upstream says about when to retry.",
    max_delay=Key(duration, "60s", "a longer delay ends the call with that answer"),
    cooldown=Key(one_word("wait", "reject", "off"), "wait", "what happens to the scope's other calls meanwhile"),
    hold=Key(duration, "20s", "the longest that cooldowns, limits and outages hold one call, in all"),
    of=Key(
        one_word("auto", "endpoint", "upstream"),
        "auto",
        "whose word a pushback is: its endpoint's alone, or the whole upstream's",
    ),
    spread=Key(share, doc="no longer has an effect: held calls return by a slow start, see hold"),
)

CONCURRENCY = section(
    "concurrency",
    "How many attempts of a scope may be under way at a time.",
    max=Key(
        most_attempts, doc="attempts under way at a time, over all workers; auto: redrive finds a limit when needed"
    ),
    queue=Key(whole(0), doc="how many calls may wait; others are answered at once: 100, with auto 1000"),
    wait=Key(duration, doc="the longest that a call waits: 30s, with auto 20s"),
)

HEADER_EDIT = section(
    "header_edit",
    "Fields to set (replacing what came) and to remove.",
    set=Key(MapOf(header_value, key=addresses.editable_header, caseless=True), {}),
    remove=Key(ListOf(Word(addresses.editable_header, ANY)), []),
)

HEADERS = section("headers", "Changes to the headers on the way.", request=HEADER_EDIT, response=HEADER_EDIT)

CLIENT_CERT = section(
    "client_cert",
    "PEM files, for upstreams that ask for a client certificate.",
    cert=Key(word, doc="the certificate's file"),
    key=Key(word, doc="the private key's file"),
)

CIRCUIT_BREAKER = section(
    "circuit_breaker",
    "An endpoint that keeps failing is passed over for a while; kept for each endpoint, by all workers together.",
    failure_ratio=Key(ratio, "50%", "the share of attempts classed transient or timeout at which it opens"),
    minimum_attempts=Key(whole(1), 20, "how many attempts must have ended within the window before it may open"),
    window=Key(positive_duration, "30s", "how far back attempts are counted"),
    open=Key(positive_duration, "10s", "the time until one call goes as a probe; doubled when that fails, up to 60s"),
)

SCOPE = section(
    "scope",
    "State is kept for each value of a header.",
    header=Key(header_name, required=True, doc="the header's name, as in {header: x-tenant}"),
)

ANSWERS = section(
    "answers",
    "Answers that are kept until they are whole, so that one that breaks can be asked for again.",
    whole=Key(positive_size, "64KiB", "how many bytes of an answer's body are kept; a longer one goes on then"),
    pause=Key(duration, "50ms", "how long an answer without a length is kept, from its head"),
    wait=Key(duration, "1s", "for how long an answer with a length may be silent before it goes on"),
)

RESUME = section(
    "resume",
    "A GET whose answer breaks goes on where it broke.",
    max=Key(whole(1), 10, "resumptions that bring less than 64 KiB each; 100 in all"),
    wait=Key(positive_duration, "30s", "the longest silence that the app sees, with holds and backoffs"),
    stall=Key(duration_or_off, "off", "an answer that is silent for so long has broken"),
    discard=Key(size, "1MiB", "the most bytes that are read over if the upstream sends everything again"),
)

STREAMS = section(
    "streams",
    "Streams of events.",
    unfinished=Key(
        one_word("tell", "break", "event"),
        "tell",
        "what the app gets of one that ends without its end: nothing more, a reset, or the provider's error event",
    ),
)

FALLBACK = section(
    "fallback",
    "An upstream that takes over calls that would fail here.",
    to=Key(word, required=True, doc="the name of an upstream with a url"),
    json=Key(MapOf(JsonValue(), key=units.text), doc="members set at the top level of a JSON body"),
    keep=Key(ListOf(word), doc="fields and query parameters to pass on although their names mark them as secret"),
)

CREDENTIALS = section(
    "credentials",
    "Several keys of one upstream: each attempt carries one of them.",
    header=Key(Word(addresses.editable_header, ANY), doc="the field that carries it, as x-api-key", required=True),
    format=Key(
        Word(addresses.credential_format, like(r".*\{\}.*")), "{}", "how it is written; {} stands for the value"
    ),
    values=Key(Secrets(addresses.credential), doc="the keys, as ${KEY_A}; never shown", required=True),
    pick=Key(one_word("next", "first"), "next", "next takes turns; first uses the first that is usable"),
)

TOKENS = section(
    "tokens",
    "The estimate of an attempt's price, where a rate bucket counts a language model's tokens.",
    output=Key(positive_number, 1024, "output tokens, where the request names no maximum and no outputs are known"),
    bytes=Key(positive_number, 4, "bytes of a request's body for each token"),
)

_NAME_OR_BUCKET = Either(word=word, mapping=BUCKET)
POLICY_KEYS: dict[str, Key] = {
    "verify": Key(word, True, "upstream TLS: true, false, or a CA file"),
    "client_cert": Key(CLIENT_CERT),
    "via_proxy": Key(parent_proxy, doc="a parent proxy, http://host:port, or none"),
    "strategy": Key(Either(word=word, mapping=STRATEGY), "standard", "a name, a built-in kind, or a mapping"),
    "bucket": Key(_NAME_OR_BUCKET, doc="a name, a mapping, or off; without the key the strategy's own"),
    "rate": Key(
        Either(word=word, mapping=BUCKET, list=ListOf(_NAME_OR_BUCKET, "must not be empty")),
        doc="a bucket of kind rate, paid by every attempt, including first ones, or off; of a list all are paid",
    ),
    "tokens": Key(TOKENS),
    "timeouts": Key(TIMEOUTS),
    "concurrency": Key(
        Either(word=concurrency_word, mapping=CONCURRENCY),
        "auto",
        "how many attempts may be under way at a time: auto finds a limit while the upstream is in trouble",
    ),
    "outage": Key(
        one_word("hold", "fail"), "hold", "whether calls wait for the end of an outage; fail sends them into it"
    ),
    "answers": Key(
        Either(word=off_or_mapping("answers", "whole: 64KiB"), mapping=ANSWERS),
        {"whole": "64KiB", "pause": "50ms", "wait": "1s"},
        "keep an answer until it is whole, so that one that breaks is asked for again; or off",
    ),
    "balance": Key(
        one_word("turns", "least"),
        "turns",
        "which of several endpoints an attempt goes to: by turns, or where the fewest attempts are under way",
    ),
    "resume": Key(
        Either(word=off_or_mapping("resume", "max: 10"), mapping=RESUME),
        "off",
        "go on with a GET's answer where it broke; {} takes the defaults",
    ),
    "streams": Key(STREAMS),
    "classify": Key(CLASSIFY),
    "dialects": Key(
        ListOf(word),
        ["http"],
        "http, aws, grpc, github, openai, anthropic, google, azure, stripe, mcp, or a pack's file.yaml",
    ),
    "attempt_headers": Key(ListOf(one_word("grpc", "aws", "envoy")), [], "further dialects of the attempt count"),
    "idempotency_key": Key(IDEMPOTENCY_KEY),
    "pushback": Key(PUSHBACK),
    "mode": Key(one_word("enforce", "observe", "off"), "enforce"),
    "headers": Key(HEADERS),
    "via": Key(flag, True, "Via in requests and answers; off: neither, and X-Redrive-Loop in requests"),
    "fallback": Key(
        ListOf(Either(word=word, mapping=FALLBACK)),
        [],
        "upstreams that take over calls that would fail here, by name, in order",
    ),
    "service_config": Key(
        Either(word=word, mapping=Anything()),
        doc="a gRPC service config, file or mapping, instead of strategy and bucket",
    ),
}

MATCH = section(
    "match",
    "What a call must match to take a route; all that are given must match.",
    methods=Key(ListOf(token, NOTHING_MATCHES), doc="GET, POST, …"),
    path=Key(route_path, doc="begins with / (or **); * within a segment, ** across; percent-decoded"),
    headers=Key(header_globs, doc="name: glob; * means present"),
)

#: Keys that only an upstream has: routes inherit them, and hosts that requests choose must not get them.
_UPSTREAM_ALONE = {"credentials": "upstreams.NAME.credentials, next to its url"}

ROUTE = Section(
    "route",
    "A policy for some of an upstream's calls.",
    {"match": Key(MATCH, doc="which calls it is for, as {path: /v1/*}", required=True), **POLICY_KEYS},
    belongs=ELSEWHERE | _UPSTREAM_ALONE | {"circuit_breaker": "upstreams.NAME.circuit_breaker"},
)

_PLACELESS: dict[str, Key] = {
    "protocol": Key(
        one_word("auto", "http/1.1", "http/2"), "auto", "the protocol spoken to the upstream; auto: what the app spoke"
    ),
    "connect": Key(one_word("auto", "tunnel", "intercept", "deny"), "auto", "what happens to a CONNECT"),
    **POLICY_KEYS,
    "scope": Key(
        Either(word=one_word("host", "upstream"), mapping=SCOPE),
        "host",
        "what its own bucket, limiter and cooldown are kept by: host, upstream, {header: NAME}",
    ),
    "circuit_breaker": Key(
        Either(word=off_or_mapping("circuit_breaker", "failure_ratio: 50%"), mapping=CIRCUIT_BREAKER),
        "off",
        "pass over an endpoint that keeps failing, or answer 503 when none is left; {} takes the defaults",
    ),
    "routes": Key(ListOf(ROUTE), [], "the first match wins"),
}

#: Keys that are a word or a mapping, with the mapping's section: a partial mapping keeps the other keys of the
#: inherited one, or else gets these defaults.
FILLED = {"circuit_breaker": CIRCUIT_BREAKER, "answers": ANSWERS, "resume": RESUME}

DEFAULTS = Section(
    "defaults",
    "An upstream policy without an address; every upstream starts from it.",
    _PLACELESS,
    belongs={**ELSEWHERE, **_UPSTREAM_ALONE},
)

ENDPOINT = section(
    "endpoint",
    "One of several endpoints.",
    url=Key(endpoint, required=True),
    weight=Key(whole(1, 100), 1, "its share of the turns"),
    priority=Key(whole(0), 0, "0 first; a higher number while all lower ones refuse, are open, cool or are out"),
)

UPSTREAM = replace(
    section(
        "upstream",
        "A named destination with one policy.",
        url=Key(
            Either(word=endpoint, list=ListOf(Either(word=endpoint, mapping=ENDPOINT), "must not be empty")),
            doc="one url, or a list of urls and {url, weight, priority}; without it, the host that the request names",
        ),
        hosts=Key(
            several(host_pattern),
            doc="its hosts, * as a wildcard; without a port, any; default: those of url, at its port, 80, 443 (https)",
        ),
        prefix=Key(prefix, doc="for reverse use: /NAME by default, or off"),
        services=Key(
            several(service),
            doc="gRPC services that lead here in reverse use on HTTP/2, * as a wildcard; none by default",
        ),
        credentials=Key(
            Either(word=Word(addresses.no_credentials, {"const": "none"}), mapping=CREDENTIALS),
            doc="several keys, of which each attempt carries one: {header, format, values, pick}; needs a url",
        ),
        **_PLACELESS,
    ),
    belongs=ELSEWHERE,
)

# -- a dialect pack ----------------------------------------------------------------------------------------------------

spelling = Word(units.spelling, like(r".*\{\}.*"))

CODES = section(
    "codes",
    "Error codes by class, wherever the provider writes them: one rule for each code and place.",
    status=Key(several(status, NOTHING_MATCHES), "400-599"),
    header=Key(ListOf(header_name), [], "header fields that hold a code"),
    json=Key(ListOf(word), [], "dotted paths in a JSON body"),
    xml=Key(ListOf(word), [], "elements of an XML body"),
    spelled=Key(
        ListOf(spelling, NOTHING_MATCHES), ["{}"], "how a place may spell a code, {} standing for it; * is any text"
    ),
    **{name: Key(ListOf(word), []) for name in ("throttling", "timeout", "transient", "fatal")},
)

TIME_FORMAT = one_word("seconds", "epoch", "epoch_ms", "duration", "http_date", "rfc3339")

REPEATS = section(
    "repeats",
    "What the provider's official client repeats by default, whatever the method (unsafe_methods: provider).",
    client=Key(word, required=True, doc="where that was read: the client, its version and file"),
    status=ListOf(status),
    idempotent=Key(ListOf(status), doc="statuses that it repeats for idempotent methods alone"),
    faults=ListOf(fault),
    transient_codes=Key(flag, False, "what this pack's own rules class transient"),
    should_retry=Key(flag, False, "any failure with x-should-retry: true"),
    retry_after=Key(flag, False, "any failure with Retry-After"),
    header=Key(MapOf(glob), doc="only requests with these fields are its own"),
    keyed=Key(flag, False, "only requests with the idempotency key, or of an idempotent method"),
    alone=Key(flag, False, "only where amz-sdk-request does not say that it retries by itself"),
    within=Key(duration, doc="only this long after the first attempt"),
    whole_answers=Key(
        ListOf(token), doc="methods for which it reads an answer whole before it decides, and so repeats a broken one"
    ),
    attempts=Key(whole(1), doc="how many attempts it makes in all; check says where a policy makes fewer"),
    unsigned=section(
        "unsigned",
        "POSTs of a form that it sends without authorization.",
        host=Key(word, required=True, doc="a glob of the host"),
        field=Key(word, required=True, doc="the field of the form that names what is asked for"),
        values=Key(ListOf(word, NOTHING_MATCHES), required=True),
    ),
)

READS = section(
    "reads",
    "POSTs that change nothing: repeated as GETs are, but not hedged.",
    field=Key(key_header, required=True, doc="the request field that names what a POST asks for"),
    values=Key(ListOf(word, NOTHING_MATCHES), required=True, doc="globs of its values that are reads"),
    header=Key(header_globs, doc="only with these fields, by which the server must compare that one with the body"),
)

USAGE = section(
    "usage",
    "Where requests and answers say how many of a language model's tokens they cost: dotted paths in JSON, * for each "
    "item of a list.",
    maximum=Key(ListOf(word), [], "of a request: the most output tokens"),
    choices=Key(ListOf(word), [], "of a request: how many outputs it asks for"),
    model=Key(ListOf(word), [], "of a request: its model"),
    media=Key(ListOf(word), [], "of a request: names of members whose strings are media, wherever they are"),
    prompt=Key(ListOf(word), [], "of an answer, or an event of a stream: tokens of the prompt, which add up"),
    prompt_free=Key(ListOf(word), [], "tokens among those that the provider does not count, such as cached ones"),
    output=Key(ListOf(word), [], "tokens of the output, which add up"),
    text=Key(ListOf(word), [], "the output's text, which stands for its tokens where numbers are missing"),
)

ERRORS = section(
    "errors",
    "How the provider words an error, for answers of redrive's own. In texts, {message}, {word}, {outcome}, {status} "
    "and {type} (the page that explains the outcome) are replaced.",
    json=Key(MapOf(word), {}, "dotted.path: text, in a JSON body, beside the members of problem+json"),
    header=Key(MapOf(word, key=addresses.header_name), {}, "name: text"),
    words=Key(
        ListOf(
            section(
                "error_word",
                "The provider's word for errors with some statuses; the first match wins.",
                status=Key(several(status, NOTHING_MATCHES), required=True),
                word=Key(word, required=True),
            )
        ),
        [],
        "what {word} is",
    ),
    xml=Key(
        ListOf(
            section(
                "error_xml",
                "Requests with an AWS signature to which the answer is XML.",
                services=Key(ListOf(word), [], "services of the signature; without any, all to which a form is sent"),
                root=Key(word, required=True, doc="dotted names of the elements around Code and Message"),
            )
        ),
        [],
        "the first match wins; every other request gets JSON",
    ),
)

_END_MARK = section(
    "end_mark",
    "A mark of an event in a stream.",
    event=Key(word, doc="its name, or else the type in its data; a * at the end stands for any rest"),
    data=Key(word, doc="its whole data"),
    present=Key(word, doc="a dotted path in its data, * for each item of a list: a member that is not null"),
)

STREAM_ENDS = section(
    "stream_ends",
    "How the provider's streams of events end, so that one that ends without its end is noticed.",
    ends=Key(ListOf(_END_MARK, NOTHING_MATCHES), doc="events that end a stream", required=True),
    known=Key(ListOf(_END_MARK), [], "further events of such streams; a stream of other events alone is not judged"),
    by_body=Key(flag, True, "asked for by a JSON body with stream: true"),
    path=Key(word, doc="asked for by a path that ends so"),
    error=section(
        "error_event",
        "The provider's event for an error of its server, as it is written into a stream.",
        event=Key(word, doc="its name"),
        data=Key(JsonValue(), required=True, doc="its data, as JSON"),
    ),
)

ERRORS_INSIDE = section(
    "errors_inside",
    "Errors in the XML of a success, known by its root element.",
    requests=Key(
        ListOf(
            section(
                "asked_for",
                "Requests whose answers begin before their outcome is known.",
                method=Key(token, required=True),
                header=Key(header_globs, doc="name: glob; * means present"),
                query=Key(word, doc="a parameter that the query has"),
            ),
            NOTHING_MATCHES,
        ),
        required=True,
    ),
    root=Key(word, required=True, doc="the local name of an error's root element"),
    status=Key(whole(400, 599), 500, "the status that such an error is read as"),
    awake=Key(positive_duration, "20s", "how long white space before the root may come until it is passed on"),
)

PACK_RULE = RuleSection(
    "pack_rule",
    RULE.doc,
    {
        **RULE.keys,
        "counts_as": Key(whole(400, 599), doc="for an error in a success: the status that it has elsewhere"),
    },
)

PACK = section(
    "pack",
    "How a provider words its errors and limits.",
    name=Key(word, required=True),
    source=Key(ListOf(word), required=True, doc="the provider's documentation"),
    stop_field=Key(header_name, doc="what its SDKs read instead of x-should-retry"),
    grpc=Key(flag, False, "gRPC's reading of HTTP codes and faults on application/grpc calls"),
    rules=Key(ListOf(PACK_RULE), [], "the first match wins"),
    empty_events=Key(ListOf(word), [], "names of events that carry nothing yet: they are kept until one that counts"),
    codes=CODES,
    delays=Key(
        ListOf(
            section(
                "delay",
                "A delay in the JSON body of a failure.",
                json=Key(word, required=True, doc="its dotted path"),
                format=Key(TIME_FORMAT, required=True),
            )
        ),
        [],
    ),
    repeats=REPEATS,
    reads=READS,
    usage=USAGE,
    errors=ERRORS,
    errors_inside=ERRORS_INSIDE,
    stream_ends=STREAM_ENDS,
    out_of_quota=Key(
        ListOf(OUT_OF_QUOTA),
        [],
        "the answers for which `credentials` put a key aside, whatever their class",
    ),
    resets=Key(
        ListOf(
            section(
                "reset",
                "A field that says when a quota is full again.",
                field=Key(header_name, required=True),
                format=Key(TIME_FORMAT, "seconds", required=True),
                remaining=Key(header_name, doc="read only where this field is 0"),
                limit=Key(MapOf(glob), doc="dotted.path: glob; or where a 429's body names the limit like this"),
            )
        ),
        [],
    ),
)

# -- the whole file ----------------------------------------------------------------------------------------------------

ADMIN = section(
    "admin",
    "The admin listener; off loopback a token is required.",
    listen=Key(address, "127.0.0.1:9901"),
    token=Key(admin_token, "", "expected as Authorization: Bearer"),
    hosts=Key(ListOf(admin_name), [], "names it answers to, besides addresses and localhost"),
)

#: The version of the format that is read (docs/guides/upgrading.md).
VERSION = "1"
#: The prefix of top-level keys that are ignored: users have anchors there, for example, as in a compose file.
EXTENSION = "x-"
_LEFT_ALONE: dict[str, Any] = {"patternProperties": {f"^{EXTENSION}": {}}}


def _version(value: Any) -> str:
    """The version of the file's format. A later one is refused before any key is read (`load`)."""
    found = units.scalar(value, f"{VERSION}, the only format of the file")
    if found != VERSION:
        raise ValueError(f"{units.written(value)} must be {VERSION}, the only format of the file")
    return str(found)


_INCLUDED: dict[str, Key] = {
    "buckets": Key(MapOf(BUCKET, key=addresses.name, required=("kind",)), doc="buckets by name"),
    "strategies": Key(MapOf(STRATEGY, key=addresses.name, required=("kind",)), doc="strategies by name"),
    "upstreams": Key(MapOf(UPSTREAM, key=addresses.name), doc="upstreams by name"),
}

INCLUDED = Section("included", "What an included file may contain.", _INCLUDED, more=_LEFT_ALONE)

LISTENER = section(
    "listener",
    "An address to listen on, for one app.",
    address=Key(address, required=True, doc="HOST:PORT or unix:/path"),
    app=Key(Word(addresses.app_name, ANY), required=True, doc="the name of the app that calls here"),
)

_PRIORITY = Key(one_word("high", "normal", "low"), "normal", "which calls of a queue go first")
_WEIGHT = Key(whole(1, 1000), 1, "its share beside other apps of its priority")
APP = section("app", "How the calls of an app wait beside those of others.", weight=_WEIGHT, priority=_PRIORITY)
APP_FIELD = section(
    "app_field",
    "A request field that names the app; it is never forwarded.",
    header=Key(Word(addresses.editable_header, ANY), required=True),
)
APPS = section(
    "apps",
    "The apps that this sidecar serves, by name.",
    by=Key(
        ListOf(Either(word=one_word("listener", "unix_user", "proxy_user"), mapping=APP_FIELD), "must not be empty"),
        ["listener", "unix_user", "proxy_user"],
        "what names the app of a call; the first that says something does",
    ),
    required=Key(flag, False, "requests without a name are refused, with 407 or 403"),
    known=Key(MapOf(APP, key=addresses.app_name), {}, "the apps with a share of their own, by name"),
    others=Key(APP, doc="all further names together"),
)

_FILE = section(
    "file",
    "The configuration of redrive.",
    version=Key(Word(_version, {"enum": [1, "1"]}), 1, "the file's format; there is only 1"),
    listen=Key(
        Either(
            word=address, mapping=LISTENER, list=ListOf(Either(word=address, mapping=LISTENER), "must not be empty")
        ),
        "127.0.0.1:8080",
        "HOST:PORT, unix:/path, {address, app}, or a list",
    ),
    apps=Key(APPS, doc="the apps that this sidecar serves, by name; without it, all are one"),
    admin=Key(Either(word=address_or_off, mapping=ADMIN), doc="an address, a mapping, or off"),
    probe=Key(address_or_off, "off", "livez, readyz and metrics alone"),
    workers=Key(
        Word(
            addresses.workers,
            {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MOST_WORKERS}, like("auto|[0-9]+")]},
        ),
        1,
        "processes; auto is one a core",
    ),
    include=Key(ListOf(word), [], "globs of files with upstreams, buckets, strategies"),
    unmatched=Key(one_word("forward", "deny"), doc="hosts that no upstream names: forward on loopback, else deny"),
    deny_destinations=Key(ListOf(network), [], "networks never connected to, besides the built-in ones"),
    via_proxy=Key(parent_proxy, "none", "a parent proxy for outgoing requests"),
    buffers=section(
        "buffers",
        "Replay buffers.",
        per_request=Key(size, "1MiB", "a larger body is sent only once"),
        total=Key(size, "64MiB", "for all calls together"),
    ),
    limits=section(
        "limits",
        "Limits beyond which the proxy refuses.",
        header_bytes=Key(positive_size, "64KiB"),
        headers=Key(whole(1), 256),
        connections=Key(whole(1), 10000),
        waiting=Key(whole(0), 2000, "calls that may wait for a retry, a cooldown or a rate"),
        connect_ports=Key(
            Either(word=one_word("any"), list=ListOf(whole(1, 65535))),
            doc="for CONNECT: any on loopback, else [80, 443]",
        ),
        streams=Key(whole(1), 1000, "HTTP/2: streams in flight on one connection of an app"),
        resets=Key(rate, "1000/s", "HTTP/2: frames that carry nothing, on one connection of an app"),
    ),
    pool=section(
        "pool",
        "Upstream connections.",
        idle=Key(duration, "4s", "how long an unused one is kept"),
        max_idle=Key(whole(0), 100, "how many are kept for each address"),
        max_age=Key(duration_or_off, "off", "how old a connection is that an attempt takes, less a random tenth"),
        dns_ttl=Key(duration, "30s", "how long the address of a name is kept"),
        http2_idle=Key(duration, "1m", "how long an HTTP/2 connection without streams is kept"),
    ),
    redis=section(
        "redis",
        "Where buckets with store: redis live.",
        url=Key(redis_url, "redis://localhost:6379/0", "rediss:// for TLS, redis+sentinel://, redis+cluster://"),
        prefix=Key(text, "redrive:", "the prefix of every key and channel: one for each fleet"),
        timeout=Key(positive_duration, "50ms", "the longest round trip; after it Redis counts as gone"),
        on_outage=Key(
            one_word("share", "local", "deny"),
            "share",
            "what each process may spend meanwhile: its share, a whole bucket, or nothing",
        ),
    ),
    ca=section(
        "ca",
        "The local CA for interception; redrive ca init makes it.",
        cert=Key(word, "ca/cert.pem"),
        key=Key(word, "ca/key.pem"),
    ),
    log=section(
        "log",
        "The log.",
        format=Key(one_word("auto", "json", "console"), "auto", "auto: console on a terminal"),
        level=Key(one_word("debug", "info", "warning", "error"), "info"),
    ),
    drain=Key(duration, "25s", "how long calls may take to finish after SIGTERM"),
    **{name: _INCLUDED[name] for name in ("buckets", "strategies")},
    defaults=Key(DEFAULTS, doc="an upstream policy without an address; every upstream starts from it"),
    upstreams=_INCLUDED["upstreams"],
)
_WHERE = {name: f"upstreams.NAME.{name}" for name in UPSTREAM.keys} | {
    name: f"defaults.{name}" for name in DEFAULTS.keys
}
_WHERE |= {name: f"defaults.{there}" for name, there in ELSEWHERE.items()}
#: An upstream that was written at the top has keys of an upstream, and none of the file's.
_OF_UPSTREAMS = frozenset({"url", "hosts", "prefix", "dialects", "strategy", "timeouts", "routes", "classify"})
FILE = replace(_FILE, more=_LEFT_ALONE, belongs=_WHERE, inside=(("to indent it under `upstreams:`", _OF_UPSTREAMS),))


def schema() -> dict[str, Any]:
    """The JSON Schema of the file (draft 2020-12), for editors; that of dialect packs is among its definitions."""
    named: dict[str, Any] = {}
    root = FILE.schema(named)
    PACK.schema(named)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "redrive configuration",
        **root,
        "type": ["object", "null"],
        "$defs": dict(sorted(named.items())),
    }
