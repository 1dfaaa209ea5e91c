"""The price of a call's attempts in a language model's tokens, as the driver of the call sees it.

Contract, section 16. The estimate needs the request's body, so the call begins when the body is whole, or when no more
of it is kept; an app that waits for 100 Continue sends none before. What the answer says that it cost is read as it
passes.
"""

from __future__ import annotations

from collections.abc import Mapping

from proxy.forward.attempt import Attempt
from proxy.forward.request_plan import Plan
from proxy.forward.upload import Upload
from proxy.retry.actions import Actions
from proxy.retry.facts import Outcome, Reply
from proxy.retry.machine import Call
from proxy.retry.policy import Policy
from proxy.retry.scope_state import ScopeState
from proxy.retry.stream_errors import StreamWatch
from proxy.retry.token_estimate import estimate
from proxy.retry.token_usage import UsageReader
from proxy.transport.replay_buffer import PIECE, Replay


def awaits_body(plan: Plan, upload: Upload) -> bool:
    """Whether the call waits for more of its request's body before it begins."""
    if plan.policy.tokens is None or plan.head.expect_continue:
        return False
    replay = upload.replay
    return not (replay.done or upload.overfull or not replay.has_room_held(PIECE))


def expect_price(
    call: Call, plan: Plan, scope: ScopeState | None, replay: Replay | None, upload: Upload | None, now: float
) -> None:
    """Estimate what each attempt of the call costs, and note it in the call before it begins."""
    rules = plan.policy.tokens
    assert rules is not None and scope is not None  # the policy counts tokens, and the call has a scope
    size = 0 if upload is None else upload.size
    body = () if replay is None else replay.whole()
    call.expects(estimate(rules, body, size, scope.outputs, now))


def begin(
    call: Call, plan: Plan, scope: ScopeState | None, replay: Replay | None, upload: Upload | None, now: float
) -> Actions:
    """Begin the call, with an estimate of what its attempts cost if its policy counts tokens; return its actions."""
    if plan.policy.tokens is not None:
        expect_price(call, plan, scope, replay, upload, now)
    return call.start(now)


def read_usage(policy: Policy, reply: Reply, watch: StreamWatch | None) -> StreamWatch | UsageReader | None:
    """A reader of an answer that goes to the app, for the tokens that it cost; `watch` if tokens are not counted."""
    return watch if policy.tokens is None else UsageReader(policy.tokens, reply, watch)


def settle_price(call: Call, flights: Mapping[int, Attempt], outcome: Outcome, now: float) -> None:
    """Settle what the attempt whose answer went to the app has paid."""
    for attempt in flights.values():
        reader = attempt.watch
        if isinstance(reader, UsageReader):
            call.used(reader.ended(whole=outcome is Outcome.SUCCESS), now)
