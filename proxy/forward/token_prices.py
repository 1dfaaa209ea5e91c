"""The price of a call's attempts in the tokens of a language model (contract, section 16), as the driver of the call
estimates and settles it.

The estimate needs the request's body, so the call begins when the body is whole, or when no more of it is kept; an app
that waits for 100 Continue sends none before. The tokens that an answer says it cost are read as its body passes.
"""

from __future__ import annotations

from collections.abc import Mapping

from proxy.forward.attempt import Attempt
from proxy.forward.fallback import Journey
from proxy.forward.request_plan import Plan
from proxy.forward.upload import Upload
from proxy.retry.answers.stream_errors import StreamWatch
from proxy.retry.answers.token_usage import UsageReader
from proxy.retry.budgets.token_estimate import estimate
from proxy.retry.call.actions import Actions
from proxy.retry.call.machine import Call
from proxy.retry.call.request_hints import read_timeout
from proxy.retry.facts import Outcome, Reply
from proxy.retry.policies.policy import Policy
from proxy.retry.scopes.scope_state import ScopeState
from proxy.transport.replay_buffer import Replay


def awaits_body(plan: Plan, upload: Upload) -> bool:
    """Whether a call waits for more of its request's body, `upload`, before it begins, because its price depends on the
    body.
    """
    if plan.policy.tokens is None or plan.head.expect_continue:
        return False
    replay = upload.replay
    return not (replay.done or upload.overfull or not replay.has_room_held(replay.piece))


def expect_price(
    call: Call, plan: Plan, scope: ScopeState | None, replay: Replay | None, upload: Upload | None, now: float
) -> None:
    """Estimate how many tokens of a language model each attempt costs, and note it in the call before it begins. The
    call's policy must count them. `scope`: the state that the call shares with others, which knows how large answers
    have been; `replay`: the request's body as kept, None if it is not kept; `upload`: the same body as it comes, None
    if the request has none.
    """
    rules = plan.policy.tokens
    assert rules is not None and scope is not None  # the policy counts tokens, and the call has a scope
    size = 0 if upload is None else upload.size
    body = () if replay is None else replay.whole()
    call.expects(estimate(rules, body, size, scope.token_sizes, now))


def awaits_until(plan: Plan, started: float) -> float:
    """The deadline of a call that began at `started` and waits for its request's body; infinite if it has none."""
    limits = (plan.policy.timeouts.total, read_timeout(plan.request.fields))
    return started + min([each for each in limits if each is not None], default=float("inf"))


def begin(
    call: Call,
    plan: Plan,
    scope: ScopeState | None,
    replay: Replay | None,
    upload: Upload | None,
    now: float,
    since: float = 0.0,
) -> Actions:
    """Begin the call; return its actions. If the call's policy counts the tokens of a language model, the estimate for
    an attempt is noted in the call first (`expect_price`). `scope`: the state that the call shares with others;
    `replay`: the request's body as kept; `upload`: the same body as it comes; each is None if there is none.
    `since`: the time at which the request's head came, if the call has waited for the body.
    """
    if plan.policy.tokens is not None:
        expect_price(call, plan, scope, replay, upload, now)
    return call.start(now, since)


def read_usage(policy: Policy, reply: Reply, watch: StreamWatch | None) -> StreamWatch | UsageReader | None:
    """Return the reader of an answer that goes to the app. If the policy counts the tokens of a language model, the
    reader finds out how many the answer cost, and passes the answer to `watch` too; else the reader is `watch` itself
    (None: the answer is not read).
    """
    return watch if policy.tokens is None else UsageReader(policy.tokens, reply, watch)


def settle_price(
    call: Call, flights: Mapping[int, Attempt], journey: Journey | None, outcome: Outcome, now: float
) -> None:
    """Correct the price that was paid for the attempt whose answer went to the app, from the estimate to the tokens
    that the answer says it cost. `flights`: the call's attempts by number; `journey`: the call's course over several
    upstreams, None for a call that can't fall back; `outcome`: how the call ended.
    """
    for number, attempt in flights.items():
        reader = attempt.watch
        if isinstance(reader, UsageReader):
            usage = reader.ended(whole=outcome is Outcome.SUCCESS or _is_whole_error(attempt, outcome))
            call.used(usage, now, None if journey is None else journey.policy_of(number))


def _is_whole_error(attempt: Attempt, outcome: Outcome) -> bool:
    return attempt.ended and outcome not in (Outcome.COMMITTED, Outcome.CLIENT_GONE)
