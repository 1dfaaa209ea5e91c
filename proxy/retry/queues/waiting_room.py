"""The waiting room: the limit, for all calls together, on how many may wait at one time, and on how many of these may
be one upstream's.

Law: whichever gate holds them (a cooldown, a rate bucket, the adaptive limiter), one upstream's held calls take at most
half of `limits.waiting`, so that one slow provider, or one slow rate, does not fill the room for the others. A call
that waits for its own backoff is not held by a gate: it has paid for its retry, and only the bound on the whole room
applies to it (contract, sections 4 and 5).

Where apps have names, a new call that finds the room full takes the place of the newest held call of the lowest
priority, if that is below its own (contract, section 17, "Queues"). Only calls of this process give up their places.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from proxy.retry.apps import NamedApp


class Guest(Protocol):
    """The wait of one call in the waiting room. `upstream`, `app`: those of the call; `app` is None if apps have no
    names.
    """

    upstream: str
    app: NamedApp | None

    @property
    def may_be_ousted(self) -> bool:
        """Whether the call may lose its place to a call of a higher priority."""

    def ousted(self) -> None:
        """Note that the room has given the call's place to a call of a higher priority."""


class WaitingRoom:
    """The count of the calls that wait. `capacity`: `limits.waiting`, the most calls that may wait. `waiting`: how many
    calls of this process wait now.
    """

    __slots__ = ("_guests", "_held", "capacity", "waiting")

    def __init__(self, capacity: int = 2000) -> None:
        self.capacity = capacity
        self.waiting = 0
        self._held: dict[str, int] = {}
        self._guests: dict[int, dict[Guest, None]] = {}  # held calls that have an app, by rank, in order of arrival

    def enter(self, upstream: str, held: bool = False, guest: Guest | None = None) -> bool:
        """Let one call of this upstream wait. Returns False if the room is full. `held`: a gate holds the call, so that
        the bound on one upstream's held calls applies too. `guest`: the call's wait; if the room is full, a held call
        of lower priority gives up its place for it.
        """
        if not self._enter(upstream, held, 0, 0):
            if self._oust(upstream, held, guest, 0, 0) is None:
                return False
            self._enter(upstream, held, 0, 0)
        if held:
            self._sit(guest)
        return True

    def leave(self, upstream: str, held: bool = False, guest: Guest | None = None) -> None:
        """Free the place of a call that `enter` let wait. The arguments are those that `enter` was called with."""
        self.waiting -= 1
        if held:
            left = self._held[upstream] - 1
            if left:
                self._held[upstream] = left
            else:
                del self._held[upstream]
            if guest is not None and guest.app is not None:
                self._guests[guest.app.rank].pop(guest, None)

    def held_for(self, upstream: str) -> int:
        """The number of this upstream's calls that a gate holds now."""
        return self._held.get(upstream, 0)

    def held_by_app(self) -> Counter[tuple[str, str]]:
        """The number of calls of this process that gates hold now, for each pair of upstream and app; empty if apps
        have no names.
        """
        return Counter((each.upstream, each.app.name) for line in self._guests.values() for each in line if each.app)

    def _enter(self, upstream: str, held: bool, waiting: int, holding: int) -> bool:
        """Take a place, if the room has one; return whether it had. `held`: a gate holds the call, so that the bound on
        one upstream's held calls applies too. `waiting`: how many places of the room other processes use. `holding`:
        how many of these are for held calls of this upstream.
        """
        if self.waiting + waiting >= self.capacity:
            return False
        if held:
            mine = self._held.get(upstream, 0)
            if mine + holding >= self._share:
                return False
            self._held[upstream] = mine + 1
        self.waiting += 1
        return True

    @property
    def _share(self) -> int:
        """The most places that one upstream's held calls take."""
        return max(1, self.capacity // 2)

    def _sit(self, guest: Guest | None) -> None:
        """Remember a call that a gate holds and that has got a place, if apps have names: a call of higher priority may
        take the place later. `guest`: the call's wait.
        """
        if guest is not None and guest.app is not None:
            self._guests.setdefault(guest.app.rank, {})[guest] = None

    def _oust(self, upstream: str, held: bool, guest: Guest | None, waiting: int, holding: int) -> Guest | None:
        """Make room for a new call by removing the newest held call of the lowest priority, if that priority is below
        the new call's, and if one place is all that the new call lacks. Returns the removed call's wait, None if none
        was removed.

        `upstream`, `guest`: the new call's upstream, and its wait. `held`: a gate holds the new call. `waiting`: how
        many places of the room other processes use. `holding`: how many of these are for held calls of the new call's
        upstream.
        """
        mine = self._held.get(upstream, 0) + holding if held else 0
        if guest is None or guest.app is None or self.waiting + waiting > self.capacity or mine > self._share:
            return None
        only = upstream if held and mine == self._share else None
        for rank in sorted(self._guests, reverse=True):
            if rank <= guest.app.rank:
                return None
            for each in reversed(self._guests[rank]):
                if only in (None, each.upstream) and each.may_be_ousted:
                    WaitingRoom.leave(self, each.upstream, True, each)
                    each.ousted()
                    return each
        return None
