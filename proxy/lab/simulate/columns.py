"""The columns to compare: the configuration's policy, no retries, naive immediate retries, and those that a scenario
adds.

Columns differ only in how they retry: classification, timeouts and requests are the policy's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from proxy.config.load import find, load, load_tree
from proxy.config.problems import Problem
from proxy.config.settings import Settings
from proxy.config.yaml_tree import Map, Text, adopt
from proxy.lab.routing import AppRequest, RefusedCall, choose
from proxy.lab.simulate.possible import Terms
from proxy.lab.simulate.weather import OnOutage, Scenario
from proxy.retry.apps import NamedApp
from proxy.retry.facts import IDEMPOTENT_METHODS, Request
from proxy.retry.policies.policy import Backoff, EndpointShare, Policy
from proxy.retry.policies.routing import Upstream
from proxy.retry.strategies.presets import BUILT_IN

#: The label of hosts that no upstream names.
_UNMATCHED = "unmatched"
#: The url of the upstream that the policies of a scenario are for, and the defaults if no upstream is configured.
_PLACE = "http://upstream.example"

#: The name of the column whose policy holds no calls for want of capacity.
WITHOUT_HOLDING = "without holding"
#: The name of the column in which no call has an app.
WITHOUT_APPS = "without apps"
#: The fields of a policy that holds no calls, as far as policies have them.
_HOLDS_NONE: dict[str, Any] = {"concurrency": None, "limit": None, "outage": "fail"}


@dataclass(frozen=True, slots=True)
class RedisTerms:
    """A configuration's `redis.timeout` (seconds) and `redis.on_outage`."""

    timeout: float = 0.05
    on_outage: OnOutage = "share"


@dataclass(frozen=True, slots=True)
class Column:
    """A way to retry that is compared with others, and is a column of the result. `waiting`: how many calls may wait;
    `deaf`: the column ignores the upstream's pushback. `others`: the request and the policy for each of the scenario's
    other upstreams, by name. `redis`: the settings for Redis; `apps`: the scenario's apps as the configuration knows
    them, none if it names none.
    """

    name: str
    request: Request
    policy: Policy
    waiting: int
    deaf: bool = False
    others: Mapping[str, tuple[Request, Policy]] = field(default_factory=dict)
    redis: RedisTerms = RedisTerms()
    apps: tuple[NamedApp, ...] = ()


def terms(column: Column) -> Terms:
    """The timeouts, attempts and credentials of a column's calls, for the computation of what the best scheduler could
    serve.
    """
    policy, timeouts = column.policy, column.policy.timeouts
    return Terms(
        total=timeouts.total,
        attempt=timeouts.attempt,
        first_byte=timeouts.first_byte,
        max_attempts=policy.strategy.max_attempts,
        waiting=column.waiting,
        credentials=0 if policy.credentials is None else len(policy.credentials.values),
        idempotent=column.request.method in IDEMPOTENT_METHODS or policy.classify.unsafe_methods == "always",
    )


def without_holding(column: Column) -> Column:
    """The column with `concurrency: off` and `outage: fail`; the same column if its policy holds no calls anyway.
    Cooldowns stay as they are.
    """
    policy = column.policy
    off = {name: value for name, value in _HOLDS_NONE.items() if getattr(policy, name, value) != value}
    return replace(column, name=WITHOUT_HOLDING, policy=replace(policy, **off)) if off else column


def columns(config: str | None, scenario: Scenario, environ: Mapping[str, str]) -> tuple[list[Column], list[Problem]]:
    """The ways to retry that a scenario compares, the configuration's policy first (none if anything is wrong), and the
    problems found. `config` and `environ` are those of `find`.
    """
    problems: list[Problem] = []
    policies: dict[str, Policy] = {}
    if scenario.policy is None:
        chosen = _configured(config, scenario, environ)
    else:
        chosen = _written(scenario, scenario.policy, "policy", environ)
    if isinstance(chosen, list):
        return [], chosen
    for name in scenario.compare:
        other = _written(scenario, scenario.compare[name], f"compare.{name}", environ)
        if isinstance(other, list):
            problems += other
        else:
            policies[name] = other.policy
    for where, policy in (("policy", chosen.policy), *((f"compare.{name}", each) for name, each in policies.items())):
        problems += _misfit(scenario, policy, where)
    problems += _not_in_files(scenario, chosen.policy)
    if problems:
        return [], problems
    on_outage = scenario.redis.on_outage or (chosen.redis.on_outage,)
    redis = replace(chosen.redis, on_outage=on_outage[0])
    chosen = replace(chosen, policy=_fitted(scenario, chosen.policy), redis=redis)
    policies = {name: _fitted(scenario, policy) for name, policy in policies.items()}
    further = [replace(chosen, name=name, policy=policy) for name, policy in policies.items()]
    held = without_holding(chosen)
    unnamed = [replace(chosen, name=WITHOUT_APPS, apps=())] if chosen.apps else []
    without = [
        replace(each, name=f"{each.name}, {word}", redis=replace(redis, on_outage=word))
        for each in (chosen, *further)
        if _uses_redis(each.policy)
        for word in on_outage[1:]
    ]
    return [chosen, *further, *without, *unnamed, *([] if held is chosen else [held]), *_plain(chosen)], []


