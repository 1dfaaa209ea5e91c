"""What `redrive explain` prints: plain lines, aligned, the same on every terminal.

One line says one thing; a value stands beside the place that sets it. Secrets are masked.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from proxy.config.settings import Settings
from proxy.forward.headers import answer_fields, told
from proxy.lab.explain import wording
from proxy.lab.explain.layout import Row, columns
from proxy.lab.explain.playing import GREATEST, LEAST, Play, play
from proxy.lab.explain.question import Fate, Question, fate_of_fault, fate_of_status
from proxy.lab.explain.wording import between, span
from proxy.lab.routing import HTTP1, HTTP2, Chosen, Spoken
from proxy.observe import masking
from proxy.retry.attempt_record import AttemptRecord
from proxy.retry.checks import is_safe
from proxy.retry.classification import NeedsBody, classify, classify_fault
from proxy.retry.facts import GRPC_STATUS_NAMES, FaultKind, Outcome, Verdict
from proxy.retry.pushback import read_pushback

#: What is tried where the question names no end: what upstreams do most, and one answer that nothing names.
_STATUSES = ("404", "408", "425", "429", "500", "501", "502", "503", "504")
_GRPC = ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED", "DEADLINE_EXCEEDED", "INTERNAL", "UNKNOWN")


def what_applies(settings: Settings, chosen: Chosen, how: str, spoken: Spoken) -> Iterator[str]:
    """Upstream, route, strategy, bucket, scope."""
    yield from columns(applies(settings, chosen, how, spoken))


def applies(settings: Settings, chosen: Chosen, how: str, spoken: Spoken) -> list[tuple[str, str]]:
    """The same as rows of a name and a text."""
    policy = chosen.policy
    upstream = settings.router.by_name.get(policy.upstream)
    one = play(settings, chosen, fate_of_status("200"), LEAST, 0.0)
    no_route = "none of its routes matches" if upstream and upstream.routes else "it has none"
    bounds = [each for each in (policy.timeouts.total, one.call.hints.timeout) if each is not None]
    deadline = min(bounds, default=None)
    rows = [
        ("upstream", f"{policy.upstream}, {how}{_at(settings, policy.upstream)}"),
        ("route", f"{policy.route}{_at(settings, policy.upstream, policy.route)}" if policy.route else no_route),
        ("protocol", _protocol(chosen, spoken)),
        ("sent to", _endpoints(chosen, by_prefix=how.startswith("by prefix"))),
        ("strategy", wording.strategy(policy.strategy)),
        ("bucket", wording.bucket(policy.bucket)),
        ("scope", wording.scope(policy, one.scope.value)),
        ("deadline", f"{span(deadline)} for all attempts and waits; each attempt: {span(policy.timeouts.attempt)}"),
        ("repeating", _repeating(one)),
    ]
    if drains := wording.drains(policy):
        rows.insert(6, ("drains", drains))
    if policy.rate is not None:
        rows.insert(6, ("rate", wording.bucket(policy.rate)))
    if policy.classify.service_codes is not None:
        named = sorted(GRPC_STATUS_NAMES[code] for code in policy.classify.service_codes)
        rows.append(("codes", f"{', '.join(named)}, by its service config in place of the lists of classify"))
    if policy.mode != "enforce":
        rows.append(("mode", f"{policy.mode}: nothing is retried or held"))
    if one.call.hints.disabled:
        rows.append(("app says", "X-Retry-Disable: one attempt"))
    if one.call.hints.retries_itself:
        rows.append(("app says", "this is a retry of its own: it pays a retry's price, and is never refused for it"))
    return rows


def _protocol(chosen: Chosen, app: Spoken) -> str:
    """What is spoken upstream, and why."""
    target = chosen.policy.target
    protocol, ends = (target.protocol, target.endpoints) if target is not None else ("auto", ())
    if protocol != "auto":
        refused = f"; {app.why}, so the call is answered UNIMPLEMENTED" if app.grpc and protocol == HTTP1 else ""
        return f"{protocol}, by the key `protocol`{refused}"
    if app.protocol == HTTP2 and not app.grpc and any(end.scheme == "https" for end in ends):
        return f"{HTTP2} or {HTTP1}, as the TLS handshake selects: {app.why}"
    return f"{app.protocol}, as the app speaks: {app.why}"


def _at(settings: Settings, upstream: str, route: str = "") -> str:
    """` (file:line)` where an upstream or a route begins."""
    tree = settings.provenance.policies.get((upstream, route))
    return f" ({tree.mark})" if tree is not None and tree.mark.line else ""


def _endpoints(chosen: Chosen, *, by_prefix: bool) -> str:
    """The urls that are asked for, masked: the path of an upstream's url is put in front by `prefix` alone."""
    ends = chosen.policy.target.endpoints if chosen.policy.target is not None else ()
    if not ends:
        return f"{chosen.request.authority}, where the request says"
    path = masking.target(chosen.request.path)
    return ", ".join(
        f"unix:{end.unix}, {path}"
        if end.unix
        else f"{end.scheme}://{end.authority}{end.shown_path if by_prefix else ''}{path}"
        for end in ends
    )


