"""Which fields an attempt carries, as the data path sends them."""

from __future__ import annotations

from proxy.retry.call import Call


def fields_of_attempt(call: Call, attempt: int, now: float) -> dict[str, str]:
    """Names in lower case; the values of a field that repeats are joined with a comma."""
    return {"x-attempt-count": str(attempt)}
