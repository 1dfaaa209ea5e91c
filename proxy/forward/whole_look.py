"""A look into an answer that came whole with its head, for a call for which nothing had to be decided before.

A policy that bounds the first byte, or has a rule for the body of a success, keeps the head of a success until the part
of the body that counts has come (`proxy.retry.answers.first_byte`). If all of the body has come, there is nothing to
wait for: the answer is judged here, by the same rules. Any other answer is left to the `Call`.
"""

from __future__ import annotations

from proxy.forward.request_plan import Plan
from proxy.retry.answers.classification import NEEDS_BODY, classify
from proxy.retry.answers.event_stream import is_event_stream
from proxy.retry.answers.first_byte import PEEK_LIMIT
from proxy.retry.facts import Class, Reply
from proxy.wire.head import ResponseHead, Trailers

#: The results of a look: something has to be decided; the head alone shows a success; the body was looked at too.
DECIDE, PLAIN, LOOKED = 0, 1, 2
#: Module-level names of enumeration members, which are faster to read: see `proxy.retry.facts`.
_SUCCESS = Class.SUCCESS


def look_at(plan: Plan, head: ResponseHead, data: bytes, end: bool, trailers: Trailers | None) -> int:
    """Judge an answer that has come with its head. `data`: its body, which is whole, with its `trailers` (None for
    none), if `end`. Return PLAIN if the head alone shows a success, LOOKED if a success is shown by the body too, and
    DECIDE if the call's `Call` has to judge the answer.
    """
    policy = plan.policy
    rules, enforced = policy.classify, policy.mode == "enforce"
    is_bounded = enforced and policy.timeouts.first_byte is not None
    if head.status >= 400:
        return DECIDE
    if not (is_bounded or rules.looks_below_400):
        return PLAIN
    reply = Reply(head.status, head)
    reply.length = head.content_length
    verdict = classify(rules, plan.request, reply, None)
    if not is_bounded and verdict is not NEEDS_BODY:
        return PLAIN
    if not (enforced and end and data) or trailers is not None or plan.is_grpc or head.status == 101:
        return DECIDE
    if is_event_stream(reply):
        return DECIDE
    if verdict is NEEDS_BODY:
        verdict = classify(rules, plan.request, reply, data[:PEEK_LIMIT])
    return LOOKED if verdict is not NEEDS_BODY and verdict.cls is _SUCCESS else DECIDE
