"""The commands of README and guides, as a reader types them, and the site that is made of the pages.

Law: every line of every shell block is tried, or is one of the few that other tests try (`ELSEWHERE`). The upstreams
are here and not in the internet, and ports are the system's; all else stands.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from support.process import Redrive, environment, run
from support.scripted import Upstream, answer

ROOT = Path(__file__).parent.parent.parent
GUIDES = sorted(page for folder in ("tutorial", "guides") for page in (ROOT / "docs" / folder).glob("*.md"))
#: These have tests of their own; that of https-in-containers is in tests/deploy.
PAGES = [ROOT / "README.md", *(page for page in GUIDES if page.stem not in ("https", "https-in-containers", "clients"))]
#: Lines that are not run here, and who tries them.
ELSEWHERE = {
    ".venv/bin/redrive demo": "tests/lab/test_demo.py",
    ". .venv/bin/activate": "what it is there for is in the path of the others",
    "pipx install .": "make release-check, from the wheel",
    "uv tool install .": "likewise",
    "PIPX_HOME=/opt/pipx PIPX_BIN_DIR=/usr/local/bin pipx install .": "likewise, in folders of its own",
    "install -D -m 644 config/redrive.yaml /etc/redrive/redrive.yaml": "it needs root",
    "install -D -m 644 deploy/systemd/redrive.service /etc/systemd/system/redrive.service": "tests/deploy",
    "systemctl daemon-reload": "likewise",
    "systemctl enable --now redrive": "likewise",
    "install -D -m 644 deploy/systemd/redrive.socket /etc/systemd/system/redrive.socket": "likewise",
    "systemctl stop redrive": "likewise",
    "systemctl enable --now redrive.socket redrive": "likewise",
    "install -D -m 644 deploy/systemd/redrive@.service /etc/systemd/system/redrive@.service": "likewise",
    "systemctl enable --now redrive@a": "likewise",
    "systemctl enable --now redrive@b": "likewise",
    "systemctl disable redrive@a": "likewise",
    "redrive run --take-over -c /etc/redrive/redrive.yaml": "tests/e2e/test_take_over.py",
    "python -m proxy.lab.flaky": "it is running while the others are tried",
    "redrive run": "likewise",
    "docker build -t redrive .": "make image-test, with buildah",
    "docker run --rm --read-only --cap-drop ALL -p 127.0.0.1:8080:8080 "
    '-v "$PWD/conf:/etc/redrive:ro" redrive': "likewise",
}
BIN = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
CONFIG = """\
upstreams:
  shop: {{url: "http://127.0.0.1:{flaky}", hosts: [shop.example]}}
  flaky: {{url: "http://127.0.0.1:{flaky}", hosts: []}}
  github: {{url: "http://127.0.0.1:{github}", hosts: [api.github.com]}}
"""
BROKEN = "upstreams:\n  github:\n    strategie: none\n"

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def lines(page: Path) -> list[str]:
    """The commands of a page's shell blocks, without comments. What follows an `eval` is of one shell with it."""
    typed = []
    for text in blocks(page, "sh"):
        found = [line.partition(" # ")[0].strip() for line in text.splitlines()]
        found = [line for line in found if line and not line.startswith("# ")]
        typed += ["\n".join(found)] if any(line.startswith("eval ") for line in found) else found
    return typed


def complaints(err: str) -> list[str]:
    """Standard error without the line that every verb says."""
    return [line for line in err.splitlines() if not line.startswith("redrive: configuration: ")]


@asynccontextmanager
async def a_machine(folder: Path) -> AsyncIterator[tuple[Redrive, dict[str, str]]]:
    """A reader's machine: the flaky upstream, redrive, and what stands for the ports and the internet of the page."""
    flaky = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy.lab.flaky", "--port", "0"), env=environment(), stderr=asyncio.subprocess.PIPE
    )
    try:
        assert flaky.stderr is not None
        said = re.match(r"a flaky upstream on http://127.0.0.1:(\d+) ", (await flaky.stderr.readline()).decode())
        assert said is not None
        port = int(said[1])
        served = folder / "served"
        served.mkdir()
        async with (
            Upstream(*[answer(200, b"Keep it simple.")] * 9) as github,
            Redrive(served, CONFIG.format(flaky=port, github=github.port)) as proxy,
        ):
            (folder / "broken.yaml").write_text(BROKEN)
            admin = proxy.admin.removeprefix("http://")
            ours = f"listen: {proxy.authority}\nadmin: {admin}\n{CONFIG.format(flaky=port, github=github.port)}"
            (folder / "redrive.yaml").write_text(ours)
            yield (
                proxy,
                {
                    "127.0.0.1:8080": proxy.authority,
                    "127.0.0.1:8081": f"127.0.0.1:{port}",
                    "127.0.0.1:9901": admin,
                },
            )
    finally:
        flaky.terminate()
        await flaky.wait()


def here(command: str, places: dict[str, str]) -> str:
    for written, ours in places.items():
        command = command.replace(written, ours)
    return command


async def type_in(command: str, places: dict[str, str], folder: Path) -> tuple[int, str, str]:
    return await run("sh", "-euc", f"cd '{folder}'\n{here(command, places)}", PATH=BIN)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
async def test_every_command_works(page: Path, tmp_path: Path) -> None:
    typed = [line for line in lines(page) if line not in ELSEWHERE]
    verbs = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    made = [line for line in typed if line.startswith("make ")]
    assert {line.split()[1] for line in made} <= verbs
    typed = [line for line in typed if line not in made]
    if not typed:
        return
    async with a_machine(tmp_path) as (_, places):
        for line in typed:
            status, out, err = await type_in(line, places, tmp_path)
            assert (status, complaints(err)) == (0, []), (line, err)
            assert out.strip(), line


