"""Cooldowns: which calls an upstream's request to wait holds, and how a cooldown is reported (contract, section 5,
"Cooldown").

After a 429, calls with the same credential are held, because limits belong to a key; after a 503 all calls are. The
governor (`proxy.retry.weather.governor`) holds them.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from proxy.retry.facts import Fields
from proxy.retry.weather.lane import Lane

#: The fields that carry an API key. The source of the names: `Authorization` RFC 9110, 11.6.2; `api-key` Azure OpenAI;
#: `x-api-key` Anthropic and API gateways; `x-goog-api-key` Google's APIs.
CREDENTIAL_FIELDS = ("authorization", "api-key", "x-api-key", "x-goog-api-key")
N = TypeVar("N", bound=Hashable)

#: The most groups of one scope that are remembered: the one whose delay is over soonest makes room, but among so many
#: candidates one that holds no call is preferred.
MOST_GROUPS = 1000
#: The group of calls without a credential.
NO_CREDENTIAL = b"-"
#: Seconds by which a delay reported by another machine may end later than the known one and still be the same delay:
#: its report took time to arrive.
SAME = 0.02
#: The group of all callers.
ALL_CALLERS = b"*"


def credential_of(fields: Fields) -> bytes:
    """A hash of the fields that carry the call's credential; NO_CREDENTIAL if it has none."""
    values = [tuple(fields.get_all(name)) for name in CREDENTIAL_FIELDS]
    if not any(values):
        return NO_CREDENTIAL
    return digest(values)


def digest(values: object) -> bytes:
    """A hash that distinguishes values without keeping them, since they may be secrets."""
    return hashlib.blake2b(repr(values).encode("utf-8", "surrogateescape"), digest_size=12).digest()


@dataclass(frozen=True, slots=True)
class CooldownBegan:
    """The report of an answer that began a cooldown, for observers; no decision depends on it.

    `group` is the group of calls that the cooldown holds (ALL_CALLERS, NO_CREDENTIAL, or a credential's hash). `delay`
    is the delay in seconds, and `field` the field of the answer that named it. `at` is when the answer came (seconds on
    the driver's clock). The other attributes describe the call that got the answer: its path as the app named it, the
    number of the attempt, the endpoint, and the number of the policy's own credential that it carried, from 1 (0 for
    none). If the cooldown began on another machine (`is_elsewhere`), only the group, the status and the rest of the
    delay are known.
    """

    upstream: str
    route: str
    group: bytes
    status: int
    field: str
    delay: float
    at: float
    method: str
    path: str
    attempt: int
    endpoint: str
    key: int

    @property
    def until(self) -> float:
        """The time at which the delay is over (seconds on the driver's clock)."""
        return self.at + self.delay

    @property
    def is_elsewhere(self) -> bool:
        """Whether the cooldown began on another machine. Then nothing is known of the call whose answer began it."""
        return not self.method


class FleetCooldowns(Protocol):
    """The link that shares cooldowns with other machines. It reports cooldowns that begin here, and gets this process a
    share of the calls that may be sent while callers return after a cooldown. A lane (the queue of a group of callers)
    is named by its endpoint's label and its group.
    """

    def adopt(self, name: tuple[str, bytes], lane: Lane) -> None:
        """Note that this process keeps a lane of this name from now on. Cooldowns of other machines under this name are
        then passed on to the lane.
        """

    def forget(self, name: tuple[str, bytes]) -> None:
        """Note that this process does not keep this lane any more."""

    def began(self, name: tuple[str, bytes], status: int, delay: float, *, sent: float, now: float) -> None:
        """Report that an answer in the lane called `name` asked for a delay (seconds). `status`: the answer's status.
        `sent`: the time at which the answered attempt was sent.
        """

    def asked(self, name: tuple[str, bytes], now: float) -> None:
        """Note that a call in this process waits in the lane called `name`, so that this process needs a share of the
        places of the lane's slow start.
        """

    def part(self, now: float) -> None:
        """Share nothing any more: all lanes go on in this process alone."""


class Ends(Generic[N]):
    """A priority queue of names (of groups of calls, say), by the time in seconds at which something about each name
    ends, such as its cooldown. When an end moves later, that is noticed only when its name comes up; so moving an end
    costs nothing.
    """

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[float, N]] = []

    def add(self, name: N, until: float) -> None:
        """Add a name that is not in the queue yet. `until`: the time of its end (seconds)."""
        heapq.heappush(self._heap, (until, name))

    def pop(self, until_of: Callable[[N], float | None]) -> tuple[float, N] | None:
        """Remove the name whose end is soonest, and return its end and the name; None if no name is left. `until_of`
        returns the present end of a name, or None if the name is not known any more.
        """
        heap = self._heap
        while heap:
            until, name = heap[0]
            now_until = until_of(name)
            if now_until is not None and now_until > until:
                heapq.heapreplace(heap, (now_until, name))
                continue
            heapq.heappop(heap)
            if now_until is not None:
                return until, name
        return None
