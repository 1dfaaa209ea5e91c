"""Scripts that complete the command line in a shell: bash, zsh and fish, made from the parser that reads it.

A verb or an option that the parser has is completed without anything being written twice. An option or argument that is
called FILE is completed with the names of files, one with choices with these, any other with nothing.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

#: The metavar of an option or argument whose value is the name of a file.
_FILE = "FILE"


@dataclass(frozen=True, slots=True)
class _Word:
    """An option (`flags`) or an argument (no flags): whether it takes a value, that value's name and choices, and its
    help.
    """

    flags: Sequence[str]
    takes: bool
    name: str
    choices: Sequence[str]
    summary: str

    @property
    def is_file(self) -> bool:
        """Whether a shell completes the word's value with names of files."""
        return self.takes and self.name == _FILE


@dataclass(frozen=True, slots=True)
class _Verb:
    """A verb: its path from the first word on (empty for the command itself), its options and arguments, and its
    sub-verbs.
    """

    path: tuple[str, ...]
    words: Sequence[_Word]
    below: Sequence[tuple[str, str]]


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for a shell (a key of `SHELLS`), which completes the command that the parser's `prog` names."""
    return SHELLS[shell](parser.prog, list(_verbs(parser, ())))


def _verbs(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> Iterator[_Verb]:
    """Yield a parser's verb and all verbs below it, outermost first."""
    words, below, parsers = [], [], []
    formatter = parser._get_formatter()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            does = {each.dest: each.help or "" for each in action._choices_actions}
            below += [(name, does.get(name, "")) for name in action.choices]
            parsers += [(name, made) for name, made in action.choices.items()]
        else:
            name = action.metavar if isinstance(action.metavar, str) else action.dest
            choices = tuple(map(str, action.choices or ()))
            takes = action.nargs != 0
            summary = formatter._expand_help(action) if action.help else ""
            words.append(_Word(action.option_strings, takes, name, choices, summary))
    yield _Verb(path, words, below)
    for name, made in parsers:
        yield from _verbs(made, (*path, name))


# -- bash -------------------------------------------------------------------------------------------------------------

_BASH = """\
# Completes {prog} in bash: eval "$({prog} completion bash)"
_{name}() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} verb= words= flags= files= i
    # --option=value comes as three words.
    if [[ $current == = ]]; then current=; elif [[ $previous == = ]]; then previous=${{COMP_WORDS[COMP_CWORD - 2]}}; fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$verb/${{COMP_WORDS[i]}}" in
{paths}
        esac
    done
    case "$verb $previous" in
{values}
        *)
            case "$verb" in
{verbs}
            esac
            if [[ $current == -* ]]; then words=$flags files=; fi
            ;;
    esac
    COMPREPLY=()
    while IFS= read -r i; do COMPREPLY+=("$i"); done < <(
        compgen -W "$words" -- "$current"
        [[ -z $files ]] || compgen -f -- "$current"
    )
    [[ -z $files ]] || compopt -o filenames 2>/dev/null
}}
complete -F _{name} {prog}
"""


def _bash(prog: str, verbs: Sequence[_Verb]) -> str:
    paths, values, found = [], [], []
    for verb in verbs:
        path = "".join(f"/{each}" for each in verb.path)
        if path:
            paths.append(f"            {path}) verb={path} ;;")
        for word in verb.words:
            if word.flags and word.takes:
                patterns = " | ".join(f'"{path} {flag}"' for flag in word.flags)
                values.append(f"        {patterns}) {_bash_words(word.choices, word.is_file)} ;;")
        flags = " ".join(flag for word in verb.words for flag in word.flags)
        arguments = [word for word in verb.words if not word.flags]
        offered = [name for name, _ in verb.below] + [choice for word in arguments for choice in word.choices]
        has_files = any(word.is_file for word in arguments)
        found.append(f'                "{path}") {_bash_words(offered, has_files)} flags="{flags}" ;;')
    lines = {"paths": paths, "values": values, "verbs": found}
    return _BASH.format(prog=prog, name=_function(prog), **{what: "\n".join(each) for what, each in lines.items()})


def _bash_words(words: Sequence[str], has_files: bool) -> str:
    return f'words="{" ".join(words)}"' + (" files=1" if has_files else "")


# -- zsh --------------------------------------------------------------------------------------------------------------

_ZSH = """\
#compdef {prog}
# Completes {prog} in zsh: eval "$({prog} completion zsh)", or as a file _{prog} in a folder of $fpath.
{functions}
if [[ $funcstack[1] == _{name} ]]; then _{name} "$@"; else compdef _{name} {prog}; fi
"""


def _zsh(prog: str, verbs: Sequence[_Verb]) -> str:
    functions = "\n".join(_zsh_function(_function(prog), verb) for verb in verbs)
    return _ZSH.format(prog=prog, name=_function(prog), functions=functions)


def _zsh_function(name: str, verb: _Verb) -> str:
    """The zsh function that completes what the user types after a verb."""
    specs = [spec for word in verb.words for spec in _zsh_specs(word)]
    own = "_".join([f"_{name}", *map(_function, verb.path)])
    if not verb.below:
        return f"{own}() {{\n    _arguments -s {' '.join(specs)}\n}}"
    offered = " ".join(_quoted(f"{each}:{_zsh_text(summary)}") for each, summary in verb.below)
    cases = "\n".join(f"            {each}) {own}_{_function(each)} ;;" for each, _ in verb.below)
    return f"""\
{own}() {{
    local context state state_descr line
    typeset -A opt_args
    _arguments -C {" ".join(specs)} '1:verb:->verb' '*::argument:->rest'
    case $state in
        verb)
            local -a verbs=({offered})
            _describe verb verbs
            ;;
        rest)
            case $line[1] in
{cases}
            esac
            ;;
    esac
}}"""


def _zsh_specs(word: _Word) -> Iterator[str]:
    """The specifications by which zsh's `_arguments` completes an option or an argument."""
    action = "_files" if word.is_file else f"({' '.join(word.choices)})" if word.choices else " "
    message = f":{_zsh_text(word.name)}:{action}"
    if not word.flags:
        yield _quoted(f"*{message}" if word.is_file else message)
    for flag in word.flags:
        joined = "=" if word.takes and flag.startswith("--") else ""
        yield _quoted(f"*{flag}{joined}[{_zsh_text(word.summary)}]" + (message if word.takes else ""))


def _zsh_text(text: str) -> str:
    return re.sub(r"([\[\]:\\])", r"\\\1", text)


# -- fish -------------------------------------------------------------------------------------------------------------

_FISH = """\
# Completes {prog} in fish: {prog} completion fish | source
function __{name}_at
    # Whether the verbs that are typed are these; with --below, and no others.
    set -l words
    for word in (commandline -opc)[2..]
        string match -q -- '-*' $word; or set -a words $word
    end
    argparse below -- $argv
    set -l depth (count $argv)
    set -q _flag_below; and test (count $words) -ne $depth; and return 1
    test $depth -eq 0; or test "$words[1..$depth]" = "$argv"
end
complete -c {prog} -f
{lines}
"""


def _fish(prog: str, verbs: Sequence[_Verb]) -> str:
    lines = []
    for verb in verbs:
        at = " ".join([f"__{_function(prog)}_at", *(["--below"] if verb.below else []), *verb.path])
        begin = f"complete -c {prog} -n {_quoted(at)}"
        lines += [f"{begin} -a {name} -d {_quoted(summary)}" for name, summary in verb.below]
        lines += [f"{begin} {_fish_word(word)}" for word in verb.words if word.flags or word.choices or word.is_file]
    return _FISH.format(prog=prog, name=_function(prog), lines="\n".join(lines))


def _fish_word(word: _Word) -> str:
    """The options of fish's `complete` for an option or an argument."""
    parts = [f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in word.flags]
    if word.takes:
        flags = "-x" if word.flags else ""
        parts.append("-r -F" if word.is_file and word.flags else "-F" if word.is_file else flags)
    if word.choices:
        parts.append(f"-a {_quoted(' '.join(word.choices))}")
    return " ".join([*filter(None, parts), f"-d {_quoted(word.summary)}"])


def _quoted(text: str) -> str:
    """Put text in single quotes, as all three shells read them; only fish gives backslashes a meaning there."""
    return "'" + text.replace("'", "'\\''") + "'"


def _function(word: str) -> str:
    """A text, such as a verb's name, as a part of a shell function's name: other characters than letters, digits and
    `_` become `_`.
    """
    return re.sub(r"\W", "_", word)


#: The function that makes the script, for each shell.
SHELLS: dict[str, Callable[[str, Sequence[_Verb]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
