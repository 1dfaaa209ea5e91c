"""A small language for what a file may contain: words, lists, mappings, sections with known keys.

One table (schema.py) is the file format, the check of it and its JSON Schema. Reading never stops at the first mistake:
each one is reported with its place, the key that contains it is dropped, and the rest is read, so that one pass
collects everything. A key with nothing after it counts as absent if its value is a list or a mapping, as in
`upstreams:` with all upstreams commented out; if its value can be a word, it is a mistake.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from proxy.config.problems import DEFAULT, Mark, Path, meant, nearest
from proxy.config.units import guess, written
from proxy.config.units import word as any_word
from proxy.config.yaml_tree import Map, Seq, adopt

#: The result of reading a value that was refused.
BAD = object()
#: A function that reports an error: it takes the place, the path and what is wrong.
Report = Callable[[Mark, Path, str], None]
#: The error for a key with nothing after it if its value can be a word.
EMPTY = "has nothing after it: write a value, or leave the key out"
#: Words that elsewhere in the file mean "none"; for a list, that is [].
_NOTHING = ("off", "no", "none", "false")
#: Named parts of a JSON Schema, filled while it is made.
Definitions = dict[str, Any]


def may_be_empty(form: Form) -> bool:
    """Whether a key of this form may be written without a value (`routes:`): true if its value is a list or a mapping,
    false if the value can be a word.
    """
    return isinstance(form, Section | MapOf | ListOf | Secrets | Anything)


def already_reported(mark: Mark, path: Path, message: str) -> None:
    """Do nothing with an error; passed as `report` when a value is read once more, since its errors were reported the
    first time.
    """


class Form(Protocol):
    """A rule for what a value must look like."""

    def read(self, tree: Any, at: Mark, path: Path, report: Report) -> Any:
        """Check and convert the value `tree` of a parsed file, which stands at `at`: return the typed value, or BAD if
        an error was reported by `report`. A mapping's bad values are dropped from the tree too. `path` is the value's
        path of keys, for messages.
        """

    def schema(self, named: Definitions) -> dict[str, Any]:
        """The JSON Schema of the value; sections in it are put into `named`, by their names, and are referred to."""


@dataclass(frozen=True, slots=True)
class Word:
    """A scalar, read by `reader`. `json` is its JSON Schema; {} allows anything."""

    reader: Callable[[Any], Any]
    json: Mapping[str, Any] = field(default_factory=dict)

    def read(self, tree: Any, at: Mark, path: Path, report: Report) -> Any:
        try:
            return self.reader(tree)
        except ValueError as error:
            report(at, path, _stray_blank(tree, self.reader) or _told(str(error), tree))
            return BAD

    def schema(self, named: Definitions) -> dict[str, Any]:
        return dict(self.json)


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list, read as a tuple; one bad item makes all of it bad. `empty` is the error for a list without items; ""
    allows it.
    """

    item: Form
    empty: str = ""

    def read(self, tree: Any, at: Mark, path: Path, report: Report) -> Any:
        if not isinstance(tree, Seq):
            items = "" if tree in _NOTHING and not self.empty else tree
            hint = f" (did you mean [{items}]?)" if isinstance(tree, str) else ""
            report(at, path, _told(f"must be a list, not {written(tree)}{hint}", tree))
            return BAD
        if self.empty and not tree:
            report(at, path, self.empty)
            return BAD
        items = [self.item.read(item, tree.marks[n], (*path, n), report) for n, item in enumerate(tree)]
        return BAD if any(item is BAD for item in items) else tuple(items)

    def schema(self, named: Definitions) -> dict[str, Any]:
        return {"type": "array", "items": self.item.schema(named), **({"minItems": 1} if self.empty else {})}


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A reference to a file that holds a value: the file's name as written, and the place where the name is written."""

    name: str
    mark: Mark


@dataclass(frozen=True, slots=True)
class Secrets:
    """A list of texts, each different, read by `reader` as a tuple; an item may be {file: PATH} instead, which is read
    as a `SecretFile`. No error message repeats the texts.
    """

    reader: Callable[[Any], str]

    def read(self, tree: Any, at: Mark, path: Path, report: Report) -> Any:
        if not isinstance(tree, Seq) or not tree:
            report(at, path, "must be a list of one or more values")
            return BAD
        items: list[str | SecretFile] = []
        wrong = False
        for number, item in enumerate(tree):
            try:
                value: str | SecretFile = self._file(item) if isinstance(item, Map) else self.reader(item)
                if value in items:
                    raise ValueError(f"is the same as number {items.index(value) + 1}: list each only once")
            except ValueError as error:
                report(tree.marks[number], (*path, number), str(error))
                wrong = True
            else:
                items.append(value)
        return BAD if wrong else tuple(items)

    def schema(self, named: Definitions) -> dict[str, Any]:
        file = {"type": "object", "properties": {"file": {"type": "string"}}, "required": ["file"]}
        plain = {"type": ["string", "number", "boolean"]}
        items = {"anyOf": [plain, {**file, "additionalProperties": False}]}
        return {"type": "array", "minItems": 1, "items": items}

    def _file(self, item: Map) -> SecretFile:
        name = item.get("file")
        if list(item) != ["file"] or not isinstance(name, str) or not name:
            raise ValueError("must be a value, or {file: PATH}")
        return SecretFile(str(name), item.values_at["file"])


