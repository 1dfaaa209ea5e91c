"""The binomial distribution: how probable a number of failures is if each attempt fails by chance."""

from __future__ import annotations

import math

#: The most attempts for which the probability is computed exactly.
_EXACT = 200


def tail(count: int, least: int, share: float) -> float:
    """The probability that at least `least` of `count` attempts fail, if each fails by chance with the probability
    `share` (the upper tail of the binomial distribution).
    """
    if share >= 1.0:
        return 1.0
    if count > _EXACT:  # the normal distribution is as good then, and its terms do not overflow
        deviation = math.sqrt(max(count * share * (1.0 - share), 1e-9))
        return 0.5 * math.erfc((least - 0.5 - count * share) / (deviation * math.sqrt(2.0)))
    below = 0.0
    for k in range(min(least, count + 1)):
        below += math.comb(count, k) * share**k * (1.0 - share) ** (count - k)
    return max(0.0, 1.0 - below)
