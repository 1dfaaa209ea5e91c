"""The data that the admin port shows of the process, as the functions that its pages call.

Reading never changes anything: no page creates a bucket or another object of the process, and apart from `reload` and
`drain` a `View` only reads. Its data has secrets masked already, or contains none. Labels are bounded: the buckets that
one definition has for many hosts or header values have one label, with the lowest level among them. Lists that grow
with the number of upstreams are made in pieces (`turns`). The data of upstreams, buckets and gauges are made in
upstream_view.py, bucket_view.py and gauge_view.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.admin.upstream_view import Live, Provision
from proxy.config.provenance import Provenance
from proxy.hidden_values import HiddenValues
from proxy.observe import masking
from proxy.observe.recent_calls import RecentCalls
from proxy.wire.http1.compiled import CORE


async def _nothing() -> Any:
    """Return an empty list: the default for functions of a `View` that its maker does not set."""
    return []


async def _no_provisions() -> dict[str, Provision]:
    return {}


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether calls should be sent to this process, and other facts about it. `warnings` are those of the configuration
    in force; `reload_errors`, those of the last file that was refused ([] once a good one has been loaded).
    `credentials_aside`: the credentials that their upstreams refuse, by upstream and number. `core`: whether heads are
    read by compiled code, or in Python. `redis`: "up", or "out" if no worker or not every worker reaches it; None if no
    bucket is kept there.
    """

    ready: bool
    draining: bool
    config_file: str
    warnings: list[str] = field(default_factory=list)
    reload_errors: list[str] = field(default_factory=list)
    listen: list[str] = field(default_factory=list)
    in_flight: int = 0
    credentials_aside: list[dict[str, Any]] = field(default_factory=list)
    core: str = CORE
    redis: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """The functions that pages call for their data; each is called only when its page is requested.

    `at_rest` gives how many calls have ended and how many configurations were loaded; None while a call is under way,
    or if other machines change what is shown. `config`: the effective configuration; called in a thread. `upstreams`:
    the rows of `/upstreams`, of the upstream of this name, or of all for None. `refresh` fetches what other processes
    have counted, before a page shows it. `live`: the counters of every upstream; `provisions`: by label, the buckets,
    rates and credentials that the configuration in force gives each upstream. `places`: the effective values of a
    policy (upstream and route; "" is the top level) with their file and line; `loads`: the number of configurations
    that were loaded since the start. `cooldowns`: those that answers of an upstream began lately; `weather`: its limits
    and outages that began or were over lately. `hidden`: what every page and event hides of what these functions
    return, None if nothing. `explain` takes a call as `/requests` has it, and gives what `redrive
    explain --json` prints. It is called in a thread. `policy` gives the parts of an upstream's policy that a draft may
    change. `what_if` takes an upstream, a draft of its policy and calls, and gives what is wrong with the draft and how
    the calls would have gone. Both give None if the file has no such upstream, and both are called in a thread.
    `metrics` takes an Accept field and gives (text, content type); `reload` gives error lines, [] if it succeeded.
    """

    readiness: Callable[[], Readiness]
    metrics: Callable[[str], Awaitable[tuple[bytes, str]]]
    config: Callable[[], Any]
    upstreams: Callable[[str | None], Awaitable[list[dict[str, Any]]]]
    buckets: Callable[[], Awaitable[list[dict[str, Any]]]]
    recent: RecentCalls
    reload: Callable[[], Awaitable[list[str]]]
    drain: Callable[[], None]
    refresh: Callable[[], Awaitable[None]] = _nothing
    live: Callable[[], Awaitable[list[Live]]] = _nothing
    provisions: Callable[[], Awaitable[dict[str, Provision]]] = _no_provisions
    places: Callable[[str, str], list[dict[str, str]]] = lambda upstream, route: []
    loads: Callable[[], int] = int
    at_rest: Callable[[], tuple[int, int] | None] = lambda: None
    explain: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda call: {}
    policy: Callable[[str], dict[str, Any] | None] = lambda upstream: None
    what_if: Callable[[str, str, Sequence[Mapping[str, Any]]], dict[str, Any] | None] = lambda *draft: None
    cooldowns: Callable[[str], list[dict[str, Any]]] = lambda upstream: []
    weather: Callable[[str], list[dict[str, Any]]] = lambda upstream: []
    hidden: Callable[[], HiddenValues | None] = lambda: None


def places(provenance: Provenance, upstream: str, route: str) -> list[dict[str, str]]:
    """Every effective value of the policy of an upstream and a route (""), or of the top level if `upstream` is "",
    each with the file and line that set it; secrets are masked.
    """
    origins = provenance.of(upstream, route) if upstream else provenance.of_top()
    return [
        {
            "path": each.path,
            "value": masking.place(each.path, each.plain, argument=each.argument),
            "from": str(each.mark),
        }
        for each in origins
    ]
