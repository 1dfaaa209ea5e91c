"""Whether what would be released can be released: `make release-check`.

Builds the source distribution twice, which must give the same bytes, looks at what it holds and says of itself, and
installs from it: on every Python that can be found, compiled and without a compiler, by pip, pipx and uv
(`release_installs.py`). `--pythons 3.11,3.13` takes fewer.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import readme
import readme_renderer.markdown as renderer
import release_notes
from release_installs import Installs, run, say

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
VERSION = readme.version()
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
#: What a source distribution has beside the checkout: written by setuptools, and the examples where their link leads.
MADE = re.compile(r"(PKG-INFO|setup\.cfg|redrive\.egg-info/.+|proxy/examples/.+)$")


def said() -> None:
    """What the project says of itself agrees."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert f"## {VERSION}" in changelog or "## Unreleased" in changelog, "CHANGELOG.md has nothing on this version"
    release_notes.notes(changelog, "Unreleased" if "## Unreleased" in changelog else VERSION)
    run(sys.executable, ROOT / "tools/third_party.py", "--check")
    run(sys.executable, ROOT / "tools/lock.py", "--check", stderr=subprocess.DEVNULL)
    say(f"version {VERSION}; THIRD_PARTY.md and the locks are current")


def source_distribution(folder: Path) -> Path:
    """The source distribution, which comes out the same when it is made again."""
    when = run("git", "-C", ROOT, "log", "-1", "--format=%ct").strip()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": when}
    made = []
    for out in (DIST, folder / "again"):
        run(sys.executable, "-m", "build", "--sdist", "--outdir", out, ROOT, env=environment, stderr=subprocess.DEVNULL)
        made.append(out / f"redrive-{VERSION}.tar.gz")
    first, second = (hashlib.sha256(each.read_bytes()).hexdigest() for each in made)
    assert first == second, "the source distribution is another each time it is made"
    size = made[0].stat().st_size / 1000
    say(f"{made[0].name} ({size:.0f} kB) is the same each time it is made: sha256 {first[:16]}…")
    return made[0]


def look_into_source(sdist: Path) -> None:
    """The source distribution is the checkout: nothing of it is missing, and nothing else is there."""
    with tarfile.open(sdist) as archive:
        inside = {member.name.partition("/")[2] for member in archive.getmembers() if not member.isdir()}
        metadata = archive.extractfile(f"redrive-{VERSION}/PKG-INFO")
        assert metadata is not None
        look_at_metadata(Parser().parse(io.TextIOWrapper(metadata)))
    checkout = {name for name in run("git", "-C", ROOT, "ls-files").splitlines() if not (ROOT / name).is_dir()}
    assert not checkout - inside, f"not in the source distribution: {sorted(checkout - inside)[:5]}"
    stray = sorted(name for name in inside - checkout if not MADE.match(name))
    assert not stray, f"in the source distribution, but not in the repository: {stray[:5]}"
    for suffix in (".pyx", ".pxd"):
        assert any(name.endswith(suffix) for name in inside), f"no {suffix} in the source distribution"
    say(f"it holds the {len(checkout)} files of the repository, and nothing else")


def look_at_metadata(said: Message) -> None:
    """What a package index shows."""
    assert said["License-Expression"] == "Apache-2.0" and said["Description-Content-Type"] == "text/markdown"
    versions = {each.rpartition(" ")[2] for each in said.get_all("Classifier", []) if "Python :: 3." in each}
    assert versions == set(PYTHONS), f"classifiers name {sorted(versions)}"
    urls = dict(line.split(", ", 1) for line in said.get_all("Project-URL", []))
    assert urls["source"] == readme.source()
    text = str(said.get_payload())
    page = renderer.render(text)
    assert page is not None, "the readme can't be shown"
    relative = re.findall(r'(?:href|src)="(?!https?:|#|mailto:)([^"]*)"', page)
    assert not relative, f"links of the readme lead nowhere on a package index: {relative}"
    assert re.search(r'<img [^>]*src="https://', page), "the readme has no picture"
    say(f"the readme is shown with its picture, and its {len(re.findall('href=', page))} links are absolute")


def look_into_wheel(wheel: Path, *, compiled: bool) -> None:
    """What a wheel holds, and what it does not."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    roots = {name.split("/")[0] for name in names}
    assert roots == {"proxy", f"redrive-{VERSION}.dist-info"}, roots
    tracked = {Path(line) for line in run("git", "-C", ROOT, "ls-files", "proxy").splitlines()}
    tracked |= {path.relative_to(ROOT) for path in (ROOT / "proxy/examples").rglob("*")}
    shipped = [path for path in tracked if (ROOT / path).is_file() and path.suffix not in (".pyx", ".pxd")]
    left_out = set(map(str, shipped)) - names
    assert not left_out, f"not in the wheel: {sorted(left_out)}"
    assert any(name.endswith("licenses/LICENSE") for name in names)
    libraries = {name.partition(".")[0] for name in names if name.endswith(".so")}
    assert libraries == ({"proxy/_core"} if compiled else set()), f"compiled is {sorted(libraries)}"


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythons", default=",".join(PYTHONS), metavar="3.11,…", help="the Pythons to try")
    wanted = parser.parse_args().pythons.split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" in project["dynamic"], "the version stands in proxy/__init__.py alone"
    said()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sdist = source_distribution(folder)
        look_into_source(sdist)
        installs = Installs(sdist, VERSION, folder, look_into_wheel)
        for version in wanted:
            installs.on_python(version)
        installs.by_pipx()
        installs.by_uv()
    print(f"redrive {VERSION} can be released")


if __name__ == "__main__":
    main()
