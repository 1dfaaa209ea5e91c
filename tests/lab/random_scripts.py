"""Scripts for plays of whole calls (`random_play`): what is drawn from a seed, and how it is made small.

A script has a configuration of two upstreams, what each of them does when, calls, and events of the process. Scripts
take turns among `THEMES`, in each of which one kind of gate holds most of the calls.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from proxy.lab.simulate.reports import REPORTS

#: Seconds within which all calls of a script come.
BEGINS = 30.0


@dataclass(frozen=True)
class Weather:
    """What an upstream does from `at` on. `kind`: see `fate`. `seconds`: how long that takes. `delay`: the seconds that
    a refusal names, None for none. `only`: the app's key, or the endpoint, that it concerns alone; "" for all.
    """

    at: float
    kind: str
    seconds: float = 0.1
    delay: float | None = None
    only: str = ""


@dataclass(frozen=True)
class Limit:
    """The limit that an upstream counts for each key: `most` in each `window` seconds, in the way of `kind`, reported
    as `reports` says.
    """

    kind: Any
    most: int
    window: float
    reports: Any
    named: bool


@dataclass(frozen=True)
class Asked:
    """A call of an app. `gone`, `cut`: the seconds after which the app leaves, or the process ends the call."""

    at: float
    upstream: str = "a"
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    size: int = 0
    gone: float | None = None
    cut: float | None = None
    path: str = "/x"

    @property
    def key(self) -> str:
        return dict(self.headers).get("authorization", "")


@dataclass(frozen=True)
class Event:
    """What befalls the process at `at`: "reload" (to the second configuration), "wall" (the wall clock steps by
    `by` seconds), "stall" (it stands still for so long), "swap" (the key file has another value), "end".
    """

    at: float
    kind: str
    by: float = 0.0


@dataclass(frozen=True)
class Script:
    """All that a play needs. `config`, `after`: the configuration, and the one that a reload brings. `apart`: calls
    with the key `mine` are refused nothing.
    """

    seed: int
    config: dict[str, Any]
    after: dict[str, Any]
    weather: dict[str, tuple[Weather, ...]]
    limits: dict[str, Limit]
    calls: tuple[Asked, ...]
    events: tuple[Event, ...] = ()
    apart: bool = False


MINE, OTHERS = "Bearer mine", "Bearer other"
#: What a script is about, by its seed; and what its upstreams do beside answering well.
THEMES = ("any", "ahead", "outage", "limit", "gates", "cooldown", "payments", "apart")
BAD = {
    "any": (
        *(
            "refused",
            "refused",
            "unavailable",
            "connect",
            "reset",
            "silent",
            "stream",
            "cut",
            "failed",
            "chance",
            "busy",
        ),
        *("unauthorized", "fatal"),
    ),
    "ahead": ("well", "well", "well", "refused", "unavailable", "chance"),
    "gates": ("well", "well", "busy", "busy", "refused", "unavailable", "connect"),
    "outage": ("connect", "connect", "reset", "silent", "failed", "unavailable"),
    "limit": ("busy", "busy", "busy", "unavailable", "chance", "reset"),
    "cooldown": ("refused", "refused", "unavailable", "chance", "connect"),
}


@cache
def key_file() -> str:
    """A file with a credential; what it holds later is in the play."""
    path = Path(tempfile.mkdtemp()) / "key"
    path.write_text("first")
    return str(path)


def drawn(seed: int) -> Script:
    """The script of this seed. Seven of eight have a theme, in which one kind of gate holds most of the calls."""
    chance, theme = random.Random(seed), THEMES[seed % len(THEMES)]
    if theme == "apart":
        return _apart(seed, chance)
    if theme == "payments":
        return _paying(drawn(seed - THEMES.index(theme)), seed, chance)
    config = _config(chance)
    _set(config, theme, chance)
    after = config
    if chance.random() < 0.4:
        after = _config(chance, config)
        _set(after, theme, chance)
    count = chance.choice([1, 2, 3, 5, 8, 13, 30] if theme == "any" else [8, 20, 40, 80])
    began, calls = 0.0, []
    spread = chance.choice([0.0, 0.01, 0.1, 0.3, 1.0] if theme not in ("ahead", "gates") else [0.05, 0.2, 0.5])
    for _ in range(count):
        began += chance.expovariate(1 / spread) if spread else 0.0
        calls.append(_asked(chance, min(began, BEGINS), plain=theme != "any"))
    events = []
    for kind, share in (("reload", 0.2), ("wall", 0.1), ("stall", 0.15), ("swap", 0.3), ("end", 0.1)):
        if chance.random() < share:
            by = chance.choice([-3600.0, 3600.0, 30.0]) if kind == "wall" else chance.choice([0.2, 3.0, 40.0])
            events.append(Event(chance.uniform(0, 10), kind, by))
    takes = [0.0, 0.001, 0.05, 0.05, 0.3, 1.0] if theme in ("ahead", "gates") else [0.0, 0.001, 0.05, 0.3, 1.0, 3.0]
    weather = {name: _weather(chance, BAD[theme], takes) for name in ("a", "b")}
    share = 1.0 if theme in ("ahead", "gates") else 0.4
    limits = {name: _limit(chance) for name in ("a", "b") if chance.random() < share}
    return Script(seed, config, after, weather, limits, tuple(calls), tuple(events))


def _set(config: dict[str, Any], theme: str, chance: random.Random) -> None:
    """Change a configuration so that it lets the gate of the theme hold calls."""
    if theme != "any" and chance.random() < 0.8:
        config["limits"]["waiting"] = 2000
    for upstream in config["upstreams"].values():
        if theme == "any" or chance.random() < 0.1:
            continue
        upstream["mode"] = "enforce"
        for key, share in (("circuit_breaker", 0.8), ("rate", 0.5), ("concurrency", 0.3), ("credentials", 0.3)):
            if chance.random() < share:
                upstream.pop(key, None)
        upstream["pushback"] |= {"hold": chance.choice(["3s", "20s", "20s"]), "cooldown": "wait"}
        if chance.random() < 0.7:
            upstream["timeouts"] |= {"total": "15m"}
        if theme in ("ahead", "gates"):
            upstream["pushback"] |= {"ahead": "on", "hold": chance.choice(["20s", "60s"]), "max_delay": "60s"}
            upstream["dialects"] = ["http"]
            if chance.random() < 0.7:
                upstream["strategy"] = {"kind": "standard"}
        if theme == "gates":
            upstream["concurrency"] = "auto"
            upstream["routes"] = [_route(chance)]
            if chance.random() < 0.7:
                upstream["routes"][0] |= {"concurrency": "off"}
        elif theme == "outage":
            upstream |= {"outage": "hold", "concurrency": "auto"}
        elif theme == "cooldown" and chance.random() < 0.5:
            upstream["concurrency"] = {
                "max": chance.choice([1, 2, 4]),
                "queue": 50,
                "wait": chance.choice(["1s", "20s"]),
            }
        elif theme == "limit":
            upstream["concurrency"] = "auto"


def _paying(script: Script, seed: int, chance: random.Random) -> Script:
    """Return the script with a quota that all calls pay from, and with more hedges, fallbacks, key files, own retries
    of apps, and ends that come early. It has no reload, so that what was paid can be counted.
    """
    config = script.config
    quota = {"kind": "quota", "capacity": 100_000, "initial": 50_000, "retry_cost": 5, "timeout_cost": 10}
    config.setdefault("buckets", {})["own"] = quota
    for upstream in config["upstreams"].values():
        upstream["bucket"] = "own"
        if chance.random() < 0.4:
            hedging = {"kind": "hedging", "max_attempts": chance.choice([2, 3, 5])}
            upstream["strategy"] = {**hedging, "hedging_delay": chance.choice(["0s", "50ms", "500ms"])}
        if "credentials" in upstream and chance.random() < 0.5:
            upstream["credentials"]["values"] = [{"file": key_file()}]
    if chance.random() < 0.6:
        config["upstreams"]["a"]["fallback"] = ["b"]
    calls = []
    for call in script.calls:
        if chance.random() < 0.3:
            call = replace(call, gone=chance.choice([0.0, 0.05, 0.1, 0.3, 1.0, 4.0]))
        if chance.random() < 0.1:
            call = replace(call, cut=chance.choice([0.0, 0.05, 0.3, 1.0, 3.0]))
        if chance.random() < 0.15:
            call = replace(call, headers=(*call.headers, ("x-stainless-retry-count", "1")))
        calls.append(call)
    events = tuple(each for each in script.events if each.kind != "reload")
    return replace(script, seed=seed, after=config, calls=tuple(calls), events=events)


def _apart(seed: int, chance: random.Random) -> Script:
    """A script in which one key is refused, or its limit is reported to be used up, and another is served all the
    time, but for one delay that a 503 names to all.
    """
    upstream: dict[str, Any] = {
        "url": "http://a.test",
        "dialects": ["http", "openai"],
        "scope": chance.choice(["host", "upstream"]),
        "pushback": {"ahead": chance.choice(["on", "on", "on", "off"]), "hold": "60s"},
        "concurrency": chance.choice(["auto", "off"]),
        "timeouts": {"total": "15m"},
        "bucket": "off",
    }
    weather = [Weather(0.0, "well", chance.choice([0.02, 0.05, 0.2]))]
    for _ in range(chance.randint(1, 3)):
        kind = chance.choice(["refused", "refused", "chance"])
        delay = chance.choice([None, 0.5, 1.0, 5.0, 20.0, 50.0])
        weather.append(Weather(chance.uniform(0, 5), kind, chance.choice([0.02, 0.2]), delay, OTHERS))
    if chance.random() < 0.7:
        weather.append(Weather(chance.uniform(0, 5), "once", 0.05, chance.choice([1.0, 5.0, 15.0])))
    limits = {}
    if chance.random() < 0.8:
        window = chance.choice([1.0, 10.0, 30.0, 30.0])
        limits["a"] = replace(_limit(chance), most=chance.choice([1, 3, 10]), window=window)
    calls, began, rate = [], 0.0, chance.choice([1, 3, 5, 20])
    for _ in range(chance.choice([3, 8, 20, 40])):
        began += chance.expovariate(rate)
        calls.append(Asked(min(began, BEGINS), headers=(("authorization", chance.choice([MINE, OTHERS, OTHERS])),)))
    config = {"upstreams": {"a": upstream}}
    ordered = tuple(sorted(weather, key=lambda each: each.at))
    return Script(seed, config, config, {"a": ordered}, limits, tuple(calls), apart=True)


def _config(chance: random.Random, like: dict[str, Any] | None = None) -> dict[str, Any]:
    """A configuration; the shape of its upstreams is that of `like`, if there is one."""
    some = chance.random
    config: dict[str, Any] = {"limits": {"waiting": chance.choice([0, 1, 2, 4, 2000, 2000, 2000])}}
    if like is not None and "apps" in like:
        config["apps"] = like["apps"]
    elif like is None and some() < 0.4:
        config["apps"] = {
            "by": [{"header": "X-App"}],
            "known": {"web": {"weight": 4, "priority": "high"}, "batch": {"weight": 1, "priority": "low"}, "mid": {}},
        }
    if some() < 0.3:
        config["buffers"] = {"per_request": "1KiB", "total": chance.choice(["1KiB", "2KiB"])}
    buckets: dict[str, Any] = {}
    if some() < 0.4:
        buckets["pace"] = {
            "kind": "rate",
            "rate": chance.choice(["0.5/s", "2/s", "10/s", "1/h"]),
            "burst": chance.choice([1, 3, 300]),
            "when_empty": chance.choice(["wait", "wait", "reject"]),
        }
    if some() < 0.5:
        buckets["own"] = chance.choice(
            [
                {"kind": "quota", "capacity": 100_000, "initial": 50_000, "retry_cost": 5, "timeout_cost": 10},
                {"kind": "quota", "capacity": 12, "retry_cost": 5},
                {"kind": "throttle", "max_tokens": 4, "token_ratio": 0.5},
                {"kind": "budget", "percent": 20, "min_per_second": 1},
            ]
        )
    if buckets:
        config["buckets"] = buckets
    config["upstreams"] = {"a": _upstream(chance, "a", buckets), "b": _upstream(chance, "b", buckets)}
    if some() < 0.35:
        config["upstreams"]["a"]["fallback"] = ["b"]
    return config


def _upstream(chance: random.Random, name: str, buckets: dict[str, Any]) -> dict[str, Any]:
    def some(share: float) -> bool:
        return chance.random() < share

    one = chance.choice
    endpoints = [f"http://{name}.test"]
    if some(0.3):
        endpoints = [f"http://{name}{number}.test" for number in range(one([2, 2, 3]))]
    found: dict[str, Any] = {
        "url": endpoints if len(endpoints) > 1 else endpoints[0],
        "hosts": [f"{name}.test"],
        "dialects": ["http", one(["openai", "openai", "anthropic", "grpc"])],
        "scope": one(["host", "host", "upstream", {"header": "Authorization"}]),
        "strategy": _strategy(chance),
        "pushback": {
            "ahead": one(["on", "off"]),
            "cooldown": one(["wait", "wait", "wait", "reject", "off"]),
            "hold": one(["0s", "500ms", "3s", "20s", "20s"]),
            "max_delay": one(["1s", "5s", "60s", "60s"]),
            "of": one(["auto", "auto", "upstream"] if len(endpoints) == 1 else ["auto", "endpoint", "upstream"]),
        },
        "outage": one(["hold", "hold", "hold", "fail"]),
        "concurrency": one(
            [
                *("auto", "auto", "auto", "off"),
                {"max": one([1, 2, 4]), "queue": one([0, 1, 50, 50]), "wait": one(["100ms", "5s"])},
            ]
        ),
        "timeouts": {
            "attempt": one(["off", "off", "400ms", "2s"]),
            "first_byte": one(["off", "off", "off", "300ms"]),
            "total": one(["15m", "15m", "1s", "10s"]),
            "idle": "5s",
        },
        "answers": one([{"whole": "64KiB"}, "off"]),
        "balance": one(["turns", "least"]),
        "mode": one(["enforce"] * 8 + ["observe", "off"]),
        "classify": {"unsafe_methods": one(["never", "unprocessed", "provider", "always"])},
    }
    if some(0.5):
        found["routes"] = [_route(chance)]
    if "pace" in buckets and some(0.5):
        found["rate"] = "pace"
    if "own" in buckets and some(0.6):
        found["bucket"] = "own"
    if some(0.2):
        found["circuit_breaker"] = {
            "failure_ratio": "50%", "minimum_attempts": one([1, 3]), "open": one(["100ms", "2s"]),
        }  # fmt: skip
    if some(0.25):
        found["credentials"] = {
            "header": "authorization",
            "format": "Bearer {}",
            "values": one(
                [["k1"], ["k1", "k2"], ["k1", "k2", "k3"], [{"file": key_file()}], [{"file": key_file()}, "k2"]]
            ),
            "pick": one(["next", "first"]),
        }
    return found


def _route(chance: random.Random) -> dict[str, Any]:
    """A route whose calls other gates hold than those of its upstream."""
    one = chance.choice
    found: dict[str, Any] = {"match": {"path": "/r"}}
    more: list[tuple[str, Any]] = [
        ("concurrency", one(["off", "auto"])),
        ("outage", one(["hold", "fail"])),
        ("timeouts", {"total": one(["500ms", "5s", "12s"])}),
        ("pushback", {"hold": one(["1s", "8s", "30s"])}),
        ("pushback", {"ahead": one(["on", "off"])}),
        ("pushback", {"cooldown": one(["wait", "off"])}),
        ("strategy", _strategy(chance)),
    ]
    for key, value in chance.sample(more, chance.choice([1, 1, 2, 3])):
        if isinstance(value, dict) and key != "strategy":
            found[key] = {**found.get(key, {}), **value}
        else:
            found[key] = value
    return found


def _strategy(chance: random.Random) -> dict[str, Any]:
    kind = chance.choice(["standard", "standard", "standard", "standard-2026", "adaptive", "grpc", "hedging", "none"])
    if kind == "none":
        return {"kind": kind}
    found: dict[str, Any] = {"kind": kind, "max_attempts": chance.choice([1, 2, 3, 5])}
    if kind == "hedging":
        found["hedging_delay"] = chance.choice(["0s", "50ms", "500ms"])
    elif kind != "grpc" and chance.random() < 0.5:
        found["backoff"] = {"base": chance.choice(["0s", "50ms", "1s"]), "jitter": chance.choice(["none", "full"])}
    return found


def _asked(chance: random.Random, at: float, *, plain: bool) -> Asked:
    headers = [("authorization", chance.choice([MINE, OTHERS, OTHERS]))]
    if chance.random() < 0.6:
        headers.append(("x-app", chance.choice(["web", "batch", "batch", "mid", "new"])))
    more = [("x-retry-disable", "true"), ("x-retry-timeout", "400ms"), ("x-retry-timeout", "5s")]
    more += [("x-stainless-retry-count", "1"), ("x-retry-priority", "low"), ("idempotency-key", "k")]
    if chance.random() < (0.1 if plain else 0.3):
        headers.append(chance.choice(more))
    method = chance.choice(["GET", "GET", "GET", "GET" if plain else "POST"])
    path = chance.choice(["/x", "/x", "/r"])
    size = 0 if method == "GET" else chance.choice([0, 100, 1100])
    gone = chance.choice([0.0, 0.1, 1.0, 4.0]) if chance.random() < 0.12 else None
    cut = chance.choice([0.0, 0.3, 3.0]) if chance.random() < 0.05 else None
    return Asked(at, chance.choice("aaab"), method, tuple(headers), size, gone, cut, path)


def _weather(chance: random.Random, bad: tuple[str, ...], takes: list[float]) -> tuple[Weather, ...]:
    found, at = [], 0.0
    for _ in range(chance.choice([1, 2, 3, 5])):
        only = chance.choice(["", "", "", "", MINE, OTHERS, "0", "1"])
        kind = chance.choice(("well", *bad, *bad))
        delay = chance.choice([None, None, 0.0, 0.04, 0.5, 1.0, 3.0, 30.0, 100.0])
        found.append(Weather(at, kind, chance.choice(takes), delay, only))
        at += chance.choice([0.0, 0.1, 1.0, 5.0, 12.0, 40.0])
    return (*found, Weather(at, "well", chance.choice([0.0, 0.1, 0.5])))


def _limit(chance: random.Random) -> Limit:
    kind, reports = chance.choice(["fixed", "sliding", "bucket"]), chance.choice(["right", "right", "next", *REPORTS])
    window = chance.choice([1.0, 5.0, 10.0, 10.0, 30.0])
    return Limit(kind, chance.choice([1, 2, 5, 10, 20]), window, reports, chance.random() < 0.7)


# -- making small -----------------------------------------------------------------------------------------------------


def smaller(script: Script) -> Iterator[Script]:
    """Yield scripts that lack something of this one."""
    for size in (8, 4, 2, 1):
        for at in range(0, len(script.calls), size):
            yield replace(script, calls=script.calls[:at] + script.calls[at + size :])
    for at in range(len(script.events)):
        yield replace(script, events=script.events[:at] + script.events[at + 1 :])
    for name, weather in script.weather.items():
        for at in range(len(weather)):
            yield replace(script, weather={**script.weather, name: weather[:at] + weather[at + 1 :]})
    for name in script.limits:
        yield replace(script, limits={key: each for key, each in script.limits.items() if key != name})
    for at, call in enumerate(script.calls):
        for plain in ({"gone": None}, {"cut": None}, {"size": 0}, {"method": "GET"}, {"headers": call.headers[:1]}):
            if any(getattr(call, key) != value for key, value in plain.items()):
                yield replace(script, calls=(*script.calls[:at], replace(call, **plain), *script.calls[at + 1 :]))
    yield from _smaller_config(script)


def _smaller_config(script: Script) -> Iterator[Script]:
    if script.after != script.config:
        yield replace(script, after=script.config)
    for key in ("apps", "buffers", "limits"):
        if key in script.config:
            yield _with(script, lambda config, key=key: {name: each for name, each in config.items() if name != key})
    for upstream, keys in script.config["upstreams"].items():
        for key in keys:
            if key in ("url", "hosts"):
                continue

            def without(config: dict[str, Any], upstream: str = upstream, key: str = key) -> dict[str, Any]:
                kept = {name: each for name, each in config["upstreams"][upstream].items() if name != key}
                return {**config, "upstreams": {**config["upstreams"], upstream: kept}}

            yield _with(script, without)
            for inner in keys[key] if isinstance(keys[key], dict) and key != "strategy" else ():

                def less(
                    config: dict[str, Any], upstream: str = upstream, key: str = key, inner: str = inner
                ) -> dict[str, Any]:
                    had = config["upstreams"][upstream]
                    if not isinstance(had.get(key), dict):
                        return config
                    kept = {**had, key: {name: each for name, each in had[key].items() if name != inner}}
                    return {**config, "upstreams": {**config["upstreams"], upstream: kept}}

                yield _with(script, less)


def _with(script: Script, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Script:
    return replace(script, config=change(script.config), after=change(script.after))
