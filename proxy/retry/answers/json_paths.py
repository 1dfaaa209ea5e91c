"""Values in a JSON document: a decoder, and a search by paths. In a path, "*" stands for each item of a list, and
"*[type=a]" for each item that is an object whose member `type` is the string `a`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from proxy.retry.policies.bucket_specs import JsonPath

#: A decoder that leaves numbers as the texts by which JSON writes them.
AS_WRITTEN: Final = json.JSONDecoder(parse_int=str, parse_float=str)


def values_at(document: Any, path: JsonPath) -> Iterator[Any]:
    """Every value of the document at the path."""
    if not path:
        yield document
        return
    name, rest = path[0], path[1:]
    if name.startswith("*"):
        member, _, value = name[2:-1].partition("=")
        for item in document if isinstance(document, list) else ():
            if not member or (isinstance(item, dict) and item.get(member) == value):
                yield from values_at(item, rest)
    elif isinstance(document, dict) and name in document:
        yield from values_at(document[name], rest)


def whole_number(value: Any) -> int | None:
    """The value if it is a whole number that is not negative, otherwise None; True and False are not numbers in
    JSON.
    """
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
