"""What must not be shown: query values, user info in URLs, credentials, cookies.

Law: whatever leaves the process about a call or a configuration goes through here. Names stay (they say what was
there), values go. A query without names is masked whole, since it may be the secret itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MASK = "***"

#: Keys of a configuration whose values are secrets wherever they stand. `key` alone is a file's path (TLS), and a
#: key of a rule; both are fit to be seen.
_SECRET_NAME = re.compile(
    r"(?i)(^|[-_])(token|password|passphrase|passwd|secret|credential|credentials|authorization|cookie|apikey|signature)s?($|[-_])"
    r"|api[-_]?key|access[-_]?key|private[-_]?key|auth[-_]?key"
)
#: Tokens that are counted, not kept secret: a throttle's, as the file and as a gRPC service config name them.
_COUNTED = frozenset({"max_tokens", "token_ratio", "maxTokens", "tokenRatio"})
_USER_INFO = re.compile(r"(?<=//)[^/?#\s]*@")
_URL_QUERY = re.compile(r"(?<=\?)[^#\s]*")


def target(path: str) -> str:
    """A request's path with the values of its query masked, and user info too where it is an absolute form."""
    if "@" in path:
        path = _USER_INFO.sub(f"{MASK}@", path)
    where = path.find("?")
    return path if where < 0 else path[: where + 1] + query(path[where + 1 :])


def query(text: str) -> str:
    """`a=1&b=2` as `a=***&b=***`; a part without a name as `***`. Bounded: a query of more than 32 parts is cut."""
    if not text:
        return text
    if "&" not in text:  # the common case, on the way of every logged call
        name, equals, _ = text.partition("=")
        return f"{name}={MASK}" if equals else MASK
    parts = text.split("&", 32)
    names = [part.partition("=") for part in parts[:32]]
    masked = "&".join(f"{name}={MASK}" if equals else MASK for name, equals, _ in names)
    return masked if len(parts) <= 32 else masked + "&…"


def authority(text: str) -> str:
    """`user:password@host` as `***@host`."""
    return text if "@" not in text else f"{MASK}@{text.rpartition('@')[2]}"


def url(text: str) -> str:
    """User info and query values of a URL masked; anything else as it is."""
    return _URL_QUERY.sub(lambda found: query(found.group()), _USER_INFO.sub(f"{MASK}@", text))


def secret_name(name: str) -> bool:
    """Whether a key or header field of this name holds a credential."""
    return name not in _COUNTED and _SECRET_NAME.search(name) is not None


def place(path: str, value: str) -> str:
    """A configuration's value as one line, under its dotted path: a credential anywhere on the way masks it."""
    names = path.split(".")
    if value and ("set" in names[:-1] or any(map(secret_name, names))):
        return MASK
    return url(value)


def config(value: Any, name: str = "", *, inside_set: bool = False) -> Any:
    """A configuration as it may be shown: the shape kept, credentials out.

    Every value that `headers: … set:` adds is masked, since that is where people put API keys of any name.
    """
    if isinstance(value, Mapping):
        inner = inside_set or name == "set"
        return {key: config(item, str(key), inside_set=inner) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [config(item, name, inside_set=inside_set) for item in value]
    if isinstance(value, str) and value:
        return MASK if inside_set or secret_name(name) else url(value)
    return MASK if inside_set and value not in (None, "") else value
