"""The choice of the credential that an attempt carries (contract, section 13, "Credentials").

An upstream may have several credentials (keys), each with limits of its own. They are numbered, from 0 in code and from
1 for people; state that is kept for a credential is kept under its hash, so that it is found again when the list
changes.

The state that calls with one credential share (rate, limiter, cooldown) is its *lane*. A credential is free while its
cooldown holds no calls, and put aside for ASIDE seconds when its upstream refuses it (401, or what a dialect pack calls
out of quota); if all are put aside, all are used again. After a failure classed throttling a call goes on with another
free credential at once, and not with one on which it has been throttled before. Once an attempt may have been carried
out, all later ones carry its credential: keys that make a call idempotent are scoped by account.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

from proxy.retry.facts import Class, Failure
from proxy.retry.policy import Credentials

#: Contract, section 13: seconds for which a credential is put aside.
ASIDE = 300.0

_NEVER = float("inf")
#: No credential, with the time until which it is forbidden: what nearly all calls know.
_NONE_YET: Mapping[int, float] = MappingProxyType({})


class KeyGates(Protocol):
    """The cooldown and the gates of the calls that carry one credential, as far as the choice of a credential depends
    on them.
    """

    def cooling(self, now: float) -> float:
        """Seconds for which the calls of this credential are held, by a cooldown, a limit or an outage; 0 if not."""

    def is_ready(self, now: float) -> bool:
        """Whether an attempt with this credential would be sent now, since no gate would hold it."""


L = TypeVar("L", bound=KeyGates)


class Roster:
    """The credentials of one upstream: whose turn it is in this process, and which are put aside, by their hashes.
    `report`: called with the hash of each credential that is put aside here, and the seconds for which it is; None if
    no other machine has to know.
    """

    __slots__ = ("_until", "report", "turn")

    def __init__(self) -> None:
        self.turn = 0
        self.report: Callable[[str, float], None] | None = None
        self._until: dict[str, float] = {}

    def aside_until(self, digest: str) -> float:
        """The time until which the credential with this hash (`digest`) is put aside (seconds, the callers' clock)."""
        return self._until.get(digest, -_NEVER)

    def put_aside(self, digest: str, now: float) -> bool:
        """Put the credential with this hash (`digest`) aside. Returns False if it was aside already, so that only its
        time is prolonged.
        """
        before = self.aside_until(digest)
        self._until[digest] = now + ASIDE
        return before <= now

    def put_aside_for(self, digest: str, until: float) -> None:
        """Put the credential with this hash (`digest`) aside up to the time `until` (seconds), unless it is put aside
        for longer already: another machine found that the upstream refuses it.
        """
        self._until[digest] = max(self.aside_until(digest), until)


class KeyRing(Generic[L]):
    """The credentials of one policy and scope value, to choose from. `make` makes the state of a credential (its lane:
    rate, limiter and cooldown) when the credential is first used; `why_next`: the reason for choosing the next one in
    the order of use, for people.
    """

    __slots__ = ("_lanes", "_make", "definition", "roster", "why_next")

    def __init__(self, definition: Credentials, roster: Roster, make: Callable[[int], L]) -> None:
        self.definition = definition
        self.roster = roster
        self._make = make
        self._lanes: list[L | None] = [None] * len(definition.values)
        self.why_next = "it is its turn" if definition.pick == "next" else "it is the first that may be used"
        if len(definition.values) == 1:
            self.why_next = "there is no other"

    def lane(self, key: int) -> L:
        """The state that calls with this credential share."""
        lane = self._lanes[key]
        if lane is None:
            lane = self._lanes[key] = self._make(key)
        return lane

    @property
    def lanes(self) -> list[L | None]:
        """The state of each credential (its own rate, limiter and cooldown), by the credential's number; None for one
        that was not used.
        """
        return self._lanes

    def usable(self, now: float) -> list[int]:
        """The numbers of the credentials that are not put aside, in the order in which they are to be used; if all are
        put aside, all of them.
        """
        digests, roster, count = self.definition.digests, self.roster, len(self._lanes)
        start = roster.turn % count if self.definition.pick == "next" else 0
        order = [*range(start, count), *range(start)]
        return [key for key in order if roster.aside_until(digests[key]) <= now] or order

    def next_ready(self, now: float) -> int | None:
        """The first credential, in the order of use, that no gate holds and that is not put aside; None if there is
        none.
        """
        digests, roster, count = self.definition.digests, self.roster, len(self._lanes)
        key = roster.turn % count if self.definition.pick == "next" else 0
        for _ in range(count):
            if roster.aside_until(digests[key]) <= now and self.lane(key).is_ready(now):
                return key
            key = key + 1 if key + 1 < count else 0
        return None

    def put_aside(self, key: int, now: float) -> bool:
        """Put aside a credential that the upstream refuses. Returns False if the credential was put aside already."""
        digest, roster = self.definition.digests[key], self.roster
        was_used = roster.put_aside(digest, now)
        if was_used and roster.report is not None:
            roster.report(digest, ASIDE)
        return was_used


class CallKeys(Generic[L]):
    """The choice of credentials for the attempts of one call. `key`: the credential of the attempt which is next or in
    flight; `lane`: the state that calls with it share; `why`: the reason for choosing it, for people.
    """

    __slots__ = ("_throttled", "bound", "key", "lane", "ring", "why")

    lane: L

    def __init__(self, ring: KeyRing[L], now: float) -> None:
        self.ring = ring
        self.bound = False
        self._throttled = _NONE_YET  # by number: until when this call's own answers forbid a credential
        self.key, self.why = 0, ""
        self._choose(now)

    def bind(self) -> None:
        """Keep the credential in use for all later attempts, since an attempt with it may have been carried out."""
        if not self.bound:
            self.bound, self.why = True, "an attempt with it may have been carried out"

    def failed(self, failure: Failure, *, refused: bool, outdated: bool = False, now: float) -> bool:
        """Note that an attempt failed. `refused`: the upstream does not accept the attempt's credential, which is then
        put aside, unless its value was replaced since the attempt was sent (`outdated`). Returns whether the credential
        is put aside by this failure; False if it was before.
        """
        put_aside = refused and not outdated and self.ring.put_aside(self.key, now)
        if failure.verdict.cls is Class.THROTTLING:
            self._throttled = {**self._throttled, self.key: now + (failure.pushback.delay or 0.0)}
        if not failure.verdict.unprocessed and not refused:
            self.bind()
        return put_aside

    def wait_after(self, failure: Failure, now: float) -> tuple[bool, float | None]:
        """Return (True, None) if the next attempt is sent at once, with another credential. Else return False and the
        delay in seconds that the upstream named for the credential that the next attempt will carry, None if it named
        none.
        """
        own = failure.pushback.delay
        if failure.verdict.cls is not Class.THROTTLING or self.bound:
            return False, own
        if self._fresh(now):
            return True, None
        soonest = self._soonest(self.ring.usable(now), now)
        if soonest == self.key:
            return False, own
        return False, self._left(soonest, now) or None

    def renew(self, failure: Failure, now: float) -> bool:
        """Choose the credential of the next attempt. Returns whether it is another than the failed attempt's."""
        before = self.key
        if not self.bound:
            throttled = failure.verdict.cls is Class.THROTTLING
            if throttled and (fresh := self._fresh(now)):
                self._use(self._first_ready(fresh, now), f"key {before + 1} was throttled")
            else:
                self._choose(now)
        return self.key != before

    def replace_lost(self, now: float) -> bool:
        """Choose another credential, if the chosen one was put aside while the call waited. Returns whether another one
        is chosen now.
        """
        before = self.key
        if not self.bound and before not in self.ring.usable(now):
            self._choose(now)
        return self.key != before

    def move(self, now: float, fits: Callable[[L, float], bool]) -> bool:
        """Choose another credential that no gate holds, because a gate holds the one in use. Returns False if there is
        none. `fits`: whether the attempt fits into the rest of the limits of a credential, given the credential's
        state.
        """
        if self.bound:
            return False
        others = [key for key in self.ring.usable(now) if key != self.key]
        ready = next((key for key in others if self._is_ready(key, now) and fits(self.ring.lane(key), now)), None)
        if ready is None:
            return False
        self._use(ready, f"key {self.key + 1} was held")
        return True

    def _is_ready(self, key: int, now: float) -> bool:
        return self._is_free(key, now) and self.ring.lane(key).is_ready(now)

    def _choose(self, now: float) -> None:
        ring = self.ring
        ready = None if self._throttled else ring.next_ready(now)
        if ready is not None:
            self._use(ready, ring.why_next)
            return
        usable = ring.usable(now)
        free = [key for key in usable if self._is_free(key, now)]
        if not free:
            self._use(self._soonest(usable, now), "all keys are held, and it is free soonest")
            return
        self._use(self._first_ready(free, now), ring.why_next)

    def _use(self, key: int, why: str) -> None:
        ring = self.ring
        self.key, self.lane, self.why = key, ring.lane(key), why
        ring.roster.turn = key + 1

    def _first_ready(self, keys: Sequence[int], now: float) -> int:
        return next((key for key in keys if self.ring.lane(key).is_ready(now)), keys[0])

    def _fresh(self, now: float) -> list[int]:
        """The other credentials that are not put aside, whose cooldown holds no calls, and on which this call has not
        been throttled.
        """
        return [key for key in self.ring.usable(now) if key not in self._throttled and self._is_free(key, now)]

    def _is_free(self, key: int, now: float) -> bool:
        return self._left(key, now) <= 0

    def _left(self, key: int, now: float) -> float:
        """Seconds until this call may use the credential `key` again."""
        return max(0.0, self._throttled.get(key, -_NEVER) - now, self.ring.lane(key).cooling(now))

    def _soonest(self, keys: Sequence[int], now: float) -> int:
        return min(keys, key=lambda key: (self._left(key, now), key != self.key))