def _repeating(one: Play) -> str:
    call = one.call
    why = wording.why_idempotent(one) or f"{call.request.method} is not idempotent"
    rule = "" if call.idempotent else f"; unsafe_methods is {call.policy.classify.unsafe_methods}"
    if call.policy.strategy.hedging_delay is None:
        return why + rule
    if not call.hedged:
        return f"{why}{rule}: not hedged, one attempt after another"
    vouched = call.policy.strategy.safe_methods and not call.idempotent
    return f"{why}, but its service config says that it is safe: hedged" if vouched else f"{why}{rule}: hedged"


# -- one end ----------------------------------------------------------------------------------------------------------


def every_attempt(settings: Settings, chosen: Chosen, fate: Fate, wall: float) -> Iterator[str]:
    """What happens where every sending ends in the same way: each judgement, the schedule, and what the app gets."""
    least, greatest = (play(settings, chosen, fate, draw, wall) for draw in (LEAST, GREATEST))
    yield f"If every attempt ends with {fate.label}:"
    yield ""
    yield from _class_lines(settings, chosen, fate, greatest)
    yield from columns(_judgements(greatest, least))
    if len(greatest.starts) > 1 or len(least.starts) > 1:
        yield ""
        yield from columns(_schedule(least, greatest))
    yield ""
    yield from _answer_lines(least, greatest, fate)
    if text := _cooldown(chosen, fate, wall):
        yield ""
        yield f"  cooldown: {text}"


def _cooldown(chosen: Chosen, fate: Fate, wall: float) -> str:
    """What becomes of the scope's other calls behind a 429 or 503, "" where the answer is another."""
    policy, reply = chosen.policy, fate.sending(chosen.policy.timeouts.attempt).reply
    rules, verdict = policy.pushback, verdict_on(chosen, fate)
    if reply is None or reply.status not in (429, 503) or verdict is None or policy.mode != "enforce":
        return ""
    if rules.cooldown == "off":
        return "off: other calls of the scope are not held"
    if policy.strategy.hedging_delay is not None:
        return "none: hedged calls begin none"
    body = fate.sending(policy.timeouts.attempt).body
    said = read_pushback(reply.fields, reply.status, verdict.cls, policy.classify.dialects, wall, peeked=body)
    held = "wait" if rules.cooldown == "wait" else "are refused"
    if said.cooldown is None:
        return f"none, since the answer names no delay; with Retry-After other calls of the scope {held} as long"
    return f"other calls of the scope {held} for {span(min(said.cooldown, rules.max_delay))} ({said.source})"


def _class_lines(settings: Settings, chosen: Chosen, fate: Fate, one: Play) -> Iterator[str]:
    """The class, the rule that gave it, and whether a repetition is safe."""
    verdict = verdict_on(chosen, fate)
    if verdict is None:
        yield "  its class depends on the body: give one with --body"
        return
    sent = fate.sending(chosen.policy.timeouts.attempt)
    safe = is_safe(
        verdict,
        sent.fault,
        idempotent=one.call.idempotent,
        unsafe_methods=chosen.policy.classify.unsafe_methods,
    )
    rows = [("class", f"{verdict.cls} ({verdict.because}{_rule_at(settings, chosen, verdict)})")]
    if verdict.cls != "success":
        rows.append(("safety", wording.safety(one, verdict, sent.fault, safe=safe)))
    yield from columns(rows)
    yield ""


