"""The part of a scope's state that its lanes have in common, in shared memory: the time from which no call is held in
any worker.

Law: the hot path takes no lock. It reads one number, `quiet_from`, which is in the future while any lane of the scope
holds calls in any worker, and is past again when none does.

Theory. A lane that holds calls has an entry with the time until which it may hold them, at most LEASE seconds ahead:
every operation on the lane renews it, and the operation that ends what holds the calls removes it, both under the
lane's lock as well as the scope's. If a worker dies, the calls of other workers still ask its lanes, and so renew or
remove their entries; an entry that no worker uses expires. Lanes beyond MOST share one entry, which is never removed
and only expires.
"""

from __future__ import annotations

from proxy.stores.shared_memory.records import COPY, Record

#: Seconds for which a lane that holds calls counts as one, if no operation renews that; for lanes without an entry of
#: their own it is shorter, since no operation takes that away.
LEASE, LEASE_OF_MORE = 60.0, 15.0
#: The most lanes of a scope that have an entry of their own.
MOST = (COPY - 4) // 2

_NEVER = float("inf")
_LATEST, _MADE = 1, 3
#: The `state` of a scope that holds no call, and never did.
QUIET = (-_NEVER, -_NEVER, -_NEVER, 0.0, *(0.0, -_NEVER) * MOST)


class SharedScope:
    """The part of a scope's state that its lanes have in common, in shared memory, as one worker uses it."""

    __slots__ = ("_entries", "_latest", "_made", "_more", "record")

    def __init__(self, record: Record) -> None:
        self.record = record
        self._entries: dict[float, float] = {}  # by a lane's key: until when it may hold calls
        self._latest = -_NEVER  # the last end of a delay so far
        self._more = -_NEVER  # until when lanes without an entry may hold calls
        self._made = 0.0

    @property
    def quiet_from(self) -> float:
        """The time from which no call is held in any worker (seconds)."""
        return self.record.peek()

    @property
    def latest(self) -> float:
        """The latest end of any lane's delay so far (seconds)."""
        return self.record.peek(_LATEST)

    @property
    def made(self) -> float:
        """The number of lanes that were made, by any worker."""
        return self.record.peek(_MADE)

    def count_made(self) -> None:
        """Count a lane that was made."""
        self.record.open()
        try:
            self.record.load(self)
            self._made += 1.0
            self.record.save(self)
        finally:
            self.record.close()

    def note(self, key: float, busy: float, until: float, now: float) -> bool:
        """Note in shared memory that the lane with this key may hold calls until the time `busy`, and that its delay
        ends at the time `until` (seconds, as `now`). The lane's record must be open. Returns whether this was noted:
        False if another record has taken the place of the scope's record in memory. Then call `look_up`, and try again.
        """
        record = self.record
        if not record.open_inside():
            return False
        try:
            record.load(self)
            self._latest = max(self._latest, until)
            entries = self._entries
            for other in [each for each, its in entries.items() if its <= now or each == key]:
                del entries[other]
            if busy > now:
                if len(entries) < MOST:
                    entries[key] = min(busy, now + LEASE)
                else:
                    self._more = max(self._more, min(busy, now + LEASE_OF_MORE))
            record.save(self)
        finally:
            record.close()
        return True

    def look_up(self) -> None:
        """Find the scope's record in shared memory again, or make it."""
        self.record.open()
        self.record.close()

    def restore(self, state: tuple[float, ...]) -> None:
        _, self._latest, self._more, self._made = state[:4]
        self._entries = {key: state[at + 1] for at in range(4, len(state), 2) if (key := state[at])}

    def state(self) -> tuple[float, ...]:
        entries = [number for entry in self._entries.items() for number in entry]
        quiet = max([self._latest, self._more, *self._entries.values()])
        return (quiet, self._latest, self._more, self._made, *entries, *QUIET[4 + len(entries) :])
