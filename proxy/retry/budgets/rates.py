"""Several rate buckets that one attempt pays together: all of them, or none (contract, section 16).

A bucket counts either attempts or a language model's tokens. An attempt costs one token of a bucket that counts
attempts. Of the other kind it costs as many tokens as are estimated (`proxy.retry.budgets.token_estimate`), in all, or
only those of the prompt or output if the bucket counts only these. A waiting call is in the queues of all these
buckets' gates at once, and joins them in one step. So the first to come is the first everywhere, and no two calls can
wait for each other.
"""

from __future__ import annotations

import math
from typing import Protocol

from proxy.retry.budgets.token_bucket import REJECTED, STEP, TokenGate
from proxy.retry.budgets.token_estimate import UNIT_INDEX, Estimate, price_of
from proxy.retry.policies.bucket_specs import RateUnit
from proxy.retry.queues.waiter import Waiter


class Payer(Waiter, Protocol):
    """A waiting call that says what its attempt costs."""

    estimate: Estimate | None  # of the attempt's tokens; None if they are not known, and count as none


class Rates:
    """The gates of several rate buckets, or of one that counts a language model's tokens. `gates`: each gate, with the
    unit that its bucket counts.
    """

    __slots__ = ("_lead", "gates")

    def __init__(self, gates: tuple[tuple[TokenGate, RateUnit], ...]) -> None:
        self.gates = gates
        waits = [each for each in gates if not each[0].rejects] or gates
        self._lead = max(waits, key=lambda each: each[1] != "attempts")[0]  # decides the turns of apps
        for gate, _ in gates:
            gate.bucket.paid_with(other.bucket for other, _ in gates if other is not gate)

    def ask(self, waiter: Payer, now: float) -> float:
        """Take the attempt's price from all buckets and return `now`. If any bucket lacks tokens, take nothing, and
        return the time at which to ask again, or REJECTED if the call may not wait.
        """
        by_unit = price_of(waiter.estimate)
        prices = [(gate, by_unit[UNIT_INDEX[unit]]) for gate, unit in self.gates]
        if self._lead.may_stand and self._lead.lines_for(waiter, now) is not None:
            self._stand(waiter, prices, now)
        if all(_has(gate, waiter, price, now) for gate, price in prices) and self._take(waiter, prices, now):
            return now
        latest = now + STEP
        for gate, price in prices:
            if _has(gate, waiter, price, now):
                gate.stand(waiter, price, now)  # this bucket has the tokens, so that it rejects no call
                continue
            if gate.rejects:
                gate.bucket.lacks(now, price)
            at = gate.join(waiter, now, price)
            if at == REJECTED:
                self.leave(waiter, now)
                return REJECTED
            latest = max(latest, at)
        for gate, price in prices:
            if not gate.rejects and not _has(gate, waiter, price, now):
                gate.bucket.lacks(now, price)
        return latest

    def _stand(self, waiter: Payer, prices: list[tuple[TokenGate, float]], now: float) -> None:
        """Put a call into the queues of all gates before any gate is asked whether it is the call's turn. Used if this
        call, or one that waits already, has an app: one gate (`_lead`) then decides the order of the calls for all
        gates. `prices`: each gate, with what the attempt costs there.
        """
        lead = self._lead
        lead.stand(waiter, next(price for gate, price in prices if gate is lead), now)
        for gate, price in prices:
            if gate is not lead:
                gate.stand(waiter, price, now, lead.lines)

    def _take(self, waiter: Payer, prices: list[tuple[TokenGate, float]], now: float) -> bool:
        """Take every price, or none; return whether they were taken. They may not be, because another process took
        tokens of a shared bucket first. `prices`: each gate, with what the attempt costs there.
        """
        taken: list[tuple[TokenGate, float]] = []
        for gate, price in prices:
            if not gate.bucket.take(now, price):
                for earlier, paid in taken:
                    earlier.bucket.give_back(now, paid)
                return False
            taken.append((gate, price))
        for gate, price in prices:
            gate.passed(waiter, price, now)
        return True

    def give_back(self, now: float, estimate: Estimate | None = None) -> None:
        """Put back what an attempt that is not sent has paid. `estimate`: its price in a language model's tokens."""
        by_unit = price_of(estimate)
        for gate, unit in self.gates:
            gate.give_back(now, by_unit[UNIT_INDEX[unit]])

    def settle(self, now: float, unused: Estimate, served: bool) -> None:
        """Correct what an attempt has paid to the tokens that it really used. `unused`: the tokens to put back; if a
        number is negative, that many more tokens are taken. `served`: the attempt succeeded, so that a bucket of
        requested tokens keeps the output's part.
        """
        by_unit = price_of(unused)
        for gate, unit in self.gates:
            if unit == "attempts":
                continue
            back = unused.prompt if served and unit == "requested" else by_unit[UNIT_INDEX[unit]]
            if back:
                gate.bucket.give_back(now, back)
                if gate.queue:
                    gate.moved(now)

    def leave(self, waiter: Waiter, now: float) -> None:
        """Remove the waiting call from all queues; those after it move up."""
        for gate, _ in self.gates:
            gate.leave(waiter, now)

    def seconds_left(self, now: float, estimate: Estimate | None = None) -> float:
        """The seconds that a new call would wait. `estimate`: its attempt's price in a language model's tokens; None:
        the attempt costs one token of each bucket.
        """
        if estimate is None:
            return max(gate.seconds_left(now) for gate, _ in self.gates)
        by_unit = price_of(estimate)
        return max(gate.seconds_left(now, by_unit[UNIT_INDEX[unit]]) for gate, unit in self.gates)

    def shortage(self, now: float, estimate: Estimate | None) -> str:
        """The reason why a bucket of a language model's tokens does not pay for an attempt now, in words; "" if all of
        them do. `estimate`: the attempt's price; None if it is not known.
        """
        by_unit = price_of(estimate)
        for gate, unit in self.gates:
            price, bucket = by_unit[UNIT_INDEX[unit]], gate.bucket
            if unit != "attempts" and bucket.wait(now, min(price, bucket.capacity)) > 0:
                left = max(0, math.floor(bucket.level(now)))
                return f"it is estimated at {math.ceil(price)} tokens, and the upstream's rate bucket has {left} left"
        return ""

    def withheld(self) -> str:
        """The reason why a bucket gives no token at the moment, even if its level is high enough; "" if the levels
        alone decide.
        """
        return next((why for gate, _ in self.gates if (why := gate.withheld())), "")


def _has(gate: TokenGate, waiter: Waiter, price: float, now: float) -> bool:
    """Whether the waiting call is first in the queue, and the bucket has the tokens that an attempt with this price
    needs to begin (a full bucket, if the price is higher).
    """
    return gate.is_first(waiter, now) and gate.bucket.wait(now, min(price, gate.bucket.capacity)) <= 0
