"""The choice of the credential that an attempt carries (contract, section 13, "Credentials").

An upstream may have several credentials (keys), each with limits of its own. They are numbered, from 0 in code and from
1 for people. State that is kept for a credential is kept under its hash, so that it is found again when the list
changes.

The state that calls with one credential share (rate, limiter, cooldown) is called its *lane* in this module. A
credential is free while its cooldown holds no calls. It is put aside for ASIDE seconds when its upstream refuses it (by
a 401, or by an answer that a dialect pack calls out of quota); if all are put aside, all are used again. After a
failure classed throttling, a call goes on at once with another free credential, but not with one on which it has been
throttled before. Once an attempt may have been carried out, all later attempts carry its credential: keys that make a
call idempotent are valid only within one account.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

from proxy.retry.budgets.token_bucket import STEP
from proxy.retry.facts import Class, Failure
from proxy.retry.policies.policy import Credentials

#: Contract, section 13: seconds for which a credential is put aside.
ASIDE = 300.0

_NEVER = float("inf")
#: No credential, with the time until which it is forbidden: what nearly all calls know.
_NONE_YET: Mapping[int, float] = MappingProxyType({})


class KeyGates(Protocol):
    """The state that calls with one credential share (its cooldown and gates), as far as the choice of a credential
    depends on it.
    """

    def cooling(self, now: float) -> float:
        """The seconds for which the calls of this credential are held, by a cooldown, a limit or an outage; 0 if they
        are not held.
        """

    def is_ready(self, now: float) -> bool:
        """Whether an attempt with this credential would be sent now, since no gate would hold it."""


L = TypeVar("L", bound=KeyGates)


class Roster:
    """The credentials of one upstream: whose turn it is in this process, and which are put aside, by their hashes.
    `turn`: a count whose remainder is the number of the credential whose turn it is. `report`: called with the hash of
    each credential that is put aside here, and for how many seconds; None if no other machine has to know.
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
        """Put the credential with this hash (`digest`) aside. Returns False if it was put aside already, and is now
        only put aside for longer.
        """
        before = self.aside_until(digest)
        self._until[digest] = now + ASIDE
        return before <= now

    def put_aside_for(self, digest: str, until: float) -> None:
        """Put the credential with this hash (`digest`) aside until the time `until` (seconds), because another machine
        found that the upstream refuses it. Nothing changes if it is put aside for longer already.
        """
        self._until[digest] = max(self.aside_until(digest), until)


class KeyRing(Generic[L]):
    """The credentials of one policy and scope value, to choose from. `make`: makes the state that calls with a
    credential share (its lane: rate, limiter and cooldown) when the credential is first used. `why_next`: the reason,
    for people, for choosing the next credential in the order of use.
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
        """The state that calls with each credential share (rate, limiter and cooldown), by the credential's number;
        None for a credential that was not used yet.
        """
        return self._lanes

    def usable(self, now: float) -> list[int]:
        """The numbers of the credentials that are not put aside, in the order in which they are to be used. If all are
        put aside, the numbers of all of them.
        """
        digests, roster, count = self.definition.digests, self.roster, len(self._lanes)
        start = roster.turn % count if self.definition.pick == "next" else 0
        order = [*range(start, count), *range(start)]
        return [key for key in order if roster.aside_until(digests[key]) <= now] or order

    def next_ready(self, now: float) -> int | None:
        """The number of the first credential, in the order of use, that is not put aside and that no gate holds; None
        if there is none.
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
    """The choice of credentials for the attempts of one call. `key`: the number of the credential of the attempt that
    is next or in flight. `lane`: the state that calls with this credential share. `why`: the reason for choosing it,
    for people. `bound`: all later attempts must carry this credential.
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
        put aside. `outdated`: the credential's value was replaced since the attempt was sent; then it is not put aside.
        Returns whether this failure put the credential aside; False if it was put aside before.
        """
        put_aside = refused and not outdated and self.ring.put_aside(self.key, now)
        if failure.verdict.cls is Class.THROTTLING:
            self._throttled = {**self._throttled, self.key: now + (failure.pushback.delay or 0.0)}
        if not failure.verdict.unprocessed and not refused:
            self.bind()
        return put_aside

    def wait_after(self, failure: Failure, now: float) -> tuple[bool, float | None]:
        """Whether the next attempt is sent at once with another credential, and if not, the delay to wait. Returns
        (True, None), or False and the delay in seconds that the upstream named for the credential that the next attempt
        will carry (None if it named none).
        """
        own = failure.pushback.delay
        if self.bound:
            return False, own
        usable = self.ring.usable(now)
        if failure.verdict.cls is not Class.THROTTLING:
            if not self._throttled or any(self._is_free(key, now) for key in usable):
                return False, own
            return False, max(own or 0.0, self._own_left(self._soonest(usable, now), now)) or None
        if self._fresh(now):
            return True, None
        soonest = self._soonest(usable, now)
        if soonest == self.key:
            return False, own
        return False, self._left(soonest, now) or None

    def renew(self, failure: Failure, now: float) -> bool:
        """Choose the credential of the next attempt. Returns whether it differs from the failed attempt's."""
        before = self.key
        if not self.bound:
            throttled = failure.verdict.cls is Class.THROTTLING
            if throttled and (fresh := self._fresh(now)):
                self._use(self._first_ready(fresh, now), f"key {before + 1} was throttled")
            else:
                self._choose(now)
        return self.key != before

    def replace_lost(self, now: float) -> bool:
        """Choose another credential, if the chosen one was put aside while the call waited. Returns whether the choice
        has changed.
        """
        before = self.key
        if not self.bound and before not in self.ring.usable(now):
            self._choose(now)
        return self.key != before

    def own_left(self, now: float) -> float:
        """The seconds until the chosen credential may be used again by the delays that answers to this call named."""
        return self._own_left(self.key, now)

    def move(self, now: float, fits: Callable[[L, float], bool]) -> bool:
        """Choose another credential that no gate holds, because a gate holds the one in use; if there is none, one that
        cools for less time. Returns False if there is none of these either. `fits`: given a credential's state and the
        time, says whether the attempt fits into what is left of that credential's limits.
        """
        if self.bound:
            return False
        usable = self.ring.usable(now)
        others = [key for key in usable if key != self.key]
        ready = next((key for key in others if self._is_ready(key, now) and fits(self.ring.lane(key), now)), None)
        if ready is None:
            ready = self._soonest(usable, now)
            saves = self._left(self.key, now) - self._left(ready, now)
            if saves <= STEP or self._own_left(ready, now) > 0:
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
        """The seconds until this call may use the credential with the number `key` again."""
        return max(self._own_left(key, now), self.ring.lane(key).cooling(now))

    def _own_left(self, key: int, now: float) -> float:
        return max(0.0, self._throttled.get(key, -_NEVER) - now)

    def _soonest(self, keys: Sequence[int], now: float) -> int:
        return min(keys, key=lambda key: (self._left(key, now), key != self.key))
