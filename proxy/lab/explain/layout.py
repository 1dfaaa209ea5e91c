"""Lines for people: aligned columns, and the lists at an explanation's end.

Law: plain text, the same on every terminal; secrets are masked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from proxy.config.problem import Problem
from proxy.config.provenance import Origin
from proxy.observe import mask

Row = Sequence[str]


def columns(rows: Iterable[Row], *, indent: str = "  ") -> Iterator[str]:
    """Rows as lines, each column as wide as its widest cell."""
    table = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield (indent + "  ".join(cells)).rstrip()


def origins(found: Sequence[Origin]) -> Iterator[str]:
    """Every effective value, with the file and line that says so."""
    yield "Where each value comes from:"
    yield ""
    yield from columns((each.path, _masked(each), str(each.mark)) for each in found)


def _masked(origin: Origin) -> str:
    parts = origin.path.split(".")
    if origin.path.startswith("headers.") and "set" in parts[:3] and len(parts) > 3:
        return mask.MASK
    return mask.MASK if mask.secret_name(parts[-1]) and origin.value else mask.url(origin.value)


def advice(problems: Sequence[Problem]) -> Iterator[str]:
    """Settings without effect."""
    yield "Worth knowing:"
    yield ""
    for problem in problems:
        yield f"  {problem}"
