"""Globs of hosts and paths as regular expressions that match in linear time, whatever text they are matched against.

Between two wildcards the leftmost place at which a text fits is never worse than a later one, so no other is tried:
every run is possessive, or in an atomic group, which keeps its first match. A path is matched segment by segment for
the same reason: a text that is not in a segment is not searched for from each of the segment's characters.
"""

from __future__ import annotations

import re
from functools import lru_cache

#: The characters that `*` in a path takes.
_SEGMENT = "[^/]"


@lru_cache(maxsize=4096)
def host_glob(glob: str) -> re.Pattern[str]:
    """The regular expression, for `fullmatch`, of a host glob: `*` matches any characters, every other character
    itself.
    """
    return re.compile(_run(glob.split("*"), ".", "\\Z"), re.DOTALL)


@lru_cache(maxsize=4096)
def path_glob(glob: str, within: str = _SEGMENT) -> re.Pattern[str]:
    """The regular expression, for `fullmatch`, of a path glob: `*` matches any characters of one segment, `**` those of
    several. `within` is the character class that a `*` matches; `routing.shadows` narrows it to find which globs cover
    others.
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
    """The regular expression of consecutive segments of a glob, which begin at the present place in the path; `within`
    is the character class that a `*` matches; `end` is the expression that follows the last one.
    """
    ends = ["/"] * (len(segments) - 1) + [end]
    return "".join(_run(each.split("*"), within, stop) for each, stop in zip(segments, ends, strict=True))


def _anywhere(segments: list[str], within: str, end: str) -> str:
    """The regular expression of consecutive segments of a glob (those after a `**`), which may begin at this or any
    later segment of the path: the earliest place where they fit. `within` is the character class that a `*` matches;
    `end` is the expression that follows the last segment.
    """
    first, *rest = segments
    skipped = f"(?:{_SEGMENT}*+/)*?"
    found = _run(["", *first.split("*")], within, "/" if rest else end, leading=_SEGMENT)
    return f"(?>{skipped}{found}{_beginning(rest, within, end) if rest else ''})"


def _run(texts: list[str], taken: str, end: str, leading: str = "") -> str:
    """The regular expression of the literal `texts` between the wildcards of a glob, each two with a run of the
    character class `taken` between them, and `end` after the last. `leading` is the class of the first run, if it is
    another than `taken`. If `end` is empty, the match is the shortest.
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
