"""The contents of files that went into values which pages, logs and commands show, and what is shown in their place.

What `${file:PATH}` brings is a secret (contract, section 3), and yet an address can be made of it, such as a webhook's
url. Such a value is used as it is; where it would leave the process, for people or for another program that watches
calls, the reference stands in the content's place. Most configurations have no such value, and pay nothing for this.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

#: Contents shorter than this are not hidden: nothing else could be read without single letters and words.
SHORTEST = 4
#: The most contents, with their spellings, that are kept from earlier configurations, the last ones.
_MOST = 1000
#: Members of pages and log lines whose values are redrive's own words: programs go by them.
_OWN = frozenset(
    {"also", "class", "decision", "event", "fault", "kind", "method", "outcome", "protocol", "result", "state"}
    | {"span_id", "strategy", "time", "trace_flags", "trace_id"}
)
#: Keys that redrive or the configuration gives to a member. (Labels, hosts and fields have other characters, too.)
_KEY = re.compile("[a-z0-9_]*")


class HiddenValues:
    """The replacement of secret contents by references to them. `references`: the reference that brought a content, by
    each spelling of the content. `whole_words`: a content is replaced only where no letter or digit stands beside it.
    """

    def __init__(self, references: Mapping[str, str], *, whole_words: bool = False) -> None:
        # Also by the spelling in lower case, by which matches are looked up; there, İ is two characters.
        self._references = {key: reference for each, reference in references.items() for key in (each, each.lower())}
        self._found = secrets_of(self._references, whole_words=whole_words)

    def text(self, text: str) -> str:
        """A text with references in the place of contents, in capitals or not."""
        return self._found.sub(lambda found: self._references.get(found[0].lower(), "***"), text)

    def data(self, data: Any) -> Any:
        """Plain data (of JSON) with references in the place of contents."""
        if isinstance(data, str):
            return self.text(data)
        if isinstance(data, Mapping):
            return {
                key if _KEY.fullmatch(key) else self.text(key): value if key in _OWN else self.data(value)
                for key, value in data.items()
            }
        return [self.data(each) for each in data] if isinstance(data, list | tuple) else data

    def json(self, text: str) -> str:
        """A JSON text in one line, with references in the place of contents."""
        return json.dumps(self.data(json.loads(text)), separators=(",", ":"))

    def json_lines(self, lines: str) -> str:
        """Lines of JSON, each with its line end, with references in the place of contents."""
        return "".join(f"{self.json(line)}\n" for line in lines.splitlines())

    def with_earlier(self, earlier: HiddenValues | None) -> HiddenValues:
        """The hidden values of this configuration and of those that were in force before it, under which calls that are
        still shown were made.
        """
        if earlier is None or earlier._references.items() <= self._references.items():
            return self
        kept = list((earlier._references | self._references).items())
        return HiddenValues(dict(kept[-_MOST:]))


def secrets_of(contents: Iterable[str], *, whole_words: bool) -> re.Pattern[str]:
    """The expression that finds these contents. The longest goes first: one that begins with another one would else be
    shown from there on.
    """
    secrets = "|".join(re.escape(each) for each in sorted(contents, key=len, reverse=True))
    return re.compile(rf"(?<!\w)(?:{secrets})(?!\w)" if whole_words else f"(?:{secrets})", re.IGNORECASE)


def spellings(content: str, *, has_place: bool) -> Iterator[str]:
    """The forms in which a content may be shown that went into an address: as it is, percent-encoded, and, if it names
    the address's host (`has_place`), its parts.
    """
    parts = [content, content.rstrip("/")]
    if has_place:
        place, _, path = (content.partition("://")[2] or content).partition("/")
        host = re.sub(r":\d*$", "", place)
        parts += [place, host, host.strip("[]").rstrip("."), f"/{path.rstrip('/')}"]
    for part in parts:
        if len(part) >= SHORTEST:
            yield part
            if not part.isascii() or " " in part:
                yield quote(part, safe="".join(map(chr, range(0x21, 0x7F))))


def later(now: HiddenValues | None, earlier: HiddenValues | None) -> HiddenValues | None:
    """The hidden values of a process, if those of its new configuration are `now`, and until then were `earlier`."""
    return earlier if now is None else now.with_earlier(earlier)


def shown(text: str, hidden: HiddenValues | None) -> str:
    """A text as it may be shown; the text itself if nothing is hidden."""
    return text if hidden is None else hidden.text(text)


def shown_data(data: Any, hidden: HiddenValues | None) -> Any:
    """Plain data (of JSON) as it may be shown; None hides nothing."""
    return data if hidden is None else hidden.data(data)
