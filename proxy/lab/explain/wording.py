"""The wording of explanations: definitions and reasons in one clause each. Nothing is decided here; decisions come from
records, verdicts and outcomes, and are put into words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from proxy.config.quota_drain import draining_share
from proxy.retry.answers.classification import KNOWN_BY_KEY, SERVICE_CONFIG, read_by, why_no_read
from proxy.retry.budgets.hedges import FEWEST
from proxy.retry.budgets.token_estimate import estimate
from proxy.retry.call.call_state import CallState
from proxy.retry.call.fallback import SAFE_METHODS, stays
from proxy.retry.call.reasons import as_written
from proxy.retry.facts import GRPC_STATUS_NAMES, IDEMPOTENT_METHODS, Fault, Progress, Request, Verdict, forwarded
from proxy.retry.policies.bucket_specs import QUIET_REFILL, BucketRef, BucketSpec, QuotaSpec, RateSpec
from proxy.retry.policies.policy import (
    Backoff,
    Balance,
    BreakerSpec,
    Concurrency,
    EndpointShare,
    KeyFile,
    Policy,
    Strategy,
)

_JITTER = {
    "none": "{cap}",
    "full": "r · {cap}",
    "equal": "(0.5 + 0.5·r) · {cap}",
    "proportional": "(0.8 + 0.4·r) · {cap}",
}


#: The units of rate buckets, in words.
_UNITS = {
    "attempts": "attempts", "tokens": "tokens", "requested": "requested tokens", "prompt": "prompt tokens",
    "output": "output tokens",
}  # fmt: skip


def between(least: float, greatest: float, *, to: str = " to ") -> str:
    """The range of seconds from `least` to `greatest` in words, or one value if both are the same. `to`: the text
    between them.
    """
    low, high = as_written(min(least, greatest)), as_written(max(least, greatest))
    return low if low == high else f"{low}{to}{high}"


def strategy(made: Strategy) -> str:
    """A strategy in words: its kind, number of attempts and waits."""
    named = made.name != made.kind and "(" not in made.name  # an inline mapping is called by what it says
    kind = f"{made.name} ({made.kind})" if named else made.kind
    if made.custom is not None:
        return f"{made.name}: {made.max_attempts} attempts; your own code says how long it waits (two tries are shown)"
    if made.max_attempts == 1:
        return f"{kind}: one attempt, no retries"
    text = f"{kind}: {made.max_attempts} attempts"
    if made.hedging_delay is not None:
        return f"{text}, the next one {_hedging(made)}"
    text += f"; retry n waits {backoff(made.backoff)}"
    if made.exact_pushback:
        text += ", or exactly a pushback"
    if made.pushback_clamp is not None:
        text += f", a pushback clamped to {as_written(made.pushback_clamp)} more"
    if made.paced:
        text += "; a rate limiter " + ("also delays first attempts" if made.delay_first else "delays retries")
    return text


def _hedging(made: Strategy) -> str:
    """The times at which hedges are sent, and their bound, in words. A percentile of latencies is known only to a
    running proxy, so it is named and not computed.
    """
    when = f"every {as_written(made.hedging_delay)}"
    if made.hedging_percentile is not None:
        when = (
            f"after p{made.hedging_percentile:g} of the times that the scope's successes took in the last minute "
            f"(not known offline; with fewer than {FEWEST} of them there is no hedge)"
        )
    if made.extra is None:
        return when
    return f"{when}; hedges are at most {made.extra * 100:g} % of the calls of the last minute"


def backoff(made: Backoff) -> str:
    """The formula by which the waits of a backoff are computed, with the backoff's numbers, in words."""
    if made.jitter == "decorrelated":
        return f"min({as_written(made.max)}, {as_written(made.base)} + r · (3 · previous − {as_written(made.base)}))"
    cap = f"min({as_written(made.max)}, {as_written(made.base)} · {made.multiplier:g}^(n-1))"
    text = _JITTER[made.jitter].format(cap=cap)
    if made.throttling_base not in (None, made.base):
        text += f" ({as_written(made.throttling_base)} in place of {as_written(made.base)} after throttling)"
    return text


