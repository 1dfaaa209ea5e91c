"""YAML nodes into values, with every mistake kept as a line that points at it.

Law: reading never stops at the first mistake and never raises for bad input; what could not be read is left at its
default and a `Problem` says where and why (contract, section 2: FILE:LINE:COLUMN: path: what is wrong).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import TypeVar

import yaml

from proxy.config.problems import Problem, did_you_mean, meant
from proxy.config.yaml_text import TOO_DEEP, too_deep

T = TypeVar("T")

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)([eE][-+]?[0-9]+)?(ms|s|m|h)")
_BYTES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE = re.compile(r"([0-9]+)\s*(B|KiB|MiB|GiB)?")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Reader:
    """Reads one file. `flaws` grows as mistakes are met."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.flaws: list[Problem] = []

    def wrong(self, node: yaml.Node | None, path: str, message: str) -> None:
        """Note a mistake at a node (at the file's beginning where there is none)."""
        mark = node.start_mark if node is not None else None
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        self.flaws.append(Problem(self.file, line, column, path, message))

    def compose(self, text: str) -> yaml.Node | None:
        """The document's root node, or None with a flaw."""
        deep = too_deep(text)
        if deep is not None:
            self.flaws.append(Problem(self.file, *deep, "", f"not YAML: {TOO_DEEP}"))
            return None
        try:
            root: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
            self.flaws.append(Problem(self.file, line, column, "", f"not YAML: {error.problem or error.context}"))
            return None
        except (yaml.YAMLError, RecursionError) as error:
            self.flaws.append(Problem(self.file, 1, 1, "", f"not YAML: {_one_line(error)}"))
            return None
        if root is None:
            self.wrong(None, "", "the file is empty")
        return root

    def mapping(self, node: yaml.Node, path: str, known: Iterable[str] | None) -> dict[str, yaml.Node]:
        """A mapping's values by key; `known` bounds the keys. Merge keys (<<) are folded in, the mapping's own win."""
        if not isinstance(node, yaml.MappingNode):
            self.wrong(node, path, f"should be a mapping, not {_kind(node)}")
            return {}
        names = None if known is None else list(known)
        own: dict[str, yaml.Node] = {}
        merged: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            if key.tag == "tag:yaml.org,2002:merge":
                merged.update({k: v for k, v in self.mapping(value, path, known).items() if k not in merged})
            elif not isinstance(key, yaml.ScalarNode):
                self.wrong(key, path, "a key should be a word")
            elif name in own:
                self.wrong(key, _join(path, name), "is given twice")
            elif names is not None and name not in names:
                self.wrong(key, _join(path, name), f"unknown key{meant(name, names)}")
            else:
                own[name] = value
        return {**merged, **own}

    def sequence(self, node: yaml.Node, path: str) -> list[yaml.Node]:
        """A list's nodes."""
        if not isinstance(node, yaml.SequenceNode):
            self.wrong(node, path, f"should be a list, not {_kind(node)}")
            return []
        return list(node.value)

    def each(self, node: yaml.Node, path: str, read: Callable[[yaml.Node, str], T | None]) -> list[T]:
        """A list of values; those that cannot be read are left out, with a flaw."""
        values = (read(item, f"{path}[{index}]") for index, item in enumerate(self.sequence(node, path)))
        return [value for value in values if value is not None]

    def text(self, node: yaml.Node, path: str) -> str | None:
        """A scalar as it is written; null is the empty text."""
        if not isinstance(node, yaml.ScalarNode):
            self.wrong(node, path, f"should be a text, not {_kind(node)}")
            return None
        return "" if is_null(node) else str(node.value)

    def number(self, node: yaml.Node, path: str) -> float | None:
        """A finite number."""
        text = self.text(node, path)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            self.wrong(node, path, f"should be a number, not {text!r}")
            return None
        return value

    def whole(self, node: yaml.Node, path: str) -> int | None:
        """A whole number from 0."""
        text = self.text(node, path)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit()):
            self.wrong(node, path, f"should be a whole number, not {text!r}")
            return None
        return int(text)

    def duration(self, node: yaml.Node, path: str) -> float | None:
        """Seconds, of `250ms`, `2s`, `1m`, `1h`; a bare 0 needs no unit."""
        text = self.text(node, path)
        if text is None:
            return None
        match = _DURATION.fullmatch(text)
        if match is not None:
            return float(match[1] + (match[2] or "")) * _SECONDS[match[3]]
        if text in ("0", "0.0"):
            return 0.0
        self.wrong(node, path, f"should be a duration such as 250ms, 2s, 1m or 1h, not {text!r}")
        return None

    def size(self, node: yaml.Node, path: str) -> int | None:
        """Bytes, of `1536`, `64KiB`, `1MiB`."""
        text = self.text(node, path)
        if text is None:
            return None
        match = _SIZE.fullmatch(text)
        if match is None:
            self.wrong(node, path, f"should be a size such as 1536, 64KiB or 1MiB, not {text!r}")
            return None
        return int(match[1]) * _BYTES[match[2] or ""]

    def choice(self, node: yaml.Node, path: str, choices: Iterable[str]) -> str | None:
        """One of some words."""
        text = self.text(node, path)
        known = list(choices)
        if text is None or text in known:
            return text
        self.wrong(node, path, f"{text!r} is none of {', '.join(known)}{did_you_mean(text, known)}")
        return None


def is_null(node: yaml.Node) -> bool:
    """Whether a node is YAML's null (`null`, `~` or nothing)."""
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    return "a list" if isinstance(node, yaml.SequenceNode) else f"{node.value!r}"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
