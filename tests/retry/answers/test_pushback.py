from __future__ import annotations

import time
from calendar import timegm

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.two_runs import examples

from proxy.retry.answers.http_date import read_http_date
from proxy.retry.answers.pushback import LONGEST, read_pushback
from proxy.retry.facts import NO_PUSHBACK, Class, MappingFields, Pushback
from proxy.retry.policies.dialect import Dialect, ResetField

#: 2026-01-01T00:00:00Z, a Thursday.
WALL = 1767225600.0

GITHUB = Dialect("github", resets=(ResetField("x-ratelimit-reset", "epoch", "x-ratelimit-remaining"),))
OPENAI = Dialect(
    "openai",
    resets=(
        ResetField("x-ratelimit-reset-requests", "duration", "x-ratelimit-remaining-requests"),
        ResetField("x-ratelimit-reset-tokens", "duration", "x-ratelimit-remaining-tokens"),
    ),
)


def read(
    *pairs: tuple[str, str],
    status: int = 503,
    cls: Class = Class.TRANSIENT,
    dialects: tuple[Dialect, ...] = (),
    trailers: list[tuple[str, str]] | None = None,
) -> Pushback:
    tail = MappingFields(trailers) if trailers else None
    return read_pushback(MappingFields(list(pairs)), status, cls, dialects, WALL, trailers=tail)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("Retry-After", "0", 0),
        ("Retry-After", "120", 120),
        ("Retry-After", "007", 7),
        ("Retry-After", "Thu, 01 Jan 2026 00:00:30 GMT", 30),
        ("Retry-After", "Thursday, 01-Jan-26 00:00:30 GMT", 30),
        ("Retry-After", "Thu Jan  1 00:00:30 2026", 30),
        ("Retry-After", "Thu, 01 Jan 2026 00:00:00 GMT", 0),
        ("Retry-After", "Wed, 31 Dec 2025 23:59:59 GMT", None),  # the past is as if absent
        ("Retry-After", "Thu, 01 Jan 2026 00:00:30 +0000", None),
        ("Retry-After", "Thu, 01 Jan 2026 00:00:30 UTC", None),
        ("Retry-After", "2026-01-01T00:00:30Z", None),
        ("Retry-After", "1767225630", 1767225630),  # seconds are seconds
        ("Retry-After", "9" * 40, LONGEST),
        ("Retry-After", "9" * 5000, LONGEST),
        *(
            ("Retry-After", bad, None)
            for bad in ("", "-1", "+1", "1.5", "1e3", "0x10", "nan", "inf", "1,2", "²", "٣", "1s")
        ),
        ("Retry-After-Ms", "1500", 1.5),
        ("Retry-After-Ms", "0.9", 0.0009),
        ("Retry-After-Ms", "-5", None),
        ("Retry-After-Ms", ".5", None),
        ("x-ms-retry-after-ms", "250", 0.25),
        ("x-ms-retry-after-ms", "soon", None),
        ("x-amz-retry-after", "2500", 2.5),
        ("x-amz-retry-after", "2500.5", 2.5005),
        ("x-amz-retry-after", "invalid", None),
        ("grpc-retry-pushback-ms", "123", 0.123),
        ("x-grpc-retry-pushback-ms", "123", 0.123),
        ("grpc-retry-pushback-ms", "0", 0),
        ("grpc-retry-pushback-ms", "-0", 0),
        ("grpc-retry-pushback-ms", "-0.0", 0),
        ("grpc-retry-pushback-ms", "+5", 0.005),
        ("Retry-After-Ms", "+5", None),
    ],
)
def test_each_field_in_each_form(name: str, value: str, expected: float | None) -> None:
    pushback = read((name, value))
    assert pushback.delay == (None if expected is None else pytest.approx(expected))
    assert pushback.source == ("" if expected is None else name.lower())
    assert not pushback.stop


