"""The turns of apps at one gate that all workers of a machine share.

Each call waits in its own worker. The call that goes next is the one, among the calls of all workers, that would go
next if all of them waited in one process.

Law: only the order is decided here. The places or tokens are counted by the gate, so that never too many are given,
whatever is written here. A worker that is killed or hangs delays the others for STALE seconds at most.

Theory. A record has the order of the gate (`proxy.retry.queues.fair_order`: whose turn it is, and a tag for each app),
and an entry for each worker's line of each app. The entry says how many calls wait in the line, what they cost, when
the first of them came and what that one costs, and when the worker last looked. Under the record's lock a worker writes
its own entries, takes the first calls of all lines, and lets the order choose among the apps. Of the chosen app's
lines, the one whose first call came first goes. The first call of each worker looks every LOOK seconds, or sooner if
there is something to give; entries of a worker that has not looked for STALE seconds no longer count. Every number is
written by one aligned store, and no number depends on another. So a worker that is killed between two stores leaves at
worst an entry that soon no longer counts.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from proxy.retry.apps import NamedApp
from proxy.retry.queues.fair_lines import AppLine, FairLines, Sum
from proxy.retry.queues.fair_order import Heads, app_of
from proxy.retry.queues.waiter import Waiter
from proxy.stores.shared_memory.records import TURN_WORDS, Definition, Former, Memory, Record, digest

#: Seconds between two looks at whose turn it is, if there is nothing to give; and if there is.
LOOK, POLL = 0.1, 0.005
#: Seconds without a look after which a worker's waiting calls count no more.
STALE = 0.25
#: Seconds after which the entry of a worker that looks no more is free.
_GONE = 60.0

#: The words of a record: until when calls may wait in any worker, the order's numbers, the numbers of tags and entries.
_UNTIL, _GIVEN, _TURN, _TIME, _ENTRIES, _TAGGED, _TAGS = 0, 1, 2, 3, 6, 7, 8
_RANKS, _RANK = 3, 3  # the number of ranks, and the bits of a key that say which it is
_MOST_TAGS, _TAG = 160, 2
_FIRST, _ENTRY = _TAGS + _MOST_TAGS * _TAG, 8
_MOST = (TURN_WORDS - _FIRST) // _ENTRY
_ENTRY_FORM = Struct("qqqqdddd")
_ROW, _KEY, _WEIGHT, _COUNT, _TOTAL, _CAME, _PRICE, _LOOKED = range(_ENTRY)


class _Entry(NamedTuple):
    """Another worker's line of one app, as that worker wrote it in the record. `app`: the app, under its name if this
    worker has had calls of the app, else under a made-up name.
    """

    row: int
    app: NamedApp
    calls: int
    total: float
    came: float
    price: float


class SharedLines(FairLines):
    """The waiting calls of one worker, by app, at a gate that all workers share. `row`: the worker's row of the memory;
    `of`: a value that identifies the gate; `generation`: the generation of the configuration.
    """

    __slots__ = (
        "_elsewhere", "_keys", "_looked", "_map", "_names", "_poller", "_record", "_row", "_slots", "_tags", "_until",
    )  # fmt: skip

    def __init__(self, memory: Memory, row: int, of: object, generation: int = 0) -> None:
        super().__init__()

        def begin(at: int, _: Former | None) -> None:
            memory.map[at * 8 : (at + TURN_WORDS) * 8] = bytes(TURN_WORDS * 8)

        self._record = Record(memory.turns, Definition(digest("turns", of), digest("turns"), generation), begin)
        self._map = memory.map
        self._row = row
        self._elsewhere: list[_Entry] = []  # other workers' lines, as of the last operation
        self._until = 0.0  # until when those lines count
        self._keys: dict[tuple[int, str], int] = {}  # the numbers by which records know apps
        self._names: dict[int, str] = {}
        self._slots: dict[int, int] = {}  # the numbers of the entries of this worker's lines, by the app's number
        self._tags: dict[int, int] = {}  # the words of the tags in the record, by the app's number
        self._looked = 0.0
        self._poller: Waiter | None = None  # the call that looks, whose alarm is set for the next look

    def add(self, waiter: Waiter, price: float, now: float) -> None:
        app = app_of(waiter) or NamedApp()
        self._key_of(app.rank, app.name)  # so that the app's tag is read by its name, though it has no call here yet
        self._open(now)
        try:
            super().add(waiter, price, now)
            self._publish(now)
        finally:
            self._record.close()

    def remove(self, waiter: Waiter, now: float) -> None:
        if waiter not in self:
            return
        self._open(now)
        try:
            super().remove(waiter, now)
            self._publish(now)
        finally:
            self._record.close()

    def went(self, waiter: Waiter, price: float, now: float) -> None:
        if waiter not in self:
            return
        self._open(now)
        try:
            line = self._of[waiter]
            app = line.app
            line.had_its_turn(waiter)
            super().remove(waiter, now)
            others = any(rank != app.rank for rank in self._lines) or any(
                each.app.rank != app.rank for each in self._elsewhere
            )
            self.order.went(app, price, others=others)
            self._publish(now)
        finally:
            self._record.close()

    def waits_elsewhere(self, now: float) -> bool:
        return now < self._record.peek(_UNTIL)

    def is_next(self, waiter: Waiter, now: float) -> bool:
        """Whether it is this call's turn. If it is the turn of another call of this worker, that call is made to ask at
        once. If this call was the one that looks for the worker, but is no longer the first in its line, the call that
        is now first is made to ask at once, so that it looks.
        """
        self.look(now)
        row, found = self._chosen()
        if found is waiter:
            return True
        if found is not None and row == self._row:
            found.retime(now)
        elif waiter is self._poller:
            first = self.first()
            if first is not None and first is not waiter:
                first.retime(now)
        return False

    def next_here(self, now: float) -> Waiter | None:
        """The call of this worker whose turn it is; None if it is the turn of another worker's call, or if no call
        waits.
        """
        self.look(now)
        return self._chosen()[1]

    def look(self, now: float) -> None:
        """Read what other workers have written, and note for them when this worker looked."""
        self._open(now)
        try:
            self._publish(now)
        finally:
            self._record.close()

    def next_look(self, now: float, due: float, spare: float = float("inf")) -> float:
        if now > self._looked + LOOK / 2:
            self.look(now)
        self._poller = self.first()
        pause = min(POLL, spare) if due > now else POLL
        return min(max(due, now + pause), now + LOOK)

    def later_look(self, now: float, due: float) -> float:
        return max(due, now + POLL)  # the turn may be another worker's for as long as that one does not look

    def _chosen(self) -> tuple[int, Waiter | None]:
        """The worker whose call goes next, by the number of its row, and that call. The call is None if it is another
        worker's, or if no call waits.
        """
        if not self._elsewhere:
            return self._row, self.first()
        heads, rows = self._all_heads()
        rank, name = self.order.choose(heads)
        if rows[rank, name] != self._row:
            return rows[rank, name], None
        return self._row, self._lines[rank][name].first()

    def _all_heads(self) -> tuple[Heads, dict[tuple[int, str], int]]:
        """The first call of each app: of all its calls that wait in any worker, the one that came first; and for each
        app, the row of the worker in which that call waits.
        """
        heads = self._heads()
        rows = {(rank, name): self._row for rank, found in heads.items() for name in found}
        for each in self._elsewhere:
            rank, name = each.app.rank, each.app.name
            found = heads.setdefault(rank, {})
            before = found.get(name)
            if before is None or (each.came, each.row) < (before[2], rows[rank, name]):
                found[name] = each.app, each.price, each.came
                rows[rank, name] = each.row
        return heads, rows

    def _begins(self, app: NamedApp, now: float) -> None:
        if not any((each.app.rank, each.app.name) == (app.rank, app.name) for each in self._elsewhere):
            self.order.came(app)

    def _before_in_line(self, line: AppLine, waiter: Waiter) -> Sum:
        """The calls of the app that wait before `waiter` in all workers, and their total price. The figures are
        estimates: they assume that other workers' calls came as evenly as those of this worker.
        """
        number, price = line.before(waiter)
        part = 1.0 if len(line.calls) < 2 else number / (len(line.calls) - 1)
        for each in self._elsewhere:
            if (each.app.rank, each.app.name) == (line.app.rank, line.app.name):
                number, price = number + part * each.calls, price + part * each.total
        return number, price

    def _sums(self) -> dict[int, dict[str, tuple[NamedApp, Sum]]]:
        sums = super()._sums()
        for each in self._elsewhere:
            found = sums.setdefault(each.app.rank, {})
            calls, total = found[each.app.name][1] if each.app.name in found else (0.0, 0.0)
            found[each.app.name] = each.app, (calls + each.calls, total + each.total)
        return sums

    # -- the record -------------------------------------------------------------------------------------------------

    def _key_of(self, rank: int, name: str) -> int:
        """The number by which records know the app `name` of the priority `rank` (0 is served first): a hash of the
        name whose last bits are replaced by the rank.
        """
        key = self._keys.get((rank, name))
        if key is None:
            key = self._keys[rank, name] = digest("app", name) & ~_RANK | rank
            self._names[key] = name
        return key

    def _name_of(self, key: int) -> str:
        """The name of the app that has this key; a made-up one until this worker has had a call of the app."""
        name = self._names.get(key)
        if name is None:
            name = f"{key:x}"
            self._keys[key & _RANK, name] = key
        return name

    def _open(self, now: float) -> None:
        """Take the record's lock, and read the order and the other workers' lines."""
        record = self._record
        record.open()
        words, doubles, at = record.words, record.doubles, record.value
        self._tags.clear()
        tags = {}
        for tag in range(at + _TAGS, at + _TAGS + _TAG * words[at + _TAGGED], _TAG):
            key = words[tag]
            self._tags[key] = tag
            tags[key & _RANK, self._name_of(key)] = doubles[tag + 1]
        time = {rank: doubles[at + _TIME + rank] for rank in range(_RANKS)}
        self.order.restore(words[at + _GIVEN], words[at + _TURN], time, tags)
        self._elsewhere.clear()
        self._until = 0.0
        first = (at + _FIRST) * 8
        written = self._map[first : first + words[at + _ENTRIES] * _ENTRY_FORM.size]
        for number, entry in enumerate(_ENTRY_FORM.iter_unpack(written)):
            row, key, weight, calls, total, came, price, looked = entry
            if not calls:
                continue
            if row == self._row:
                if self._slots.get(key) != number:  # of a worker that had this row before
                    words[at + _FIRST + number * _ENTRY + _COUNT] = 0
            elif now - looked <= STALE:
                app = NamedApp(self._name_of(key), max(1, weight), key & _RANK)
                self._elsewhere.append(_Entry(row, app, calls, total, came, price))
                self._until = max(self._until, looked + STALE)

    def _publish(self, now: float) -> None:
        """Write the order, and this worker's lines."""
        record = self._record
        words, doubles, at = record.words, record.doubles, record.value
        given, turn, time, tags = self.order.state()
        words[at + _GIVEN], words[at + _TURN] = given, turn
        for rank, value in time.items():
            doubles[at + _TIME + rank] = value
        for (rank, name), value in tags.items():
            self._write_tag(self._key_of(rank, name), value)
        lines = {self._key_of(rank, name): line for rank, found in self._lines.items() for name, line in found.items()}
        for key in [key for key in self._slots if key not in lines]:
            self._write(self._slots.pop(key), _COUNT, 0)
        for key, line in lines.items():
            self._write_line(key, line, now)
        count = words[at + _ENTRIES]
        while count and not words[at + _FIRST + (count - 1) * _ENTRY + _COUNT]:
            count -= 1
        words[at + _ENTRIES] = count
        doubles[at + _UNTIL] = max(self._until, now + STALE if lines else 0.0)
        self._looked = now

    def _write_tag(self, key: int, value: float) -> None:
        record = self._record
        words, doubles, at = record.words, record.doubles, record.value
        place = self._tags.get(key)
        if place is None:
            tagged = words[at + _TAGGED]
            if tagged < _MOST_TAGS:
                place = at + _TAGS + tagged * _TAG
                words[at + _TAGGED] = tagged + 1
            else:  # one that is not ahead of the others says nothing
                old = next((tag for each, tag in self._tags.items() if self._is_idle(each, tag)), None)
                if old is None:
                    return
                place = old
            doubles[place + 1], words[place] = value, key
            self._tags[key] = place
        elif doubles[place + 1] != value:
            doubles[place + 1] = value

    def _is_idle(self, key: int, tag: int) -> bool:
        record = self._record
        return record.doubles[tag + 1] <= record.doubles[record.value + _TIME + (key & _RANK)]

    def _write_line(self, key: int, line: AppLine, now: float) -> None:
        words, at = self._record.words, self._record.value + _FIRST
        slot = self._slots.get(key)
        if slot is None or words[at + slot * _ENTRY + _ROW] != self._row or words[at + slot * _ENTRY + _KEY] != key:
            slot = self._free_slot(now)
            if slot is None:
                self._slots.pop(key, None)
                return  # this worker alone knows of the line
            self._slots[key] = slot
            self._write(slot, _COUNT, 0)
            self._write(slot, _ROW, self._row)
            self._write(slot, _KEY, key)
        app, price, came = line.head()
        for word, number in ((_TOTAL, line.total), (_CAME, came), (_PRICE, price), (_LOOKED, now)):
            self._record.doubles[at + slot * _ENTRY + word] = number
        self._write(slot, _WEIGHT, app.weight)
        self._write(slot, _COUNT, len(line.calls))

    def _free_slot(self, now: float) -> int | None:
        """The number of an entry that is free; None if all are in use."""
        record = self._record
        words, at = record.words, record.value
        count = words[at + _ENTRIES]
        for slot in range(count):
            place = at + _FIRST + slot * _ENTRY
            if not words[place + _COUNT] or record.doubles[place + _LOOKED] < now - _GONE:
                return slot
        if count < _MOST:
            words[at + _ENTRIES] = count + 1
            return count
        return None

    def _write(self, slot: int, word: int, number: int) -> None:
        self._record.words[self._record.value + _FIRST + slot * _ENTRY + word] = number
