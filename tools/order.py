"""Write tools/order.ld, which says in what order the linker puts the functions of compiled modules: first those that
calls run, then those that only limits, outages and cooldowns run, then those that the start runs, then the others.

Usage: python tools/order.py START CALLS WEATHER [BEFORE]

The arguments are outputs of `valgrind --tool=callgrind` of `redrive run`: of a start with one call, of a start with the
loads of `bench/run.py`, and of starts with the scenes of `bench/weather.py`, whose limits, outages and cooldowns run
what no other load does. Outputs of several processes may be put into one file, one after the other, and so may lines
`fn=(N) NAME` after a line `ob=(1) /_core.`, of functions that only a process without valgrind runs: `perf record -e
page-faults -c 1 -d` shows those that run outside of what is listed. valgrind knows
the names of functions only in the section `.text`, so the library has to be linked without an order for that: leave
`SECTIONS { } INSERT AFTER .text;` alone in tools/order.ld, and run
`make core`.

BEFORE is an earlier order. Functions that it lists for calls or for weather, and that ran in none of the profiles, stay
near: they are put behind those of the weather.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from textwrap import wrap

ORDER = Path(__file__).with_name("order.ld")

_TEXT = """\
/* The order of the functions in the library of all compiled modules (tools/one_library.py), written by tools/order.py:
   what runs together stands together. The kernel maps 64 KiB around each page that is run, so that a process held
   nearly all of the library while functions stood in the order of their modules (docs/decisions/0006-memory.md). GNU ld
   puts this behind the sections of its own script, which takes what is not listed here. A name that is gone, or a new
   one that is missing, costs some KiB. */
SECTIONS
{
  .text.calls :
  {
@calls@
    /* What the collection of garbage asks of each class, too. */
    *(.text.__pyx_tp_traverse_* .text.__pyx_tp_clear_*)
  }
  .text.weather :
  {
@weather@
  }
  .text.start :
  {
@start@
  }
  .text.seldom :
  {
    /* Cython's helpers, of which each module has its own, errors, and what only Python asks compiled code for. */
    *(.text.__Pyx_*)
    *(.text.unlikely.*)
    *(.text.__pyx_setprop_* .text.__pyx_getprop_* .text.__pyx_tp_*)
    *(.text.*_reduce_cython__ .text.*_setstate_cython__ .text.*___pyx_unpickle_*)
    *(.text.__pyx_pw_*)
  }
}
INSERT AFTER .text;
"""

#: The number that Cython puts before the name of a function that Python calls: another one if a method is added.
_ORDINAL = re.compile(r"(.*_)\d+([a-z_]\w*)")
_NAMED = re.compile(r"c?(fn|ob)=\((\d+)\)(?: (.*))?")
#: The most characters of names in a line of the script.
_WIDTH = 112


def functions_run(profile: Path) -> set[str]:
    """The names of the functions of the library of compiled modules that ran, in an output of callgrind. It gives each
    name once, with a number that stands for it from then on.
    """
    names: dict[tuple[str, str], str] = {}
    found, in_library = set(), False
    with profile.open() as lines:
        for line in lines:
            named = _NAMED.match(line)
            if named is None:
                continue
            kind, number, name = named.groups()
            if name is not None:
                names[kind, number] = name
            if line.startswith("ob="):
                in_library = "/_core." in names[kind, number]
            elif line.startswith("fn=") and in_library:
                found.add(names[kind, number].partition("'")[0])  # 'N: the depth of a recursion
    return {name for name in found if name.partition(".")[0].isidentifier()}  # else an address


def patterns(name: str) -> list[str]:
    """The sections that a function may be in, as the linker's script names them. The compiler takes much of what begins
    a module, and of Cython's helpers, for unlikely to run.
    """
    base, _, variant = name.partition(".")
    if base.startswith(("__pyx_pw_", "__pyx_pf_", "__pyx_gb_")):
        base = _ORDINAL.sub(r"\1*\2", base)
    if variant == "cold":  # what the compiler took for errors, of a function that stands elsewhere
        return [f".text.unlikely.{base}"]
    if variant:
        base += ".*"
    is_ours = base.startswith("__pyx_") and not base.startswith("__pyx_pymod_")
    return [f".text.{base}"] if is_ours else [f".text.{base}", f".text.unlikely.{base}"]


def sections_of(names: Iterable[str]) -> set[str]:
    """The sections that any of these functions may be in."""
    return {each for name in names for each in patterns(name)}


def listed(sections: Iterable[str]) -> str:
    """The lines of a list of functions' sections in the linker's script."""
    text = " ".join(sorted(sections))
    return "\n".join(f"    *({line})" for line in wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False))


def listed_before(script: Path) -> set[str]:
    """The sections that an earlier order lists for calls and for weather."""
    text = script.read_text().partition("  .text.start :")[0]
    found = re.findall(r"\.text\.(?:unlikely\.)?__[\w.*]+", text)
    return {each for each in found if not re.fullmatch(r"\.text\.__pyx_tp_\w*\*", each)}


def main() -> None:
    """Write the order."""
    profiles, before = sys.argv[1:4], sys.argv[4:]
    start, calls, weather = (sections_of(functions_run(Path(each))) for each in profiles)
    weather |= {each for script in before for each in listed_before(Path(script))}
    parts = {"@calls@": calls - start, "@weather@": weather - calls - start, "@start@": start}
    text = _TEXT
    for place, sections in parts.items():
        text = text.replace(place, listed(sections))
    ORDER.write_text(text)


if __name__ == "__main__":
    main()
