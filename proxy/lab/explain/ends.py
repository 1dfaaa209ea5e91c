"""The course of a call whose sendings all end in the same way: played, and put into lines, rows and data.

Nothing is decided here: the object that serves traffic is played on the virtual clock, against fresh buckets. Each play
has one fate for every sending and one draw for every jitter, so two plays, with the least and with the greatest draw,
are the limits of every schedule that the call can have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from proxy.config.settings import Settings
from proxy.forward.headers import CallEnd, answer_fields, attempt_results
from proxy.lab.clock import Clock
from proxy.lab.explain import wording
from proxy.lab.explain.layout import Row, columns
from proxy.lab.explain.question import Fate, fate_of_fault, fate_of_status
from proxy.lab.explain.wording import between
from proxy.lab.fixed_draws import FixedDraws
from proxy.lab.recorder import Recorder
from proxy.lab.routing import AppRequest, Chosen
from proxy.lab.stage import Stage
from proxy.lab.upstream import UpstreamStep
from proxy.observe import masking
from proxy.observe.remedies import remedy_of
from proxy.retry.answers.classification import NeedsBody, classify, classify_fault
from proxy.retry.answers.event_stream import MESSAGE
from proxy.retry.answers.pushback import read_pushback
from proxy.retry.budgets.buckets import Bucket
from proxy.retry.call import attempt_record
from proxy.retry.call.attempt_record import AttemptRecord
from proxy.retry.call.reasons import as_written
from proxy.retry.call.repeat_checks import is_safe
from proxy.retry.facts import GRPC_STATUS_NAMES, Class, FaultKind, Outcome, Verdict, grpc_status_of_http

#: The bounds of a draw from [0, 1), which may come as near to 1 as floats allow.
LEAST, GREATEST = 0.0, 1.0
#: The ends that are explained if the question names none: those that upstreams show most, and one that no rule names.
_STATUSES = ("404", "408", "425", "429", "500", "501", "502", "503", "504")
_GRPC = ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED", "DEADLINE_EXCEEDED", "INTERNAL", "UNKNOWN", "503")


class Play(Recorder):
    """The play of a call whose every sending ends in `fate` (an answer or a fault)."""

    def __init__(self, clock: Clock, fate: Fate) -> None:
        super().__init__(clock, lambda attempt, now: fate.step.sending(self.longest))

    @property
    def bucket(self) -> Bucket | None:
        """The bucket that the call's tokens come from, None without one; in observe mode it is the shadow of the real
        one.
        """
        return self.scope.shadow if self.call.so_far.policy.mode == "observe" else self.scope.bucket


def play(settings: Settings, chosen: Chosen, fate: Fate, draw: float, wall: float) -> Play:
    """Play a call whose every sending ends in `fate`, to its end. `draw` is the value of every jitter draw, `wall`
    the time at which the call begins, in seconds since the epoch.
    """
    stage = Stage(settings, FixedDraws(draw), wall)
    play = Play(stage.clock, fate)
    stage.enter(play, chosen, AppRequest())  # the question does not say what is in a body
    stage.clock.run()
    return play


def usual_fates(chosen: Chosen) -> list[Fate]:
    """The answers and faults that `redrive explain` plays for a call when the command line names none. A gRPC call has
    gRPC's statuses; the attempt timeout is among the faults only if the policy of `chosen` bounds the attempt or its
    first byte; and successes whose body the policy's rules call a failure are added.
    """
    limits = chosen.policy.timeouts
    timed = limits.attempt is not None or (limits.first_byte is not None and not chosen.request.is_grpc)
    faults = [fate_of_fault(kind) for kind in FaultKind if timed or kind is not FaultKind.ATTEMPT_TIMEOUT]
    statuses = [fate_of_status(each) for each in (_GRPC if chosen.request.is_grpc else _STATUSES)]
    return faults + statuses + _successes_that_fail(chosen)


def _successes_that_fail(chosen: Chosen) -> list[Fate]:
    """Make answers with a success status in whose body one of the policy's rules finds an error: one for each class of
    error, by the first rule that gives the error's exact values and not a pattern.
    """
    rules, fates = chosen.policy.classify, dict[Class, Fate]()
    if chosen.request.is_grpc or chosen.policy.mode != "enforce":
        return []
    for rule in (*rules.rules, *(rule for dialect in rules.dialects for rule in dialect.rules)):
        asked = rule.event.json if rule.event is not None else rule.json
        if not rule.looks_into_success or rule.headers or any(set("*?[") & set(glob) for _, glob in asked):
            continue
        document: dict[str, Any] = {}
        for path, glob in asked:
            inner = document
            for key in path[:-1]:
                inner = inner.setdefault(key, {})
            inner[path[-1]] = glob
        status = min(each for each in rule.statuses or (200,) if each >= 200)
        body = json.dumps(document).encode()
        said = " ".join(glob for _, glob in asked)
        if rule.event is None:
            fate = Fate(f"{status}, JSON {said}", UpstreamStep(status, body=body))
        else:
            name = rule.event.name or MESSAGE
            event = b"event: %b\ndata: %b\n\n" % (name.encode(), body)
            fate = Fate(f"{status}, event {name} {said}".rstrip(), UpstreamStep(status, events=((0.0, event),)))
        fates.setdefault(rule.as_, fate)
    return [fate for cls, fate in fates.items() if cls is not Class.SUCCESS]


class End:
    """The course of a call whose sendings all end in one fate (the same answer or fault). The call is played twice,
    with the least and with the greatest jitter; every real course lies between the two. `wall`: the time at which the
    call begins, in seconds since the epoch.
    """

    def __init__(self, settings: Settings, chosen: Chosen, fate: Fate, wall: float) -> None:
        self._settings, self._chosen, self._wall = settings, chosen, wall
        self._label = fate.label
        self._least, self._greatest = (play(settings, chosen, fate, draw, wall) for draw in (LEAST, GREATEST))
        self._sent = sent = fate.step.sending(self._greatest.longest)
        rules, verdict = chosen.policy.classify, None
        if sent.fault is not None:
            verdict = classify_fault(rules, chosen.request, sent.fault)
        elif sent.reply is not None:
            judged = classify(rules, chosen.request, sent.reply, sent.body)
            verdict = None if isinstance(judged, NeedsBody) else judged
        self._verdict: Verdict | None = verdict

    def as_row(self) -> Row:
        """The row of this end in the table of ends: the answer or fault, its class, the number of attempts, the
        outcome, and the waits; without waits, why no retry was made.
        """
        one, verdict = self._greatest, self._verdict
        cls = "depends on the body" if verdict is None else wording.briefly(verdict, self._label)
        starts = pairwise(zip(self._least.starts, one.starts, strict=False))
        waits = [between(later[0] - sooner[0], later[1] - sooner[1], to="–") for sooner, later in starts]
        why = one.call.so_far.history[-1].why if one.call.so_far.history else ""
        return (self._label, cls, str(one.call.so_far.attempts), self._outcome, ", ".join(waits) or why)

    @property
    def label(self) -> str:
        """The answer or fault in which the sendings end."""
        return self._label

    @property
    def remedy(self) -> str:
        """The remedy for the end of the call; "" if nothing needs one."""
        one = self._greatest
        call, own = one.call.so_far, "" if one.answer is None else one.answer.detail
        why = next((each.why for each in reversed(call.history) if each.why), own)
        status = call.history[-1].status if call.history else None
        return remedy_of(one.outcome or Outcome.SUCCESS, why, call.policy, call.request.method, status=status)

    def as_lines(self) -> Iterator[str]:
        """The lines for people: each judgement of an answer, the schedule of attempts, and the app's answer."""
        least, greatest = self._least, self._greatest
        yield f"If every attempt ends with {self._label}:"
        yield ""
        yield from self._class_lines()
        yield from columns(self._judgements())
        if len(greatest.starts) > 1 or len(least.starts) > 1:
            has_bucket = greatest.bucket is not None
            rows = [("attempt", "earliest", "latest", *(("pays", "bucket after") if has_bucket else ()))]
            for attempt, soonest, last, *paid in self._schedule():
                begun = (as_written(soonest), "never" if last is None else as_written(last))
                rows.append((str(attempt), *begun, *("" if figure is None else f"{figure:g}" for figure in paid)))
            yield ""
            yield from columns(rows)
        yield ""
        for each in (greatest,) if least.outcome == greatest.outcome else (least, greatest):
            after = (
                between(least.elapsed, greatest.elapsed) if each.outcome == least.outcome else as_written(each.elapsed)
            )
            kind = "that answer" if each.answer is None else f"the proxy's own answer, {each.answer.title!r}"
            if each.is_replaced and self._sent.reply is not None:
                name = GRPC_STATUS_NAMES[grpc_status_of_http(self._sent.reply.status)]
                kind = f"trailers that say {name}, in place of that answer"
            yield f"  the app gets {each.status} after {after}: {kind}, outcome {each.outcome}"
            if each.answer is not None and each.answer.retry_after:
                yield f"    Retry-After: {each.answer.retry_after:.0f}"
            for name, value in self._fields(each):
                yield f"    {name}: {value}"
        if self.remedy:
            yield ""
            yield f"  what helps: {self.remedy}"
        if text := self._cooldown():
            yield ""
            yield f"  cooldown: {text}"

    def as_data(self) -> dict[str, Any]:
        """The end for JSON; times in seconds."""
        greatest, verdict = self._greatest, self._verdict
        names = ("attempt", "earliest", "latest", "pays", "bucket_after")
        return {
            "end": self._label,
            "class": None if verdict is None else str(verdict.cls),
            "because": "" if verdict is None else f"{verdict.because}{self._rule_at(verdict)}",
            "judgements": [
                {"attempt": int(who.split()[1]), **_key_of(greatest, place), "decision": why}
                for place, (who, why) in enumerate(self._judgements())
            ],
            "schedule": [dict(zip(names, row, strict=False)) for row in self._schedule()],
            "attempts": greatest.call.so_far.attempts,
            "outcome": self._outcome,
            "status": greatest.status,
            "earliest": round(self._least.elapsed, 6),
            "latest": round(greatest.elapsed, 6),
            "own_answer": None if greatest.answer is None else greatest.answer.title,
            "headers": [list(pair) for pair in self._fields(greatest)],
            "cooldown": self._cooldown(),
            "remedy": self.remedy,
        }

    @property
    def _outcome(self) -> str:
        return str(self._greatest.outcome or Outcome.SUCCESS)

    def _class_lines(self) -> Iterator[str]:
        """The lines about the class of the answer or fault, the rule that gave it, and whether a repetition is safe."""
        verdict, fault, one = self._verdict, self._sent.fault, self._greatest
        if verdict is None:
            yield "  its class depends on the body: give one with --body"
            return
        rows = [("class", f"{verdict.cls} ({verdict.because}{self._rule_at(verdict)})")]
        if verdict.cls != "success":
            unsafe = one.call.so_far.policy.classify.unsafe_methods
            safe = is_safe(verdict, fault, idempotent=one.call.so_far.is_idempotent(), unsafe_methods=unsafe)
            rows.append(("safety", wording.safety(one.call.so_far, verdict, fault, safe=safe)))
        yield from columns(rows)
        yield ""

    def _rule_at(self, verdict: Verdict) -> str:
        """The text `, file:line` with the place of the user's own rule that gave the verdict's class; "" if a dialect
        or a list gave it.
        """
        policy = self._chosen.policy
        rules = policy.classify.rules
        number = next((place for place, rule in enumerate(rules) if rule.because == verdict.because), None)
        tree = self._settings.provenance.policies.get((policy.upstream, policy.route))
        if number is None or tree is None:
            return ""
        marks = tree["classify"]["rules"].marks
        return f", {marks[number]}" if number < len(marks) else ""

    def _judgements(self) -> Iterator[tuple[str, str]]:
        """A row of a name and a text for each sending: why another attempt followed it, or did not."""
        one, least = self._greatest, self._least.call.so_far.history
        for place, record in enumerate(one.call.so_far.history):
            wait = least[place].delay if place < len(least) else None
            said = f"{_with_key(record)}{_decision(one, record, wait)}{self._if_renewed(record)}"
            yield (f"attempt {record.attempt}", said)
        if not one.call.so_far.history:
            yield ("attempt 1", "goes to the app as it comes" if one.starts else "is not sent")

    def _if_renewed(self, record: AttemptRecord) -> str:
        """A clause about what follows a 401 to a key whose file has a new value by then; "" where nothing does."""
        made, reply = self._chosen.policy.credentials, self._sent.reply
        file = made.files[record.key] if made is not None and made.files and record.key is not None else None
        if file is None or reply is None or reply.status != 401 or record.attempt > 1:
            return ""
        is_off = self._chosen.policy.mode != "enforce" or self._greatest.call.so_far.hints.disabled
        return "" if is_off else f"; made once more if {file.path} has another key by then"

    def _schedule(self) -> Iterator[tuple[Any, ...]]:
        """The schedule of attempts: for each its number, its earliest and its latest time (None: it may never be sent),
        and with a bucket the price that it pays and the level that is left after it.
        """
        least, greatest = self._least, self._greatest
        for place in range(max(len(least.starts), len(greatest.starts))):
            longer = greatest if place < len(greatest.starts) else least
            begun = sorted(each.starts[place] for each in (least, greatest) if place < len(each.starts))
            level = longer.levels[place] if place < len(longer.levels) else None
            # What the next attempt pays is taken as this one ends; hedges pay as they go.
            following = 0.0 if longer.call.hedged else _price(longer, place + 2)
            has_bucket = greatest.bucket is not None
            paid = (_price(longer, place + 1), None if level is None else level + following) if has_bucket else ()
            yield (place + 1, begun[0], begun[1] if len(begun) > 1 else None, *paid)

    def _fields(self, one: Play) -> list[tuple[str, str]]:
        """The header fields that the proxy adds to the app's answer in the play `one`, made by the code that adds them;
        values that the policy sets are masked.
        """
        call, answer, reply = one.call.so_far, one.answer, self._sent.reply
        assert one.outcome is not None
        end = CallEnd(one.outcome, call.attempts, call.request.is_grpc, no_place=call.found_no_place)
        end.detail = answer.detail if answer is not None else attempt_results(call.history)
        if answer is not None:
            end.error = answer.error
        elif reply is not None:
            end.status = reply.status
        changes = answer_fields(call.policy, reply.fields if reply is not None else None, end)
        hidden = {name.lower() for name, _ in call.policy.response_headers.set}
        return [(name, masking.MASK if name.lower() in hidden else value) for name, value in changes.add]

    def _cooldown(self) -> str:
        """The effect that a 429 or 503 has on other calls of the scope, by the policy's cooldown, in words; "" for
        other answers.
        """
        policy, reply, verdict = self._chosen.policy, self._sent.reply, self._verdict
        rules = policy.pushback
        if reply is None or reply.status not in (429, 503) or verdict is None or policy.mode != "enforce":
            return ""
        if rules.cooldown == "off":
            return "off: other calls of the scope are not held"
        if policy.strategy.hedging_delay is not None:
            return "none: hedged calls start no cooldown"
        dialects, body = policy.classify.dialects, self._sent.body
        said = read_pushback(reply.fields, reply.status, verdict.cls, dialects, self._wall, peeked=body)
        held = "wait" if rules.cooldown == "wait" else "are refused"
        whose = "other calls of the scope" if policy.credentials is None else "other calls with the same key"
        if said.cooldown is None:
            return f"none, because the answer names no delay; with Retry-After {whose} {held} that long"
        return f"{whose} {held} for {as_written(min(said.cooldown, rules.max_delay))} ({said.source})"


