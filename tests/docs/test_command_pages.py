"""docs/reference/commands/ has a page for every command, which says what the parser says and shows what is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.process import Redrive, redrive

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "docs/reference/commands"


def test_the_pages_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tools")
    for name in ("REDRIVE_CONFIG", "AWS_RETRY_MODE", "AWS_MAX_ATTEMPTS"):
        monkeypatch.delenv(name, raising=False)
    import command_pages

    for path, text in command_pages.pages().items():
        assert path.exists() and path.read_text() == text, f"{path.name}: make docs"
        if path.parent == FOLDER and path.name != "README.md":
            assert {"## Exit status", "## See also"} <= set(text.splitlines()), path.name


def shown(page: str) -> list[str]:
    """What the page's console blocks show, command by command."""
    blocks = re.findall(r"^```console\n(.*?)^```$", (FOLDER / page).read_text(), re.MULTILINE | re.DOTALL)
    return [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE) if part]


def plain(text: str) -> str:
    """A text without ports, versions and folders."""
    return re.sub(r"\d+(\.\d+)*", "0", re.sub(r"/\S+/(?=redrive\.yaml)", "", text))


async def test_what_needs_a_process_prints_what_is_shown(tmp_path: Path) -> None:
    config = "upstreams:\n  github:\n    url: https://api.github.com\n"
    (printed,) = shown("run.md")
    asked = [each.partition("\n") for each in shown("healthcheck.md")]
    assert [command for command, _, _ in asked] == ["redrive healthcheck", "echo $?"] * 2
    (_, _, ready), (_, _, fine), (_, _, refused), (_, _, wrong) = asked

    async def healthcheck() -> tuple[int, str]:
        status, out, err = await redrive("healthcheck", "-c", str(file))
        assert out == ""
        return status, plain("".join(line for line in err.splitlines(True) if "configuration:" not in line))

    async with Redrive(tmp_path, config) as proxy:
        assert f"redrive run\n{plain(proxy.errors)}" == plain(printed)
        file = tmp_path / "served.yaml"
        file.write_text(f"listen: {proxy.authority}\nadmin: {proxy.admin.removeprefix('http://')}\n{config}")
        assert await healthcheck() == (int(fine), plain(ready))
    assert await healthcheck() == (int(wrong), plain(refused))