def glued_key(text: str, keys: Container[str]) -> str:
    """The key of a text that is a key and its value without a space after the colon; "" for any other text."""
    head, colon, rest = text.partition(":")
    return head if colon and head in keys and rest[:1] not in ("", " ") else ""


def _named_items(tree: Any) -> str:
    """The hint for a list whose items have a `name`, where a mapping by these names is wanted; "" for other lists."""
    first = tree[0] if isinstance(tree, Seq) and tree else None
    name = first.get("name") if isinstance(first, Map) else None
    return f" (did you mean `{name}:` in place of `- name: {name}`?)" if isinstance(name, str) else ""


@dataclass(frozen=True, slots=True)
class MapOf:
    """A mapping whose keys are names of the user's own, read as a dict by the names as written. `key` checks the names;
    `caseless`: names that differ only in case are duplicates. `required` are keys that each value must have; only the
    JSON Schema uses them, since the check is made elsewhere.
    """

    value: Form
    key: Callable[[Any], Any] = any_word
    caseless: bool = False
    required: tuple[str, ...] = ()

    def read(self, tree: Any, at: Mark, path: Path, report: Report) -> Any:
        if not isinstance(tree, Map):
            # A text is not repeated: it may be a header value, and so a secret.
            what = "text" if isinstance(tree, str) else f"{written(tree)}{_named_items(tree)}"
            report(at, path, f"must be a mapping, not {what}")
            return BAD
        found: dict[str, Any] = {}
        spelled: dict[str, str] = {}
        for name in list(tree):
            if tree[name] is None and isinstance(self.value, Section):
                tree[name] = Map(tree.keys_at[name])
            try:
                self.key(name)
            except ValueError as error:
                report(tree.keys_at[name], (*path, name), _stray_blank(name, self.key) or str(error))
                del tree[name]
                continue
            twin = spelled.get(name.lower()) if self.caseless else None
            if twin is not None:
                report(tree.keys_at[name], (*path, name), f"duplicate key; line {tree.keys_at[twin].line} has {twin}")
                continue
            value = self.value.read(tree[name], tree.values_at[name], (*path, name), report)
            if value is BAD:
                del tree[name]
            else:
                found[name] = value
                spelled.setdefault(name.lower(), name)
        return found

    def schema(self, named: Definitions) -> dict[str, Any]:
        value = self.value.schema(named)
        if self.required:
            value = {"allOf": [value], "required": list(self.required)}
        elif isinstance(self.value, Section) and not any(key.required for key in self.value.keys.values()):
            value = _or_nothing(value)
        return {"type": "object", "additionalProperties": value}