def _with_key(record: AttemptRecord) -> str:
    """A clause about the credential that the attempt carried, and why; "" without credentials."""
    return "" if record.key is None else f"with key {record.key + 1}, since {record.key_why}: "


def _key_of(one: Play, place: int) -> dict[str, int]:
    """A member `key` with the number, from 1, of the credential that the sending at index `place` carried; empty if it
    carried none.
    """
    key = one.call.so_far.history[place].key if place < len(one.call.so_far.history) else None
    return {} if key is None else {"key": key + 1}


def _decision(one: Play, record: AttemptRecord, least: float | None) -> str:
    match record.decision:
        case "transparent":
            return "sent again at once, on a new connection: it counts neither as an attempt nor against a bucket"
        case "retried":
            wait = record.delay or 0.0
            following = next((each for each in one.call.so_far.history if each.attempt == record.attempt + 1), None)
            if not wait and following is not None and following.key != record.key:
                return "goes on at once with another key"
            why = f" ({record.pushback})" if record.pushback else ""
            then = ", once the rate limiter allows it" if one.scope.limiter is not None else ""
            return f"retried after {between(least if least is not None else wait, wait)}{why}{then}"
        case "hedged on":
            return f"the next goes {'when ' + record.pushback + ' says' if record.pushback else 'at once'}"
        case "cancelled":
            return "cancelled: another attempt was faster"
        case "delivered":
            return "goes to the app"
        case attempt_record.FELL_BACK:
            return f"goes on at another upstream: {record.why}"
    text = f"not retried: {record.decision}" + (f", {record.why}" if record.why else "")
    return f"{text}; {record.because.partition('; ')[2]}" if "; observed" in record.because else text


def _price(one: Play, attempt: int) -> float:
    """The price in tokens that the attempt with this number paid to the bucket in the play `one`; 0 for none."""
    return next((record.price for record in one.call.so_far.history if record.attempt == attempt), 0.0)
