"""The fields of a gRPC service config: their names in any spelling, their values in proto3's JSON forms.

A reader returns a value or raises BadError with what is wrong.
"""

from __future__ import annotations

import re
from typing import Any

from proxy.config.problems import Mark, Path, did_you_mean
from proxy.config.units import written
from proxy.config.yaml_tree import Map
from proxy.retry.facts import GRPC_STATUS_NUMBERS

_NUMBER = re.compile(r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
#: proto3's JSON form of a Duration; grpc-go takes the leading zero as said.
_DURATION = re.compile(r"(-?)([0-9]*)(\.[0-9]{1,9})?s")
_LONGEST = 315_576_000_000  # seconds, as proto3 has it
#: The longest that our own durations take (units.py): nobody lives to see the difference.
_LONGEST_SPELLED = 1000 * 365 * 24 * 3600


class BadError(Exception):
    """A value that breaks a rule; the text says how."""


class Object:
    """One object of the config: its fields by their published names, whatever their spelling."""

    def __init__(self, tree: Map, path: Path) -> None:
        self.tree = tree
        self.path = path
        self.spelled = {plain(key): key for key, value in tree.items() if value is not None}

    def __contains__(self, name: str) -> bool:
        return plain(name) in self.spelled

    def get(self, name: str) -> Any:
        """A field's value, None where it is absent."""
        key = self.spelled.get(plain(name))
        return None if key is None else self.tree[key]

    def at(self, name: str) -> Mark:
        """Where a field's value stands; the object, where it is absent."""
        key = self.spelled.get(plain(name))
        return self.tree.mark if key is None else self.tree.values_at[key]

    def path_of(self, name: str) -> Path:
        """A field's path, in the user's spelling."""
        return (*self.path, self.spelled.get(plain(name), name))


def plain(name: str) -> str:
    """A field's name without what spellings differ in."""
    return name.replace("_", "").lower()


def as_float(value: Any) -> float:
    """A JSON number, or a string of one."""
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        raise BadError(f"is not a number but {written(value)}")
    read_ = float(value)
    if read_ in (float("inf"), float("-inf")):
        raise BadError("is too large")
    return read_


def as_whole(value: Any) -> int:
    """A JSON integer, or a string of one."""
    number = as_float(value)
    if number != int(number):
        raise BadError(f"must be a whole number, not {written(value)}")
    return int(number)


def as_duration(value: Any) -> float:
    """Seconds out of proto3's Duration: `1s`, `0.25s`."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None or not (match[2] or match[3]):
        raise BadError(f"is not a duration but {written(value)}; write seconds with an s, as 1s or 0.25s")
    seconds = float(f"{match[2] or '0'}{match[3] or ''}")
    if seconds > _LONGEST:
        raise BadError("is too long")
    return -seconds if match[1] else seconds


def as_milliseconds(value: Any) -> float:
    """Seconds out of the draft's milliseconds."""
    return as_float(value) / 1000


def as_code(value: Any) -> int:
    """A status by name, in any case, or by number (A6)."""
    if isinstance(value, str):
        number = GRPC_STATUS_NUMBERS.get(value.upper())
        if number is not None:
            return number
        if getattr(value, "plain", True) and value.isascii() and value.isdigit() and int(value) <= 16:
            return int(value)
    raise BadError(f"is no gRPC status but {written(value)}{did_you_mean(str(value).upper(), GRPC_STATUS_NUMBERS)}")


def spelled_seconds(value: float) -> str:
    """Seconds as our own durations are spelled."""
    return f"{min(value, _LONGEST_SPELLED):.9f}".rstrip("0").rstrip(".") + "s"
