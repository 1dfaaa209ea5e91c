"""Setting members of a JSON object in its bytes; everything that is not set stays as it came, byte for byte.

`set_members` finds where the members of the outermost object begin and end in one pass over its bytes, and replaces old
values by new ones. Nothing is parsed and written again, so numbers, escapes, order and white space of everything else
are what the app sent. json's own parser checks the whole text against RFC 8259 first, strictly (no NaN, no Infinity). A
member that occurs several times is set each time, because readers do not agree on which of them counts (RFC 8259,
section 4).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

_SPACE = re.compile(rb"[ \t\n\r]*+").match
_STRING = re.compile(rb'"(?:[^"\\\x00-\x1f]++|\\.)*+"', re.DOTALL).match
#: The text of a value beside strings and brackets: numbers, true, false, null, commas, colons and white space.
_PLAIN = re.compile(rb'[^"\[\]{}]++').match
_SCALAR = re.compile(rb'[^",\[\]{} \t\n\r]++').match


class NoObjectError(ValueError):
    """Raised for a body that is not a JSON object. Its text is a clause for people that quotes nothing of the body."""


def set_members(body: bytes, members: Mapping[str, bytes]) -> bytes:
    """Return the object `body` with these members set to these values, each value a JSON text.

    A member that the object has keeps its place and the spelling of its name; a member that it lacks is added at the
    end, in the order of `members`. Raises NoObjectError if the body is not one whole JSON object in UTF-8 without a
    byte order mark.
    """
    _check(body)
    edits: list[tuple[int, int, bytes]] = []
    left = dict(members)
    at = _space(body, _space(body, 0) + 1)  # after the opening brace
    end, empty = at, True
    while body[at] != 0x7D:
        empty = False
        found = _STRING(body, at)
        assert found is not None  # `_check` has parsed the whole body
        name = json.loads(found[0])
        begin = _space(body, _space(body, found.end()) + 1)  # after the colon
        end = _value_end(body, begin)
        if name in members:
            edits.append((begin, end, members[name]))
            left.pop(name, None)
        at = _space(body, end)
        if body[at] == 0x2C:
            at = _space(body, at + 1)
    added = b", ".join(json.dumps(name).encode() + b": " + value for name, value in left.items())
    if added:
        edits.append((end, end, added if empty else b", " + added))
    parts: list[bytes] = []
    start = 0
    for begin, after, value in edits:
        parts += (body[start:begin], value)
        start = after
    return b"".join([*parts, body[start:]])


def _check(body: bytes) -> None:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise NoObjectError("the body is not UTF-8") from None
    if text.startswith("\ufeff"):
        raise NoObjectError("the body begins with a byte order mark")
    try:
        document = json.loads(text, parse_constant=_refuse, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        raise NoObjectError("the body is not JSON") from None
    if not isinstance(document, dict):
        raise NoObjectError("the body is JSON, but not an object")


def _refuse(word: str) -> None:
    raise ValueError(word)


def _space(body: bytes, at: int) -> int:
    """The offset after the white space that may begin at `at`."""
    found = _SPACE(body, at)
    assert found is not None  # the expression matches the empty string too
    return found.end()


def _value_end(body: bytes, at: int) -> int:
    """The offset at which the value that begins at `at` ends. The body has been checked to be JSON."""
    first = body[at]
    if first == 0x22:
        found = _STRING(body, at)
    elif first not in b"[{":
        found = _SCALAR(body, at)
    else:
        depth = 0
        while True:
            byte = body[at]
            if byte in b"[{":
                depth += 1
                at += 1
            elif byte in b"]}":
                depth -= 1
                at += 1
                if not depth:
                    return at
            else:
                found = _STRING(body, at) if byte == 0x22 else _PLAIN(body, at)
                assert found is not None
                at = found.end()
    assert found is not None
    return found.end()
