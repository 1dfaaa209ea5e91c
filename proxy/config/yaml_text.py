"""YAML text becomes a tree (yaml_tree.py).

Law: nothing is guessed from a scalar's looks. YAML 1.1 reads `off` as false, `12:30` as 750, `1e3` as text and `010` as
8; here every scalar stays text. A duplicate key is refused, since YAML would drop one of the two in silence. Anchors
and merge keys work; what they unfold to is counted, so that a few lines cannot stand for billions of values.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from proxy.config.problems import Mark, Path, Problems
from proxy.config.yaml_tree import Map, Seq, Text

_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # libyaml is ten times faster, where PyYAML has it

#: More values than any real file holds: 1,000 upstreams with ten routes each are some 200,000.
MOST_VALUES = 2_000_000
#: The deepest key of ours is at level 9; kwargs of a custom strategy may add some.
DEEPEST = 60

TOO_DEEP = f"nested more than {DEEPEST} levels deep"
#: Levels that a composer's recursion takes on any stack.
_SURELY_SHALLOW = 1000

#: Tags that say what is so anyway: here the key decides how a scalar is read.
_TAGS = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in ("map", "seq", "str", "int", "float", "bool", "null", "timestamp", "merge")
)
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


def parse(text: str, file: str, problems: Problems) -> Any:
    """A document's tree, or None where it is empty or cannot be read (which `problems` then says)."""
    deep = too_deep(text)
    if deep is not None:
        problems.add(Mark(file, *deep), "", TOO_DEEP)
        return None
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
    except yaml.YAMLError as error:
        mark, message = _syntax(error, file, text)
        problems.add(mark, "", message)
        return None
    except (RecursionError, UnicodeError, ValueError) as error:
        problems.add(Mark(file, 1, 1), "", f"this is no YAML: {error or type(error).__name__}")
        return None
    finally:
        if loader is not None:
            loader.dispose()
    return None if node is None else from_node(node, file, problems)


def too_deep(text: str) -> tuple[int, int] | None:
    """(line, column) of the first collection above DEEPEST in a YAML text; None where there is none.

    Composing a text recurses in C, where nothing but the stack's end stops it, so depth is looked at beforehand, event
    by event. A text with few brackets and short lines cannot be so deep: each further block is indented more.
    """
    opened = text.count("[") + text.count("{")
    if opened + 2 * max(map(len, text.splitlines()), default=0) < _SURELY_SHALLOW:
        return None
    loader = None
    depth = 0
    try:
        loader = _Loader(text)
        while (event := loader.get_event()) is not None:
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > DEEPEST + 1:
                    at: Any = event.start_mark
                    return at.line + 1, at.column + 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    except (yaml.YAMLError, UnicodeError, ValueError):  # who reads on says so
        return None
    finally:
        if loader is not None:
            loader.dispose()
    return None


def from_node(node: yaml.Node, file: str, problems: Problems) -> Any:
    """The tree of a composed YAML node."""
    try:
        return _Conversion(file, problems).value(node, (), 0)
    except _TooMuchError as error:
        problems.add(error.mark, "", str(error))
        return None


class _TooMuchError(Exception):
    def __init__(self, mark: Mark, message: str) -> None:
        super().__init__(message)
        self.mark = mark


