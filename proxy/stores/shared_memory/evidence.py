"""The evidence that a lane needs a limit, as the workers share it: a part of the lane's record, and words beside it.

Each refusal is noted in the record, under its lock. The number of attempts that have ended in all workers, by which a
refusal counts, is not there, since each attempt changes it (`traffic`). The times of attempts at an upstream without a
queue (`LeastGap`) would not fit into the record, and few lanes ever know any. They are in words of their own, which
have the number of the record. Of the two copies there, the record's last number says which one counts: so both change
by the same store. What delays, paces and loads have shown (`DelaysByChance`, `Throughput`, `Loads`) is each worker's
own.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import pack_into

from proxy.retry.capacity.evidence import Evidence
from proxy.retry.capacity.least_gap import NUMBERS, LeastGap
from proxy.retry.capacity.traffic import Traffic
from proxy.stores.shared_memory.endings import KEPT, packed, unpacked
from proxy.stores.shared_memory.numbers import Names, Numbers
from proxy.stores.shared_memory.records import BESIDE_COPY, Record

#: Shares an endpoint's count of attempts, under the number of its lane's record.
Share = Callable[[Traffic, int], None]

#: The attributes that are shared. A test compares this with those that the class has.
SHARED: Names = {Evidence: ("_all", "_at", "_numbers", "_refusals", "_refused", "_times", "_upto")}
_NUMBERS = Numbers(Evidence(Traffic()), SHARED)
if NUMBERS > BESIDE_COPY:
    raise AssertionError("the times of a lane's attempts do not fit beside its record")


class SharedEvidence:
    """The numbers of one lane's evidence in its record and beside it, as one worker knows them. They seldom change, so
    they are only worked out, and taken over, if they have. `record`: the lane's record; None if only the numbers of
    evidence that has no times are asked for. `share`: shares an endpoint's count of attempts; None if another lane does
    that.
    """

    __slots__ = ("_changes", "_known", "_record", "_share", "_state", "_times")

    def __init__(self, record: Record | None = None, share: Share | None = None) -> None:
        self._record = record
        self._share = share
        self.forget()

    def forget(self) -> None:
        """Forget which numbers this worker knows, because an operation that changed some was not published."""
        self._known: tuple[float, ...] = ()  # what is different after each change,
        self._state: tuple[float, ...] = ()  # and the numbers
        self._times = 0, 0  # the stamp of the record, and the version of the times beside it,
        self._changes = 0  # which the `LeastGap` of this worker has had since so many changes

    def count_by(self, traffic: Traffic) -> None:
        """Have `traffic` count under the number that the lane's record has now."""
        if self._share is not None and self._record is not None:
            self._share(traffic, self._record.number)

    def state(self, evidence: Evidence) -> tuple[float, ...]:
        """The numbers of this evidence, to be published. Its times are written, if they have changed, and take effect
        with the numbers.
        """
        gap = evidence.least_gap
        if gap is not None and gap.changes != self._changes:
            self._write(gap)
        known = _differing(evidence, self._times[1])
        if known != self._known:
            how = dict(evidence.failures)
            endings = [how.get(number, "") for number in evidence._numbers]
            packs = [packed(endings[at : at + KEPT]) for at in range(0, len(endings), KEPT)]
            self._known, self._state = known, (*_NUMBERS.take(evidence), *packs, self._times[1])
        return self._state

    def restore(self, evidence: Evidence, state: tuple[float, ...]) -> None:
        """Take over the numbers that `state` returned in another worker."""
        self._read(evidence, int(state[-1]))
        if state == self._state:
            return
        _NUMBERS.give(evidence, state)
        endings = [how for pack in state[_NUMBERS.count : -1] for how in unpacked(pack, KEPT)]
        evidence.take_over_failures([each for each in zip(evidence._numbers, endings, strict=True) if each[1]])
        self._known, self._state = _differing(evidence, self._times[1]), state

    def _write(self, gap: LeastGap) -> None:
        """Write the times into the copy that does not count yet."""
        record = self._record
        assert record is not None
        self._times, self._changes = (record.version[0], self._times[1] + 1), gap.changes
        numbers = gap.state()
        pack_into(
            f"{len(numbers)}d", record.memory.map, record.memory.beside(record.number, self._times[1]) * 8, *numbers
        )

    def _read(self, evidence: Evidence, version: int) -> None:
        """Take over the times of this version, if this worker does not know it; none if no worker has noted any."""
        record = self._record
        if record is None or (record.version[0], version) == self._times:
            return
        self._times = record.version[0], version
        if not version:
            evidence.least_gap = None
            return
        gap = evidence.least_gap = LeastGap()
        at = record.memory.beside(record.number, version)
        gap.restore(record.memory.doubles[at : at + NUMBERS])
        self._changes = gap.changes


def _differing(evidence: Evidence, version: int) -> tuple[float, ...]:
    """Numbers of this evidence of which at least one differs after each change. `version`: that of its times."""
    return evidence._all, evidence._at, evidence._refused, evidence._refusals, evidence._upto, version
