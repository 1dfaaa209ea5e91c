"""The part of the file's format that makes a policy: buckets, strategies, the keys of upstreams and routes.

Rules between keys are in strategies.py, compile.py and advice.py; those between the parts of a classification rule, in
rule_section.py.
"""

from __future__ import annotations

from dataclasses import replace

from proxy.config import addresses, units
from proxy.config.rule_section import RuleSection
from proxy.config.scalars import (
    ANY,
    NOTHING_MATCHES,
    clamp,
    concurrency_word,
    delay_or_percentile,
    duration,
    duration_or_off,
    endpoint,
    failure,
    fault,
    flag,
    glob,
    grpc_status,
    header_globs,
    header_name,
    header_value,
    host_pattern,
    jitter,
    key_header,
    like,
    most_attempts,
    number,
    off_or_mapping,
    one_word,
    parent_proxy,
    percent,
    positive_duration,
    positive_number,
    positive_size,
    prefix,
    rate,
    ratio,
    refill,
    route_path,
    section,
    service,
    several,
    share,
    size,
    status,
    token,
    trimmed_glob,
    whole,
    word,
)
from proxy.config.schema_language import Anything, Either, JsonValue, Key, ListOf, MapOf, Secrets, Section, Word

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
    unit=Key(
        one_word("attempts", "tokens", "requested", "prompt", "output"),
        doc="rate: what a token is: an attempt, or one of a language model's: of all that are used, that requests ask "
        "for, of prompts, or of outputs (attempts)",
    ),
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
BACKOFF = replace(BACKOFF, short=((r"\d+(\.\d+)?(ms|s|m|h)", "base"),))

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
#: Their names for a policy's keys, and keys that stand one level deeper, with the key's path here.
ELSEWHERE = {
    **{name: f"classify.{name}" for name in ("transient", "throttling", "unsafe_methods", "rules")},
    **{name: f"pushback.{name}" for name in ("max_delay", "cooldown", "hold", "ahead")},
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

_TIMEOUTS = section(
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
TIMEOUTS = replace(_TIMEOUTS, short=((r"\d+(\.\d+)?(ms|s|m|h)", "total"),))

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

_IDEMPOTENCY_KEY = section(
    "idempotency_key",
    "A call that carries this header is idempotent.",
    header=Key(key_header, "Idempotency-Key"),
    inject=Key(flag, False, "a POST or PATCH without a key gets one"),
    form=Key(one_word("bare", "string"), "bare", 'how that key is written: string is "…", as the IETF draft has it'),
)
IDEMPOTENCY_KEY = replace(
    _IDEMPOTENCY_KEY, short=(("true|false|on|off|yes|no", "inject"), (r"[A-Za-z0-9]+(-[A-Za-z0-9]+)+", "header"))
)

PUSHBACK = section(
    "pushback",
    "What an upstream says about when to retry.",
    max_delay=Key(duration, "60s", "a longer delay ends the call with that answer"),
    cooldown=Key(one_word("wait", "reject", "off"), "wait", "what happens to the scope's other calls meanwhile"),
    hold=Key(duration, "20s", "the longest that cooldowns, limits and outages hold one call, in all"),
    ahead=Key(flag, False, "calls also wait for what answers say is left of the upstream's limits"),
    of=Key(
        one_word("auto", "endpoint", "upstream"),
        "auto",
        "whose word a pushback is: its endpoint's alone, or the whole upstream's",
    ),
    spread=Key(share, doc="no longer has an effect: held calls return by a slow start, see hold", deprecated=True),
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

_HEADER_EDIT = section(
    "header_edit",
    "Fields to set (replacing what came) and to remove.",
    set=Key(MapOf(header_value, key=addresses.editable_header, caseless=True), {}),
    remove=Key(ListOf(Word(addresses.editable_header, ANY)), []),
)
HEADER_EDIT = replace(_HEADER_EDIT, others="a field that is to be set goes under `set: {…}`")

_HEADERS = section("headers", "Changes to the headers on the way.", request=HEADER_EDIT, response=HEADER_EDIT)
HEADERS = replace(
    _HEADERS, others="a field that is to be set goes under `request: {set: {…}}`, or under `response: {set: {…}}`"
)

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
        "what the app gets of one that lacks its last event: nothing more, a reset, or the provider's error event",
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
    output=Key(
        positive_number,
        1024,
        "the output tokens to expect where the request names no maximum and no earlier outputs are known",
    ),
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
_UPSTREAM_ALONE = {"credentials": "upstreams.NAME.credentials, next to its url"} | {
    name: f"upstreams.NAME.{name}" for name in ("url", "hosts", "prefix", "services")
}

ROUTE = Section(
    "route",
    "A policy for some of an upstream's calls.",
    {"match": Key(MATCH, doc="which calls it is for, as {path: /v1/*}", required=True), **POLICY_KEYS},
    belongs=ELSEWHERE
    | _UPSTREAM_ALONE
    | {"circuit_breaker": "upstreams.NAME.circuit_breaker"}
    | {name: f"match: {{{name}: …}}" for name in ("path", "methods")},
)

_PLACELESS: dict[str, Key] = {
    "protocol": Key(
        one_word("auto", "http/1.1", "http/2"), "auto", "the protocol spoken to the upstream; auto: what the app spoke"
    ),
    "connect": Key(one_word("auto", "tunnel", "intercept", "deny"), "auto", "what happens to a CONNECT"),
    **POLICY_KEYS,
    "scope": Key(
        Either(word=one_word("host", "upstream", also="{header: NAME}"), mapping=SCOPE),
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
    short=(("https?://.*", "url"),),
)