@pytest.mark.parametrize("name", ["grpc-retry-pushback-ms", "x-grpc-retry-pushback-ms"])
@pytest.mark.parametrize("value", ["-1", "", "soon", "+-5", "-+0", "+", "-", "--0", "1e3", "0x5", "-0.5"])
def test_grpc_says_stop_by_anything_that_is_no_delay(name: str, value: str) -> None:
    pushback = read((name, value), ("grpc-status", "14"), status=200)
    assert pushback.stop
    assert pushback.delay is None


def test_grpc_says_stop_by_saying_it_twice() -> None:
    assert read(("grpc-retry-pushback-ms", "10"), ("grpc-retry-pushback-ms", "20")).stop
    assert read(("grpc-retry-pushback-ms", "10"), trailers=[("grpc-retry-pushback-ms", "20")]).stop
    assert not read(("grpc-retry-pushback-ms", "10"), ("x-grpc-retry-pushback-ms", "20")).stop


def test_trailers_are_read_too() -> None:
    trailers = [("grpc-status", "14"), ("grpc-retry-pushback-ms", "40")]
    assert read(status=200, trailers=trailers).delay == 0.04
    assert read(status=200, cls=Class.UNNAMED, trailers=[("grpc-status", "5"), ("grpc-retry-pushback-ms", "-1")]).stop


def test_the_longest_delay_wins() -> None:
    pushback = read(("Retry-After", "2"), ("Retry-After-Ms", "2500"), ("x-amz-retry-after", "100"))
    assert pushback == Pushback(delay=2.5, cooldown=2.5, source="retry-after-ms")
    assert read(("Retry-After", "5"), ("Retry-After", "soon"), ("Retry-After", "9")).delay == 9


@pytest.mark.parametrize("name", ["x-should-retry", "Stripe-Should-Retry"])
def test_should_retry(name: str) -> None:
    assert read((name, "false"), status=400, cls=Class.UNNAMED).stop
    assert read((name, "FALSE"), status=429, cls=Class.THROTTLING).stop
    assert read((name, "true"), status=400, cls=Class.UNNAMED) == Pushback(retry=True, source=name.lower())
    assert read((name, "yes"), status=400, cls=Class.UNNAMED) == NO_PUSHBACK
    assert read((name, "1"), status=503) == NO_PUSHBACK


def test_a_stop_beats_a_true() -> None:
    pushback = read(("x-should-retry", "true"), ("stripe-should-retry", "false"))
    assert (pushback.stop, pushback.retry) == (True, False)
    assert read(("x-should-retry", "true"), ("grpc-retry-pushback-ms", "-1")).stop


def test_a_true_makes_an_unnamed_failures_delay_count() -> None:
    fields = ("x-should-retry", "true"), ("Retry-After", "3")
    assert read(*fields, status=400, cls=Class.UNNAMED).delay == 3
    assert read(*fields, status=400, cls=Class.FATAL).delay is None


def test_delays_are_read_from_retryable_classes_alone() -> None:
    for cls in (Class.TRANSIENT, Class.THROTTLING, Class.TIMEOUT):
        assert read(("Retry-After", "3"), cls=cls).delay == 3
    for cls in (Class.FATAL, Class.UNNAMED):
        assert read(("Retry-After", "3"), cls=cls) == NO_PUSHBACK


def test_nothing_is_read_from_a_success_or_a_redirect() -> None:
    everything = (
        ("Retry-After", "3"),
        ("x-should-retry", "false"),
        ("grpc-retry-pushback-ms", "-1"),
        ("x-should-retry", "true"),
    )
    for status in (200, 201, 302, 304, 503):  # a rule's success is a success here too
        assert read(*everything, status=status, cls=Class.SUCCESS) == NO_PUSHBACK
    assert not read(("x-should-retry", "false"), status=302, cls=Class.TRANSIENT).stop
    assert not read(("x-should-retry", "true"), ("grpc-status", "5"), status=200, cls=Class.UNNAMED).retry
    assert read(("x-should-retry", "false"), ("grpc-status", "5"), status=200, cls=Class.UNNAMED).stop


def test_a_stop_leaves_the_cooldown_to_the_others() -> None:
    pushback = read(("Retry-After", "30"), ("x-should-retry", "false"), status=429, cls=Class.THROTTLING)
    assert pushback == Pushback(delay=30, stop=True, cooldown=30, source="x-should-retry")