def _or_nothing(part: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a value that is null or matches the schema `part`."""
    if isinstance(part.get("type"), str):
        return part | {"type": [part["type"], "null"]}
    return {"anyOf": [part, {"type": "null"}]} if part else part


@dataclass(frozen=True, slots=True)
class Anything:
    """The form of a mapping that other code checks."""

    def read(self, tree: Any, at: Mark, path: Path, report: Report) -> Any:
        return tree

    def schema(self, named: Definitions) -> dict[str, Any]:
        return {"type": "object"}


@dataclass(frozen=True, slots=True)
class JsonValue:
    """The form of any value that is to be sent as JSON. It is written in YAML: a bare scalar is a boolean, a number or
    a text by its looks (YAML 1.2), one in quotes is a text. It is read into the bytes of a JSON text.
    """

    def read(self, tree: Any, at: Mark, path: Path, report: Report) -> Any:
        try:
            return json.dumps(guess(tree), allow_nan=False).encode()
        except ValueError:
            report(at, path, "is a number that JSON can't write")
            return BAD

    def schema(self, named: Definitions) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a section: the form of its value, its help text, and its default. `default` is spelled as a user would
    write it, None if there is none; `null`: a key with nothing after it is read as null. `deprecated`: a key of earlier
    versions, which is accepted, and which no hint names.
    """

    form: Form
    default: Any = None
    doc: str = ""
    required: bool = False
    null: bool = False
    deprecated: bool = False


@dataclass(frozen=True)
class Section:
    """A mapping whose every key is known (unless `open`: the others are checked elsewhere). `belongs` says of keys that
    people write here by mistake where they belong, for the error message.
    """

    name: str
    doc: str
    keys: Mapping[str, Key]
    open: bool = False
    more: Mapping[str, Any] = field(default_factory=dict)
    belongs: Mapping[str, str] = field(default_factory=dict)

    #: The places where a mapping that is the value of an unknown key may belong: (place, the keys that it has there).
    inside: tuple[tuple[str, frozenset[str]], ...] = ()
    #: The key that a text in place of the whole mapping belongs to: (the form of the text, the key).
    short: tuple[tuple[str, str], ...] = ()
    #: The advice for an unknown key that is like no known one, instead of the list of all.
    others: str = ""

    def _meant_by(self, value: Any) -> str:
        """The hint in the error message when `value` is a text, but this mapping was expected. The hint names the key
        whose value the text probably is, or says that the space after a key's colon is missing. It is "" if neither
        fits.
        """
        if not isinstance(value, str):
            return ""
        if head := glued_key(value, self.keys):
            return f" (did you mean {head}: …, with a space after the colon?)"
        key = next((key for form, key in self.short if re.fullmatch(form, value)), None)
        return f" (did you mean {{{key}: {value}}}?)" if key else ""

    def _some_keys(self) -> str:
        """A few of the keys, for the error message about a value that is no mapping."""
        names = self._in_use()
        return f"its keys are {', '.join(names[:3])}{' and others' if len(names) > 3 else ''}"

    def _in_use(self) -> list[str]:
        """The keys that a user should write."""
        return [name for name, key in self.keys.items() if not key.deprecated]

    def _place_of(self, value: Any) -> str | None:
        """The place in the file to which an unknown key with this value belongs, as words for the error message; None
        if that is not known. The place is recognised by the keys within the value.
        """
        if isinstance(value, Map):
            return next((place for place, keys in self.inside if keys & value.keys()), None)
        for place, keys in self.inside if isinstance(value, str) else ():
            if head := glued_key(value, keys):
                return f"{place} and to put a space after the colon of `{head}:`"
            if value.startswith(("http://", "https://")) and "url" in keys:
                return f"{place} with {{url: {value}}}"
        return None

    def read(self, tree: Any, at: Mark, path: Path, report: Report) -> Any:
        if not isinstance(tree, Map):
            hint = self._meant_by(tree) or f"; {self._some_keys()}"
            report(at, path, _told(f"must be a mapping, not {written(tree)}{hint}", tree))
            return BAD
        found: dict[str, Any] = {}
        lookup = self.others or ("redrive schema lists all keys" if len(self.keys) > 12 else "")  # fewer are listed
        for name in list(tree):
            key = self.keys.get(name)
            if key is None:
                if not self.open:
                    there = self.belongs.get(name)
                    there = there or self._place_of(tree[name])
                    head = name.partition(":")[0].strip()
                    if head != name and head in self.keys:  # `url:http://…`, or a stray space
                        there = f"{head}: …, with a space after the colon" if ":" in name else head
                    hint = f" (did you mean {there}?)" if there else meant(name, self._in_use(), lookup)
                    report(tree.keys_at[name], (*path, name), f"unknown key{hint}")
                    del tree[name]
                    near = head if head in self.keys else nearest(name, self.keys)
                    if near is not None:  # the key that was probably meant is not reported as missing
                        tree.keys_at.setdefault(near, tree.keys_at[name])
            elif tree[name] is None and not key.null:
                if may_be_empty(key.form) or key.required:  # a required key is reported as missing below
                    del tree.keys_at[name]
                else:
                    report(tree.keys_at[name], (*path, name), EMPTY)
                del tree[name]
            else:
                value = key.form.read(tree[name], tree.values_at[name], (*path, name), report)
                if value is BAD:
                    del tree[name]
                else:
                    found[name] = value
        missing = {name: key for name, key in self.keys.items() if key.required and name not in found}
        for name, key in missing.items():
            if name not in tree.keys_at:  # a wrong value was reported already
                report(at, (*path, name), f"is missing: {key.doc}" if key.doc else "is missing")
        return BAD if missing else found

    def schema(self, named: Definitions) -> dict[str, Any]:
        if self.name not in named:
            named[self.name] = {}
            properties = {}
            for name, key in self.keys.items():
                part = key.form.schema(named)
                extra = {k: v for k, v in (("description", key.doc), ("default", key.default)) if v not in ("", None)}
                if key.deprecated:
                    extra["deprecated"] = True
                if key.null or (may_be_empty(key.form) and not key.required):
                    part = _or_nothing(part)
                properties[name] = {"allOf": [part], **extra} if "$ref" in part and extra else part | extra
            shape: dict[str, Any] = {"type": "object", "description": self.doc, "properties": properties}
            if not self.open:
                shape["additionalProperties"] = False
            if required := [name for name, key in self.keys.items() if key.required]:
                shape["required"] = required
            named[self.name] = shape | dict(self.more)
        return {"$ref": f"#/$defs/{self.name}"}

    @cached_property
    def _sections(self) -> dict[str, Section]:
        """The keys of this section whose values are sections themselves, with those sections."""
        forms = ((name, getattr(key.form, "mapping", key.form)) for name, key in self.keys.items())
        return {name: form for name, form in forms if isinstance(form, Section)}

    @cached_property
    def defaults(self) -> Map:
        """The defaults of all keys, as a user would spell them; keys without one are left out. The tree must not be
        changed.
        """
        tree = Map()
        for name, key in self.keys.items():
            inner = self._sections[name].defaults if name in self._sections else None
            value = inner or None if key.default is None else adopt(key.default)
            if value is not None:
                tree.put(name, value, DEFAULT, DEFAULT)
        return tree

    @cached_property
    def default_values(self) -> dict[str, Any]:
        """The typed values of `defaults`. The dict must not be changed."""
        tree = self.defaults
        return {name: self.keys[name].form.read(tree[name], DEFAULT, (name,), already_reported) for name in tree}

    def filled(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """The typed values `found` in a mapping of this form, with the default values of the keys that the mapping does
        not have.
        """
        inner = {name: each for name, each in self._sections.items() if isinstance(found.get(name), dict)}
        return {**self.default_values, **found, **{name: each.filled(found[name]) for name, each in inner.items()}}


@dataclass(frozen=True, slots=True)
class Either:
    """A value that is a word, a list or a mapping; its shape decides which form reads it. A form that is None refuses
    values of its shape.
    """

    word: Form | None = None
    list: Form | None = None
    mapping: Form | None = None

    def read(self, tree: Any, at: Mark, path: Path, report: Report) -> Any:
        form = self.mapping if isinstance(tree, Map) else self.list if isinstance(tree, Seq) else self.word
        if form is None:
            names = (("a word", self.word), ("a list", self.list), ("a mapping", self.mapping))
            wanted = " or ".join(name for name, each in names if each is not None)
            report(at, path, f"must be {wanted}, not {written(tree)}")
            return BAD
        return form.read(tree, at, path, report)

    def schema(self, named: Definitions) -> dict[str, Any]:
        forms = (self.word, self.list, self.mapping)
        return {"anyOf": [form.schema(named) for form in forms if form is not None]}


# -- values that a reference brought -----------------------------------------------------------------------------------

#: The parts of a message that repeat what the value is made of.
_PARTS_OF_IT = re.compile(r"has the unit '[^']*'| \(did you mean .*\?\)", re.DOTALL)


def _told(message: str, value: Any) -> str:
    """The message about a wrong value as it is reported: that about a value which came from the environment or a file
    names the reference alone, and no part of what came.
    """
    if getattr(value, "raw", value) == value:
        return message
    return _PARTS_OF_IT.sub(lambda found: "has an unknown unit" if found[0].startswith("has") else "", message)


# -- stray blanks, which are hard to see -------------------------------------------------------------------------------

_BLANKS = re.compile(r"\s+")
_JOINTS = frozenset(":/.@,-")
_CALLED = {"\t": "a tab", "\n": "a line break", "\r": "a carriage return", "\u00a0": "a no-break space"}


def _stray_blank(value: Any, reader: Callable[[Any], Any]) -> str:
    """The error for a scalar that `reader` (which raises ValueError) refuses only because of spaces in it; "" if
    `reader` refuses it without them too, or if it has none. The text is not repeated, since it may be a secret.
    """
    blank = _BLANKS.search(value) if isinstance(value, str) else None
    if blank is None:
        return ""

    def takes(text: str) -> bool:
        try:
            reader(text)
        except ValueError:
            return False
        return True

    before, after = value[: blank.start()][-1:], value[blank.end() :][:1]
    if takes(value.strip()):
        where = "at its end" if before else "at its beginning"
    elif not takes(_BLANKS.sub("", value)) or not {before, after} & _JOINTS:
        return ""  # several words: it is not clear what was meant
    else:
        where = f"before {after!r}" if after in _JOINTS else f"after {before!r}"
    return f"{_CALLED.get(blank[0][0], 'a space')} {where} does not belong there; remove it"
