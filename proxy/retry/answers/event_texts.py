"""The bytes that an event must contain for a rule to match it. Most events are passed over by a search for these
bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

from proxy.retry.answers.event_stream import MESSAGE
from proxy.retry.policies.dialect import EventRule


def texts_of(rules: Iterable[EventRule]) -> tuple[bytes, ...]:
    """Return texts to look for in a stream: any event that one of the rules matches contains at least one of these
    texts. No text has a line end.
    """
    events = list(rules)
    names = {name for name in map(plain_name, events) if name is not None}
    return least({*map(_text, names), *(mark_of(event) for event in events if plain_name(event) is None)})


def plain_name(rule: EventRule) -> str | None:
    """The event name that the rule asks for, if it has no wildcard; None if the rule matches events of several
    names.
    """
    return rule.name if rule.name is not None and not set("*?[") & set(rule.name) else None


def _text(name: str) -> bytes:
    """The bytes that an event of this name must contain. b"" if there are no such bytes: an event without a name is
    read as one named "message", and bytes that are no valid text are read as U+FFFD.
    """
    return b"" if name == MESSAGE or "\ufffd" in name else name.encode()


def least(texts: set[bytes]) -> tuple[bytes, ...]:
    """Return the texts that contain none of the others. If none of these occurs in some bytes, none of `texts` does."""
    return tuple(text for text in texts if not any(other in text for other in texts - {text}))


def mark_of(rule: EventRule) -> bytes:
    """The bytes that an event's data must contain for the rule to match: the name, as JSON writes it, of a JSON member
    that the rule asks for; b"" if there is no such name.
    """
    names = [path[0] for path, _ in rule.json if path[0].isalnum() and path[0].isascii() and not path[0].isdecimal()]
    return b'"%s"' % names[0].encode() if names else b""
