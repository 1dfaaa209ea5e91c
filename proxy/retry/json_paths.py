"""Values in a JSON document by their paths, in which "*" stands for each item of a list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proxy.retry.bucket_specs import JsonPath


def values_at(document: Any, path: JsonPath) -> Iterator[Any]:
    """Every value of the document at the path."""
    if not path:
        yield document
        return
    name, rest = path[0], path[1:]
    if name == "*":
        if isinstance(document, list):
            for item in document:
                yield from values_at(item, rest)
    elif isinstance(document, dict) and name in document:
        yield from values_at(document[name], rest)


def whole_number(value: Any) -> int | None:
    """The value if it is a whole number that is not negative, else None; True and False are no numbers in JSON."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
