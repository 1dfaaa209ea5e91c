"""Globs of hosts and paths as regular expressions that match in linear time, whatever the text.

The literal text between two wildcards is matched where it occurs first, because a later occurrence never leads to a
match that the first one misses. So the expressions never go back to try another occurrence: each repetition is
possessive or in an atomic group, which keeps its first match. Paths are matched one segment at a time. If a segment
does not contain a text, the search for it is not begun again at each of the segment's characters.
"""

from __future__ import annotations

import re
from functools import lru_cache

#: The characters that `*` in a path takes.
_SEGMENT = "[^/]"


@lru_cache(maxsize=4096)
def host_glob(glob: str) -> re.Pattern[str]:
    """The regular expression, for `fullmatch`, of a host glob: `*` matches any characters, and every other character
    matches itself.
    """
    return re.compile(_run(glob.split("*"), ".", "\\Z"), re.DOTALL)


def matches_path(glob: str, path: str) -> bool:
    """Whether a path glob (see `path_glob`) matches a path. Most globs are a literal, or a literal followed by `**`;
    these are compared without a regular expression, which would have to be compiled first.
    """
    star = glob.find("*")
    if star < 0:
        return path == glob
    if star == len(glob) - 2 and glob.endswith("**"):
        return path.startswith(glob[:star])
    return path_glob(glob).fullmatch(path) is not None


@lru_cache(maxsize=4096)
def path_glob(glob: str, within: str = _SEGMENT) -> re.Pattern[str]:
    """The regular expression, for `fullmatch`, of a path glob: `*` matches any characters within one segment, `**` any
    characters across segments. `within`: the character class that a `*` matches; `routing.shadows` narrows it to find
    which globs cover others.
    """
    first, *others = glob.split("**")
    expression = _beginning(first.split("/"), within, "" if others else "\\Z")
    for number, part in enumerate(others, 1):
        if part:
            end = "\\Z" if number == len(others) else ""
            expression += _anywhere(part.split("/"), within, end)
        elif number == len(others):
            expression += ".*+"
    return re.compile(expression, re.DOTALL)


def _beginning(segments: list[str], within: str, end: str) -> str:
    """The regular expression for consecutive segments of a glob, which must match from the position reached in the
    path. `within`: the character class that a `*` matches. `end`: the expression that follows the last segment.
    """
    ends = ["/"] * (len(segments) - 1) + [end]
    return "".join(_run(each.split("*"), within, stop) for each, stop in zip(segments, ends, strict=True))


def _anywhere(segments: list[str], within: str, end: str) -> str:
    """The regular expression for the segments of a glob that follow a `**`. They may begin at this or any later segment
    of the path, and match at the earliest place where they fit. `within`: the character class that a `*` matches.
    `end`: the expression that follows the last segment.
    """
    first, *rest = segments
    skipped = f"(?:{_SEGMENT}*+/)*?"
    found = _run(["", *first.split("*")], within, "/" if rest else end, leading=_SEGMENT)
    return f"(?>{skipped}{found}{_beginning(rest, within, end) if rest else ''})"


def _run(texts: list[str], taken: str, end: str, leading: str = "") -> str:
    """The regular expression for a part of a glob. `texts`: the literal texts between the part's wildcards; each
    wildcard becomes a repetition of the character class `taken`. `leading`: the class for the first wildcard, "" if it
    is `taken`. `end`: the expression that follows the last text. If `end` is empty, the match is the shortest.
    """
    first, *others = texts
    if not others:
        return re.escape(first) + end
    classes = [leading or taken] + [taken] * (len(others) - 1)
    expression = re.escape(first)
    for each, text in zip(classes[:-1], others[:-1], strict=True):
        expression += f"(?>{each}*?{re.escape(text)})" if text or each != taken else ""
    last, text = classes[-1], re.escape(others[-1])
    if not end:
        return expression + f"(?>{last}*?{text})"
    return expression + (f"(?>{last}*{text}{end})" if text else f"{last}*+{end}")
