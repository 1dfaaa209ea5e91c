"""Masking of secrets: query values, path parameters' values, user info in URLs, credentials, cookies.

Law: whatever leaves the process about a call or a configuration is masked by this module. Names stay, because they say
which values there were; values are masked. A query without names is masked completely, because it may itself be a
secret.
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
#: The values that can't be secrets, whatever their names: a number of at most nine digits with or without a unit of
#: time, size or rate, or a switch.
_HARMLESS = re.compile(
    r"[-+]?[0-9]{1,9}(?:\.[0-9]{0,9})?(?:[eE][-+]?[0-9]{1,3})?(?:[nuµm]?s|m|h|B|[KMG]iB|%)?(?:/[smh])?"
    r"|(?i:true|false|yes|no|on|off|null)"
)
#: Mappings of header fields: what is sent in them, or what they are held against.
_HIDING = frozenset({"set", "header"})
_USER_INFO = re.compile(r"(?<=//)[^/?#\s]*@")
_URL_PATH = re.compile(r"(?<=//)[^?#\s]*")
#: A parameter of a path's segment (RFC 3986, section 3.3): its semicolon, which some servers decode before they look
#: for it, its name, and an equals sign where it has one. A value ends where the next parameter or segment begins.
_PARAMETER = re.compile(r"(;|%3[bB])((?:(?!%3[bBdD])[^;/=])*)(=|%3[dD])?(?:(?!%3[bB])[^;/])*")
_URL_QUERY = re.compile(r"(?<=\?)[^#\s]*")
#: A path whose one value is that of its query, and the part of the path before that value: the common case.
_ONE_VALUE = re.compile(r"([^?@;%]*\?[^&=@]*=)[^&@]*")


def target(path: str) -> str:
    """A request's path with the values of its query and of its path parameters masked. If the request's target is in
    absolute form, its user info is masked too.
    """
    common = _ONE_VALUE.fullmatch(path)
    if common is not None:
        return common[1] + MASK
    if "@" in path:
        path = _USER_INFO.sub(f"{MASK}@", path)
    before, mark, values = path.partition("?")
    if ";" in before or "%3" in before:  # `%3` may begin an encoded semicolon
        before = _PARAMETER.sub(_parameter, before)
    if not values:
        return before + mark
    if "&" in values:
        return f"{before}?{query(values)}"
    name, equals, _ = values.partition("=")
    return f"{before}?{name}={MASK}" if equals else f"{before}?{MASK}"


def query(text: str) -> str:
    """A query with its values masked: `a=1&b=2` becomes `a=***&b=***`, and a part without a name becomes `***`. A query
    of more than 32 parts is cut.
    """
    if not text:
        return text
    parts = text.split("&", 32)
    names = [part.partition("=") for part in parts[:32]]
    masked = "&".join(f"{name}={MASK}" if equals else MASK for name, equals, _ in names)
    return masked if len(parts) <= 32 else masked + "&…"


def authority(text: str) -> str:
    """An authority with its user info masked: `user:password@host` as `***@host`."""
    return text if "@" not in text else f"{MASK}@{text.rpartition('@')[2]}"


def url(text: str) -> str:
    """A text in which, for each URL, the user info and the values of the path parameters and of the query are masked.
    The rest of the text is unchanged.
    """
    text = _USER_INFO.sub(f"{MASK}@", text)
    text = _URL_PATH.sub(lambda found: _PARAMETER.sub(_parameter, found.group()), text)
    return _URL_QUERY.sub(lambda found: query(found.group()), text)


def secret_name(name: str) -> bool:
    """Whether a key or header field of this name holds a credential."""
    return name not in _COUNTED and _SECRET_NAME.search(name) is not None


def place(path: str, value: Any, *, argument: bool = False) -> str:
    """A value of the configuration in one line: masked if any key of `path`, its dotted path, names a credential.
    `value` is plain data; `argument`: the value is an argument of a custom strategy.
    """
    *above, name = path.split(".")
    if above[:1] == ["credentials"] or (above == ["tokens"] and not argument):
        return _flow(value)  # numbers stand for credentials there (`proxy.config.upstreams`), and tokens are counted
    if value not in (None, "", "*") and (not _HIDING.isdisjoint(above) or any(map(secret_name, above))):
        return MASK
    return _flow(_argument(value, name) if argument else config(value, name))


def config(value: Any, name: str = "", *, hidden: bool = False) -> Any:
    """A configuration in the form in which it may be shown: the same shape, with credentials masked. `value`: the
    configuration or a part of it; `name`: the key of that part; `hidden`: mask every value, since a key above this part
    says that its values are secrets.

    Every value that `headers: … set:` adds is masked, since that is where people put API keys under any name. So are
    the values of a rule's `header:`, and every argument of a custom strategy that is not plainly harmless.
    """
    if isinstance(value, Mapping):
        inner, custom = hidden or name in _HIDING, ":" in str(value.get("kind", ""))
        return {
            key: _argument(item, str(key)) if custom and key != "kind" else config(item, str(key), hidden=inner)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [config(item, name, hidden=hidden) for item in value]
    if isinstance(value, str) and value:
        return MASK if (hidden and value != "*") or secret_name(name) else url(value)
    return MASK if hidden and value not in (None, "") else value


def _argument(value: Any, name: str) -> Any:
    """An argument of a custom strategy, masked unless it is plainly harmless: the strategy alone knows what its names
    mean. `name`: the argument's, or the key of a mapping inside it.
    """
    if isinstance(value, Mapping):
        return {key: _argument(item, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_argument(item, name) for item in value]
    if value is None or value == "":
        return value
    return value if _HARMLESS.fullmatch(str(value)) and not secret_name(name) else MASK


def _flow(value: Any) -> str:
    """Plain data in one line, in YAML's flow style."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return "" if value is None else str(value)


def _parameter(found: re.Match[str]) -> str:
    semicolon, name, equals = found[1], found[2], found[3]
    if equals:
        return f"{semicolon}{name}{equals}{MASK}"
    return f"{semicolon}{MASK}" if name else semicolon
