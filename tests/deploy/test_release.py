"""What a release is made of: metadata, notes, the locks of its image. `make release-check` builds and installs it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from readme_renderer.markdown import render

from proxy import __version__

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import lock  # noqa: E402
import one_library  # noqa: E402
import readme  # noqa: E402
import release_notes  # noqa: E402
import sbom  # noqa: E402
from third_party import needed  # noqa: E402

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text()


# -- the readme on a package index ------------------------------------------------------------------------------------


def test_the_readme_is_shown_on_an_index_with_absolute_links_and_its_picture() -> None:
    page = render(readme.long_description())
    assert page is not None
    links = re.findall(r'(?:href|src)="([^"]+)"', page)
    inside = f"{readme.source()}/"
    for link in links:
        assert re.match(r"https?://|#", link), f"{link} leads nowhere on an index"
        if link.startswith(inside):
            view, tag, path = link.removeprefix(inside).split("/", 2)
            assert tag == f"v{__version__}"
            there = ROOT / path.partition("#")[0]
            assert there.is_dir() if view == "tree" else there.is_file(), link
    pictures = re.findall(r'<img [^>]*src="([^"]+)"', page)
    assert pictures and all(link.startswith(f"{inside}raw/") for link in pictures)


def test_links_elsewhere_and_code_are_kept() -> None:
    text = "[a](https://a.example) [b](#b) [![c](c.png)](docs/README.md)\n```md\n[d](d.md)\n```\n[e](docs#x)"
    assert readme.absolute(text, "https://r.example", "v1") == (
        "[a](https://a.example) [b](#b) [![c](https://r.example/raw/v1/c.png)](https://r.example/blob/v1/docs/README.md)\n"
        "```md\n[d](d.md)\n```\n[e](https://r.example/tree/v1/docs#x)"
    )


def test_the_address_of_the_repository_is_the_same_everywhere() -> None:
    name = readme.source().removeprefix("https://github.com/")
    tracked = subprocess.run(["git", "grep", "-IhoE", r"github\.com/[[:alnum:]-]+/redrive\b|--repo[[:space:]]+[^ `]+"],
                             cwd=ROOT, capture_output=True, text=True, check=False).stdout.split("\n")  # fmt: skip
    others = {each for each in tracked if each and name not in each}
    assert not others, f"pyproject.toml says {name}"


# -- version and notes ------------------------------------------------------------------------------------------------


def test_the_version_stands_in_one_place() -> None:
    assert readme.version() == __version__
    assert "version" in PROJECT["project"]["dynamic"] and "version" not in PROJECT["project"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "proxy.__version__"}
    assert "ARG VERSION=\n" in DOCKERFILE


def test_each_python_that_is_named_is_built_for() -> None:
    named = {each.rpartition(" ")[2] for each in PROJECT["project"]["classifiers"] if "Python :: 3." in each}
    built = PROJECT["tool"]["cibuildwheel"]["build"].split()
    assert {f"cp{each.replace('.', '')}-*" for each in named} == set(built)


CHANGELOG = """\
# Changelog

## Unreleased

## 0.2.0 - 2030-01-02

### Added

- This ([how](docs/README.md)).

## 0.1.0 - 2030-01-01

- That.
"""


def test_notes_are_the_section_of_their_version() -> None:
    assert release_notes.notes(CHANGELOG, "0.2.0") == "### Added\n\n- This ([how](docs/README.md)).\n"
    assert release_notes.notes(CHANGELOG, "0.1.0") == "- That.\n"


@pytest.mark.parametrize(("version", "why"), [("0.3.0", "no section 0.3.0"), ("Unreleased", "is empty")])
def test_without_notes_there_is_no_release(version: str, why: str) -> None:
    with pytest.raises(release_notes.NoNotesError, match=why):
        release_notes.notes(CHANGELOG, version)


def test_a_tag_is_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "CHANGELOG.md"
    file.write_text(CHANGELOG.replace("0.2.0", __version__, 1))
    monkeypatch.setattr(release_notes, "CHANGELOG", file)
    link = f"{readme.source()}/blob/v{__version__}/docs/README.md"
    assert release_notes.notes_for(f"v{__version__}") == f"### Added\n\n- This ([how]({link})).\n"
    with pytest.raises(release_notes.NoNotesError, match=f"should be v{re.escape(__version__)}"):
        release_notes.notes_for("v9.9.9")


# -- the image --------------------------------------------------------------------------------------------------------


def test_the_locks_are_current_and_whole() -> None:
    assert lock.problems() == []
    names = {
        name: {
            lock.canonicalize_name(each["name"])
            for each in lock.ENTRY.finditer((lock.LOCKS / f"{name}.txt").read_text())
        }
        for name in lock.wanted()
    }
    for extra in ("", *lock.EXTRAS):
        missing = set(needed(extra)) - names["serve"] - names.get(extra, set())
        assert not missing, f"not in the lock of {extra or 'serve'}: {missing}"


def test_a_lock_that_is_not_current_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "deploy/image/locks"
    folder.mkdir(parents=True)
    for name in lock.wanted():
        text = (lock.LOCKS / f"{name}.txt").read_text()
        (folder / f"{name}.txt").write_text(re.sub(r"^(redis==)\S+", r"\g<1>1.0", text, flags=re.MULTILINE))
    (folder / "otel.txt").unlink()
    monkeypatch.setattr(lock, "LOCKS", folder)
    monkeypatch.setattr(lock, "ROOT", tmp_path)
    (tmp_path / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    (tmp_path / "constraints.txt").symlink_to(ROOT / "constraints.txt")
    told = "\n".join(lock.problems())
    assert "redis: redis is 1.0, in constraints.txt " in told
    assert "otel.txt: is not there" in told


def test_the_image_installs_from_the_locks_alone() -> None:
    commands = re.sub(r"\\\n", " ", DOCKERFILE)
    fetching = re.findall(r"pip\S* (?:--python \S+ )?(?:install|wheel) [^&\n]*", commands)
    assert len(fetching) == 4
    for each in fetching:
        assert "--require-hashes" in each or "--no-index" in each, each
    named = re.search(r"^ARG EXTRAS=(.*)$", DOCKERFILE, re.MULTILINE)
    assert named is not None and set(named[1].split(",")) <= set(lock.EXTRAS)


def test_the_image_gets_every_file_that_the_core_is_compiled_with() -> None:
    used = {"readme.py", "one_library.py", one_library.FIRST.name, one_library.ORDER.name}
    copied = re.search(r"^COPY (.+) tools/$", DOCKERFILE, re.MULTILINE)
    assert copied is not None
    assert set(copied[1].split()) == {f"tools/{name}" for name in used}
    let_in = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!tools/{name}" for name in used} <= {*let_in}


def test_the_sbom_names_what_is_installed_with_redrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1800000000")
    made = sbom.sbom()
    assert made == sbom.sbom(), "another each time it is made"
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    assert made["metadata"]["timestamp"] == "2027-01-15T08:00:00Z"
    assert made["metadata"]["component"]["version"] == __version__
    components = {each["name"]: each for each in made["components"]}
    for extra in ("", *lock.EXTRAS):
        for name in needed(extra):
            each = components[name]
            assert each["version"] == lock.constraints()[name]
            assert each["purl"] == f"pkg:pypi/{name}@{each['version']}"
            assert extra or each["scope"] == "required"
            assert each["licenses"], f"{name} has no licence in THIRD_PARTY.md"
    assert components["cryptography"]["scope"] == "optional"
    references = {each["bom-ref"] for each in components.values()}
    assert set(made["dependencies"][0]["dependsOn"]) == references
    assert len(references) == len(made["components"])
