"""A scenario file: the apps' calls and their rate, the upstream's abilities, and its outages.

The file is read by the language of the configuration (`proxy.config.schema_language`), so that units are the same, and
all mistakes are reported at once with their lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from proxy.config import addresses
from proxy.config.problems import Mark, Problem, Problems
from proxy.config.schema import duration, one_word, positive_duration, rate, share, token, whole, word
from proxy.config.schema_language import Anything, Either, Key, ListOf, MapOf, Section, Word
from proxy.config.units import is_off
from proxy.config.units import rate as read_rate
from proxy.config.yaml_tree import Map, parse, read_text
from proxy.retry.facts import FaultKind

#: A failure that is no status and no fault: the head of a stream comes, and nothing behind it.
STALL: Literal["stall"] = "stall"
Kind = int | FaultKind | Literal["stall"]

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

UPSTREAM = Section(
    "upstream",
    "What it can do when nothing is wrong.",
    {
        "latency": Key(positive_duration, "50ms", "the median; 99 in 100 take at most twice as long"),
        "slow": Key(share, 0, "the share of requests that take much longer at any time"),
        "slow_latency": Key(positive_duration, "1s", "the median of those"),
        "failing": Key(share, 0, "the share of requests that fail at any time, with 503"),
        "capacity": Key(_CAPACITY, "off", "requests a second; those above queue up"),
        "queue": Key(
            duration, "1s", "how long a request may stand in the queue; it is refused where it would be longer"
        ),
        "overload": Key(_KIND, 503, "how it is refused"),
        "retry_after": Key(duration, 0, "the Retry-After of refusals, in whole seconds; 0: none"),
        "limit": Key(whole(1), doc="requests that it takes from one key in each `window`; off without it"),
        "tokens": Key(whole(1), doc="how much of `limit` a request takes (the median); 1 without it"),
        "window": Key(positive_duration, "1m", "how long a window is; Retry-After names the next one's beginning"),
        "keys": Key(
            whole(1, 1000),
            1,
            "how many credentials the apps have, each used equally often; not allowed where the policy has some",
        ),
        "endpoints": Key(whole(1, 100), 1, "how many there are; retries avoid those that failed the call"),
    },
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
    },
)

#: What an upstream beside the first one can do; it has no outages, one key and one endpoint.
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
                },
            )
        ),
        "upstream": Key(UPSTREAM),
        "outages": Key(ListOf(OUTAGE), [], "in any order; where several apply, the first in the list counts"),
        "policy": Key(
            Anything(), doc="a policy to use instead of the configuration's, written as for an upstream there"
        ),
        "others": Key(MapOf(OTHER, key=addresses.name), doc="upstreams that policies name in `fallback`, by name"),
        "compare": Key(
            MapOf(Anything()),
            doc="further columns: a name and a policy, written as for an upstream of the configuration",
        ),
    },
)


@dataclass(frozen=True, slots=True)
class Outage:
    """An outage of the simulated upstream; its keys in the file are described in OUTAGE. Times are in seconds, shares
    from 0 to 1. `capacity`, `latency` and `limit` are those of the upstream if the outage names none; `key` and
    `endpoint` are the index of the API key or endpoint that it concerns, from 0, None for all.
    """

    at: float
    until: float
    share: float
    kinds: tuple[Kind, ...]
    after: float
    retry_after: int
    capacity: float | None
    recovers: float
    latency: float
    limit: int | None
    key: int | None
    endpoint: int | None

    def is_about(self, key: int, endpoint: int) -> bool:
        """Whether the outage concerns requests with this API key to this endpoint."""
        return (self.key is None or self.key == key) and (self.endpoint is None or self.endpoint == endpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """Another upstream, to which calls may go on as their fallback; its keys in the file are described in OTHER."""

    latency: float
    failing: float
    capacity: float | None
    queue: float
    overload: Kind
    retry_after: int
    policy: Map | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario; its keys in the file are described in SCENARIO and UPSTREAM. `policy` and `compare` are parsed YAML
    trees, which know the file's lines of their keys.
    """

    file: str
    name: str
    duration: float
    seed: int
    sidecars: int
    calls: float
    arrivals: str
    method: str
    url: str | None = None
    latency: float
    slow: float = 0.0
    slow_latency: float = 1.0
    failing: float
    capacity: float | None
    queue: float
    overload: Kind
    retry_after: int
    limit: int | None = None
    tokens: int | None = None
    window: float
    keys: int
    endpoints: int
    outages: tuple[Outage, ...]
    policy: Map | None
    compare: Map
    others: Mapping[str, Other] = field(default_factory=dict)


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
    if not isinstance(tree, Map):
        problems.add(Mark(file, 1, 1), "", "a scenario is a mapping of keys")
        return None
    found = SCENARIO.read(tree, tree.mark, (), problems.add)
    for key in ("policy", "compare"):
        if key in tree and not isinstance(tree[key], Map):
            problems.add(tree.values_at[key], key, "must be a mapping of keys")
    if problems.fatal:
        return None
    full = SCENARIO.filled(found)
    upstream, request = full.pop("upstream"), full.pop("request")
    full["outages"] = tuple(_outage(each, upstream) for each in full["outages"])
    full |= {"policy": tree.get("policy"), "compare": tree.get("compare") or Map()}
    full["others"] = {name: _other(each) for name, each in full.get("others", {}).items()}
    upstream = {**upstream, "retry_after": _seconds(upstream["retry_after"])}
    scenario = Scenario(file=file, **full, **request, **upstream)
    # what each key alone can't say
    if scenario.calls * scenario.duration * 3 > MOST_CALLS:
        at = tree.values_at.get("calls", tree.mark)
        problems.add(at, "calls", f"more than {MOST_CALLS:,} calls over all columns; lower calls or duration")
    if scenario.overload in (FaultKind.ATTEMPT_TIMEOUT, STALL):
        at = tree["upstream"].values_at["overload"]
        problems.add(at, "upstream.overload", "must be a refusal, which is immediate")
    return scenario


def _outage(found: dict[str, Any], upstream: dict[str, Any]) -> Outage:
    usual = {name: upstream.get(name) for name in ("capacity", "latency", "limit")}
    full: dict[str, Any] = usual | OUTAGE.filled(found)
    full["until"] = full["at"] + full.pop("lasts")
    full["kinds"] = full["kinds"] if isinstance(full["kinds"], tuple) else (full["kinds"],)
    full["retry_after"] = _seconds(full["retry_after"])
    for name in ("key", "endpoint"):
        full[name] = full[name] - 1 if name in full else None
    return Outage(**full)


def _other(found: dict[str, Any]) -> Other:
    full = OTHER.filled(found)
    policy = full.get("policy")
    return Other(**{**full, "retry_after": _seconds(full["retry_after"]), "policy": policy if policy else None})


def _seconds(delay: float) -> int:
    """A delay in whole seconds, as Retry-After has it; at least 1 unless it is 0."""
    return round(delay) if delay >= 1 or delay == 0 else 1