class _Conversion:
    """One pass over the composed nodes. Anchored nodes are converted once and shared, but counted each time."""

    def __init__(self, file: str, problems: Problems) -> None:
        self._file = file
        self._problems = problems
        self._count = 0
        self._done: dict[int, tuple[Any, int]] = {}
        self._open: set[int] = set()

    def value(self, node: yaml.Node, path: Path, depth: int) -> Any:
        mark = self._mark(node)
        if depth > DEEPEST:
            raise _TooMuchError(mark, TOO_DEEP)
        self._count += 1
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path, mark)
        known = self._done.get(id(node))
        if known is not None:
            self._count += known[1]
        if self._count > MOST_VALUES:
            raise _TooMuchError(mark, f"the aliases unfold to more than {MOST_VALUES:,} values")
        if known is not None:
            return known[0]
        if id(node) in self._open:
            raise _TooMuchError(mark, "an alias stands inside the very thing it names")
        self._open.add(id(node))
        before = self._count
        self._check_tag(node, path, mark)
        tree = self._mapping(node, path, depth) if isinstance(node, yaml.MappingNode) else self._list(node, path, depth)
        self._open.discard(id(node))
        self._done[id(node)] = tree, self._count - before
        return tree

    def _scalar(self, node: yaml.ScalarNode, path: Path, mark: Mark) -> Text | None:
        self._check_tag(node, path, mark)
        plain = not node.style
        if plain and node.value in _NULLS:
            return None
        return Text.make(node.value, plain=plain)

    def _list(self, node: yaml.Node, path: Path, depth: int) -> Seq:
        sequence = Seq(self._mark(node))
        for position, item in enumerate(node.value):
            sequence.put(self.value(item, (*path, position), depth + 1), self._mark(item))
        return sequence

    def _mapping(self, node: yaml.MappingNode, path: Path, depth: int) -> Map:
        mapping = Map(self._mark(node))
        merged: list[Map] = []
        for key_node, value_node in node.value:
            at = self._mark(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                self._problems.add(at, path, "a key must be plain text")
                continue
            key = key_node.value
            if key == "<<" and not key_node.style:
                merged += self._merge_key(value_node, path, depth)
                continue
            value = self.value(value_node, (*path, key), depth + 1)
            if key in mapping.keys_at:
                first = mapping.keys_at[key].line
                self._problems.add(at, (*path, key), f"duplicate key; it is already set in line {first}")
                continue
            mapping.put(key, value, at, self._mark(value_node))
        for other in merged:
            for key in other:
                if key not in mapping:
                    mapping.take(key, other)
        return mapping

    def _merge_key(self, node: yaml.Node, path: Path, depth: int) -> list[Map]:
        value = self.value(node, (*path, "<<"), depth + 1)
        maps = list(value) if isinstance(value, Seq) else [value]
        if not all(isinstance(each, Map) for each in maps):
            self._problems.add(self._mark(node), (*path, "<<"), "a merge key takes a mapping, or a list of them")
            return []
        return maps

    def _check_tag(self, node: yaml.Node, path: Path, mark: Mark) -> None:
        if node.tag not in _TAGS:
            self._problems.add(mark, path, f"the tag {node.tag} means nothing here")

    def _mark(self, node: yaml.Node) -> Mark:
        start = node.start_mark
        return Mark(self._file, start.line + 1, start.column + 1)


def _syntax(error: yaml.YAMLError, file: str, text: str) -> tuple[Mark, str]:
    """One clear line for what the parser says in several."""
    if isinstance(error, yaml.MarkedYAMLError):
        at = error.problem_mark or error.context_mark
        message = error.problem or "this is no YAML"
        if error.context and error.context_mark is not None:
            message += f" ({error.context} that began in line {error.context_mark.line + 1})"
        if at is not None and text.splitlines()[at.line : at.line + 1] and _char(text, at) == "\t":
            message = "a tab where YAML wants spaces; indent with spaces"
        begun = error.context_mark if "scanning an alias" in message else at
        if begun is not None and (remedy := _alias(message, text, begun)):
            message = remedy
        if "mapping values are not allowed" in message or "expected ':'" in message:
            message += "; a key's colon has a blank behind it, and a text with a colon and a blank in it is quoted"
        if at is not None and "${" in "".join(text.splitlines()[at.line : at.line + 1]):
            message += "; within { } or [ ] a ${NAME} stands in quotes"
        mark = Mark(file, at.line + 1, at.column + 1) if at is not None else Mark(file, 1, 1)
        return mark, f"this is no YAML: {_one_line(message)}"
    position = getattr(error, "position", None)
    if isinstance(position, int):
        before = text[:position]
        mark = Mark(file, before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1)
        return mark, f"this is no YAML: a character that must not stand here ({getattr(error, 'reason', 'unknown')})"
    return Mark(file, 1, 1), f"this is no YAML: {_one_line(str(error))}"


def _alias(message: str, text: str, at: yaml.Mark) -> str:
    """What to do where `*name` was read as an alias and names nothing, or no name; "" where that is not the trouble."""
    line = (text.splitlines()[at.line : at.line + 1] or [""])[0]
    found = re.match(r"\*[^\s,\]}]*", line[at.column :])
    undefined = "undefined alias" in message
    if found is None or not (undefined or "scanning an alias" in message):
        return ""
    if undefined and re.fullmatch(r"\*[\w-]+", found[0]):
        return (
            f"{found[0]} is an alias, and no anchor is called &{found[0][1:]} above it; a text is quoted: '{found[0]}'"
        )
    return f"a text that begins with * is quoted, else it is an alias: '{found[0]}'"


def _char(text: str, at: yaml.Mark) -> str:
    return text.splitlines()[at.line][at.column : at.column + 1]


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
