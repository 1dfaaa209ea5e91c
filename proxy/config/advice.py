"""Settings that are valid and still do nothing, or not what one thinks: `redrive check` and `explain` say so.

Law: advice refuses nothing, and what is inherited by many is told once, where it was written.

When a quota drains. Let each attempt fail with probability p, all alike, n attempts at most, c a retry's price and r
the refund of a first success. Retry k is made with probability p^k and pays c; the last price comes back when a retried
call succeeds, which is p - p^n of all calls. So a call earns (1 - p)·r and loses

    c·(p + … + p^(n-1)) - c·(p - p^n)  =  c·(p^2 + … + p^n),

and the level sinks where the loss is more than the gain. For r = 1 and n = 3 the two meet at p = 32.1 % for c = 5, at
24.6 % for c = 10 and at 21.5 % for c = 14. With `refund: flat` nothing comes back and every success, 1 - p^n of all
calls, gives r: they meet where r·(1 - p^n) = c·(p + … + p^(n-1)).
"""

from __future__ import annotations

from functools import lru_cache

from proxy.config.compile import Compiled
from proxy.config.nodes import Map, place
from proxy.config.problem import Mark, Problems, Severity, dotted
from proxy.config.problem import Path as KeyPath
from proxy.config.read import is_file
from proxy.config.units import is_off
from proxy.extras import is_installed, remedy
from proxy.retry.facts import IDEMPOTENT_METHODS
from proxy.retry.policy import BudgetSpec, Policy, QuotaSpec, ThrottleSpec
from proxy.retry.router import HostPattern, Upstream, shadows

#: Earlier routes that each is compared with: more than anybody writes by hand, and no square of thousands.
MOST_EARLIER = 200


def advise(compiled: Compiled, tree: Map, problems: Problems) -> None:
    """Tell all there is to say of a configuration that was compiled. `tree` is the file's, included ones added."""
    _Advice(compiled, tree, problems).all()


