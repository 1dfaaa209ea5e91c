"""Every module with its subject, room by room, as the modules say it themselves: docs/modules.md.

python tools/modules.py            print the list
python tools/modules.py --write    write it where it stands
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "modules.md"
#: What comes after this line is written by this tool.
MARK = "<!-- From here on: python tools/modules.py --write -->\n"


def subject(file: Path) -> str:
    """The first paragraph's first sentence of a module's docstring, as a cell of a table."""
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    first = " ".join(text.partition("\n\n")[0].split("\n"))
    return first.replace("|", "\\|").removesuffix(".")


def packages(folder: Path) -> Iterator[Path]:
    """A package and those below it, in the order of their names."""
    yield folder
    for below in sorted(each.parent for each in folder.glob("*/__init__.py")):
        yield from packages(below)


def listing() -> str:
    """A heading and a table for each package."""
    text = ""
    for package in packages(ROOT / "proxy"):
        modules = [each for each in sorted(package.glob("*.py")) if each.name != "__init__.py"]
        about = subject(package / "__init__.py")
        text += f"\n## {package.relative_to(ROOT)}/\n\n{about}.\n"
        if modules:
            text += "\n| module | subject |\n| --- | --- |\n"
            text += "".join(f"| `{each.stem}` | {subject(each)} |\n" for each in modules)
    return text


def page() -> str:
    """docs/modules.md as it should be."""
    by_hand, mark, _ = PAGE.read_text().partition(MARK)
    return by_hand + mark + listing()


def main() -> int:
    """The command line."""
    if "--write" in sys.argv:
        PAGE.write_text(page())
    else:
        sys.stdout.write(listing())
    return 0


if __name__ == "__main__":
    sys.exit(main())