# -- cooldown ----------


@pytest.mark.parametrize("name", ["Retry-After", "Retry-After-Ms", "x-ms-retry-after-ms"])
def test_what_cools_down_on_429_and_503(name: str) -> None:
    assert read((name, "4"), status=429, cls=Class.THROTTLING).cooldown is not None
    assert read((name, "4"), status=503).cooldown is not None
    assert read((name, "4"), status=500).cooldown is None
    assert read((name, "4"), status=503, cls=Class.UNNAMED).cooldown is None


def test_what_is_about_one_call_never_cools_down() -> None:
    pushback = read(("grpc-retry-pushback-ms", "9000"), ("x-amz-retry-after", "8000"), ("Retry-After", "2"))
    assert (pushback.delay, pushback.cooldown) == (9.0, 2.0)


# -- resets ----------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([("RateLimit", '"default";r=0;t=30')], 30),
        ([("RateLimit", '"default";r=1;t=30')], None),
        ([("RateLimit", '"default";r=0')], None),
        ([("RateLimit", "default;r=0;t=30")], 30),
        ([("RateLimit", '"default";t=30;r=0')], 30),
        ([("RateLimit", '"minute";r=0;t=30, "day";r=0;t=300, "year";r=5;t=9000')], 300),
        ([("RateLimit", '"minute";r=0;t=30'), ("RateLimit", '"day";r=0;t=300')], 300),
        ([("RateLimit", '"a;r=0;t=5,";r=1;t=9')], None),  # a quota's name is no parameter
        ([("RateLimit", '"a\\";r=0;t=5";r=1;t=9')], None),
        ([("RateLimit", '"default";r=0;t=-5')], None),
        ([("RateLimit", '"default";r=0;t=5.5')], None),
        ([("RateLimit", "limit=100, remaining=0, reset=30")], 30),
        ([("RateLimit", "limit=100, remaining=7, reset=30")], None),
        ([("RateLimit-Remaining", "0"), ("RateLimit-Reset", "30")], 30),
        ([("RateLimit-Limit", "10"), ("RateLimit-Remaining", "3"), ("RateLimit-Reset", "30")], None),
        ([("RateLimit-Remaining", "0"), ("RateLimit-Reset", "soon")], None),
    ],
)
def test_the_ietf_fields_count_where_nothing_remains(fields: list[tuple[str, str]], expected: float | None) -> None:
    assert read(*fields, status=429, cls=Class.THROTTLING).delay == expected
    assert read(*fields, status=503).cooldown == expected
    assert read(*fields, status=500).delay is None


def test_without_a_count_only_a_429_says_that_nothing_remains() -> None:
    assert read(("RateLimit-Reset", "30"), status=429, cls=Class.THROTTLING).delay == 30
    assert read(("RateLimit-Reset", "30"), status=503, cls=Class.TRANSIENT).delay is None
    assert read(("RateLimit-Remaining", "-"), ("RateLimit-Reset", "30"), status=429, cls=Class.THROTTLING).delay is None


def test_retry_after_wins_over_the_ietf_fields() -> None:
    limits = (("RateLimit", '"default";r=0;t=300'), ("RateLimit-Remaining", "0"), ("RateLimit-Reset", "300"))
    assert read(("Retry-After", "2"), *limits).delay == 2
    assert read(("Retry-After", "soon"), *limits).delay == 300
    assert read(("Retry-After-Ms", "2000"), *limits).delay == 2
    assert read(("Retry-After-Ms", "soon"), *limits).delay == 300


