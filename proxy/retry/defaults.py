"""The clock and the random source of a strategy that is made with no arguments.

This is the one module of the deciding room that names either (the lint lists it as its exception); everything else gets
both as arguments.
"""

from __future__ import annotations

from random import Random
from time import monotonic

#: Seconds; only differences mean something.
clock = monotonic

#: Where jitter comes from: `random()` is a uniform draw from [0, 1).
chance = Random()
draw = chance.random