def _uses_redis(policy: Policy) -> bool:
    """Whether a bucket of the policy is in Redis."""
    return any(
        each is not None and each.spec.store == "redis" for each in (policy.bucket, policy.rate, *policy.more_rates)
    )


def _misfit(scenario: Scenario, policy: Policy, where: str) -> list[Problem]:
    """Report that the policy gives its endpoints weights or priorities, but has another number of endpoints than the
    scenario's upstream; empty if the two fit. `where` is the policy's path in the file.
    """
    count = len(policy.endpoints)
    if count in (0, scenario.endpoints) or all(each.weight == 1 and each.priority == 0 for each in policy.endpoints):
        return []
    message = f"has {count} endpoints with weights or priorities: the scenario's upstream.endpoints must be {count} too"
    return [Problem(scenario.file, 1, 1, where, message)]


def _not_in_files(scenario: Scenario, policy: Policy) -> list[Problem]:
    """Report each rotation of a key that the policy has in no file, or not at all."""
    files = () if policy.credentials is None else policy.credentials.files
    message = "of the policy is not in a file: write it as {file: PATH} in credentials.values"
    return [
        Problem(*rotation.mark, f"rotations[{number}].key", f"key {rotation.key + 1} {message}")
        for number, rotation in enumerate(scenario.rotations)
        if rotation.key >= len(files) or files[rotation.key] is None
    ]


def _fitted(scenario: Scenario, policy: Policy) -> Policy:
    """The policy with as many endpoints as the scenario's upstream has, if it chooses among endpoints; else the policy
    as it is.
    """
    if not policy.chooses or len(policy.endpoints) == scenario.endpoints:
        return policy
    numbered = (EndpointShare(f"endpoint {number}") for number in range(1, scenario.endpoints + 1))
    return replace(policy, endpoints=tuple(numbered))


def _plain(chosen: Column) -> list[Column]:
    """Make the two columns that every policy is compared with: no retries; and naive retries: as many as the policy
    allows, at once, after every failure, paid from no bucket.
    """
    policy = chosen.policy
    alone = replace(policy.pushback, cooldown="off", ahead=False)
    none = replace(
        policy,
        strategy=BUILT_IN["none"],
        bucket=None,
        rate=None,
        concurrency=None,
        limit=None,
        outage="fail",
        pushback=alone,
        circuit_breaker=None,
        endpoints=(),
        fallback=(),
    )
    tries = max(3, policy.strategy.max_attempts)
    backoff = Backoff(0.0, 0.0)
    at_once = replace(BUILT_IN["standard"], name="naive", max_attempts=tries, backoff=backoff, own_bucket=None)
    naive = replace(none, strategy=at_once, classify=replace(policy.classify, unsafe_methods="always"))
    return [
        replace(chosen, name="none", policy=none),
        replace(chosen, name=f"naive: {tries} at once", policy=naive, deaf=True),
    ]


def _configured(config: str | None, scenario: Scenario, environ: Mapping[str, str]) -> Column | list[Problem]:
    """The column of the policy that the configuration has for the scenario's request. If the configuration has no
    upstream, and the request names no host, an upstream that sets nothing itself is added, so that the policy is the
    one of `defaults`. Returns the problems if there are errors. `config` and `environ` are those of `find`.
    """
    file = find(config, environ)
    result = load(file, environ)
    for place in (file, None):  # None: nothing is added to an empty file, which stands for the defaults
        if result.settings is not None and not result.settings.router.upstreams and scenario.url is None:
            result = load(place, environ, partial(_add_upstream, scenario, place))
    settings = result.settings
    if settings is None:
        return list(result.errors)
    if scenario.url is None and settings.router.upstreams:
        first = settings.router.upstreams[0]
        if scenario.endpoints > 1 == len(first.target.endpoints):
            settings = load(file, environ, partial(_list_places, scenario, first)).settings or settings
        return _of(settings, settings.router.by_name[first.name], scenario)
    chosen = choose(settings, AppRequest(scenario.method, scenario.url or f"{_PLACE}/"))
    if isinstance(chosen, RefusedCall):
        return [Problem(scenario.file, 1, 1, "request.url", f"redrive would refuse this: {chosen.why}")]
    request = Request(scenario.method, chosen.request.authority, chosen.request.path, plain=True)
    where = "defaults" if chosen.policy.upstream == _UNMATCHED else chosen.policy.upstream
    name, others = f"{where}: {chosen.policy.strategy.name}", _others(settings, scenario)
    return replace(_column(settings, name, request, chosen.policy, others), apps=_named(settings, scenario))


