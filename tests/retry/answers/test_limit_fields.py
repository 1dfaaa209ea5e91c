"""The limits that answers report: in the fields of packs, and in each generation of the IETF's."""

from __future__ import annotations

import pytest

from proxy.retry.answers.limit_fields import ReportedLimit, read_limits
from proxy.retry.facts import MappingFields
from proxy.retry.policies.dialect import Dialect, LimitField

PACK = Dialect("pack", limits=(LimitField("calls", "left", "whole-in", "duration", "most", where=(("of", "calls"),)),))
LONGEST = 60.0


def read(*dialects: Dialect, **fields: str | list[str]) -> list[ReportedLimit]:
    pairs = [
        (name.replace("_", "-"), each)
        for name, values in fields.items()
        for each in ([values] if isinstance(values, str) else values)
    ]
    return read_limits(MappingFields(pairs), dialects, 1000.0, LONGEST)


def quota(
    remaining: float, limit: float | None, reset: float, window: float = 0.0, name: str = "ratelimit"
) -> ReportedLimit:
    return ReportedLimit(name, "attempts", remaining, limit, reset, window)


def test_the_fields_of_a_pack() -> None:
    assert read(PACK, left="3", most="10", whole_in="4s", of="calls") == [quota(3, 10, 4, name="calls")]
    assert read(PACK, left="3", whole_in="1m") == [quota(3, None, 60, name="calls")]
    assert read(PACK, PACK, left="3", whole_in="4s") == [quota(3, None, 4, name="calls")]  # named twice
    for none in (
        {"whole_in": "4s"},
        {"left": "3"},
        {"left": "3", "whole_in": "soon"},
        {"left": ["3", "4"], "whole_in": "4s"},
    ):
        assert read(PACK, **none) == []
    assert read(PACK, left="3", whole_in="4s", of="searches") == []
    assert read(left="3", whole_in="4s") == []


@pytest.mark.parametrize("number", ["-1", "", "3e5", "+3", "1" * 16, "1.", "0x3", "many"])
def test_what_is_no_number_is_no_remainder(number: str) -> None:
    assert read(ratelimit_remaining=number, ratelimit_reset="5") == []


@pytest.mark.parametrize("number", ["0", "3", "1" * 15, "2.5", " 3 "])
def test_numbers(number: str) -> None:
    assert read(ratelimit_remaining=number, ratelimit_reset="5") == [quota(float(number), None, 5)]


@pytest.mark.parametrize(
    ("remaining", "limit", "reset", "is_read"),
    [(3, 10, 0, False), (3, 10, 60, True), (3, 10, 61, False), (10, 10, 5, True), (11, 10, 5, False), (0, 0, 5, False)],
)
def test_a_report_that_cannot_be_true_is_none(remaining: int, limit: int, reset: int, is_read: bool) -> None:
    found = read(ratelimit_remaining=str(remaining), ratelimit_limit=str(limit), ratelimit_reset=str(reset))
    assert bool(found) is is_read


def test_three_fields_of_the_early_drafts() -> None:
    assert read(ratelimit_limit="10", ratelimit_remaining="3", ratelimit_reset="5") == [quota(3, 10, 5)]
    windows = "10, 5;w=1, 10;w=20;comment=hourly"
    assert read(ratelimit_limit=windows, ratelimit_remaining="3", ratelimit_reset="5") == [quota(3, 10, 5, 20)]
    assert read(ratelimit_limit="10, 10;w=61", ratelimit_remaining="3", ratelimit_reset="5") == []
    assert read(ratelimit_limit="10, 10;w=soon", ratelimit_remaining="3", ratelimit_reset="5") == [quota(3, 10, 5)]
    assert read(ratelimit_limit="10", ratelimit_remaining="3") == []
    assert read(ratelimit_limit="10", ratelimit_reset="3") == []


def test_a_dictionary_of_the_later_drafts() -> None:
    assert read(ratelimit="limit=10, remaining=3, reset=5") == [quota(3, 10, 5)]
    assert read(ratelimit="remaining=3, reset=5") == [quota(3, None, 5)]
    assert read(ratelimit="limit=10, reset=5") == []


def test_a_list_of_quotas_with_policies() -> None:
    policy = '"calls";q=10;w=20, "burst";q=5;w=1'
    found = read(ratelimit='"calls";r=3;t=5, "burst";r=1;t=1', ratelimit_policy=policy)
    assert found == [quota(3, 10, 5, 20, "calls"), quota(1, 5, 1, 1, "burst")]
    assert read(ratelimit='"calls";r=3;t=5;q=8', ratelimit_policy=policy) == [quota(3, 8, 5, 20, "calls")]
    assert read(ratelimit=['"a";r=3;t=5', '"b";r=1;t=1']) == [quota(3, None, 5, name="a"), quota(1, None, 1, name="b")]
    assert read(ratelimit='"calls";r=3') == []
    assert read(ratelimit='"calls";t=3') == []


def test_a_quota_of_something_else_than_requests_is_not_read() -> None:
    assert read(ratelimit='"calls";r=3;t=5;qu="tokens"') == []
    assert read(ratelimit='"calls";r=3;t=5;qu="requests"') == [quota(3, None, 5, name="calls")]


def test_names_and_lists_are_bounded() -> None:
    (found,) = read(ratelimit=f'"{"n" * 65}";r=3;t=5')
    assert found.name == "n" * 64
    most = '"a";r=3;t=5;c=' + "x" * 1010
    assert len(read(ratelimit=most)) == 1
    assert read(ratelimit=most + "x") == []
    assert read(ratelimit='"a, b";r=3;t=5')[0].name == "a, b"
    assert read(ratelimit=", ,") == []
