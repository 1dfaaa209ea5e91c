"""Which buckets have something to say to Redis, and by when.

Law: a bucket stands here once, with its earliest time (`RedisBucket.due`). What it was put down for before that stays
in the heap, and is passed over when it comes up.
"""

from __future__ import annotations

import heapq
import math

from proxy.stores.redis.bucket import RedisBucket


class Agenda:
    """See the module."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, RedisBucket]] = []
        self._number = 0

    def put(self, bucket: RedisBucket, at: float) -> bool:
        """Put a bucket down for this time; False: it has its say by then anyway."""
        if at >= bucket.due and not math.isinf(bucket.due):
            return False
        bucket.due = at
        self._number += 1
        heapq.heappush(self._entries, (at, self._number, bucket))
        return True

    @property
    def first(self) -> float:
        """When the first is due; never: infinity."""
        entries = self._entries
        while entries and entries[0][2].due != entries[0][0]:  # said already, or earlier
            heapq.heappop(entries)
        return entries[0][0] if entries else math.inf

    def take(self, until: float, most: int) -> list[RedisBucket]:
        """Strike out those that are due by then, and at most so many."""
        taken: list[RedisBucket] = []
        while len(taken) < most and self.first <= until:
            bucket = heapq.heappop(self._entries)[2]
            bucket.due = math.inf
            taken.append(bucket)
        return taken

    def clear(self) -> None:
        """Strike out all."""
        for _, _, bucket in self._entries:
            bucket.due = math.inf
        self._entries.clear()
