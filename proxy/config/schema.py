"""The file's format, key by key: what every file is held against, and what `redrive schema` writes out.

Law: one table is the check, the defaults and the JSON Schema. The keys stand in the contract's order; those of buckets,
strategies and policies are in policy_keys.py.
"""

from __future__ import annotations

from typing import Any

from proxy.config import addresses, units
from proxy.config.policy_keys import BUCKET, DEFAULTS, ELSEWHERE, RULE, STRATEGY, UPSTREAM
from proxy.config.scalars import (
    address,
    address_or_off,
    duration,
    fault,
    flag,
    glob,
    header_name,
    like,
    network,
    one_word,
    parent_proxy,
    positive_duration,
    redis_url,
    size,
    status,
    text,
    whole,
    word,
)
from proxy.config.schema_language import Either, Key, ListOf, MapOf, Section, Word

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

TIME_FORMAT = one_word("seconds", "epoch", "epoch_ms", "duration", "http_date", "rfc3339")

REPEATS = Section(
    "repeats",
    "What the provider's official client repeats by default, whatever the method (unsafe_methods: provider).",
    {
        "client": Key(word, required=True, doc="where that was read: the client, its version and file"),
        "status": Key(ListOf(status)),
        "idempotent": Key(ListOf(status), "statuses that it repeats for idempotent methods alone"),
        "faults": Key(ListOf(fault)),
        "transient_codes": Key(flag, False, "what this pack's own rules class transient"),
        "should_retry": Key(flag, False, "any failure with x-should-retry: true"),
        "retry_after": Key(flag, False, "any failure with Retry-After"),
        "header": Key(MapOf(glob), doc="only requests with these fields are its own"),
        "keyed": Key(flag, False, "only requests with the idempotency key, or of an idempotent method"),
        "alone": Key(flag, False, "only where amz-sdk-request does not say that it retries by itself"),
        "within": Key(duration, doc="only so long after the first attempt"),
    },
)

PACK = Section(
    "pack",
    "A provider's way of speaking.",
    {
        "name": Key(word, required=True),
        "source": Key(ListOf(word), required=True, doc="the provider's documentation"),
        "stop_field": Key(header_name, doc="what its SDKs read in the place of x-should-retry"),
        "grpc": Key(flag, False, "gRPC's reading of HTTP codes and faults on application/grpc calls"),
        "rules": Key(ListOf(RULE), [], "the first match wins"),
        "codes": Key(CODES),
        "delays": Key(
            ListOf(
                Section(
                    "delay",
                    "A delay in the JSON body of a failure.",
                    {
                        "json": Key(word, required=True, doc="its dotted path"),
                        "format": Key(TIME_FORMAT, required=True),
                    },
                )
            ),
            [],
        ),
        "repeats": Key(REPEATS),
        "resets": Key(
            ListOf(
                Section(
                    "reset",
                    "A field that says when a quota is whole again.",
                    {
                        "field": Key(header_name, required=True),
                        "format": Key(TIME_FORMAT, "seconds", required=True),
                        "remaining": Key(header_name, doc="read only where this field is 0"),
                        "limit": Key(MapOf(glob), doc="dotted.path: glob; or where a 429's body names the limit so"),
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

#: What a top-level key begins with that is the user's own, for anchors say, as in a compose file: it is left alone.
EXTENSION = "x-"
_LEFT_ALONE: dict[str, Any] = {"patternProperties": {f"^{EXTENSION}": {}}}

_INCLUDED: dict[str, Key] = {
    "buckets": Key(MapOf(BUCKET, key=addresses.name), doc="buckets by name"),
    "strategies": Key(MapOf(STRATEGY, key=addresses.name), doc="strategies by name"),
    "upstreams": Key(MapOf(UPSTREAM, key=addresses.name), doc="upstreams by name"),
}

INCLUDED = Section("included", "What an included file may hold.", _INCLUDED, more=_LEFT_ALONE)

FILE = Section(
    "file",
    "The configuration of redrive.",
    {
        "version": Key(Word(units.one_of("1"), {"enum": [1, "1"]}), 1),
        "listen": Key(Either(word=address, list=ListOf(address)), "127.0.0.1:8080", "HOST:PORT, unix:/path, or a list"),
        "admin": Key(Either(word=address_or_off, mapping=ADMIN), doc="an address, a mapping, or off"),
        "probe": Key(address_or_off, "off", "livez, readyz and metrics alone"),
        "workers": Key(
            Word(addresses.workers, {"anyOf": [{"type": "integer", "minimum": 1}, like("auto|[0-9]+")]}),
            1,
            "processes; auto is one a core",
        ),
        "include": Key(ListOf(word), [], "globs of files with upstreams, buckets, strategies"),
        "unmatched": Key(one_word("forward", "deny"), doc="hosts no upstream names: forward on loopback, else deny"),
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
                    "headers": Key(whole(1), 256),
                    "connections": Key(whole(1), 10000),
                    "waiting": Key(whole(0), 2000, "calls that wait for a retry, a cooldown or a rate"),
                    "connect_ports": Key(
                        Either(word=one_word("any"), list=ListOf(whole(1, 65535))),
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
                    "max_idle": Key(whole(0), 100, "how many, for each place"),
                    "dns_ttl": Key(duration, "30s", "after which a name is looked up again"),
                },
            )
        ),
        "redis": Key(
            Section(
                "redis",
                "Where buckets with store: redis live.",
                {
                    "url": Key(
                        redis_url, "redis://localhost:6379/0", "rediss:// for TLS, redis+sentinel://, redis+cluster://"
                    ),
                    "prefix": Key(text, "redrive:", "what every key and channel begins with: one for each fleet"),
                    "timeout": Key(positive_duration, "50ms", "the longest round trip; after it Redis counts as gone"),
                    "on_outage": Key(one_word("local", "deny"), "local", "meanwhile: an own bucket, or no tokens"),
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
                    "format": Key(one_word("auto", "json", "console"), "auto", "auto: console on a terminal"),
                    "level": Key(one_word("debug", "info", "warning", "error"), "info"),
                },
            )
        ),
        "drain": Key(duration, "25s", "how long calls get after SIGTERM"),
        **{name: _INCLUDED[name] for name in ("buckets", "strategies")},
        "defaults": Key(DEFAULTS, doc="an upstream policy without a place; every upstream starts from it"),
        "upstreams": _INCLUDED["upstreams"],
    },
    more=_LEFT_ALONE,
    belongs={name: "upstreams.NAME." + name for name in UPSTREAM.keys}
    | {name: "defaults." + name for name in DEFAULTS.keys}
    | {name: f"defaults.{there}" for name, there in ELSEWHERE.items()},
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
