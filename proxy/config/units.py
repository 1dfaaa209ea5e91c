"""Readers of a scalar's text: durations, sizes, rates, shares, numbers, switches, the names of failures.

The key decides how a value is read, not its form; a unit is never guessed. Each reader takes the text of a scalar and
returns the value, in seconds, in bytes or per second, or raises ValueError with a message that says what would be
right.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, TypeVar

from proxy.config.problems import did_you_mean, meant
from proxy.config.yaml_tree import Map, Seq, Text
from proxy.retry.facts import GRPC_STATUS_NUMBERS, FaultKind
from proxy.retry.policies.policy import Percentile

Value = TypeVar("Value")

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_DURATION = re.compile(_NUMBER + r"([A-Za-zµ]*)")
_SIZE = re.compile(_NUMBER + r"([A-Za-z]*)")
_RATE = re.compile(_NUMBER + r"/([A-Za-z]*)")
_NOTHING = re.compile(r"0+(\.0+)?(/(s|m|h))?")
_PERCENT = re.compile(_NUMBER + r"\s?%?")
_FLOAT = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_ITEMS = re.compile(r"\*(\[[^\[\]=]+=[^\[\]=]+\])?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_TRUE = frozenset({"true", "yes", "on"})
_FALSE = frozenset({"false", "no", "off"})
#: The longest duration, in seconds: 1,000 years. A longer one is a typing mistake.
_LONGEST = 1000 * 365 * 24 * 3600.0
#: The size in bytes from which nothing could count it.
_LARGEST = 2.0**63


def written(value: Any) -> str:
    """A value as error messages quote it: as the file has it, cut if it is long; of a value from the environment, the
    reference ${NAME}.
    """
    if value is None:
        return "nothing"
    if isinstance(value, Map):
        return "a mapping"
    if isinstance(value, Seq):
        return "a list"
    raw = getattr(value, "raw", str(value))
    return repr(raw if len(raw) <= 60 else raw[:57] + "...")


def is_digits(text: str) -> bool:
    """Whether a text is a number of the digits 0 to 9 alone, and no longer than any key takes: other scripts' digits,
    and `²`, are no numbers here.
    """
    return len(text) <= 18 and text.isascii() and text.isdigit()


def scalar(value: Any, wanted: str) -> str:
    """The text of a scalar. Raises ValueError, which says that `wanted` is expected, for a mapping, a list or nothing
    at all.
    """
    if not isinstance(value, str):
        raise ValueError(f"must be {wanted}, not {written(value)}")
    return value


def is_off(value: Any) -> bool:
    """Whether a value switches something off. YAML 1.1 readers pass a bare `off` on as false."""
    return isinstance(value, str) and value.lower() in ("off", "false")


def is_flag(value: Any) -> bool:
    """Whether a value is a switch (true, false, yes, no, on or off), for a key that can also have values of another
    kind.
    """
    return isinstance(value, str) and value.lower() in _TRUE | _FALSE


def text(value: Any) -> str:
    """Read any scalar as it was written; control characters are refused."""
    found = scalar(value, "text")
    if _CONTROL.search(found):
        raise ValueError("must not contain control characters")
    return str(found)


def checked(read: Callable[[Any], Value], fine: Callable[[Value], object], otherwise: str) -> Callable[[Any], Value]:
    """Make a reader that calls `read` and refuses values for which `fine` is false. The error is `otherwise`, in which
    {} stands for the text that was written.
    """

    def read_fine(value: Any) -> Value:
        found = read(value)
        if not fine(found):
            raise ValueError(otherwise.replace("{}", written(value)))
        return found

    return read_fine


def or_off(read: Callable[[Any], Value]) -> Callable[[Any], Value | None]:
    """Make a reader that calls `read`, but returns None for `off`."""
    return lambda value: None if is_off(value) else read(value)


#: A reader of a text that is not empty.
word = checked(text, str.strip, "must not be empty")


def json_path(value: Any) -> str:
    """Read a dotted path in JSON. A part that begins with `*` stands for items of a list: `*` for each item, and
    `*[type=a]` for the items that are objects with this member.
    """
    found = word(value)
    for part in found.split("."):
        if part.startswith("*") and not _ITEMS.fullmatch(part):
            raise ValueError(f"{written(value)}: {part} must be * or *[name=value]")
    return found


def spelling(value: Any) -> str:
    """Read the form in which a dialect pack's codes are spelled at some place of an answer: a text in which {} stands
    for the code.
    """
    found = word(value)
    if "{}" not in found:
        raise ValueError(f"{written(value)} must contain {{}}, which stands for the code")
    return found


#: The names that a pack's words for errors may have in braces.
_PLACEHOLDERS = ("message", "word", "outcome", "status", "type")


def error_text(value: Any) -> str:
    """Read a text of a dialect pack's `errors`. A name in braces is replaced there, so it must be one of those that are
    known; other braces stand for themselves.
    """
    found = word(value)
    for name in re.findall(r"\{(\w+)\}", found):
        if name not in _PLACEHOLDERS:
            known = ", ".join(f"{{{each}}}" for each in _PLACEHOLDERS)
            raise ValueError(
                f"{written(value)} has {{{name}}}, which is none of {known}{did_you_mean(name, _PLACEHOLDERS)}"
            )
    return found


def duration(value: Any) -> float:
    """A duration in seconds: `250ms`, `2s`, `1m`, `1h`. Zero needs no unit."""
    found = scalar(value, "a duration such as 250ms, 2s, 1m, 1h")
    match = _DURATION.fullmatch(found)
    if match is None:
        apart = _DURATION.fullmatch("".join(found.split()))  # a space before the unit
        hint = _meant(*apart.groups()) if apart is not None and apart[2] else ""
        raise ValueError(f"{written(value)} is not a duration; write it as 250ms, 2s, 1m or 1h{hint}")
    number, unit = match.groups()
    if not unit:
        if float(number) == 0:
            return 0.0
        raise ValueError(f"{written(value)} has no unit; write it as 250ms, 2s, 1m or 1h (did you mean {number}s?)")
    if unit not in _SECONDS:
        raise ValueError(f"{written(value)} has the unit {unit!r}; durations take ms, s, m or h{_meant(number, unit)}")
    seconds = float(number) * _SECONDS[unit]
    if not seconds <= _LONGEST:
        raise ValueError(f"{written(value)} is longer than 1,000 years")
    return seconds


#: Wrong spellings of units, by the unit that is meant.
_SPELLINGS = {
    "s": ("sec", "secs", "second", "seconds"),
    "m": ("min", "mins", "minute", "minutes"),
    "h": ("hr", "hrs", "hour", "hours", "d", "day", "days"),
    "ms": ("msec", "msecs", "milli", "millis", "millisecond", "milliseconds"),
}


def _meant(number: str, unit: str) -> str:
    for right, spellings in _SPELLINGS.items():
        if unit.lower() == right or unit.lower() in spellings:
            hours = f"{float(number) * 24:g}" if unit[:1] in "dD" else number
            return f" (did you mean {hours}{right}?)"
    return ""


def _above_zero(found: float) -> bool:
    return found > 0


positive_duration = checked(duration, _above_zero, "must be longer than 0")
duration_or_off = or_off(checked(duration, _above_zero, "must be longer than 0 (did you mean off?)"))
#: A reader of a duration, zero included, or None for `off`.
clamp = or_off(duration)


_PERCENTILE = re.compile(r"p([0-9]+(?:\.[0-9]+)?)")
#: Wrong spellings of p95: P95, p95ms, 95%, p 95, 95th, 95p.
_NEAR_PERCENTILE = re.compile(r"[pP]\s?([0-9]+(?:\.[0-9]+)?)\s?(?:ms|s|%|th)?|([0-9]+(?:\.[0-9]+)?)\s?(?:%|th|p)")


def delay_or_percentile(value: Any) -> float | Percentile:
    """A duration, or `p95`: the percentile of measured times, from p50 to p99.9."""
    found = scalar(value, "a duration such as 500ms, or a percentile such as p95")
    match = _PERCENTILE.fullmatch(found)
    if match is None:
        near = _NEAR_PERCENTILE.fullmatch(found)
        if near is None:
            return duration(value)
        raise ValueError(
            f"{written(value)} is neither a duration nor a percentile (did you mean p{near[1] or near[2]}?)"
        )
    percent = float(match[1])
    if not 50 <= percent <= 99.9:
        raise ValueError(f"{written(value)} is out of range; a percentile is p50 to p99.9")
    return Percentile(percent)


def size(value: Any) -> int:
    """A size in bytes: `512B`, `64KiB`, `1MiB`, `1GiB`. Zero needs no unit."""
    found = scalar(value, "a size such as 64KiB or 1MiB")
    match = _SIZE.fullmatch(found)
    if match is None:
        apart = _SIZE.fullmatch("".join(found.split()))  # a space before the unit
        hint = f" (did you mean {_near_size(*apart.groups())}?)" if apart is not None and apart[2] else ""
        raise ValueError(f"{written(value)} is not a size; write it as 512B, 64KiB, 1MiB or 1GiB{hint}")
    number, unit = match.groups()
    if not unit and float(number) == 0:
        return 0
    if unit not in _BYTES:
        what = f"has the unit {unit!r}" if unit else "has no unit"
        near = _near_size(number, unit)
        raise ValueError(f"{written(value)} {what}; sizes take B, KiB, MiB or GiB (did you mean {near}?)")
    octets = float(number) * _BYTES[unit]
    if octets >= _LARGEST:
        raise ValueError(f"{written(value)} is too large")
    return int(octets)


def _near_size(number: str, unit: str) -> str:
    """The size that is meant by another spelling of its unit."""
    if unit[:1].lower() == "t":
        return f"{float(number) * 1024:.12g}GiB"
    right = {"k": "KiB", "m": "MiB", "g": "GiB"}.get(unit[:1].lower(), "B")
    return f"{number}{right}"


positive_size = checked(size, _above_zero, "must be above 0")


def refill(value: Any) -> float:
    """A rate per second that may be zero: `10/s`, `30/m`, `0/s`, `0`."""
    return 0.0 if isinstance(value, str) and _NOTHING.fullmatch(value) else rate(value)


def rate(value: Any) -> float:
    """A rate per second, written as `100/s`, `30/m` or `5/h`."""
    found = scalar(value, "a rate such as 100/s")
    match = _RATE.fullmatch(found)
    per = _SECONDS.get(match[2]) if match else None
    if match is None or per is None or match[2] == "ms":
        is_rate = re.fullmatch(_NUMBER, found) and 0 < float(found) < math.inf
        hint = f" (did you mean {found}/s?)" if is_rate else ""
        raise ValueError(f"{written(value)} is not a rate; write it as 100/s, 30/m or 5/h{hint}")
    each = float(match[1]) / per
    if each == math.inf:
        raise ValueError(f"{written(value)} is too large")
    if not each:
        raise ValueError("must be above 0, as in 100/s")
    return each


def percent(value: Any) -> float:
    """A percentage: `20` and `20%` are the same, and are returned as 20."""
    found = scalar(value, "a percentage such as 20%")
    match = _PERCENT.fullmatch(found)
    if match is None or not math.isfinite(float(match[1])):
        raise ValueError(f"{written(value)} is not a percentage; write it as 20 or 20%")
    return float(match[1])


def share(value: Any) -> float:
    """A fraction from 0 to 1, written as a percentage of at most 100."""
    found = percent(value)
    if found > 100:
        raise ValueError("must be at most 100%")
    return found / 100


ratio = checked(share, _above_zero, "must be above 0%")


def number(value: Any) -> float:
    """A finite number of zero or more."""
    found = scalar(value, "a number")
    if not _FLOAT.fullmatch(found) or re.match(r"[-+]?0[0-9]", found):
        raise ValueError(f"{written(value)} is not a number")
    read = float(found)
    if not math.isfinite(read):
        raise ValueError(f"{written(value)} is too large")
    if read < 0:
        raise ValueError("must not be below 0")
    return read


positive_number = checked(number, _above_zero, "must be above 0")


def whole(least: int, most: int = 2**31) -> Callable[[Any], int]:
    """Make a reader of whole numbers from `least` to `most`. The reader raises ValueError for any other value."""

    def read(value: Any) -> int:
        found = scalar(value, "a whole number")
        if not re.fullmatch(r"-?(0|[1-9][0-9]*)", found):
            grouped = re.fullmatch(r"0*[1-9][0-9]{0,2}([_,][0-9]{3})*", found)
            hint = f" (did you mean {re.sub('[_,]', '', found).lstrip('0')}?)" if grouped else ""
            raise ValueError(f"{written(value)} is not a whole number{hint}")
        made = int(found[:19])  # with more digits it is out of range too
        if not least <= made <= most:
            raise ValueError(f"must be {least} or more" if made < least else f"must be at most {most}")
        return made

    return read


def flag(value: Any) -> bool:
    """Read a switch: true or false; yes, no, on and off are understood. Raises ValueError for any other value."""
    found = scalar(value, "true or false").lower()
    if not is_flag(found):
        raise ValueError(f"{written(value)} is neither true (on) nor false (off){did_you_mean(found, _TRUE | _FALSE)}")
    return found in _TRUE


def one_of(*words: str, also: str = "") -> Callable[[Any], str]:
    """Make a reader of one of several words; if `off` is one of them, false is read as off. `also`: what else the key
    takes, for the error message; "" for nothing.
    """
    others = f", or {also}" if also else ""

    def read(value: Any) -> str:
        found = scalar(value, "one of " + ", ".join(words) + others)
        if "off" in words and is_off(found):
            return "off"
        if found not in words:
            wanted = f"one of {', '.join(words)}" if len(words) > 1 else words[0]
            raise ValueError(f"{written(value)} must be {wanted}{others}{did_you_mean(found, words)}")
        return str(found)

    return read


def concurrency_word(value: Any) -> str:
    """The word `auto` or `off`, as the value of a key that may also be a mapping. If a number is given, the error
    suggests the mapping's `max`, which was probably meant.
    """
    found = scalar(value, "auto, off or a mapping")
    if is_off(found):
        return "off"
    if found != "auto":
        hint = f" (did you mean {{max: {found}}}?)" if is_digits(found) else ""
        raise ValueError(f"{written(value)} must be auto, off, or a mapping with max{hint}")
    return "auto"


def most_attempts(value: Any) -> int | str:
    """How many attempts may be under way at a time: a whole number, at least 1, or the word `auto`."""
    found = scalar(value, "a number or auto")
    if found == "auto":
        return "auto"
    if not (is_digits(found) and int(found) >= 1):
        raise ValueError(f"{written(value)} must be a whole number of at least 1, or auto")
    return int(found)


# -- failures ----------------------------------------------------------------------------------------------------------

#: The failures that one word names.
Failures = frozenset[int | str | FaultKind]
_FAULTS = frozenset(kind.value for kind in FaultKind)
_GRPC_STATUSES = frozenset(GRPC_STATUS_NUMBERS)


def failure(value: Any) -> Failures:
    """The failures that one word of a list names: an HTTP status, 5xx, 520-527, a gRPC status, a fault kind."""
    found = scalar(value, "an HTTP status, a range such as 5xx or 520-527, a gRPC status or a fault kind")
    if re.fullmatch(r"[1-5][0-9][0-9]", found):
        return frozenset({int(found)})
    if re.fullmatch(r"[1-5][xX][xX]", found):
        return frozenset(range(int(found[0]) * 100, int(found[0]) * 100 + 100))
    if match := re.fullmatch(r"([1-5][0-9][0-9])\s?-\s?([1-5][0-9][0-9])", found):
        low, high = int(match[1]), int(match[2])
        if low > high:
            raise ValueError(f"{written(value)} runs backwards (did you mean {high}-{low}?)")
        return frozenset(range(low, high + 1))
    if found == "OK":
        raise ValueError("OK is not a failure")
    if found in GRPC_STATUS_NUMBERS:
        return frozenset({str(found)})
    if found in _FAULTS:
        return frozenset({FaultKind(found)})
    hint = meant(found, [*_FAULTS, *GRPC_STATUS_NUMBERS], "write it as 503, 5xx, 520-527, UNAVAILABLE or reset")
    raise ValueError(f"{written(value)} is neither an HTTP status, nor a gRPC status, nor a fault kind{hint}")


def status(value: Any) -> Failures:
    """The HTTP statuses that a word names: 400, 5xx, 520-527. Other failures are refused."""
    found = scalar(value, "an HTTP status, or a range such as 5xx or 520-527")
    if not re.fullmatch(r"[1-5]([0-9][0-9]|[xX][xX]|[0-9][0-9]\s?-\s?[1-5][0-9][0-9])", found):
        others = " (grpc_status and fail name the others)" if found in _FAULTS | _GRPC_STATUSES else ""
        raise ValueError(f"{written(value)} is not an HTTP status; write it as 503, 5xx or 520-527{others}")
    return failure(value)


def fault(value: Any) -> Failures:
    """The fault kind that a word names. Other failures are refused."""
    found = scalar(value, "a fault kind such as reset")
    if found not in _FAULTS:
        raise ValueError(f"{written(value)} is not a fault kind{meant(found, sorted(_FAULTS))}")
    return failure(value)


def grpc_status(value: Any) -> Failures:
    """The gRPC status that a word names, OK included. Raises ValueError for any other word, also for a fault's or a
    class's.
    """
    found = scalar(value, "the name of a gRPC status such as UNAVAILABLE")
    if found not in _GRPC_STATUSES and found != "OK":
        number = next((name for name, number in GRPC_STATUS_NUMBERS.items() if str(number) == found), None)
        hint = (
            f" (did you mean {number}?)"
            if number
            else meant(found, GRPC_STATUS_NUMBERS, "they are written in capitals")
        )
        raise ValueError(f"{written(value)} is not a gRPC status such as UNAVAILABLE{hint}")
    return frozenset({"OK"}) if found == "OK" else failure(value)


# -- values for which no key says how to read them ---------------------------------------------------------------------


def guess(value: Any) -> Any:
    """The value of a custom strategy's argument, as plain Python data. No key says how to read it, so a bare scalar is
    taken for a boolean, a number or a text by its looks (YAML 1.2's core schema).
    """
    if isinstance(value, Map):
        return {key: guess(item) for key, item in value.items()}
    if isinstance(value, Seq):
        return [guess(item) for item in value]
    if not isinstance(value, Text) or not value.plain:
        return value if value is None else str(value)
    if value in ("true", "True", "TRUE"):
        return True
    if value in ("false", "False", "FALSE"):
        return False
    if re.fullmatch(r"[-+]?(0|[1-9][0-9]{0,308})", value):
        return int(value)  # exact up to a double's range: ids can have 19 digits and more
    if _FLOAT.fullmatch(value) and not re.match(r"[-+]?0[0-9]", value):
        return float(value)
    return str(value)
