"""A small language for what a file may hold: words, lists, mappings, sections with known keys.

Law: one table (schema.py) is the file format, the check of it and its JSON Schema. Reading never stops at the first
mistake: each is told with its place, the key that holds it is dropped, and the rest is read on, so that one pass
collects all there is to say. A key that stands there with nothing behind it is as if it were absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from proxy.config.blanks import stray_blank
from proxy.config.problems import Mark, Path, meant
from proxy.config.units import word as any_word
from proxy.config.units import written
from proxy.config.yaml_tree import Map, Seq

#: What a value that was refused reads as.
BAD = object()
#: Takes the place, the path and what is wrong.
Tell = Callable[[Mark, Path, str], None]
#: Named parts of a JSON Schema, filled while it is made.
Definitions = dict[str, Any]


class Form(Protocol):
    """What a value must look like."""

    def read(self, tree: Any, at: Mark, path: Path, tell: Tell) -> Any:
        """The typed value, or BAD where something was told."""
        ...

    def schema(self, named: Definitions) -> dict[str, Any]:
        """The JSON Schema of it."""
        ...


@dataclass(frozen=True, slots=True)
class Word:
    """A scalar, read by `reader`; `json` is its JSON Schema."""

    reader: Callable[[Any], Any]
    json: Mapping[str, Any]

    def read(self, tree: Any, at: Mark, path: Path, tell: Tell) -> Any:
        """What the reader makes of it."""
        try:
            return self.reader(tree)
        except ValueError as error:
            tell(at, path, stray_blank(tree, self.reader) or str(error))
            return BAD

    def schema(self, named: Definitions) -> dict[str, Any]:
        """As given."""
        return dict(self.json)


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list; one bad item makes the whole of it bad."""

    item: Form

    def read(self, tree: Any, at: Mark, path: Path, tell: Tell) -> Any:
        """A tuple of what the items read as."""
        if not isinstance(tree, Seq):
            hint = f" (did you mean [{tree}]?)" if isinstance(tree, str) else ""
            tell(at, path, f"must be a list, not {written(tree)}{hint}")
            return BAD
        items = [self.item.read(item, tree.marks[n], (*path, n), tell) for n, item in enumerate(tree)]
        return BAD if any(item is BAD for item in items) else tuple(items)

    def schema(self, named: Definitions) -> dict[str, Any]:
        """An array."""
        return {"type": "array", "items": self.item.schema(named)}


@dataclass(frozen=True, slots=True)
class MapOf:
    """A mapping with names of the user's own. `key` reads them; `caseless`: one in any case, and there once."""

    value: Form
    key: Callable[[Any], Any] = any_word
    caseless: bool = False

    def read(self, tree: Any, at: Mark, path: Path, tell: Tell) -> Any:
        """A dict of what the values read as, by the keys as written; bad ones are dropped, here and in the tree."""
        if not isinstance(tree, Map):
            # A text is not repeated: where header values belong, it may well be one, and a secret.
            tell(at, path, f"must be a mapping, not {'a text' if isinstance(tree, str) else written(tree)}")
            return BAD
        found: dict[str, Any] = {}
        spelled: dict[str, str] = {}
        for name in list(tree):
            if tree[name] is None and isinstance(self.value, Section):
                tree[name] = Map(tree.keys_at[name])
            try:
                self.key(name)
            except ValueError as error:
                tell(tree.keys_at[name], (*path, name), stray_blank(name, self.key) or str(error))
                tree.drop(name)
                continue
            twin = spelled.get(name.lower()) if self.caseless else None
            if twin is not None:
                tell(tree.keys_at[name], (*path, name), f"duplicate key; line {tree.keys_at[twin].line} has {twin}")
                continue
            value = self.value.read(tree[name], tree.values_at[name], (*path, name), tell)
            if value is BAD:
                tree.drop(name)
            else:
                found[name] = value
                spelled.setdefault(name.lower(), name)
        return found

    def schema(self, named: Definitions) -> dict[str, Any]:
        """An object."""
        return {"type": "object", "additionalProperties": self.value.schema(named)}


