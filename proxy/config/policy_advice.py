"""Advice about single policies: settings that have no effect there, or not the expected one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from proxy.config.plain_keys import in_the_clear
from proxy.config.policy_schema import DEFAULTS
from proxy.config.problems import Mark, Severity
from proxy.config.problems import Path as KeyPath
from proxy.config.quota_drain import draining_share, too_small
from proxy.config.settings import Settings
from proxy.config.yaml_tree import Map, mark_at
from proxy.retry.facts import IDEMPOTENT_METHODS, Class, FaultKind
from proxy.retry.policies.bucket_specs import BudgetSpec, QuotaSpec, RateSpec, ThrottleSpec
from proxy.retry.policies.dialect import Rule
from proxy.retry.policies.policy import Policy
from proxy.retry.strategies.backoff import delay

#: The number of attempts that do little harm even without waits between them.
FEW_ATTEMPTS = 3
#: Seconds: if all waits of a call together are shorter than this, they are not a backoff.
NO_TIME = 0.1
#: The most waits that are added up: more attempts than that are an error of another kind.
MOST_WAITS = 1000
#: The share of failures above which almost no success is left to refill a quota.
ALL = 0.999
#: Seconds from which a `max_delay` is longer than any app's patience.
LONG_DELAY = 3600.0
#: A share of failures below this was probably written as a fraction: `0.5`, meant to be a half, is 0.5 %.
SMALL_RATIO = 0.01
#: The most earlier routes that each is compared with: more than a file written by hand has. Without a bound, the work
#: would grow with the square of thousands of routes.
MOST_EARLIER = 200

#: The classes of failures that are retried.
_REPEATED = (Class.TRANSIENT, Class.THROTTLING, Class.TIMEOUT)

#: Warnings about keys of a policy: key and message.
_Said = Iterator[tuple[KeyPath, str]]


class PolicyAdvice:
    """The advice about the policies of one configuration. Each private method gives one piece of advice: it yields what
    is to be reported.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._noted: set[object] = set()  # the buckets of which a note was given
        self._used: set[Mark] | None = None  # the positions of the estimates of tokens in use, once they were asked for

    def on(self, policy: Policy) -> Iterator[tuple[KeyPath, str, Severity]]:
        """All advice about this policy, each with its severity."""
        notes = (self._drains, self._fleet)
        for advice in (
            self._timeouts,
            self._hedging,
            self._spread,
            self._bucket,
            self._drains,
            self._fleet,
            self._backoff,
            self._breaker,
            self._concurrency,
            self._attempts,
            self._client,
            self._max_delay,
            self._hold,
            self._tokens,
            self._lists,
            self._processed,
            self._rules,
            self._keys,
            self._secrets,
            self._grpc_strategy,
        ):
            severity: Severity = "note" if advice in notes else "warning"
            for key, message in advice(policy):
                yield key, message, severity

    def _timeouts(self, policy: Policy) -> _Said:
        limits = policy.timeouts
        for key, value in (
            *(("attempt", limits.attempt), ("first_byte", limits.first_byte), ("connect", limits.connect)),
        ):
            if key == "connect" and not mark_at(tree_of(self._settings, policy), ("timeouts", key)).line:
                continue
            if value is not None and limits.total is not None and value >= limits.total:
                message = f"has no effect: {value:g}s is not shorter than timeouts.total, {limits.total:g}s"
                yield ("timeouts", key), message

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
        elif strategy.extra is not None and self._is_fraction(policy, "strategy", "extra", strategy.extra):
            message = (
                f"grants hedges for {strategy.extra * 100:g} % of the calls (did you mean {strategy.extra * 1e4:g}%?)"
            )
            yield ("strategy", "extra"), message
        if policy.bucket is None and strategy.extra is None:
            yield ("strategy",), "hedges without a bucket: nothing limits the load that they add"
        if strategy.safe_methods:
            return
        methods = methods_of(self._settings, policy)
        if policy.classify.unsafe_methods == "always":
            if methods is None or methods - IDEMPOTENT_METHODS:
                message = "hedges unsafe methods too (unsafe_methods: always): a POST may be carried out several times"
                yield ("strategy",), message
        elif methods is not None and not methods & IDEMPOTENT_METHODS and not policy.idempotency_key.inject:
            yield ("strategy",), "has no effect: these methods are not idempotent, and such calls are never hedged"

    def _spread(self, policy: Policy) -> _Said:
        """Warn of `pushback.spread`, a key of earlier versions."""
        if "spread" in tree_of(self._settings, policy)["pushback"]:
            message = "no longer has an effect: held calls return by a slow start, and pushback.hold limits the wait"
            yield ("pushback", "spread"), message

    def _bucket(self, policy: Policy) -> _Said:
        strategy = policy.strategy
        spec = policy.bucket.spec if policy.bucket is not None else None
        if strategy.max_attempts < 2:
            upstream = self._settings.router.by_name.get(policy.upstream)
            if policy.bucket is not None and policy.bucket.name and upstream is not None and not upstream.routes:
                yield ("bucket",), f"has no effect: the strategy {strategy.name} never retries"
        elif isinstance(spec, QuotaSpec) and (message := too_small(spec)):
            yield ("bucket",), message
        elif isinstance(spec, ThrottleSpec) and spec.max_tokens <= 2:
            message = f"holds {spec.max_tokens:g}: the first failure leaves no more than half, and nothing is retried"
            yield ("bucket",), message
        elif isinstance(spec, BudgetSpec) and spec.percent == 0 and spec.min_per_second == 0:
            yield ("bucket",), "grants no retry: percent and min_per_second are both 0"
        elif isinstance(spec, BudgetSpec) and self._is_fraction(policy, "bucket", "percent", spec.percent / 100):
            message = f"grants retries for {spec.percent:g} % of the calls (did you mean {spec.percent * 100:g}%?)"
            yield ("bucket", "percent"), message

    def _is_fraction(self, policy: Policy, section: str, key: str, share: float) -> bool:
        """Whether a percentage, which stands for this `share`, is so small that it was probably meant as a fraction of
        1, and is written without a sign that says otherwise.
        """
        written = tree_of(self._settings, policy).sub(section).get(key)
        return 0 < share < SMALL_RATIO and not str(written).rstrip().endswith("%")

    def _drains(self, policy: Policy) -> _Said:
        """Report, as a note, the share of failing attempts at which a quota drains."""
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
        if share is None or key in self._noted or policy.upstream not in self._settings.router.by_name:
            return
        self._noted.add(key)
        name = f"the bucket {bucket.name}" if bucket.name else "the quota"
        message = (
            f"{name} drains where more than {share * 100:.1f} % of attempts fail "
            f"(a retry costs {spec.retry_cost:g}, {attempts} attempts)"
        )
        if spec.refill:
            message += f", but for the {spec.refill:g} tokens a second that it regains"
        yield ("bucket",), message

    def _fleet(self, policy: Policy) -> _Said:
        """Report, as a note, for how many processes a bucket in Redis is large enough. Each process keeps tokens ready
        for one retry at the highest price (of a rate bucket: for one attempt), and all processes together at most half
        of the bucket. Nothing is said of a rate that counts a language model's tokens: a call's price is known only
        when it comes.
        """
        found = [("bucket", policy.bucket), *(("rate", ref) for ref in policy.rates)]
        for key, ref in found:
            if ref is None or ref.spec.store != "redis" or (key, ref) in self._noted:
                continue
            if isinstance(ref.spec, QuotaSpec):
                price, least = ref.spec.dearest, ref.spec.dearest
                size, what, word, each = ref.spec.capacity, f"a retry ({price:g} tokens)", "capacity", "retry"
            elif isinstance(ref.spec, RateSpec) and ref.spec.unit == "attempts":
                price, least, size, what, word, each = 1.0, 2.0, ref.spec.burst, "a token", "burst", "attempt"
            else:
                continue
            if not 0 < least <= size < math.inf:
                continue
            self._noted.add((key, ref))
            name = f"the bucket {ref.name}" if ref.name else "the bucket"
            needs = f"a fleet of N processes needs a {word} of {2 * price:g} * N"
            count = math.floor(size / (2 * price))
            if count:
                many = f"{count} processes keep {what} ready each" if count > 1 else f"1 process keep {what} ready"
                message = f"{name} lets {many}; {needs}, and in a larger fleet every {each} asks Redis"
            else:
                message = f"{name} is too small to keep {what} ready: every {each} asks Redis; {needs}"
            yield (key,), message

    def _backoff(self, policy: Policy) -> _Said:
        where = ("strategy", "backoff", "multiplier")
        if policy.strategy.backoff.jitter == "decorrelated" and mark_at(tree_of(self._settings, policy), where).line:
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

    def _concurrency(self, policy: Policy) -> _Said:
        limit, total, room = policy.concurrency, policy.timeouts.total, self._settings.limits.waiting
        if limit is None:
            return
        written = tree_of(self._settings, policy)["concurrency"]
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
        """Warn if the policy allows fewer attempts than the provider's own SDK makes by default. A dialect pack says
        how many that are.
        """
        strategy = policy.strategy
        if strategy.kind == "none" or strategy.custom is not None or not policy.classify.own_dialects:
            return
        made = strategy.max_attempts
        more = [each for each in policy.classify.dialects if each.repeats is not None and each.repeats.attempts > made]
        if more:
            most = max((each.repeats for each in more if each.repeats is not None), key=lambda each: each.attempts)
            client = most.client.partition(",")[0]
            ours = "1 attempt" if made == 1 else f"{made} attempts"
            message = f"makes {ours}, and {client} makes {most.attempts}: set max_attempts: {most.attempts}"
            yield ("strategy",), message

    def _max_delay(self, policy: Policy) -> _Said:
        """Warn of a `max_delay` that is longer than any app waits: a call held for so long would be given up by its
        app.
        """
        longest = policy.pushback.max_delay
        if longest >= LONG_DELAY:
            message = f"lets an upstream hold a call for {longest / 3600:g} h; apps give up long before that: try 60s"
            yield ("pushback", "max_delay"), message

    def _hold(self, policy: Policy) -> _Said:
        """Warn of a `hold` that somebody wrote and that bounds no wait, and of one that lets no call wait for what
        `ahead` reads.
        """
        rules, total = policy.pushback, policy.timeouts.total
        if policy.mode != "enforce" or not mark_at(tree_of(self._settings, policy), ("pushback", "hold")).line:
            return
        waits = rules.cooldown == "wait" or policy.outage == "hold" or policy.limit is not None or rules.ahead
        if not waits:
            yield ("pushback", "hold"), "has no effect: cooldown, outage, concurrency and ahead let no call be held"
        elif total is not None and rules.hold >= total and policy.outage != "hold":  # `hold` says who comes late, too
            yield ("pushback", "hold"), f"has no effect: {rules.hold:g}s is not shorter than timeouts.total, {total:g}s"
        elif rules.ahead and not rules.hold and len(policy.endpoints) < 2 and policy.credentials is None:
            yield ("pushback", "ahead"), "holds no call: with hold: 0s none waits for what is left of a limit"

    def _tokens(self, policy: Policy) -> _Said:
        """Warn of an estimate of tokens that differs from the default, if no policy that has this estimate uses it."""
        if policy.tokens is not None:
            return
        tree = tree_of(self._settings, policy)
        for key in ("output", "bytes"):
            path: KeyPath = ("tokens", key)
            mark, is_default = mark_at(tree, path), tree["tokens"][key] == DEFAULTS.defaults["tokens"][key]
            if mark.line and not is_default and mark not in self._estimates():
                yield path, "has no effect: no bucket of `rate` here has a `unit` of tokens"

    def _estimates(self) -> set[Mark]:
        """The positions of the estimates of tokens that policies use."""
        if self._used is None:
            upstreams = self._settings.router.upstreams
            policies = [upstream.policy for upstream in upstreams]
            policies += [route.policy for upstream in upstreams for route in upstream.routes]
            trees = [tree_of(self._settings, each) for each in policies if each.tokens is not None]
            self._used = {mark_at(tree, ("tokens", key)) for tree in trees for key in ("output", "bytes")}
        return self._used

    def _lists(self, policy: Policy) -> _Said:
        """Warn of a status below 400 in a list of failures: it is a success, and would be retried."""
        statuses = policy.classify.statuses
        if statuses and (least := min(statuses)) < 400:
            message = f"{least} is not a failure, and would be retried: remove what is below 400 from the list"
            yield ("classify", statuses[least].value), message

    def _processed(self, policy: Policy) -> _Said:
        """Warn of a fault that leaves open what the upstream did, and that is classed as throttling. This class says
        that nothing was done, so a POST would be repeated after it (contract, section 4).
        """
        classify = policy.classify
        if classify.unsafe_methods not in ("unprocessed", "provider") or policy.strategy.max_attempts < 2:
            return
        found: list[tuple[KeyPath, FaultKind]]
        found = [(("classify", "throttling"), kind) for kind, as_ in classify.faults.items() if as_ is Class.THROTTLING]
        found += [
            (("classify", "rules", number), kind)
            for number, rule in enumerate(classify.rules)
            if rule.as_ is Class.THROTTLING
            for kind in sorted(rule.faults or ())
        ]
        unknown = [each for each in found if each[1] in (FaultKind.ATTEMPT_TIMEOUT, FaultKind.RESET)]
        methods = methods_of(self._settings, policy) if unknown else None
        if methods is not None and methods <= IDEMPOTENT_METHODS:
            return
        for key, kind in unknown:
            message = f"{kind} says that the request was not carried out, and a POST is repeated after it"
            yield key, f"as throttling, {message}: list it under timeout or transient"

    def _rules(self, policy: Policy) -> _Said:
        """Warn of a rule that never applies, because an earlier one takes every answer or fault that it matches; and of
        a rule without a condition, which has every success retried.
        """
        rules = policy.classify.rules
        for number, rule in enumerate(rules):
            earlier = next((each for each in rules[: min(number, MOST_EARLIER)] if takes_all(each, rule)), None)
            if earlier is not None:
                yield ("classify", "rules", number), f"is never reached: {earlier.because} takes all that it matches"
            elif rule.as_ in _REPEATED and _takes_successes(rule):
                message = "matches successes too, and has them retried: name a status, as in status: [4xx, 5xx]"
                yield ("classify", "rules", number), message

    def _keys(self, policy: Policy) -> _Said:
        """Warn if `scope` tells calls apart by the request field that `credentials` sets, since that field has
        redrive's own keys and not what apps send. Warn also if `credentials` would replace the AWS signature of an app.
        """
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
        yield from in_the_clear(tree_of(self._settings, policy))

    def _grpc_strategy(self, policy: Policy) -> _Said:
        """Warn of the strategy `grpc` if no list or dialect of the policy makes a grpc-status retryable: only HTTP
        failures would be retried.
        """
        if policy.strategy.kind == "grpc" and not names_grpc(policy):
            message = (
                "no grpc-status is retried: add the dialect, `dialects: [http, grpc]`, or list statuses in classify"
            )
            yield ("strategy",), message


