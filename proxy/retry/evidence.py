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
from collections.abc import Iterator
from fnmatch import translate
from functools import lru_cache
from html import unescape
from typing import Protocol

from proxy.retry.facts import Fault, Reply
from proxy.retry.policy import Rule

_ABSENT = object()


class Evidence(Protocol):
    """An attempt's end, as rules ask of it."""

    def matches(self, rule: Rule) -> bool | None:
        """Whether all parts but the grpc-status match; None where only the body could tell and is not there yet."""
        ...


class FaultEvidence:
    """An end without an answer: only a rule's fault kinds have something to say."""

    __slots__ = ("_fault",)

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def matches(self, rule: Rule) -> bool | None:
        """By kind, for rules that name nothing of an answer."""
        if rule.statuses is not None or rule.headers or rule.needs_body:
            return False
        return rule.faults is None or self._fault.kind in rule.faults


class ReplyEvidence:
    """An answer. `body` is what was peeked of it, None where nobody has looked."""

    __slots__ = ("_body", "_document", "_has_document", "_headers", "_reply", "_text")

    def __init__(self, reply: Reply, body: bytes | None) -> None:
        self._reply = reply
        self._body = b"" if body is None and reply.end else body
        self._headers: dict[str, list[str]] = {}
        self._document: object = _ABSENT
        self._has_document = False
        self._text: str | None = None

    def matches(self, rule: Rule) -> bool | None:
        """Every part given must match; the body is asked last."""
        if rule.faults is not None:
            return False
        if rule.statuses is not None and self._reply.status not in rule.statuses:
            return False
        if not all(_any_matches(self._header(name), glob) for name, glob in rule.headers):
            return False
        if not rule.needs_body:
            return True
        if self._reply.status < 400 or not self._is_plain():
            return False
        if self._body is None:
            return None
        return all(_any_matches(self._json(path), glob) for path, glob in rule.json) and all(
            _any_matches(self._xml(element), glob) for element, glob in rule.xml
        )

    def _header(self, name: str) -> list[str]:
        values = self._headers.get(name)
        if values is None:
            values = self._headers[name] = list(self._reply.fields.get_all(name))
        return values

    def _is_plain(self) -> bool:
        """No content coding hides the body."""
        return all(value.lower() in ("", "identity") for value in self._header("content-encoding"))

    def _json(self, path: tuple[str, ...]) -> list[str]:
        if not self._has_document:
            self._has_document = True
            try:
                self._document = json.loads(self._body or b"", parse_int=str, parse_float=str)
            except (ValueError, RecursionError):
                self._document = _ABSENT
        try:
            return list(_scalars(self._document, path))
        except RecursionError:  # lists within lists, deeper than anybody's error message
            return []

    def _xml(self, element: str) -> list[str]:
        if self._text is None:
            self._text = (self._body or b"").decode("utf-8", "replace")
        return [unescape(text.strip()) for text in _element(element).findall(self._text)]


def _any_matches(values: list[str], glob: str) -> bool:
    if glob == "*":
        return bool(values)
    pattern = _glob(glob)
    return any(pattern.match(value) for value in values)


@lru_cache(maxsize=4096)
def _glob(glob: str) -> re.Pattern[str]:
    return re.compile(translate(glob))


@lru_cache(maxsize=1024)
def _element(name: str) -> re.Pattern[str]:
    # No part may run over a "<", so that a body of open tags is not read once for each of them.
    return re.compile(rf"<(?:[\w.-]{{1,64}}:)?{re.escape(name)}(?:\s[^<>]*)?>([^<]*)</")


def _scalars(document: object, path: tuple[str, ...]) -> Iterator[str]:
    """The scalars at a path, as JSON writes them; "" for an object or a list, which only "*" matches."""
    if path:
        key, rest = path[0], path[1:]
        if isinstance(document, dict):
            if key in document:
                yield from _scalars(document[key], rest)
        elif isinstance(document, list):
            if key.isdecimal() and len(key) < 9:
                yield from _scalars(document[int(key)], rest) if int(key) < len(document) else ()
            else:
                for element in document:
                    yield from _scalars(element, path)
    elif isinstance(document, str):
        yield document
    elif isinstance(document, bool):
        yield "true" if document else "false"
    elif document is None:
        yield "null"
    elif document is not _ABSENT:
        yield ""
