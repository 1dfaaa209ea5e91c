"""The file's format, key by key: what every file is held against, and what `redrive schema` writes out.

Law: each key has one reader, one default, spelled as a user would spell it, and one line for the editor's help. The
keys stand in the contract's order. What one key's value means for another (a kind's own keys, references, overlaps) is
compile.py's and advice.py's to say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proxy.config import places, units
from proxy.config.form import Anything, Either, Key, ListOf, MapOf, Section, Word

_ENV = r".*\$\{.+\}.*"  # any scalar may come from the environment


def _like(expression: str, *types: str) -> dict[str, Any]:
    return {"type": [*types, "string"] if types else "string", "pattern": f"^({expression}|{_ENV})$"}


def _words(*words: str) -> Word:
    also: list[dict[str, Any]] = [{"const": False}] if "off" in words else []
    return Word(units.one_of(*words), {"anyOf": [{"enum": list(words)}, *also, _like(_ENV)]})


def _whole(least: int, most: int = 2**31) -> Word:
    return Word(units.whole(least, most), {"anyOf": [{"type": "integer", "minimum": least}, _like("[0-9]+")]})


def _number(reader: Callable[[Any], float]) -> Word:
    return Word(reader, {"anyOf": [{"type": "number", "minimum": 0}, _like(r"[0-9.]+([eE][-+]?[0-9]+)?")]})


_LONG = r"[0-9]+(\.[0-9]+)?(ms|s|m|h)|0"
_LONG_OR_OFF = {"anyOf": [_like(f"{_LONG}|off"), {"const": False}, {"const": 0}]}
_ANY = {"type": ["string", "number", "boolean"]}
_TEXT = {"type": "string"}

duration = Word(units.duration, {"anyOf": [_like(_LONG), {"const": 0}]})
positive_duration = Word(units.positive_duration, _like(_LONG))
duration_or_off = Word(units.duration_or_off, _LONG_OR_OFF)
clamp = Word(units.clamp, _LONG_OR_OFF)
size = Word(units.size, {"anyOf": [_like(r"[0-9]+(\.[0-9]+)?(B|KiB|MiB|GiB)|0"), {"const": 0}]})
rate = Word(units.rate, _like(r"[0-9]+(\.[0-9]+)?/(s|m|h)"))
percent = Word(units.percent, _like(r"[0-9]+(\.[0-9]+)? ?%?", "number"))
share = Word(units.share, _like(r"[0-9]+(\.[0-9]+)? ?%?", "number"))
number = _number(units.number)
positive_number = _number(units.positive_number)
flag = Word(units.flag, {"anyOf": [{"type": "boolean"}, {"enum": ["yes", "no", "on", "off"]}, _like(_ENV)]})
word = Word(units.word, _ANY)
text = Word(units.text, _ANY)
glob = Word(units.text, _ANY)
header_value = Word(places.header_value, _ANY)
header_name = Word(places.header_name, _TEXT)
token = Word(places.token, _TEXT)
address = Word(places.address, _TEXT)
address_or_off = Word(places.address_or_off, {"anyOf": [_TEXT, {"const": False}]})
parent_proxy = Word(places.parent_proxy, _like("none|http://.+"))
network = Word(places.network, _TEXT)
failure = Word(places.failure, {"type": ["integer", "string"]})
status = Word(places.status, {"type": ["integer", "string"]})
grpc_status = Word(places.grpc_status, _TEXT)
fault = Word(places.fault, _TEXT)
words = Either(word=word, list=ListOf(word))
jitter = _words("none", "full", "equal", "proportional", "decorrelated")
header_globs = MapOf(glob, key=places.header_name)

# -- buckets and strategies --------------------------------------------------------------------------------------------

BUCKET = Section(
    "bucket",
    "A store of retry tokens. Which keys there are depends on its kind.",
    {
        "kind": Key(_words("quota", "throttle", "budget", "rate"), doc="without it, merged into the inherited bucket"),
        "capacity": Key(positive_number, doc="quota: the tokens it holds (500)"),
        "retry_cost": Key(number, doc="quota: what a retry pays (5)"),
        "timeout_cost": Key(number, doc="quota: what a retry after a timeout pays (retry_cost)"),
        "throttling_cost": Key(number, doc="quota: what a retry after a throttling error pays (retry_cost)"),
        "success_refund": Key(number, doc="quota: what a first attempt's success gives back (1)"),
        "refund": Key(_words("last", "flat"), doc="quota: flat gives success_refund on every success instead"),
        "max_tokens": Key(positive_number, doc="throttle: the tokens it holds; retries only above half of them (10)"),
        "token_ratio": Key(positive_number, doc="throttle: what a success gives (0.1)"),
        "percent": Key(percent, doc="budget: retries per calls of the window (20)"),
        "min_per_second": Key(number, doc="budget: retries a second that are granted in any case (10)"),
        "window": Key(positive_duration, doc="budget: how far back calls and retries are counted (10s)"),
        "rate": Key(rate, doc="rate: attempts a second, as 100/s"),
        "burst": Key(positive_number, doc="rate: the most attempts at once (one second's worth)"),
        "when_empty": Key(_words("wait", "reject"), doc="rate: what a call meets when there is no token (wait)"),
        "initial": Key(number, doc="quota, throttle, rate: the tokens at the start (full)"),
        "store": Key(_words("memory", "redis"), doc="redis shares it between machines (memory)"),
    },
)

BACKOFF = Section(
    "backoff",
    "cap(n) = min(max, base * multiplier^(n-1)); the jitter draws from it.",
    {
        "base": Key(duration, doc="the first cap"),
        "throttling_base": Key(duration, doc="in place of base after a throttling error"),
        "max": Key(duration, doc="the highest cap"),
        "multiplier": Key(number, doc="from one cap to the next"),
        "jitter": Key(jitter, doc="which part of the cap is drawn"),
    },
)

STRATEGY = Section(
    "strategy",
    "How a call is retried. Which keys there are depends on its kind; a module:Class takes any.",
    {
        "kind": Key(
            Word(
                units.word,
                _like("standard|standard-2026|legacy|adaptive|smithy|grpc|hedging|none|[A-Za-z_][\\w.]*:[A-Za-z_]\\w*"),
            ),
            doc="a built-in kind or module:Class; without it, merged into the inherited strategy",
        ),
        "max_attempts": Key(_whole(1), doc="sendings, the first one included"),
        "backoff": Key(BACKOFF, doc="a partial one keeps the kind's other values"),
        "pushback_clamp": Key(clamp, doc="standard-2026: a pushback is clamped to [d(n), d(n) + this] (5s)"),
        "delay_first": Key(flag, doc="adaptive: whether the limiter delays first attempts too (true)"),
        "initial_backoff": Key(duration, doc="grpc: backoff.base"),
        "max_backoff": Key(duration, doc="grpc: backoff.max"),
        "multiplier": Key(number, doc="grpc: backoff.multiplier"),
        "jitter": Key(jitter, doc="grpc: backoff.jitter"),
        "hedging_delay": Key(duration, doc="hedging: from one hedge to the next (500ms)"),
        "non_fatal": Key(ListOf(failure), doc="hedging: the failures to go on from"),
    },
    open=True,
)

# -- a policy ----------------------------------------------------------------------------------------------------------

TIMEOUTS = Section(
    "timeouts",
    "What bounds a call; off works for each but connect.",
    {
        "connect": Key(positive_duration, "5s", "from the look-up of the name to the end of the TLS handshake"),
        "attempt": Key(duration_or_off, "off", "from the last byte of the request body to the final response head"),
        "total": Key(duration_or_off, "15m", "all attempts and waits, up to the first byte that is handed on"),
        "idle": Key(duration_or_off, "15m", "the longest silence of a body, a stream or a tunnel"),
    },
)

RULE = Section(
    "rule",
    "Every part is optional, all given must match; values are globs, * means present.",
    {
        "status": Key(Either(word=status, list=ListOf(status)), doc="an HTTP status, 5xx, 520-527, or a list"),
        "grpc_status": Key(Either(word=grpc_status, list=ListOf(grpc_status)), doc="a gRPC status name, or a list"),
        "fail": Key(
            Either(word=fault, list=ListOf(fault)),
            doc="a fault kind: reset, connect_failure, …, or a list",
        ),
        "header": Key(header_globs, doc="name: glob"),
        "json": Key(MapOf(glob), doc="dotted.path: glob; the body is peeked at"),
        "xml": Key(MapOf(glob), doc="element: glob; the body is peeked at"),
        "as": Key(_words("transient", "throttling", "timeout", "success", "fatal"), required=True),
    },
)

CLASSIFY = Section(
    "classify",
    "HTTP statuses, 5xx, 520-527, gRPC statuses, fault kinds; throttling beats timeout, timeout beats transient.",
    {
        "transient": Key(ListOf(failure), ["connect_failure", "refused_stream", "reset", 425, 500, 502, 503]),
        "throttling": Key(ListOf(failure), [429]),
        "timeout": Key(ListOf(failure), ["attempt_timeout", 408, 504]),
        "unsafe_methods": Key(
            _words("never", "unprocessed", "always"), "unprocessed", "when methods that are not idempotent are retried"
        ),
        "rules": Key(ListOf(RULE), [], "the first match wins, ahead of dialects and lists"),
    },
)

IDEMPOTENCY_KEY = Section(
    "idempotency_key",
    "A call that carries this header is idempotent.",
    {
        "header": Key(header_name, "Idempotency-Key"),
        "inject": Key(flag, False, "a POST or PATCH without a key gets one"),
    },
)

PUSHBACK = Section(
    "pushback",
    "An upstream's word on when to retry.",
    {
        "max_delay": Key(duration, "60s", "a longer delay ends the call with that answer"),
        "cooldown": Key(_words("wait", "reject", "off"), "wait", "what the scope's other calls meet meanwhile"),
        "spread": Key(share, "10%", "of the delay, over which waiting calls are let go"),
    },
)

HEADER_EDIT = Section(
    "header_edit",
    "Fields set (in place of what came) and taken out.",
    {
        "set": Key(MapOf(header_value, key=places.editable_header), {}),
        "remove": Key(ListOf(Word(places.editable_header, _TEXT)), []),
    },
)

HEADERS = Section(
    "headers",
    "What is changed on the way.",
    {"request": Key(HEADER_EDIT), "response": Key(HEADER_EDIT)},
)

CLIENT_CERT = Section(
    "client_cert",
    "PEM files, for upstreams that ask for a client certificate.",
    {"cert": Key(word, doc="the certificate's file"), "key": Key(word, doc="the private key's file")},
)

SCOPE = Section("scope", "State is kept for each value of a header.", {"header": Key(header_name, required=True)})

_POLICY: dict[str, Key] = {
    "verify": Key(word, True, "upstream TLS: true, false, or a CA file"),
    "client_cert": Key(CLIENT_CERT),
    "via_proxy": Key(parent_proxy, doc="a parent proxy, http://host:port, or none"),
    "strategy": Key(Either(word=word, mapping=STRATEGY), "standard", "a name, a built-in kind, or a mapping"),
    "bucket": Key(
        Either(word=word, mapping=BUCKET), doc="a name, a mapping, or off; without the key the strategy's own"
    ),
    "rate": Key(
        Either(word=word, mapping=BUCKET), doc="a bucket of kind rate, paid by every attempt, first ones too, or off"
    ),
    "timeouts": Key(TIMEOUTS),
    "classify": Key(CLASSIFY),
    "dialects": Key(ListOf(word), ["http"], "http, aws, grpc, github, openai, azure, stripe, or a pack's file.yaml"),
    "attempt_headers": Key(ListOf(_words("grpc", "aws", "envoy")), [], "further dialects of the attempt count"),
    "idempotency_key": Key(IDEMPOTENCY_KEY),
    "pushback": Key(PUSHBACK),
    "mode": Key(_words("enforce", "observe", "off"), "enforce"),
    "headers": Key(HEADERS),
    "service_config": Key(
        Either(word=word, mapping=Anything()), doc="a gRPC service config, file or mapping, for strategy and bucket"
    ),
}

MATCH = Section(
    "match",
    "What a route asks of a call; all given must hold.",
    {
        "methods": Key(ListOf(token), doc="GET, POST, …"),
        "path": Key(word, doc="* within a segment, ** across; percent-decoded"),
        "headers": Key(header_globs, doc="name: glob; * means present"),
    },
)

ROUTE = Section("route", "A policy for some of an upstream's calls.", {"match": Key(MATCH, required=True), **_POLICY})

_PLACELESS: dict[str, Key] = {
    "connect": Key(_words("auto", "tunnel", "intercept", "deny"), "auto", "what becomes of a CONNECT"),
    **_POLICY,
    "scope": Key(
        Either(word=_words("host", "upstream"), mapping=SCOPE),
        "host",
        "what the own bucket, limiter and cooldown are kept by: host, upstream, {header: NAME}",
    ),
    "routes": Key(ListOf(ROUTE), [], "the first match wins"),
}

DEFAULTS = Section("defaults", "An upstream policy without a place; every upstream starts from it.", _PLACELESS)

UPSTREAM = Section(
    "upstream",
    "A named destination with one policy.",
    {
        "url": Key(words, doc="one url or a list of endpoints; without it, where the request said"),
        "hosts": Key(words, doc="its hosts, * within; without a port any; the hosts of url by default"),
        "prefix": Key(word, doc="for reverse use: /NAME by default, or off"),
        **_PLACELESS,
    },
)

# -- a dialect pack ----------------------------------------------------------------------------------------------------

CODES = Section(
    "codes",
    "Error codes by class, wherever the provider writes them: one rule for each code and place.",
    {
        "status": Key(Either(word=status, list=ListOf(status)), "400-599"),
        "header": Key(ListOf(header_name), [], "header fields that hold a code"),
        "json": Key(ListOf(word), [], "dotted paths in a JSON body"),
        "xml": Key(ListOf(word), [], "elements of an XML body"),
        "spelled": Key(ListOf(word), ["{}"], "how a place may spell a code, {} standing for it; * is any text"),
        **{name: Key(ListOf(word), []) for name in ("throttling", "timeout", "transient", "fatal")},
    },
)

PACK = Section(
    "pack",
    "A provider's way of speaking.",
    {
        "name": Key(word, required=True),
        "source": Key(ListOf(word), required=True, doc="the provider's documentation"),
        "grpc": Key(flag, False, "gRPC's reading of HTTP codes and faults on application/grpc calls"),
        "rules": Key(ListOf(RULE), [], "the first match wins"),
        "codes": Key(CODES),
        "resets": Key(
            ListOf(
                Section(
                    "reset",
                    "A field that says when a quota is whole again.",
                    {
                        "field": Key(header_name, required=True),
                        "format": Key(
                            _words("seconds", "epoch", "epoch_ms", "duration", "http_date"), "seconds", required=True
                        ),
                        "remaining": Key(header_name, doc="read only where this field is 0"),
                    },
                )
            ),
            [],
        ),
    },
)

# -- the whole file ----------------------------------------------------------------------------------------------------

ADMIN = Section(
    "admin",
    "The admin listener; off loopback a token is required.",
    {
        "listen": Key(address, "127.0.0.1:9901"),
        "token": Key(text, "", "asked for as Authorization: Bearer"),
        "hosts": Key(ListOf(word), [], "names it answers to, besides addresses and localhost"),
    },
)

_INCLUDED: dict[str, Key] = {
    "buckets": Key(MapOf(BUCKET, key=places.name), doc="buckets by name"),
    "strategies": Key(MapOf(STRATEGY, key=places.name), doc="strategies by name"),
    "upstreams": Key(MapOf(UPSTREAM, key=places.name), doc="upstreams by name"),
}

INCLUDED = Section("included", "What an included file may hold.", _INCLUDED)

FILE = Section(
    "file",
    "The configuration of redrive.",
    {
        "version": Key(Word(units.one_of("1"), {"enum": [1, "1"]}), 1),
        "listen": Key(Either(word=address, list=ListOf(address)), "127.0.0.1:8080", "HOST:PORT, unix:/path, or a list"),
        "admin": Key(Either(word=address_or_off, mapping=ADMIN), doc="an address, a mapping, or off"),
        "probe": Key(address_or_off, "off", "livez, readyz and metrics alone"),
        "workers": Key(
            Word(places.workers, {"anyOf": [{"type": "integer", "minimum": 1}, _like("auto|[0-9]+")]}),
            1,
            "processes; auto is one a core",
        ),
        "include": Key(ListOf(word), [], "globs of files with upstreams, buckets, strategies"),
        "unmatched": Key(_words("forward", "deny"), doc="hosts no upstream names: forward on loopback, else deny"),
        "deny_destinations": Key(ListOf(network), [], "networks never connected to, besides the built-in ones"),
        "via_proxy": Key(parent_proxy, "none", "a parent proxy for what is sent"),
        "buffers": Key(
            Section(
                "buffers",
                "Replay buffers.",
                {
                    "per_request": Key(size, "1MiB", "a body beyond it is sent once"),
                    "total": Key(size, "64MiB", "for all calls together"),
                },
            )
        ),
        "limits": Key(
            Section(
                "limits",
                "Where the proxy says no.",
                {
                    "header_bytes": Key(size, "64KiB"),
                    "headers": Key(_whole(1), 256),
                    "connections": Key(_whole(1), 10000),
                    "waiting": Key(_whole(0), 2000, "calls that wait for a retry, a cooldown or a rate"),
                    "connect_ports": Key(
                        Either(word=_words("any"), list=ListOf(_whole(1, 65535))),
                        doc="for CONNECT: any on loopback, else [80, 443]",
                    ),
                },
            )
        ),
        "pool": Key(
            Section(
                "pool",
                "Upstream connections.",
                {
                    "idle": Key(duration, "4s", "how long an unused one is kept"),
                    "max_idle": Key(_whole(0), 100, "how many, for each place"),
                    "dns_ttl": Key(duration, "30s", "after which a name is looked up again"),
                },
            )
        ),
        "redis": Key(
            Section(
                "redis",
                "Where buckets with store: redis live.",
                {
                    "url": Key(word, "redis://localhost:6379/0"),
                    "prefix": Key(text, "redrive:"),
                    "timeout": Key(positive_duration, "50ms"),
                    "on_outage": Key(_words("local", "deny"), "local"),
                },
            )
        ),
        "ca": Key(
            Section(
                "ca",
                "The local CA for interception; redrive ca init makes it.",
                {"cert": Key(word, "ca/cert.pem"), "key": Key(word, "ca/key.pem")},
            )
        ),
        "log": Key(
            Section(
                "log",
                "The log.",
                {
                    "format": Key(_words("json", "console"), "json"),
                    "level": Key(_words("debug", "info", "warning", "error"), "info"),
                },
            )
        ),
        "drain": Key(duration, "25s", "how long calls get after SIGTERM"),
        **{name: _INCLUDED[name] for name in ("buckets", "strategies")},
        "defaults": Key(DEFAULTS, doc="an upstream policy without a place; every upstream starts from it"),
        "upstreams": _INCLUDED["upstreams"],
    },
)


def schema() -> dict[str, Any]:
    """The JSON Schema of the file (draft 2020-12), for editors; that of dialect packs is among its definitions."""
    named: dict[str, Any] = {}
    root = FILE.schema(named)
    PACK.schema(named)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "redrive configuration",
        **root,
        "$defs": dict(sorted(named.items())),
    }
