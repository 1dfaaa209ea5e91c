"""Whether what was compiled in a checkout is older than its source: such a process runs code that no file shows, and
fails where the two do not fit together.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

#: Suffixes of the sources of a compiled module.
_SOURCES = (".py", ".pyx", ".pxd")
#: Modules that the warning names; of the others it says how many there are.
_NAMED = 3


def warning() -> str:
    """Return one line that names the compiled modules that are older than their source, and says how to mend that; ""
    if there are none, if nothing compiled is used, and in an installed package, of which only one file is looked for.
    """
    package = Path(__file__).parent
    if not (package.parent / "setup.py").exists():
        return ""
    names = sorted(set(_stale(package)))
    if not names:
        return ""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"the compiled core is older than its source ({', '.join(names[:_NAMED])}{more}): run `make core`"


def _stale(package: Path) -> Iterator[str]:
    """The names of the compiled modules of a checkout that are older than their source, and of `.pxd` files newer than
    all that is built which are no module's: others have what stands in these inlined.
    """
    if "proxy.source_alone" in sys.modules:
        return
    newest, files = 0.0, _files(package)
    for name, built in _built(package, files):
        source, time = package.parent / name.replace(".", "/"), _time(built)
        newest = max(newest, time)
        if any(_time(source.with_suffix(suffix)) > time for suffix in _SOURCES):
            yield name
    for file in files:
        if file.suffix != ".pxd" or file.with_suffix(".py").exists() or file.with_suffix(".pyx").exists():
            continue
        if 0 < newest < _time(file):
            yield str(file.relative_to(package.parent).with_suffix("")).replace("/", ".")


def _files(package: Path) -> list[Path]:
    """The package's libraries, and the types of its compiled modules."""
    walked = os.walk(package)
    return [Path(folder, name) for folder, _, names in walked for name in names if name.endswith((".so", ".pxd"))]


def _built(package: Path, files: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """Each compiled module, and the file that has its code: the library's, and those that an earlier release has built
    each into a file of its own, which are imported unless the library has them. `files`: as `_files` finds them.
    """
    try:
        from proxy.compiled_modules import FILE, NAMES
    except ImportError:
        names: frozenset[str] = frozenset()
    else:
        names = NAMES
        for name in names:
            yield name, Path(FILE)
    for file in (file for file in files if file.suffix == ".so"):
        path = file.relative_to(package.parent).with_name(file.name.partition(".")[0])
        name = str(path).replace("/", ".")
        if name not in names:
            yield name, file


def _time(file: Path) -> float:
    """The time at which a file was changed last; 0 if there is none."""
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0
