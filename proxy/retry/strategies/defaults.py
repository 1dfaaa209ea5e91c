"""The clock and the random source of a strategy that is made with no arguments.

No other module of proxy/retry uses a clock or a random source of its own (a lint rule checks this, with this module as
its exception); all others get both as arguments.
"""

from __future__ import annotations

from random import Random
from time import monotonic

#: Seconds; only differences between two readings have a meaning.
clock = monotonic

#: The source of jitter: `random()` is a uniform draw from [0, 1).
chance = Random()
draw = chance.random
