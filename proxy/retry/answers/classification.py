"""The class of an attempt's end: by rules, otherwise by dialects, otherwise by lists (contract, section 4).

A dialect is a set of rules for one provider. Law: dialects are data; nothing here knows a provider, except gRPC, whose
status is a second one under HTTP's. A class is decided without a body if that is possible, and NEEDS_BODY is returned
if a rule could decide but must look into the body first. Nothing that an upstream sends makes this code raise or take
long.

Theory. In a rule every part is optional, and all given parts must match; the first matching rule wins. A rule's parts
about an answer (status, header, json, xml, event) match no fault. Bodies are looked at on status 400 and above, and
below that if a rule names the status and asks for an event or for JSON (section 13), unless a content coding hides
them. In the lists an answer has two names, its HTTP status and its grpc-status; the stronger class wins (throttling,
timeout, transient). An answer that no rule, dialect or list names is a success if its status is below 400 and its
grpc-status is 0 or absent, otherwise unnamed. The answer of a gRPC call may lack a grpc-status only if something
follows the head.

gRPC: the dialect `grpc` names UNAVAILABLE on every call. On application/grpc calls (with a service config, on all
calls) HTTP 502, 503 and 504 without a grpc-status, a connect failure, a refused stream and a lost connection count as
UNAVAILABLE, and a grpc-status beats the HTTP status. On such calls two other ends count as the status that a gRPC
client derives from them: other errors without a grpc-status, and a success whose head is all of the answer and has no
grpc-status. A stream that was reset with a code counts as that code's status alone: the lists' `reset` does not name
it. An HTTP 429 stands for no grpc-status. A service config's codes replace the lists and the dialect's own class: what
they name is transient, and an HTTP 429 (UNAVAILABLE to a gRPC client) is throttling if UNAVAILABLE is named. Under a
retryPolicy an attempt timeout is a timeout, as grpc-core retries one whatever the codes are: on every method if
perAttemptRecvTimeout is set (contract, section 15). Sources: gRPC A6; grpc/doc/http-grpc-status-mapping.md;
OnPerAttemptRecvTimerLocked and ShouldRetry in grpc-core's retry filter.

A verdict's `unprocessed` (section 4, safety 2) is set for throttling; for 425 to a request without Early-Data; for a
grpc-status that the upstream itself sent and that a rule, dialect or list names; and for a derived grpc-status if a
service config names it.

Repeats (section 4, for `unsafe_methods: provider`). A user who names a dialect and switches off the retries of the
provider's SDK must not be worse off than with them. So whatever the SDK repeats is repeated here, whatever the method,
and a failure that nothing else names gets a class: 408 timeout, 429 throttling, otherwise transient. Which client
repeats which failures is data (proxy/config/dialects/*.yaml), read from the clients' sources.

Reads. Some protocols send everything as a POST, and name the operation in a request field. Two things are data here
too: which values of that field change nothing, and which other fields oblige servers to compare it with the body. A
read is repeated as a GET is, but not hedged. Each of these fields must be present once, and reach the upstream.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from proxy.retry.answers.content_coding import coding_of_reply
from proxy.retry.answers.errors_inside import inside_of, is_error
from proxy.retry.answers.event_stream import is_event_stream
from proxy.retry.answers.forms import is_form
from proxy.retry.answers.pushback import looks_into_body
from proxy.retry.answers.rules import NEEDS_BODY, NeedsBody, ReplyEvidence, SingleRule, any_matches, ruleset
from proxy.retry.answers.text_search import holds_any
from proxy.retry.facts import (
    GRPC_STATUS_NAMES,
    IDEMPOTENT_METHODS,
    UNAUTHENTICATED,
    UNAVAILABLE,
    Class,
    Fault,
    FaultKind,
    Fields,
    Progress,
    Reply,
    Request,
    Verdict,
    forwarded,
    grpc_status_of_http,
)
from proxy.retry.policies.dialect import Classify, ErrorsInside, Reads, Repeats, Rule

__all__ = [
    "AT_WORK",
    "KNOWN_BY_KEY",
    "MISDIRECTED",
    "NEEDS_BODY",
    "SERVICE_CONFIG",
    "NeedsBody",
    "broken_answers_of",
    "classify",
    "classify_fault",
    "is_plain_end",
    "is_plain_success",
    "is_repeated_anywhere",
    "names",
    "read_by",
    "refuses_credential",
    "why_no_read",
]

OK: Final = 0

#: The value of `Verdict.repeated_by`, in place of a dialect's name, if perAttemptRecvTimeout ended the attempt.
SERVICE_CONFIG: Final = "service config"

#: HTTP statuses and faults that count as UNAVAILABLE, with a service config on any call.
_UNAVAILABLE_STATUSES = frozenset({502, 503, 504})
_UNAVAILABLE_FAULTS = frozenset({FaultKind.CONNECT_FAILURE, FaultKind.REFUSED_STREAM, FaultKind.RESET})

_STRENGTH = {Class.THROTTLING: 3, Class.TIMEOUT: 2, Class.TRANSIENT: 1}
_REPEATED = {408: Class.TIMEOUT, 429: Class.THROTTLING}
#: The attempt counts in AWS SDKs' `amz-sdk-request`, however spelled: any value but 0 and 1 may mean more than one.
_AWS_COUNTS = re.compile(r"\b(?:attempt|max)[ \t]*=[ \t]*([^\s;,]*)", re.IGNORECASE)


SUCCESS: Final = Verdict(Class.SUCCESS, "success")

#: The verdict on a 421 on a connection that had carried other requests: the upstream did not process the request, and
#: may take it on another connection, whatever its method (RFC 9110 section 15.5.20).
MISDIRECTED: Final = Verdict(Class.TRANSIENT, "421 on a connection that had carried other requests", unprocessed=True)


#: The verdict on a 409 to a call with an idempotency key one of whose earlier attempts may have been carried out: the
#: first is still at work (draft-ietf-httpapi-idempotency-key-header, 2.6).
AT_WORK: Final = Verdict(Class.TRANSIENT, "409 to a repeat of a call with a key: the first is still at work")


def is_plain_success(rules: Classify, status: int, fields: Fields) -> bool:
    """Whether an answer with this status and these fields is a success by these alone, so that no rule and no list of
    the policy (`rules`) has to be asked. Trailers, if any follow, are judged separately.
    """
    return (
        status < 400
        and rules.plain_below_400
        and not fields.get_all("grpc-status")
        and not (rules.looks_below_400 and may_look_into(rules, status, fields))
        and not (rules.stream_ends and is_event_stream(Reply(status, fields)))
    )


def may_look_into(rules: Classify, status: int, fields: Fields) -> bool:
    """Whether a rule could match the body of an answer with this status (below 400) and these fields. Such an answer
    has to be held until its body was looked at (contract, section 13).
    """
    reply = Reply(status, fields)
    return _look_into(rules, reply, None, reply.grpc_status) is not None


def _look_into(rules: Classify, reply: Reply, body: bytes | None, grpc: int | None) -> Rule | NeedsBody | None:
    """The rule that matches the body of an answer below 400. NEEDS_BODY if a rule could match, but `body` is None; None
    if no rule matches. `grpc`: the answer's grpc-status.
    """
    asked = ruleset(rules)
    if asked.looks_at_events:
        if not is_event_stream(reply):
            return None
        if body is not None and not (coding_of_reply(reply) or holds_any(body, asked.texts)):
            return None  # nearly every stream ends here
    evidence = ReplyEvidence(reply, body, rules.empty_events)
    for step in asked.looking:
        found = step.match_reply(evidence, grpc)
        if found is not None:
            return found
    return None


def is_plain_end(rules: Classify, trailers: Fields) -> bool:
    """Whether an answer whose head was a plain success (`is_plain_success`) is still a success after these trailers."""
    said = trailers.get_all("grpc-status")
    if not said:
        return True
    return list(said) == ["0"] and OK not in rules.grpc and OK not in (rules.service_codes or ())


def classify(rules: Classify, request: Request, reply: Reply, body: bytes | None) -> Verdict | NeedsBody:
    """The class of an answer, or NEEDS_BODY if a rule has to see the body first. `rules`: the policy's rules, dialects
    and lists. `body`: the beginning of the body, as far as it was read (b"" if there is no body); None if nothing was
    read yet.
    """
    if rules.inside and reply.status < 400:
        inside = inside_of(rules, request, reply)
        if inside is not None and (body is None or is_error(inside, reply, body)):
            return NEEDS_BODY if body is None else _error_inside(rules, request, reply, body, inside)
    ends_bare = reply.end and request.is_grpc
    if (
        reply.status < 400
        and rules.plain_below_400
        and reply.trailers is None
        and not ends_bare
        and (reply.plain or not reply.fields.get_all("grpc-status"))
    ):
        seen = _look_into(rules, reply, body, None) if rules.looks_below_400 else None
        if seen is None:
            return SUCCESS  # nearly every call ends here
        if isinstance(seen, NeedsBody):
            return NEEDS_BODY
    known = rules.known if reply.plain and not ends_bare else None
    verdict: Verdict | NeedsBody | None = None if known is None else known.get(reply.status)
    if verdict is not None:
        return verdict
    own = reply.grpc_status
    grpc = _status_of_reply(rules, request, reply, own)
    verdict = _by_rules(rules, reply, body, grpc, own) or _by_lists_of_reply(rules, request, reply.status, grpc, own)
    if isinstance(verdict, NeedsBody):
        return verdict
    if rules.repeats:
        verdict = _with_repeats(rules, request, reply, verdict)
    if body is None and rules.delays_in_bodies and verdict.cls.retryable and looks_into_body(rules.dialects, reply):
        return NEEDS_BODY
    may_be_out_of_quota = body is None and rules.out_of_quota and verdict.cls is not Class.SUCCESS
    if may_be_out_of_quota and _is_out_of_quota(rules, reply, None) is NEEDS_BODY:
        return NEEDS_BODY
    if _proves_unprocessed(verdict, request, reply.status):
        verdict = replace(verdict, unprocessed=True)
    if known is not None and reply.status != 425:  # a 425's verdict depends on the request's Early-Data too
        known[reply.status] = verdict
    return verdict


def _error_inside(rules: Classify, request: Request, reply: Reply, body: bytes, inside: ErrorsInside) -> Verdict:
    """The verdict on an error in a success's body: the same as on an answer with this body and the status
    `inside.status`, which such an error counts as.
    """
    verdict = classify(rules, request, Reply(inside.status, reply.fields, early=reply.early), body)
    assert not isinstance(verdict, NeedsBody)  # the body was passed
    return replace(verdict, because=f"{verdict.because}, inside a {reply.status}", counts_as=inside.status)


def classify_fault(rules: Classify, request: Request, fault: Fault) -> Verdict:
    """The class of an attempt that ended with a fault, and so without a whole answer."""
    grpc = _status_of_fault(rules, request, fault)
    verdict = _by_rules_of_fault(rules, fault, grpc) or _by_lists_of_fault(rules, request, fault, grpc)
    if rules.repeats:
        verdict = _with_repeats(rules, request, fault, verdict)
    if rules.service_timeout and fault.by_attempt and verdict.cls.retryable:  # not first_byte or idle
        verdict = replace(verdict, repeated_by=SERVICE_CONFIG)
    refused = fault.progress in (Progress.NEVER_SENT, Progress.REFUSED) or fault.kind is FaultKind.REFUSED_STREAM
    if refused or (verdict.cls is Class.THROTTLING and not verdict.unprocessed):
        return replace(verdict, unprocessed=True)
    return verdict


def refuses_credential(rules: Classify, request: Request, reply: Reply) -> bool:
    """Whether an answer means that the upstream no longer accepts the credential, or not for a while: a 401, its
    equivalent for a gRPC call, or an answer that one of the dialects calls out of quota (contract, section 13).
    """
    if reply.status == 401 or (request.is_grpc and reply.grpc_status == UNAUTHENTICATED):
        return True
    return bool(rules.out_of_quota) and _is_out_of_quota(rules, reply, reply.peeked) is True


def _is_out_of_quota(rules: Classify, reply: Reply, body: bytes | None) -> bool | NeedsBody:
    evidence = ReplyEvidence(reply, body, rules.empty_events)
    for each in rules.out_of_quota:
        found = SingleRule(each).match_reply(evidence, None)
        if found is not None:
            return NEEDS_BODY if isinstance(found, NeedsBody) else True
    return False


def names(
    listed: frozenset[int | str | FaultKind],
    rules: Classify,
    request: Request,
    reply: Reply | None,
    fault: Fault | None,
) -> bool:
    """Whether the list `listed` (hedging's `non_fatal`) names the end of an attempt: `fault` or, if that is None, the
    answer `reply`. The end is looked up under the same statuses as for its class: a fault may count as UNAVAILABLE, and
    a grpc-status comes before the HTTP status.
    """
    if fault is not None:
        grpc = _status_of_fault(rules, request, fault)
        if grpc is not None and GRPC_STATUS_NAMES[grpc] in listed:
            return True
        return fault.kind in listed and (grpc is None or fault.code is None or fault.kind is not FaultKind.RESET)
    if reply is None:
        return False
    own = reply.grpc_status
    grpc = _status_of_reply(rules, request, reply, own)
    if grpc is not None and GRPC_STATUS_NAMES[grpc] in listed:
        return True
    if reply.counts_as is not None:
        return reply.counts_as in listed
    if own is not None and (rules.service_codes is not None or _speaks_grpc(rules, request)):
        return False
    if rules.service_codes is not None and reply.status == 429 and "UNAVAILABLE" in listed:
        return True
    return reply.status in listed


# -- gRPC's second status -----------------------------------------------------------------------------------------


def _status_of_reply(rules: Classify, request: Request, reply: Reply, own: int | None) -> int | None:
    """The grpc-status by which an answer is classified: the one that it carries (`own`) or, if it carries none, the one
    that its HTTP status stands for; None if this call is not classified by a grpc-status.
    """
    status = reply.status
    if own is not None or status == 429 or (status < 400 and not reply.end):
        return own
    if _speaks_grpc(rules, request):
        return grpc_status_of_http(status)
    return UNAVAILABLE if rules.service_codes is not None and status in _UNAVAILABLE_STATUSES else None


def _status_of_fault(rules: Classify, request: Request, fault: Fault) -> int | None:
    """The grpc-status that a fault stands for; None if it stands for none, or if this call is not classified by a
    grpc-status.
    """
    if fault.kind not in _UNAVAILABLE_FAULTS or not (rules.service_codes is not None or _speaks_grpc(rules, request)):
        return None
    return fault.grpc_status if fault.kind is FaultKind.RESET else UNAVAILABLE


def _speaks_grpc(rules: Classify, request: Request) -> bool:
    return (rules.grpc_dialect or rules.service_codes is not None) and request.is_grpc


# -- rules and dialects -------------------------------------------------------------------------------------------


def _by_rules(
    rules: Classify, reply: Reply, body: bytes | None, grpc: int | None, own: int | None
) -> Verdict | NeedsBody | None:
    """The verdict of the first rule that matches the answer; the user's rules come before those of the dialects.
    NEEDS_BODY if a rule has to see the body first; None if no rule matches. `grpc`: the grpc-status by which the answer
    is classified. `own`: the grpc-status that the answer carries. Both are None for none.
    """
    evidence = ReplyEvidence(reply, body, rules.empty_events)
    for dialect, step in ruleset(rules).steps:
        found = step.match_reply(evidence, grpc)
        if isinstance(found, Rule):
            named = found.grpc is not None and own is not None
            verdict = Verdict(found.as_, words_of(dialect, found), unprocessed=named, dialect=dialect)
            inside = reply.status < 400 and found.looks_into_success
            return replace(verdict, counts_as=found.counts_as) if inside else verdict
        if found is not None:
            return found
    return None


def _by_rules_of_fault(rules: Classify, fault: Fault, grpc: int | None) -> Verdict | None:
    for dialect, step in ruleset(rules).steps:
        found = step.match_fault(fault, grpc)
        if found is not None:
            return Verdict(found.as_, words_of(dialect, found), dialect=dialect)
    return None


def words_of(dialect: str, rule: Rule) -> str:
    """The name of a rule in explanations: the rule's `because`, after the name of its dialect. `dialect`: that name, ""
    for a rule of the policy's own.
    """
    return f"dialect {dialect}: {rule.because}" if dialect else rule.because


# -- lists --------------------------------------------------------------------------------------------------------


def _by_lists_of_reply(rules: Classify, request: Request, status: int, grpc: int | None, own: int | None) -> Verdict:
    if rules.service_codes is not None:
        named = _by_service_codes(rules.service_codes, grpc)
        if named is None and status == 429 and own is None and UNAVAILABLE in rules.service_codes:
            named = Verdict(Class.THROTTLING, "service config: UNAVAILABLE, for 429")
        return named or _unnamed(status, grpc, own)
    speaks = _speaks_grpc(rules, request)
    if (
        grpc == UNAVAILABLE and rules.grpc_dialect
    ):  # sent by the upstream or, on a gRPC call, derived from the HTTP status
        because = "dialect grpc: UNAVAILABLE" if own is not None else f"dialect grpc: UNAVAILABLE, for {status}"
        return Verdict(Class.TRANSIENT, because, unprocessed=own is not None)
    if speaks and status == 429 and own is None:
        return Verdict(Class.THROTTLING, "dialect grpc: 429")
    by_grpc = rules.grpc.get(grpc) if grpc is not None else None
    by_status = None if speaks and own is not None else rules.statuses.get(status)
    proven = by_grpc is not None and own is not None  # a status derived from the HTTP one proves nothing
    if by_grpc is not None and grpc is not None and _STRENGTH[by_grpc] >= _STRENGTH.get(by_status or by_grpc, 0):
        what = GRPC_STATUS_NAMES[grpc] if own is not None else f"{GRPC_STATUS_NAMES[grpc]}, for {status}"
        return Verdict(by_grpc, f"{by_grpc}: {what}", unprocessed=proven)
    if by_status is not None:
        # The grpc-status is named too, by a weaker class: that alone proves that the request was not processed.
        return Verdict(by_status, f"{by_status}: {status}", unprocessed=proven)
    return _unnamed(status, grpc, own)


def _by_lists_of_fault(rules: Classify, request: Request, fault: Fault, grpc: int | None) -> Verdict:
    if rules.service_codes is not None:
        if fault.kind is FaultKind.ATTEMPT_TIMEOUT and rules.service_retries:
            return Verdict(Class.TIMEOUT, "service config: attempt_timeout")
        return _by_service_codes(rules.service_codes, grpc) or Verdict(Class.UNNAMED, f"not named: {fault.kind}")
    if grpc == UNAVAILABLE:
        return Verdict(Class.TRANSIENT, f"dialect grpc: UNAVAILABLE, for {fault.kind}")
    if grpc is not None:  # a gRPC call's stream was reset with a code
        named, what = rules.grpc.get(grpc), f"{GRPC_STATUS_NAMES[grpc]}, for {fault.kind}"
        return Verdict(Class.UNNAMED, f"not named: {what}") if named is None else Verdict(named, f"{named}: {what}")
    cls = rules.faults.get(fault.kind)
    return Verdict(Class.UNNAMED, f"not named: {fault.kind}") if cls is None else Verdict(cls, f"{cls}: {fault.kind}")


def _by_service_codes(codes: frozenset[int], grpc: int | None) -> Verdict | None:
    if grpc is None or grpc not in codes:
        return None
    return Verdict(Class.TRANSIENT, f"service config: {GRPC_STATUS_NAMES[grpc]}", unprocessed=True)


def _unnamed(status: int, grpc: int | None, own: int | None) -> Verdict:
    if status < 400 and grpc in (None, OK):
        return SUCCESS
    if own is None and status < 400:
        return Verdict(Class.UNNAMED, f"not named: UNKNOWN, for {status} without a grpc-status")
    return Verdict(Class.UNNAMED, f"not named: {status}" if own is None else f"not named: {GRPC_STATUS_NAMES[own]}")


def _proves_unprocessed(verdict: Verdict, request: Request, status: int) -> bool:
    """Whether an answer proves that the upstream did not process the request, although its verdict does not say so yet:
    its class is throttling, or its status is 425 and the request had no Early-Data (RFC 8470, section 5.2). False for a
    success.
    """
    if verdict.unprocessed or verdict.cls is Class.SUCCESS:
        return False
    return verdict.cls is Class.THROTTLING or (status == 425 and not request.fields.get_all("early-data"))


# -- repeats by a provider's own client --------------------------------------------------------------------------------


def _with_repeats(rules: Classify, request: Request, end: Reply | Fault, verdict: Verdict) -> Verdict:
    """Return the verdict on an attempt's end, and add the name of the dialect whose provider's own client would repeat
    this call after such an end. A failure that has no class gets one. The verdict is unchanged if no such client would
    repeat the call. `end`: the answer or the fault.
    """
    if verdict.cls in (Class.SUCCESS, Class.FATAL):
        return verdict
    covering = [(name, each) for name, each in rules.repeats if _covers(each, name, rules, request, end, verdict)]
    if not covering:
        return verdict
    name, repeats = min(covering, key=lambda each: each[1].within is not None)
    if verdict.cls.retryable:
        return replace(verdict, repeated_by=name, repeated_within=repeats.within)
    status = _status_of(end, verdict) if isinstance(end, Reply) else 0
    cls = _REPEATED.get(status, Class.TRANSIENT)
    what = status or (end.kind.value if isinstance(end, Fault) else "")
    unprocessed = verdict.unprocessed or cls is Class.THROTTLING
    return Verdict(cls, f"dialect {name}: its client repeats {what}", unprocessed, name, repeats.within)


#: Dialects whose client repeats a call because the provider recognizes it by a key or a token, which another upstream
#: has never seen.
KNOWN_BY_KEY = frozenset({"aws", "stripe"})


def is_repeated_anywhere(rules: Classify, request: Request, end: Reply | Fault, verdict: Verdict) -> bool:
    """Whether a provider's own client would repeat the call after this end even at an upstream that has never seen the
    call. The clients of all dialects in `rules` are asked. A client that repeats only because its provider recognises
    the repeat does not count. `end`: the answer or the fault, whose class is in `verdict`.
    """
    covering = (name for name, each in rules.repeats if _covers(each, name, rules, request, end, verdict))
    return any(name not in KNOWN_BY_KEY for name in covering)


def broken_answers_of(rules: Classify, request: Request, fault: Fault, verdict: Verdict) -> frozenset[str]:
    """The HTTP methods whose answers a provider's own client reads completely before the app gets them, so that the
    client can repeat a request whose answer broke off. The methods come from all dialects whose client would repeat
    this request. `fault`: the break, whose class is in `verdict`.
    """
    idempotent = request.method in IDEMPOTENT_METHODS
    covering = [
        each
        for name, each in rules.repeats
        if (idempotent and _is_the_clients(each, rules, request)) or _covers(each, name, rules, request, fault, verdict)
    ]
    return frozenset[str]().union(*[each.whole_answers for each in covering])


def _covers(
    repeats: Repeats, dialect: str, rules: Classify, request: Request, end: Reply | Fault, verdict: Verdict
) -> bool:
    if isinstance(end, Fault):
        named = end.kind in repeats.faults
    else:
        named = _status_of(end, verdict) >= 400 and _repeats_name(repeats, dialect, request, end, verdict)
    return named and _is_the_clients(repeats, rules, request)


def _status_of(reply: Reply, verdict: Verdict) -> int:
    """The HTTP status of a failure. For an error that was found in a success's body, it is the status that this error
    counts as.
    """
    return reply.status if verdict.counts_as is None else verdict.counts_as


def _repeats_name(repeats: Repeats, dialect: str, request: Request, reply: Reply, verdict: Verdict) -> bool:
    status = _status_of(reply, verdict)
    if status in repeats.statuses:
        return True
    if status in repeats.idempotent_statuses and request.method in IDEMPOTENT_METHODS:
        return True
    if repeats.transient_codes and verdict.dialect == dialect and verdict.cls is Class.TRANSIENT:
        return True
    if repeats.retry_after and reply.fields.get_all("retry-after"):
        return True
    return repeats.should_retry and any(value.lower() == "true" for value in reply.fields.get_all("x-should-retry"))


def _is_the_clients(repeats: Repeats, rules: Classify, request: Request) -> bool:
    """Whether the request is of the kind that the provider's own client sends and may repeat: it has the header fields,
    the idempotency key and the signature that `repeats` asks for.
    """
    fields, unsigned = request.fields, False
    if repeats.unsigned is not None and request.method == "POST" and not fields.get_all("authorization"):
        unsigned = is_form(repeats.unsigned, rules.hosts, request)
    for name, glob in repeats.headers:
        if unsigned and name == "authorization":
            continue
        if not (any_matches(list(fields.get_all(name)), glob) and forwarded(fields, name)):
            return False
    if repeats.keyed and not request.is_idempotent(rules.key_header, rules.keys_injected):
        return False
    counts = fields.get_all("amz-sdk-request") if repeats.alone else ()
    return all(count in ("0", "1") for text in counts for count in _AWS_COUNTS.findall(text))


# -- reads among POSTs ------------------------------------------------------------------------------------------------

#: The separators of several values in one field line.
_SEVERAL = re.compile(r"[,;\s]")


def read_by(rules: Classify, request: Request) -> tuple[str, str] | None:
    """The name of the dialect that calls the request a read (a POST that changes nothing), and the value of the request
    field that names the operation; None if no dialect calls it one.
    """
    if request.method != "POST":
        return None
    for name, reads in rules.reads:
        value = _single(request.fields, reads.field)
        if value and any(any_matches([value], glob) for glob in reads.values) and _is_vouched_for(reads, request):
            return name, value
    return None


def why_no_read(rules: Classify, request: Request) -> str:
    """The reason, as a clause for people, why this POST is not taken for a call that only reads; "" if there is nothing
    to say, since the request is such a call, or no POST, or no dialect can tell. The first dialect that can tell is
    used.
    """
    if request.method != "POST" or not rules.reads or read_by(rules, request):
        return ""
    name, reads = rules.reads[0]
    value = _single(request.fields, reads.field)
    if not value:
        return f"{name}: no single {reads.field} says what it asks for"
    if not any(any_matches([value], glob) for glob in reads.values):
        return f"{name}: {value} is not a read"
    return f"{name}: {value} is a read only with " + ", ".join(f"{field}: {glob}" for field, glob in reads.headers)


def _is_vouched_for(reads: Reads, request: Request) -> bool:
    """Whether the request has the other fields that `reads` asks for; with them, the server checks that the field which
    names the operation agrees with the body.
    """
    said = ((_single(request.fields, name), glob) for name, glob in reads.headers)
    return all(value and any_matches([value], glob) for value, glob in said)


def _single(fields: Fields, name: str) -> str:
    """The value of a field, if the field is present once, with one value, and is forwarded to the upstream; else ""."""
    values = fields.get_all(name)
    if len(values) != 1 or _SEVERAL.search(values[0]):
        return ""
    return forwarded(fields, name) or ""
