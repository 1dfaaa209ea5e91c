"""docs/reference/commands/: what the parser of the command line knows of each command, and what its examples print.
docs/why.md has examples of the same kind.

    python tools/command_pages.py            say which pages are not current
    python tools/command_pages.py --write    write them again; a test keeps them current

A page is written by hand. Between two comments stand the synopsis and the options, out of the parser. A `console` block
is played: each line `$ redrive …` in a folder with the page's files, `$ echo $?` as its exit status. A block that
begins with `# name.yaml` is that file, the first of the other YAML blocks is redrive.yaml. What a command prints is
standard output, or standard error where that is empty, without the lines that name the configuration and the scenario.
An ellipsis at the end leaves the rest out. A picture that a command of docs/why.md writes stands beside that page.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from proxy.cli import _parser, main

FOLDER = Path(__file__).parent.parent / "docs" / "reference" / "commands"
BEGINS, ENDS = "<!-- made by tools/command_pages.py from the parser -->", "<!-- end of what is made -->"
#: Their examples need a running process: tests/docs/test_command_pages.py plays them.
WITH_A_PROCESS = {"run", "healthcheck", "demo", "top"}
WIDTH = 100
#: The folder of the examples, as pages show it.
HERE = "/etc/redrive"
Parser = argparse.ArgumentParser


def commands(parser: Parser) -> dict[str, tuple[Parser, str]]:
    """The commands of a parser: each one's own parser, and what it does in a line."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summary = {each.dest: each.help or "" for each in action._choices_actions}
            return {name: (made, summary.get(name, "")) for name, made in action.choices.items()}
    return {}


def arguments(parser: Parser) -> list[argparse.Action]:
    """What a command takes, without --help: positional ones first."""
    kept = [each for each in parser._actions if not isinstance(each, argparse._HelpAction)]
    kept = [each for each in kept if not isinstance(each, argparse._SubParsersAction)]
    return sorted(kept, key=lambda each: bool(each.option_strings))


def value(action: argparse.Action) -> str:
    """The value that an argument takes, as the synopsis has it."""
    if action.nargs == 0:
        return ""
    if action.choices is not None:
        return "|".join(map(str, action.choices))
    name = action.metavar or action.dest.upper()
    text = name if isinstance(name, str) else " ".join(name)
    return f"{text}..." if action.nargs in ("+", "*") else text


def synopsis(name: str, parser: Parser) -> str:
    """A command's arguments in a line or several."""
    words: list[str] = []
    alone = {id(each) for group in parser._mutually_exclusive_groups for each in group._group_actions[1:]}
    for action in arguments(parser):
        if id(action) in alone:
            continue
        either = next((g for g in parser._mutually_exclusive_groups if action in g._group_actions), None)
        spelled = " | ".join(
            f"{each.option_strings[0]} {value(each)}".strip() if each.option_strings else value(each)
            for each in (either._group_actions if either else [action])
        )
        many = "..." if isinstance(action, argparse._AppendAction) and action.nargs is None else ""
        words.append(spelled if action.required else f"[{spelled}]{many}")
    lines, indent = [f"redrive {name}"], " " * (len(f"redrive {name}") + 1)
    for word in words:
        if len(lines[-1]) + 1 + len(word) > WIDTH:
            lines.append(indent + word)
        else:
            lines[-1] += f" {word}"
    return "\n".join(lines)


def meaning(action: argparse.Action) -> str:
    """An argument's help, as a cell."""
    known = {key: each for key, each in vars(action).items() if each is not argparse.SUPPRESS}
    if action.choices is not None:
        known["choices"] = ", ".join(map(str, action.choices))
    text = (action.help or "") % known
    return text.replace("|", "\\|").replace("*", "\\*")


def table(parser: Parser) -> str:
    """What a command takes, a row each."""
    rows = ["| | |", "| --- | --- |"]
    for action in arguments(parser):
        names = ", ".join(f"`{each}`" for each in action.option_strings)
        taken = value(action).replace("|", "\\|")
        cell = f"{names} `{taken}`" if names and taken else names or f"`{taken}`"
        rows.append(f"| {cell} | {meaning(action)} |")
    return "\n".join(rows) if len(rows) > 2 else "It takes no options."


def made(name: str, parser: Parser) -> str:
    """The part of a page that the parser knows."""
    below = {f"{name} {each}": inner for each, (inner, _) in commands(parser).items()} or {name: parser}
    text = "```\n" + "\n".join(synopsis(each, inner) for each, inner in below.items()) + "\n```\n"
    for each, inner in below.items():
        text += f"\n**redrive {each}**: {inner.description}.\n" if len(below) > 1 else ""
        text += f"\n{table(inner)}\n"
    return text


