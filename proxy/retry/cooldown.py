"""Cooldowns: an upstream's request to wait, which holds all callers of the scope (contract, section 5, "Cooldown").

After a 429, calls with the same credential are held, because limits belong to a key; after a 503 all calls are. Each
such group returns by a slow start of its own (`proxy.retry.slow_start`). A call may be in two groups: it queues with
its credential's first, and keeps its place there while it waits for the other, so that neither queue passes it by.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from proxy.retry.facts import Fields
from proxy.retry.slow_start import SlowStart
from proxy.retry.token_bucket import Waiter

#: The fields that carry an API key. The source of the names: `Authorization` RFC 9110, 11.6.2; `api-key` Azure OpenAI;
#: `x-api-key` Anthropic and API gateways; `x-goog-api-key` Google's APIs.
CREDENTIAL_FIELDS = ("authorization", "api-key", "x-api-key", "x-goog-api-key")
#: The most groups of one scope that are remembered: the one whose delay is over soonest makes room, but among so many
#: candidates one that holds no call is preferred.
MOST_GROUPS = 1000
_CANDIDATES = 8
#: The group of calls without a credential.
NO_CREDENTIAL = b"-"
#: Seconds by which a delay reported by another machine may end later than the known one and still be the same delay:
#: its report took time to arrive.
SAME = 0.02
#: The group of all callers.
EVERYBODY = b"*"

_NEVER = float("inf")


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

    `group` is the group of calls that it holds (EVERYBODY, NO_CREDENTIAL, or the hash of a credential). `field` is the
    field of the answer that named the delay, of which `delay` seconds count; `at` is when the answer came (seconds on
    the driver's clock). The other fields describe the call that got the answer: its path as the app named it, the
    number of the attempt, the endpoint, and which of the policy's own credentials it carried, from 1 (0: none of them).
    If the cooldown began on another machine, only the group, the status and the rest of the delay are known
    (`is_elsewhere`).
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
        """Whether the cooldown began on another machine, so that the call is not known."""
        return not self.method


class FleetCooldowns(Protocol):
    """The link that shares cooldowns with other machines: it reports cooldowns that begin here, and gets this process
    its share of the places of a slow start. A group of held calls is identified by its name.
    """

    def adopt(self, name: bytes, group: SlowStart) -> None:
        """Note that this process has calls of this group from now on."""

    def forget(self, name: bytes) -> None:
        """Note that this process has no calls of this group any more."""

    def began(self, name: bytes, status: int, delay: float, *, sent: float, now: float) -> None:
        """Report that an answer with this status, to an attempt sent at `sent`, asked for a delay (seconds)."""

    def asked(self, name: bytes, now: float) -> None:
        """Note that calls of this group are held on some machine, or have a place."""


class Ends:
    """A priority queue of names (of groups of calls, say), each with the time in seconds at which something of it ends.
    An end that moves later is noticed only when its name comes up, so that moving it costs nothing.
    """

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[float, bytes]] = []

    def add(self, name: bytes, until: float) -> None:
        """Add a name that is not in the queue."""
        heapq.heappush(self._heap, (until, name))

    def pop(self, until_of: Callable[[bytes], float | None]) -> tuple[float, bytes] | None:
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


class Cooldown:
    """The cooldowns of one scope, one for each group of calls. `quiet_from`: the time from which no call is held
    (seconds, the callers' clock).
    """

    __slots__ = ("_ends", "_groups", "_holding", "_in", "_latest", "fleet", "quiet_from")

    def __init__(self) -> None:
        self.quiet_from = -_NEVER
        self.fleet: FleetCooldowns | None = None
        self._groups: dict[bytes, SlowStart] = {}
        self._ends = Ends()  # the ends of all groups but EVERYBODY, which is never forgotten
        self._holding: set[SlowStart] = set()  # groups that hold calls, here or on another machine
        self._latest = -_NEVER  # the last end of a delay so far
        self._in: dict[Waiter, tuple[SlowStart, ...]] = {}  # the groups in which a call queues or has a place

    def holds(self, now: float) -> bool:
        """Whether any call may be held now, so that a new call has to `ask`."""
        return now < self.quiet_from

    def holds_caller(self, fields: Fields, now: float) -> bool:
        """Whether calls with these fields are held now."""
        return any(not group.is_over(now) for _, group in self._names_of(fields, now))

    def start(self, fields: Fields, status: int, delay: float, *, sent: float, now: float) -> bytes | None:
        """Note that an answer with this status asked for a delay (seconds). The call's request has these fields; its
        attempt was sent at `sent`. Returns the group's name if the answer began a cooldown, None if it is one more of a
        cooldown that had begun.
        """
        name = EVERYBODY if status == 503 else credential_of(fields)
        group = self._group(name, now)
        before = group.until
        began = group.start(delay, status, sent, now)
        self._look((group,))
        everybody = self._groups.get(EVERYBODY)
        if everybody is not None and everybody is not group and group.until > before:
            for waiter in everybody:
                waiter.retime(now)
        if self.fleet is not None and (began or group.until > before):
            self.fleet.began(name, status, delay, sent=sent, now=now)
        return name if began else None

    def until(self, name: bytes) -> float:
        """The time at which the delay of this group is over; a time in the past if the group is not known any more."""
        group = self._groups.get(name)
        return -_NEVER if group is None else group.until

    def claim(self, waiter: Waiter, name: bytes, due: float) -> bool:
        """Reserve the first place for the call whose answer began this group's cooldown, and which tries again at `due`
        (seconds). Returns whether it got the place: it does if it tries again before the delay is over.
        """
        group = self._groups.get(name)
        if group is None or not group.claim(waiter, due):
            return False
        self._in[waiter] = (group,)
        return True

    def started_elsewhere(self, name: bytes, status: int, delay: float, now: float) -> bool:
        """Note that an answer with this status asked callers on another machine to wait for `delay` seconds. Returns
        whether that is longer than the delay that this process knew.
        """
        group = self._group(name, now)
        if now + delay <= group.until + SAME:
            return False
        group.started_elsewhere(delay, status, now)
        self._look((group,))
        if self.fleet is not None:
            self.fleet.asked(name, now)
        return True

    def allotted(self, group: SlowStart) -> None:
        """Take note of a change to this group of calls: of its share of the fleet's places, or of whether other
        machines hold calls of it.
        """
        self._look((group,))

    def ask(self, waiter: Waiter, fields: Fields, now: float, own: Sequence[float] = ()) -> float:
        """Return `now` if the call may be sent; else the time at which it asks again, infinity if it will be retimed.
        `own`: the ends (seconds) of the delays that answers to this call's own attempts asked for; these do not hold
        it, since the call itself waits for them.
        """
        names = self._names_of(fields, now)
        groups = [group for _, group in names]
        at = now
        for name, group in names:
            if at > now:
                group.leave(waiter, now)  # a call that one group holds must not have a place in another
            elif group.until not in own or now >= group.until or group.has(waiter):
                at = group.ask(waiter, now)
                if self.fleet is not None:
                    self.fleet.asked(name, now)
        joined = tuple(group for group in groups if group.has(waiter))
        if joined:
            self._in[waiter] = joined
        else:
            self._in.pop(waiter, None)
        self._look(groups)
        return at

    def sent(self, waiter: Waiter) -> bool:
        """Note that the waiter's attempt is being sent. Returns whether it has a place, so that `landed` must be
        called.
        """
        for group in self._in.get(waiter, ()):
            group.sent(waiter)
        return waiter in self._in

    def landed(self, waiter: Waiter, sent: float, now: float, *, well: bool | None) -> None:
        """Note that the waiter's attempt, sent at `sent`, has a head or an end. `well`: whether its answer is no
        failure of the upstream's (see `SlowStart.landed`); None if that will be reported by a second call.
        """
        groups = self._in.get(waiter, ()) if well is None else self._in.pop(waiter, ())
        for group in groups:
            group.landed(waiter, sent, now, well=bool(well))
        self._look(groups)

    def leave(self, waiter: Waiter, now: float) -> None:
        """Remove the waiter from all queues: it sends nothing."""
        groups = self._in.pop(waiter, ())
        for group in groups:
            group.leave(waiter, now)
        self._look(groups)

    # -- what is reported of it ----------------------------------------------------------------------------------------

    def wait_of(self, waiter: Waiter, now: float) -> float:
        """An estimate of the seconds until this waiter will be sent, at the pace so far."""
        return max((group.wait_of(waiter, now) for group in self._in.get(waiter, ())), default=0.0)

    def left_for(self, fields: Fields, now: float) -> tuple[float, int]:
        """The seconds for which calls with these fields are still held, and the status of the answer that began the
        cooldown; (0, 503) if they are not held.
        """
        held = [(group.until - now, group.status) for _, group in self._names_of(fields, now) if not group.is_over(now)]
        left, status = max(held, default=(0.0, 503))
        return max(0.0, left), status

    def seconds_left(self, now: float) -> float:
        """The longest delay that is left for any group of calls (seconds); 0 if no delay is left."""
        return max(0.0, *(group.until - now for group in self._groups.values()), 0.0)

    def left_of(self, name: bytes, now: float) -> float:
        """The seconds that are left of the delay of the group with this name; 0 if none are."""
        group = self._find(name, now)
        return max(0.0, group.until - now) if group is not None else 0.0

    def held(self) -> int:
        """The number of calls that are held."""
        return sum(len(group.queue) for group in self._groups.values())

    # -- groups -----------------------------------------------------------------------------------------------------

    def _names_of(self, fields: Fields, now: float) -> list[tuple[bytes, SlowStart]]:
        """The groups that have a call with these fields in them (all callers, and those with its credential), with
        their names. The credential is hashed only here, while a cooldown is on.
        """
        found = [(name, self._find(name, now)) for name in (credential_of(fields), EVERYBODY)]
        return [(name, group) for name, group in found if group is not None]

    def _find(self, name: bytes, now: float) -> SlowStart | None:
        """The group of calls with this name, or None if no answer has asked such calls to wait."""
        return self._groups.get(name)

    def _group(self, name: bytes, now: float) -> SlowStart:
        """The group of calls with this name; made if it is new."""
        group = self._groups.get(name)
        return self._keep(name, self._make(name), now) if group is None else group

    def _keep(self, name: bytes, group: SlowStart, now: float) -> SlowStart:
        """Remember a new group of calls under its name, and forget other groups if there are too many."""
        while len(self._groups) >= MOST_GROUPS:
            self._forget(self._first_over(), now)
        self._groups[name] = group
        if name != EVERYBODY:
            self._ends.add(name, group.until)
        if self.fleet is not None:
            self.fleet.adopt(name, group)
        return group

    def _first_over(self) -> bytes:
        """Choose the group that makes room for a new one, and remove it from `_ends`: the one whose delay is over
        soonest, but among the next few preferably one that holds no call. Returns its name.
        """
        passed: list[tuple[float, bytes]] = []
        while len(passed) < _CANDIDATES:
            first = self._ends.pop(self._until_of)
            if first is None:
                break
            passed.append(first)
            if self._groups[first[1]] not in self._holding:
                break
        chosen = -1 if self._groups[passed[-1][1]] not in self._holding else 0
        _, name = passed.pop(chosen)
        for until, other in passed:
            self._ends.add(other, until)
        return name

    def _until_of(self, name: bytes) -> float | None:
        group = self._groups.get(name)
        return None if group is None else group.until

    def _forget(self, name: bytes, now: float) -> None:
        """Forget a group. The calls that it holds ask again, and are not in it any more."""
        group = self._groups.pop(name)
        if self.fleet is not None:
            self.fleet.forget(name)
        held = list(group)
        group.queue.clear()
        group.elsewhere = False
        self._look((group,))
        for waiter in held:
            waiter.retime(now)

    def _make(self, name: bytes) -> SlowStart:
        return SlowStart()

    def _look(self, changed: Sequence[SlowStart]) -> None:
        """Update `quiet_from` after these groups changed."""
        for group in changed:
            self._latest = max(self._latest, group.until)
            if group.queue or group.elsewhere:
                self._holding.add(group)
            else:
                self._holding.discard(group)
        self.quiet_from = _NEVER if self._holding else self._latest
