"""The handling of an answer that breaks, in words: before it has gone to the app, later, and a stream without
its last event (contract, section 15).
"""

from __future__ import annotations

from proxy.lab.policy_tests.runner import duration
from proxy.retry.call.broken_answers import may_break
from proxy.retry.call.call_state import CallState
from proxy.retry.policies.policy import Policy

_UNFINISHED = {
    "tell": "is counted",
    "break": "is broken off",
    "event": "gets the provider's own error event",
}


def broken(call: CallState) -> str:
    """The handling of the call's answer if it breaks, in words: before it has gone to the app, later, and if a stream
    ends without its last event; "" if the policy does nothing about it.
    """
    policy = call.policy
    if policy.mode != "enforce" or call.request.is_grpc or call.request.method == "CONNECT":
        return ""
    return "; ".join(part for part in (_whole(call), _resumed(call), _streams(policy)) if part)


def _whole(call: CallState) -> str:
    policy, answers = call.policy, call.policy.answers
    if answers is None or call.hints.disabled or policy.strategy.max_attempts < 2:
        return ""
    if not may_break(policy, call.request):
        return "an answer that breaks is not asked for again: the first attempt may have been carried out"
    size = answers.whole
    kept = f"{size // 1024}KiB" if size >= 1024 and not size % 1024 else f"{size}B"
    return f"an answer that breaks within its first {kept} is asked for again, except on the last attempt"


def _resumed(call: CallState) -> str:
    policy, resume = call.policy, call.policy.resume
    if resume is None or call.hints.disabled or policy.strategy.kind == "none" or call.request.method != "GET":
        return ""
    return f"later it goes on where it broke if it has a strong ETag and a length, within {duration(resume.wait)}"


def _streams(policy: Policy) -> str:
    packs = [each.name for each in policy.classify.dialects if each.stream_ends is not None]
    return f"a stream without the last event of {' or '.join(packs)} {_UNFINISHED[policy.unfinished]}" if packs else ""