def _rule_at(settings: Settings, chosen: Chosen, verdict: Verdict) -> str:
    """`, file:line` of the user's rule that gave the class."""
    rules = chosen.policy.classify.rules
    number = next((place for place, rule in enumerate(rules) if rule.because == verdict.because), None)
    tree = settings.provenance.policies.get((chosen.policy.upstream, chosen.policy.route))
    if number is None or tree is None:
        return ""
    marks = tree["classify"]["rules"].marks
    return f", {marks[number]}" if number < len(marks) else ""


def verdict_on(chosen: Chosen, fate: Fate) -> Verdict | None:
    """The class of this end; None where a rule must see a body that was not given."""
    policy, sent = chosen.policy, fate.sending(chosen.policy.timeouts.attempt)
    if sent.fault is not None:
        return classify_fault(policy.classify, chosen.request, sent.fault)
    assert sent.reply is not None
    verdict = classify(policy.classify, chosen.request, sent.reply, sent.body)
    return None if isinstance(verdict, NeedsBody) else verdict


def _judgements(one: Play, other: Play) -> Iterator[Row]:
    """A line for each sending: why it was, or was not, followed by another."""
    waits = [record.delay for record in other.history]
    for place, record in enumerate(one.history):
        least = waits[place] if place < len(waits) else None
        yield (f"attempt {record.attempt}", _decision(one, record, least))
    if not one.history:
        yield ("attempt 1", "goes to the app as it comes" if one.starts else "is not sent")


def _decision(one: Play, record: AttemptRecord, least: float | None) -> str:
    match record.decision:
        case "transparent":
            return "sent again at once, on a new connection: it counts neither as an attempt nor against a bucket"
        case "retried":
            wait = record.delay or 0.0
            why = f" ({record.pushback})" if record.pushback else ""
            then = ", and when the rate limiter lets it go" if one.scope.limiter is not None else ""
            return f"retried after {between(least if least is not None else wait, wait)}{why}{then}"
        case "hedged on":
            return f"the next goes {'when ' + record.pushback + ' says' if record.pushback else 'at once'}"
        case "cancelled":
            return "cancelled: another attempt was faster"
        case "delivered":
            return "goes to the app"
    text = f"not retried: {record.decision}" + (f", {record.why}" if record.why else "")
    return f"{text}; {record.because.partition('; ')[2]}" if "; observed" in record.because else text


def _schedule(least: Play, greatest: Play) -> Iterator[Row]:
    """When each attempt goes, at the earliest and at the latest, what it pays, and what the bucket is left with."""
    has_bucket = greatest.bucket is not None
    yield ("attempt", "earliest", "latest", *(("pays", "bucket after") if has_bucket else ()))
    for attempt, soonest, last, *paid in _schedule_in_figures(least, greatest):
        begun = (span(soonest), "never" if last is None else span(last))
        yield (str(attempt), *begun, *("" if figure is None else f"{figure:g}" for figure in paid))


def _schedule_in_figures(least: Play, greatest: Play) -> Iterator[tuple[Any, ...]]:
    """Attempt, earliest, latest (None: it may never go), and where there is a bucket price and level behind it."""
    has_bucket = greatest.bucket is not None
    for place in range(max(len(least.starts), len(greatest.starts))):
        longer = greatest if place < len(greatest.starts) else least
        begun = sorted(each.starts[place] for each in (least, greatest) if place < len(each.starts))
        level = longer.levels[place] if place < len(longer.levels) else None
        # What the next attempt pays is taken as this one ends; hedges pay as they go.
        following = 0.0 if longer.call.hedged else _price(longer, place + 2)
        paid = (_price(longer, place + 1), None if level is None else level + following) if has_bucket else ()
        yield (place + 1, begun[0], begun[1] if len(begun) > 1 else None, *paid)


def _price(one: Play, attempt: int) -> float:
    """What this attempt paid."""
    return next((record.price for record in one.history if record.attempt == attempt), 0.0)


def _answer_lines(least: Play, greatest: Play, fate: Fate) -> Iterator[str]:
    """What the app gets in the end."""
    for each in (greatest,) if least.outcome == greatest.outcome else (least, greatest):
        after = between(least.elapsed, greatest.elapsed) if each.outcome == least.outcome else span(each.elapsed)
        kind = "that answer" if each.answer is None else f"the proxy's own answer, {each.answer.title!r}"
        yield f"  the app gets {each.status} after {after}: {kind}, outcome {each.outcome}"
        if each.answer is not None and each.answer.retry_after:
            yield f"    Retry-After: {each.answer.retry_after:.0f}"
        for name, value in _fields(each, fate):
            yield f"    {name}: {value}"


