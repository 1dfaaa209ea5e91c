"""The limits that an answer reports: what is left of each, and when it is whole again (contract, section 16, "Ahead").

Dialect packs (files with rules for a provider) name their providers' fields. The IETF's RateLimit fields are read for
every dialect, in each generation of their drafts (draft-ietf-httpapi-ratelimit-headers): the latest is a list of
quotas, each with its policy; the one before, a dictionary for one quota; the first, three fields. A quota that counts
anything but requests is not read.

Law: a report that can't be true is not used: one without a remainder or a reset, with a reset in the past, with a
window longer than any that calls are held for, with a remainder above the limit, or with a limit of 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proxy.retry.answers.pushback import read_moment
from proxy.retry.facts import Fields
from proxy.retry.policies.dialect import Dialect, LimitField

_WHOLE = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?")
#: A member of a structured-field list, and a parameter or entry of it.
_MEMBER = re.compile(r'(?:"(?:[^"\\]|\\.)*+"?|[^",])++')
_PARAMETER = re.compile(r'[;,]\s*([a-z*][a-z0-9_.*-]*)\s*=\s*("(?:[^"\\]|\\.)*+"|[^;,\s]+)')
_LONGEST_LIST, _LONGEST_NAME = 1024, 64  # characters; a longer field is not read, a longer name is cut


@dataclass(frozen=True, slots=True)
class ReportedLimit:
    """A limit as an answer reports it. `counts`: the unit that it counts: "attempts", or a language model's "tokens",
    or only those of the "prompt" or of the "output". `remaining`: what is left of it. `limit`: how much there is in
    all, None if that is not reported. `reset`: the seconds until it is whole again. `window`: the seconds in which it
    refills, 0 if that is not known.
    """

    name: str
    counts: str
    remaining: float
    limit: float | None
    reset: float
    window: float = 0.0


def read_limits(fields: Fields, dialects: Sequence[Dialect], wall: float, longest: float) -> list[ReportedLimit]:
    """The limits that an answer reports in standard fields, or in fields that `dialects` name. `wall`: the time at
    which the answer came, in seconds since the epoch. `longest`: the longest window in seconds; limits with a longer
    one are left out.
    """
    found = [*_of_packs(fields, dialects, wall), *_of_ietf(fields)]
    return [each for each in found if _can_be(each, longest)]


def _can_be(limit: ReportedLimit, longest: float) -> bool:
    if not 0 < limit.reset <= longest or limit.window > longest:
        return False
    return limit.limit is None or (limit.limit > 0 and limit.remaining <= limit.limit)


def _of_packs(fields: Fields, dialects: Sequence[Dialect], wall: float) -> Iterator[ReportedLimit]:
    """The limits in the fields that the dialect packs name. `wall`: the time at which the answer came, in seconds since
    the epoch.
    """
    read: set[str] = set()
    for each in (limit for dialect in dialects for limit in dialect.limits):
        remaining = _number_in(fields, each.remaining)
        if remaining is None or each.remaining in read or not _applies(each, fields):
            continue
        read.add(each.remaining)  # two packs may name the same field
        for value in fields.get_all(each.reset)[:1]:
            reset = read_moment(fields, wall, each.format, value)
            if reset is not None:
                limit = _number_in(fields, each.limit)
                yield ReportedLimit(each.name, each.counts, remaining, limit, reset)


def _applies(field: LimitField, fields: Fields) -> bool:
    """Whether the answer is about the resource for which this limit is, according to the fields that the dialect pack
    names.
    """
    return all(value in (fields.get_all(name) or (value,)) for name, value in field.where)


def _number_in(fields: Fields, name: str) -> float | None:
    values = fields.get_all(name) if name else ()
    return _number(values[0]) if len(values) == 1 else None


def _number(value: str) -> float | None:
    return float(value) if _WHOLE.fullmatch(value.strip()) else None


def _of_ietf(fields: Fields) -> Iterator[ReportedLimit]:
    """The limits in the IETF's RateLimit fields."""
    values = fields.get_all("ratelimit")
    if values:
        policies = {name: members for value in fields.get_all("ratelimit-policy") for name, members in _members(value)}
        for value in values:
            for name, members in _members(value):
                yield from _quota(name, {**policies.get(name, {}), **members})
        return
    remaining, reset = _number_in(fields, "ratelimit-remaining"), _number_in(fields, "ratelimit-reset")
    if remaining is None or reset is None:
        return
    limits = fields.get_all("ratelimit-limit")
    written, _, rest = limits[0].partition(",") if limits else ("", "", "")
    limit = _number(written.partition(";")[0])
    window = 0.0
    for member in _MEMBER.findall(rest):  # `100, 100;w=60`: the quota in force, and policies with their windows
        of, _, parameters = member.partition(";")
        if _number(of) == limit:
            window = _number(_parameters(f";{parameters}").get("w", "")) or 0.0
    yield ReportedLimit("ratelimit", "attempts", remaining, limit, reset, window)


def _quota(name: str, members: dict[str, str]) -> Iterator[ReportedLimit]:
    """The limit that one quota reports; none if the remainder or the reset is missing, or if the quota does not count
    requests. `members`: the parameters of the quota or, in the older form, the entries of the dictionary, by their
    names.
    """
    unit = members.get("qu", "requests").strip('"')
    remaining = _number(members.get("r", members.get("remaining", "")))
    reset = _number(members.get("t", members.get("reset", "")))
    if remaining is not None and reset is not None and unit == "requests":
        limit = _number(members.get("q", members.get("limit", "")))
        yield ReportedLimit(name, "attempts", remaining, limit, reset, _number(members.get("w", "")) or 0.0)


def _members(value: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Split the value of a RateLimit field. For a list, yield each member's name and parameters; for a dictionary,
    yield one member that has all entries as its parameters.
    """
    if len(value) > _LONGEST_LIST:
        return
    if ";" not in value and "=" in value:
        yield "ratelimit", _parameters(f",{value}")
        return
    for member in _MEMBER.findall(value):
        name, _, parameters = member.strip().partition(";")
        if name:
            yield name.strip().strip('"')[:_LONGEST_NAME], _parameters(f";{parameters}")


def _parameters(text: str) -> dict[str, str]:
    return {found[1]: found[2] for found in _PARAMETER.finditer(text)}
