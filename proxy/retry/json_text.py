"""The text of a JSON document: reading it, and the search for what it can't have, before it is read."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Final

from proxy.retry.content_coding import DECODED
from proxy.retry.event_stream import media_type
from proxy.retry.facts import Reply, first
from proxy.retry.json_paths import AS_WRITTEN

#: The result of reading a text that is not JSON.
NOT_JSON: Final = object()


def read_json(text: bytes) -> object:
    """The document that a JSON text in any encoding of JSON writes, in which numbers are texts as they were written;
    NOT_JSON if it is not such a text, or is nested too deeply to be read.
    """
    try:
        found: object = AS_WRITTEN.decode(text.decode(json.detect_encoding(text), "surrogatepass"))
    except (ValueError, RecursionError):
        found = NOT_JSON
    return found


def lacks(text: bytes, path: tuple[str, ...]) -> bool:
    """Whether a JSON text certainly has no value at this path, because one of the path's keys is nowhere in it. Keys
    that may be the number of a list's element are not looked for, and nothing is certain of a text in which a
    character may be written in another way: by an escape, or in another encoding than UTF-8.
    """
    for name in _quoted(path):
        if text.find(name) < 0:
            return text.find(b"\\") < 0 and text.find(b"\0") < 0
    return False


@lru_cache(maxsize=1024)
def _quoted(path: tuple[str, ...]) -> tuple[bytes, ...]:
    """The keys of a path as a JSON text in UTF-8 writes them, without those that may be the number of an element."""
    return tuple(b'"%s"' % key.encode("utf-8", "surrogatepass") for key in path if not key.isdecimal())


def may_be_whole_json(reply: Reply) -> bool:
    """Whether a success's body may be JSON that is complete within the bytes that are peeked at."""
    media = media_type(reply)
    if media and media not in ("application/json", "text/json") and not media.endswith("+json"):
        return False
    if reply.length is not None:
        return reply.length <= DECODED
    length = first(reply.fields, "content-length") or ""
    return not (length.isascii() and length.isdigit() and int(length[:9]) > DECODED)
