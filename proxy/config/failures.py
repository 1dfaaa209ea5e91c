"""How failures are named: HTTP statuses and ranges of them, gRPC statuses, fault kinds.

Law: as in units.py: each reader takes a scalar's text and returns a value, or raises ValueError with what would be
right.
"""

from __future__ import annotations

import re
from typing import Any

from proxy.config.problems import meant
from proxy.config.units import scalar, written
from proxy.retry.facts import GRPC_STATUS_NUMBERS, FaultKind

#: What one word names.
Failures = frozenset[int | str | FaultKind]
_FAULTS = frozenset(kind.value for kind in FaultKind)


def failure(value: Any) -> Failures:
    """What one word of a list names: an HTTP status, 5xx, 520-527, a gRPC status, a fault kind."""
    found = scalar(value, "an HTTP status, a range such as 5xx or 520-527, a gRPC status or a fault kind")
    if re.fullmatch(r"[1-5]\d\d", found):
        return frozenset({int(found)})
    if re.fullmatch(r"[1-5][xX][xX]", found):
        return frozenset(range(int(found[0]) * 100, int(found[0]) * 100 + 100))
    if match := re.fullmatch(r"([1-5]\d\d)\s?-\s?([1-5]\d\d)", found):
        low, high = int(match[1]), int(match[2])
        if low > high:
            raise ValueError(f"{written(value)} runs backwards (did you mean {high}-{low}?)")
        return frozenset(range(low, high + 1))
    if found == "OK":
        raise ValueError("OK is no failure")
    if found in GRPC_STATUS_NUMBERS:
        return frozenset({str(found)})
    if found in _FAULTS:
        return frozenset({FaultKind(found)})
    hint = meant(found, [*_FAULTS, *GRPC_STATUS_NUMBERS], "write it as 503, 5xx, 520-527, UNAVAILABLE or reset")
    raise ValueError(f"{written(value)} is neither an HTTP status, nor a gRPC status, nor a fault kind{hint}")


def status(value: Any) -> Failures:
    """HTTP statuses alone: 400, 5xx, 520-527."""
    found = failure(value)
    if not all(isinstance(each, int) for each in found):
        raise ValueError(f"{written(value)} is no HTTP status (grpc_status and fail name the others)")
    return found


def grpc_status(value: Any) -> Failures:
    """gRPC status names alone."""
    found = frozenset({"OK"}) if value == "OK" else failure(value)
    if not all(isinstance(each, str) and each in GRPC_STATUS_NUMBERS for each in found):
        raise ValueError(f"{written(value)} is no gRPC status such as UNAVAILABLE")
    return found


def fault(value: Any) -> Failures:
    """Fault kinds alone."""
    found = failure(value)
    if not all(isinstance(each, FaultKind) for each in found):
        raise ValueError(f"{written(value)} is no fault kind; they are {', '.join(sorted(_FAULTS))}")
    return found
