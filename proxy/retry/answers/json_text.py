"""The text of a JSON document: how it is read, and how it is found out beforehand that it lacks a value."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Final

from proxy.retry.answers.content_coding import DECODED
from proxy.retry.answers.event_stream import media_type
from proxy.retry.answers.json_paths import AS_WRITTEN
from proxy.retry.facts import Reply, first

#: The result of reading a text that is not JSON.
NOT_JSON: Final = object()


def read_json(text: bytes) -> object:
    """The document that a JSON text, in any of JSON's encodings, contains. Its numbers are strings, as they were
    written. NOT_JSON if the text is not JSON, or is nested too deeply to be read.
    """
    try:
        found: object = AS_WRITTEN.decode(text.decode(json.detect_encoding(text), "surrogatepass"))
    except (ValueError, RecursionError):
        found = NOT_JSON
    return found


def lacks(text: bytes, path: tuple[str, ...]) -> bool:
    """Whether a JSON text certainly has no value at this path, because one of the path's keys does not occur in it.
    Keys that may be an index into a list are not looked for. False if the text has escapes or is not in UTF-8, since a
    key may then be written in another way.
    """
    for name in _quoted(path):
        if text.find(name) < 0:
            return text.find(b"\\") < 0 and text.find(b"\0") < 0
    return False


@lru_cache(maxsize=1024)
def _quoted(path: tuple[str, ...]) -> tuple[bytes, ...]:
    """The keys of a path as a JSON text in UTF-8 writes them, without those that may be an index into a list."""
    return tuple(b'"%s"' % key.encode("utf-8", "surrogatepass") for key in path if not key.isdecimal())


def may_be_whole_json(reply: Reply) -> bool:
    """Whether a success's body may be JSON that is complete within the DECODED bytes that may be looked at."""
    media = media_type(reply)
    if media and media not in ("application/json", "text/json") and not media.endswith("+json"):
        return False
    if reply.length is not None:
        return reply.length <= DECODED
    length = first(reply.fields, "content-length") or ""
    return not (length.isascii() and length.isdigit() and int(length[:9]) > DECODED)