def turns(endpoints: Sequence[EndpointShare], balance: Balance) -> str:
    """The order in which endpoints get the calls, in words; "" if they simply take turns."""
    least = "the fewest attempts under way" if balance == "least" and len(endpoints) > 1 else ""
    if all(each.weight == 1 and each.priority == 0 for each in endpoints):
        return least
    levels: dict[int, list[str]] = {}
    for each in endpoints:
        levels.setdefault(each.priority, []).append(f"{each.label} ({each.weight})")
    first, *later = (" and ".join(levels[priority]) for priority in sorted(levels))
    how = f"{least} for its weight" if least else "by weight"
    return "; ".join([f"{first}, {how}", *(f"while all of these are passed over: {each}" for each in later)])


def breaker(made: BreakerSpec) -> str:
    """The conditions on which a circuit breaker opens, and for how long, in words."""
    many = f"{made.minimum_attempts} attempts have" if made.minimum_attempts > 1 else "one attempt has"
    return (
        f"an endpoint is passed over once {many} ended within {as_written(made.window)} and "
        f"{made.failure_ratio * 100:g} % of them were transient or timeout; after {as_written(made.open)} a probe goes "
        "there"
    )


def bucket(ref: BucketRef | None) -> str:
    """A bucket's name, kind and prices, in words; None is a policy without a bucket."""
    if ref is None:
        return "none: only the number of attempts limits retries"
    return f"{ref.name or 'its own'}: {store(ref.spec)}"


def tokens(policy: Policy) -> str:
    """The estimate of an attempt's price in a language model's tokens, in words; "" if no bucket counts them."""
    rules = policy.tokens
    if rules is None:
        return ""
    kept = any(isinstance(ref.spec, RateSpec) and ref.spec.unit == "requested" for ref in policy.rates)
    return (
        f"an attempt costs its body, {rules.bytes:g} bytes a token, and the output's maximum, {rules.output:g} where "
        "the request names none and too few outputs of its model are known; what its answer used is what is paid"
        f"{', but of requested tokens the whole output' if kept else ''}"
    )


def estimated(policy: Policy, body: bytes) -> str:
    """The price that is expected of an attempt whose request has this body, in words; "" if the body is empty, or if
    the policy counts no tokens of a language model.
    """
    rules = policy.tokens
    if rules is None or not body:
        return ""
    found = estimate(rules, (body,), len(body), None, 0.0)
    model = f" of {found.model}" if found.model else ""
    said = f"{found.prompt:g} of the prompt + {found.output:g} of the output{model} = {found.price:g} tokens"
    if not _is_json(body):
        said += "; the body is not JSON, so its maximum is not known"
    if found.price > rules.burst:
        return f"{said}; it begins when the bucket is full ({rules.burst:g}), and later calls wait for its debt"
    return said


def _is_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return True


def ahead(policy: Policy) -> str:
    """The handling of calls that exceed what is left of the upstream's own limits, as its answers report it, in words;
    "" if the policy does not read such reports.
    """
    rules = policy.pushback
    if not rules.ahead:
        return ""
    names = list(dict.fromkeys(limit.name for each in policy.classify.dialects for limit in each.limits))
    of = f"{', '.join(names)}, and the IETF's fields" if names else "the IETF's fields"
    return (
        f"calls that do not fit into what answers say is left ({of}) wait, for at most {as_written(rules.hold)}; none "
        "is refused for it"
    )


def in_trouble(policy: Policy) -> str:
    """The handling of calls while the upstream is overloaded or away (contract, section 14), in words; "" if it is
    handled like any other failure.
    """
    said, limit, hold = [], policy.limit, as_written(policy.pushback.hold)
    if policy.mode != "enforce":
        return ""
    if limit is not None:
        waits = (
            f"at most {limit.queue} calls wait for it, for at most {as_written(min(limit.wait, policy.pushback.hold))}"
        )
        said.append(f"attempts under way are limited while they end for want of capacity; {waits}")
    if policy.outage == "hold":
        said.append(f"in an outage one probe at a time is sent, and other calls are held for at most {hold}")
    return "; ".join(said)


def whose_word(policy: Policy) -> str:
    """The endpoints whose calls a pushback holds, in words; "" for an upstream with one endpoint."""
    if len(policy.endpoints) < 2 or policy.pushback.cooldown == "off":
        return ""
    if policy.pushback.of == "endpoint":
        return "of one endpoint: they hold its calls alone, and the call itself goes to another one at once"
    return "of the upstream: they hold the calls of all endpoints"


