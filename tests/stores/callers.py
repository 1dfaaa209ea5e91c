"""Calls as a governor knows them, and one worker's governor with what its calls do."""

from __future__ import annotations

import math

from proxy.retry.budgets.token_bucket import Waiter
from proxy.retry.facts import Fields, NoFields, Request
from proxy.retry.scopes.factory import Factory
from proxy.retry.weather.caller import Caller, Name
from proxy.retry.weather.ending import AttemptEnding
from proxy.retry.weather.governor import Governor
from proxy.stores.shared_memory.factory import SharedFactory
from proxy.stores.shared_memory.records import Memory

REFUSED = AttemptEnding(False, True, False, True, "", "503")
UNCONNECTED = AttemptEnding(False, True, False, False, "endpoint", "connect_failure")
ERROR = AttemptEnding(False, False, False, True, "", "500")
UNREACHED = AttemptEnding(False, False, False, False, "endpoint", "connect_failure")
BROKEN = AttemptEnding(False, False, False, False, "route", "reset")
NO_FIELDS = NoFields()


class Waiting(Waiter):
    """A call that waits; `at` is the time to which its alarm was moved last."""

    def __init__(self) -> None:
        self.at = math.nan

    def retime(self, at: float) -> None:
        self.at = at


def caller(fields: Fields = NO_FIELDS, method: str = "GET") -> Caller:
    """A call that everything may hold."""
    made = Caller(Request(method, "u.example", "/x"), fields, "r")
    made.cools = made.limits = made.outages = True
    return made


def cooling(fields: Fields = NO_FIELDS) -> Caller:
    """A call that cooldowns alone hold."""
    made = caller(fields)
    made.limits = made.outages = False
    return made


def factories(memory: Memory, count: int) -> list[SharedFactory]:
    """The factories of so many workers that share this memory, each with a row of its own, as their parent gives it."""
    at = memory.row(0)
    memory.words[at] = max(memory.words[at], count)
    return [SharedFactory(memory, row=number + 1) for number in range(count)]


class Worker:
    """One worker's governor of a scope."""

    def __init__(self, factory: Factory, upstream: str = "u") -> None:
        self.governor: Governor = factory.governor(upstream, "x")
        self.flights: dict[object, float] = {}

    def pushback(self, status: int, delay: float, at: float, sent: float | None = None) -> Name | None:
        """An answer, to an attempt sent at `sent`, asks for a delay."""
        sent = at if sent is None else sent
        return self.governor.requests_wait(cooling(), status, delay, sent=sent, now=at, whole=True)

    def ask(self, waiter: Waiter, at: float, who: Caller | None = None) -> float:
        """A call asks whether it may be sent."""
        return self.governor.ask(waiter, cooling() if who is None else who, at)[0]

    def sends(self, waiter: Waiter, at: float) -> object:
        """The call is sent."""
        attempt = object()
        self.governor.traffic.flying += 1
        self.governor.sent(waiter, attempt, at)
        self.flights[attempt] = at
        return attempt

    def answered(self, attempt: object, at: float, who: Caller | None = None) -> None:
        """The attempt is answered well."""
        sent = self.flights.pop(attempt)
        if self.governor.traffic.went_well(at) or self.governor.holds(at):
            self.governor.answered_well(attempt, cooling() if who is None else who, sent, at)

    def fails(self, attempt: object, ending: AttemptEnding, at: float, *, again: bool = False) -> None:
        """The attempt fails."""
        sent = self.flights.pop(attempt)
        self.governor.traffic.failed()
        self.governor.failed(attempt, caller(), ending, sent, at, again=again, cools=False)

    def is_well(self, at: float, calls: int = 30, seconds: float = 0.01) -> None:
        """That many calls are sent and answered from `at` on, one after another."""
        for number in range(calls):
            now = at + number * seconds
            self.answered(self.sends(Waiting(), now), now + seconds / 2, caller())
