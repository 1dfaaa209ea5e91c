"""The settlement of an attempt's price in a language model's tokens, at its end (contract, section 16, "Settled").

The price was an estimate. In the end an attempt pays what its answer says that it cost: tokens that were not used are
put back, and tokens that were used beyond the estimate are taken. Only these tokens are settled, never the one token
that an attempt costs at a bucket of attempts.

Some providers count what a request asks for when it comes, and give nothing back: at a bucket of requested tokens only
the prompt of an attempt that succeeded is settled.

Of an attempt that was answered with an error the output's part is put back at the head, since a retry may follow at
once. If that answer goes to the app, its end settles the price: what it says that it cost is paid, and if it broke off
without saying so, the output's part is taken again.

An answer that says what its prompt cost, and has neither a number nor text of an output, has no output: embeddings, or
a prompt that Gemini has blocked.

Law: each attempt is settled once. If the answer does not say what it cost, nothing is put back that it may have used.
"""

from __future__ import annotations

from proxy.retry.answers.token_usage import TokenUsage
from proxy.retry.budgets.token_estimate import Estimate
from proxy.retry.call.next_attempt import NextAttempt
from proxy.retry.call.payment import Payment
from proxy.retry.facts import Failure, Progress
from proxy.retry.policies.policy import Policy

#: The statuses of requests that cost no token: the key was refused, or the limit was reached.
_FREE = frozenset({401, 429})
_NOTHING = Estimate(0.0, 0.0)


def settle_failed(payment: Payment, failure: Failure, now: float) -> None:
    """Settle the price, in a language model's tokens, of an attempt that failed. All of the price is put back if the
    attempt was not processed; the output's part is put back if the attempt was answered with an error; nothing is put
    back after any other end, since the upstream may have worked.
    """
    estimate, fault, status = payment.estimate, failure.fault, failure.status
    if estimate is None:
        return
    if status in _FREE or (fault is not None and fault.progress in (Progress.NEVER_SENT, Progress.REFUSED)):
        payment.settle(estimate, False, now)
    elif fault is None:
        is_error = status is not None and status >= 400
        payment.refund(Estimate(0.0, estimate.output) if is_error else _NOTHING, now)
    else:
        payment.settle(_NOTHING, False, now)


def settle_delivered(
    next_attempt: NextAttempt, policy: Policy, payment: Payment, usage: TokenUsage, now: float
) -> None:
    """Settle the price of the attempt whose answer went to the app. `usage`: how many tokens the answer really cost;
    the number of output tokens is also noted for later estimates. `next_attempt`: has the state that calls share;
    `policy`: that of the upstream that answered, which with an error may be one that the call has left.
    """
    estimate, rules, sizes = payment.estimate, policy.tokens, next_attempt.scope.token_sizes
    if estimate is None or rules is None:
        return
    if payment.refunded is not None:
        _settle_error(next_attempt, policy, payment, usage, now)
        return
    prompt, output = estimate.prompt, estimate.output
    if usage.prompt is not None:
        prompt = usage.prompt
        if sizes is not None:
            sizes.add_prompt(estimate.prompt, prompt)
    elif usage.text is not None and sizes is not None:
        prompt *= sizes.prompt_share
    if usage.output is not None:
        output = usage.output
        if sizes is not None:
            sizes.add(estimate.model, output, now)
    elif usage.text is not None:
        output = min(usage.text / rules.bytes, output)
    elif usage.whole and usage.prompt is not None:
        output = 0.0
        if sizes is not None:
            sizes.add(estimate.model, output, now)
    payment.settle(Estimate(estimate.prompt - prompt, estimate.output - output), True, now)
    next_attempt.env.tokens_used(policy, prompt, output, estimate.price)


def _settle_error(next_attempt: NextAttempt, policy: Policy, payment: Payment, usage: TokenUsage, now: float) -> None:
    """Settle the price of an attempt that failed, and whose answer went to the app."""
    estimate, refunded = payment.estimate, payment.refunded
    assert estimate is not None and refunded is not None
    if usage.prompt is None and usage.output is None:
        payment.settle(_NOTHING if usage.whole else Estimate(0.0, -refunded.output), False, now)
        return
    prompt = estimate.prompt if usage.prompt is None else usage.prompt
    output = 0.0 if usage.output is None else usage.output
    payment.settle(Estimate(estimate.prompt - prompt, estimate.output - output), False, now)
    next_attempt.env.tokens_used(policy, prompt, output, estimate.price + refunded.price)
