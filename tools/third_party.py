"""What redrive is installed together with, and under which licences: THIRD_PARTY.md.

    python tools/third_party.py            print the page
    python tools/third_party.py --write    write it
    python tools/third_party.py --check    fail where it is not current
    python tools/third_party.py --texts    print every licence text, for who hands out an image

Law: what installed packages say of themselves, from pyproject.toml's run-time requirements down. Versions are
constraints.txt's, and not repeated here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from requirements import requirements

PAGE = Path(__file__).parent.parent / "THIRD_PARTY.md"
EXTRAS = ("", "intercept", "redis", "otel")
#: One answer for everybody's markers: the oldest Python, on Linux.
SURROUNDINGS = {
    "python_version": "3.11",
    "python_full_version": "3.11.9",
    "platform_system": "Linux",
    "sys_platform": "linux",
    "os_name": "posix",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}
HEAD = """\
# Third-party software

redrive contains no third-party code. What `pip install .` installs with it, and what a container image made of
the `Dockerfile` therefore contains, is listed here by `tools/third_party.py`; versions are those of `constraints.txt`.
Each package carries its licence text (`*.dist-info`, in an image too); `python tools/third_party.py --texts` prints
them all.

| package | needed by | licence | home |
| --- | --- | --- | --- |
"""


def needed(extra: str) -> dict[str, Distribution]:
    """All that an extra pulls in, by name."""
    wanted = [Requirement(line) for line in requirements([extra] if extra else [])]
    found: dict[str, Distribution] = {}
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        known = name in found
        found[name] = package = distribution(name)
        for line in package.requires or ():
            below = Requirement(line)
            if known and not requirement.extras:
                continue
            extras = requirement.extras or {""}
            if below.marker is None or any(below.marker.evaluate({**SURROUNDINGS, "extra": each}) for each in extras):
                wanted.append(below)
    return found


def licence(package: Distribution) -> str:
    """Its licence, by the newest way in which it may be said."""
    said = package.metadata
    if expression := said.get("License-Expression"):
        return expression
    classifiers = [
        each.rpartition(" :: ")[2] for each in said.get_all("Classifier") or () if each.startswith("License")
    ]
    return (
        ", ".join(each for each in classifiers if each != "OSI Approved") or (said.get("License") or "?").split("\n")[0]
    )


def home(package: Distribution) -> str:
    """Where it lives."""
    links = dict(line.split(", ", 1) for line in package.metadata.get_all("Project-URL") or ())
    known = {name.lower(): url for name, url in links.items()}
    for name in ("homepage", "home", "source", "repository", "source code", "github"):
        if name in known:
            return known[name]
    return package.metadata.get("Home-page") or next(iter(links.values()), "")


def page() -> str:
    """THIRD_PARTY.md."""
    rows: dict[str, tuple[str, Distribution]] = {}
    for extra in EXTRAS:
        for name, package in sorted(needed(extra).items()) if known(extra) else ():
            rows.setdefault(name, (f"`{extra}`" if extra else "redrive", package))
    return HEAD + "".join(
        f"| {name} | {by} | {licence(package)} | <{home(package)}> |\n" for name, (by, package) in rows.items()
    )


def known(extra: str) -> bool:
    """Whether pyproject.toml has this extra."""
    try:
        requirements([extra] if extra else [])
    except KeyError:
        return False
    return True


def texts() -> Iterator[str]:
    """Every licence file of every package."""
    every = {name: package for extra in EXTRAS if known(extra) for name, package in needed(extra).items()}
    for name, package in sorted(every.items()):
        for file in package.files or ():
            if ".dist-info" in str(file) and file.name.upper().startswith(("LICEN", "COPYING", "NOTICE", "AUTHORS")):
                yield f"{'=' * 80}\n{name} {package.version}: {file.name}\n{'=' * 80}\n\n{file.read_text()}\n"


def main() -> int:
    """The command line."""
    asked = sys.argv[1] if len(sys.argv) > 1 else ""
    if asked == "--texts":
        print("\n".join(texts()))
    elif asked == "--write":
        PAGE.write_text(page())
    elif asked == "--check":
        if not PAGE.exists() or PAGE.read_text() != page():
            print("THIRD_PARTY.md is not current: make third-party", file=sys.stderr)
            return 1
    else:
        print(page(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
