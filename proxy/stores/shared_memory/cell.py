"""One record of shared memory, as a process uses it.

Law: between `open` and `close` nobody else changes it. What a process knows of it is its place and its stamp; another
stamp says that the place was given away, and then the key is looked up again.
"""

from __future__ import annotations

from struct import Struct

from proxy.stores.shared_memory import mutex
from proxy.stores.shared_memory.records import COPY, SEQUENCE, STAMP, STATE, TOUCHED, Begin, Definition, Table

_take, _free = mutex.take, mutex.free


class Cell:
    """One record, as a process uses it: `open`, look, publish, `close`.

    `value` is the word of a record of one value; `load` and `publish` are for records of several, laid out by `form`
    (None for one value).
    """

    __slots__ = (
        "_begin",
        "_copies",
        "_definition",
        "_form",
        "_map",
        "_sequence",
        "_stamp",
        "_stamp_at",
        "_table",
        "_touched",
        "at",
        "doubles",
        "mutex",
        "value",
        "words",
    )

    def __init__(self, table: Table, definition: Definition, begin: Begin, form: Struct | None = None) -> None:
        self._table = table
        self._definition = definition
        self._begin = begin
        self._form = form
        self._map = table.memory.map
        self.words, self.doubles = table.memory.words, table.memory.doubles
        self._attach()

    def _attach(self) -> None:
        at = self.at = self._table.attach(self._definition, self._begin)
        self.mutex = self._table.memory.address + at * 8
        self._stamp_at, self._touched, self._sequence = at + STAMP, at + TOUCHED, at + SEQUENCE
        self.value = at + STATE
        self._copies = (at + STATE) * 8, (at + STATE + COPY) * 8
        self._stamp = self.words[self._stamp_at]

    def renew(self, generation: int) -> bool:
        """Look the key up again, as of this generation. Whether it is another record now."""
        before = self.at, self._stamp
        known = self._definition
        self._definition = Definition(known.key, known.spec, generation, known.size)
        self._attach()
        return (self.at, self._stamp) != before

    def open(self) -> None:
        """Take the lock. The record is this definition's, looked up again where its place was given away."""
        answer = _take(self.mutex)
        if answer:
            mutex.wait(self.mutex, answer)
        words = self.words
        while words[self._stamp_at] != self._stamp:
            _free(self.mutex)
            self._attach()
            answer = _take(self.mutex)
            if answer:
                mutex.wait(self.mutex, answer)
        words[self._touched] = 1

    def close(self) -> None:
        """Let go of the lock."""
        _free(self.mutex)

    def open_value(self) -> float:
        """`open`, and the value of a record of one value."""
        self.open()
        return self.doubles[self.value]

    def close_value(self, value: float) -> None:
        """Publish the value, and `close`."""
        self.doubles[self.value] = value
        _free(self.mutex)

    def peek(self) -> float:
        """The value of a record of one value, at any time."""
        if self.words[self._stamp_at] != self._stamp:
            self._attach()
        return self.doubles[self.value]

    def load(self) -> tuple[float, ...]:
        """The state; between `open` and `close`."""
        assert self._form is not None
        return self._form.unpack_from(self._map, self._copies[self.words[self._sequence] & 1])

    def publish(self, *values: float) -> None:
        """A new state; between `open` and `close`."""
        assert self._form is not None
        sequence = self.words[self._sequence] + 1
        self._form.pack_into(self._map, self._copies[sequence & 1], *values)
        self.words[self._sequence] = sequence
