"""The evidence that a lane needs a limit, as the workers share it: a part of the lane's record, and words beside it.

Each refusal is noted in the record, under its lock. The number of attempts that have ended in all workers, by which a
refusal counts, is not there, since each attempt changes it (`traffic`). The times of attempts at an upstream without a
queue (`LeastGap`) would not fit into the record, and few lanes ever know any; the same is true of what delays, paces
and loads have shown (`DelaysByChance`, `Throughput`, `Loads`). They are in words of their own, which have the number of
the record. Of the two copies there, the record's last numbers say which one counts: so all change by the same store.
Which attempts belong to a group that is sent at once is known to the worker that sends it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import pack_into

from proxy.retry.capacity.delays_by_chance import Batch, DelaysByChance
from proxy.retry.capacity.evidence import Evidence
from proxy.retry.capacity.fading_share import FadingShare
from proxy.retry.capacity.held_counts import HeldCounts
from proxy.retry.capacity.least_gap import NUMBERS, LeastGap
from proxy.retry.capacity.loads import Loads
from proxy.retry.capacity.refusal_pace import RefusalPace
from proxy.retry.capacity.refused_attempts import RefusedAttempts
from proxy.retry.capacity.throughput import Throughput
from proxy.retry.capacity.traffic import Traffic
from proxy.retry.capacity.unheld import Unheld
from proxy.stores.shared_memory.endings import KEPT, packed, unpacked
from proxy.stores.shared_memory.numbers import Names, Numbers, Optional
from proxy.stores.shared_memory.records import BESIDE_COPIES, Record

#: Shares an endpoint's count of attempts, under the number of its lane's record.
Share = Callable[[Traffic, int], None]

#: The attributes that are shared. A test compares this with those that the class has.
SHARED: Names = {Evidence: ("_all", "_at", "_numbers", "_refusals", "_refused", "_times", "_upto")}
#: The same for what delays, paces and loads have shown.
SHOWN: Names = {
    Evidence: ("by_chance", "loads", "throughput"),
    DelaysByChance: (
        *("_again", "_batch", "_begun", "_counts", "_delay", "_first_refused", "_known_until", "_next_at"),
        *("_no_queue_until", "_opens_at", "_sends_until", "_serves", "_soon", "_tested", "_unheld", "at_once", "share"),
    ),
    Batch: ("begun", "count", "flying", "has_failed", "refused", "served"),
    HeldCounts: ("_at", "_since", "came", "refused", "served"),
    RefusedAttempts: ("_before", "_latest", "are_most", "refused", "sent"),
    Unheld: (
        *("_again", "_begun", "_delay", "_gives", "_judged_at", "_known_until", "_next_at", "_opens_at"),
        *("_paced_until", "_tested", "pace"),
    ),
    RefusalPace: (
        *("_again_at", "_before", "_calls", "_fast", "_is_own", "_is_settled", "_is_slow", "_own", "_refused"),
        *("_sent", "_served", "_share", "rate"),
    ),
    FadingShare: ("count", "refused"),
    Loads: ("_at", "_counts", "_ended", "_paces", "_refusals", "_refused", "_sent", "_since"),
    Throughput: (
        *("_best", "_closest", "_closest_before", "_counts_until", "_from", "_in_a_row", "_refused_at", "_sent"),
        "_served",
    ),
}
#: The objects that are None until they are needed.
_OPTIONAL: Optional = {
    Evidence: {"by_chance": DelaysByChance, "loads": Loads, "throughput": Throughput},
    DelaysByChance: {"_batch": Batch},
    Unheld: {"pace": lambda: RefusalPace(0.0, 0.0)},
}
_NUMBERS = Numbers(Evidence(Traffic()), SHARED)
SHOWN_NUMBERS = Numbers(Evidence(Traffic()), SHOWN, _OPTIONAL)
_TIMES, _DELAYS = range(2)
if BESIDE_COPIES[_TIMES] < NUMBERS or SHOWN_NUMBERS.count > BESIDE_COPIES[_DELAYS]:
    raise AssertionError("what is known of a lane's attempts does not fit beside its record")


class SharedEvidence:
    """The numbers of one lane's evidence in its record and beside it, as one worker knows them. They seldom change, so
    they are only worked out, and taken over, if they have. `record`: the lane's record; None if only the numbers of
    evidence that has no times are asked for. `share`: shares an endpoint's count of attempts; None if another lane does
    that.
    """

    __slots__ = ("_changes", "_known", "_record", "_share", "_shown", "_shown_numbers", "_state", "_times")

    def __init__(self, record: Record | None = None, share: Share | None = None) -> None:
        self._record = record
        self._share = share
        self.forget()

    def forget(self) -> None:
        """Forget which numbers this worker knows, because an operation that changed some was not published."""
        self._known: tuple[float, ...] = ()  # what is different after each change,
        self._state: tuple[float, ...] = ()  # and the numbers
        self._times = 0, 0  # the stamp of the record, and the version of the times beside it,
        self._changes = 0  # which the `LeastGap` of this worker has had since so many changes;
        self._shown = 0, 0  # the stamp and the version of what delays have shown,
        self._shown_numbers: Sequence[float] = []  # and its numbers

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
        if evidence.by_chance is not None or evidence.throughput is not None or evidence.loads is not None:
            self._write_shown(SHOWN_NUMBERS.take(evidence))
        known = self._differing(evidence)
        if known != self._known:
            how = dict(evidence.failures)
            endings = [how.get(number, "") for number in evidence._numbers]
            packs = [packed(endings[at : at + KEPT]) for at in range(0, len(endings), KEPT)]
            versions = self._times[1], self._shown[1]
            self._known, self._state = known, (*_NUMBERS.take(evidence), *packs, *versions)
        return self._state

    def restore(self, evidence: Evidence, state: tuple[float, ...]) -> None:
        """Take over the numbers that `state` returned in another worker."""
        self._read(evidence, int(state[-2]))
        self._read_shown(evidence, int(state[-1]))
        if state == self._state:
            return
        _NUMBERS.give(evidence, state)
        endings = [how for pack in state[_NUMBERS.count : -2] for how in unpacked(pack, KEPT)]
        evidence.take_over_failures([each for each in zip(evidence._numbers, endings, strict=True) if each[1]])
        self._known, self._state = self._differing(evidence), state

    def _write(self, gap: LeastGap) -> None:
        """Write the times into the copy that does not count yet."""
        record = self._record
        assert record is not None
        self._times, self._changes = (record.version[0], self._times[1] + 1), gap.changes
        numbers = gap.state()
        at = record.memory.beside(record.number, self._times[1], _TIMES)
        pack_into(f"{len(numbers)}d", record.memory.map, at * 8, *numbers)

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
        at = record.memory.beside(record.number, version, _TIMES)
        gap.restore(record.memory.doubles[at : at + NUMBERS])
        self._changes = gap.changes

    def _write_shown(self, numbers: list[float]) -> None:
        """Write these numbers of what delays have shown, if they have changed, into the copy that does not count."""
        record = self._record
        if record is None or numbers == self._shown_numbers:
            return
        self._shown, self._shown_numbers = (record.version[0], self._shown[1] + 1), numbers
        at = record.memory.beside(record.number, self._shown[1], _DELAYS)
        pack_into(f"{len(numbers)}d", record.memory.map, at * 8, *numbers)

    def _read_shown(self, evidence: Evidence, version: int) -> None:
        """Take over what delays have shown by this version, if this worker does not know it; nothing if no worker has
        noted anything.
        """
        record = self._record
        if record is None or (record.version[0], version) == self._shown:
            return
        self._shown, self._shown_numbers = (record.version[0], version), []
        if not version:
            evidence.by_chance = evidence.loads = evidence.throughput = None
            return
        at = record.memory.beside(record.number, version, _DELAYS)
        numbers = self._shown_numbers = record.memory.doubles[at : at + SHOWN_NUMBERS.count].tolist()
        SHOWN_NUMBERS.give(evidence, numbers)

    def _differing(self, evidence: Evidence) -> tuple[float, ...]:
        """Numbers of which at least one differs after each change of this evidence."""
        versions = self._times[1], self._shown[1]
        return evidence._all, evidence._at, evidence._refused, evidence._refusals, evidence._upto, *versions
