"""Files of releases still load, and mean what they meant (docs/guides/upgrading.md)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from proxy.config.load import load
from proxy.lab.policy_tests import load_suite, run_suite

sys.path.append(str(Path(__file__).parents[2] / "tools"))

from config_releases import ENVIRON, RELEASES, effective, recorded

FOLDERS = sorted(each for each in RELEASES.iterdir() if each.is_dir())
FILES = [file for folder in FOLDERS for file in sorted(folder.glob("*.yaml"))]
SUITES = [file for folder in FOLDERS for file in sorted(folder.glob("tests/*.yaml"))]


#: The present default in place of each that has changed, by the key and its default before.
CHANGED = {
    (key, was): now
    for key, was, now in re.findall(
        r"^\| [\d.]+ \| `(\S+)` \| `(\S+)` \| `(\S+)` \|$",
        (Path(__file__).parents[2] / "docs/guides/upgrading.md").read_text(),
        re.MULTILINE,
    )
}


#: The warnings that came after a release, as docs/guides/upgrading.md lists them.
ADDED = re.compile(r"strategy: makes \d+ attempts?, and \S+ \S+ makes \d+: set max_attempts: \d+")


def named(file: Path) -> str:
    return str(file.relative_to(RELEASES))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_no_file_of_a_release_is_forgotten(folder: Path) -> None:
    assert sorted(recorded(folder)) == sorted(file.name for file in folder.glob("*.yaml"))
    assert {"reference.yaml", "grpc.yaml", "recipe-1.yaml"} <= set(recorded(folder))


@pytest.mark.parametrize("file", FILES, ids=named)
def test_a_file_of_a_release_loads_without_a_new_word_and_means_the_same(file: Path) -> None:
    values, said = recorded(file.parent)[file.name]
    found, problems = effective(file)
    assert [each for each in problems if each in said or not ADDED.search(each)] == said
    assert found.keys() == values.keys()
    for policy, before in values.items():
        now = {path: found[policy].get(path) for path in before}  # a path that came since is no change
        before = {  # a key that was written has the value that was written
            path: value if now[path] == value else CHANGED.get((path, value), value) for path, value in before.items()
        }
        assert now == before, f"{policy or 'top level'}: if that is meant, say so in docs/guides/upgrading.md"


@pytest.mark.parametrize("file", SUITES, ids=named)
def test_the_policy_tests_of_a_release_hold(file: Path) -> None:
    suite, problems = load_suite(file, ENVIRON)
    assert suite is not None, [str(problem) for problem in problems]
    for played in run_suite(suite):
        assert played.ok, [str(mismatch) for call in played.calls for mismatch in call.mismatches]


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("1", None),
        ("'1'", None),
        ("2", "2 is the format of a later redrive, and this is redrive "),
        ("'12'", "12 is the format of a later redrive, and this is redrive "),
        ("1.1", "'1.1' must be 1, the only format of the file"),
        ("one", "'one' must be 1, the only format of the file"),
        ("0", "'0' must be 1, the only format of the file"),
    ],
)
def test_the_version_of_the_format(version: str, said: str | None, tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text(f"upstreams: {{}}\nversion: {version}\n")
    result = load(str(file), {})
    problems = [str(each) for each in result.problems if each.severity == "error"]
    if said is None:
        assert problems == []
    else:
        assert len(problems) == 1
        assert problems[0].startswith(f"{file}:2:10: version: {said}")


def test_of_a_later_format_nothing_but_that_is_said(tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text("version: 2\nroutes: {}\nupstreams: {a: {address: x}}\n")
    (problem,) = load(str(file), {}).problems
    assert problem.message.endswith(", which reads version 1: upgrade it, or write version 1")
    (tmp_path / "more.yaml").write_text("version: 2\n")  # what is included has no version of its own
    file.write_text("include: [more.yaml]\n")
    (problem,) = load(str(file), {}).problems
    assert problem.message.startswith("unknown key")