def _fields(one: Play, fate: Fate) -> list[tuple[str, str]]:
    """The fields that the proxy adds, by the code that adds them."""
    call, answer = one.call, one.answer
    reply = fate.sending(call.policy.timeouts.attempt).reply
    assert one.outcome is not None
    changes = answer_fields(
        call.policy,
        reply.fields if reply is not None else None,
        outcome=one.outcome,
        attempts=call.attempts,
        grpc=call.request.is_grpc,
        status=reply.status if answer is None and reply is not None else None,
        error=answer.error if answer is not None else "",
        detail=answer.detail if answer is not None else told(call.history),
    )
    hidden = {name.lower() for name, _ in call.policy.response_headers.set}
    return [(name, masking.MASK if name.lower() in hidden else value) for name, value in changes.add]


# -- all ends ---------------------------------------------------------------------------------------------------------


def by_what_comes_back(settings: Settings, chosen: Chosen, wall: float) -> Iterator[str]:
    """One line for each thing that an upstream may do to every attempt."""
    yield "If every attempt ends with …"
    yield ""
    yield from columns([("", "class", "attempts", "outcome", "waits, or why not"), *_ends(settings, chosen, wall)])


def _fates(chosen: Chosen) -> list[Fate]:
    """What is tried where the question names no end."""
    faults = [fate_of_fault(kind) for kind in FaultKind if _can_happen(kind, chosen)]
    return faults + [fate_of_status(each) for each in ((*_GRPC, "503") if chosen.request.is_grpc else _STATUSES)]


def _ends(settings: Settings, chosen: Chosen, wall: float) -> Iterator[Row]:
    for fate in _fates(chosen):
        least, one = (play(settings, chosen, fate, draw, wall) for draw in (LEAST, GREATEST))
        verdict = verdict_on(chosen, fate)
        cls = "depends on the body" if verdict is None else wording.briefly(verdict, fate.label)
        outcome = str(one.outcome or Outcome.SUCCESS)
        yield (fate.label, cls, str(one.call.attempts), outcome, _waits(least, one) or _why(one))


def ends_as_data(settings: Settings, chosen: Chosen, fate: Fate | None, wall: float) -> list[dict[str, Any]]:
    """Each end that was asked for as data, out of the plays that the text is made of. Times in seconds."""
    return [_as_data(settings, chosen, each, wall) for each in ([fate] if fate is not None else _fates(chosen))]


def _as_data(settings: Settings, chosen: Chosen, fate: Fate, wall: float) -> dict[str, Any]:
    least, greatest = (play(settings, chosen, fate, draw, wall) for draw in (LEAST, GREATEST))
    verdict = verdict_on(chosen, fate)
    names = ("attempt", "earliest", "latest", "pays", "bucket_after")
    return {
        "end": fate.label,
        "class": None if verdict is None else str(verdict.cls),
        "because": "" if verdict is None else f"{verdict.because}{_rule_at(settings, chosen, verdict)}",
        "judgements": [{"attempt": int(who.split()[1]), "decision": why} for who, why in _judgements(greatest, least)],
        "schedule": [dict(zip(names, row, strict=False)) for row in _schedule_in_figures(least, greatest)],
        "attempts": greatest.call.attempts,
        "outcome": str(greatest.outcome or Outcome.SUCCESS),
        "status": greatest.status,
        "earliest": round(least.elapsed, 6),
        "latest": round(greatest.elapsed, 6),
        "own_answer": None if greatest.answer is None else greatest.answer.title,
        "headers": [list(pair) for pair in _fields(greatest, fate)],
        "cooldown": _cooldown(chosen, fate, wall),
    }


def _waits(least: Play, greatest: Play) -> str:
    starts = list(zip(least.starts, greatest.starts, strict=False))
    gaps = [(later[0] - sooner[0], later[1] - sooner[1]) for sooner, later in pairwise(starts)]
    return ", ".join(between(low, high, to="–") for low, high in gaps)


def _why(one: Play) -> str:
    return one.history[-1].why if one.history else ""


def _can_happen(kind: FaultKind, chosen: Chosen) -> bool:
    return kind is not FaultKind.ATTEMPT_TIMEOUT or chosen.policy.timeouts.attempt is not None


def question_line(question: Question) -> str:
    """What was asked, masked."""
    return f"{question.ask.method} {masking.target(question.ask.url)}"
