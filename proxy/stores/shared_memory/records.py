"""Memory that processes share: records found by key, each with a lock of its own.

Law: a record is changed under its lock, and the change takes effect by one aligned store. A value of eight bytes is
stored in place. A larger value is written into the spare one of two copies; storing the sequence number then makes that
copy the current one. So a process that is killed at any instruction leaves every record whole, and the kernel frees its
locks (`mutex`). A process knows a record by its address and its stamp. Between `open` and `close` no other process
changes the record.

Theory. A parent and its workers map a memfd. After a header come tables of records of one size. A key's record is found
by probing slots from the key's hash. A slot has the number of its record, and gets it when it is first used: so records
stand one after the other, and take no more pages of memory than they fill. Finding and making records happens under one
lock, and rarely: a process that has found a record remembers its address, and the stamp that the record got when it was
made. In a full table, the record of a slot that was not used lately is given to a new key; a process that uses the old
record sees another stamp, and looks its key up again.

Several records may have one key, made by different definitions in different generations of the configuration. The
newest record counts; calls of an older generation keep their own, as they keep everything (contract, section 3,
"Reload").
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, NamedTuple, TypeVar, cast

from proxy.retry.apps import MOST_PARTS
from proxy.stores.shared_memory.mutex import MUTEX_BYTES, Mutex

#: The layout of a record, in words of eight bytes: it begins with its mutex; a copy of its state has room for COPY
#: words.
MUTEX = MUTEX_BYTES // 8
STAMP, KEY, SPEC, GENERATION, SEQUENCE, MADE, SIZE = range(MUTEX, MUTEX + 7)
STATE = MUTEX + 8
#: The bit of a stamp that marks a record as used since the bit was last cleared.
TOUCHED = 1
COPY = 12
RECORD = STATE + 2 * COPY
#: The room of a copy of a lane's state (`lane`), or of a scope's attempts without an answer (`lost_rows`), in words;
#: and the number of such records. Each scope has one, in trouble two or three; a record beyond the room takes that of
#: another scope, whose cooldown is lost then.
LANE_COPY = 150
#: The room of what each lane in trouble knows beside its record (`evidence`), in words: two copies of the times of
#: attempts, and two of what delays have shown.
BESIDE_COPIES = (192, 128)
LANES = 65536
_LANE = STATE + 2 * LANE_COPY
#: The same for a quota with parts for apps (`buckets`): the quota's own numbers, and three for each app.
QUOTA_NUMBERS = 4
PARTS_COPY = QUOTA_NUMBERS + 3 * MOST_PARTS
PARTED = 4096
_PARTED = STATE + 2 * PARTS_COPY
#: The number of gates whose turns of apps the workers share, and the room of each, in words (`fair_lines`).
TURNS, TURN_WORDS = 1024, 8 + 2 * 160 + 8 * 512

#: The number of small records, of one value or a few, and of slots that are probed for a key. Contract, section 3: at
#: most 10,000 scopes of each kind are kept.
RECORDS = 32768
PROBES = 64
#: The factor of a slot's number in the word that also counts a table's records in use.
_SLOT = 1 << 32

#: The number of times that are kept of idempotency keys, and of routes and paths that are answered (`last_times`), for
#: all scopes together.
SEEN, ANSWERED = 65536, 262_144
#: The number of words that tell whether attempts without an answer have been counted (`lost_rows`).
CHANGES = 16384

#: The header: locks, the next stamp, and a row of counters for each worker.
_DIRECTORY, _LOG, _SEEN, _NEXT, _ROWS = 0, MUTEX, 2 * MUTEX, 3 * MUTEX, 4 * MUTEX
ROW, WORKERS = 16, 256
_WAITING = _ROWS + WORKERS * ROW
_UNDER_WAY = _WAITING + MUTEX
_ANSWERED = _UNDER_WAY + MUTEX
_HEADER = 8192

#: Each worker's page of the waiting room (`waiting_room`): a number, and a table of pairs. Parts that no process has
#: written to take no memory.
PAGE_PAIRS = 4096
_PAGE = 1 + 2 * PAGE_PAIRS
#: Each worker's page of attempts under way (`concurrency`): SLOTS slots of SLOT words, assigned by one directory.
SLOTS, SLOT = 4096, 4


class Definition(NamedTuple):
    """The hashes that a record is found by: those of its key and its definition, with the configuration's generation
    and the record's size.
    """

    key: int
    spec: int
    generation: int
    size: float = 0.0


class Former(NamedTuple):
    """The record that a key had when a new one is made for the key; if there are several, the newest. `Former` has its
    size, and the word at which its state begins. The state may be read only while `Begin` runs.
    """

    size: float
    state: int


#: Writes a new record's state at this word; the Former is None if the key is new.
Begin = Callable[[int, Former | None], None]


def digest(*what: object) -> int:
    """A hash of the arguments that is the same in every process, and never 0."""
    text = repr(what).encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little", signed=True) or 1


class Memory:
    """The mapped memory. `large`: the size in words of a record of the second table; `larges`: the number of these
    records.
    """

    def __init__(self, descriptor: int, *, large: int, larges: int) -> None:
        self.descriptor = descriptor
        counts, sizes = (RECORDS, larges, LANES, PARTED, TURNS), (RECORD, large, _LANE, _PARTED, STATE + TURN_WORDS)
        pages = WORKERS * (_PAGE + SLOTS * SLOT) + SLOTS
        words = _HEADER + sum(map(table_words, counts, sizes)) + 2 * (SEEN + ANSWERED) + CHANGES + pages
        words += WORKERS * LANES + 2 * sum(BESIDE_COPIES) * LANES
        fresh = os.fstat(descriptor).st_size == 0
        if fresh:
            os.ftruncate(descriptor, words * 8)
        self.map = mmap.mmap(descriptor, words * 8)
        view = memoryview(self.map)
        self.words, self.doubles = view.cast("q"), view.cast("d")
        locks = [Mutex(self.map, at * 8) for at in (_DIRECTORY, _LOG, _SEEN, _WAITING, _UNDER_WAY, _ANSWERED)]
        if fresh:
            for lock in locks:
                lock.make()
        self.directory, self.log_lock, self.seen_lock, self.waiting_lock, self.under_way_lock = locks[:5]
        self.answered_lock = locks[5]
        self.small = Table(self, _HEADER, RECORDS, RECORD)
        self.large = Table(self, self.small.end, larges, large)
        self.lanes = Table(self, self.large.end, LANES, _LANE, LANE_COPY)
        self.parted = Table(self, self.lanes.end, PARTED, _PARTED, PARTS_COPY)
        self.turns = Table(self, self.parted.end, TURNS, STATE + TURN_WORDS)
        self.seen = self.turns.end
        self.answered = self.seen + 2 * SEEN
        self._changes = self.answered + 2 * ANSWERED
        self._pages = self._changes + CHANGES
        self.slots = self._pages + WORKERS * _PAGE

    def row(self, worker: int) -> int:
        """The first word of this worker's row: ROW words that only this worker writes."""
        return _ROWS + worker * ROW

    @property
    def rows(self) -> int:
        """The highest row number that a worker has used so far, kept in the first word of row 0."""
        return self.words[_ROWS]

    def changes(self, key: int) -> int:
        """The word that every change of the record with this key also changes; records of other keys may share it."""
        return self._changes + key % CHANGES

    def page(self, worker: int) -> int:
        """The first word of one worker's page of the waiting room."""
        return self._pages + worker * _PAGE

    def under_way(self, worker: int) -> int:
        """The first word of one worker's page of attempts under way."""
        return self.slots + SLOTS + worker * SLOTS * SLOT

    def ended(self, worker: int) -> int:
        """The first of one worker's words, one for each record of `lanes`, that count the attempts which have ended
        (`traffic`). They go on where another worker of that row has left off: only differences count.
        """
        return self.under_way(WORKERS) + worker * LANES

    def beside(self, number: int, version: int, sort: int = 0) -> int:
        """The first word of one of the two copies of what the lane of this record's number knows beside its record: the
        copy of this version. `sort`: which of BESIDE_COPIES. Both are written to only in trouble, so that they take no
        memory otherwise.
        """
        first = self.ended(WORKERS) + 2 * LANES * sum(BESIDE_COPIES[:sort])
        return first + (2 * number + version % 2) * BESIDE_COPIES[sort]

    def wipe_pages(self, worker: int) -> None:
        """Wipe a worker's pages, after its end or before its start: none of its calls waits, and nothing is under
        way.
        """
        at = self.page(worker)
        self.words[at] = 0
        self.map[at * 8 : (at + _PAGE) * 8] = bytes(_PAGE * 8)
        at = self.under_way(worker)
        self.map[at * 8 : (at + SLOTS * SLOT) * 8] = bytes(SLOTS * SLOT * 8)