@dataclass(frozen=True, slots=True)
class Anything:
    """A mapping that is judged elsewhere."""

    def read(self, tree: Any, at: Mark, path: Path, tell: Tell) -> Any:
        """The tree as it is."""
        return tree

    def schema(self, named: Definitions) -> dict[str, Any]:
        """An object."""
        return {"type": "object"}


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a section. `default` is spelled as a user would; None is a key without one."""

    form: Form
    default: Any = None
    doc: str = ""
    required: bool = False


@dataclass(frozen=True)
class Section:
    """A mapping whose every key is known (unless `open`: the others are judged elsewhere).

    `belongs`: where keys that people look for here are to be written.
    """

    name: str
    doc: str
    keys: Mapping[str, Key]
    open: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)
    belongs: Mapping[str, str] = field(default_factory=dict)

    def read(self, tree: Any, at: Mark, path: Path, tell: Tell) -> Any:
        """A dict of the keys that are there; bad ones are dropped, here and in the tree."""
        if not isinstance(tree, Map):
            tell(at, path, f"must be a mapping, not {written(tree)}")
            return BAD
        found: dict[str, Any] = {}
        for name in list(tree):
            key = self.keys.get(name)
            if key is None:
                if not self.open:
                    there = self.belongs.get(name)
                    head = name.partition(":")[0].strip()
                    if head != name and head in self.keys:  # `url:http://…`, or a blank too many
                        there = f"{head}: …, with a blank behind the colon" if ":" in name else head
                    hint = f" (did you mean {there}?)" if there else meant(name, self.keys, self._many_keys)
                    tell(tree.keys_at[name], (*path, name), f"unknown key{hint}")
                    tree.drop(name)
            elif tree[name] is None:
                tree.drop(name)
            else:
                value = key.form.read(tree[name], tree.values_at[name], (*path, name), tell)
                if value is BAD:
                    tree.drop(name)
                else:
                    found[name] = value
        missing = [name for name, key in self.keys.items() if key.required and name not in found]
        for name in missing:
            if name not in tree.keys_at:  # what was there and bad has been told
                doc = self.keys[name].doc
                tell(at, (*path, name), f"is missing: {doc}" if doc else "is missing")
        return BAD if missing else found

    @property
    def _many_keys(self) -> str:
        """Where to look a key up, where there are too many of them for one line."""
        return "redrive schema lists all keys" if len(self.keys) > 12 else ""

    def schema(self, named: Definitions) -> dict[str, Any]:
        """A reference to an object among `named`."""
        if self.name not in named:
            named[self.name] = {}
            properties = {}
            for name, key in self.keys.items():
                part = key.form.schema(named)
                extra = {k: v for k, v in (("description", key.doc), ("default", key.default)) if v not in ("", None)}
                properties[name] = {"allOf": [part], **extra} if "$ref" in part and extra else part | extra
            shape: dict[str, Any] = {"type": ["object", "null"], "description": self.doc, "properties": properties}
            if not self.open:
                shape["additionalProperties"] = False
            if required := [name for name, key in self.keys.items() if key.required]:
                shape["required"] = required
            named[self.name] = shape | dict(self.more)
        return {"$ref": f"#/$defs/{self.name}"}

    def defaults(self) -> dict[str, Any]:
        """The defaults of all keys, as a user would spell them; keys without one are left out."""
        tree: dict[str, Any] = {}
        for name, key in self.keys.items():
            section = key.form.mapping if isinstance(key.form, Either) else key.form
            if key.default is not None:
                tree[name] = key.default
            elif isinstance(section, Section) and (inner := section.defaults()):
                tree[name] = inner
        return tree


@dataclass(frozen=True, slots=True)
class Either:
    """A value whose shape says what it is."""

    word: Form | None = None
    list: Form | None = None
    mapping: Form | None = None

    def read(self, tree: Any, at: Mark, path: Path, tell: Tell) -> Any:
        """What the form for its shape makes of it."""
        form = self.mapping if isinstance(tree, Map) else self.list if isinstance(tree, Seq) else self.word
        if form is None:
            names = (("a word", self.word), ("a list", self.list), ("a mapping", self.mapping))
            wanted = " or ".join(name for name, each in names if each is not None)
            tell(at, path, f"must be {wanted}, not {written(tree)}")
            return BAD
        return form.read(tree, at, path, tell)

    def schema(self, named: Definitions) -> dict[str, Any]:
        """Any of them."""
        forms = (self.word, self.list, self.mapping)
        return {"anyOf": [form.schema(named) for form in forms if form is not None]}
