"""The evidence that a lane needs a limit, as the workers share it: a part of the lane's record.

Each refusal is noted there under the record's lock. The number of attempts that have ended in all workers, by which a
refusal counts, is not in the record, since each attempt changes it (`traffic`). What delays, paces and loads have shown
(`DelaysByChance`, `LeastGap`, `Throughput`, `Loads`) is each worker's own.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.retry.capacity.evidence import Evidence
from proxy.retry.capacity.traffic import Traffic
from proxy.stores.shared_memory.endings import KEPT, packed, unpacked
from proxy.stores.shared_memory.numbers import Names, Numbers

#: Shares an endpoint's count of attempts, under the number of its lane's record.
Share = Callable[[Traffic, int], None]

#: The attributes that are shared. A test compares this with those that the class has.
SHARED: Names = {Evidence: ("_all", "_at", "_numbers", "_refusals", "_refused", "_times", "_upto")}
_NUMBERS = Numbers(Evidence(Traffic()), SHARED)
#: The failures of a lane that are remembered for observers.
_REMEMBERED = 16


class SharedEvidence:
    """The numbers of one lane's evidence in its record, as one worker knows them. They seldom change, so they are only
    worked out, and taken over, if they have. `share`: shares an endpoint's count of attempts; None if another lane does
    that.
    """

    __slots__ = ("_known", "_share", "_state")

    def __init__(self, share: Share | None = None) -> None:
        self._share = share
        self._known: tuple[float, ...] = ()  # what is different after each change,
        self._state: tuple[float, ...] = ()  # and the numbers

    def count_by(self, traffic: Traffic, number: int) -> None:
        """Have `traffic` count under the number that the lane's record has now."""
        if self._share is not None:
            self._share(traffic, number)

    def state(self, evidence: Evidence) -> tuple[float, ...]:
        """The numbers of this evidence."""
        known = evidence._all, evidence._at, evidence._refused, evidence._refusals, evidence._upto
        if known != self._known:
            how = dict(evidence.failures)
            endings = [how.get(number, "") for number in evidence._numbers]
            packs = [packed(endings[at : at + KEPT]) for at in range(0, len(endings), KEPT)]
            self._known, self._state = known, (*_NUMBERS.take(evidence), *packs)
        return self._state

    def restore(self, evidence: Evidence, state: tuple[float, ...]) -> None:
        """Take over the numbers that `state` returned in another worker."""
        if state == self._state:
            return
        _NUMBERS.give(evidence, state)
        failures = dict(evidence.failures)
        endings = [how for pack in state[_NUMBERS.count :] for how in unpacked(pack, KEPT)]
        failures.update((number, how) for number, how in zip(evidence._numbers, endings, strict=True) if how)
        evidence.failures = sorted(failures.items())[-_REMEMBERED:]
        self._known = evidence._all, evidence._at, evidence._refused, evidence._refusals, evidence._upto
        self._state = state
