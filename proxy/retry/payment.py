"""The money of one attempt: what it has paid, or owes, until it is sent.

Law: whatever was taken (the price of a retry, a token of the rate, one of the limiter) is either sent with the attempt
or given back, exactly once, and nothing is taken where anything refuses. A bucket that is kept elsewhere is asked; its
answer counts while it is waited for, and what it grants too late goes back to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.retry.buckets import ASK, Bucket
from proxy.retry.token_bucket import TokenGate, Waiter


@dataclass(slots=True, eq=False)
class Payment:
    """What is paid for one attempt. `price`: tokens that were taken from the bucket, None where nothing had to be
    paid; `owed`: tokens that the bucket has still to be paid, None: nothing; `asked`: the bucket was asked for them and
    has not answered; `limit`: when its silence counts as a no (seconds).
    """

    bucket: Bucket | None
    price: float | None = None
    owed: float | None = None
    asked: bool = False
    limit: float = 0.0
    _taken_at: float = 0.0
    _tokens: tuple[TokenGate, ...] = ()

    def take(self, price: float, now: float) -> bool:
        """Take the price of a retry, if the bucket has it; whether it has."""
        if self.bucket is not None and not self.bucket.take(price, now):
            return False
        self.price, self._taken_at = price, now
        return True

    def owe(self, price: float, limit: float, now: float) -> bool:
        """The price could not be taken here: the bucket is to be asked for it. False: there is nothing to ask."""
        if self.bucket is None or self.bucket.affords(price, now) != ASK:
            return False
        self.owed, self.limit = price, limit
        return True

    def pay(self, now: float) -> bool:
        """Pay what is owed, if it is there by now; whether it was."""
        if self.owed is None or not self.take(self.owed, now):
            return False
        self.owed = None
        return True

    def granted(self, price: float, now: float) -> bool:
        """The bucket that was asked has taken the price; whether that is still of interest."""
        if not self.asked or self.owed != price:
            return False
        self.price, self._taken_at = price, now
        self.asked, self.owed = False, None
        return True

    def refused(self, price: float) -> bool:
        """The bucket that was asked says no; whether that is still of interest. What is here may pay all the same."""
        if not self.asked or self.owed != price:
            return False
        self.asked = False
        return True

    def pass_gate(self, gate: TokenGate, waiter: Waiter, now: float) -> float:
        """Take a gate's token, once: not after `now` where it is taken, else when to ask again."""
        if gate in self._tokens:
            return now
        at = gate.ask(waiter, now)
        if at <= now:
            self._tokens = (*self._tokens, gate)
        return at

    def give_back(self, now: float) -> None:
        """The attempt is not sent: all that was taken for it comes back."""
        if self.price is not None and self.bucket is not None:
            self.bucket.give_back(self.price, now, taken_at=self._taken_at)
        for gate in self._tokens:
            gate.bucket.give_back(now)
        self.price = self.owed = None
        self.asked, self._tokens = False, ()
