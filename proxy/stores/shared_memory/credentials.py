"""The credentials that are put aside, over all workers of one machine: for each credential's value, the time until
which it is put aside.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.retry.upstreams.credentials import ASIDE, Roster
from proxy.stores.shared_memory.records import Number


class SharedRoster(Roster):
    """The credentials of one upstream in shared memory; each worker takes turns among them by itself."""

    __slots__ = ("_attach", "_numbers")

    def __init__(self, attach: Callable[[str], Number]) -> None:
        """`attach` returns the record of a credential by the hash of its value."""
        super().__init__()
        self._attach = attach
        self._numbers: dict[str, Number] = {}

    def aside_until(self, digest: str) -> float:
        return self._number(digest).peek()

    def put_aside(self, digest: str, now: float) -> bool:
        number = self._number(digest)
        number.open()
        try:
            before = number.doubles[number.value]
            number.doubles[number.value] = now + ASIDE
        finally:
            number.close()
        return before <= now

    def put_aside_for(self, digest: str, until: float) -> None:
        number = self._number(digest)
        number.open()
        try:
            number.doubles[number.value] = max(number.doubles[number.value], until)
        finally:
            number.close()

    def _number(self, digest: str) -> Number:
        number = self._numbers.get(digest)
        if number is None:
            number = self._numbers[digest] = self._attach(digest)
        return number
