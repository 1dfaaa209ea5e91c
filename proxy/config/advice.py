"""Settings that are valid but have no effect, or not the expected one: `redrive check` and `explain` report them.

Advice never refuses a configuration. A setting that many upstreams inherit is reported once, where it was written. If
there are errors, advice is given only for upstreams that contain none and inherit none.

When a quota drains. Let each attempt fail with probability p, independently, with at most n attempts, a price c for a
retry and a refund r for a success at the first attempt. Retry k is made with probability p^k and pays c; the last price
comes back when a retried call succeeds, which is p - p^n of all calls. So a call earns (1 - p)·r and loses

    c·(p + … + p^(n-1)) - c·(p - p^n)  =  c·(p^2 + … + p^n),

and the level falls if the loss is greater than the gain. For r = 1 and n = 3 the two are equal at p = 32.1 % for c = 5,
at 24.6 % for c = 10 and at 21.5 % for c = 14. With `refund: flat` nothing comes back and every success, 1 - p^n of all
calls, returns r: the two are equal if r·(1 - p^n) = c·(p + … + p^(n-1)).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from proxy.config.addresses import as_glob
from proxy.config.plain_keys import in_the_clear, keys_in_the_clear
from proxy.config.problems import Mark, Problems, Severity
from proxy.config.problems import Path as KeyPath
from proxy.config.schema import FILE
from proxy.config.settings import Settings
from proxy.config.units import is_flag, is_off
from proxy.config.yaml_tree import Map, Seq, is_file, place
from proxy.extras import is_installed, remedy
from proxy.retry.backoff import delay
from proxy.retry.bucket_specs import BudgetSpec, QuotaSpec, RateSpec, ThrottleSpec
from proxy.retry.dialect import Rule
from proxy.retry.facts import IDEMPOTENT_METHODS
from proxy.retry.policy import Policy
from proxy.retry.routing import HostPattern, Upstream, shadows

#: The number of attempts that do little harm even without waits between them.
FEW_ATTEMPTS = 3
#: Seconds: if all waits of a call together are shorter than this, they are not a backoff.
NO_TIME = 0.1
#: The most waits that are added up: more attempts than that are an error of another kind.
MOST_WAITS = 1000
#: The most attempts whose cost to a quota is counted: further ones change no figure that is shown.
MOST_TERMS = 1_000_000
#: The share of failures above which almost no success is left to refill a quota.
ALL = 0.999
#: Seconds from which a `max_delay` is longer than any app's patience.
LONG_DELAY = 3600.0
#: A share of failures below this was probably written as a fraction: `0.5`, meant to be a half, is 0.5 %.
SMALL_RATIO = 0.01
#: Characters that are usual in regular expressions and rare in paths.
_REGEX = re.compile(r"^\^|\$$|\.[*+]|\\[A-Za-z.\/]|[()|]|\[[^\[\]]*\][*+]?|\w\+$")

#: A percent-encoded octet.
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")

#: Keys of a file that do not affect its policies, even if they contain an error.
_APART = FILE.keys.keys() - {"include", "buckets", "strategies", "defaults", "upstreams", "via_proxy", "redis"}

#: The most earlier routes that each is compared with: more than a file written by hand has. Without a bound, the work
#: would grow with the square of thousands of routes.
MOST_EARLIER = 200


#: Warnings about keys of a policy (key, message), and warnings about places in a file (place, path, message).
_Said = Iterator[tuple[KeyPath, str]]
_Placed = Iterator[tuple[Mark, KeyPath, str]]


def advise(settings: Settings, placed: list[tuple[Policy, Mark, KeyPath]], tree: Map, problems: Problems) -> None:
    """Report all advice about a compiled configuration. `placed` has each policy with its place; `tree` contains the
    included files too.
    """
    errors = [error.path for error in problems.errors]
    if all(path.startswith("upstreams.") or path.partition(".")[0] in _APART for path in errors):
        _Advice(settings, placed, tree, problems).all(errors)


class _Advice:
    """The advice about one configuration. Each method but `all` and the helpers at the end gives one piece of advice:
    it yields what is to be reported.
    """

    def __init__(
        self, settings: Settings, placed: list[tuple[Policy, Mark, KeyPath]], tree: Map, problems: Problems
    ) -> None:
        self._settings = settings
        self._upstreams = settings.router.upstreams
        self._placed = placed
        self._tree = tree
        self._problems = problems
        self._reported: set[object] = set()
        policies = (policy for upstream in self._upstreams for policy in upstream.policies)
        self._fallen_back_to = {entry.to for policy in policies for entry in policy.fallback}
        self._routes_at = {policy: (at, path) for policy, at, path in self._placed if "routes" in path}

    def all(self, errors: list[str]) -> None:
        """Report all advice about the upstreams to which none of `errors`, the paths of errors, belongs."""
        names = (each.name for each in self._upstreams)
        wrong = {name for name in names if any(path.startswith(f"upstreams.{name}") for path in errors)}
        of_policies = (
            self._timeouts,
            self._hedging,
            self._spread,
            self._bucket,
            self._drains,
            self._fleet,
            self._backoff,
        )
        notes = (self._drains, self._fleet, self._client)
        for policy, at, path in self._placed:
            for advice in (
                *of_policies,
                self._breaker,
                self._concurrency,
                self._attempts,
                self._client,
                self._max_delay,
                self._lists,
                self._rules,
                self._keys,
                self._secrets,
                self._grpc_strategy,
            ):
                for key, message in advice(policy) if policy.upstream not in wrong else ():
                    self._report(policy, at, path, key, message, "note" if advice in notes else "warning")
        for upstream in self._upstreams:
            of_upstreams = (self._routes, self._paths, self._reach, self._keys_in_tunnels, self._in_the_clear)
            for look in (*of_upstreams, self._without_tls, self._grpc, self._plain_keys):
                for found in look(upstream) if upstream.name not in wrong else ():
                    self._problems.warn(*found)
        for compare in (self._hosts, self._taken_hosts, self._services, self._redis, self._reads):
            for found in compare() if not any(path.startswith("upstreams.") for path in errors) else ():
                self._problems.warn(*found)

    def _timeouts(self, policy: Policy) -> _Said:
        limits = policy.timeouts
        for key, value in (
            *(("attempt", limits.attempt), ("first_byte", limits.first_byte), ("connect", limits.connect)),
        ):
            if key == "connect" and not place(self._tree_of(policy), ("timeouts", key)).line:
                continue
            if value is not None and limits.total is not None and value >= limits.total:
                message = f"has no effect: {value:g}s is not shorter than timeouts.total, {limits.total:g}s"
                yield ("timeouts", key), message

    def _concurrency(self, policy: Policy) -> _Said:
        limit, total, room = policy.concurrency, policy.timeouts.total, self._settings.limits.waiting
        if limit is None:
            return
        written = self._tree_of(policy)["concurrency"]
        if total is not None and limit.queue and limit.wait >= total and "wait" in written:
            yield (
                ("concurrency", "wait"),
                f"has no effect: {limit.wait:g}s is not shorter than timeouts.total, {total:g}s",
            )
        if limit.queue > room // 2 and "queue" in written:
            yield ("concurrency", "queue"), f"is more than can wait: half of limits.waiting, {room // 2} calls"
        strategy = policy.strategy
        if limit.max == 1 and strategy.hedging_delay is not None and strategy.max_attempts > 1:
            yield ("concurrency", "max"), "leaves no room for a hedge: nothing is sent during an attempt"

    def _reads(self) -> _Placed:
        """Warn of a dialect that can recognise calls that only read, if none of the policies that list it retries more
        because of that.
        """
        listed: dict[Mark, tuple[KeyPath, list[str]]] = {}
        for policy, at, path in self._placed:
            if policy.classify.reads:
                mark = place(self._tree_of(policy), ("dialects",))
                listed.setdefault(mark if mark.line else at, ((*path, "dialects"), []))[1].append(
                    self._why_no_read_helps(policy)
                )
        for mark, (path, whys) in listed.items():
            if mark.line and all(whys):
                yield mark, path, whys[0]

    def _why_no_read_helps(self, policy: Policy) -> str:
        """The reason why a policy retries no more by a dialect that can recognise calls that only read; "" if it
        does.
        """
        pack, methods = policy.classify.reads[0][0], self._methods_of(policy)
        if methods is not None and "POST" not in methods:
            return f"{pack} has no effect: its reads are POSTs, and this route takes none"
        if policy.strategy.max_attempts < 2:
            return f"{pack} has no effect: the strategy {policy.strategy.name} never retries"
        if policy.classify.unsafe_methods == "always":
            return f"{pack} has no effect: unsafe_methods: always repeats every POST, and not its reads alone"
        if policy.idempotency_key.inject:
            return f"{pack} has no effect: idempotency_key.inject lets every POST be repeated, and not its reads alone"
        return ""

    def _methods_of(self, policy: Policy) -> frozenset[str] | None:
        """The methods that the policy's route asks for; None for any."""
        upstream = self._settings.router.by_name.get(policy.upstream)
        routes = upstream.routes if upstream is not None else ()
        return next((route.match.methods for route in routes if route.policy is policy), None)

    def _spread(self, policy: Policy) -> _Said:
        """Warn of `pushback.spread`, a key of earlier versions."""
        if "spread" in self._tree_of(policy)["pushback"]:
            message = "no longer has an effect: held calls return by a slow start, and pushback.hold limits the wait"
            yield ("pushback", "spread"), message

    def _hedging(self, policy: Policy) -> _Said:
        strategy = policy.strategy
        if strategy.hedging_delay is None or strategy.max_attempts < 2:
            return
        least = min((each for each in strategy.non_fatal if isinstance(each, int)), default=400)
        if least < 400:
            message = (
                f"{least} is not a failure, and hedges would go on from it: remove what is below 400 from the list"
            )
            yield ("strategy", "non_fatal"), message
        if strategy.extra == 0:
            yield ("strategy", "extra"), "grants no hedge: nothing is sent during an attempt"
        if policy.bucket is None and strategy.extra is None:
            yield ("strategy",), "hedges without a bucket: nothing limits the load that they add"
        if strategy.safe_methods:
            return
        methods = self._methods_of(policy)
        if policy.classify.unsafe_methods == "always":
            if methods is None or methods - IDEMPOTENT_METHODS:
                message = "hedges unsafe methods too (unsafe_methods: always): a POST may be carried out several times"
                yield ("strategy",), message
        elif methods is not None and not methods & IDEMPOTENT_METHODS and not policy.idempotency_key.inject:
            yield ("strategy",), "has no effect: these methods are not idempotent, and such calls are never hedged"

    def _bucket(self, policy: Policy) -> _Said:
        strategy = policy.strategy
        spec = policy.bucket.spec if policy.bucket is not None else None
        if strategy.max_attempts < 2:
            upstream = self._settings.router.by_name.get(policy.upstream)
            if policy.bucket is not None and policy.bucket.name and upstream is not None and not upstream.routes:
                yield ("bucket",), f"has no effect: the strategy {strategy.name} never retries"
        elif isinstance(spec, QuotaSpec) and (message := _too_small(spec)):
            yield ("bucket",), message
        elif isinstance(spec, ThrottleSpec) and spec.max_tokens <= 2:
            message = f"holds {spec.max_tokens:g}: the first failure leaves no more than half, and nothing is retried"
            yield ("bucket",), message
        elif isinstance(spec, BudgetSpec) and spec.percent == 0 and spec.min_per_second == 0:
            yield ("bucket",), "grants no retry: percent and min_per_second are both 0"

    def _drains(self, policy: Policy) -> _Said:
        """Note the share of failures at which a quota drains."""
        bucket, attempts = policy.bucket, policy.strategy.max_attempts
        if bucket is None or policy.strategy.custom is not None or policy.strategy.hedging_delay is not None:
            return
        spec = bucket.spec
        if not isinstance(spec, QuotaSpec) or spec.retry_cost > spec.capacity:
            return
        share = draining_share(spec.retry_cost, attempts, spec.success_refund, flat=spec.flat_refund)
        if share is not None and share > ALL:
            return
        key = (bucket.name, spec, attempts)
        if share is None or key in self._reported or policy.upstream not in self._settings.router.by_name:
            return
        self._reported.add(key)
        name = f"the bucket {bucket.name}" if bucket.name else "the quota"
        message = (
            f"{name} drains where more than {share * 100:.1f} % of attempts fail "
            f"(a retry costs {spec.retry_cost:g}, {attempts} attempts)"
        )
        if spec.refill:
            message += f", but for the {spec.refill:g} tokens a second that it regains"
        yield ("bucket",), message

    def _fleet(self, policy: Policy) -> _Said:
        """Note the number of processes for which a bucket in Redis is large enough: each keeps the dearest price ready,
        and together they keep at most half of the tokens so; in an outage each has its share.
        """
        found = [("bucket", policy.bucket), *(("rate", ref) for ref in policy.rates)]
        for key, ref in found:
            if ref is None or ref.spec.store != "redis" or (key, ref) in self._reported:
                continue
            if isinstance(ref.spec, QuotaSpec):
                price = max(ref.spec.retry_cost, ref.spec.timeout_cost, ref.spec.throttling_cost)
                size, what, word = ref.spec.capacity, f"a retry ({price:g} tokens)", "capacity"
            elif isinstance(ref.spec, RateSpec):
                price, size, what, word = 1.0, ref.spec.burst, "a token", "burst"
            else:
                continue
            if not 0 < 2 * price <= size < math.inf:
                continue
            self._reported.add((key, ref))
            name = f"the bucket {ref.name}" if ref.name else "the bucket"
            each = "retry" if word == "capacity" else "attempt"
            message = (
                f"{name} lets {math.floor(size / (2 * price))} processes keep {what} ready each; a fleet of N "
                f"processes needs a {word} of {2 * price:g} * N, and in a larger fleet every {each} asks Redis"
            )
            yield (key,), message

    def _backoff(self, policy: Policy) -> _Said:
        where = ("strategy", "backoff", "multiplier")
        if policy.strategy.backoff.jitter == "decorrelated" and place(self._tree_of(policy), where).line:
            yield where, "has no effect: jitter decorrelated does not multiply"

    def _breaker(self, policy: Policy) -> _Said:
        """Warn of a circuit breaker that opens after very few failures."""
        breaker, most = policy.circuit_breaker, policy.strategy.max_attempts
        if breaker is None or policy.route:
            return
        if breaker.failure_ratio < SMALL_RATIO:
            percent = breaker.failure_ratio * 100
            message = f"opens where {percent:g} % fail (did you mean {percent * 100:g}%?)"
            yield ("circuit_breaker", "failure_ratio"), message
        if breaker.minimum_attempts <= most and most > 1:
            message = f"one call that fails can open it: a call makes {most} attempts"
            yield ("circuit_breaker", "minimum_attempts"), message

    def _attempts(self, policy: Policy) -> _Said:
        """Warn of many attempts with almost no wait between them: no outage is over in so short a time."""
        strategy = policy.strategy
        if strategy.max_attempts <= FEW_ATTEMPTS or strategy.custom is not None or strategy.hedging_delay is not None:
            return
        longest = replace(strategy.backoff, jitter="none")
        waits = (delay(longest, number, 0.0) for number in range(1, min(strategy.max_attempts, MOST_WAITS)))
        if sum(waits) < NO_TIME:
            message = f"makes {strategy.max_attempts} attempts with next to no wait between them: give backoff a base"
            yield ("strategy",), message

    def _client(self, policy: Policy) -> _Said:
        """Warn where a provider's own client makes more attempts than the policy that stands in for it."""
        strategy = policy.strategy
        if strategy.kind == "none" or strategy.custom is not None or not policy.classify.own_dialects:
            return
        made = strategy.max_attempts
        more = [each for each in policy.classify.dialects if each.repeats is not None and each.repeats.attempts > made]
        if more:
            most = max((each.repeats for each in more if each.repeats is not None), key=lambda each: each.attempts)
            client = most.client.partition(",")[0]
            message = f"makes {made} attempts, and {client} makes {most.attempts}: set max_attempts: {most.attempts}"
            yield ("strategy",), message

    def _max_delay(self, policy: Policy) -> _Said:
        """Warn of a pushback limit that is longer than any app waits."""
        longest = policy.pushback.max_delay
        if longest >= LONG_DELAY:
            message = f"lets an upstream hold a call for {longest / 3600:g} h; apps give up long before that: try 60s"
            yield ("pushback", "max_delay"), message

    def _keys(self, policy: Policy) -> _Said:
        """Warn of credentials in a field that another setting reads."""
        credentials = policy.credentials
        if credentials is None:
            return
        if policy.scope.by == "header" and policy.scope.header == credentials.name:
            message = (
                f"{credentials.header} is set by `credentials`, not by apps: leave scope out, and rate, limiter and "
            )
            yield ("scope",), message + "concurrency are kept for each key"
        if credentials.name == "authorization" and any(each.name == "aws" for each in policy.classify.dialects):
            message = "replace an AWS signature: where apps sign, leave the field to them"
            yield ("credentials", "header"), message

    def _secrets(self, policy: Policy) -> _Said:
        yield from in_the_clear(self._tree_of(policy))

    def _plain_keys(self, upstream: Upstream) -> _Placed:
        yield from keys_in_the_clear(*self._written(upstream))

    def _grpc_strategy(self, policy: Policy) -> _Said:
        """Warn of gRPC's strategy if no grpc-status is retried: it retries HTTP failures alone."""
        if policy.strategy.kind == "grpc" and not _names_grpc(policy):
            message = (
                "no grpc-status is retried: add the dialect, `dialects: [http, grpc]`, or list statuses in classify"
            )
            yield ("strategy",), message

    def _lists(self, policy: Policy) -> _Said:
        """Warn of a status below 400 in a list of failures."""
        statuses = policy.classify.statuses
        if statuses and (least := min(statuses)) < 400:
            message = f"{least} is not a failure, and would be retried: remove what is below 400 from the list"
            yield ("classify", statuses[least].value), message

    def _rules(self, policy: Policy) -> _Said:
        """Warn of a rule that never applies, because an earlier one takes every answer or fault that it matches."""
        rules = policy.classify.rules
        for number, rule in enumerate(rules):
            earlier = next((each for each in rules[: min(number, MOST_EARLIER)] if takes_all(each, rule)), None)
            if earlier is not None:
                yield ("classify", "rules", number), f"is never reached: {earlier.because} takes all that it matches"

    def _routes(self, upstream: Upstream) -> _Placed:
        """Warn of a route that is never reached, because an earlier one takes all its calls. Methods of a service
        config are not examined: they are in the right order already.
        """
        for number, route in enumerate(upstream.routes):
            before = upstream.routes[: min(number, MOST_EARLIER)]
            earlier = next((each for each in before if shadows(each.match, route.match)), None)
            if route.policy in self._routes_at and earlier is not None:
                other = self._routes_at.get(earlier.policy)
                line = f" on line {other[0].line}" if other is not None and other[0].line else ""
                message = f"is never reached: the route {earlier.policy.route}{line} takes all its calls"
                yield *self._routes_at[route.policy], message

    def _paths(self, upstream: Upstream) -> _Placed:
        """Warn of a route's path that is written as a regular expression, or as it is encoded in urls."""
        for route in upstream.routes:
            for path in route.match.paths if route.policy in self._routes_at else ():
                if sign := _REGEX.search(path):
                    glob = as_glob(path)
                    hint = f" (did you mean {glob}?)" if glob else ""
                    message = (
                        f"{sign[0]} reads like a regular expression; here * is any text within a segment, ** across"
                    )
                    message += hint
                elif "?" in path:
                    message = "a path is compared without its query: remove the ? and what follows it"
                elif _ENCODED.search(path):
                    message = "a path is compared percent-decoded: write the characters themselves"
                else:
                    continue
                at, where = self._routes_at[route.policy]
                where = (*where, "match", "path")
                mark = place(self._tree, where)
                near = mark.file == at.file and mark.line >= at.line  # else the route is inherited from defaults
                yield mark if near else at, where, message

    def _reach(self, upstream: Upstream) -> _Placed:
        tree, path = self._written(upstream)
        at = self._tree["upstreams"].keys_at[upstream.name]
        if not upstream.target.endpoints:
            if not upstream.hosts:
                yield at, path, "is never reached: it has neither url nor hosts"
            elif "prefix" in tree and not is_off(tree["prefix"]):
                message = "has no effect: without url, a call by prefix has nowhere to go"
                yield tree.values_at["prefix"], (*path, "prefix"), message
        elif not (upstream.hosts or upstream.prefix or upstream.services or upstream.name in self._fallen_back_to):
            yield at, path, "is never reached: it has no hosts, no prefix and no services, and no fallback names it"
        if upstream.connect == "intercept":
            mark, path, ca = tree.values_at.get("connect", at), (*path, "connect"), self._settings.ca
            if not is_installed("intercept"):
                yield mark, path, f"needs the package cryptography: {remedy('intercept')}"
            if not (is_file(ca.cert) and is_file(ca.key)):
                yield mark, path, f"needs the local CA, {ca.cert}: redrive ca init makes it"

    def _keys_in_tunnels(self, upstream: Upstream) -> _Placed:
        """Warn of credentials that no call gets, since nothing in a blind tunnel can be read or changed."""
        if upstream.policy.credentials is not None and upstream.connect == "tunnel":
            tree, path = self._written(upstream)
            message = "carries no credentials: nothing in a blind tunnel can be read; make it intercept"
            mark = tree.values_at.get("connect") or tree.keys_at["credentials"]
            yield mark, (*path, "connect"), message

    def _without_tls(self, upstream: Upstream) -> _Placed:
        """Warn of TLS settings of an upstream whose urls are all without TLS."""
        endpoints, (tree, path) = upstream.target.endpoints, self._written(upstream)
        if not endpoints or any(end.scheme == "https" for end in endpoints):
            return
        for key in ("client_cert", "verify"):
            if key in tree and not (key == "verify" and is_flag(tree[key])):
                yield tree.keys_at[key], (*path, key), "has no effect: no url of it is https"

    def _in_the_clear(self, upstream: Upstream) -> _Placed:
        """Warn of a host pattern for https (port 443) of an upstream whose url is not https."""
        if not all(end.scheme == "https" or end.unix for end in upstream.target.endpoints):
            for mark, where, host in self._written_hosts(upstream):
                if host.port == 443:
                    message = f"an https request for {host} would leave in the clear: url is http; make it https"
                    yield mark, where, message

    def _grpc(self, upstream: Upstream) -> _Placed:
        """Warn of an upstream of gRPC services that no gRPC call can reach, or for which no gRPC status is retried."""
        if not upstream.services:
            return
        tree, path = self._written(upstream)
        mark = tree.values_at["services"]
        if upstream.target.protocol == "http/1.1":
            message = "protocol is http/1.1: every gRPC call on HTTP/2 is answered UNIMPLEMENTED"
            yield tree.values_at.get("protocol", mark), (*path, "protocol"), message
        elif not any(_names_grpc(policy) for policy in upstream.policies):
            message = (
                "no grpc-status is retried: add the dialect, `dialects: [http, grpc]`, or list statuses in classify"
            )
            yield mark, (*path, "services"), message

    def _hosts(self) -> _Placed:
        """Warn of a host that an earlier upstream has already. Upstreams that lose the hosts of their urls to the same
        others are reported together.
        """
        first: dict[HostPattern, str] = {}
        by_prefix: dict[tuple[str, ...], list[tuple[Mark, KeyPath, str, str]]] = {}
        for upstream in self._upstreams:
            lost = [host for host in upstream.hosts if host in first]
            taken = sorted({first[host] for host in lost})
            for host in upstream.hosts:
                first.setdefault(host, upstream.name)
            if not lost:
                continue
            tree, path = self._written(upstream)
            key, all_lost = "hosts" if "hosts" in tree else "url", len(lost) == len(upstream.hosts)
            mark, path = tree.values_at[key], (*path, key)
            have = "has" if len(taken) == 1 else "have"
            message = f"{' and '.join(taken)} already {have} {', '.join(dict.fromkeys(map(str, lost)))}"
            if key == "url" and upstream.prefix and all_lost:
                by_prefix.setdefault(tuple(taken), []).append((mark, path, message, upstream.name))
            elif all_lost:
                still = f"{upstream.name} is reached only by its prefix" if upstream.prefix else "it comes first"
                yield mark, path, f"{message}: {still}"
            elif key == "hosts":
                yield mark, path, message
        for shared in by_prefix.values():
            mark, path, message, name = shared[0]
            names = ", ".join(each[3] for each in shared[:3]) + (f" and {len(shared) - 3} more" if shared[3:] else "")
            alone = (
                f"{name} is reached only by its prefix"
                if len(shared) == 1
                else f"{names} are reached only by their prefixes"
            )
            yield mark, path, f"{message}: {alone}"

    def _taken_hosts(self) -> _Placed:
        """Warn of a host pattern written without a port (any port) if another upstream's url implies the same host with
        a port: the pattern with a port is longer and wins, so the other upstream gets those calls.
        """
        implied: dict[str, list[tuple[Upstream, HostPattern]]] = {}
        for upstream in self._upstreams:
            for host in upstream.hosts if "hosts" not in self._written(upstream)[0] else ():
                implied.setdefault(host.host, []).append((upstream, host))
        for upstream in self._upstreams:
            for mark, where, host in self._written_hosts(upstream) if implied else ():
                taken = implied.get(host.host, []) if host.port is None else []
                if taken:
                    names = ", ".join(dict.fromkeys(each.name for each, _ in taken))
                    patterns = ", ".join(dict.fromkeys(str(pattern) for _, pattern in taken))
                    yield mark, where, f"{names} takes {patterns} first, the hosts of its url; give it hosts of its own"

    def _services(self) -> _Placed:
        """Warn of a gRPC service that an earlier upstream has already."""
        first: dict[str, str] = {}
        for upstream in self._upstreams:
            taken = {service: first[service] for service in upstream.services if service in first}
            for service in upstream.services:
                first.setdefault(service, upstream.name)
            if taken:
                owners, names = " and ".join(sorted(set(taken.values()))), ", ".join(taken)
                tree, path = self._written(upstream)
                yield tree.values_at["services"], (*path, "services"), f"{owners} already has {names}: it comes first"

    def _redis(self) -> _Placed:
        """Warn of buckets in Redis if no Redis client is installed."""
        if not self._settings.uses_redis or is_installed("redis"):
            return
        stores: Iterator[tuple[Mark, KeyPath]] = (
            (tree.values_at["store"], ("buckets", name, "store"))
            for name, tree in self._tree.sub("buckets").items()
            if tree.get("store") == "redis"
        )
        at = next(stores, (self._tree.mark, ("buckets",)))
        yield *at, f"needs the package redis, or the bucket is this process's own: {remedy('redis')}"

    def _written(self, upstream: Upstream) -> tuple[Map, KeyPath]:
        return self._tree["upstreams"][upstream.name], ("upstreams", upstream.name)

    def _written_hosts(self, upstream: Upstream) -> list[tuple[Mark, KeyPath, HostPattern]]:
        """The entries of a written `hosts`, each with its place; none if `hosts` is the default."""
        tree, path = self._written(upstream)
        written, path = tree.get("hosts"), (*path, "hosts")
        if not isinstance(written, Seq):
            return [(tree.values_at["hosts"], path, host) for host in upstream.hosts] if written is not None else []
        marked = zip(written.marks, upstream.hosts, strict=True)
        return [(mark, (*path, number), host) for number, (mark, host) in enumerate(marked)]

    def _tree_of(self, policy: Policy) -> Map:
        return self._settings.provenance.policies[policy.upstream, policy.route]

    def _report(self, policy: Policy, at: Mark, path: KeyPath, key: KeyPath, message: str, severity: Severity) -> None:
        """Report advice at its key or, if the file does not have the key, at the upstream or route. Equal advice for a
        place is reported once.
        """
        mark = place(self._tree_of(policy), key)
        mark = mark if mark.line else at
        if mark.line and (mark, key, message) not in self._reported:
            self._reported.add((mark, key, message))
            self._problems.add(mark, (*path, *key), message, severity)


