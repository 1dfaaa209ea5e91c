"""The payment for one attempt: the tokens and places that are taken for it.

Law of payments: a payment may have taken the price of a retry, a token of the rate, a token of the limiter, a place in
the waiting room, a hedge within `extra`, or a breaker's probe. Each of these is either sent with the attempt or given
back, exactly once, and nothing is taken if anything refuses. An attempt's place under the concurrency limit is always
given back: if the attempt is not sent, or otherwise when it ends (`land`); until then its endpoint counts it as under
way, too. A bucket that is kept outside this process has to be asked. Its answer counts only while the payment waits for
it, and tokens that it grants too late go back to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from proxy.retry.apps import NamedApp
from proxy.retry.budgets.buckets import ASK, Bucket
from proxy.retry.budgets.concurrency import Places
from proxy.retry.budgets.hedges import Hedges
from proxy.retry.budgets.rates import Payer, Rates
from proxy.retry.budgets.token_bucket import TokenGate
from proxy.retry.budgets.token_estimate import Estimate
from proxy.retry.facts import Outcome
from proxy.retry.policies.policy import Concurrency
from proxy.retry.queues.waiter import Waiter
from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.retry.upstreams.endpoints import Choice, Endpoints

#: Seconds after which a bucket that was asked and has not answered counts as refusing. Stores answer sooner, by their
#: own bound (`redis.timeout`).
PATIENCE = 60.0
#: The event that a retry waits for whose time has not come.
_BACKOFF = "backoff"


class Applicant(Payer, Protocol):
    """The call that asks gates for the attempt (`proxy.retry.call.admission`)."""

    @property
    def was_probe(self) -> bool:
        """Whether an attempt of the call was the probe of an outage."""

    def oust(self, place: str) -> None:
        """Take this call's place away, for a call of higher priority. This call is refused when it asks again. `place`:
        which place it is, here "room" for the waiting room.
        """


class Owed:
    """A price that a bucket outside this process has still to grant. `price`: the price in tokens. `asked`: the bucket
    was asked for it and has not answered. `limit`: the time (seconds) from which a missing answer counts as a refusal.
    """

    __slots__ = ("asked", "limit", "price")

    def __init__(self, price: float, limit: float) -> None:
        self.price = price
        self.limit = limit
        self.asked = False


class Payment:
    """The payment for one attempt: everything that is taken for it.

    `price`: the tokens that were taken from the bucket, None if none were due. `owed`: the price that has still to be
    taken, None for none. `choice`: the attempt's endpoint, if the core chooses it. `app`: the app that the call belongs
    to, None if the configuration names no apps. `waiter`: the call as gates know it, once one holds it. `estimate`: the
    tokens of a language model that were paid to rate buckets, until they are settled. `refunded`: those of
    them that were put back when the answer of a failed attempt came, None if there was none; if the answer goes to the
    app, its end may show that they were used.
    """

    __slots__ = (
        "_free", "_hedge", "_load", "_place", "_taken_at", "_tokens", "_under_way", "app", "bucket", "choice",
        "estimate", "owed", "price", "refunded", "room", "upstream", "waiter",
    )  # fmt: skip

    def __init__(self, bucket: Bucket | None, room: WaitingRoom, upstream: str, app: NamedApp | None = None) -> None:
        self.begin(bucket, room, upstream, app)

    def begin(self, bucket: Bucket | None, room: WaitingRoom, upstream: str, app: NamedApp | None) -> None:
        """Begin with nothing taken. `pay_for` does this on a new object, past the constructor, which takes longer."""
        self.bucket = bucket
        self.room = room
        self.upstream = upstream
        self.app = app
        self.waiter: Applicant | None = None
        self.price: float | None = None
        self.owed: Owed | None = None
        self.choice: Choice | None = None
        self._taken_at = 0.0
        self._hedge: tuple[Hedges, float] | None = None  # the hedges among which this attempt counts, and since when
        self._tokens: tuple[TokenGate | Rates, ...] = ()
        self._free: TokenGate | Rates | None = None  # the adaptive limiter, if it was off and took no token
        self.estimate: Estimate | None = None
        self.refunded: Estimate | None = None
        self._under_way: Places | None = None  # the places of which the attempt has one
        self._load: Places | None = None  # the count in which the attempt is under way to its endpoint
        self._place = ""  # the place taken in the waiting room: none, "backoff", or "held" by a gate

    def wait(self, place: str, waiter: Applicant | None = None) -> bool:
        """Take a place in the waiting room for the call, in exchange for the place that it has there, if any. Returns
        False if the room is full. `place`: the reason for the wait, "backoff" or "held". `waiter`: the call as a gate
        knows it, if one holds it.
        """
        if self._place != place:
            if self._place:
                self.leave_room()
            self.waiter = waiter
            if not self.room.enter(self.upstream, place == "held", self):
                return False
            self._place = place
        return True

    def leave_room(self) -> None:
        """Free the place in the waiting room, since the call waits for nothing any more."""
        if self._place:
            self.room.leave(self.upstream, self._place == "held", self)
            self._place = ""

    @property
    def may_be_ousted(self) -> bool:
        """Whether the call may lose its place in the waiting room to another. It may if a gate holds it, unless it was
        the probe of an outage.
        """
        return self.waiter is not None and not self.waiter.was_probe

    def ousted(self) -> None:
        """Note that the waiting room gave the call's place to a call of higher priority. The call is refused when it
        asks again.
        """
        self._place = ""
        if self.waiter is not None:
            self.waiter.oust("room")

    def take(self, price: float, now: float) -> bool:
        """Take the price of a retry from the bucket. Returns False if the bucket refuses."""
        if self.bucket is not None and not self.bucket.take(price, now):
            return False
        self.price, self._taken_at = price, now
        return True

    def take_over(self, other: Payment) -> None:
        """Take over the price that `other`, the payment of an attempt, has paid, because that attempt is sent again
        under this payment.
        """
        self.price, other.price = other.price, None
        self._taken_at = other._taken_at

    def owe(self, price: float, limit: float, now: float) -> bool:
        """Note that a retry has still to pay the price, because the bucket's tokens are outside this process and have
        to be asked for. `limit`: the time from which a missing answer counts as a refusal. Returns False, with nothing
        noted, if the bucket is none that can be asked.
        """
        if self.bucket is None or self.bucket.affords(price, now) != ASK:
            return False
        self.owed = Owed(price, limit)
        return True

    def pay(self, now: float) -> bool:
        """Take the owed price of the retry, if this process has the tokens by now. Returns False if it has not."""
        if self.owed is None or not self.take(self.owed.price, now):
            return False
        self.owed = None
        return True

    def granted(self, price: float, now: float) -> bool:
        """Note that the bucket outside this process, which was asked for the price, has granted it. Returns False if
        the payment no longer needs the price, so that the caller has to give it back.
        """
        if not self._waits_for(price):
            return False
        self.price, self._taken_at = price, now
        self.owed = None
        return True

    def refused(self, price: float) -> bool:
        """Note that the bucket outside this process, which was asked for the price, refuses it. The retry may still be
        paid from tokens that this process has. Returns False if the payment no longer waits for this answer.
        """
        owed = self.owed
        if owed is None or not self._waits_for(price):
            return False
        owed.asked = False
        return True

    def _waits_for(self, price: float) -> bool:
        """Whether the bucket outside this process was asked for this price, and has not answered yet."""
        return self.owed is not None and self.owed.asked and self.owed.price == price

    def take_hedge(self, hedges: Hedges, share: float, now: float) -> bool:
        """Count the attempt as a hedge, unless it was counted before. Returns False if the scope already has as many
        hedges as are allowed. `share`: the share (0 to 1) of the scope's calls that may be hedged.
        """
        if self._hedge is None:
            at = hedges.take(share, now)
            if at is None:
                return False
            self._hedge = hedges, at
        return True

    def pass_gate(self, gate: TokenGate | Rates, waiter: Applicant, now: float) -> float:
        """Take what this attempt costs at the gate, unless it has paid there already. The gate is that of rate buckets,
        or of the adaptive limiter, which takes nothing while it is off. Returns a time up to `now` if the attempt has
        passed the gate; otherwise the later time at which to ask again.
        """
        if gate in self._tokens or gate is self._free:
            return now
        at = gate.ask(waiter, now)
        if at > now:
            return at
        if isinstance(gate, Rates):
            self._tokens, self.estimate = (*self._tokens, gate), waiter.estimate
        elif gate.bucket.charges:
            self._tokens = (*self._tokens, gate)
        else:
            self._free = gate
        return at

    def settle(self, unused: Estimate, served: bool, now: float) -> None:
        """Correct the price that was paid at rate buckets, from the estimated tokens to those that the attempt used.
        `unused`: the tokens to put back; if a number is negative, that many more tokens are taken. `served`: the
        attempt succeeded. A second call for the same attempt does nothing.
        """
        if self.estimate is not None:
            self.estimate = None
            self._correct(unused, served, now)

    def refund(self, unused: Estimate, now: float) -> None:
        """Put back the tokens `unused`, because the attempt has failed with an answer. If its answer goes to the app,
        its end settles the price.
        """
        estimate = self.estimate
        if estimate is not None:
            self.refunded = unused
            self.estimate = Estimate(estimate.prompt - unused.prompt, estimate.output - unused.output, estimate.model)
            self._correct(unused, False, now)

    def _correct(self, unused: Estimate, served: bool, now: float) -> None:
        for gate in self._tokens:
            if type(gate) is Rates:
                gate.settle(now, unused, served)

    def take_place(self, places: Places, waiter: Waiter, rules: Concurrency, now: float) -> float:
        """Take a place under the concurrency limit for the attempt, if it has none. Returns a time up to `now` if it
        then has one; the later time at which to ask again; or REJECTED if the call may not wait under the limit's
        `rules`.
        """
        if self._under_way is not None:
            return now
        at = places.ask(waiter, rules, now)
        if at <= now:
            self._under_way = places
        return at

    def has_place(self, places: Places) -> None:
        """Note that the attempt already holds one of these places, from before this payment was made."""
        self._under_way = places

    def land(self, now: float) -> None:
        """Free the attempt's place under the concurrency limit, if it has one, because the attempt is no longer under
        way.
        """
        places, self._under_way = self._under_way, None
        if places is not None:
            places.give_back(now)
        load, self._load = self._load, None
        if load is not None:
            load.give_back(now)

    def fly(self, load: Places, now: float) -> None:
        """Count the attempt as under way to its endpoint until it ends. `load`: the count for that endpoint. If the
        attempt was sent to another endpoint before, it no longer counts there.
        """
        if self._load is not None:
            self._load.give_back(now)
        load.enter(now)
        self._load = load

    def choose(
        self,
        endpoints: Endpoints,
        avoid: Sequence[int],
        now: float,
        only: int | None = None,
        *,
        least: bool = False,
    ) -> bool:
        """Choose the attempt's endpoint, in place of an earlier choice. Returns False if the circuit breakers of all
        endpoints are open. `avoid`: the endpoints to use only if no other is left. `only`: the endpoint that was chosen
        already, None for none. `least`: choose the endpoint with the fewest attempts under way.
        """
        self.forgo_choice(now)
        self.choice = endpoints.choose(avoid, now, only, least=least)
        return self.choice is not None

    def forgo_choice(self, now: float) -> None:
        """Undo the choice of the attempt's endpoint. If the attempt was to be the probe of the endpoint's circuit
        breaker, another attempt may be it.
        """
        if self.choice is not None:
            self.choice.undecided(now)
            self.choice = None

    def give_back(self, now: float) -> None:
        """Give back all that was taken for the attempt, which is not sent."""
        self.leave_room()
        self.forgo_choice(now)
        if self.price is not None and self.bucket is not None:
            self.bucket.give_back(self.price, now, taken_at=self._taken_at)
        self.leave_gates(now)
        self.price = self.owed = None

    def leave_gates(self, now: float) -> None:
        """Give back the tokens, the place and the hedge that gates granted this attempt. The price of the retry stays
        paid.
        """
        self.land(now)
        self.give_back_tokens(now)
        if self._hedge is not None:
            hedges, at = self._hedge
            hedges.give_back(at)
            self._hedge = None

    def give_back_tokens(self, now: float) -> None:
        """Give back the tokens of rate buckets and of the adaptive limiter."""
        for gate in self._tokens:
            if type(gate) is Rates:
                gate.give_back(now, self.estimate)
            else:
                gate.give_back(now)
        self._tokens, self.estimate, self._free = (), None, None


def pay_for(
    bucket: Bucket | None, room: WaitingRoom, upstream: str, app: NamedApp | None, price: float, due: float, now: float
) -> Payment | Outcome:
    """Take the price of a retry that is due at the time `due` (seconds) from the bucket, and a place in the waiting
    room until then. Returns the payment; or, if price or place is refused, the outcome, and then nothing is taken. A
    price for which the bucket has to be asked is noted as owed. `upstream`, `app`: those of the call.
    """
    payment = Payment.__new__(Payment)
    payment.begin(bucket, room, upstream, app)
    if due > now and not payment.wait(_BACKOFF):
        return Outcome.OVERLOADED
    if not payment.take(price, now):
        if not payment.owe(price, due + PATIENCE, now):
            payment.leave_room()
            return Outcome.BUCKET_EMPTY
        if not payment.wait(_BACKOFF):
            return Outcome.OVERLOADED
    return payment
