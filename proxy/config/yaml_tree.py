"""A configuration as a tree that remembers where each value was written.

Law: every scalar stays the text that was written; the key it stands for decides how to read it (units.py). A process
that is handed a tree needs no YAML (yaml_text.py makes trees of it).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proxy.config.problems import DEFAULT, Mark, Path


class Text(str):
    """A scalar as it was written. `plain`: without quotes. `raw`: before ${NAME} was replaced, for messages, so that
    no secret from the environment is ever printed.
    """

    __slots__ = ("plain", "raw")
    plain: bool
    raw: str

    @classmethod
    def make(cls, value: str, *, plain: bool = True, raw: str | None = None) -> Text:
        """A text with its two remarks."""
        text = cls(value)
        text.plain = plain
        text.raw = value if raw is None else raw
        return text


class Map(dict[str, Any]):
    """A mapping; `keys_at` and `values_at` remember where each key and value stands, `mark` where it begins."""

    __slots__ = ("keys_at", "mark", "values_at")

    def __init__(self, mark: Mark = DEFAULT) -> None:
        super().__init__()
        self.mark = mark
        self.keys_at: dict[str, Mark] = {}
        self.values_at: dict[str, Mark] = {}

    def put(self, key: str, value: Any, key_at: Mark, value_at: Mark) -> None:
        """Set a key together with its places."""
        self[key] = value
        self.keys_at[key] = key_at
        self.values_at[key] = value_at

    def take(self, key: str, other: Map) -> None:
        """Set a key as another mapping has it, places included."""
        self.put(key, other[key], other.keys_at[key], other.values_at[key])

    def drop(self, key: str) -> None:
        """Take a key out, if it is there."""
        self.pop(key, None)

    def copy(self) -> Map:
        """A shallow copy that keeps the places."""
        new = Map(self.mark)
        new.update(self)
        new.keys_at = dict(self.keys_at)
        new.values_at = dict(self.values_at)
        return new


class Seq(list[Any]):
    """A list; `marks` remember where each item stands, `mark` where the list begins."""

    __slots__ = ("mark", "marks")

    def __init__(self, mark: Mark = DEFAULT) -> None:
        super().__init__()
        self.mark = mark
        self.marks: list[Mark] = []

    def put(self, value: Any, mark: Mark) -> None:
        """Append an item together with its place."""
        self.append(value)
        self.marks.append(mark)


def adopt(value: Any, mark: Mark = DEFAULT) -> Any:
    """Python data as a tree, every value at the same place. For configurations that were not read from a file."""
    if isinstance(value, Map | Seq | Text) or value is None:
        return value
    if isinstance(value, Mapping):
        mapping = Map(mark)
        for key, item in value.items():
            mapping.put(str(adopt(key, mark)), adopt(item, mark), mark, mark)
        return mapping
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        sequence = Seq(mark)
        for item in value:
            sequence.put(adopt(item, mark), mark)
        return sequence
    if isinstance(value, bool):
        return Text.make("true" if value else "false")
    return Text.make(str(value), plain=not isinstance(value, str))


def place(tree: Any, path: Path) -> Mark:
    """Where the value at a path stands; the nearest thing around it where there is no such value."""
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
