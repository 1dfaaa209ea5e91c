"""A YAML file as a tree that remembers where each value was written.

Nothing is guessed from a scalar's form. YAML 1.1 reads `off` as false, `12:30` as 750, `1e3` as text and `010` as 8;
here every scalar stays the text that was written, and its key decides how to read it (units.py). A duplicate key is
refused, because YAML would drop one of the two silently. Anchors and merge keys work; the values that they expand to
are counted, so that a few lines cannot stand for billions of values.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from proxy.config.problems import DEFAULT, Mark, Path, Problems

if TYPE_CHECKING:
    import yaml


class Text(str):
    """A scalar as it was written. `plain`: without quotes. `raw`: its text before ${NAME} was replaced, for messages,
    so that no secret from the environment is ever printed.
    """

    __slots__ = ("plain", "raw")
    plain: bool
    raw: str

    @classmethod
    def make(cls, value: str, *, plain: bool = True, raw: str | None = None) -> Text:
        """Make a text of `value`. `plain`: it was written without quotes; `raw`: its text before ${NAME} was
        replaced.
        """
        text = cls(value)
        text.plain = plain
        text.raw = value if raw is None else raw
        return text


class Map(dict[str, Any]):
    """A mapping. `keys_at` and `values_at` have the position of each key and value, `mark` is where it begins."""

    __slots__ = ("keys_at", "mark", "values_at")

    def __init__(self, mark: Mark = DEFAULT) -> None:
        super().__init__()
        self.mark = mark
        self.keys_at: dict[str, Mark] = {}
        self.values_at: dict[str, Mark] = {}

    @classmethod
    def of(cls, data: Mapping[Any, Any], mark: Mark = DEFAULT) -> Map:
        """Make a tree of Python data, every value of it at the same position."""
        made = cls(mark)
        for key, item in data.items():
            made.put(str(adopt(key, mark)), adopt(item, mark), mark)
        return made

    def put(self, key: str, value: Any, key_at: Mark, value_at: Mark | None = None) -> None:
        """Set a key. `key_at` and `value_at`: the positions of the key and of the value; without the latter, the
        value's position is the key's.
        """
        self[key] = value
        self.keys_at[key] = key_at
        self.values_at[key] = key_at if value_at is None else value_at

    def is_refused(self, key: str) -> bool:
        """Whether a key was written but could not be read. That was reported, so the key must not be reported as
        missing too.
        """
        return key in self.keys_at and key not in self

    def take(self, key: str, other: Map) -> None:
        """Set a key to the value that it has in the mapping `other`, with the positions recorded there."""
        self.put(key, other[key], other.keys_at[key], other.values_at[key])

    def copy(self) -> Map:
        """A shallow copy that keeps the positions."""
        new = Map(self.mark)
        new.update(self)
        new.keys_at = dict(self.keys_at)
        new.values_at = dict(self.values_at)
        return new

    def without(self, *keys: str) -> Map:
        """A shallow copy of this mapping without the given keys; all positions are kept."""
        new = self.copy()
        for key in keys:
            new.pop(key, None)
        return new

    def sub(self, key: str) -> Map:
        """The mapping that is the value of `key`; an empty one if the key is missing or its value is no mapping."""
        found = self.get(key)
        return found if isinstance(found, Map) else Map(self.mark)


class Seq(list[Any]):
    """A list. `marks` has the position of each item, `mark` is where the list begins."""

    __slots__ = ("mark", "marks")

    def __init__(self, mark: Mark) -> None:
        super().__init__()
        self.mark = mark
        self.marks: list[Mark] = []

    def put(self, value: Any, mark: Mark) -> None:
        """Append an item together with its position."""
        self.append(value)
        self.marks.append(mark)


def adopt(value: Any, mark: Mark = DEFAULT) -> Any:
    """Make a tree of Python data, every value of it at the same position, for a configuration that was not read from a
    file.
    """
    if isinstance(value, Map | Seq | Text) or value is None:
        return value
    if isinstance(value, Mapping):
        return Map.of(value, mark)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        sequence = Seq(mark)
        for item in value:
            sequence.put(adopt(item, mark), mark)
        return sequence
    if isinstance(value, bool):
        return Text.make("true" if value else "false")
    return Text.make(str(value), plain=not isinstance(value, str))


def mark_at(tree: Any, path: Path) -> Mark:
    """The file and line of the value at `path` in a tree; if there is no such value, those of the innermost mapping or
    list on the way to it.
    """
    found: Mark = getattr(tree, "mark", DEFAULT)
    for part in path:
        if isinstance(tree, Map) and part in tree:
            assert isinstance(part, str)
            found, tree = tree.values_at[part], tree[part]
        elif isinstance(tree, Seq) and isinstance(part, int) and part < len(tree):
            found, tree = tree.marks[part], tree[part]
        else:
            break
    return found


def lay(over: Map, under: Map, worked_out: Mapping[str, Any] | None = None) -> Map:
    """Lay `over` over `under`, two layers of a configuration: mappings are merged, every other value replaces the one
    below. Neither is changed, and every value keeps its position, so that the result can say where each comes from
    (provenance.py).

    `worked_out` has values that are set instead of those of `over`; None leaves the inherited value.
    """
    result = under.copy()
    if over.mark.line or not under.mark.line:
        result.mark = over.mark
    for key, value in over.items():
        below = result.get(key)
        if worked_out and key in worked_out:
            if worked_out[key] is not None:
                result.put(key, worked_out[key], over.keys_at[key], over.values_at[key])
        elif isinstance(value, Map) and isinstance(below, Map):
            result.put(key, lay(value, below), over.keys_at[key], over.values_at[key])
        else:
            result.take(key, over)
    if len(over.keys_at) > len(over):  # refused keys: their positions show that they were reported
        for key, at in over.keys_at.items():
            result.keys_at.setdefault(key, at)
    return result


# -- from a file -------------------------------------------------------------------------------------------------------

#: The most bytes of a file: a larger one is a mistake (a log, an image), and reading it would block the process.
LARGEST = 64 * 1024 * 1024
#: The bytes that are read of a file at a time.
_PIECE = 64 * 1024
#: The most values of a file, more than any real one has: 1,000 upstreams with ten routes each are some 200,000.
MOST_VALUES = 2_000_000
#: The most levels of nesting: our deepest key is at level 9, and arguments of a custom strategy may add some.
DEEPEST = 60

#: Tags that are allowed and have no effect: the key decides how a scalar is read.
_TAGS = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in ("map", "seq", "str", "int", "float", "bool", "null", "timestamp", "merge")
) | {None, "!"}
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


def read_text(file: str, problems: Problems, *, named_at: Mark | None = None, path: str = "") -> str | None:
    """The text of a file, or None if it cannot be read, which is reported. `named_at` and `path` are the position and
    the key that name the file, for the report; without them, the report names the file alone.
    """
    at = named_at if named_at is not None and named_at.line else Mark(file, 1, 1)
    lead = "" if at.file == file else f"{file}: "
    try:
        data = read_start(file)
        if len(data) > LARGEST:
            problems.add(
                at, path, f"{lead}larger than {LARGEST // 1024 // 1024} MiB, which is too large for a configuration"
            )
            return None
    except IsADirectoryError:
        problems.add(at, path, f"{lead}this is a directory, not a file{_hint_of(file)}")
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problems.add(at, path, f"{lead}cannot be read: {reason[:1].lower()}{reason[1:]}")
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = error.start - (before.rfind(b"\n") + 1) + 1
        kind = "UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else f"byte 0x{data[error.start]:02x}"
        problems.add(Mark(file, line, column), "", f"this is not UTF-8 ({kind}); save the file as UTF-8")
        return None


def _hint_of(folder: str) -> str:
    """The YAML files of a folder that was named in the place of a file, as a question; "" if it has none."""
    try:
        found = sorted(each.name for each in pathlib.Path(folder).glob("*.yaml"))
    except OSError:
        return ""
    if not found:
        return ""
    if len(found) > 1 and "redrive.yaml" not in found:
        return f" (did you mean one of {pathlib.Path(folder, '*.yaml')}?)"
    return f" (did you mean {pathlib.Path(folder, found[0] if len(found) == 1 else 'redrive.yaml')}?)"


def read_start(file: str) -> bytes:
    """The bytes of a file, at most one more than LARGEST: a device has no size, and no end either. Raises OSError."""
    return b"".join(pieces(file))


def pieces(file: str) -> Iterator[bytes]:
    """The same bytes in pieces, so that what is allocated is in proportion to the file. Raises OSError."""
    with pathlib.Path(file).open("rb", buffering=0) as source:
        left = LARGEST + 1
        while left and (piece := source.read(min(left, _PIECE))):
            left -= len(piece)
            yield piece


def is_file(name: str) -> bool:
    """Whether there is a file of this name; False for a name that no file system accepts."""
    try:
        return pathlib.Path(name).is_file()
    except (OSError, ValueError):
        return False


#: The kinds of files that users write, each with the keys that no other kind has, and with what it is, in words.
_KINDS = {
    "configuration": (
        ("version", "listen", "admin", "workers", "include", "defaults", "upstreams"),
        "this is a configuration: `redrive check -c FILE` reads it",
    ),
    "tests": (("tests",), "these are policy tests: `redrive test FILE` runs them"),
    "scenario": (("outages", "sidecars", "calls"), "this is a scenario: `redrive simulate --scenario FILE` plays it"),
}


def mistaken(tree: Map, asked: str) -> str:
    """Say what this file is, if it was given in place of another kind; "" if it may be of the kind `asked`, one of
    _KINDS.
    """
    kinds = [kind for kind, (keys, _) in _KINDS.items() if any(key in tree for key in keys)]
    return "" if asked in kinds or not kinds else _KINDS[kinds[0]][1]


def parse(text: str, file: str, problems: Problems) -> Any:
    """The tree of a YAML document, whose text is `text` and whose name, in places, is `file`; None if the document is
    empty or cannot be read (which is added to `problems`).
    """
    from proxy.config import yaml_library  # imported late: a process that gets trees needs no parser

    yaml_library.import_yaml()
    import yaml

    loader, builder = None, _Builder(file)
    take: dict[type[yaml.Event], Callable[[Any], None]] = {
        yaml.DocumentStartEvent: builder.document,
        yaml.ScalarEvent: builder.scalar,
        yaml.AliasEvent: builder.alias,
        yaml.MappingStartEvent: partial(builder.begin, Map),
        yaml.MappingEndEvent: builder.end,
        yaml.SequenceStartEvent: partial(builder.begin, Seq),
        yaml.SequenceEndEvent: builder.end,
    }
    try:
        loader = yaml_library.parser(text)
        while (event := loader.get_event()) is not None:
            if (taken := take.get(type(event))) is not None:
                taken(event)
    except _RefusedError as error:
        problems.add(error.mark, "", str(error))
        return None
    except yaml.YAMLError as error:
        from proxy.config.yaml_errors import syntax  # late: few processes see an error

        mark, message = syntax(error, file, text)
        problems.add(mark, "", message)
        return None
    except (UnicodeError, ValueError) as error:
        problems.add(Mark(file, 1, 1), "", f"this is not valid YAML: {error or type(error).__name__}")
        return None
    finally:
        if loader is not None:
            loader.dispose()
    for flaw in builder.flaws:
        problems.add(*flaw)
    return builder.root


class _RefusedError(Exception):
    """Raised if a document is valid YAML, but no configuration could be made of it; the text is the error message."""

    def __init__(self, mark: Mark, message: str) -> None:
        super().__init__(message)
        self.mark = mark


@dataclass(slots=True)
class _Open:
    """A collection (mapping or list) that the builder has begun and whose end has not come. `key` is the key of the
    next value (None: a key comes next, or the key was refused); `before` is the number of values in the document that
    came before the collection.
    """

    tree: Map | Seq
    anchor: str | None
    before: int
    key: str | None = None
    key_at: Mark | None = None
    plain: bool = False
    merged: list[Map] = field(default_factory=list)


class _Builder:
    """A builder of a tree from a parser's events. A value with an anchor is made once and shared, but counted each
    time. There is no recursion, so that a document nested too deeply is refused at DEEPEST and cannot exhaust the
    stack.
    """

    def __init__(self, file: str) -> None:
        self.root: Any = None
        self.flaws: list[tuple[Mark, Path, str]] = []
        self._file = file
        self._count = 0
        self._open: list[_Open] = []
        #: Each anchor's position, its value (an _Open until its end has been read), and the number of values in it.
        self._anchored: dict[str, tuple[yaml.Mark, Any, int]] = {}
        self._document: yaml.Mark | None = None

    def document(self, event: Any) -> None:
        if self._document is not None:
            began = self._document.line + 1
            message = f"this is a second YAML document (the first began on line {began}): a file has one"
            raise _RefusedError(self._mark(event.start_mark), message)
        self._document = event.start_mark

    def scalar(self, event: Any) -> None:
        mark, plain = self._mark(event.start_mark), not event.style
        if event.anchor:
            self._anchor(event, Text.make(event.value, plain=plain))
        if self._wants_key:
            self._key(event.value, plain, mark)
            return
        self._counted(event, mark)
        self._value(None if plain and event.value in _NULLS else Text.make(event.value, plain=plain), mark)

    def alias(self, event: Any) -> None:
        if event.anchor not in self._anchored:
            raise _composing(None, None, "found undefined alias", event)
        at, value, inside = self._anchored[event.anchor]
        mark = self._mark(at)
        if self._wants_key:
            text = value if isinstance(value, Text) else None
            self._key(text, text is None or text.plain, mark)
            return
        self._count_in(1 + inside, mark)
        if isinstance(value, _Open):
            raise _RefusedError(mark, "an alias is inside the value that it names")
        self._value(None if isinstance(value, Text) and value.plain and value in _NULLS else value, mark)

    def begin(self, kind: type[Map] | type[Seq], event: Any) -> None:
        tree = kind(self._mark(event.start_mark))
        self._counted(event, tree.mark)
        opened = _Open(tree, event.anchor, self._count)
        if event.anchor:
            self._anchor(event, opened)
        self._open.append(opened)

    def end(self, event: Any) -> None:
        """End the innermost collection, and add it to the one around it."""
        done = self._open.pop()
        tree = done.tree
        if isinstance(tree, Map):
            for other in done.merged:
                for key in other:
                    if key not in tree:
                        tree.take(key, other)
        if done.anchor is not None:
            self._anchored[done.anchor] = self._anchored[done.anchor][0], tree, self._count - done.before
        if self._wants_key:
            self._key(None, False, tree.mark)
        else:
            self._value(tree, tree.mark)

    @property
    def _wants_key(self) -> bool:
        """Whether the next value in the document is a key of the innermost mapping, and not a value or an item."""
        return bool(self._open) and self._open[-1].key_at is None and isinstance(self._open[-1].tree, Map)

    def _counted(self, event: Any, mark: Mark) -> None:
        """Count a value that is not an alias: report a tag that has no meaning, and refuse the document if it is nested
        too deeply or contains too many values.
        """
        if len(self._open) > DEEPEST:
            raise _RefusedError(mark, f"nested more than {DEEPEST} levels deep")
        self._count_in(1, mark)
        if event.tag not in _TAGS:
            self.flaws.append((mark, self._path(), f"the tag {event.tag} has no meaning here"))

    def _count_in(self, more: int, mark: Mark) -> None:
        self._count += more
        if self._count > MOST_VALUES:
            raise _RefusedError(mark, f"the aliases expand to more than {MOST_VALUES:,} values")

    def _anchor(self, event: Any, value: Any) -> None:
        if event.anchor in self._anchored:
            first = self._anchored[event.anchor][0]
            message = f"the anchor &{event.anchor} is already on line {first.line + 1}: give this one another name"
            raise _RefusedError(self._mark(event.start_mark), message)
        self._anchored[event.anchor] = event.start_mark, value, 0

    def _key(self, key: str | None, plain: bool, mark: Mark) -> None:
        if key is None:
            self.flaws.append((mark, self._path(), "a key must be plain text"))
        top = self._open[-1]
        top.key, top.key_at, top.plain = key, mark, plain

    def _value(self, value: Any, mark: Mark) -> None:
        if not self._open:
            self.root = value
            return
        top = self._open[-1]
        tree, key, at = top.tree, top.key, top.key_at
        if isinstance(tree, Seq):
            tree.put(value, mark)
            return
        if key is None or at is None:
            pass  # the key was refused
        elif key == "<<" and top.plain:
            maps = list(value) if isinstance(value, Seq) else [value]
            if all(isinstance(each, Map) for each in maps):
                top.merged += maps
            else:
                self.flaws.append((mark, self._path(), "a merge key takes a mapping, or a list of them"))
        elif key in tree.keys_at:
            message = f"duplicate key; it is already set on line {tree.keys_at[key].line}"
            self.flaws.append((at, self._path(), message))
        else:
            tree.put(key, value, at, mark)
        top.key = top.key_at = None

    def _path(self) -> Path:
        steps = (len(each.tree) if isinstance(each.tree, Seq) else each.key for each in self._open)
        return tuple(step for step in steps if step is not None)

    def _mark(self, at: yaml.Mark) -> Mark:
        return Mark(self._file, at.line + 1, at.column + 1)


def _composing(context: str | None, began: yaml.Mark | None, problem: str, event: Any) -> Exception:
    """Make the exception that PyYAML's composer would raise, so that its errors and the builder's are reported alike.
    `context`: the text that says what was being read, which `began` there; `problem`: what is wrong with `event`.
    """
    from yaml.composer import ComposerError

    return ComposerError(context, began, problem, event.start_mark)
