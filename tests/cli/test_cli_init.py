"""`redrive init`: what it writes is a configuration that `check` finds fine, and it never replaces a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.app_init import PROVIDERS
from proxy.cli import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REDRIVE_CONFIG", "AWS_RETRY_MODE", "AWS_MAX_ATTEMPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "named", [[], *([name] for name in PROVIDERS), [*PROVIDERS, "https://api.acme.example/v1"]], ids=" ".join
)
def test_what_it_writes_is_fine(named: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", *named]) == 0
    assert capsys.readouterr().out == "redrive.yaml is written\nnext: redrive run\n"
    assert main(["check"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"redrive.yaml: fine, {len(named)} upstream{'' if len(named) == 1 else 's'}\n"
    assert "warning" not in printed.err


def test_the_lines_of_a_file_without_upstreams_hold_once_their_comments_go(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 0
    file = Path("redrive.yaml")
    head, key, lines = file.read_text().partition("upstreams:\n")
    file.write_text(head + key + lines.replace("#  ", "  "))
    capsys.readouterr()
    assert main(["check"]) == 0
    assert capsys.readouterr().out == "redrive.yaml: fine, 1 upstream\n"


def test_another_service_is_named_by_its_host(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "https://api.acme.example/v1", "--file", "own.yaml"]) == 0
    assert capsys.readouterr().out == "own.yaml is written\nnext: redrive run -c own.yaml\n"
    assert main(["explain", "-c", "own.yaml", "GET", "http://127.0.0.1:8080/acme/x"]) == 0
    assert "acme" in capsys.readouterr().out


def test_it_replaces_no_file_and_refuses_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    for named, said in [
        ("opena", "redrive: opena is none of openai, anthropic, github, stripe, aws, google, and no URL of another"),
        ("https://", "redrive: https:// is not a URL"),
        ("https://a.example/{x}", "redrive: https://a.example/{x} is not a URL"),
    ]:
        assert main(["init", named]) == 2
        assert capsys.readouterr().err.startswith(said)
        assert not Path("redrive.yaml").exists()
    Path("redrive.yaml").write_text("mine")
    assert main(["init", "openai"]) == 2
    assert capsys.readouterr().err == "redrive: redrive.yaml exists already, and is left as it is\n"
    assert Path("redrive.yaml").read_text() == "mine"
    assert main(["init", "--file", "no/such.yaml"]) == 2
    assert capsys.readouterr().err == "redrive: no/such.yaml can't be written: no such file or directory\n"
