"""The locks of the image: deploy/image/locks, each package with its version and the hashes of its files.

    python tools/lock.py            write them (needs uv)
    python tools/lock.py --check    fail where they are not what constraints.txt and pyproject.toml say; needs no uv

A lock for what serving needs, one for each extra, and one for what builds the package; each is whole, so that the
Dockerfile takes those that it is asked for. Versions are those of constraints.txt; the hashes are of every file of that
version, for all platforms. pip refuses any other file (`--require-hashes`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from requirements import requirements

ROOT = Path(__file__).parent.parent
LOCKS = ROOT / "deploy/image/locks"
EXTRAS = ("intercept", "redis", "otel")
HEAD = "# Written by tools/lock.py (make lock) from pyproject.toml and constraints.txt; not edited by hand.\n"
ENTRY = re.compile(
    r"^(?P<name>[\w.-]+)==(?P<version>\S+)(?: ; (?P<marker>[^\\]+?))?(?P<hashes>(?: \\\n +--hash=\S+)+)$", re.M
)


def wanted() -> dict[str, list[str]]:
    """The locks by name, and what each is resolved from."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = {extra: project["project"]["optional-dependencies"][extra] for extra in EXTRAS}
    return {"serve": requirements([]), **extras, "build": project["build-system"]["requires"]}


def constraints() -> dict[str, str]:
    """The versions of constraints.txt, by canonical name."""
    lines = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    return {canonicalize_name(each.name): str(each.specifier).removeprefix("==") for each in lines}


def resolve(lines: list[str]) -> str:
    """A lock of these requirements: for Python 3.11 and newer, on every platform."""
    uv = shutil.which("uv")
    if uv is None:
        sys.exit("tools/lock.py needs uv to write the locks (pipx install uv)")
    with tempfile.TemporaryDirectory() as temporary:
        asked = Path(temporary) / "in.txt"
        asked.write_text("\n".join(lines) + "\n")
        # The hashes are those of the index: files that lie about on this machine are not asked.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_"))}
        compile_ = ("pip", "compile", "-q", "--universal", "--python-version", "3.11", "--generate-hashes")
        plain = ("--no-header", "--no-annotate", "--no-config", "-c", str(ROOT / "constraints.txt"), str(asked))
        done = subprocess.run([uv, *compile_, *plain], stdout=subprocess.PIPE, text=True, env=environment, check=False)
    return HEAD + done.stdout if not done.returncode else sys.exit("uv could not resolve them, and above is why")


def problems() -> list[str]:
    """What of the locks is not what pyproject.toml and constraints.txt say; a line each."""
    found = []
    versions = constraints()
    for name, lines in wanted().items():
        file = LOCKS / f"{name}.txt"
        text = file.read_text() if file.exists() else ""
        entries = {canonicalize_name(each["name"]): each for each in ENTRY.finditer(text)}
        left = ENTRY.sub("", text.removeprefix(HEAD)).strip()
        if left or not entries:
            found.append(f"{file.relative_to(ROOT)}: {left.splitlines()[0] if left else 'is not there'}")
        for each in entries.values():
            locked = versions.get(canonicalize_name(each["name"]))
            if locked != each["version"]:
                found.append(f"{name}: {each['name']} is {each['version']}, in constraints.txt {locked}")
            if not re.fullmatch(r"(?: \\\n +--hash=sha256:[0-9a-f]{64})+", each["hashes"]):
                found.append(f"{name}: {each['name']} has a hash that is no SHA-256")
        for line in map(Requirement, lines):
            entry = entries.get(canonicalize_name(line.name))
            if entry is None or not line.specifier.contains(entry["version"]):
                found.append(f"{name}: {line} of pyproject.toml is not met")
    return found


def main() -> int:
    """The command line."""
    if sys.argv[1:] != ["--check"]:
        LOCKS.mkdir(exist_ok=True)
        for name, lines in wanted().items():
            (LOCKS / f"{name}.txt").write_text(resolve(lines))
    wrong = problems()
    print(
        "\n".join([*wrong, "the locks are not current: make lock"]) if wrong else "the locks are current",
        file=sys.stderr,
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