def tree_of(settings: Settings, policy: Policy) -> Map:
    """The merged tree that a policy was made from."""
    return settings.provenance.policies[policy.upstream, policy.route]


def methods_of(settings: Settings, policy: Policy) -> frozenset[str] | None:
    """The methods that the policy's route asks for; None for any."""
    upstream = settings.router.by_name.get(policy.upstream)
    routes = upstream.routes if upstream is not None else ()
    return next((route.match.methods for route in routes if route.policy is policy), None)


def _takes_successes(rule: Rule) -> bool:
    """Whether a rule has no condition at all, and so matches every answer and fault."""
    named = (rule.statuses, rule.grpc, rule.faults, rule.event)
    return all(each is None for each in named) and not (rule.headers or rule.json or rule.xml)


def takes_all(earlier: Rule, later: Rule) -> bool:
    """Whether `earlier` matches every answer and fault that `later` matches, so that `later` never decides. Not every
    such case is found: False says nothing.
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


def names_grpc(policy: Policy) -> bool:
    """Whether the policy can retry gRPC failures: a dialect, a list or a rule of it gives at least one grpc-status a
    class. Also True if the policy makes only one attempt, since such a policy needs no warning.
    """
    rules = policy.classify
    return (
        policy.strategy.max_attempts == 1
        or rules.grpc_dialect
        or bool(rules.grpc)
        or rules.service_codes is not None
        or any(rule.grpc is not None for rule in rules.rules)
    )
