"""The attempts of one scope, of all workers, that ended in a row without an answer (`proxy.retry.weather.lost_rows`).

A row that only one worker counted would be as many times longer as there are workers before an outage begins. So all
workers count in one record, under its lock. It is made with the first attempt that is counted: most scopes have none. A
worker reads it again once another has changed it, which shows in a word of the memory that each change gives another
number. It looks at that word with each attempt that fails, and with each answer that is reported to the governor: of
answers while all is well, one in sixteen, and the first of each tenth of a second. From then on each of its answers is
reported, and ends the rows of its endpoint, route and path. So an answer that another worker got within the first tenth
of a second of a row may not end the row.

One table for all scopes has when routes and paths were last answered (`last_times`). An outage begins only if that is
not long ago, and the worker that finds it may not have got any of these answers itself.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from proxy.retry.weather.lost_rows import FORGOTTEN_AFTER, LostRow, LostRows
from proxy.retry.weather.route_names import RouteNames
from proxy.stores.shared_memory.endings import packed, unpacked
from proxy.stores.shared_memory.last_times import LastTimes
from proxy.stores.shared_memory.records import (
    ANSWERED,
    LANE_COPY,
    Begin,
    Definition,
    Memory,
    Record,
    digest,
    exclusive,
)

#: The words of a row, the first row's position, and how many there are.
_WORDS, _FIRST = 5, 3
_ROWS = (LANE_COPY - _FIRST) // _WORDS
#: The `state` of a scope in which no attempt has ended without an answer yet.
QUIET = (0.0, -math.inf, -math.inf, *(0.0,) * (_WORDS * _ROWS))
#: Seconds between two notes of a worker that a path is answered: much less than the ten minutes that matter.
_NOTED_EVERY = 15.0
#: Digests that are kept, and the bits of one: a double holds them exactly. Those of endpoints, routes and paths differ
#: in the last two.
_DIGESTS, _BITS = 1024, 48
_ENDPOINT, _ROUTE, _PATH = 1, 2, 3


class SharedLostRows(LostRows):
    """The rows of one scope in shared memory, as one worker uses them. In `endpoints` and `rows` they stand by their
    numbers in place of their keys. `definition`: that of their record; `begin` writes the record's first state.
    """

    is_shared = True
    __slots__ = (
        "_answered_at", "_begin", "_changed_at", "_definition", "_digests", "_known", "_memory", "_noted", "_record",
    )  # fmt: skip

    def __init__(self, memory: Memory, definition: Definition, begin: Begin) -> None:
        super().__init__()
        self._memory, self._definition, self._begin = memory, definition, begin
        self._record: Record | None = None
        self._changed_at = memory.changes(definition.key)
        self._known = 0  # the word at `_changed_at`, after the last change that this worker knows of
        self._answered_at = LastTimes(memory, memory.answered, ANSWERED, memory.answered_lock)
        self._digests: dict[object, float] = {}
        self._noted: dict[str, float] = {}  # when this worker noted last that a path is answered

    @property
    def record(self) -> Record:
        """The record of the rows, which is made if there is none."""
        if self._record is None:
            self._record = Record(self._memory.lanes, self._definition, self._begin, len(QUIET))
        return self._record

    def refresh(self) -> bool:
        """Read the rows again if another worker has changed them. Returns whether one had."""
        changed = self._memory.words[self._changed_at]
        if changed == self._known:
            return False
        self._known = changed
        if self._record is None and not self._memory.lanes.knows(self._definition.key):
            return False  # the rows of another scope have changed
        self.record.look(self)
        return True

    # -- what is counted ----------------------------------------------------------------------------------------------

    def is_suspected(self, endpoint: str) -> bool:
        return self._number(_ENDPOINT, endpoint) in self.endpoints

    def lost_endpoint(self, endpoint: str, how: str, answered_at: float, now: float) -> LostRow:
        return self._lost(self._number(_ENDPOINT, endpoint), how, answered_at, now)

    def endpoint_answered(self, endpoint: str) -> bool:
        number = self._number(_ENDPOINT, endpoint)
        if number not in self.endpoints:
            return False
        self._end([number], -math.inf)
        return True

    def lost_route(self, endpoint: str, names: RouteNames, how: str, again: bool, now: float) -> LostRow:
        return self._lost(self._number(_ROUTE, (endpoint, names.lost)), how, math.inf if again else -math.inf, now)

    def lost_path(self, endpoint: str, names: RouteNames, how: str, answered_at: float, now: float) -> LostRow:
        number = self._number(_PATH, (endpoint, names.timed))
        return self._lost(number, how, -math.inf, now, answered_at)

    def answered(self, endpoint: str, names: RouteNames, now: float) -> bool:
        route, path = self._number(_ROUTE, (endpoint, names.lost)), self._number(_PATH, (endpoint, names.timed))
        paths = {number: row for number, row in self.rows.items() if _is_path(number)}
        ended: list[object] = [number for number in (route, path) if number in self.rows]
        if paths and now - self._latest > FORGOTTEN_AFTER:
            ended += paths
        others_answer = any(row.since >= self.answered_at for row in paths.values())
        if ended or others_answer:
            self._end(ended, now)
        return route in ended

    def route_answered_at(self, names: RouteNames) -> float:
        return self._answered_at.of(self._noted_as(_route_of(names)))

    def path_answered_at(self, names: RouteNames) -> float:
        return self._answered_at.of(self._noted_as(names.timed))

    def note_answered(self, names: RouteNames, now: float) -> None:
        """Note for the other workers, now and then, that attempts of this route and path are answered. `names`: their
        names.
        """
        if now < self._noted.get(names.timed, -math.inf) + _NOTED_EVERY:
            return
        if len(self._noted) >= _DIGESTS:
            self._noted.clear()
        self._noted[names.timed] = now
        for what in (names.timed, _route_of(names)):
            self._answered_at.note(self._noted_as(what), now)

    # -- in the record ------------------------------------------------------------------------------------------------

    @exclusive
    def _lost(self, number: float, how: str, answered_at: float, now: float, of_path: float = -math.inf) -> LostRow:
        """Add an attempt to the row with this number. `how`: how it ended. `answered_at`: the time of the last answer;
        a row that began before begins again. `of_path`: when the row's path was last answered, as this worker knows it.
        """
        rows = self.endpoints if number % 4 == _ENDPOINT else self.rows
        row = rows.pop(number, None)
        if row is None or answered_at > row.since:
            row = LostRow(now)
        rows[number] = row  # the one that was changed last stands last
        row.add(how)
        row.answered_at = max(row.answered_at, of_path)
        if len(self.endpoints) + len(self.rows) > _ROWS:
            every = (*filter(_is_path, self.rows), *self.rows, *self.endpoints)
            oldest = next(each for each in every if each != number)  # a row that made room for itself would never grow
            (self.endpoints if oldest in self.endpoints else self.rows).pop(oldest)
        self._tell()
        if _is_path(number):
            self._latest = now
        return row

    @exclusive
    def _end(self, numbers: Sequence[object], answered_at: float) -> None:
        """End the rows with these numbers. `answered_at`: the time at which an attempt of a path was answered."""
        for number in numbers:
            self.endpoints.pop(number, None)
            self.rows.pop(number, None)
        self.answered_at = max(self.answered_at, answered_at)
        self._tell()

    def _tell(self) -> None:
        """Tell the other workers that the record changes. Its lock is held: they read it once it has changed."""
        self._known = self._memory.words[self._changed_at] = random.getrandbits(62)

    def restore(self, state: tuple[float, ...]) -> None:
        count, self.answered_at, self._latest = state[:_FIRST]
        self.endpoints, self.rows = {}, {}
        for at in range(_FIRST, _FIRST + _WORDS * int(count), _WORDS):
            number, count, since, answered_at, endings = state[at : at + _WORDS]
            row = LostRow(since, int(count))
            row.answered_at, row.endings = answered_at, unpacked(endings)
            (self.endpoints if number % 4 == _ENDPOINT else self.rows)[number] = row

    def state(self) -> tuple[float, ...]:
        numbers: list[float] = []
        every = [*self.endpoints.items(), *self.rows.items()]
        for number, row in every:
            assert isinstance(number, float)
            numbers += (number, row.count, row.since, row.answered_at, packed(row.endings))
        head = float(len(every)), self.answered_at, self._latest
        return (*head, *numbers, *QUIET[_FIRST + len(numbers) :])

    # -- numbers in place of names ------------------------------------------------------------------------------------

    def _number(self, kind: int, key: object) -> float:
        """The number of a key of `LostRows` in the record. `kind`: _ENDPOINT, _ROUTE or _PATH."""
        number = self._digests.get((kind, key))
        if number is None:
            if len(self._digests) >= _DIGESTS:
                self._digests.clear()
            number = float((digest(key) % (1 << _BITS)) * 4 + kind)
            self._digests[kind, key] = number
        return number

    def _noted_as(self, what: str) -> int:
        """The digest of a path, or of routes and methods, of this scope in the table of last answers."""
        return digest(self._definition.key, what)


def _route_of(names: RouteNames) -> str:
    """The name of the routes and methods whose last answers are noted together, as in `UsualTimes.last_of_any`."""
    return names.timed[: names.timed.rfind(" ")]


def _is_path(number: object) -> bool:
    """Whether the row with this number is that of a path."""
    assert isinstance(number, float)
    return number % 4 == _PATH
