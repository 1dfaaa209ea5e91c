"""The states of a call, and the moves between them."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.retry.answers.first_byte import BodyWait
from proxy.retry.call.payment import Payment
from proxy.retry.capacity.traffic import Traffic
from proxy.retry.facts import Outcome, Reply
from proxy.retry.instants import NEVER
from proxy.retry.weather.ahead import SentNote


class Next:
    """The attempt that comes next, once no gate holds it. It is also the state of a call that waits for this attempt,
    with no attempt in flight (the last answer, if any, is held). `due`: the time at which it is due (seconds). `price`:
    what it costs, in tokens of the bucket. `until`: the time after which repeating the request is no longer safe.
    `gated`: `due` was named by a gate, which may have changed the time since.
    """

    __slots__ = ("due", "gated", "price", "until")

    def __init__(self, due: float, price: float = 0.0, until: float = NEVER, gated: bool = False) -> None:
        self.due = due
        self.price = price
        self.until = until
        self.gated = gated


class Flight:
    """An attempt in flight. `attempt`: its number. `since`: the time at which it was sent (seconds). `payment`: what it
    has paid, None for nothing. `endpoint`: its endpoint's number if the core chooses among endpoints, otherwise None.

    `sent_to` and `protocol`: the label of the endpoint and the protocol that the driver reported, "" until then.
    `reply`: the head of its answer, while the answer's body must be looked at, and before delivery. `body_wait`: the
    wait for the body's beginning, if the answer is a success whose head is kept back until then, otherwise None. `key`:
    the number of the credential that it carries, None without one. `key_why`: the reason for that credential. `aside`:
    that credential was put aside at the attempt's end. `held`: the seconds for which the gate `held_by` held the
    attempt. `reported`: its answer was reported, as no failure, to everything that learns from it, although the answer
    may still break off. `range`: the value of its Range field, if it asks for the rest of an answer that broke. `note`:
    what had been spent of reported limits when it was sent, None if answers are not read for limits. `traffic`: the
    count in which it is under way, None once its end was reported.
    """

    __slots__ = (
        "aside", "attempt", "body_wait", "endpoint", "held", "held_by", "key", "key_why", "note", "payment", "protocol",
        "range", "reply", "reported", "sent_to", "since", "traffic",
    )  # fmt: skip

    def __init__(self, attempt: int, since: float, payment: Payment | None = None) -> None:
        self.begin(attempt, since, payment)

    def begin(self, attempt: int, since: float, payment: Payment | None) -> None:
        """Begin the flight. The core calls this on a new object, past the constructor, which takes longer."""
        self.attempt = attempt
        self.since = since
        self.payment = payment
        self.reply: Reply | None = None
        self.endpoint: int | None = None
        self.body_wait: BodyWait | None = None
        self.key: int | None = None
        self.key_why = self.sent_to = self.protocol = self.held_by = self.range = ""
        self.held = 0.0
        self.aside = self.reported = False
        self.traffic: Traffic | None = None
        self.note: SentNote | None = None

    def land(self, now: float) -> None:
        """Free the attempt's place under the concurrency limit, because the attempt has failed or was cancelled, or its
        answer's last byte has come.
        """
        if self.payment is not None:
            self.payment.land(now)

    def cancel(self, now: float) -> None:
        """Free the cancelled attempt's place under the concurrency limit. If it was the probe of a circuit breaker, end
        the probe without a verdict.
        """
        if self.payment is not None:
            self.payment.land(now)
            self.payment.forgo_choice(now)


class New:
    """The first state of a call, before it is started."""

    __slots__ = ()


class Flying:
    """The state in which attempts are in flight. `flights`: these attempts, by their numbers. `planned`: the hedge that
    is to be sent next to them, None for none.
    """

    __slots__ = ("flights", "planned")

    def __init__(self, flights: dict[int, Flight], planned: Next | None = None) -> None:
        self.flights = flights
        self.planned = planned


class Delivering:
    """The state in which an answer is delivered to the app. `attempt`: the number of the answer's attempt. `outcome`:
    the call's outcome, unless the answer breaks off.
    """

    __slots__ = ("attempt", "outcome")

    def __init__(self, attempt: int, outcome: Outcome) -> None:
        self.attempt = attempt
        self.outcome = outcome


class Done:
    """The last state of a call: it is over, with this outcome."""

    __slots__ = ("outcome",)

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


State = New | Next | Flying | Delivering | Done

#: The events that each state has a use for, and the states that they may lead to; any other event comes too late, and
#: has no effect. docs/reference/transitions.md is printed from this; a test plays calls at random, and checks that they
#: make every one of these moves and no other.
MOVES: Mapping[type, Mapping[str, tuple[type, ...]]] = {
    New: {"start": (Next, Flying, Done), "replay_lost": (New,), "app_gone": (Done,), "cut": (Done,)},
    Next: {
        "woke": (Next, Flying, Delivering, Done),
        "granted": (Next, Flying, Delivering, Done),
        "refused": (Next, Delivering, Done),
        "replay_lost": (Delivering, Done),
        "app_gone": (Done,),
        "cut": (Delivering, Done),
    },
    Flying: {
        "sent": (Flying,),
        "request_sent": (Flying,),
        "head": (Next, Flying, Delivering, Done),
        "peeked": (Next, Flying, Delivering, Done),
        "failed": (Next, Flying, Delivering, Done),
        "denied": (Done,),
        "no_room": (Flying, Done),
        "resumed": (Delivering, Done),
        "woke": (Flying, Delivering, Done),
        "granted": (Flying,),
        "refused": (Flying,),
        "replay_lost": (Flying,),
        "app_gone": (Done,),
        "cut": (Delivering, Done),
    },
    Delivering: {
        "ended": (Done,),
        "failed": (Done,),
        "broke": (Next, Flying, Done),
        "app_gone": (Done,),
        "cut": (Done,),
    },
    Done: {},
}