def overview(parser: Parser) -> str:
    """The table of all commands."""
    rows = "".join(f"| [{name}]({name}.md) | {summary} |\n" for name, (_, summary) in commands(parser).items())
    return f"| | |\n| --- | --- |\n{rows}"


def files(text: str) -> Iterator[tuple[str, str]]:
    """The files of a page, by name."""
    unnamed = 0
    for kind, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if named := re.match(r"# (\w+\.yaml)\n", block):
            yield named[1], block
        elif kind == "yaml":
            yield f"{unnamed}.yaml" if unnamed else "redrive.yaml", block
            unnamed += 1


def played(command: str) -> tuple[str, int]:
    """What a command prints, and its exit status."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(shlex.split(command)[1:])
    except SystemExit as end:
        status = int(end.code or 0)
    named = ("redrive: configuration: ", "redrive: scenario: ")
    kept = [line for line in err.getvalue().splitlines(True) if not line.startswith(named)]
    return out.getvalue() or "".join(kept), status


def block(text: str) -> str:
    """A console block with what its commands print."""
    parts = re.split(r"^(?=\$ )", text, flags=re.MULTILINE)
    made, status = "", 0
    for part in filter(None, parts):
        command, _, shown = part.partition("\n")
        if command == "$ echo $?":
            printed = f"{status}\n"
        else:
            printed, status = played(command.removeprefix("$ "))
            printed = printed.replace(str(Path.cwd()), HERE)
            printed = "\n".join(line.rstrip() for line in printed.rstrip().lstrip("\n").splitlines())
            printed += "\n" if printed else ""
        if shown.rstrip().endswith("…"):
            printed = "".join(printed.splitlines(True)[: len(shown.rstrip().splitlines()) - 1]) + "…\n"
        made += f"{command}\n{printed}"
    return made


def examples(text: str) -> tuple[str, dict[str, str]]:
    """A page with its console blocks played again, and the pictures (SVG) that its commands wrote, by their names."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for name, written in files(text):
                Path(name).write_text(written)
            again = re.sub(
                r"^```console\n(.*?)^```$",
                lambda found: f"```console\n{block(found[1])}```",
                text,
                flags=re.MULTILINE | re.DOTALL,
            )
            return again, {picture.name: picture.read_text() for picture in Path().glob("*.svg")}
        finally:
            os.chdir(before)


def page(name: str, parser: Parser, summary: str) -> str:
    """A command's page as it has to be; a page that is not there yet begins with what the parser knows."""
    path = FOLDER / f"{name}.md"
    if not path.exists():
        return f"# redrive {name}\n\n{summary}\n\n{BEGINS}\n\n{made(name, parser)}\n{ENDS}\n"
    text = filled(path.read_text(), made(name, parser))
    # A fingerprint and a date are other ones each time: what is shown is kept where nothing else differs.
    again = text if name in WITH_A_PROCESS else examples(text)[0]
    return text if plain(again) == plain(text) and name == "ca" else again


def plain(text: str) -> str:
    """Without what differs from play to play: fingerprints, dates, certificates."""
    text = re.sub(r"^[A-Za-z0-9+/=]{64}$", "=", text, flags=re.MULTILINE)
    return re.sub(r"\b[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2})+\b|\b[0-9a-f]{8}\b|\d+", "0", text)


def filled(text: str, inside: str) -> str:
    """A page with this between its two comments."""
    head, _, rest = text.partition(BEGINS)
    return f"{head}{BEGINS}\n\n{inside}\n{ENDS}{rest.partition(ENDS)[2]}"


def pages() -> dict[Path, str]:
    """Every page, as it has to be."""
    parser = _parser()
    index = FOLDER / "README.md"
    every = {FOLDER / f"{name}.md": page(name, made, summary) for name, (made, summary) in commands(parser).items()}
    why = FOLDER.parent.parent / "why.md"
    text, pictures = examples(why.read_text())
    drawn = {why.with_name(name): picture for name, picture in pictures.items()}
    return {index: filled(index.read_text(), overview(parser)), **every, why: text, **drawn}


def write() -> int:
    """The command line."""
    late = {path: text for path, text in pages().items() if not path.exists() or path.read_text() != text}
    for path, text in late.items():
        if "--write" in sys.argv:
            path.write_text(text)
        else:
            print(f"{path.name} is not current: make docs", file=sys.stderr)
    return 1 if late and "--write" not in sys.argv else 0


if __name__ == "__main__":
    sys.exit(write())