class LogTurn:
    """The turn to write to the log that all processes share (`proxy.observe.sink.Turn`)."""

    __slots__ = ("_lock",)

    def __init__(self, memory: Memory) -> None:
        self._lock = memory.log_lock

    def take(self) -> bool:
        return self._lock.attempt()

    def give(self) -> None:
        self._lock.free()


def descriptor() -> int:
    """Open a file in memory, which disappears with the last process that has it open. Returns its descriptor."""
    try:
        return os.memfd_create("redrive")
    except (AttributeError, OSError):  # a sandbox may forbid it
        import tempfile

        with tempfile.TemporaryFile(dir="/dev/shm") as file:
            return os.dup(file.fileno())


def table_words(count: int, record: int) -> int:
    """The words of a table of so many records of this size."""
    return 1 + count * (1 + record)


class Table:
    """A table of records of one size, from word `start` on: the number of records in use, the slots, and the records.
    `copy`: the words between the two copies of a state.
    """

    def __init__(self, memory: Memory, start: int, count: int, record: int, copy: int = COPY) -> None:
        self.memory = memory
        self.copy = copy
        self._taken = start
        self._slots = start + 1
        self._start = start + 1 + count
        self._count = count
        self._record = record
        self.end = start + table_words(count, record)

    @property
    def used(self) -> int:
        """The number of records in use."""
        return self.memory.words[self._taken] % _SLOT

    def attach(self, wanted: Definition, begin: Begin) -> tuple[int, int]:
        """Find the record for this definition, or make it (`begin` writes its state). Returns its address and its
        stamp.
        """
        memory, words = self.memory, self.memory.words
        with memory.directory:
            probed, alike, unused = self._probe(wanted.key)
            newest = max(alike, key=lambda at: words[at + GENERATION], default=None)
            found = self._fitting(wanted, alike, newest)
            if found is None:
                found = self._choose(probed, alike, newest, unused)
                self._make(found, wanted, begin, newest)
            elif words[found + GENERATION] < wanted.generation and found == newest:
                words[found + GENERATION] = wanted.generation
            words[found + STAMP] |= TOUCHED
            return found, words[found + STAMP]

    def number(self, at: int) -> int:
        """The number of the record at the address `at`, counted from 0."""
        return (at - self._start) // self._record

    def knows(self, key: int) -> bool:
        """Whether the table has a record with this key."""
        with self.memory.directory:
            return bool(self._probe(key)[1])

    def _probe(self, key: int) -> tuple[list[int], list[int], int | None]:
        """The records of the slots for this key in the order of probing, those of them that have the key, and the
        number of the unused slot at which probing ended; None if there is no unused one.
        """
        words = self.memory.words
        probed: list[int] = []
        alike: list[int] = []
        home = key % self._count
        for step in range(PROBES):
            slot = (home + step) % self._count
            number = words[self._slots + slot]
            if not number:
                return probed, alike, slot
            at = self._start + (number - 1) * self._record
            probed.append(at)
            if words[at + STAMP] and words[at + KEY] == key:
                alike.append(at)
        return probed, alike, None

    def _use(self, slot: int) -> int:
        """Give the slot with the number `slot` the next record, and return the record's address.

        One store counts the record and says whose it is. If a process was killed after that store, before the slot had
        the record's number, the slot gets it here.
        """
        words, slots = self.memory.words, self._slots
        last, count = divmod(words[self._taken], _SLOT)
        if count and not words[slots + last]:
            words[slots + last] = count
        if not words[slots + slot]:
            words[self._taken] = slot * _SLOT + count + 1
            words[slots + slot] = count + 1
        return self._start + (words[slots + slot] - 1) * self._record

    def _fitting(self, wanted: Definition, alike: Sequence[int], newest: int | None) -> int | None:
        """Return the record of the definition `wanted`, or None if there is none. A record of the newest generation
        comes first. For a caller with an older configuration, an older record may be returned too. `alike`: the records
        with the key of `wanted`; `newest`: the one of these with the newest generation, None if there is none.
        """
        if newest is None:
            return None
        words = self.memory.words
        same = [at for at in alike if words[at + SPEC] == wanted.spec]
        current = [at for at in same if words[at + GENERATION] == words[newest + GENERATION]]
        if current:
            return current[0]
        if words[newest + GENERATION] < wanted.generation:
            return None
        return max(same, key=lambda at: words[at + GENERATION], default=None)

    def _choose(self, probed: Sequence[int], alike: Sequence[int], newest: int | None, unused: int | None) -> int:
        """Choose the place of a new record among the records `probed`, in this order of preference: one that was given
        up; that of the slot `unused` (None for none); a record of the same key (one of `alike`) that two later
        definitions have replaced; one that was not used since this search last came upon it; any but `newest`, the
        newest of `alike` (None if there is none).

        A record that a process has open is passed over rather than waited for: that process may be waiting for the
        directory's lock, which is held here (`lane_turns`).
        """
        words = self.memory.words
        for at in probed:
            if not words[at + STAMP]:
                return at
        if unused is not None:
            return self._use(unused)
        outdated = sorted((at for at in alike if at != newest), key=lambda at: words[at + GENERATION])
        if len(outdated) > 1:
            return outdated[0]
        others = [at for at in probed if at != newest]
        for at in others:
            if not words[at + STAMP] & TOUCHED and self._give_up(at):
                return at
        for at in others:
            words[at + STAMP] &= ~TOUCHED
        first = words[_NEXT] % len(others)
        return next((at for at in (*others[first:], *others[:first]) if self._give_up(at)), others[first])

    def _give_up(self, at: int) -> bool:
        """Give up the record at the address `at`, unless a process has it open; return whether it was given up."""
        lock = Mutex(self.memory.map, at * 8)
        if not lock.attempt():
            return False
        self.memory.words[at + STAMP] = 0
        lock.free()
        return True

    def _make(self, at: int, wanted: Definition, begin: Begin, newest: int | None) -> None:
        """Write a record for the definition `wanted` at the address `at`; `begin` writes its state, from that of the
        key's record at the address `newest` if there is one (None: from nothing). The last store writes the record's
        stamp, which makes it valid.
        """
        memory, words, doubles = self.memory, self.memory.words, self.memory.doubles
        lock = Mutex(memory.map, at * 8)
        if not words[at + MADE]:
            lock.make()
            words[at + MADE] = 1
        with lock:
            words[at + STAMP] = 0
        words[at + KEY], words[at + SPEC], words[at + GENERATION] = wanted.key, wanted.spec, wanted.generation
        doubles[at + SIZE] = wanted.size
        words[at + SEQUENCE] = 0
        if newest is None:
            begin(at + STATE, None)
        else:
            with Mutex(memory.map, newest * 8):
                state = newest + STATE + self.copy * (words[newest + SEQUENCE] & 1)
                begin(at + STATE, Former(doubles[newest + SIZE], state))
        words[_NEXT] += 1
        words[at + STAMP] = words[_NEXT] << 1  # a stamp that no record has had