def test_a_dialects_reset() -> None:
    used_up = (("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", str(int(WALL) + 60)))
    assert read(*used_up, status=429, cls=Class.THROTTLING, dialects=(GITHUB,)) == Pushback(
        delay=60, cooldown=60, source="x-ratelimit-reset"
    )
    # Where its dialect classes a 403 throttling: read, but other callers are held on 429 and 503 alone.
    assert read(*used_up, status=403, cls=Class.THROTTLING, dialects=(GITHUB,)) == Pushback(
        delay=60, source="x-ratelimit-reset"
    )
    assert read(*used_up, status=500, dialects=(GITHUB,)).delay is None
    assert read(*used_up, status=429, cls=Class.THROTTLING).delay is None  # no dialect names its format
    assert read(("X-RateLimit-Remaining", "9"), used_up[1], status=429, cls=Class.THROTTLING, dialects=(GITHUB,)) == (
        NO_PUSHBACK
    )
    past = ("X-RateLimit-Reset", str(int(WALL) - 1))
    assert read(used_up[0], past, status=429, cls=Class.THROTTLING, dialects=(GITHUB,)).delay is None


def test_durations_of_several_quotas() -> None:
    fields = (
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "1m30s"),
        ("x-ratelimit-remaining-tokens", "12"),
        ("x-ratelimit-reset-tokens", "6h"),
    )
    assert read(*fields, status=429, cls=Class.THROTTLING, dialects=(OPENAI,)).delay == 90


@pytest.mark.parametrize(
    ("format", "value", "expected"),
    [
        ("seconds", "30", 30),
        ("seconds", "2.5", None),
        ("epoch", str(int(WALL) + 5), 5),
        ("epoch", str(int(WALL)), 0),
        ("epoch", f"{WALL + 5:.3f}", None),
        ("epoch_ms", str(int(WALL) * 1000 + 1500), 1.5),
        ("duration", "250ms", 0.25),
        ("duration", "1h2m3.5s", 3723.5),
        ("duration", "0s", 0),
        ("duration", "1m30", None),
        ("duration", "-5s", None),
        ("duration", "", None),
        ("http_date", "Thu, 01 Jan 2026 00:01:00 GMT", 60),
        ("http_date", "1767225660", None),
    ],
)
def test_reset_formats(format: str, value: str, expected: float | None) -> None:
    dialect = Dialect("x", resets=(ResetField("X-Reset", format),))  # type: ignore[arg-type]
    pushback = read(("x-reset", value), status=429, cls=Class.THROTTLING, dialects=(dialect,))
    assert pushback.delay == (None if expected is None else pytest.approx(expected))


# -- clocks that disagree ----------


@pytest.mark.parametrize(
    ("date", "after", "expected"),
    [
        ("Thu, 01 Jan 2026 00:10:00 GMT", "Thu, 01 Jan 2026 00:10:30 GMT", 30),  # ten minutes ahead of us
        ("Wed, 31 Dec 2025 23:50:00 GMT", "Wed, 31 Dec 2025 23:50:30 GMT", 30),  # ten minutes behind
        ("Mon, 01 Jan 2024 00:00:00 GMT", "Mon, 01 Jan 2024 00:00:30 GMT", 30),  # years behind
        ("Thu, 01 Jan 1970 00:00:00 GMT", "Thu, 01 Jan 2026 00:00:30 GMT", 30),  # stuck
        ("Thu, 01 Jan 2026 00:10:00 GMT", "Thu, 01 Jan 2026 00:05:00 GMT", None),  # its own past
        ("today", "Thu, 01 Jan 2026 00:00:30 GMT", 30),
    ],
)
def test_moments_count_from_the_answers_own_date(date: str, after: str, expected: float | None) -> None:
    assert read(("Date", date), ("Retry-After", after)).delay == expected


def test_an_epoch_counts_from_the_answers_own_date() -> None:
    fields = (("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", str(int(WALL) + 660)))
    date = ("Date", "Thu, 01 Jan 2026 00:10:00 GMT")
    assert read(date, *fields, status=429, cls=Class.THROTTLING, dialects=(GITHUB,)).delay == 60


def test_two_dates_are_none() -> None:
    date = ("Date", "Thu, 01 Jan 2026 00:10:00 GMT")
    assert read(date, date, ("Retry-After", "Thu, 01 Jan 2026 00:10:30 GMT")).delay == 630


# -- HTTP dates ----------


