"""The file's format, key by key: the table that every file is checked against, and that `redrive schema` prints.

One table is the check, the defaults and the JSON Schema. Each key has one reader, one default, written as a user would
write it, and one line for the editor's help; the keys are in the contract's order. Here are the keys of the whole file;
those of a policy are in policy_schema.py, those of a dialect pack in pack_schema.py, and the scalars in scalars.py.
Rules between keys (a kind's own keys, references, overlaps) are in strategies.py, compile.py and advice.py; those
between the parts of a classification rule, in rule_section.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from proxy.config import addresses, units
from proxy.config.pack_schema import PACK
from proxy.config.policy_schema import BUCKET, DEFAULTS, ELSEWHERE, STRATEGY, UPSTREAM
from proxy.config.scalars import (
    ANY,
    address,
    address_or_off,
    admin_name,
    admin_token,
    duration,
    duration_or_off,
    flag,
    like,
    network,
    one_word,
    parent_proxy,
    positive_duration,
    positive_size,
    rate,
    redis_url,
    section,
    size,
    text,
    whole,
    word,
)
from proxy.config.schema_language import Either, Key, ListOf, MapOf, Section, Word
from proxy.config.settings import MOST_WORKERS

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
_APP = section("app", "How the calls of an app wait beside those of others.", weight=_WEIGHT, priority=_PRIORITY)
APP = replace(_APP, short=(("high|normal|low", "priority"), ("[0-9]+", "weight")))
APP_FIELD = section(
    "app_field",
    "A request field that names the app; it is never forwarded.",
    header=Key(Word(addresses.editable_header, ANY), required=True),
)
APPS = section(
    "apps",
    "The apps that this sidecar serves, by name.",
    by=Key(
        ListOf(
            Either(word=one_word("listener", "unix_user", "proxy_user", also="{header: NAME}"), mapping=APP_FIELD),
            "must not be empty",
        ),
        ["listener", "unix_user", "proxy_user"],
        "how the app of a call is known; the first way that gives a name decides",
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
        max_age=Key(
            duration_or_off,
            "off",
            "the greatest age of a connection that an attempt may take, less up to a tenth at random",
        ),
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
    log=replace(
        section(
            "log",
            "The log.",
            format=Key(one_word("auto", "json", "console"), "auto", "auto: console on a terminal"),
            level=Key(one_word("debug", "info", "warning", "error"), "info"),
        ),
        short=(("debug|info|warning|error", "level"), ("auto|json|console", "format")),
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
#: Keys of an upstream that are none of the file's: at the top they show that an upstream was not indented.
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
