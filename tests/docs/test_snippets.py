"""Every snippet of the documentation is tried: configurations load, policy tests hold, Python runs."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from proxy.cli import main
from proxy.config.load import load
from proxy.lab.policy_tests import load_suite, run_suite

ROOT = Path(__file__).parent.parent.parent
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\w+\.py)\n")
PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "decisions")

#: The contract's own example of a policy, which pages name as ../redrive.yaml.
PAYMENTS = """
strategies: {patient: {kind: standard, max_attempts: 5, backoff: {base: 200ms}}}
upstreams: {payments: {url: "https://api.payments.example", strategy: patient}}
"""
#: What pages take from the environment.
KEYS = {"KEY_A": "key-a", "KEY_B": "key-b"}


def snippets(page: Path, language: str) -> Iterator[str]:
    return (text for kind, text in _FENCE.findall(page.read_text()) if kind == language)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for a page's files; modules made there are forgotten again."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", "") and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def write_files(page: Path, folder: Path) -> None:
    """A Python snippet that begins with `# name.py` is that file, a dialect is a file of its own name."""
    for text in snippets(page, "dialect"):
        (folder / f"{yaml.safe_load(text)['name']}.yaml").write_text(text)
    for text in snippets(page, "python"):
        if name := _FILE.match(text):
            (folder / name[1]).write_text(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_configurations_load_and_policy_tests_hold(page: Path, folder: Path) -> None:
    write_files(page, folder)
    (folder / "secrets").mkdir()
    (folder / "secrets" / "key-1").write_text("key-1")
    for number, text in enumerate(snippets(page, "yaml")):
        if text.startswith("# Kubernetes: "):  # tests/deploy has those
            continue
        path = folder / f"{number}.yaml"
        if "config: ../redrive.yaml" in text:
            (folder / "redrive.yaml").write_text(PAYMENTS)
            path = folder / "tests" / path.name
            path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        if "tests" not in yaml.safe_load(text):
            result = load(str(path), KEYS)
            assert result.settings is not None, [str(problem) for problem in result.problems]
            continue
        suite, problems = load_suite(path, KEYS)
        assert suite is not None, [str(problem) for problem in problems]
        for played in run_suite(suite):
            assert played.ok, [str(mismatch) for call in played.calls for mismatch in call.mismatches]


@pytest.mark.parametrize("page", [page for page in PAGES if any(snippets(page, "python"))], ids=lambda page: page.stem)
def test_python_runs(page: Path, folder: Path) -> None:
    write_files(page, folder)
    names: dict[str, object] = {}
    for text in snippets(page, "python"):
        exec(compile(text, str(page), "exec"), names)


#: Those of the commands' pages, and of why.md, are test_command_pages'.
SHOWN = [page for page in PAGES if page.parent.name != "commands" and any(snippets(page, "console"))]
SHOWN.remove(ROOT / "docs/why.md")


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.stem)
def test_commands_print_what_is_shown(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`$ redrive …` under the page's first configuration; an ellipsis at the end leaves the rest out."""
    monkeypatch.chdir(folder)
    (folder / "redrive.yaml").write_text(next(snippets(page, "yaml")))
    monkeypatch.setenv("REDRIVE_CONFIG", "redrive.yaml")
    for text in snippets(page, "console"):
        command, _, shown = text.partition("\n")
        assert command.startswith("$ redrive ")
        main(shlex.split(command)[2:])
        printed = capsys.readouterr().out
        if shown.endswith("…\n"):
            shown = shown.removesuffix("…\n").rstrip("\n")
            printed = printed[: len(shown)]
        assert printed == shown


_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


def test_every_page_is_on_the_map() -> None:
    index = ROOT / "docs/README.md"
    linked = {(index.parent / target).resolve() for target, _ in _LINK.findall(index.read_text())}
    assert {page for page in PAGES if page != index} <= linked


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in _LINK.findall(page.read_text()):
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings}, anchor
