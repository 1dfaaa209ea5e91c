"""`redrive completion`: the scripts, run by the shells that they are for."""

from __future__ import annotations

import argparse
import os
import pty
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from proxy.cli import _parser, main

BASH, ZSH, FISH = shutil.which("bash"), shutil.which("zsh"), shutil.which("fish")
VERBS = {
    name
    for action in _parser()._actions
    if isinstance(action, argparse._SubParsersAction)
    for name in action.choices
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "a b.yaml").touch()
    (tmp_path / "a.yaml").touch()
    (tmp_path / "afolder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


# What is typed, and what is offered; None: every verb.
CASES: list[tuple[str, set[str] | None]] = [
    ("redrive ", None),
    ("redrive ch", {"check"}),
    ("redrive completion ", {"bash", "zsh", "fish"}),
    ("redrive check --format ", {"text", "json", "github"}),
    ("redrive check --format j", {"json"}),
    ("redrive check -c a", {"a b.yaml", "a.yaml", "afolder"}),
    ("redrive test a", {"a b.yaml", "a.yaml", "afolder"}),
    ("redrive ca ", {"init", "show", "export"}),
    ("redrive ca export --b", {"--bundle"}),
    ("redrive explain --http2 --status ", set()),
    ("redrive check -c run --form", {"--format"}),
    ("redrive simulate --s", {"--scenario"}),
]


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
def test_bash(capsys: pytest.CaptureFixture[str]) -> None:
    script = made("bash", capsys)
    assert BASH is not None

    def offered(typed: str) -> set[str]:
        words = typed.split(" ")
        # What readline does: the words, the function that `complete` names, and what it leaves in COMPREPLY.
        asked = f"""
            COMP_WORDS=({" ".join(f"'{word}'" for word in words)}) COMP_CWORD={len(words) - 1}
            set -- $(complete -p redrive); while [ "$1" != -F ]; do shift; done
            "$2" redrive
            printf '%s\\n' "${{COMPREPLY[@]}}"
        """
        done = subprocess.run([BASH, "--norc", "-uc", script + asked], capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return {line for line in done.stdout.split("\n") if line}

    for typed, wanted in CASES:
        assert offered(typed) == (VERBS if wanted is None else wanted), typed
    assert offered("redrive check --format = g") == {"github"}, "an option with = comes as three words"
    assert offered("redrive check -") == {"-c", "--config", "--format", "--notes", "-h", "--help"}


@pytest.mark.skipif(FISH is None, reason="fish is not installed")
def test_fish(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert FISH is not None
    (folder / "c.fish").write_text(made("fish", capsys))
    asked = "\n".join(f"echo '> {typed}'; complete -C '{typed}'" for typed, _ in CASES)
    environment = {**os.environ, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_DATA_HOME": str(folder)}
    command = [FISH, "--no-config", "-c", f"source c.fish\n{asked}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    answers = dict(re.findall(r"^> (.*)\n((?:(?!> ).*\n)*)", done.stdout, re.MULTILINE))
    for typed, wanted in CASES:
        found = {line.split("\t")[0].rstrip("/").replace("\\", "") for line in answers[typed].splitlines()}
        assert found == (VERBS if wanted is None else wanted), typed
    assert "validate a configuration" in answers["redrive "], "verbs come with what they do"


@pytest.mark.skipif(ZSH is None, reason="zsh is not installed")
def test_zsh(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """In a terminal: zsh's completion needs its line editor. What is typed is unique, so Tab completes it."""
    assert ZSH is not None
    (folder / "c.zsh").write_text(made("zsh", capsys))
    typed = {
        "redrive schem": "schema",
        "redrive ca exp": "export",
        "redrive completion zs": "zsh",
        "redrive check --format gi": "github",
        "redrive check --format=gi": "github",
        "redrive check -c afo": "afolder/",
        "redrive test afo": "afolder/",
        "redrive check --conf": "--config",
        "redrive simulate --sc": "--scenario",
    }
    (folder / ".zshrc").write_text(
        "autoload -Uz compinit && compinit -u -D\nsource ./c.zsh\nPS1='READY '\nunsetopt prompt_sp\n"
        # Ctrl-G says what the line holds, in place of running it.
        "say() { print -r -- \"LINE<$BUFFER>\"; BUFFER=; zle reset-prompt }\nzle -N say\nbindkey '^G' say\n"
    )
    process, terminal = pty.fork()
    if not process:
        os.execve(ZSH, [ZSH, "-i"], {**os.environ, "ZDOTDIR": str(folder), "TERM": "dumb"})
    seen = ""

    def until(pattern: str) -> str:
        nonlocal seen
        while (found := re.search(pattern, seen)) is None:
            seen += os.read(terminal, 4096).decode(errors="replace")
        seen = seen[found.end() :]
        return found[1]

    try:
        until(r"(READY )")
        for line, wanted in typed.items():
            os.write(terminal, f"{line}\t\x07".encode())
            said = until(r"LINE<([^>]*)>")
            assert re.split(r"[ =]", said.rstrip(" ="))[-1] == wanted, said
    finally:
        os.write(terminal, b"\x03exit\n")
        os.close(terminal)
        os.waitpid(process, 0)


def test_another_shell_is_refused_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["completion", "tcsh"])
    assert left.value.code == 2
    message = "SHELL takes one of bash, zsh, fish, not tcsh; redrive completion --help says more"
    assert capsys.readouterr().err == f"redrive: {message}\n"