def concurrency(limit: Concurrency | None) -> str:
    """The number of attempts that may be under way, and what happens to calls beyond it; "" without a limit."""
    if limit is None:
        return ""
    others = (
        f"{limit.queue} others wait for a place, for {as_written(limit.wait)} at most"
        if limit.queue
        else "no calls wait"
    )
    return f"at most {limit.max} attempts at a time; {others}, beyond that the outcome is overloaded"


def drains(policy: Policy) -> str:
    """The share of attempts that must fail for a quota bucket to run empty, in words; "" if it does not run empty at
    any.
    """
    made, spec = policy.strategy, policy.bucket.spec if policy.bucket is not None else None
    if not isinstance(spec, QuotaSpec) or made.custom is not None or made.hedging_delay is not None:
        return ""
    share = draining_share(spec.retry_cost, made.max_attempts, spec.success_refund, flat=spec.flat_refund)
    beside = f", but for {spec.refill:g} tokens a second that it regains" if spec.refill else ""
    return "" if share is None else f"where more than {share * 100:.1f} % of attempts fail{beside}"


def fallback(policy: Policy, request: Request) -> str:
    """The upstreams that may take a call over; "" if none may."""
    if not policy.fallback or policy.mode != "enforce":
        return ""
    if why := stays(request):
        return f"never: {why}"
    named = []
    for entry in policy.fallback:
        members = ", ".join(name for name, _ in entry.json)
        kept = ", ".join(sorted(entry.keep))
        said = "; ".join(filter(None, (members and f"sets {members}", kept and f"keeps {kept}")))
        named.append(f"{entry.to} ({said})" if said else entry.to)
    safe = request.method in SAFE_METHODS or policy.classify.unsafe_methods == "always"
    only = "" if safe else f"; {request.method} only while none of its attempts may have been carried out"
    if not safe and any(name not in KNOWN_BY_KEY for name, _ in policy.classify.repeats):
        only += ", or where the provider's own client repeats it"
    return f"goes on at {', then '.join(named)}{only}"


def first_byte(policy: Policy, within: float | None) -> str:
    """The rule by which a success that sends no byte that counts for `within` seconds is given up, in words; "" if
    `within` is None: no such timeout.
    """
    if within is None:
        return ""
    said = f"within {as_written(within)} of the request's last byte; until then a success's head is kept"
    empty = ", ".join(sorted(policy.classify.empty_events))
    return said if not empty else f'{said}; only for calls whose body has "stream": true, and {empty} say nothing'


def looks(policy: Policy) -> str:
    """The part of a successful answer that rules look at before it is passed on, in words; "" if none does."""
    if policy.mode != "enforce" or not policy.classify.looks_below_400:
        return ""
    packs = [("", policy.classify.rules), *((each.name, each.rules) for each in policy.classify.dialects)]
    looking = [(name, rule) for name, rules in packs for rule in rules if rule.looks_into_success]
    parts = [("the first event that counts of a stream", [name for name, rule in looking if rule.event is not None])]
    parts += [("JSON that is whole within 64 KiB", [name for name, rule in looking if rule.event is None])]
    return ", ".join(f"{what} ({_asking(names)})" for what, names in parts if names)


def _asking(names: list[str]) -> str:
    return ", ".join(dict.fromkeys(f"dialect {name}" if name else "rules" for name in names))


def codes(found: Iterable[int]) -> str:
    """The gRPC codes `found`, which a service config names as retryable, in words."""
    named = sorted(GRPC_STATUS_NAMES[code] for code in found)
    return f"{', '.join(named)}, by its service config instead of the lists of classify"


def store(spec: BucketSpec) -> str:
    """The definition of a bucket in words: kind, prices, and where it is kept."""
    where = ", in Redis" if spec.store == "redis" else ""
    match spec.kind:
        case "quota":
            costs = f"a retry costs {spec.retry_cost:g}, after a timeout {spec.timeout_cost:g}"
            refund = "every success" if spec.flat_refund else "a first attempt's success"
            time = f", time {spec.refill:g} a second" if spec.refill else ""
            if spec.quiet_up_to:
                gained = QUIET_REFILL * spec.capacity
                time = f", a second of quiet {gained:g} up to {spec.quiet_up_to:g}"
            return (
                f"quota of {spec.capacity:g}; {costs}, after throttling {spec.throttling_cost:g}; "
                f"{refund} returns {spec.success_refund:g}{time}{where}"
            )
        case "throttle":
            return (
                f"throttle of {spec.max_tokens:g}; a failure takes 1, a success returns {spec.token_ratio:g}, "
                f"retries above {spec.max_tokens / 2:g}{where}"
            )
        case "budget":
            return (
                f"budget: {spec.percent:g}% of the calls of {as_written(spec.window)}, "
                f"or {spec.min_per_second:g} a second{where}"
            )
        case _:
            most = f"at most {spec.burst:g} at once, then {spec.when_empty}"
            return f"rate: {_pace(spec.rate, _UNITS[spec.unit])}, {most}{where}"


