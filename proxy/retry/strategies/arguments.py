"""Checks of the arguments that a program passes to a strategy: a wrong one raises a clear ValueError before the first
call.

Only types and ranges are checked: a `max` below `base`, and zeros, are accepted (contract, section 3); a window of zero
seconds is refused, as in the configuration.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_args

from proxy.retry.policies.bucket_specs import BucketSpec, BudgetSpec, QuotaSpec, RateSpec, ThrottleSpec
from proxy.retry.policies.policy import Jitter

_JITTERS: tuple[str, ...] = get_args(Jitter)


def number(name: str, value: Any, *, unit: str = "", endless: bool = False) -> float:
    """Return `value` if it is a number of zero or more; else raise ValueError. `name` and `unit` (what the number
    counts) are for the error's message; `endless`: infinity is accepted too.
    """
    what = f"a number of {unit}" if unit else "a number"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be {what}, not {value!r}")
    if not 0 <= value < math.inf and not (endless and value == math.inf):
        raise ValueError(f"{name} must be {what}, zero or more{'' if endless else ' and finite'}, not {value!r}")
    return value


def attempts(value: Any) -> int:
    """Return `value` if it is a valid number of attempts, including the first; else raise ValueError."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"max_attempts must be a whole number, not {value!r}")
    if value < 1:
        raise ValueError(f"max_attempts must be at least 1, not {value!r}: it counts the first attempt too")
    return value


def jitter(value: Any) -> Jitter:
    """Return `value` if it is the name of a jitter; else raise ValueError."""
    if value in _JITTERS:
        return value  # type: ignore[no-any-return]
    from difflib import get_close_matches  # imported here, since most callers mistype nothing

    near = get_close_matches(str(value).lower(), _JITTERS, 1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    raise ValueError(f"jitter must be one of {', '.join(_JITTERS)}, not {value!r}{hint}")


def function(name: str, value: Callable[..., Any] | None, what: str) -> Callable[..., Any] | None:
    """Return `value` if it is a function, or None for the default; else raise ValueError. `what` says, in the error's
    message, what the function has to return.
    """
    if value is None or callable(value):
        return value
    raise ValueError(f"{name} must be a function that gives {what}, not {value!r}")


def bucket(value: Any) -> BucketSpec | None:
    """Return `value` if it is the definition of a bucket for retries, or None for no bucket; else raise ValueError."""
    if value is None:
        return None
    if isinstance(value, RateSpec):
        raise ValueError("bucket can't be a RateSpec: it limits all attempts, and retries are not paid from it")
    if not isinstance(value, QuotaSpec | ThrottleSpec | BudgetSpec):
        kinds = "a QuotaSpec, a ThrottleSpec, a BudgetSpec"
        raise ValueError(f"bucket must be {kinds}, None for none or 'own' for the kind's own, not {value!r}")
    for field in fields(value):
        found = getattr(value, field.name)
        if field.name in ("store", "kind", "flat_refund", "apps") or (field.name == "initial" and found is None):
            continue
        number(f"{type(value).__name__}.{field.name}", found)
    if isinstance(value, BudgetSpec) and not value.window:
        raise ValueError("BudgetSpec.window must be longer than 0")
    if value.store != "memory":
        raise ValueError("only the proxy can use a bucket in Redis: store must be 'memory' here")
    return value
