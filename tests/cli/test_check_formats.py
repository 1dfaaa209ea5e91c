"""`redrive check` for people, editors and pull requests."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path

import pytest
from support.process import COMMAND, environment

from proxy.cli import main

BAD = """\
upstreams:
  shop:
    url: http://shop.test
    strategy: standart
\tx: 1
"""
WRONG = """\
upstreams:
  shop:
    url: http://shop.test
    strategy: standart
    routes: [{match: {path: /v1$}}]
"""
FINE = "upstreams:\n  shop:\n    url: http://shop.test\n    routes: [{match: {path: '/v1$'}}]\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_lines_of_a_pipe_are_the_plain_ones(capsys: pytest.CaptureFixture[str]) -> None:
    Path("r.yaml").write_text(WRONG)
    assert main(["check", "-c", "r.yaml"]) == 2
    out, err = capsys.readouterr()
    assert (
        err == "r.yaml:4:15: upstreams.shop.strategy: there is no strategy called 'standart' (did you mean standard?)\n"
    )
    assert out == ""
    Path("r.yaml").write_text(FINE)
    assert main(["check", "-c", "r.yaml"]) == 0
    assert capsys.readouterr().out == "r.yaml: fine, 1 upstream, 1 warning\n"


@pytest.mark.parametrize(("text", "status"), [(WRONG, 2), (FINE, 0), (BAD, 2)])
def test_json_says_what_the_lines_say(capsys: pytest.CaptureFixture[str], text: str, status: int) -> None:
    Path("r.yaml").write_text(text)
    assert main(["check", "-c", "r.yaml", "--notes"]) == status
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("r.yaml:")]
    assert main(["check", "-c", "r.yaml", "--format", "json"]) == status
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert not [line for line in err.splitlines() if line.startswith("r.yaml:")]
    assert report["ok"] is (status == 0) and report["upstreams"] == (1 if status == 0 else None)
    assert report["errors"] + report["warnings"] + report["notes"] == len(report["problems"]) == len(lines)
    for each, line in zip(report["problems"], lines, strict=True):
        kind = "" if each["severity"] == "error" else f"{each['severity']}: "
        path = f"{each['path']}: " if each["path"] else ""
        assert line == f"{each['file']}:{each['line']}:{each['column']}: {path}{kind}{each['message']}"


def test_github_gets_annotations(capsys: pytest.CaptureFixture[str]) -> None:
    Path("r,1.yaml").write_text(WRONG)
    assert main(["check", "-c", "r,1.yaml", "--format", "github"]) == 2
    out, err = capsys.readouterr()
    assert out == (
        "::error file=r%2C1.yaml,line=4,col=15,title=upstreams.shop.strategy::"
        "there is no strategy called 'standart' (did you mean standard?)\n"
    )
    assert err == ""
    Path("r.yaml").write_text(FINE.replace("/v1$", "/50%$"))
    assert main(["check", "-c", "r.yaml", "--format", "github"]) == 0
    out = capsys.readouterr().out
    assert "::notice file=r.yaml,line=2," in out and "::warning file=r.yaml,line=4,col=29," in out
    assert "(did you mean /50%25?)" in out


def seen(*arguments: str, **env: str) -> str:
    """What a terminal is shown of standard error."""
    ours, theirs = os.openpty()
    found: list[bytes] = []

    def read() -> None:
        try:
            while piece := os.read(ours, 65536):
                found.append(piece)
        except OSError:  # Linux says so where the other side is closed
            pass

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    subprocess.run(
        [*COMMAND, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=environment(**env),
        timeout=60,
        check=False,
    )
    os.close(theirs)
    reading.join(30)
    os.close(ours)
    return b"".join(found).decode().replace("\r\n", "\n")


def test_a_terminal_sees_the_line_and_a_caret() -> None:
    Path("r.yaml").write_text(WRONG)
    plain = seen("check", "-c", "r.yaml", TERM="xterm", NO_COLOR="1", COLUMNS="80")
    assert plain == (
        "r.yaml:4:15: upstreams.shop.strategy: there is no strategy called 'standart' (did you mean standard?)\n"
        "    4 |     strategy: standart\n"
        "      |               ^^^^^^^^\n"
        "r.yaml: refused, 1 error\n"
    )
    coloured = seen("check", "-c", "r.yaml", TERM="xterm", COLUMNS="80")
    assert "\x1b[1;31m^^^^^^^^\x1b[0m" in coloured


def test_an_excerpt_fits_and_moves_no_cursor() -> None:
    Path("r.yaml").write_text(
        "upstreams: {a: {url: http://x, # \x9b2J\n  strategy: '" + 300 * "é" + "', strategie: 1}}\n"
    )
    plain = seen("check", "-c", "r.yaml", TERM="xterm", NO_COLOR="1", COLUMNS="80")
    excerpts = [line for line in plain.splitlines() if " | " in line]
    assert excerpts and all(len(line) <= 80 for line in excerpts)
    assert "\x9b" not in plain and "\x1b" not in plain
    assert any(line.rstrip().endswith("^") for line in excerpts)