def takes_all(earlier: Rule, later: Rule) -> bool:
    """Whether every answer and fault that `later` matches is one that `earlier` matches. True is certain; False may be
    wrong.
    """
    for wide, narrow in (
        (earlier.statuses, later.statuses),
        (earlier.grpc, later.grpc),
        (earlier.faults, later.faults),
    ):
        if wide is not None and (narrow is None or not narrow <= wide):
            return False
    for asked, parts in ((earlier.headers, later.headers), (earlier.json, later.json), (earlier.xml, later.xml)):
        if not set(asked) <= {*parts, *((place, "*") for place, _ in parts)}:
            return False
    if earlier.event is not None and earlier.event != later.event:
        return False
    # Below 400, a body is read only if a rule names the status.
    return not (earlier.needs_body and earlier.statuses is None and min(later.statuses or (400,)) < 400)


def _names_grpc(policy: Policy) -> bool:
    """Whether a policy gives any grpc-status a class, or retries nothing at all."""
    rules = policy.classify
    return (
        policy.strategy.max_attempts == 1
        or rules.grpc_dialect
        or bool(rules.grpc)
        or rules.service_codes is not None
        or any(rule.grpc is not None for rule in rules.rules)
    )


def _too_small(spec: QuotaSpec) -> str:
    """The retries that a quota can never pay for, as one line; "" if it can pay for all."""
    prices = {"": spec.retry_cost, " after a timeout": spec.timeout_cost}
    prices[" after a throttling error"] = spec.throttling_cost
    if len(set(prices.values())) == 1:
        prices = {"": spec.retry_cost}
    dear = [f"a retry{when} costs {price:g}" for when, price in prices.items() if price > spec.capacity]
    return f"holds {spec.capacity:g}, but {' and '.join(dear)}: no retry is ever granted" if dear else ""


@lru_cache(maxsize=1024)
def draining_share(cost: float, attempts: int, refund: float = 1, *, flat: bool = False) -> float | None:
    """The share of failing attempts, from 0 to 1, above which a quota drains; None if it never does."""
    if cost <= 0 or attempts < 2:
        return None

    last = min(attempts, MOST_TERMS)

    def retries(p: float, first: int, end: int) -> float:
        """The sum of p**k, k from `first` to below `end`, in closed form: `max_attempts` may be any number."""
        return (p**first - p**end) / (1 - p) if p < 1 else end - first

    def balance(p: float) -> float:
        if flat:
            return refund * (1 - p**last) - cost * retries(p, 1, last)
        return refund * (1 - p) - cost * retries(p, 2, last + 1)

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if balance(middle) > 0 else (low, middle)
    return high
