"""Constants for comparing times on the driver's clock."""

from __future__ import annotations

#: Tolerance for sums of floating-point seconds, which may miss a deadline that they equal; a wait to it is begun.
EPSILON = 1e-9

#: An instant that does not come.
NEVER = float("inf")
