"""The clock and the random source of a strategy that is made with no arguments.

This is the one module of proxy/retry that uses either (the lint lists it as its exception); all other modules get both
as arguments.
"""

from __future__ import annotations

from random import Random
from time import monotonic

#: Seconds; only differences between two readings have a meaning.
clock = monotonic

#: The source of jitter: `random()` is a uniform draw from [0, 1).
chance = Random()
draw = chance.random
