"""The README's first screen: what a stranger reads before the first heading. It is short, and its commands work."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from support.process import run

ROOT = Path(__file__).parent.parent.parent
#: Lines and words of the first screen: a window of 40 lines, and a minute of reading.
LINES, WORDS = 40, 260
SCREEN = (ROOT / "README.md").read_text().partition("\n## ")[0]
FENCES = re.findall(r"^```(\w*)\n(.*?)^```$", SCREEN, re.MULTILINE | re.DOTALL)
PROSE = re.sub(r"^```.*?^```$", "", SCREEN, flags=re.MULTILINE | re.DOTALL)


def test_it_is_one_screen() -> None:
    assert len(SCREEN.splitlines()) <= LINES
    assert len(re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", PROSE).split()) <= WORDS


def test_it_begins_with_one_sentence() -> None:
    title, first, *_ = SCREEN.split("\n\n")
    assert title == "# redrive"
    assert re.findall(r"[.!?](?=\s|$)", first) == ["."] and first.endswith(".")


def test_it_has_one_of_each() -> None:
    """One install line, `redrive exec`, one curl and its count of attempts, one picture, one claim with its figures."""
    (install,) = [text for language, text in FENCES if language == "sh"]
    (asked,) = [text for language, text in FENCES if language == "console"]
    (command,) = [text for language, text in FENCES if language == ""]
    assert len(install.splitlines()) == len(command.splitlines()) == 1
    assert command.startswith("redrive exec -- ")
    assert asked.startswith("$ curl ") and "\nX-Attempt-Count: 3\n" in asked
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", SCREEN)
    assert (ROOT / picture).stat().st_size > 10_000
    (claim,) = re.findall(r"^\*\*Measured:\*\* .*?(?=\n\n|\Z)", SCREEN, re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"\d+\.\d+\s%", claim)) == 2


@pytest.mark.skipif(not (ROOT / ".venv/.serve").exists(), reason="this checkout's .venv was not made by make")
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
async def test_its_install_line_gives_the_command_that_it_names(tmp_path: Path) -> None:
    """In a checkout in which `make venv` has been run: this one's environment, under the names of another folder."""
    for name in ("pyproject.toml", "constraints.txt"):  # older than what was installed
        shutil.copy(ROOT / name, tmp_path)
        os.utime(tmp_path / name, (0, 0))
    for name in ("Makefile", "scripts", ".venv"):
        (tmp_path / name).symlink_to(ROOT / name)
    (install,) = [text for language, text in FENCES if language == "sh"]
    asks = "import os; print(os.environ['HTTP_PROXY'])"
    typed = f'cd {tmp_path}\n{install}redrive --version\nredrive exec --quiet -- python -c "{asks}"'
    status, out, err = await run("sh", "-euc", typed)
    assert (status, err) == (0, "")
    version, proxy = out.splitlines()[-2:]
    assert version.startswith("redrive ")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", proxy)
