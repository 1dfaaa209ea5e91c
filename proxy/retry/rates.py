"""Several rate buckets that one attempt pays together: all of them, or none (contract, section 16).

An attempt costs one token of a bucket that counts attempts; of a bucket that counts a language model's tokens it costs
as many as are estimated (`proxy.retry.token_estimate`), in all, or of those that the bucket counts. A waiter stands in
the queues of all gates at once, and joins them in one step, so the first to come is the first everywhere, and no two
waiters can wait for each other.
"""

from __future__ import annotations

from typing import Protocol

from proxy.retry.bucket_specs import RateUnit
from proxy.retry.token_bucket import REJECTED, STEP, TokenGate
from proxy.retry.token_estimate import UNIT_INDEX, Estimate, price_of
from proxy.retry.waiter import Waiter


class Payer(Waiter, Protocol):
    """A waiter that says what its attempt costs."""

    estimate: Estimate | None  # of the attempt's tokens; None if they are not known, and count as none


class Rates:
    """The gates of several rate buckets, or of one that counts a language model's tokens. `gates`: each gate, with what
    its bucket counts.
    """

    __slots__ = ("_lead", "gates")

    def __init__(self, gates: tuple[tuple[TokenGate, RateUnit], ...]) -> None:
        self.gates = gates
        waits = [each for each in gates if not each[0].rejects] or gates
        self._lead = max(waits, key=lambda each: each[1] != "attempts")[0]  # decides the turns of apps
        for gate, _ in gates:
            gate.bucket.paid_with(other.bucket for other, _ in gates if other is not gate)

    def ask(self, waiter: Payer, now: float) -> float:
        """Take the attempt's price from all buckets and return `now`; else take nothing, and return the time to ask
        again, or REJECTED if the waiter may not wait.
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
        """Put a call into the queues of all gates before any gate is asked whether it is the call's turn. One gate
        (`_lead`) decides the order of the calls for all gates. Used if the call, or another one that waits at that
        gate, has an app. `prices`: each gate, with what the attempt costs there.
        """
        lead = self._lead
        lead.stand(waiter, next(price for gate, price in prices if gate is lead), now)
        for gate, price in prices:
            if gate is not lead:
                gate.stand(waiter, price, now, lead.lines)

    def _take(self, waiter: Payer, prices: list[tuple[TokenGate, float]], now: float) -> bool:
        """Take every price of `prices` (each gate, and what the attempt costs there), or none. False if a gate did not
        have enough: another process may take the tokens of a shared bucket first.
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
        """Put back what an attempt has paid that is not sent. `estimate`: its price in a language model's tokens."""
        by_unit = price_of(estimate)
        for gate, unit in self.gates:
            gate.give_back(now, by_unit[UNIT_INDEX[unit]])

    def settle(self, now: float, unused: Estimate, served: bool) -> None:
        """Put back the `unused` part of the tokens that an attempt has paid; a negative number takes those that it used
        beyond them. `served`: the attempt succeeded, so that a bucket of requested tokens keeps the output's part.
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
        """Remove the waiter from all queues; those after it move up."""
        for gate, _ in self.gates:
            gate.leave(waiter, now)

    def seconds_left(self, now: float) -> float:
        """Seconds that a new caller would wait, if its attempt cost one token of each bucket."""
        return max(gate.seconds_left(now) for gate, _ in self.gates)

    def withheld(self) -> str:
        """Why a bucket gives no token at the moment although its level may suffice; "" if the levels alone decide."""
        return next((why for gate, _ in self.gates if (why := gate.withheld())), "")


def _has(gate: TokenGate, waiter: Waiter, price: float, now: float) -> bool:
    """Whether the waiter is first in the queue, and the bucket has the tokens that an attempt with this price needs to
    begin (a full bucket, if the price is higher).
    """
    return gate.is_first(waiter, now) and gate.bucket.wait(now, min(price, gate.bucket.capacity)) <= 0
