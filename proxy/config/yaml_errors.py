"""Syntax errors of YAML, told to the author of a configuration: the place to mend, in plain words, with the remedy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from proxy.config.problems import Mark

if TYPE_CHECKING:
    import yaml


def syntax(error: yaml.YAMLError, file: str, text: str) -> tuple[Mark, str]:
    """The position of a syntax error in `file`, whose contents are `text`, and one clear line for the parser's message
    of several lines.
    """
    import yaml

    mark, message = Mark(file, 1, 1), str(error)
    if isinstance(error, yaml.MarkedYAMLError):
        at = error.problem_mark or error.context_mark
        if "expected ':'" in (error.problem or ""):  # the line that lacks it, not the one after
            at = error.context_mark or at
        line = _line(text, at)
        message = error.problem or "this is not valid YAML"
        if error.context and error.context_mark is not None and not error.context.endswith(" node"):
            message += f" ({error.context} that began on line {error.context_mark.line + 1})"
        if at is not None and line[at.column : at.column + 1] == "\t":
            message = "a tab where YAML needs spaces; indent with spaces"
        is_apart = "expected ','" in message or "while scanning an a" in message  # what an alias or anchor lacks
        if at is not None and line[at.column : at.column + 1] in _CLOSING and not is_apart:
            message = f"a {line[at.column]} that closes nothing, or comes before a value"
        begun = error.context_mark if "scanning an alias" in message else at
        if begun is not None and (remedy := _alias(message, _line(text, begun)[begun.column :])):
            message = remedy
        if "mapping values are not allowed" in message:
            message += f"; {_misplaced(text, at)}"
        elif "expected ':'" in message:
            message += f"; {_COLON}"
        if "expected ',' or" in message and "${" not in line:
            message += "; quote text that contains a colon and a space, or a comma"
        message = _in_plain_words(message)
        if "${" in line:
            message += "; inside { } or [ ], put ${NAME} in quotes"
        if at is not None:
            mark = _within(file, text, at)
    elif isinstance(position := getattr(error, "position", None), int):
        before = text[:position]
        mark = Mark(file, before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1)
        message = f"a character that is not allowed here ({getattr(error, 'reason', 'unknown')})"
    return mark, f"this is not valid YAML: {' '.join(message.split())}"


def _within(file: str, text: str, at: yaml.Mark) -> Mark:
    """The position of an error at `at`, or the end of the last line with more than a comment, if `at` is after it."""
    lines = text.splitlines()
    filled = [number for number, line in enumerate(lines) if _CONTENT.match(line)]
    if not filled or at.line <= filled[-1]:
        return Mark(file, at.line + 1, at.column + 1)
    return Mark(file, filled[-1] + 1, len(lines[filled[-1]]) + 1)


def _misplaced(text: str, at: yaml.Mark | None) -> str:
    """The remedy for a colon and a space at `at`, where YAML allows no key: what to do about the line, or about the one
    above it.
    """
    line = _line(text, at)
    if at is None or re.search(r":\s", line[: at.column]):  # the line has a key already
        return _COLON
    above = [(number, each) for number, each in enumerate(text.splitlines()[: at.line], 1) if _CONTENT.match(each)]
    if not above or _width(above[-1][1]) >= _width(line):
        return _COLON
    number, each = above[-1]
    if re.search(r":\s", each):
        return f"line {number} has a value already, so indent this line like that one"
    return f"put a colon after the key on line {number}, or indent this line less"


def _width(line: str) -> int:
    """How far a line is indented, the marks of a list counted as spaces."""
    return len(line) - len(line.lstrip(" -"))


#: A line that has more than a comment.
_CONTENT = re.compile(r"\s*[^\s#]")
#: The remedy for a colon that is not read as it was meant.
_COLON = "put a space after a key's colon, and quote text that contains a colon and a space"
#: The marks that close a mapping or a list within a line.
_CLOSING = ("}", "]")
#: PyYAML's messages for errors that people make often, each with its meaning.
_PLAIN_WORDS = (
    (
        "did not find expected key",
        "the line is indented neither as the one above it nor under it, or a quote is missing",
    ),
    ("could not find expected ':'", "a key without a colon and a space after it"),
    ("did not find expected ',' or '}'", "a comma or the closing } is missing"),
    ("did not find expected ',' or ']'", "a comma or the closing ] is missing"),
    ("expected ',' or '}'", "a comma or the closing } is missing"),
    ("expected ',' or ']'", "a comma or the closing ] is missing"),
    ("did not find expected node content", "a value is missing, or what stands here can't begin one"),
    ("found unexpected end of stream", "the file ends before this is closed"),
    ("found character '%' that cannot start any token", "text that begins with % must be quoted"),
    ("found character '@' that cannot start any token", "text that begins with @ must be quoted"),
    ("found character '`' that cannot start any token", "text that begins with ` must be quoted"),
    ("found character that cannot start any token", "text that begins with @, ` or % must be quoted"),
    ("block sequence entries are not allowed in this context", "a list's - where none can be: begin it on a new line"),
    ("did not find expected <document start>", "text after the end of the document"),
    ("did not find expected alphabetic or numeric character", "a name is missing"),
    ("found unknown escape character", "a \\ that means nothing here: put it twice, or use single quotes"),
    ("while parsing a quoted scalar", "in the quoted text"),
    ("mapping values are not allowed in this context", "a colon and a space where no key can be"),
    ("while scanning a simple key", "in the line"),
    ("while scanning a quoted scalar", "the quoted text"),
    ("while scanning for the next token", "in the text"),
    ("while parsing a block mapping", "in the keys"),
    ("while parsing a block collection", "in the list"),
    ("while parsing a flow mapping", "in the { }"),
    ("while parsing a flow sequence", "in the [ ]"),
    ("while scanning", "in"),
)


def _in_plain_words(message: str) -> str:
    """A message of PyYAML's, reworded for the author of a configuration."""
    for theirs, ours in _PLAIN_WORDS:
        message = message.replace(theirs, ours)
    return message


def _alias(message: str, rest: str) -> str:
    """Advice for text that begins with `*` and was therefore read as a YAML alias: to quote it. "" if PyYAML's
    `message` is about another error. `rest` is the line from the `*` on.
    """
    found = re.match(r"\*[^\s,\]}]*", rest)
    undefined = "undefined alias" in message
    if found is None or not (undefined or "scanning an alias" in message):
        return ""
    if undefined and re.fullmatch(r"\*[\w-]+", found[0]):
        none = f"{found[0]} is an alias, but there is no anchor &{found[0][1:]} above it"
        return f"{none}; if it is text, quote it: '{found[0]}'"
    return f"text that begins with * must be quoted, or it is an alias: '{found[0]}'"


def _line(text: str, at: yaml.Mark | None) -> str:
    """The line of a text in which a mark is; "" if there is none."""
    return "" if at is None else (text.splitlines()[at.line : at.line + 1] or [""])[0]
