"""The run-time requirements that pyproject.toml names, one a line: `python tools/requirements.py EXTRA,EXTRA`.

For a build that installs dependencies ahead of the code, and for checks of what a bare installation holds.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"


def requirements(extras: list[str]) -> list[str]:
    """What is needed to run, with these extras. KeyError for an extra that there is not."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(line for extra in extras for line in optional[extra])]


if __name__ == "__main__":
    print("\n".join(requirements([extra for extra in ",".join(sys.argv[1:]).split(",") if extra])))
