"""The scalars of the format: each a reader (units.py, addresses.py) with its JSON Schema.

Law: the schema takes whatever the reader takes, and lets a ${NAME} pass; where it cannot say all that the reader does,
it is the wider of the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proxy.config import addresses, failures, units
from proxy.config.schema_language import Either, ListOf, MapOf, Word

_ENV = r".*\$\{.+\}.*"  # any scalar may come from the environment


def like(expression: str, *types: str) -> dict[str, Any]:
    """The schema of text of a certain form, of any text with a ${NAME}, or of the other types named."""
    return {"type": [*types, "string"] if types else "string", "pattern": f"^({expression}|{_ENV})$"}


def one_word(*words: str) -> Word:
    """One word out of several; a bare off is a false to some editors."""
    also: list[dict[str, Any]] = [{"const": False}] if "off" in words else []
    return Word(units.one_of(*words), {"anyOf": [{"enum": list(words)}, *also, like(_ENV)]})


def whole(least: int, most: int = 2**31) -> Word:
    """A whole number within bounds."""
    return Word(units.whole(least, most), {"anyOf": [{"type": "integer", "minimum": least}, like("[0-9]+")]})


def number_of(reader: Callable[[Any], float]) -> Word:
    """A number of zero or more."""
    return Word(reader, {"anyOf": [{"type": "number", "minimum": 0}, like(r"[0-9.]+([eE][-+]?[0-9]+)?")]})


_LONG = r"[0-9]+(\.[0-9]+)?(ms|s|m|h)|0"
_LONG_OR_OFF = {"anyOf": [like(f"{_LONG}|off"), {"const": False}, {"const": 0}]}
ANY = {"type": ["string", "number", "boolean"]}
TEXT = {"type": "string"}

duration = Word(units.duration, {"anyOf": [like(_LONG), {"const": 0}]})
positive_duration = Word(units.positive_duration, like(_LONG))
duration_or_off = Word(units.duration_or_off, _LONG_OR_OFF)
clamp = Word(units.clamp, _LONG_OR_OFF)
size = Word(units.size, {"anyOf": [like(r"[0-9]+(\.[0-9]+)?(B|KiB|MiB|GiB)|0"), {"const": 0}]})
rate = Word(units.rate, like(r"[0-9]+(\.[0-9]+)?/(s|m|h)"))
refill = Word(units.refill, {"anyOf": [like(r"[0-9]+(\.[0-9]+)?/(s|m|h)|0"), {"const": 0}]})
percent = Word(units.percent, like(r"[0-9]+(\.[0-9]+)? ?%?", "number"))
share = Word(units.share, like(r"[0-9]+(\.[0-9]+)? ?%?", "number"))
number = number_of(units.number)
positive_number = number_of(units.positive_number)
flag = Word(units.flag, {"anyOf": [{"type": "boolean"}, {"enum": ["yes", "no", "on", "off"]}, like(_ENV)]})
word = Word(units.word, ANY)
text = Word(units.text, ANY)
glob = Word(units.text, ANY)
header_value = Word(addresses.header_value, ANY)
header_name = Word(addresses.header_name, TEXT)
token = Word(addresses.token, TEXT)
address = Word(addresses.address, TEXT)
address_or_off = Word(addresses.address_or_off, {"anyOf": [TEXT, {"const": False}]})
redis_url = Word(addresses.redis_url, like(r"(redis|valkey)s?(\+[a-z]+)?://.+|unix:///.+"))
parent_proxy = Word(addresses.parent_proxy, like("none|http://.+"))
network = Word(addresses.network, TEXT)
failure = Word(failures.failure, {"type": ["integer", "string"]})
status = Word(failures.status, {"type": ["integer", "string"]})
grpc_status = Word(failures.grpc_status, TEXT)
fault = Word(failures.fault, TEXT)
words = Either(word=word, list=ListOf(word))
jitter = one_word("none", "full", "equal", "proportional", "decorrelated")
header_globs = MapOf(glob, key=addresses.header_name)
