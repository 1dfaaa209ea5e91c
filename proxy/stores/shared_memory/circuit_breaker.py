"""A circuit breaker that the workers of one machine share: the attempts of all workers are counted, and one probe is
made for all of them.

The rules are those of `proxy.retry` alone. A breaker's numbers are read from a record before a method runs, and
published after it, under the record's lock. The breaker's two counts are rings, which follow its numbers in the record
and publish their own changes. If a worker dies, its probe decides nothing, and the next probe may be sent in time.
"""

from __future__ import annotations

from typing import Any

from proxy.retry.policies.policy import BreakerSpec
from proxy.retry.upstreams.circuit_breaker import NEVER, CircuitBreaker
from proxy.stores.shared_memory import ring
from proxy.stores.shared_memory.records import COPY, Memory, Record, exclusive

#: Words of a record's state, both copies and the rings.
WORDS = 2 * COPY + 2 * ring.WORDS
#: Numbers of the state.
NUMBERS = 5


class BreakerRecord(Record):
    """The shared record of one circuit breaker: the breaker's state, then the two rings of its counts. `load` also
    tells the breaker the word of the memory at which the state begins.
    """

    __slots__ = ()

    def load(self, bucket: Any) -> None:
        super().load(bucket)
        if bucket.rings_at != self.value:
            bucket.move_to(self.value)


class SharedCircuitBreaker(CircuitBreaker):
    """The breaker of one endpoint in shared memory. Time is the machine's monotonic clock, the same for all workers."""

    __slots__ = ("_memory", "record", "rings_at")

    def __init__(self, spec: BreakerSpec, record: BreakerRecord, memory: Memory) -> None:
        super().__init__(spec)
        self.record = record
        self._memory = memory
        self.move_to(record.value)

    def move_to(self, at: int) -> None:
        """Use the state, and the rings after it, that begin at the word `at` of the memory."""
        self.rings_at = at
        first = at + 2 * COPY
        self._ended = ring.RingCount(self._memory, first, self.spec.window)
        self._ill = ring.RingCount(self._memory, first + ring.WORDS, self.spec.window)

    @property
    def is_open(self) -> bool:
        """Whether the breaker is open. This reads one number, and takes no lock."""
        return self._look() > -NEVER

    def passes(self, now: float) -> bool:
        self._look()
        return super().passes(now)

    def seconds_left(self, now: float) -> float:
        self._look()
        return super().seconds_left(now)

    def _look(self) -> float:
        if not self.record.is_open:
            self.until = self.record.peek()
        return self.until

    _enter = exclusive(CircuitBreaker.enter)
    ended = exclusive(CircuitBreaker.ended)
    turned_ill = exclusive(CircuitBreaker.turned_ill)
    undecided = exclusive(CircuitBreaker.undecided)

    def enter(self, now: float) -> int | None:
        return self._enter(now) if self.is_open else 0  # nearly always the breaker is closed

    def state(self) -> tuple[float, ...]:
        """The breaker's numbers. The first is the time until which the breaker is open, which every call reads."""
        return self.until, self._open_for, float(self._probe), float(self._is_out), self._forgotten

    def restore(self, state: tuple[float, ...]) -> None:
        """Take over the numbers of a `state`."""
        self.until, self._open_for, probe, is_out, self._forgotten = state
        self._probe, self._is_out = int(probe), bool(is_out)


def beginning(spec: BreakerSpec) -> tuple[float, ...]:
    """The state of a new breaker, which is closed, as the numbers that `restore` takes."""
    return -NEVER, spec.open, 0.0, 0.0, -NEVER
