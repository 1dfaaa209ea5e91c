"""The share of failing attempts at which a quota drains, and the retries that it can never pay for.

Let each attempt fail with probability p, independently, with at most n attempts, a price c for a retry and a refund r
for a success at the first attempt. Retry k is made with probability p^k and pays c; the last price comes back when a
retried call succeeds, which is p - p^n of all calls. So a call earns (1 - p)·r and loses

    c·(p + … + p^(n-1)) - c·(p - p^n)  =  c·(p^2 + … + p^n),

and the level falls if the loss is greater than the gain. For r = 1 and n = 3 the two are equal at p = 32.1 % for c = 5,
at 24.6 % for c = 10 and at 21.5 % for c = 14. With `refund: flat` nothing comes back and every success, 1 - p^n of all
calls, returns r: the two are equal if r·(1 - p^n) = c·(p + … + p^(n-1)).
"""

from __future__ import annotations

from functools import lru_cache

from proxy.retry.policies.bucket_specs import QuotaSpec

#: The most attempts whose cost to a quota is counted: further ones change no figure that is shown.
MOST_TERMS = 1_000_000


@lru_cache(maxsize=1024)
def draining_share(cost: float, attempts: int, refund: float = 1, *, flat: bool = False) -> float | None:
    """The share of failing attempts, from 0 to 1, above which a quota drains; None if it never does. `cost`: the tokens
    that a retry pays; `attempts`: the most attempts of a call; `refund`: the tokens that a success gives back; `flat`:
    every success gives back the refund, and a retry's price is not returned.
    """
    if cost <= 0 or attempts < 2:
        return None

    last = min(attempts, MOST_TERMS)

    def retries(p: float, first: int, end: int) -> float:
        """The sum of p**k, k from `first` to below `end`, computed without a loop, since `max_attempts` may be any
        number.
        """
        return (p**first - p**end) / (1 - p) if p < 1 else end - first

    def balance(p: float) -> float:
        if flat:
            return refund * (1 - p**last) - cost * retries(p, 1, last)
        return refund * (1 - p) - cost * retries(p, 2, last + 1)

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if balance(middle) > 0 else (low, middle)
    return high


def too_small(spec: QuotaSpec) -> str:
    """Say, in one line, which retries a quota can never pay for; "" if it can pay for all."""
    prices = {"": spec.retry_cost, " after a timeout": spec.timeout_cost}
    prices[" after a throttling error"] = spec.throttling_cost
    if len(set(prices.values())) == 1:
        prices = {"": spec.retry_cost}
    dear = [f"a retry{when} costs {price:g}" for when, price in prices.items() if price > spec.capacity]
    return f"holds {spec.capacity:g}, but {' and '.join(dear)}: no retry is ever granted" if dear else ""
