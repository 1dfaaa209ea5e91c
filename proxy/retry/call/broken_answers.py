"""The choice of answers that are held back until they are complete, since another attempt may follow if they break off.

Contract, section 15, "Whole answers". An answer is held back only if another attempt would really follow a break.
Answers to requests that could not be repeated are not delayed.
"""

from __future__ import annotations

from proxy.retry.answers.classification import broken_answers_of, classify_fault
from proxy.retry.answers.event_stream import media_type
from proxy.retry.answers.whole_answers import WholeAnswer, length_of
from proxy.retry.call.call_state import CallState
from proxy.retry.facts import Fault, FaultKind, Progress, Reply, Request, forwarded, is_grpc_media
from proxy.retry.policies.policy import Policy, WholeAnswers

#: Methods whose answers are kept without further conditions.
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
#: Media types of bodies that are read while they come.
_STREAMING = frozenset(
    {
        "application/json-seq",
        "application/vnd.amazon.eventstream",
        "application/x-ndjson",
        "multipart/x-mixed-replace",
        "text/event-stream",
    }
)
#: The fault of an answer that broke while it was kept, as a policy classes it.
_BROKEN = Fault(FaultKind.RESET, Progress.ANSWERED)


def may_break(policy: Policy, request: Request) -> bool:
    """Whether an answer to this request may be held back until it is complete, because another attempt may follow if
    the answer breaks off. The failure must be retryable, and the request one of these: a GET, HEAD or OPTIONS; a call
    with an idempotency key of the app's own; a call that the provider's own client repeats after a break. A write under
    a condition (If-Match, say) never qualifies: its first attempt may itself make the condition fail.
    """
    fields, rules = request.fields, policy.classify
    if _is_conditional_write(request):
        return False
    verdict = classify_fault(rules, request, _BROKEN)
    if not verdict.cls.retryable:
        return False
    if request.method in _SAFE or forwarded(fields, rules.key_header):
        return True
    return request.method in broken_answers_of(rules, request, _BROKEN, verdict)


def _is_conditional_write(request: Request) -> bool:
    """Whether the request has a condition (If-Match, If-Unmodified-Since, or If-None-Match: *) that may fail once the
    request itself has been carried out.
    """
    fields = request.fields
    if fields.get_all("if-match") or fields.get_all("if-unmodified-since"):
        return True
    return "*" in fields.get_all("if-none-match")


def may_follow_head(policy: Policy, request: Request) -> bool:
    """Whether a request may be repeated although the upstream has probably carried it out: the head of a success had
    come when the answer broke off or fell silent.

    A DELETE, or a PUT under a condition, is not repeated, since the second attempt would be answered 404 or 412, and
    the app would take that for a failure. Such a request is repeated after all if `unsafe_methods` is `always`, if it
    has an idempotency key of the app's own, or if the provider's own client would repeat it.
    """
    method, rules = request.method, policy.classify
    if method != "DELETE" and not (method == "PUT" and _is_conditional_write(request)):
        return True
    if rules.unsafe_methods == "always":
        return True
    return bool(forwarded(request.fields, rules.key_header)) or may_break(policy, request)


def may_be_kept(answers: WholeAnswers, reply: Reply) -> bool:
    """Whether this success may be held back until it is complete: it is no stream, no upgrade, and no partial answer
    (206) that is longer than what may be held. `answers`: the policy's bounds on held answers.
    """
    media = media_type(reply)
    if media in _STREAMING or is_grpc_media(media) or reply.status == 101:
        return False
    return reply.status != 206 or (length_of(reply) or 0) <= answers.whole


def answer_to_keep(call: CallState, reply: Reply, now: float) -> WholeAnswer | None:
    """The object that keeps this answer, a success, until it is complete (contract, section 15); None if the answer is
    not to be kept.
    """
    policy, made = call.policy, call.attempts - call.earlier - call.spared
    answers = policy.answers
    if answers is None or reply.whole or call.hints.disabled or made >= policy.strategy.max_attempts:
        return None
    kept = may_be_kept(answers, reply) and may_break(policy, call.request)
    return WholeAnswer(answers, reply, now) if kept else None
