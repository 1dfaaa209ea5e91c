"""Settings as a row of small records, which another process takes a few at a time.

Law: a record holds one thing (a policy, an upstream, what many of them share) and names by number those that came
before it; the last one is the settings. So a configuration of any size becomes objects in steps of a fraction of a
millisecond, between which calls go on, and what was one object is one over there too; what is only equal becomes one.
What a user's own code makes stands in a record of its own, which is marked: nobody knows how long that code takes.

Records travel in chunks of some kilobytes: a byte that says whether a user's code is run, the length, the pickle. Both
ends are this program. The trees of `Provenance` stay behind.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from struct import Struct
from typing import Any

from proxy.config.provenance import Provenance
from proxy.config.settings import Settings
from proxy.retry.policy import (
    BucketRef,
    Classify,
    HeaderEdits,
    IdempotencyKey,
    Policy,
    PushbackPolicy,
    Scope,
    Strategy,
    Timeouts,
)
from proxy.retry.routing import Match, Upstream
from proxy.retry.target import Target

#: What has a record of its own; of the second sort, equal ones become one.
_APART = frozenset({Upstream, Policy, Strategy, Classify, Target})
_ALIKE = frozenset({BucketRef, HeaderEdits, IdempotencyKey, PushbackPolicy, Scope, Timeouts, Match, frozenset})
#: Bytes after which a chunk is full.
_CHUNK = 32 * 1024
_HEADER = Struct("=?I")

Key = tuple[type, object] | int


def pack(settings: Settings) -> Iterator[bytes]:
    """Settings, without their provenance but for the top level's, as chunks for `Unpacking`."""
    settings = replace(settings, provenance=Provenance(settings.provenance.top))
    chunk = bytearray()
    for users, record in _Packing(settings).records():
        chunk += _HEADER.pack(users, len(record)) + record
        if len(chunk) >= _CHUNK:
            yield bytes(chunk)
            chunk.clear()
    yield bytes(chunk)


def records_of(chunk: bytes) -> Iterator[tuple[bool, memoryview]]:
    """(whether a user's code is run, the record) of each record in a chunk."""
    view, at = memoryview(chunk), 0
    while at < len(chunk):
        users, size = _HEADER.unpack_from(chunk, at)
        at += _HEADER.size + size
        yield users, view[at - size : at]


class Unpacking:
    """Takes the records one after the other; `taken` is what the last one held."""

    def __init__(self) -> None:
        self._made: list[Any] = []

    def take(self, record: memoryview) -> None:
        """Make what the next record holds. Raises whatever a user's code does."""
        unpickler = _Unpickler(io.BytesIO(record))
        unpickler.made = self._made
        self._made.append(unpickler.load())

    @property
    def taken(self) -> Any:
        """The last thing that was made."""
        return self._made[-1]


class _Unpickler(pickle.Unpickler):
    made: list[Any]

    def persistent_load(self, number: Any) -> Any:
        return self.made[number]


class _Packing:
    """Numbers what has a record of its own, each once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._remakes = _remakes(settings)
        self._tables = settings.router.lay_out()
        self._apart = {*map(id, self._tables), *self._remakes}
        self._numbers: dict[Key, int] = {}
        self._records: list[tuple[bool, bytes]] = []

    def records(self) -> Iterator[tuple[bool, bytes]]:
        """All of them, in order."""
        for part in (*self._settings.router.upstreams, *self._tables, self._settings):
            self._number(id(part), part)
            yield from self._drawn()

    def _drawn(self) -> list[tuple[bool, bytes]]:
        drawn, self._records = self._records, []
        return drawn

    def number_of(self, part: Any) -> int | None:
        """The number of what stands in a record of its own, which is written now if it was not; None for the rest."""
        kind = type(part)
        if kind in _ALIKE:
            return self._number((kind, part), part)
        if kind in _APART or id(part) in self._apart:
            return self._number(id(part), part)
        return None

    def _number(self, key: Key, part: Any) -> int:
        known = self._numbers.get(key)
        if known is None:
            out = io.BytesIO()
            _Pickler(out, part, self).dump(part)
            self._records.append((id(part) in self._remakes, out.getvalue()))
            known = self._numbers[key] = len(self._numbers)
        return known

    def remake_of(self, part: Any) -> Callable[[], Any] | None:
        """What makes this anew, where it is a user's own strategy."""
        return self._remakes.get(id(part))


class _Pickler(pickle.Pickler):
    def __init__(self, out: io.BytesIO, whole: Any, packing: _Packing) -> None:
        super().__init__(out, pickle.HIGHEST_PROTOCOL)
        self._whole = whole
        self._packing = packing

    def persistent_id(self, part: Any) -> int | None:
        return None if part is self._whole else self._packing.number_of(part)

    def reducer_override(self, part: Any) -> Any:
        again = self._packing.remake_of(part)
        return NotImplemented if again is None else (again, ())


def _remakes(settings: Settings) -> dict[int, Callable[[], Any]]:
    """How users' own strategies are made anew in another process, by the identity of the one here."""
    router = settings.router
    policies = (policy for upstream in (*router.upstreams, router.fallback) for policy in upstream.policies)
    strategies = (policy.strategy for policy in policies)
    return {id(each.custom): each.remake for each in strategies if each.custom is not None and each.remake is not None}
