"""The notes of a release, from CHANGELOG.md: `python tools/release_notes.py TAG` prints them.

Exit status 1, with a line that says why, where the tag is not `v` and the version of proxy/__init__.py, or CHANGELOG.md
has no section of that version, or an empty one: the release workflow asks before it builds anything.
"""

from __future__ import annotations

import re
import sys

import readme

CHANGELOG = readme.ROOT / "CHANGELOG.md"


class NoNotesError(Exception):
    """There is nothing to release under this name; the text says why."""


def notes(changelog: str, version: str) -> str:
    """The section of a version, without its heading. NoNotesError where there is none, or nothing in it."""
    sections = re.split(r"^## (.+)$", changelog, flags=re.MULTILINE)[1:]
    for heading, text in zip(sections[::2], sections[1::2], strict=True):
        if heading.split(" ")[0].strip("[]") == version:
            if not re.search(r"^- ", text, re.MULTILINE):
                raise NoNotesError(f"CHANGELOG.md: the section {version} is empty")
            return text.strip() + "\n"
    raise NoNotesError(f"CHANGELOG.md has no section {version}: rename Unreleased to {version} - YYYY-MM-DD")


def notes_for(tag: str) -> str:
    """The notes of the release of this tag, with absolute links. NoNotesError where it can't be released."""
    version = readme.version()
    if tag != f"v{version}":
        raise NoNotesError(f"the tag is {tag}, but proxy/__init__.py says {version}: the tag should be v{version}")
    return readme.absolute(notes(CHANGELOG.read_text(), version), readme.source(), tag)


def main() -> int:
    """The command line."""
    if len(sys.argv) != 2:
        print("usage: release_notes.py TAG", file=sys.stderr)
        return 2
    try:
        print(notes_for(sys.argv[1]), end="")
    except NoNotesError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