class Record:
    """A record as one process uses it. The record's state is `size` numbers, in the order of the numbers that the
    `state` of a bucket (or other shared object) returns and its `restore` takes. Between `open` and `close` no other
    process changes the record: `load` gives a bucket the state, `save` publishes the bucket's.
    """

    __slots__ = (
        "_before", "_begin", "_copies", "_definition", "_form", "_map", "_mutex", "_sequence", "_stamp", "_stamp_at",
        "_table", "_take", "at", "doubles", "free", "is_open", "value", "words",
    )  # fmt: skip

    def __init__(self, table: Table, definition: Definition, begin: Begin, size: int = 1) -> None:
        self._table = table
        self._definition = definition
        self._begin = begin
        self._form = Struct(f"{size}d")
        self._map = table.memory.map
        self.words, self.doubles = table.memory.words, table.memory.doubles
        self.is_open = False
        self._attach()

    def _attach(self) -> None:
        at, self._stamp = self._table.attach(self._definition, self._begin)
        self.at, self._stamp_at, self._sequence, self.value = at, at + STAMP, at + SEQUENCE, at + STATE
        self._copies = (at + STATE) * 8, (at + STATE + self._table.copy) * 8
        self._mutex = Mutex(self._map, at * 8)
        self._take, self.free = self._mutex.take, self._mutex.free

    @property
    def memory(self) -> Memory:
        """The memory that has the record."""
        return self._table.memory

    @property
    def number(self) -> int:
        """The number of the record in its table, which is another one if the record has been looked up again."""
        return self._table.number(self.at)

    def renew(self, generation: int) -> bool:
        """Look the key up again, for this generation of the configuration. Returns whether the record is another one
        now.
        """
        before = self.at, self._stamp
        self._definition = self._definition._replace(generation=generation)
        self._attach()
        return (self.at, self._stamp) != before

    def open(self) -> None:
        """Take the record's lock: until `close`, no other process changes the record."""
        answer = self._take()
        if answer or self.words[self._stamp_at] != self._stamp:
            self._find(answer)
        self.is_open = True

    def open_inside(self) -> bool:
        """Take the lock while another record is open. Nothing is looked up then, since a process that makes a record
        may be waiting for that other record's lock. Returns False, without the lock, if the record has to be looked up
        again first.
        """
        answer = self._take()
        if answer:
            self._mutex.wait(answer)
        if self.words[self._stamp_at] != self._stamp:
            self.free()
            return False
        self.is_open = True
        return True

    def _find(self, answer: int) -> None:
        """Wait for the lock, after the attempt to take it gave this `answer` (0: this process has it already). If the
        record's stamp has changed (its slot was given to another key, or it counted as not used lately), look the
        record up again.
        """
        while True:
            if answer:
                self._mutex.wait(answer)
            if self.words[self._stamp_at] == self._stamp:
                return
            self.free()
            self._attach()
            answer = self._take()

    def close(self) -> None:
        """Release the record's lock."""
        self.is_open = False
        self.free()

    def load(self, bucket: Any) -> None:
        """Give a bucket the state that is published."""
        self._before = self._form.unpack_from(self._map, self._copies[self.words[self._sequence] & 1])
        bucket.restore(self._before)

    def save(self, bucket: Any) -> None:
        """Publish a bucket's state, if it has changed: into the spare copy, which becomes the current one."""
        state = bucket.state()
        if state != self._before:
            sequence = self.words[self._sequence] + 1
            self._form.pack_into(self._map, self._copies[sequence & 1], *state)
            self.words[self._sequence] = sequence
            self._before = state

    @property
    def version(self) -> tuple[int, int]:
        """The version of the published state: two numbers, at least one of which differs after each change. Versions
        can only be compared for equality. The record must be open.
        """
        return self._stamp, self.words[self._sequence]

    def look(self, bucket: Any) -> None:
        """Copy the state that the record holds now into `bucket`, for a caller that only reads the bucket."""
        self.open()
        self.load(bucket)
        self.close()

    def peek(self, index: int = 0) -> float:
        """Return one number of the state, the first if `index` is not given, without taking the lock.

        The number was published if afterwards the record has the same stamp and the same sequence number: a process
        that was delayed since it read the sequence number may have read the copy that another one is writing by now.
        """
        words = self.words
        while True:
            sequence = words[self._sequence]
            number = self.doubles[self.value + index + self._table.copy * (sequence & 1)]
            if words[self._stamp_at] != self._stamp:
                self._attach()
            elif words[self._sequence] == sequence:
                return number


