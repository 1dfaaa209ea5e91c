"""Settings that are valid and still do nothing, or not what one thinks: `redrive check` and `explain` say so.

Advice refuses nothing, and what is inherited by many is told once, where it was written. Beside errors it is told
only of upstreams that hold none, and that inherit none.

When a quota drains. Let each attempt fail with probability p, all alike, n attempts at most, c a retry's price and r
the refund of a first success. Retry k is made with probability p^k and pays c; the last price comes back when a retried
call succeeds, which is p - p^n of all calls. So a call earns (1 - p)·r and loses

    c·(p + … + p^(n-1)) - c·(p - p^n)  =  c·(p^2 + … + p^n),

and the level sinks where the loss is more than the gain. For r = 1 and n = 3 the two meet at p = 32.1 % for c = 5, at
24.6 % for c = 10 and at 21.5 % for c = 14. With `refund: flat` nothing comes back and every success, 1 - p^n of all
calls, gives r: they meet where r·(1 - p^n) = c·(p + … + p^(n-1)).
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from proxy.config.compile import Compiled
from proxy.config.problems import Mark, Problems, Severity, dotted
from proxy.config.problems import Path as KeyPath
from proxy.config.schema import FILE
from proxy.config.units import is_off
from proxy.config.yaml_tree import Map, Seq, is_file, place
from proxy.extras import is_installed, remedy
from proxy.retry.backoff import delay
from proxy.retry.facts import IDEMPOTENT_METHODS
from proxy.retry.policy import BudgetSpec, Policy, QuotaSpec, ThrottleSpec
from proxy.retry.routing import HostPattern, Upstream, shadows

#: Attempts that need no wait between them to do little harm.
FEW_ATTEMPTS = 3
#: Seconds, all waits of a call together at the most, that are no backoff.
NO_TIME = 0.1
#: Waits that are looked at: more than that many attempts are an error of another kind.
MOST_WAITS = 1000
#: Seconds from which a `max_delay` is longer than any app's patience.
LONG_DELAY = 3600.0
#: What stands in regular expressions and hardly ever in a path.
_REGEX = re.compile(r"^\^|\$$|\.[*+]|\\[A-Za-z.\/]|[()|]|\[[^\[\]]*\][*+]?|\w\+$")

#: Keys of a file, an error in which changes nothing of its policies.
_APART = FILE.keys.keys() - {"include", "buckets", "strategies", "defaults", "upstreams", "via_proxy", "redis"}

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
        errors = [error.path for error in self._problems.errors]
        if not all(path.startswith("upstreams.") or path.partition(".")[0] in _APART for path in errors):
            return
        wrong = {
            each.name
            for each in self._settings.router.upstreams
            if any(path.startswith(f"upstreams.{each.name}") for path in errors)
        }
        for policy, at, path in self._placed:
            if policy.upstream in wrong:
                continue
            self._timeouts(policy, at, path)
            self._hedging(policy, at, path)
            self._spread(policy, at, path)
            self._bucket(policy, at, path)
            self._backoff(policy, at, path)
            self._attempts(policy, at, path)
            self._max_delay(policy, at, path)
            self._lists(policy, at, path)
        for upstream in self._settings.router.upstreams:
            if upstream.name in wrong:
                continue
            self._routes(upstream)
            self._paths(upstream)
            self._reach(upstream)
            self._in_the_clear(upstream)
            self._grpc(upstream)
        if not any(path.startswith("upstreams.") for path in errors):
            self._hosts()
            self._taken_hosts()
            self._services()
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

    def _attempts(self, policy: Policy, at: Mark, path: KeyPath) -> None:
        """Many attempts within less time than any trouble takes to pass."""
        strategy = policy.strategy
        if strategy.max_attempts <= FEW_ATTEMPTS or strategy.custom is not None or strategy.hedging_delay is not None:
            return
        longest = replace(strategy.backoff, jitter="none")
        waits = (delay(longest, number, 0.0) for number in range(1, min(strategy.max_attempts, MOST_WAITS)))
        if sum(waits) < NO_TIME:
            message = f"makes {strategy.max_attempts} attempts with next to no wait between them: give backoff a base"
            self._tell(policy, at, path, ("strategy",), message)

    def _max_delay(self, policy: Policy, at: Mark, path: KeyPath) -> None:
        """A pushback that no app waits for."""
        longest = policy.pushback.max_delay
        if longest >= LONG_DELAY:
            message = f"lets an upstream hold a call for {longest / 3600:g} h; apps give up long before: say 60s"
            self._tell(policy, at, path, ("pushback", "max_delay"), message)

    def _lists(self, policy: Policy, at: Mark, path: KeyPath) -> None:
        """A status below 400 among failures."""
        for status, cls in sorted(policy.classify.statuses.items()):
            if status < 400:
                message = f"{status} is no failure, and would be retried: take what is below 400 out of the list"
                self._tell(policy, at, path, ("classify", cls.value), message)
                return

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

    def _paths(self, upstream: Upstream) -> None:
        """A route's path that is written as a regular expression."""
        for route in upstream.routes:
            found = self._routes_at.get(route.policy)
            for path in route.match.paths if found is not None else ():
                if found is not None and (sign := _REGEX.search(path)):
                    glob = as_glob(path)
                    hint = f" (did you mean {glob}?)" if glob else ""
                    message = (
                        f"{sign[0]} reads like a regular expression; here * is any text within a segment, ** across"
                    )
                    at, path_of = found[0], (*found[1], "match", "path")
                    mark = place(self._tree, path_of)
                    near = mark.file == at.file and mark.line >= at.line  # else the route is one of defaults
                    self._warn(mark if near else at, path_of, message + hint)

    def _in_the_clear(self, upstream: Upstream) -> None:
        """A host written for https, of an upstream that is spoken to without TLS."""
        tree = self._tree["upstreams"][upstream.name]
        if "hosts" not in tree or all(end.scheme == "https" or end.unix for end in upstream.target.endpoints):
            return
        for mark, where, host in self._written_hosts(upstream):
            if host.port == 443:
                message = f"an https request for {host} would leave in the clear: url is http; make it https"
                self._warn(mark, where, message)

    def _written_hosts(self, upstream: Upstream) -> list[tuple[Mark, KeyPath, HostPattern]]:
        """The entries of a written `hosts`, each with its place; none where `hosts` is the default."""
        tree = self._tree["upstreams"][upstream.name]
        written, path = tree.get("hosts"), ("upstreams", upstream.name, "hosts")
        if not isinstance(written, Seq):
            return [(tree.values_at["hosts"], path, host) for host in upstream.hosts] if written is not None else []
        marked = zip(written.marks, upstream.hosts, strict=True)
        return [(mark, (*path, number), host) for number, (mark, host) in enumerate(marked)]

    def _taken_hosts(self) -> None:
        """A host written for any port, whose usual ports another upstream has by its url: the longer pattern wins."""
        upstreams = self._settings.router.upstreams
        implied: dict[str, list[tuple[Upstream, HostPattern]]] = {}
        for upstream in upstreams:
            if "hosts" not in self._tree["upstreams"][upstream.name]:
                for host in upstream.hosts:
                    implied.setdefault(host.host, []).append((upstream, host))
        for upstream in upstreams:
            for mark, where, host in self._written_hosts(upstream) if implied else ():
                taken = implied.get(host.host, []) if host.port is None else []
                if taken:
                    names = ", ".join(dict.fromkeys(each.name for each, _ in taken))
                    patterns = ", ".join(dict.fromkeys(str(pattern) for _, pattern in taken))
                    message = f"{names} takes {patterns} first, the hosts of its url; give it hosts of its own"
                    self._warn(mark, where, message)

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
        """A host that an earlier upstream has already. Of those that share the hosts of their urls it is told once."""
        first: dict[HostPattern, str] = {}
        by_prefix: dict[tuple[str, ...], list[tuple[Mark, KeyPath, str, str]]] = {}
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
            path: KeyPath = ("upstreams", upstream.name, key)
            if key == "url" and upstream.prefix and len(lost) == len(upstream.hosts):
                shared = by_prefix.setdefault(tuple(sorted(taken)), [])
                shared.append((tree.values_at[key], path, message, upstream.name))
                continue
            message += f"{upstream.name} is reached by its prefix alone" if upstream.prefix else "it comes first"
            if len(lost) == len(upstream.hosts):
                self._warn(tree.values_at[key], path, message)
            elif key == "hosts":
                self._warn(tree.values_at[key], path, message.partition(": ")[0])

        for shared in by_prefix.values():
            mark, path, message, name = shared[0]
            names = ", ".join(each[3] for each in shared[:3]) + (f" and {len(shared) - 3} more" if shared[3:] else "")
            alone = f"{name} is reached by its prefix" if len(shared) == 1 else f"{names} are reached by their prefixes"
            self._warn(mark, path, f"{message}{alone} alone")

    def _services(self) -> None:
        """A gRPC service that an earlier upstream has already."""
        first: dict[str, str] = {}
        for upstream in self._settings.router.upstreams:
            taken = {service: first[service] for service in upstream.services if service in first}
            for service in upstream.services:
                first.setdefault(service, upstream.name)
            if taken:
                owners, names = " and ".join(sorted(set(taken.values()))), ", ".join(taken)
                tree = self._tree["upstreams"][upstream.name]
                path: KeyPath = ("upstreams", upstream.name, "services")
                self._warn(tree.values_at["services"], path, f"{owners} has {names} already: it comes first")

    def _grpc(self, upstream: Upstream) -> None:
        """An upstream of gRPC services that no gRPC call gets to, or none of whose failures has a name."""
        if not upstream.services:
            return
        tree = self._tree["upstreams"][upstream.name]
        mark, path = tree.values_at["services"], ("upstreams", upstream.name)
        if upstream.target.protocol == "http/1.1":
            message = "protocol is http/1.1: every gRPC call on HTTP/2 is answered UNIMPLEMENTED"
            self._warn(tree.values_at.get("protocol", mark), (*path, "protocol"), message)
        elif not any(_names_grpc(policy) for policy in upstream.policies):
            message = "no grpc-status is retried: name the dialect, `dialects: [http, grpc]`, or statuses in classify"
            self._warn(mark, (*path, "services"), message)

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


def _names_grpc(policy: Policy) -> bool:
    """Whether anything classes a grpc-status, or nothing is to be retried at all."""
    rules = policy.classify
    return (
        policy.strategy.max_attempts == 1
        or rules.grpc_dialect
        or bool(rules.grpc)
        or rules.service_codes is not None
        or any(rule.grpc is not None for rule in rules.rules)
    )


def as_glob(regex: str) -> str:
    """The glob that a regular expression of a path was probably meant to be, "" where that can't be told."""
    glob = regex.removeprefix("^").removesuffix("$").replace("\\/", "/").replace("\\.", ".")
    glob = re.sub(
        r"\(\?:?|\\[dwS][+*]|\[\^/\][+*]|\[[\w-]+\][+*]", lambda found: "*" if found[0][0] != "(" else "(", glob
    )
    glob = re.sub(r"\.[*+]", "**", glob)
    glob = re.sub(r"\((\*+)\)", r"\1", glob)
    return glob if glob.startswith("/") and not re.search(r"[\^$()\[\]{}|+?\\]", glob) else ""


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
