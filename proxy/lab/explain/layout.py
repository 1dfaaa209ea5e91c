"""The layout of an explanation for people: aligned columns, and the list of values at the end. Plain text; secrets are
masked.

A terminal gets lines that fit it, a pipe gets whole lines, so that they can be searched.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from proxy.config.provenance import EffectiveValue
from proxy.observe import masking

Row = Sequence[str]

#: Columns of a terminal that an explanation is laid out for.
_WIDTH = 80
#: The fewest columns that a value gets, however wide the text beside it is.
_NARROWEST = 24


def columns(rows: Iterable[Row]) -> Iterator[str]:
    """Rows of cells as lines of text, each column as wide as its widest cell."""
    table = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield ("  " + "  ".join(cells)).rstrip()


def ends_table(rows: Sequence[Row], width: int | None) -> Iterator[str]:
    """The table of a call's ends, from the rows of `End.as_row`. If it is wider than `width` columns (None is any
    number), each end has two lines instead, because a table whose lines are broken can't be read.
    """
    table = list(columns([("", "class", "attempts", "outcome", "waits, or why not"), *rows]))
    if width is None or max(map(len, table)) <= width:
        yield from table
        return
    for label, cls, attempts, outcome, why in rows:
        times = f"{attempts} attempt{'' if attempts == '1' else 's'}"
        yield f"  {label}: {cls}"
        yield f"    {times}, {outcome}{': ' if why else ''}{why}"


def masked(found: Sequence[EffectiveValue]) -> list[tuple[str, str, str]]:
    """The effective values of the configuration, each as its key, the value with secrets masked, and the place in a
    file.
    """
    return [(each.path, masking.place(each.path, each.plain, argument=each.argument), str(each.mark)) for each in found]


def origins(rows: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """Lines that list effective values of the configuration, from `rows` of a key, its value and the place (file and
    line) that says so. A long value takes several lines, so that it does not push the places of the others out of
    sight.
    """
    room = max(_NARROWEST, _WIDTH - 6 - sum(max(len(row[place]) for row in rows) for place in (0, 2)))
    folded: list[Row] = []
    for path, value, mark in rows:
        first, *rest = textwrap.wrap(value, room, break_on_hyphens=False) or [""]
        folded += [(path, first, mark), *(("", more, "") for more in rest)]
    yield from columns(folded)


def fit(line: str, width: int | None) -> Iterator[str]:
    """The pieces of a line of aligned columns that fit the `width` of a terminal, broken between words (None is any
    width); later pieces are indented to where the line's last column begins.
    """
    if width is None or len(line) <= width:
        yield line
        return
    gaps = [gap.end() for gap in re.finditer(r"^ *|  +", line) if gap.end() <= 3 * width // 4]
    hanging = gaps[-1] if gaps[1:] else len(line) - len(line.lstrip()) + 2
    yield from textwrap.wrap(
        line,
        max(width, 2 * _NARROWEST),
        subsequent_indent=" " * hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
