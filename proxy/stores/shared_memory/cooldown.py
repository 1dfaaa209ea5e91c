"""A cooldown that the workers of one machine share: one worker's pushback holds the calls of all, and places are
counted over all of them.

The rules are those of `proxy.retry` alone; their numbers are read from memory before an operation and published after
it, under the record's lock. A call waits in its own worker, in order of arrival there; the first call of each worker
checks every POLL seconds whether a place is free.

Theory of places whose worker has died. A place in use is counted in the generation in which it was taken. There are
three generations; a new one begins every half of a place's time, and replaces the oldest with everything that is still
counted in it: the places of dead workers. A living worker returns its own in time, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from proxy.retry.cooldown import Cooldown
from proxy.retry.slow_start import SlowStart
from proxy.retry.token_bucket import Waiter
from proxy.stores.shared_memory.records import Number, Record, exclusive

#: Seconds between two checks for places that other workers may have given back.
POLL = 0.01
#: Seconds for which a worker's calls count as held after each check; every check renews that.
HELD = 0.25
#: Generations of places in use; and the base in which their counts are packed into one number, a digit for each.
GENERATIONS, _BASE = 3, 65536

_NEVER = float("inf")

#: The `state` of a group that no answer has asked to wait.
QUIET = (-_NEVER, 0.0, 503.0, 1.0, _NEVER, -_NEVER, -_NEVER, -_NEVER, 0.0, 0.0, 0.0)


M = TypeVar("M", bound=Callable[..., Any])


def timed(place: int) -> Callable[[M], M]:
    """Make a decorator for a method of SlowStart, which runs it as `exclusive` does. `place` is the position of the
    argument that is the time. Before the method, generations of places that are due begin; afterwards, it is noted if
    calls are held.
    """

    def wrap(method: M) -> M:
        @exclusive
        def work(self: SharedSlowStart, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
            now = arguments[place]
            self.begin_generations(now)
            answer = method(self, *arguments, **options)
            if self.queue or self.elsewhere:
                self.held = max(self.held, now + HELD, self.until + HELD)
            return answer

        return cast(M, lambda self, *arguments, **options: work(self, arguments, options))

    return wrap


class SharedSlowStart(SlowStart):
    """The slow start of one group of callers, in shared memory."""

    __slots__ = ("_counts", "_opened", "_seen", "_turn", "_turns", "held", "record")

    def __init__(self, record: Record) -> None:
        super().__init__()
        self.record = record
        self.held = -_NEVER  # until when some worker's calls are held (seconds)
        self._opened = 0.0  # when the newest generation began
        self._turn = 0  # the newest generation's number
        self._counts = [0] * GENERATIONS  # the places in use of each generation, by its number modulo GENERATIONS
        self._turns: dict[Waiter, int] = {}  # the generation in which each place of this worker was taken
        self._seen = -_NEVER  # `begun` of the pushback that this worker's calls know of

    start = timed(3)(SlowStart.start)
    allot = timed(4)(SlowStart.allot)
    go_alone = timed(0)(SlowStart.go_alone)
    claim = exclusive(SlowStart.claim)
    landed = timed(2)(SlowStart.landed)
    leave = timed(1)(SlowStart.leave)

    @timed(2)
    def started_elsewhere(self, delay: float, status: int, now: float) -> None:
        """Take a pushback that another machine got: the first worker records it for all, and each waits for its own
        share of the places.
        """
        if now + delay > self.until:
            self.start(delay, status, now, now)
        if self.share < _NEVER:
            self.share = 0.0

    @timed(1)
    def ask(self, waiter: Waiter, now: float) -> float:
        if self._seen != self.begun:  # a pushback of another worker: all calls here ask again
            self._seen = self.begun
            for other in list(self.queue):
                other.retime(now)
        return super().ask(waiter, now)

    def is_over(self, now: float) -> bool:
        """Whether no call is held in any worker."""
        return now >= self.held and super().is_over(now)

    def in_use(self) -> int:
        """The number of places in use, in all workers."""
        return sum(self._counts)

    def _next(self, now: float) -> float:
        return self.until if now < self.until else now + POLL  # a dead worker's place may become free at any time

    def _occupy(self, waiter: Waiter, now: float) -> None:
        super()._occupy(waiter, now)
        self._turns[waiter] = self._turn
        self._counts[self._turn % GENERATIONS] += 1

    def _vacate(self, waiter: Waiter) -> None:
        super()._vacate(waiter)
        turn = self._turns.pop(waiter, -GENERATIONS)
        if turn > self._turn - GENERATIONS and self._counts[turn % GENERATIONS]:
            self._counts[turn % GENERATIONS] -= 1

    def _forget_places(self) -> None:
        super()._forget_places()
        self._turns.clear()
        self._turn += GENERATIONS  # places of earlier generations that are given back count no more
        self._counts = [0] * GENERATIONS

    def restore(self, state: tuple[float, ...]) -> None:
        self.until, self.delay, status, self.places, self._threshold, self.begun, self._well = state[:7]
        self.held, self._opened, turn, counts = state[7:]
        self.status, self._turn = int(status), int(turn)
        self._counts = [int(counts) // _BASE**n % _BASE for n in range(GENERATIONS)]

    def state(self) -> tuple[float, ...]:
        counts = sum(min(count, _BASE - 1) * _BASE**n for n, count in enumerate(self._counts))
        word = self.until, self.delay, self.status, self.places, self._threshold, self.begun, self._well
        return (*word, self.held, self._opened, self._turn, counts)

    def begin_generations(self, now: float) -> None:
        """Begin the generations of places that are due (see the module). Each replaces the oldest one, whose places,
        those of dead workers, are free again.
        """
        half = self.place_seconds / 2
        for _ in range(GENERATIONS):
            if now < self._opened + half:
                return
            self._turn += 1
            self._counts[self._turn % GENERATIONS] = 0
            self._opened += half
        self._opened = max(self._opened, now)


class SharedCooldown(Cooldown):
    """The cooldown of one scope in shared memory. `quiet` has the moment from which no call is held.

    The number of groups that this worker knows is bounded as in a single process. A group that is dropped here stays in
    shared memory while there is room: its next call finds it again.
    """

    __slots__ = ("_attach", "_quiet")

    def __init__(self, quiet: Number, attach: Callable[[bytes, bool], Record | None]) -> None:
        """`quiet` is the shared number that `quiet_from` reads. `attach(name, make)` returns the record of a group of
        callers; if the group has none, a new one if `make` is True, else None.
        """
        self._quiet = quiet
        self._attach = attach
        super().__init__()

    @property
    def quiet_from(self) -> float:
        """The moment from which no call is held: one value, read without a lock."""
        return self._quiet.peek()

    @quiet_from.setter
    def quiet_from(self, value: float) -> None:
        if math.isfinite(value):
            self._quiet.raise_to(value)

    def seconds_left(self, now: float) -> float:
        """The longest delay that is left for any call, in any worker; 0 if no call is held."""
        return max(0.0, self.quiet_from - now)

    def left_of(self, name: bytes, now: float) -> float:
        group = self._find(name, now)
        return max(0.0, group.record.peek() - now) if isinstance(group, SharedSlowStart) else 0.0

    def _look(self, changed: Sequence[SlowStart]) -> None:
        quiet = -_NEVER
        for group in changed:
            quiet = max(quiet, group.until)
            if group.queue or group.elsewhere:
                self._holding.add(group)
                if isinstance(group, SharedSlowStart):
                    quiet = max(quiet, group.held)
            else:
                self._holding.discard(group)
        if quiet > self._quiet.peek():
            self.quiet_from = quiet

    def _find(self, name: bytes, now: float) -> SlowStart | None:
        group = self._groups.get(name)
        if group is None:
            record = self._attach(name, False)
            if record is not None:
                group = self._keep(name, SharedSlowStart(record), now)
        if isinstance(group, SharedSlowStart):
            group.record.look(group)  # answers that other workers got count too
        return group

    def _make(self, name: bytes) -> SlowStart:
        record = self._attach(name, True)
        assert record is not None
        return SharedSlowStart(record)
