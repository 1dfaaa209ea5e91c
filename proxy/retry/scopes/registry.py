"""The registry of what calls share: buckets, limiters, cooldowns and seen keys. Each is kept once for each definition
and scope.

Law: what calls share is kept here, what one call knows is kept in the call, and a policy holds neither. The registry
outlives reloads: a definition that did not change keeps its bucket as it was; if a definition has changed, its new
bucket starts with the old bucket's share of the capacity.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterator, Mapping
from typing import TypeVar

from proxy.retry.budgets.buckets import Bucket, RateBucket
from proxy.retry.budgets.concurrency import UNLIMITED, Places
from proxy.retry.budgets.cubic_limiter import CubicLimiter
from proxy.retry.budgets.hedges import Hedges
from proxy.retry.budgets.token_sizes import TokenSizes
from proxy.retry.facts import Fields, Request
from proxy.retry.policies.bucket_specs import BucketRef, BucketSpec, RateSpec
from proxy.retry.policies.policy import BreakerSpec, Policy, Strategy
from proxy.retry.scopes.definitions import Definitions, PoliciesOf, key_of
from proxy.retry.scopes.factory import Factory, Key, Shared
from proxy.retry.scopes.scope_state import KeyFields, ScopeState
from proxy.retry.scopes.seen_keys import SeenKeys
from proxy.retry.upstreams.circuit_breaker import CircuitBreaker
from proxy.retry.upstreams.credentials import KeyRing, Roster
from proxy.retry.upstreams.endpoints import EndpointGroup
from proxy.retry.weather.ahead import Ahead
from proxy.retry.weather.cooldown import digest
from proxy.retry.weather.governor import Governor
from proxy.retry.weather.weather_changes import OBSERVED, Report, WeatherWatch

#: Contract, section 3: header scopes are bounded.
MOST_SCOPES = 10_000
#: The most scopes of all upstreams whose last use is noted.
_MOST_USED = 4 * MOST_SCOPES

#: The definition of a bucket or a breaker.
Spec = BucketSpec | BreakerSpec

K = TypeVar("K", bound=Key)
T = TypeVar("T")


class Registry:
    """The shared state of all calls of a process, which survives reloads. `factory`: makes the objects that are kept.
    `weather_changed`: if it is set before any call, it is called when a limit or an outage begins or is over. `epoch`:
    how often states were forgotten (by a reload, say). `last_used`: when each scope was last known to be in use.
    """

    def __init__(self, factory: Factory | None = None) -> None:
        self._factory = factory if factory is not None else Factory()
        self._buckets: OrderedDict[Key, Bucket] = OrderedDict()
        self._rates: OrderedDict[Key, RateBucket] = OrderedDict()
        self._limiters: OrderedDict[Key, CubicLimiter] = OrderedDict()
        self._hedges: OrderedDict[Key, Hedges] = OrderedDict()
        self._places: OrderedDict[tuple[str, str], tuple[Governor, SeenKeys]] = OrderedDict()
        self._under_way: OrderedDict[Key, Places] = OrderedDict()
        self._breakers: OrderedDict[Key, CircuitBreaker] = OrderedDict()
        self._groups: OrderedDict[Key, EndpointGroup] = OrderedDict()
        self._loads: OrderedDict[Key, Places] = OrderedDict()
        self._rosters: dict[str, Roster] = {}
        self._token_sizes: dict[str, TokenSizes] = {}
        self.weather_changed: Report | None = None
        self._holds_none = False
        self._by_policy: dict[Policy, dict[str, ScopeState]] = {}
        self.epoch = 0
        #: The time at which each scope (upstream, value) was last known to be in use; idle ones are left out.
        self.last_used: dict[tuple[str, str], float] = {}
        self.forget_policies()

    def scope(self, policy: Policy, request: Request, now: float = 0.0) -> ScopeState:
        """The shared state for this policy and the scope value of this request; it is made if there is none yet. `now`:
        the time at which new buckets and gates begin. A later request of the same policy and host has the same state,
        and need not look it up as long as the state's `epoch` equals the registry's.
        """
        by = policy.scope.by
        value = request.authority if by == "host" else ""
        if by == "header":
            value = digest(request.fields.get_all(policy.scope.header)).hex()
        states = self._by_policy.get(policy)
        if states is None:
            states = self._by_policy[policy] = {}
        state = states.get(value)
        if state is not None:
            state.marked = True
        else:
            state = states[value] = self._make(policy, value, now)
            self._note_use(policy.upstream, value, now)
            if len(states) > MOST_SCOPES:
                oldest = next(iter(states))
                del states[oldest]
                self.last_used.pop((policy.upstream, oldest), None)
                self.epoch += 1
        state.epoch = -1 if by == "header" else self.epoch  # a header scope is known only from the request's fields
        return state

    def forget_policies(
        self, policies_of: PoliciesOf | None = None, named: Mapping[str, BucketRef] | None = None, now: float = 0.0
    ) -> list[object]:
        """Forget which states belong to which policies, after a reload: calls keep the states that they hold, and new
        policies look the shared objects up again.

        `policies_of` and `named`: those of the new configuration's `Definitions`. Returns the forgotten states, so that
        the caller can free them a few at a time.
        """
        forgotten: list[object] = [state for states in self._by_policy.values() for state in states.values()]
        self._by_policy.clear()
        self.epoch += 1
        self._defined = Definitions(policies_of, named)
        #: Buckets whose definition may not be in force any more.
        self._outdated: dict[str, set[Key]] = {"bucket": set(self._buckets), "rate": set(self._rates)}
        self._renewed: set[Key] = set()  # groups of endpoints that this generation has looked up
        self._resize_places(now)
        for key, rate in list(self._rates.items()):
            if rate.gate.queue:  # what waits there is charged to the new rate, before a new call uses it here
                self._renew("rate", key, now)
        return forgotten

    def share_again(self, upstreams: Container[str], now: float) -> None:
        """Connect the objects that calls to these upstreams share (lanes, places and others) to the fleet again, since
        a reload has changed whether the machines of the fleet share them, or by which store. Each object is
        disconnected first, and then shared in the way that the factory now says.
        """
        for (upstream, value), (governor, _) in self._places.items():
            if upstream in upstreams:
                governor.lanes.part(now)
                self._factory.share_governor(upstream, value, governor)
        for key, places in self._under_way.items():
            if key[0] in upstreams:
                places.part(now)
                self._factory.share_places(key, places)
        for upstream, roster in self._rosters.items():
            if upstream in upstreams:
                roster.report = None
                self._factory.share_roster(upstream, roster)
        for key, group in self._groups.items():
            if key[0] in upstreams:
                group.share(None)
                self._factory.share_endpoints(str(key[0]), group)

    def _note_use(self, upstream: str, value: str, now: float) -> None:
        """Note that a scope is in use now. If too many scopes are noted, drop the oldest note. `value`: the scope
        value.
        """
        self.last_used[upstream, value] = now
        if len(self.last_used) > _MOST_USED:
            del self.last_used[next(iter(self.last_used))]

    def forget_states(self) -> None:
        """Make every call look up the state of its scope again, since some states were forgotten."""
        self.epoch += 1

    def announce(self, upstream: str, value: str) -> None:
        """Report to observing processes that calls still use the scope value `value` of this upstream."""
        self._factory.announce(upstream, value)

    def forget_scope(self, upstream: str, value: str) -> None:
        """Note that the registry has forgotten the governor of a scope, since no call has used the scope for long.
        `value`: the scope value.
        """
        self._factory.forget(upstream, value)

    def shared(self, now: float) -> Iterator[Shared]:
        """Iterate over every bucket that has been used, as the configuration in force defines it, with a label that
        identifies it. If a reload changed a bucket's definition and no call has used the bucket since, the change takes
        effect here. A bucket that the configuration does not have any more, or not for such scopes, is kept, since it
        may come back, and left out: nothing would ever raise its level. More buckets may appear during the iteration.
        """
        tables: dict[str, Mapping[Key, Bucket | RateBucket]] = {"bucket": self._buckets, "rate": self._rates}
        for role, table in tables.items():
            for key in list(table):
                self._renew(role, key, now)
                if key in table and self._defined.has_bucket(role, key):
                    yield Shared(_label(key), table[key])

    def _renew(self, role: str, key: Key, now: float) -> None:
        """Replace the bucket with this key by one that the configuration in force defines, if the bucket's definition
        is outdated. `role`: "bucket" or "rate".
        """
        if key not in self._outdated[role]:
            return
        self._outdated[role].discard(key)
        spec = self._defined.bucket(role, key)
        if isinstance(spec, RateSpec) == (role == "rate") and spec is not None:
            self.mirror(role, key, spec, now, outdated=False)

    def mirror(self, sort: str, key: Key, spec: Spec | None, now: float, *, outdated: bool = True) -> None:
        """Make an object that another process has under this key, so that it can be observed here. `sort`: the kind of
        object ("bucket", "governor", …; see `proxy.stores`). `spec`: its definition, None for a kind without one.
        `outdated`: the definition may be from an older configuration, which the other process still has.
        """
        if outdated and sort != "breaker" and key[0]:
            value = str(key[2] if len(key) > 2 else key[1]).partition(" ")[0]
            self._note_use(str(key[0]), value, now)
        if isinstance(spec, BreakerSpec):
            self._breaker(key, spec)
        elif sort in ("bucket", "rate") and spec is not None:
            (self._bucket if sort == "bucket" else self._rate)(key, spec, now)
        elif sort == "limiter":
            self._limiter(key, now)
        elif sort == "governor":
            self._place(*map(str, key))
        elif sort == "places":
            self._places_of(key, UNLIMITED)
        elif sort == "hedges":
            self._hedges_of(key, now)
        if outdated and sort in self._outdated:
            self._outdated[sort].add(key)

    def hold_none(self, now: float) -> None:
        """Let no governor hold a call from now on, because the process ends. The calls that are held are sent."""
        self._holds_none = True
        for governor, _ in list(self._places.values()):
            governor.hold_none(now)

    def cooldowns(self, now: float) -> Iterator[tuple[str, str, float]]:
        """Iterate over every cooldown in force, as (upstream, scope value, seconds left)."""
        for (upstream, value), (governor, _) in list(self._places.items()):
            left = governor.lanes.seconds_left(now)
            if left > 0:
                yield upstream, value, left

    def cooling(self, now: float) -> Iterator[tuple[str, Governor]]:
        """Iterate over every scope with a cooldown in force, as (upstream, governor), so that the caller can ask which
        calls it holds.
        """
        for (upstream, _), (governor, _) in list(self._places.items()):
            if governor.lanes.seconds_left(now) > 0:
                yield upstream, governor

    def settle(self, upstream: str, value: str, now: float) -> bool:
        """End those limits and outages of a scope that nothing keeps in force any more; otherwise that would be noticed
        only when a call comes. Returns whether any are left in force. `value`: the scope value.
        """
        found = self._places.get((upstream, value))
        return found is not None and found[0].lanes.settle(now)

    def governors(self) -> Iterator[tuple[str, str, Governor]]:
        """Iterate over every scope, as (upstream, scope value, governor)."""
        for (upstream, value), (governor, _) in list(self._places.items()):
            yield upstream, value, governor

    def under_way(self) -> Iterator[tuple[Key, Places]]:
        """Iterate over every concurrency limit, as its key (upstream, the limit's name, scope value) and its places."""
        yield from list(self._under_way.items())

    def breakers(self) -> Iterator[tuple[str, str, CircuitBreaker]]:
        """Iterate over every circuit breaker that has been used, including those of earlier configurations, as
        (upstream, endpoint, breaker).
        """
        for (upstream, label), breaker in list(self._breakers.items()):
            yield str(upstream), str(label), breaker

    def limiters(self) -> Iterator[tuple[str, CubicLimiter]]:
        """Iterate over every adaptive limiter that a call under the configuration in force may use, each with a label
        that identifies it.
        """
        for key, limiter in list(self._limiters.items()):
            if self._defined.has_limiter(key):
                yield _label(key), limiter

    def hedging(self) -> Iterator[tuple[str, Strategy, Hedges]]:
        """Iterate over the hedging state of every scope, with its label and the strategy that uses it in the
        configuration in force.
        """
        for key, hedges in list(self._hedges.items()):
            upstream, definition, _ = map(str, key)
            for policy in self._defined.policies_of(upstream):
                if policy.strategy.extra is not None and self._defined.name_of(policy) == definition:
                    yield _label(key), policy.strategy, hedges
                    break

    def labels(self, policy: Policy) -> tuple[str | None, tuple[str, ...], str | None]:
        """The label of a policy's bucket, the labels of its rate buckets, and the label of its limiter; None for a
        bucket or a limiter that the policy does not have.
        """
        own = (policy.upstream, self._defined.name_of(policy), "")
        bucket = None if policy.bucket is None else _label(key_of(policy.bucket, own))
        rates = tuple(_label(key_of(ref, own)) for ref in policy.rates)
        return bucket, rates, _label(own) if policy.strategy.paced else None

    # -- making ----------------------------------------------------------------------------------------------------

    def _make(self, policy: Policy, value: str, now: float) -> ScopeState:
        own = (policy.upstream, self._defined.name_of(policy), value)
        bucket = None if policy.bucket is None else self._bucket(key_of(policy.bucket, own), policy.bucket.spec, now)
        credentials = policy.credentials
        if credentials is None:
            return self._gated(policy, value, own, bucket, now)

        def lane(key: int) -> ScopeState:
            """Make the state of one of the policy's credentials, that with the number `key`. If the policy's scope is
            the host, the credential has gates of its own; otherwise all credentials share them (contract, section 13).
            """
            digest = credentials.digests[key]
            kept_by = f"{value} {digest}" if policy.scope.by == "host" else value
            return self._gated(policy, value, (*own[:2], kept_by), bucket, now, KeyFields(digest))

        keys = KeyRing(credentials, self.roster(policy.upstream), lane)
        endpoints = self._endpoints(policy) if policy.chooses else None
        governor, seen = self._governor(policy, value)
        return ScopeState(value, bucket, (), None, governor, seen, endpoints=endpoints, keys=keys, mode=policy.mode)

    def _gated(
        self,
        policy: Policy,
        value: str,
        own: tuple[str, str, str],
        bucket: Bucket | None,
        now: float,
        who: Fields | None = None,
    ) -> ScopeState:
        """The state that calls of a policy with the scope value `value` share. `own`: the key under which the gates of
        this state are kept: the upstream, the definition's name and the scope value, with a credential's hash if the
        gates are only for that credential. `bucket`: the bucket that retries are paid from, None for none. `who`: the
        fields that identify the caller by a credential, if the state is for one of the policy's credentials.
        """
        rates = tuple(self._rate(key_of(ref, own), ref.spec, now) for ref in policy.rates)
        limiter = self._limiter(own, now) if policy.strategy.paced else None
        # One governor for all credentials: its lanes hold one after a 429, and all after a 503 (section 5).
        governor, seen = self._governor(policy, value)
        hedges = None if policy.strategy.extra is None else self._hedges_of((*own[:2], value), now)
        limit, places = policy.concurrency, None
        if limit is not None and policy.mode == "enforce":  # the other modes hold no call
            places = self._places_of((policy.upstream, limit.group, own[2]), limit.max, now)
        endpoints = self._endpoints(policy) if policy.chooses else None
        state = ScopeState(
            value, bucket, rates, limiter, governor, seen, hedges, places, endpoints, who=who, mode=policy.mode
        )
        if policy.pushback.ahead and policy.mode == "enforce":
            governor.ahead = governor.ahead or Ahead(governor.traffic)
            state.ungated = False  # every attempt's price counts
        if policy.tokens is not None:
            state.token_sizes = self._token_sizes.setdefault(policy.upstream, TokenSizes())
        return state

    def _endpoints(self, policy: Policy) -> EndpointGroup:
        """The endpoints of the policy's upstream, which all policies of the upstream share, since a route has none of
        its own.
        """
        upstream, spec = policy.upstream, policy.circuit_breaker
        key: Key = (upstream, policy.endpoints, spec)
        group = self._groups.get(key)
        if group is None:
            group = EndpointGroup(policy.endpoints)
            self._factory.share_endpoints(upstream, group)
            _keep(self._groups, key, group)
        if key not in self._renewed:
            self._renewed.add(key)
            balanced = any(each.balance == "least" for each in (policy, *self._defined.policies_of(upstream)))
            group.renew(
                lambda label: None if spec is None else self._breaker((upstream, label), spec),
                lambda label: self._load((upstream, label)) if balanced else None,
            )
        return group

    def _load(self, key: Key) -> Places:
        """The count of the attempts under way to an endpoint. `key`: upstream, endpoint's label."""
        if key not in self._loads:
            _keep(self._loads, key, self._factory.load(key))
        return self._loads[key]

    def _breaker(self, key: Key, spec: BreakerSpec) -> CircuitBreaker:
        before = self._breakers.get(key)
        breaker = self._factory.breaker(key, spec, before)
        if breaker is not before:
            _keep(self._breakers, key, breaker)
        return breaker

    def roster(self, upstream: str) -> Roster:
        """The credentials of an upstream: whose turn it is, and which are put aside."""
        if upstream not in self._rosters:
            self._rosters[upstream] = self._factory.roster(upstream)
            self._factory.share_roster(upstream, self._rosters[upstream])
        return self._rosters[upstream]

    def _bucket(self, key: Key, spec: BucketSpec, now: float) -> Bucket:
        before = self._buckets.get(key)
        bucket = self._factory.bucket(key, spec, before, now)
        if bucket is not before:
            self._outdated["bucket"].discard(_keep(self._buckets, key, bucket))
        return bucket

    def _rate(self, key: Key, spec: BucketSpec, now: float) -> RateBucket:
        assert isinstance(spec, RateSpec)
        before = self._rates.get(key)
        bucket = self._factory.rate(key, spec, before, now)
        if bucket is not before:
            self._outdated["rate"].discard(_keep(self._rates, key, bucket))
        return bucket

    def _limiter(self, own: Key, now: float) -> CubicLimiter:
        if own not in self._limiters:
            _keep(self._limiters, own, self._factory.limiter(own, now))
        return self._limiters[own]

    def _hedges_of(self, own: Key, now: float) -> Hedges:
        if own not in self._hedges:
            _keep(self._hedges, own, self._factory.hedges(own, now))
        return self._hedges[own]

    def _places_of(self, key: Key, most: int, now: float = 0.0) -> Places:
        """The places under the concurrency limit with this key (upstream, the limit's name, scope value). `most`: their
        number, used only if the configuration in force does not give one.
        """
        most = self._defined.limits_of(str(key[0])).get(str(key[1]), most)
        places = self._under_way.get(key)
        if places is None:
            places = self._under_way[key] = self._factory.places(key, most)
            self._factory.share_places(key, places)
            if len(self._under_way) > MOST_SCOPES:  # not one in use: made again, it would count no attempt as under way
                idle = next((key for key, each in self._under_way.items() if each.is_idle and each is not places), None)
                if idle is not None:
                    del self._under_way[idle]
        else:
            places.resize(most, now)
        return places

    def _resize_places(self, now: float) -> None:
        """Apply the numbers of places in a reloaded configuration: waiting calls get additional places, and no attempt
        that has a place loses it. For an upstream that the configuration does not name (an unmatched host), this is
        left to the next call.
        """
        for (upstream, group, _), places in self._under_way.items():
            if any(True for _ in self._defined.policies_of(str(upstream))):
                places.resize(self._defined.limits_of(str(upstream)).get(str(group), UNLIMITED), now)

    def _governor(self, policy: Policy, value: str) -> tuple[Governor, SeenKeys]:
        """The governor of a policy's calls with the scope value `value`, and the idempotency keys that were seen there.
        In the mode `observe`, the governor is a separate one, which learns but holds no call.
        """
        governor, seen = self._place(policy.upstream, value)
        if policy.mode == "observe":
            governor = self._place(policy.upstream, value + OBSERVED)[0]
        return governor, seen

    def _place(self, upstream: str, value: str) -> tuple[Governor, SeenKeys]:
        key = upstream, value
        if key not in self._places:
            governor = self._factory.governor(*key)
            self._factory.share_governor(*key, governor)
            if self.weather_changed is not None:
                governor.lanes.watch = WeatherWatch(upstream, value, self.weather_changed)
            governor.holds_none = self._holds_none or value.endswith(OBSERVED)
            _keep(self._places, key, (governor, self._factory.seen(*key)))
        return self._places[key]


def _label(key: Key) -> str:
    upstream, name, *_ = key
    return f"{upstream}/{name}" if upstream else str(name)


def _keep(table: OrderedDict[K, T], key: K, kept: T) -> Key:
    """Put the object `kept` into a table of at most MOST_SCOPES objects. If the oldest object had to be removed,
    returns its key, otherwise ().
    """
    table[key] = kept
    return table.popitem(last=False)[0] if len(table) > MOST_SCOPES else ()