def plain(text: str) -> list[str]:
    """Lines, with numbers and the name in Via in one form; an ellipsis stands for what is left out."""
    text = re.sub(r"redrive-[0-9a-f]{8}", "redrive-X", text.replace("\r", ""))
    return [re.sub(r"[0-9.]+", "0", line).strip() for line in text.splitlines() if line.strip() and line.strip() != "…"]


async def test_what_the_readme_shows_is_what_is_printed(tmp_path: Path) -> None:
    async with a_machine(tmp_path) as (_, places):
        for text in blocks(ROOT / "README.md", "console"):
            command, _, shown = text.partition("\n")
            assert command.startswith("$ ")
            _, out, err = await type_in(command[2:].replace("curl -i", "curl -sSi"), places, tmp_path)
            printed = plain(out + err)
            at = 0
            for line in plain(shown):
                assert line in printed[at:], (line, printed)
                at = printed.index(line, at) + 1


async def test_the_words_of_getting_started(tmp_path: Path) -> None:
    """Every way in prints what the page says it prints."""
    page = ROOT / "docs/tutorial/getting-started.md"
    said = re.search(r"Both print `([^`]+)`", page.read_text())
    asked = [line for line in lines(page) if "curl -sS " in line and "-o" not in line and "9901" not in line]
    assert said is not None and len(asked) == 3
    async with a_machine(tmp_path) as (_, places):
        for line in asked:
            _, out, _ = await type_in(line, places, tmp_path)
            assert out.strip() == said[1], line


@pytest.mark.parametrize("name", ["README.md", "SECURITY.md", "CONTRIBUTING.md", "THIRD_PARTY.md"])
def test_links_of_the_pages_outside_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", (ROOT / name).read_text()):
        assert (ROOT / target).exists(), target


def test_the_readmes_configuration_is_fine(tmp_path: Path) -> None:
    from proxy.config.load import load

    for number, text in enumerate(blocks(ROOT / "README.md", "yaml")):
        (tmp_path / f"{number}.yaml").write_text(text)
        result = load(str(tmp_path / f"{number}.yaml"), {})
        assert result.settings is not None, result.problems


def test_the_table_of_keys_is_current() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "tools/config_keys.py"], stdout=subprocess.PIPE, text=True, check=True
    )
    assert made.stdout == (ROOT / "docs/reference/keys.md").read_text(), "python tools/config_keys.py --write"


def fetched_from_elsewhere(site: Path) -> list[str]:
    """What a browser would fetch from other hosts to show the site: of the pages' elements, and of the styles. What
    scripts fetch hangs on elements that no page may have: a diagram for mermaid, a link to a repository.
    """
    elements = (
        r"<(?:script|link|img|iframe|source|object|embed|video|audio)\b[^>]*(?:src|href|data)=[\"']?(?:https?:)?//[^>]*"
    )
    asked_for = r"<[^>]*class=[\"'][^\"']*\bmermaid\b[^>]*|<[^>]*data-md-component=[\"']?source\b[^>]*"
    pages = [(each, f"{elements}|{asked_for}") for each in site.rglob("*.html")]
    styles = [(each, r"(?:@import|url\()[^;)]*//[^;)]*") for each in site.rglob("*.css")]
    return [f"{each.name}: {found}" for each, what in [*pages, *styles] for found in re.findall(what, each.read_text())]


def test_the_site_is_made_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("material")
    # With -q warnings would be neither shown nor counted.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")]
    made = subprocess.run(
        command, cwd=ROOT, env=environment(NO_MKDOCS_2_WARNING="1"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout
    assert fetched_from_elsewhere(tmp_path / "site") == []
    assert (tmp_path / "site/files/config/examples/aws.yaml").exists()
    assert "../files/config/examples/aws.yaml" in (tmp_path / "site/guides/recipes.html").read_text()


def test_the_alerts_of_the_guide_are_those_there_are() -> None:
    named = re.findall(r"^\| `(Redrive\w+)`", (ROOT / "docs/guides/operating.md").read_text(), re.MULTILINE)
    assert named == re.findall(r"- alert: (\w+)", (ROOT / "deploy/prometheus/alerts.yml").read_text())


def test_troubleshooting_has_every_outcome() -> None:
    from proxy.retry.facts import Outcome

    named = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/guides/troubleshooting.md").read_text(), re.MULTILINE)
    assert named == [outcome.value for outcome in Outcome]


@pytest.mark.parametrize("page", [ROOT / "README.md", *GUIDES], ids=lambda page: page.name)
def test_urls_with_a_query_are_quoted(page: Path) -> None:
    """zsh takes `?` and `&` outside of quotes for its own, and calls no command: `no matches found`."""
    typed = [line for kind in ("sh", "console") for text in blocks(page, kind) for line in text.splitlines()]
    bare = [line for line in typed if re.search(r"https?://[^\s'\"]*[?&]", re.sub(r"'[^']*'|\"[^\"]*\"", "", line))]
    assert bare == []


@pytest.mark.parametrize("file", sorted((ROOT / "docs" / "guides").glob("*.png")), ids=lambda file: file.name)
def test_the_pictures_of_the_guide_are_small(file: Path) -> None:
    assert file.stat().st_size < 100_000