def _add_upstream(scenario: Scenario, file: str | None, tree: Map) -> None:
    """Add an upstream called `defaults` that sets nothing but its url, so that it has the default policy, to the tree
    of the configuration `file` (None: the built-in defaults). The tree of a file that the configuration includes is
    left as it is.
    """
    if file is None or tree.mark.file == file:
        upstreams = {"defaults": {"url": _places(scenario)}}
        tree.put("upstreams", adopt(upstreams, tree.mark), tree.mark)


def _list_places(scenario: Scenario, upstream: Upstream, tree: Map) -> None:
    """Give an upstream of one endpoint as many endpoints as the scenario's upstream has: its `url` in the
    configuration's tree becomes a list of urls with the same host and other ports. A tree that does not have the
    upstream is left as it is.
    """
    upstreams = tree.get("upstreams")
    found = upstreams.get(upstream.name) if isinstance(upstreams, Map) else None
    if isinstance(found, Map) and "url" in found:
        only = upstream.target.endpoints[0]
        host = f"[{only.host}]" if ":" in only.host else only.host
        places = [f"{only.scheme}://{host}:{port}" for port in range(1, scenario.endpoints + 1)]
        found.put("url", adopt(places, found.values_at["url"]), found.keys_at["url"], found.values_at["url"])


def _places(scenario: Scenario) -> str | list[str]:
    """The value of `url` for an upstream with as many endpoints as the scenario's upstream has: one url, or a list of
    made-up ones.
    """
    places = [f"http://upstream-{number}.example" for number in range(1, scenario.endpoints + 1)]
    return places if len(places) > 1 else _PLACE


def _column(
    settings: Settings, name: str, request: Request, policy: Policy, others: Mapping[str, tuple[Request, Policy]]
) -> Column:
    redis = RedisTerms(settings.redis.timeout, settings.redis.on_outage)
    return Column(name, request, policy, settings.limits.waiting, others=others, redis=redis)


def _named(settings: Settings, scenario: Scenario) -> tuple[NamedApp, ...]:
    """The scenario's apps, as the configuration knows them; none if it names none."""
    return () if settings.apps is None else tuple(settings.apps.named(app.name) for app in scenario.apps)


def _others(settings: Settings, scenario: Scenario) -> dict[str, tuple[Request, Policy]]:
    """The request and the policy for each of the scenario's other upstreams that the configuration has, by name."""
    found: dict[str, tuple[Request, Policy]] = {}
    for name in scenario.others:
        upstream = settings.router.by_name.get(name)
        if upstream is not None and upstream.target.endpoints:
            request = Request(scenario.method, upstream.target.endpoints[0].authority, "/", plain=True)
            found[name] = request, upstream.policy_for(scenario.method, b"/", request.fields)
    return found


def _of(settings: Settings, upstream: Upstream, scenario: Scenario) -> Column:
    endpoints = upstream.target.endpoints
    authority = endpoints[0].authority if endpoints else upstream.name
    request = Request(scenario.method, authority, "/", plain=True)
    policy = upstream.policy_for(scenario.method, b"/", request.fields)
    name, others = f"{upstream.name}: {policy.strategy.name}", _others(settings, scenario)
    return replace(_column(settings, name, request, policy, others), apps=_named(settings, scenario))


def _written(scenario: Scenario, policy: Any, where: str, environ: Mapping[str, str]) -> Column | list[Problem]:
    """Return the column of `policy`, which is written in the scenario itself, at the path `where`; or the policy's
    problems, with their places in the scenario's file. `environ`: the environment variables, for ${NAME}.
    """
    name = where.rpartition(".")[2]
    if not isinstance(policy, Map):
        return [Problem(*scenario.compare.values_at[name], where, "must be a policy, a mapping of keys")]
    at, tree = policy.mark, policy.copy()
    if "url" not in tree:
        tree.put("url", adopt(_places(scenario), at), at, at)
    upstreams = Map(at)
    upstreams.put(name, tree, at, at)
    for other, said in scenario.others.items():
        beside = said.policy.copy() if isinstance(said.policy, Map) else Map(at)
        beside.put("url", Text.make(f"http://{other}.example"), at, at)
        upstreams.put(other, beside, at, at)
    tree = Map(at)
    tree.put("upstreams", upstreams, at, at)
    if scenario.apps:
        known = {each.name: {"weight": each.weight, "priority": each.priority} for each in scenario.apps}
        tree.put("apps", adopt({"by": [{"header": "x-app"}], "known": known}, at), at, at)
    result = load_tree(tree, scenario.file, environ)
    if result.settings is None:
        inside = f"upstreams.{name}"
        return [replace(problem, path=problem.path.replace(inside, where, 1)) for problem in result.errors]
    return _of(result.settings, result.settings.router.upstreams[0], scenario)
