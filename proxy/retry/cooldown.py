"""One upstream's request to wait, kept by all callers of the scope (contract, section 5, "Cooldown").

After a 429, calls with the same credential are held, because limits belong to a key; after a 503 all are. Each group
returns by a slow start of its own (`proxy.retry.slow_start`). A call may be in two groups: it queues with its
credential's first, and keeps its place there while it waits for the other, so that neither queue passes it by.
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

#: What tells one key of an API from another. The source of the names: `Authorization` RFC 9110, 11.6.2; `api-key` Azure
#: OpenAI; `x-api-key` Anthropic and API gateways; `x-goog-api-key` Google's APIs.
CREDENTIAL_FIELDS = ("authorization", "api-key", "x-api-key", "x-goog-api-key")
#: Groups of one scope that are remembered: the one whose delay is over soonest makes room. Of the next few, one
#: that holds no call is preferred.
MOST_GROUPS = 1000
_CANDIDATES = 8
#: That of calls without a credential.
NO_CREDENTIAL = b"-"
#: Seconds by which a delay that is heard of may be longer without being another one: it was on its way.
SAME = 0.02
#: The group of all callers.
EVERYBODY = b"*"

_NEVER = float("inf")


def credential_of(fields: Fields) -> bytes:
    """A hash of what the call says who it is; that of nothing is a credential too."""
    values = [tuple(fields.get_all(name)) for name in CREDENTIAL_FIELDS]
    if not any(values):
        return NO_CREDENTIAL
    return digest(values)


def digest(values: object) -> bytes:
    """A hash of what may be a secret, to tell one from another by."""
    return hashlib.blake2b(repr(values).encode("utf-8", "surrogateescape"), digest_size=12).digest()


@dataclass(frozen=True, slots=True)
class CooldownBegan:
    """An answer with which a cooldown began, for who looks: nothing is decided by it. `group` is whom it holds
    (EVERYBODY, NO_CREDENTIAL, or the hash of a credential); `field` named the delay, of which `delay` seconds count;
    `at` is when it came (seconds on the driver's clock). The rest says which call it was the answer to: the path as the
    app named it, the number of the attempt, where it went, and of the policy's own credentials which it carried, from 1
    (0: none of them). Of one that began on another machine no more is known than whom it holds, the status, and the
    delay that was left (`is_elsewhere`).
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
        """When the delay is over."""
        return self.at + self.delay

    @property
    def is_elsewhere(self) -> bool:
        """Whether it began on another machine, so that the call is not known."""
        return not self.method


class FleetCooldowns(Protocol):
    """What reports a cooldown to other machines, and has its places. Groups go by their names."""

    def adopt(self, name: bytes, group: SlowStart) -> None:
        """Note that this process has calls of this group from now on."""

    def forget(self, name: bytes) -> None:
        """Note that this process has no calls of this group any more."""

    def began(self, name: bytes, status: int, delay: float, *, sent: float, now: float) -> None:
        """An answer with this status to an attempt sent at `sent` asked for a delay (seconds)."""

    def asked(self, name: bytes, now: float) -> None:
        """Calls of this group are held, here or elsewhere, or have a place."""


class Ends:
    """Names, by when something of theirs is over (seconds). An end that moved later is noticed when it comes up, so
    what moves it costs nothing.
    """

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[float, bytes]] = []

    def add(self, name: bytes, until: float) -> None:
        """Add a name that is not there."""
        heapq.heappush(self._heap, (until, name))

    def pop(self, until_of: Callable[[bytes], float | None]) -> tuple[float, bytes] | None:
        """Take out the name whose end is soonest, with its end; None where there is none. `until_of` gives a name's end
        as it is now, None for one that is known no longer.
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
    """What holds the calls of one scope. `quiet_from`: from then on nobody is held (seconds, the callers' clock)."""

    __slots__ = ("_ends", "_groups", "_holding", "_in", "_latest", "fleet", "quiet_from")

    def __init__(self) -> None:
        self.quiet_from = -_NEVER
        self.fleet: FleetCooldowns | None = None
        self._groups: dict[bytes, SlowStart] = {}
        self._ends = Ends()  # of all groups but EVERYBODY's, which makes room for none
        self._holding: set[SlowStart] = set()  # groups that hold calls, here or on another machine
        self._latest = -_NEVER  # the last end of a delay so far
        self._in: dict[Waiter, tuple[SlowStart, ...]] = {}  # the groups in which a call queues or has a place

    def holds(self, now: float) -> bool:
        """Whether anybody is held now, so that a newcomer has to ask."""
        return now < self.quiet_from

    def holds_caller(self, fields: Fields, now: float) -> bool:
        """Whether calls with these fields are held now."""
        return any(not group.is_over(now) for _, group in self._names_of(fields, now))

    def start(self, fields: Fields, status: int, delay: float, *, sent: float, now: float) -> bytes | None:
        """An answer with this status asked for a delay (seconds), of a call whose request has these fields and whose
        attempt was sent at `sent`. The name of the group, where a cooldown began with it that is this call's own.
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
        """When the delay of this group is over; in the past if it is not known any more."""
        group = self._groups.get(name)
        return -_NEVER if group is None else group.until

    def claim(self, waiter: Waiter, name: bytes, due: float) -> bool:
        """The call with which this group's cooldown began will try again at `due`. Whether it has the first place: if
        that is before the delay is over.
        """
        group = self._groups.get(name)
        if group is None or not group.claim(waiter, due):
            return False
        self._in[waiter] = (group,)
        return True

    def heed(self, name: bytes, status: int, delay: float, now: float) -> bool:
        """An answer with this status asked callers on another machine for a delay (seconds). Whether that was news."""
        group = self._group(name, now)
        if now + delay <= group.until + SAME:
            return False
        group.heed(delay, status, now)
        self._look((group,))
        if self.fleet is not None:
            self.fleet.asked(name, now)
        return True

    def allotted(self, group: SlowStart) -> None:
        """Take this group's places in the fleet, and whether other machines hold calls."""
        self._look((group,))

    def ask(self, waiter: Waiter, fields: Fields, now: float, own: Sequence[float] = ()) -> float:
        """Now: it may go. Else when it is to ask again; infinity where it will be told. `own`: when the delays are
        over that the call itself met, which do not hold it.
        """
        names = self._names_of(fields, now)
        groups = [group for _, group in names]
        at = now
        for name, group in names:
            if at > now:
                group.leave(waiter, now)  # who is held by one must not have a place of another
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
        """Its attempt is being sent. Whether it has a place, so that it has to tell when it `landed`."""
        for group in self._in.get(waiter, ()):
            group.sent(waiter)
        return waiter in self._in

    def landed(self, waiter: Waiter, sent: float, now: float, *, well: bool | None) -> None:
        """Its attempt, sent at `sent`, has a head or an end; `well`: as a group has it; None: that is told later."""
        groups = self._in.get(waiter, ()) if well is None else self._in.pop(waiter, ())
        for group in groups:
            group.landed(waiter, sent, now, well=bool(well))
        self._look(groups)

    def leave(self, waiter: Waiter, now: float) -> None:
        """Take the caller out of the queue: it sends nothing."""
        groups = self._in.pop(waiter, ())
        for group in groups:
            group.leave(waiter, now)
        self._look(groups)

    # -- what is reported of it ----------------------------------------------------------------------------------------

    def wait_of(self, waiter: Waiter, now: float) -> float:
        """Seconds until this call, which asked, will go at the pace so far, as far as can be told."""
        return max((group.wait_of(waiter, now) for group in self._in.get(waiter, ())), default=0.0)

    def left_for(self, fields: Fields, now: float) -> tuple[float, int]:
        """The seconds that are left for these fields, and the status of the answer that began it; else (0, 503)."""
        held = [(group.until - now, group.status) for _, group in self._names_of(fields, now) if not group.is_over(now)]
        left, status = max(held, default=(0.0, 503))
        return max(0.0, left), status

    def seconds_left(self, now: float) -> float:
        """The longest delay that is left for anybody; 0 when none is."""
        return max(0.0, *(group.until - now for group in self._groups.values()), 0.0)

    def left_of(self, name: bytes, now: float) -> float:
        """The seconds that are left for this group alone; 0 where none are."""
        group = self._find(name, now)
        return max(0.0, group.until - now) if group is not None else 0.0

    def held(self) -> int:
        """The number of calls that are held."""
        return sum(len(group.queue) for group in self._groups.values())

    # -- groups -----------------------------------------------------------------------------------------------------

    def _names_of(self, fields: Fields, now: float) -> list[tuple[bytes, SlowStart]]:
        """The groups that a call is in; its credential is looked at only here, while something cools."""
        found = [(name, self._find(name, now)) for name in (credential_of(fields), EVERYBODY)]
        return [(name, group) for name, group in found if group is not None]

    def _find(self, name: bytes, now: float) -> SlowStart | None:
        """The group of this name, if any answer was to one."""
        return self._groups.get(name)

    def _group(self, name: bytes, now: float) -> SlowStart:
        """The group of this name."""
        group = self._groups.get(name)
        return self._keep(name, self._make(name), now) if group is None else group

    def _keep(self, name: bytes, group: SlowStart, now: float) -> SlowStart:
        """Remember a group that is new here."""
        while len(self._groups) >= MOST_GROUPS:
            self._forget(self._first_over(), now)
        self._groups[name] = group
        if name != EVERYBODY:
            self._ends.add(name, group.until)
        if self.fleet is not None:
            self.fleet.adopt(name, group)
        return group

    def _first_over(self) -> bytes:
        """The name of the group that makes room, which has no entry among the ends any more: the one soonest over, but
        of the next few rather one that holds no call.
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
        """Forget a group. The calls that it holds ask again, and are in it no more."""
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
        """Work out from when on nobody is held, after these groups changed."""
        for group in changed:
            self._latest = max(self._latest, group.until)
            if group.queue or group.elsewhere:
                self._holding.add(group)
            else:
                self._holding.discard(group)
        self.quiet_from = _NEVER if self._holding else self._latest