@pytest.mark.parametrize(
    "text",
    ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"],
)
def test_the_three_forms(text: str) -> None:
    assert read_http_date(text, WALL) == 784111777


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Zun, 29 Sep 2023 16:26:27 GMT",
        "Fri, 29 Sep 100000 16:26:57 GMT",
        "sun, 06 nov 1994 08:49:37 gmt",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 94 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 24:00:00 GMT",
        "Sun, 06 Nov 1994 08:60:00 GMT",
        "Sun, 06 Nov 1994 08:00:61 GMT",
        "Mon, 31 Feb 2026 00:00:00 GMT",
        "Mon, 00 Feb 2026 00:00:00 GMT",
        "Mon, 01 Jan 0000 00:00:00 GMT",
        "Sunday, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06-Nov-94 08:49:37 GMT",
        "Sun Nov 6 08:49:37 1994",
        "Sun Nov  6 08:49:37 1994 GMT",
        " Sun, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 GMT\n",
    ],
)
def test_what_is_no_date(text: str) -> None:
    assert read_http_date(text, WALL) is None


@pytest.mark.parametrize(
    ("year", "full"), [("26", 2026), ("75", 2075), ("76", 2076), ("77", 1977), ("99", 1999), ("00", 2000), ("25", 2025)]
)
def test_two_digit_years_are_at_most_fifty_years_ahead(year: str, full: int) -> None:
    moment = read_http_date(f"Thursday, 01-Jan-{year} 00:00:00 GMT", WALL)
    assert moment == timegm((full, 1, 1, 0, 0, 0))


def test_fifty_years_are_counted_to_the_day() -> None:
    assert read_http_date("Tuesday, 03-Jan-76 00:00:00 GMT", WALL) == timegm((1976, 1, 3, 0, 0, 0))
    assert read_http_date("Thursday, 30-Dec-76 00:00:00 GMT", WALL) == timegm((1976, 12, 30, 0, 0, 0))


def test_a_leap_second_counts_as_the_one_after() -> None:
    assert read_http_date("Sat, 31 Dec 2016 23:59:60 GMT", WALL) == timegm((2017, 1, 1, 0, 0, 0))


@given(st.integers(0, 250_000_000_000), st.sampled_from(["%a, %d %b %Y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"]))
def test_every_moment_is_read_back(moment: int, form: str) -> None:
    parts = time.gmtime(moment)
    assert read_http_date(time.strftime(form, parts), WALL) == moment


# -- whatever comes ----------

NAMES = [
    "retry-after",
    "retry-after-ms",
    "x-ms-retry-after-ms",
    "x-amz-retry-after",
    "grpc-retry-pushback-ms",
    "x-grpc-retry-pushback-ms",
    "x-should-retry",
    "ratelimit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-remaining-tokens",
    "date",
    "grpc-status",
]
values = st.one_of(
    st.text(max_size=30),
    st.integers(-(10**20), 10**20).map(str),
    st.floats().map(str),
    st.sampled_from(["0", "true", "false", '"d";r=0;t=9', "1m", "Thu, 01 Jan 2026 00:00:30 GMT"]),
    st.text('";,=rt0 \\', max_size=60),
)


@settings(max_examples=examples(300))
@given(
    st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=8),
    st.integers(100, 999),
    st.sampled_from(list(Class)),
    st.floats(-1e15, 1e15),
)
def test_reading_never_raises_and_delays_are_sane(
    pairs: list[tuple[str, str]], status: int, cls: Class, wall: float
) -> None:
    pushback = read_pushback(MappingFields(pairs), status, cls, (GITHUB, OPENAI), wall)
    assert pushback.delay is None or 0 <= pushback.delay <= LONGEST
    assert pushback.cooldown is None or (status in (429, 503) and pushback.delay is not None)
    assert not (pushback.stop and pushback.retry)
    assert cls is not Class.SUCCESS or pushback == NO_PUSHBACK


def test_hostile_lists_cost_little() -> None:
    for value in ('"\\' * 30_000, '"' * 60_001, "r=0;t=" * 10_000, "0" * 60_000, "1m" * 30_000 + "x"):
        read(("RateLimit", value), ("Retry-After", value), ("x-ratelimit-reset-tokens", value), dialects=(OPENAI,))
