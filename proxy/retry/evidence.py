"""What a classification rule can look at in an attempt's end: each part read once, and only when a rule asks.

Law: hostile input costs time in proportion to its length and never raises. Values are matched by shell globs, case
mattering; "*" means present. A field given several times matches by any of its values.

JSON paths are keys; in a list a number picks an element, any other key tries all. A scalar is matched as JSON writes
it (`true`, `null`, `42`, a string bare); an object or list only by "*". XML is searched for elements by local name,
wherever they stand; entities are resolved, attributes passed over.
"""

from __future__ import annotations

import json
import re
import zlib
from fnmatch import translate
from functools import lru_cache

from proxy.retry.facts import Reply

#: Contract, section 4: so much of what comes out of gzip or deflate is looked at.
DECODED = 64 * 1024

_CODINGS = frozenset({"", "gzip", "x-gzip", "deflate"})
_ABSENT = object()
_UNREAD = object()


class ReplyEvidence:
    """An answer. `body` is what was peeked of it, None where nobody has looked. What was looked up is kept, as packs
    ask one place for many values.
    """

    __slots__ = ("_document", "_found", "_reply", "_text", "body")

    def __init__(self, reply: Reply, body: bytes | None) -> None:
        self._reply = reply
        self._found: dict[tuple[str, ...] | str, list[str]] = {}
        self.body = b"" if body is None and reply.end else body
        if self.body:
            self.body = _decoded(self.body, self._coding())
        self._document: object = _UNREAD
        self._text: str | None = None

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._reply.status

    @property
    def may_look(self) -> bool:
        """Whether a body may decide: on status 400 and above, where no content coding hides it but gzip or deflate."""
        return self._reply.status >= 400 and self._coding() in _CODINGS

    def _coding(self) -> str:
        """The content coding; several are one that nobody reads."""
        return ",".join(value.lower() for value in self.header("content-encoding") if value.lower() != "identity")

    def header(self, name: str) -> list[str]:
        """Every value of a field."""
        values = self._found.get(name)
        if values is None:
            values = self._found[name] = list(self._reply.fields.get_all(name))
        return values

    def json(self, path: tuple[str, ...]) -> list[str]:
        """The scalars at a path of the body."""
        values = self._found.get(path)
        if values is None:
            values = self._found[path] = self._scalars(path)
        return values

    def _scalars(self, path: tuple[str, ...]) -> list[str]:
        if self._document is _UNREAD:
            try:
                self._document = json.loads(self.body or b"", parse_int=str, parse_float=str)
            except (ValueError, RecursionError):
                self._document = _ABSENT
        found: list[str] = []
        try:
            _gather(self._document, path, found)
        except RecursionError:  # lists within lists, deeper than anybody's error message
            return []
        return found

    def xml(self, element: str) -> list[str]:
        """The texts of all elements of this name."""
        values = self._found.get(key := ("", element))
        if values is None:
            if self._text is None:
                self._text = (self.body or b"").decode("utf-8", "replace")
            values = self._found[key] = [_resolved(text.strip()) for text in _element(element).findall(self._text)]
        return values


def _decoded(body: bytes, coding: str) -> bytes:
    """What is there of a body without its content coding, at most DECODED bytes; b"" where it can't be undone."""
    if not coding:
        return body
    # zlib reads gzip and zlib's own form (RFC 1950, what "deflate" means) alike; some send bare RFC 1951 as deflate.
    for wbits in (zlib.MAX_WBITS | 32, -zlib.MAX_WBITS):
        try:
            return zlib.decompressobj(wbits).decompress(body, DECODED)
        except zlib.error:
            continue
    return b""


def _resolved(text: str) -> str:
    """A text with what its entities stand for: a table of thousands, read when the first one comes."""
    if "&" not in text:
        return text
    from html import unescape

    return unescape(text)


def any_matches(values: list[str], glob: str) -> bool:
    """Whether one of the values matches."""
    if glob == "*":
        return bool(values)
    if not values:
        return False
    pattern = _glob(glob)
    return any(pattern.match(value) for value in values)


@lru_cache(maxsize=4096)
def _glob(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob))


@lru_cache(maxsize=1024)
def _element(name: str) -> re.Pattern[str]:
    # No part may run over a "<", so that a body of open tags is not read once for each of them.
    return re.compile(rf"<(?:[\w.-]{{1,64}}:)?{re.escape(name)}(?:\s[^<>]*)?>([^<]*)</")


def _gather(document: object, path: tuple[str, ...], found: list[str]) -> None:
    """Add the scalars at a path, as JSON writes them; "" for an object or a list, which only "*" matches."""
    if path:
        key, rest = path[0], path[1:]
        if isinstance(document, dict):
            if key in document:
                _gather(document[key], rest, found)
        elif isinstance(document, list):
            if key.isdecimal() and len(key) < 9:
                if int(key) < len(document):
                    _gather(document[int(key)], rest, found)
            else:
                for element in document:
                    _gather(element, path, found)
    elif isinstance(document, str):
        found.append(document)
    elif isinstance(document, bool):
        found.append("true" if document else "false")
    elif document is None:
        found.append("null")
    elif document is not _ABSENT:
        found.append("")