def _pace(each_second: float, unit: str) -> str:
    """A rate in words, a second, a minute or an hour: the shortest in which it is a whole number, as in `500 attempts a
    minute`.
    """
    for seconds, name in ((1, "second"), (60, "minute"), (3600, "hour")):
        amount = each_second * seconds
        if amount >= 1 and abs(amount - round(amount)) < 1e-9 * amount:
            return f"{round(amount)} {unit} {'an' if name == 'hour' else 'a'} {name}"
    return f"{each_second:g} {unit} a second"


def scope(policy: Policy, value: str) -> str:
    """The scope (upstream, host or header value) for which the policy's own bucket, limiter and cooldown are kept, in
    words.
    """
    if policy.scope.by == "header":
        return f"each value of {policy.scope.header}"
    return f"host {value}" if policy.scope.by == "host" else "the whole upstream"


def credentials(policy: Policy) -> str:
    """The number of credentials, the header field that carries them, and which one is taken, in words; "" without
    credentials.
    """
    made = policy.credentials
    if made is None:
        return ""
    files = [(number, file) for number, file in enumerate(made.files, 1) if file is not None]
    if len(made.values) == 1:
        return f"one key in {made.header}" + "".join(f", from the file {file.path}{_read(file)}" for _, file in files)
    said = f"{len(made.values)} keys in {made.header}, "
    said += "by turns" if made.pick == "next" else "the first that may be used"
    return said + "".join(f"; key {number} from the file {file.path}{_read(file)}" for number, file in files)


def _read(file: KeyFile) -> str:
    """A remark on a file that can't be read; "" for one that could be."""
    return " (which can't be read now: the value before it is used)" if file.is_stale else ""


def briefly(verdict: Verdict, label: str) -> str:
    """The class of a failure and, in brackets, the rule or list that gave it; the class alone if it was a list that
    simply names `label`, the failure's own status or kind.
    """
    listed = verdict.because in (f"{verdict.cls}: {label}", f"not named: {label}")
    return str(verdict.cls) if listed else f"{verdict.cls} ({verdict.because})"


def safety(call: CallState, verdict: Verdict, fault: Fault | None, *, safe: bool) -> str:
    """The reason why a repetition is allowed or not (contract, "Safety"), in words. `verdict`: the class of the failure
    and what gave it; `fault`: None if the failure is an answer; `safe`: whether the repetition is allowed.
    """
    if fault is not None and fault.progress is Progress.NEVER_SENT:
        return "safe to repeat: no byte of the request was sent"
    if idempotent := why_idempotent(call):
        return f"safe to repeat: {idempotent}"
    rule = call.policy.classify.unsafe_methods
    if rule == "always":
        return "repeated because unsafe_methods is always"
    if safe and verdict.repeated_by == SERVICE_CONFIG:
        return "repeated because the service config sets perAttemptRecvTimeout"
    if safe and verdict.repeated_by and not verdict.unprocessed:
        return f"repeated because {verdict.repeated_by}'s own client repeats it (unsafe_methods: {rule})"
    if safe:
        return "safe to repeat: the upstream did not carry the request out"
    if verdict.unprocessed or verdict.repeated_by == SERVICE_CONFIG:
        return f"not repeated: {call.request.method} is not idempotent, and unsafe_methods is {rule}"
    text = f"not safe to repeat: {call.request.method} is not idempotent, and the upstream may have carried it out"
    no_read = why_no_read(call.policy.classify, call.request)
    return f"{text} ({no_read})" if no_read else text


def why_idempotent(call: CallState) -> str:
    """The reason why the call is idempotent; "" if it is not."""
    key = call.policy.idempotency_key
    if not call.is_idempotent():
        return ""
    if call.request.method in IDEMPOTENT_METHODS:
        return f"{call.request.method} is idempotent"
    if forwarded(call.request.fields, key.header.lower()):
        return f"the request carries {key.header}"
    if read := read_by(call.policy.classify, call.request):
        return f"{read[0]}: {read[1]} is a read"
    return f"a {key.header} is injected"