class Rings(Record):
    """A record that consists of rings. Each ring publishes its own changes, so `load` only gives the bucket the word at
    which the rings begin, and `save` does nothing.
    """

    __slots__ = ()

    def load(self, bucket: Any) -> None:
        if bucket.rings_at != self.value:
            bucket.move_to(self.value)

    def save(self, bucket: Any) -> None:
        pass


class Number(Record):
    """A record of one number, the `_level` of a bucket or other object. The number is changed in place by one store. It
    is not packed into bytes as in other records, because packing would set the bytes to zero first.
    """

    __slots__ = ()

    def load(self, bucket: Any) -> None:
        bucket._level = self.doubles[self.value]

    def save(self, bucket: Any) -> None:
        self.doubles[self.value] = bucket._level

    def look(self, bucket: Any) -> None:
        bucket._level = self.peek()

    def peek(self, index: int = 0) -> float:
        while True:
            number = self.doubles[self.value]
            if self.words[self._stamp_at] == self._stamp:  # it was this record's number
                return number
            self._attach()


class Pair(Number):
    """A record of two numbers, the `_level` and the `_at` of a quota that refills in quiet, which are changed in place.
    Law: the time `_at` is written first. If the process is killed between the two writes, quiet begins later, and no
    token is lost.
    """

    __slots__ = ()

    def load(self, bucket: Any) -> None:
        bucket._level, bucket._at = self.doubles[self.value], self.doubles[self.value + 1]

    def save(self, bucket: Any) -> None:
        self.doubles[self.value + 1] = bucket._at
        self.doubles[self.value] = bucket._level

    def look(self, bucket: Any) -> None:
        self.open()
        self.load(bucket)
        self.close()


M = TypeVar("M", bound=Callable[..., Any])


def exclusive(method: M) -> M:
    """Decorate a method of a class whose objects keep their state in shared memory, so that it runs on the state in
    `self.record`, under the record's lock, and publishes the change.

    A decorated method that another one calls runs under the caller's lock. If a method raises, nothing is published.
    """

    def run(self: Any, *arguments: Any) -> Any:
        record = self.record
        if record.is_open:
            return method(self, *arguments)
        record.open()
        try:
            record.load(self)
            answer = method(self, *arguments)
            record.save(self)
            return answer
        finally:
            record.is_open = False
            record.free()

    return cast(M, run)


def reading(method: M) -> M:
    """Decorate a method that only reads: the current state is loaded from `self.record` before it runs, and no change
    is published after it. A method that changes the state is decorated by `exclusive`.
    """

    def run(self: Any, *arguments: Any) -> Any:
        if not self.record.is_open:
            self.record.look(self)
        return method(self, *arguments)

    return cast(M, run)
