"""A scenario file: the apps' calls and their rate, the upstream's abilities, and its outages.

The file is read by the language of the configuration (`proxy.config.schema_language`), so that units are the same, and
all mistakes are reported at once with their lines.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

from proxy.config import addresses
from proxy.config.problems import Mark, Problem, Problems
from proxy.config.scalars import duration, flag, one_word, positive_duration, rate, share, token, whole, word
from proxy.config.schema_language import Anything, Either, Key, ListOf, MapOf, Section, Word
from proxy.config.units import is_off
from proxy.config.units import positive_duration as read_duration
from proxy.config.units import rate as read_rate
from proxy.config.yaml_tree import Map, mistaken, parse, read_text
from proxy.lab.simulate.reports import REPORTS
from proxy.lab.simulate.weather import (
    STALL,
    Kind,
    Other,
    Pause,
    RedisOutage,
    Scenario,
    ScenarioApp,
    ScenarioOutage,
    ScenarioRotation,
    ScenarioRoute,
    SimulatedRedis,
)
from proxy.retry.facts import FaultKind

#: Calls in all columns, beyond which the end would take too long.
MOST_CALLS = 5_000_000


def _kind(value: Any) -> Kind:
    text = str(value)
    if text == STALL:
        return STALL
    if text in set(FaultKind):
        return FaultKind(text)
    if text.isascii() and text.isdigit() and 400 <= int(text) <= 599:
        return int(text)
    raise ValueError(f"{text!r} is neither a status from 400 to 599 nor one of {', '.join(FaultKind)}, stall")


_KIND = Word(_kind)
_CAPACITY = Word(lambda value: None if is_off(value) else read_rate(value))
_PATIENCE = Word(lambda value: None if is_off(value) else read_duration(value))

#: The advice for an unknown key: `redrive schema` knows nothing of scenarios.
_OTHERS = "docs/reference/commands/simulate.md lists all keys"

UPSTREAM = Section(
    "upstream",
    "What it can do when nothing is wrong.",
    {
        "latency": Key(positive_duration, "50ms", "the median; 99 in 100 take at most twice as long"),
        "slow": Key(share, 0, "the share of requests that take much longer at any time"),
        "slow_latency": Key(positive_duration, "1s", "the median of those"),
        "failing": Key(share, 0, "the share of requests that fail at any time, with 503"),
        "breaking": Key(share, 0, "the share of answers that break after their head at any time"),
        "order": Key(
            one_word("sent", "random"),
            "sent",
            "whether requests arrive as they are sent, or those of one moment in any order",
        ),
        "transit": Key(duration, 0, "the mean time that a request takes to arrive; each one's is drawn (exponential)"),
        "capacity": Key(_CAPACITY, "off", "requests a second; those above queue up"),
        "queue": Key(
            duration, "1s", "how long a request may stand in the queue; it is refused where it would be longer"
        ),
        "overload": Key(_KIND, 503, "how it is refused"),
        "retry_after": Key(duration, 0, "the Retry-After of refusals, in whole seconds; 0: none"),
        "limit": Key(whole(1), doc="requests that it takes from one key in each `window`; off without it"),
        "tokens": Key(whole(1), doc="how much of `limit` a request takes (the median); 1 without it"),
        "window": Key(positive_duration, "1m", "how long a window is; Retry-After names the next one's beginning"),
        "limit_kind": Key(
            one_word("fixed", "sliding", "bucket"),
            "fixed",
            "windows one after the other, or what came within the last `window` counts, or a token bucket",
        ),
        "burst": Key(whole(1), doc="how much the token bucket holds; without it, what it gets in a `window`"),
        "reports": Key(
            one_word(*REPORTS),
            "off",
            "what answers say is left of `limit`, and whether that is right",
        ),
        "keys": Key(
            whole(1, 1000),
            1,
            "how many credentials the apps have, each used equally often; not allowed where the policy has some",
        ),
        "endpoints": Key(whole(1, 100), 1, "how many there are; retries avoid those that failed the call"),
    },
    others=_OTHERS,
)

OUTAGE = Section(
    "outage",
    "A time in which requests fail.",
    {
        "at": Key(duration, doc="when it begins", required=True),
        "lasts": Key(positive_duration, doc="for how long", required=True),
        "share": Key(share, "100%", "the share of requests that fail"),
        "kinds": Key(
            Either(word=_KIND, list=ListOf(_KIND)), 503, "a status, a fault kind, stall, or a list, each equally often"
        ),
        "after": Key(duration, "5ms", "how long such a failure takes"),
        "retry_after": Key(duration, 0, "the Retry-After of failures with a status; 0: none"),
        "capacity": Key(_CAPACITY, doc="the capacity meanwhile"),
        "recovers": Key(duration, 0, "how long after it the usual capacity takes to return, bit by bit"),
        "latency": Key(positive_duration, doc="the latency meanwhile"),
        "limit": Key(whole(1), doc="the limit meanwhile"),
        "key": Key(whole(1), doc="the number of the only credential that it concerns"),
        "endpoint": Key(whole(1), doc="the number of the only endpoint that it concerns"),
        "route": Key(whole(1), doc="the number of the only route that it concerns"),
    },
    others=_OTHERS,
    belongs={"failing": "share"} | dict.fromkeys(("duration", "for", "until"), "lasts"),
)

ROUTE = Section(
    "route",
    "A part of the calls.",
    {
        "path": Key(word, doc="of its requests; `{call}` in it is the call's number", required=True),
        "method": Key(token, doc="of its requests; without it, that of `request`"),
        "share": Key(share, doc="its share of the calls; without it, what the others leave, evenly"),
        "latency": Key(positive_duration, doc="the median of its answers; without it, the upstream's"),
    },
)

APP = Section(
    "app",
    "An app, which makes a part of the calls.",
    {
        "share": Key(share, doc="its share of the calls; without it, what the others leave, evenly"),
        "weight": Key(whole(1, 1000), 1, "as in `apps.known`, where the policies stand in the scenario"),
        "priority": Key(one_word("high", "normal", "low"), "normal", "the same"),
    },
)

ROTATION = Section(
    "rotation",
    "A key in a file that gets another value.",
    {
        "at": Key(duration, doc="when the upstream has the new value", required=True),
        "key": Key(whole(1), 1, "the number of the credential, which stands in a file"),
        "overlap": Key(duration, 0, "how long the upstream still takes the earlier value"),
        "file_after": Key(duration, 0, "how long the file takes to have the new one"),
    },
    others=_OTHERS,
)

PAUSE = Section(
    "pause",
    "A time in which no call begins.",
    {
        "at": Key(duration, doc="when it begins", required=True),
        "lasts": Key(positive_duration, doc="for how long", required=True),
    },
)

#: The keys of an upstream beside the first one; it has no outages, one credential and one endpoint.
OTHER = Section(
    "other",
    "An upstream that policies name in `fallback`.",
    {
        **{
            name: UPSTREAM.keys[name] for name in ("latency", "failing", "capacity", "queue", "overload", "retry_after")
        },
        "policy": Key(Anything(), doc="its policy, where the policies stand in the scenario"),
    },
)

REDIS_OUTAGE = Section(
    "redis outage",
    "A time in which sidecars have no Redis.",
    {
        "at": Key(duration, doc="when it begins", required=True),
        "lasts": Key(positive_duration, doc="for how long", required=True),
        "kind": Key(one_word("gone", "silent"), "gone", "connections end and are refused, or nothing is answered"),
        "share": Key(share, "100%", "the share of the sidecars that have none"),
        "empty": Key(flag, "false", "whether it returns without its data"),
    },
)
_ON_OUTAGE = one_word("share", "local", "deny")
REDIS = Section(
    "redis",
    "The Redis of buckets with `store: redis`.",
    {
        "latency": Key(positive_duration, "1ms", "how long a round trip takes"),
        "on_outage": Key(
            Either(word=_ON_OUTAGE, list=ListOf(_ON_OUTAGE)),
            doc="instead of the configuration's; a list: further columns",
        ),
        "outages": Key(ListOf(REDIS_OUTAGE), [], "when it is not available"),
    },
)

SCENARIO = Section(
    "scenario",
    "What is played.",
    {
        "name": Key(word, "a scenario", "the title"),
        "duration": Key(positive_duration, "5m", "how long calls keep beginning"),
        "seed": Key(whole(0), 1, "the same seed gives the same figures"),
        "sidecars": Key(whole(1, 100_000), 10, "how many redrives; each has its own buckets, unless they are in Redis"),
        "calls": Key(rate, "50/s", "how many calls begin, at all sidecars together"),
        "arrivals": Key(one_word("random", "steady"), "random", "a Poisson process, or one call after the other"),
        "request": Key(
            Section(
                "request",
                "The request, which decides the policy.",
                {
                    "method": Key(token, "GET"),
                    "url": Key(word, doc="without it, the first upstream of the configuration"),
                    "prompt": Key(share, "50%", "the share of a call's `tokens` that are its prompt"),
                    "max_tokens": Key(whole(1), doc="the most output tokens that it asks for; it says none without"),
                },
            )
        ),
        "routes": Key(ListOf(ROUTE), [], "parts of the calls that differ in path, method or latency"),
        "apps": Key(MapOf(APP, key=addresses.app_name), doc="the apps that call, by name"),
        "pauses": Key(ListOf(PAUSE), [], "times in which no call begins"),
        "rotations": Key(ListOf(ROTATION), [], "when keys in files get another value, in order of time"),
        "patience": Key(_PATIENCE, "off", "how long an app waits before it goes away"),
        "neighbours": Key(_CAPACITY, "off", "requests of other clients, without redrive, that send each once"),
        "upstream": Key(UPSTREAM),
        "redis": Key(REDIS),
        "outages": Key(ListOf(OUTAGE), [], "in any order; where several apply, the first in the list counts"),
        "policy": Key(
            Anything(), doc="a policy to use instead of the configuration's, written as for an upstream there"
        ),
        "possible": Key(share, doc="the share of calls that could be served, to 0.5 points; the tests check it"),
        "others": Key(MapOf(OTHER, key=addresses.name), doc="upstreams that policies name in `fallback`, by name"),
        "compare": Key(
            MapOf(Anything()),
            doc="further columns: a name and a policy, written as for an upstream of the configuration",
        ),
    },
    others=_OTHERS,
)


def read_scenario(file: str) -> tuple[Scenario | None, list[Problem]]:
    """The scenario in a file, and all problems of the file; None instead of the scenario if there is an error among
    them.
    """
    problems = Problems()
    scenario = _read(file, problems)
    return (None if problems.fatal else scenario), problems.sorted()


def _read(file: str, problems: Problems) -> Scenario | None:
    text = read_text(file, problems)
    tree: Any = parse(text, file, problems) if text is not None else None
    if problems.errors:
        return None
    if tree is None:
        tree = Map(Mark(file, 1, 1))
        problems.warn(tree.mark, "", "the file is empty: without an outage or a limit, the default has nothing to show")
    if not isinstance(tree, Map):
        problems.add(Mark(file, 1, 1), "", "a scenario is a mapping of keys")
        return None
    if other := mistaken(tree, "scenario"):
        problems.add(tree.mark, "", other)
        return None
    found = SCENARIO.read(tree, tree.mark, (), problems.add)
    for key in ("policy", "compare"):
        if key in tree and not isinstance(tree[key], Map):
            problems.add(tree.values_at[key], key, "must be a mapping of keys")
    if problems.fatal:
        return None
    full = SCENARIO.filled(found)
    upstream, request = full.pop("upstream"), full.pop("request")
    full["routes"] = _routes(full["routes"], request["method"], upstream["latency"])
    full["apps"] = _apps(full.get("apps") or {})
    full["pauses"] = tuple(Pause(each["at"], each["at"] + each["lasts"]) for each in full["pauses"])
    written = zip(tree["rotations"].marks if full["rotations"] else (), full["rotations"], strict=True)
    full["rotations"] = tuple(_rotation(mark, ROTATION.filled(each)) for mark, each in written)
    full["outages"] = tuple(_outage(each, upstream) for each in full["outages"])
    full |= {"policy": tree.get("policy"), "compare": tree.get("compare") or Map()}
    full["others"] = {name: _other(each) for name, each in full.get("others", {}).items()}
    full["redis"] = _redis(full["redis"])
    upstream = {**upstream, "retry_after": _seconds(upstream["retry_after"])}
    scenario = Scenario(file=file, **full, **request, **upstream)
    # what each key alone can't say
    if scenario.calls * scenario.duration * 3 > MOST_CALLS:
        at = tree.values_at.get("calls", tree.mark)
        problems.add(at, "calls", f"more than {MOST_CALLS:,} calls over all columns; lower calls or duration")
    if scenario.overload in (FaultKind.ATTEMPT_TIMEOUT, STALL):
        at = tree["upstream"].values_at["overload"]
        problems.add(at, "upstream.overload", "must be a refusal, which is immediate")
    for number, (before, after) in enumerate(pairwise(scenario.rotations), start=1):
        if after.at < before.at:
            problems.add(after.mark, f"rotations[{number}]", "rotations must be in order of time")
    if scenario.reports == "window" and scenario.tokens is not None:
        at = tree["upstream"].values_at["reports"]
        problems.add(at, "upstream.reports", "no field names the window of a limit of tokens")
    return scenario


def _outage(found: dict[str, Any], upstream: dict[str, Any]) -> ScenarioOutage:
    usual = {name: upstream.get(name) for name in ("capacity", "latency", "limit")}
    full: dict[str, Any] = usual | OUTAGE.filled(found)
    full["until"] = full["at"] + full.pop("lasts")
    full["kinds"] = full["kinds"] if isinstance(full["kinds"], tuple) else (full["kinds"],)
    full["retry_after"] = _seconds(full["retry_after"])
    for name in ("key", "endpoint", "route"):
        full[name] = full[name] - 1 if name in full else None
    return ScenarioOutage(**full)


def _rotation(mark: Mark, full: dict[str, Any]) -> ScenarioRotation:
    return ScenarioRotation(mark, full["at"], full["key"] - 1, full["overlap"], full["file_after"])


def _routes(found: Sequence[dict[str, Any]], method: str, latency: float) -> tuple[ScenarioRoute, ...]:
    """The routes of a scenario, from the typed values `found`, whose requests have this method and this latency
    (seconds) unless they say otherwise. Those without a share have what the others leave.
    """
    rest = _rest(found)
    return tuple(
        ScenarioRoute(
            each.get("method", method), each["path"], each.get("share", rest), each.get("latency", latency) / latency
        )
        for each in found
    )


def _rest(parts: Collection[dict[str, Any]]) -> float:
    """The share (0 to 1) of each part that does not name its share: what is left of the whole by the parts that do,
    divided evenly among the others.
    """
    left = 1.0 - sum(each.get("share", 0.0) for each in parts)
    without = sum("share" not in each for each in parts)
    return max(0.0, left) / without if without else 0.0


def _redis(found: dict[str, Any]) -> SimulatedRedis:
    words = found.get("on_outage", ())
    outages = [REDIS_OUTAGE.filled(each) for each in found["outages"]]
    return SimulatedRedis(
        found["latency"],
        words if isinstance(words, tuple) else (words,),
        tuple(
            RedisOutage(each["at"], each["at"] + each["lasts"], each["kind"], each["share"], each["empty"])
            for each in outages
        ),
    )


def _apps(found: dict[str, dict[str, Any]]) -> tuple[ScenarioApp, ...]:
    """The apps of a scenario, from their typed values by name; those without a share have what the others leave."""
    full = {name: APP.filled(each) for name, each in found.items()}
    rest = _rest(full.values())
    return tuple(
        ScenarioApp(name, each.get("share", rest), each["weight"], each["priority"]) for name, each in full.items()
    )


def _other(found: dict[str, Any]) -> Other:
    full = OTHER.filled(found)
    policy = full.get("policy")
    return Other(**{**full, "retry_after": _seconds(full["retry_after"]), "policy": policy if policy else None})


def _seconds(delay: float) -> int:
    """A delay in whole seconds, as Retry-After has it; at least 1 unless it is 0."""
    return round(delay) if delay >= 1 or delay == 0 else 1
