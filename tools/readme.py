"""README.md for a package index, where no link may be relative: `python tools/readme.py` prints it.

setup.py makes it the package's long description. Links lead to the repository at the tag of this version, pictures to
the file itself there. The address of the repository is `source` in pyproject.toml.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: What opens a picture's target, or a link's, and the target.
LINK = re.compile(r"(!\[[^\]]*\]\(|\]\()([^)\s]+)(?=\))")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//|#")


def source() -> str:
    """The address of the repository."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["source"])


def version() -> str:
    """The version, from where it stands."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "proxy/__init__.py").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def absolute(markdown: str, repository: str, tag: str) -> str:
    """Markdown of the repository's root whose relative links and pictures lead into `repository` at `tag`. Code blocks
    and links that lead elsewhere are kept.
    """

    def bend(found: re.Match[str]) -> str:
        opening, target = found.groups()
        if ELSEWHERE.match(target):
            return found[0]
        view = "raw" if opening.startswith("!") else "tree" if is_folder(target) else "blob"
        return f"{opening}{repository}/{view}/{tag}/{target}"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(bend, part) for part in parts)


def is_folder(target: str) -> bool:
    """Whether a link leads to a folder of the repository."""
    return (ROOT / target.partition("#")[0]).is_dir()


def long_description() -> str:
    """README.md as a package index needs it."""
    return absolute((ROOT / "README.md").read_text(), source(), f"v{version()}")


if __name__ == "__main__":
    print(long_description(), end="")