class _Advice:
    def __init__(self, compiled: Compiled, tree: Map, problems: Problems) -> None:
        self._settings = compiled.settings
        self._placed = compiled.places
        self._tree = tree
        self._problems = problems
        self._told: set[object] = set()
        self._routes_at = {policy: (at, path) for policy, at, path in self._placed if "routes" in path}

    def all(self) -> None:
        for policy, at, path in self._placed:
            self._timeouts(policy, at, path)
            self._hedging(policy, at, path)
            self._spread(policy, at, path)
            self._bucket(policy, at, path)
            self._backoff(policy, at, path)
        for upstream in self._settings.router.upstreams:
            self._routes(upstream)
            self._reach(upstream)
        self._hosts()
        self._redis()

    # -- one policy --------------------------------------------------------------------------------------------------

    def _timeouts(self, policy: Policy, at: Mark, path: KeyPath) -> None:
        limits = policy.timeouts
        if limits.total is None:
            return
        for key, value in (("attempt", limits.attempt), ("connect", limits.connect)):
            if key == "connect" and not place(self._tree_of(policy), ("timeouts", key)).line:
                continue
            if value is not None and value >= limits.total:
                message = f"has no effect: {value:g}s is not shorter than timeouts.total, {limits.total:g}s"
                self._tell(policy, at, path, ("timeouts", key), message)

    def _spread(self, policy: Policy, at: Mark, path: KeyPath) -> None:
        """A key of earlier versions."""
        if "spread" in self._tree_of(policy)["pushback"]:
            message = "has no effect any more: held calls return by a slow start, and pushback.hold bounds how long"
            self._tell(policy, at, path, ("pushback", "spread"), message)

    def _hedging(self, policy: Policy, at: Mark, path: KeyPath) -> None:
        strategy = policy.strategy
        if strategy.hedging_delay is None or strategy.max_attempts < 2:
            return
        if policy.bucket is None:
            message = "hedges without a bucket: nothing bounds what they add to the load"
            self._tell(policy, at, path, ("strategy",), message)
        if strategy.safe_methods:
            return
        methods = self._methods(policy)
        unsafe = methods is not None and not methods & IDEMPOTENT_METHODS
        if policy.classify.unsafe_methods == "always":
            if methods is None or methods - IDEMPOTENT_METHODS:
                message = "hedges unsafe methods too (unsafe_methods: always): a POST may be carried out several times"
                self._tell(policy, at, path, ("strategy",), message)
        elif unsafe and not policy.idempotency_key.inject:
            message = "has no effect: these methods are not idempotent, and such calls are never hedged"
            self._tell(policy, at, path, ("strategy",), message)

    def _methods(self, policy: Policy) -> frozenset[str] | None:
        """The methods that a policy's route asks for; None for any."""
        upstream = self._settings.router.by_name.get(policy.upstream)
        routes = upstream.routes if upstream is not None else ()
        return next((route.match.methods for route in routes if route.policy is policy), None)

    def _bucket(self, policy: Policy, at: Mark, path: KeyPath) -> None:
        strategy = policy.strategy
        spec = policy.bucket.spec if policy.bucket is not None else None
        if strategy.max_attempts < 2:
            upstream = self._settings.router.by_name.get(policy.upstream)
            if policy.bucket is not None and policy.bucket.name and upstream is not None and not upstream.routes:
                self._tell(policy, at, path, ("bucket",), f"has no effect: the strategy {strategy.name} never retries")
            return
        if isinstance(spec, QuotaSpec):
            if message := _too_small(spec):
                self._tell(policy, at, path, ("bucket",), message)
            if strategy.custom is None and strategy.hedging_delay is None and spec.retry_cost <= spec.capacity:
                self._drains(policy, spec, at, path)
        elif isinstance(spec, ThrottleSpec) and spec.max_tokens <= 2:
            message = f"holds {spec.max_tokens:g}: the first failure leaves no more than half, and nothing is retried"
            self._tell(policy, at, path, ("bucket",), message)
        elif isinstance(spec, BudgetSpec) and spec.percent == 0 and spec.min_per_second == 0:
            self._tell(policy, at, path, ("bucket",), "grants no retry: percent and min_per_second are both 0")

    def _drains(self, policy: Policy, spec: QuotaSpec, at: Mark, path: KeyPath) -> None:
        attempts = policy.strategy.max_attempts
        share = draining_share(spec.retry_cost, attempts, spec.success_refund, flat=spec.flat_refund)
        key = (policy.bucket.name if policy.bucket else None, spec, attempts)
        if share is None or key in self._told or policy.upstream not in self._settings.router.by_name:
            return
        self._told.add(key)
        name = f"the bucket {policy.bucket.name}" if policy.bucket and policy.bucket.name else "the quota"
        message = (
            f"{name} drains where more than {share * 100:.1f} % of attempts fail "
            f"(a retry costs {spec.retry_cost:g}, {attempts} attempts)"
        )
        if spec.refill:
            message += f", but for the {spec.refill:g} tokens a second that time brings"
        self._tell(policy, at, path, ("bucket",), message, "note")

    def _backoff(self, policy: Policy, at: Mark, path: KeyPath) -> None:
        mark = place(self._tree_of(policy), ("strategy", "backoff", "multiplier"))
        if policy.strategy.backoff.jitter == "decorrelated" and mark.line:
            where = ("strategy", "backoff", "multiplier")
            self._tell(policy, at, path, where, "has no effect: jitter decorrelated does not multiply")

    # -- upstreams and routes ----------------------------------------------------------------------------------------

    def _routes(self, upstream: Upstream) -> None:
        """A route that an earlier one takes every call of. Service config methods were put in the right order."""
        written = self._routes_at
        for number, route in enumerate(upstream.routes):
            found = written.get(route.policy)
            earlier = next(
                (each for each in upstream.routes[: min(number, MOST_EARLIER)] if shadows(each.match, route.match)),
                None,
            )
            if found is None or earlier is None:
                continue
            other = written.get(earlier.policy)
            line = f" in line {other[0].line}" if other is not None and other[0].line else ""
            message = f"is never reached: the route {earlier.policy.route}{line} takes all its calls"
            self._warn(found[0], found[1], message)

    def _reach(self, upstream: Upstream) -> None:
        upstreams = self._tree["upstreams"]
        tree, at = upstreams[upstream.name], upstreams.keys_at[upstream.name]
        path: KeyPath = ("upstreams", upstream.name)
        if not upstream.target.endpoints:
            if not upstream.hosts:
                self._warn(at, path, "is never reached: it has neither url nor hosts")
            elif "prefix" in tree and not is_off(tree["prefix"]):
                message = "has no effect: without url, a call by prefix has nowhere to go"
                self._warn(tree.values_at["prefix"], (*path, "prefix"), message)
        ca = self._settings.ca
        if upstream.connect != "intercept":
            return
        mark = tree.values_at.get("connect", at)
        if not is_installed("intercept"):
            self._warn(mark, (*path, "connect"), f"needs the package cryptography: {remedy('intercept')}")
        if not (is_file(ca.cert) and is_file(ca.key)):
            self._warn(mark, (*path, "connect"), f"needs the local CA, {ca.cert}: redrive ca init makes it")

    def _hosts(self) -> None:
        """A host that an earlier upstream has already."""
        first: dict[HostPattern, str] = {}
        for upstream in self._settings.router.upstreams:
            tree = self._tree["upstreams"][upstream.name]
            taken = {first[host] for host in upstream.hosts if host in first}
            lost = [host for host in upstream.hosts if host in first]
            for host in upstream.hosts:
                first.setdefault(host, upstream.name)
            if not lost:
                continue
            key = "hosts" if "hosts" in tree else "url"
            names = ", ".join(dict.fromkeys(map(str, lost)))
            message = f"{' and '.join(sorted(taken))} has {names} already: "
            message += f"{upstream.name} is reached by its prefix alone" if upstream.prefix else "it comes first"
            path: KeyPath = ("upstreams", upstream.name, key)
            if len(lost) == len(upstream.hosts):
                self._warn(tree.values_at[key], path, message)
            elif key == "hosts":
                self._warn(tree.values_at[key], path, message.partition(": ")[0])

    def _redis(self) -> None:
        """Buckets in Redis, and nobody who speaks to it."""
        if not self._settings.uses_redis or is_installed("redis"):
            return
        named = self._tree.get("buckets") or Map(self._tree.mark)
        stores = (
            (tree.values_at["store"], ("buckets", name, "store"))
            for name, tree in named.items()
            if isinstance(tree, Map) and tree.get("store") == "redis"
        )
        mark, path = next(stores, (self._tree.mark, ("buckets",)))
        self._warn(mark, path, f"needs the package redis, else it is this process's own: {remedy('redis')}")

    # -- telling -----------------------------------------------------------------------------------------------------

    def _tell(
        self, policy: Policy, at: Mark, path: KeyPath, key: KeyPath, message: str, severity: Severity = "warning"
    ) -> None:
        """Where the key was written; where nobody wrote it, at the upstream or route. The same is told once."""
        mark = place(self._tree_of(policy), key)
        if not mark.line:
            mark = at
        if (mark, key, message) in self._told:
            return
        self._told.add((mark, key, message))
        if mark.line:
            self._problems.add(mark, dotted((*path, *key)), message, severity)

    def _tree_of(self, policy: Policy) -> Map:
        return self._settings.provenance.policies[policy.upstream, policy.route]

    def _warn(self, mark: Mark, path: KeyPath, message: str) -> None:
        self._problems.warn(mark, path, message)


def _too_small(spec: QuotaSpec) -> str:
    """Which retries a quota can never pay for, in one line; "" where it can pay for all."""
    prices = {"": spec.retry_cost, " after a timeout": spec.timeout_cost}
    prices[" after a throttling error"] = spec.throttling_cost
    if len(set(prices.values())) == 1:
        prices = {"": spec.retry_cost}
    dear = [f"a retry{when} costs {price:g}" for when, price in prices.items() if price > spec.capacity]
    return f"holds {spec.capacity:g}, but {' and '.join(dear)}: none is ever granted" if dear else ""


@lru_cache(maxsize=1024)
def draining_share(cost: float, attempts: int, refund: float = 1, *, flat: bool = False) -> float | None:
    """The share of failing attempts, from 0 to 1, above which a quota drains; None where it never does."""
    if cost <= 0 or attempts < 2:
        return None

    def balance(p: float) -> float:
        if flat:
            return refund * (1 - p**attempts) - cost * sum(p**k for k in range(1, attempts))
        return refund * (1 - p) - cost * sum(p**k for k in range(2, attempts + 1))

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if balance(middle) > 0 else (low, middle)
    return high
