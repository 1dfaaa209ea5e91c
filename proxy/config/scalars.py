"""The scalars of the file's format: each a reader with its JSON Schema, which accepts all that the reader accepts, and
any text with a ${NAME}; and how sections and lists are made of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proxy.config import addresses, units
from proxy.config.schema_language import Either, Form, Key, ListOf, MapOf, Section, Word
from proxy.retry.facts import GRPC_STATUS_NUMBERS, FaultKind

_ENV = r".*\$\{.+\}.*"  # any scalar may come from the environment
_OFF = "[oO][fF][fF]|[fF][aA][lL][sS][eE]"  # as `units.is_off` reads it


def like(expression: str, *types: str) -> dict[str, Any]:
    """The JSON Schema of a text that matches the regular expression or is a ${NAME}; values of one of the JSON `types`
    are valid too.
    """
    return {"type": [*types, "string"] if types else "string", "pattern": f"^({expression}|{_ENV})$"}


def one_word(*words: str, also: str = "") -> Word:
    """Make the form of a scalar that is one of several words. If `off` is among them, false is valid too: some editors
    read a bare off as false. `also`: what else the key takes, for the error message.
    """
    off: list[dict[str, Any]] = [{"const": False}, like(_OFF)] if "off" in words else [like(_ENV)]
    return Word(units.one_of(*words, also=also), {"anyOf": [{"enum": list(words)}, *off]})


def off_or_mapping(key: str, such_as: str) -> Word:
    """Make the form of the word `off`, for a key that takes a mapping otherwise. The error for other words shows
    `such_as`, an example of the mapping.
    """

    def read(value: Any) -> str:
        if not units.is_off(value):
            wanted = f"write {key}: {{{such_as}}}, or {key}: {{}} for its defaults"
            raise ValueError(f"{units.written(value)} is not off; {wanted}")
        return "off"

    return Word(read, {"anyOf": [{"const": "off"}, {"const": False}, like(_OFF)]})


def whole(least: int, most: int = 2**31) -> Word:
    """Make the form of a whole number from `least` to `most`."""
    bounds = {"minimum": least} if most == 2**31 else {"minimum": least, "maximum": most}
    return Word(units.whole(least, most), {"anyOf": [{"type": "integer", **bounds}, like("[0-9]+")]})


def number_of(reader: Callable[[Any], float]) -> Word:
    """Make the form of a number of zero or more, which `reader` reads."""
    return Word(reader, {"anyOf": [{"type": "number", "minimum": 0}, like(r"[0-9.]+([eE][-+]?[0-9]+)?")]})


_LONG = r"[0-9]+(\.[0-9]+)?(ms|s|m|h)|0"
_LONG_OR_OFF = {"anyOf": [like(f"{_LONG}|{_OFF}"), {"const": False}, {"const": 0}]}
ANY = {"type": ["string", "number", "boolean"]}

duration = Word(units.duration, {"anyOf": [like(_LONG), {"const": 0}]})
delay_or_percentile = Word(
    units.delay_or_percentile, {"anyOf": [like(rf"{_LONG}|p([5-9][0-9])(\.[0-9]+)?"), {"const": 0}]}
)
positive_duration = Word(units.positive_duration, like(_LONG))
duration_or_off = Word(units.duration_or_off, _LONG_OR_OFF)
clamp = Word(units.clamp, _LONG_OR_OFF)
size = Word(units.size, {"anyOf": [like(r"[0-9]+(\.[0-9]+)?(B|KiB|MiB|GiB)|0"), {"const": 0}]})
positive_size = Word(units.positive_size, like(r"[0-9]+(\.[0-9]+)?(B|KiB|MiB|GiB)"))
rate = Word(units.rate, like(r"[0-9]+(\.[0-9]+)?/(s|m|h)"))
refill = Word(units.refill, {"anyOf": [like(r"[0-9]+(\.[0-9]+)?/(s|m|h)|0"), {"const": 0}]})
percent = Word(units.percent, like(r"[0-9]+(\.[0-9]+)? ?%?", "number"))
share = Word(units.share, like(r"[0-9]+(\.[0-9]+)? ?%?", "number"))
ratio = Word(units.ratio, like(r"[0-9]+(\.[0-9]+)? ?%?", "number"))
number = number_of(units.number)
positive_number = number_of(units.positive_number)
_FLAGS = ["true", "false", "yes", "no", "on", "off"]  # the pattern has them in any case
_ANY_FLAG = like(f"{_OFF}|[nN][oO]|[oO][nN]|[tT][rR][uU][eE]|[yY][eE][sS]")
flag = Word(units.flag, {"anyOf": [{"type": "boolean"}, {"enum": _FLAGS}, _ANY_FLAG]})
word = Word(units.word, ANY)
json_path = Word(units.json_path, ANY)
text = Word(units.text, ANY)
glob = Word(units.text, ANY)
admin_name = Word(addresses.admin_name, ANY)
admin_token = Word(addresses.admin_token, ANY)
header_value = Word(addresses.header_value, ANY)
header_name = Word(addresses.header_name, like(addresses.TOKEN.pattern, "number", "boolean"))
key_header = Word(addresses.key_header, like(addresses.TOKEN.pattern, "number", "boolean"))
token = Word(addresses.token, like(addresses.TOKEN.pattern, "number", "boolean"))
_ADDRESS = r"unix:.+|.+:[0-9]+"
address = Word(addresses.address, like(_ADDRESS))
address_or_off = Word(addresses.address_or_off, {"anyOf": [like(f"{_ADDRESS}|{_OFF}"), {"const": False}]})
redis_url = Word(addresses.redis_url, like(r"(redis|valkey)s?(\+[a-z]+)?://.+|unix:///.+"))
parent_proxy = Word(addresses.parent_proxy, {"anyOf": [like(f"none|{_OFF}|[hH][tT][tT][pP]://.+"), {"const": False}]})
network = Word(addresses.network, like(r"[0-9a-fA-F:.\[\]]+(%[^/]+)?(/[0-9.]+)?"))
_STATUS = r"[1-5]([0-9][0-9]|[xX][xX]|[0-9][0-9]\s?-\s?[1-5][0-9][0-9])"
_STATUS_NUMBER = {"type": "integer", "minimum": 100, "maximum": 599}
_GRPC_STATUSES, _FAULTS = "|".join(GRPC_STATUS_NUMBERS), "|".join(FaultKind)
failure = Word(units.failure, {"anyOf": [_STATUS_NUMBER, like(f"{_STATUS}|{_GRPC_STATUSES}|{_FAULTS}")]})
status = Word(units.status, {"anyOf": [_STATUS_NUMBER, like(_STATUS)]})
grpc_status = Word(units.grpc_status, like(f"OK|{_GRPC_STATUSES}"))
fault = Word(units.fault, like(_FAULTS))
endpoint = Word(addresses.endpoint, like(r"[hH][tT][tT][pP][sS]?://[^?# \\]+|unix:.+"))
host_pattern = Word(addresses.host_pattern, like("[^/]+", "number", "boolean"))
service = Word(addresses.service_pattern, ANY)
prefix = Word(addresses.prefix_or_off, {"anyOf": [like(rf"/[^?#% \\]*|{_OFF}"), {"const": False}]})
concurrency_word = Word(units.concurrency_word, {"anyOf": [{"enum": ["auto", "off"]}, {"const": False}, like(_OFF)]})
most_attempts = Word(
    units.most_attempts,
    {"anyOf": [{"type": "integer", "minimum": 1}, {"const": "auto"}, like(r"0*[1-9][0-9]*"), like(_ENV)]},
)
jitter = one_word("none", "full", "equal", "proportional", "decorrelated")
trimmed_glob = Word(addresses.trimmed_glob, ANY)
header_globs = MapOf(trimmed_glob, key=addresses.header_name)
route_path = Word(addresses.route_path, like(r"/.*|\*\*.*|\*"))


#: The error for an empty list of values of which a call or an answer must have one.
NOTHING_MATCHES = "must not be empty: nothing would match; leave the key out to match anything"


def section(name: str, doc: str, /, **keys: Key | Form) -> Section:
    """Make the form of a mapping with these keys; `name` and `doc` are its name and help text. A key given as a form
    alone, not as a `Key`, has no default and no help text.
    """
    return Section(name, doc, {name: key if isinstance(key, Key) else Key(key) for name, key in keys.items()})


def several(form: Form, empty: str = "") -> Either:
    """Make the form of a key that takes one value or a list of such values. `empty` is the error for an empty list;
    "" allows an empty list.
    """
    return Either(word=form, list=ListOf(form, empty))
