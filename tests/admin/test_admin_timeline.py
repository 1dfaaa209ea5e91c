"""The last fifteen minutes, in samples: on a clock of its own, without a port."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.admin.timeline import COUNTED, MOST, NO_CALLS, RING, SAMPLE, SAMPLES, Timeline
from proxy.admin.upstream_view import Live
from proxy.observe.metrics import BOUNDS

WALL = 1_000_000.0


def row(name: str, at_once: int, after_retries: int = 0, failed: int = 0, retries: int = 0, *, slot: int = 3) -> Live:
    calls = at_once + after_retries + failed
    slots = [*NO_CALLS]
    slots[slot] = calls
    return Live(name, calls, at_once, after_retries, calls + retries, slots, retries=retries)


class Sampler:
    """Makes samples five seconds apart."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.now = 0.0

    def sample(self, *rows: Live, levels: Iterable[tuple[str, float]] = (), after: float = SAMPLE) -> None:
        self.now += after
        self.timeline.begin(self.now)
        for each in rows:
            self.timeline.note(each)
        for label, level in levels:
            self.timeline.level(label, level)
        self.timeline.end()

    def shown(self, name: str | None, column: str) -> list[float | None]:
        return self.timeline.columns(name, WALL)[column]


def test_a_sample_is_what_was_added_since_the_one_before() -> None:
    at = Sampler()
    at.sample(row("a", 1000), row("b", 0))  # what was counted before anybody looked is no rate
    at.sample(row("a", 1010), row("b", 0))
    at.sample(row("a", 1010), row("b", 2, 1, 1, 4), after=10)
    assert at.shown("a", "calls") == [10, 0]
    assert at.shown(None, "calls") == [10, 4]
    assert at.shown("b", "after_retries") == [0, 1]
    assert at.shown("b", "failed") == [0, 1]
    assert at.shown("b", "retries") == [0, 4]
    assert at.shown("b", "attempts") == [0, 8]
    assert at.shown("a", "seconds") == [5.0, 10.0]
    assert at.shown("a", "at") == [WALL + 10, WALL + 20]


def test_percentiles_are_those_of_the_calls_that_ended_in_the_sample() -> None:
    at = Sampler()
    at.sample(row("a", 100, slot=0))
    slots = [100, *NO_CALLS[1:]]
    slots[9] = 4  # 0.5 to 1 s
    at.sample(Live("a", 104, 104, 0, 104, slots, seconds=3.0))
    at.sample(Live("a", 104, 104, 0, 104, slots, seconds=3.0))
    assert BOUNDS[8:10] == (0.5, 1.0)
    assert at.shown("a", "p50") == [0.75, None]
    assert at.shown("a", "p95") == [0.975, None]
    assert at.shown(None, "p99") == [0.995, None]


def test_a_counter_that_began_anew_shows_what_it_counted_since() -> None:
    at = Sampler()
    at.sample(row("a", 500))
    at.sample(row("a", 7))
    assert at.shown("a", "calls") == [7]


def test_an_upstream_that_a_reload_takes_away_and_brings_back() -> None:
    at = Sampler()
    at.sample(row("a", 5), row("b", 0))
    at.sample(row("a", 8), row("b", 2))
    at.sample(row("a", 8))
    assert not at.timeline.knows("c")
    at.sample(row("a", 8), row("b", 3), row("c", 4))
    assert at.shown("b", "calls") == [2, 0, 1]
    assert at.shown("c", "calls") == [0, 0, 4]


def test_it_keeps_fifteen_minutes_and_then_lets_a_quiet_upstream_go() -> None:
    at = Sampler()
    at.sample(row("a", 0))
    at.sample(row("a", 1))
    assert len(at.timeline._rings) == 1
    for _ in range(SAMPLES - 1):
        at.sample(row("a", 1))
    assert at.shown("a", "calls") == [1] + [0] * (SAMPLES - 1)
    at.sample(row("a", 1))
    assert len(at.timeline._rings) == 0
    assert at.shown("a", "calls") == [0] * SAMPLES
    at.sample(row("a", 3))
    assert at.shown("a", "calls") == [0] * (SAMPLES - 1) + [2]


def test_samples_that_are_repeated_count_nothing_and_let_a_quiet_upstream_go() -> None:
    at = Sampler()
    at.sample(row("a", 0), levels=[("a/x", 5.0)])
    at.sample(row("a", 1), levels=[("a/x", 5.0)])
    at.sample(row("a", 1), levels=[("a/x", 5.0)])
    assert at.timeline.still == 1
    for _ in range(SAMPLES - 2):
        at.now += SAMPLE
        at.timeline.repeat(at.now)
    assert at.shown("a", "calls") == [1] + [0] * (SAMPLES - 1)
    at.timeline.repeat(at.now)
    assert len(at.timeline._rings) == 0
    assert at.timeline.levels("a/x", SAMPLES) == [5.0] * SAMPLES
    at.sample(row("a", 3))
    assert at.shown("a", "calls") == at.shown(None, "calls") == [0] * (SAMPLES - 1) + [2]
    assert at.timeline.still == 0


def test_a_cooldown_alone_is_sampled_too() -> None:
    at = Sampler()
    at.sample(row("a", 0))
    at.sample(Live("a", 0, 0, 0, 0, NO_CALLS, cooldown=12.5))
    assert at.shown("a", "cooldown") == [12.5]
    assert at.shown(None, "cooldown") == [12.5]


def test_its_memory_is_bounded() -> None:
    at = Sampler()
    names = [f"u{number}" for number in range(MOST + 5)]
    at.sample(*(row(name, 0) for name in names))
    at.sample(*(row(name, 1) for name in names), levels=((name, 1.0) for name in names))
    assert len(at.timeline._rings) == len(at.timeline.labels()) == MOST
    assert at.shown(None, "calls") == [MOST + 5]  # those without a ring are in the sum
    assert MOST * RING < 8 * 1024 * 1024


def test_levels_stand_beside_the_samples() -> None:
    at = Sampler()
    at.sample(row("a", 1), levels=[("a/x", 5.0)])
    at.sample(row("a", 2), levels=[("a/x", 4.5), ("new", 1.0)])
    assert at.timeline.levels("a/x", 1) == [4.5]
    assert at.timeline.levels("a/x", SAMPLES) == [5.0, 4.5]
    assert at.timeline.levels("new", SAMPLES) == [None, 1.0]
    assert at.timeline.levels("gone", 2) == [None, None]
    at.sample(row("a", 2))
    assert at.timeline.labels() == []


def test_a_process_that_was_started_again_and_counted_as_many_calls_is_seen() -> None:
    at = Sampler()
    at.sample(row("a", 0))
    at.sample(row("a", 0, 0, 10, 10))
    at.sample(row("a", 0, 1, 9, 10))
    assert at.shown("a", "calls") == [10, 10]


#: What one worker adds between two samples: calls at once, after retries, failed, and retries.
adding = st.tuples(*[st.integers(0, 50)] * 4)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.tuples(adding, adding, st.booleans(), st.booleans()), min_size=1, max_size=12),
)
def test_no_rate_is_negative_and_workers_add_up(
    steps: list[tuple[tuple[int, ...], tuple[int, ...], bool, bool]],
) -> None:
    """Two workers' counters, added up as `Aggregate` does; now and then they begin anew, or are not there."""
    at, total, since = Sampler(), [0] * 4, [0] * 4
    at.sample(row("a", 0))
    expected: list[int] = []
    for one, other, anew, gone in steps:
        total = [0] * 4 if anew else total
        total = [sum(each) for each in zip(total, one, other, strict=True)]
        lower = any(now < before for now, before in zip(total, since, strict=True))
        if gone:
            at.sample()
            expected.append(0)
            continue
        at.sample(row("a", *total))
        added = total if lower else [now - before for now, before in zip(total, since, strict=True)]
        expected.append(sum(added[:3]))
        since = total
    shown = {column: at.shown("a", column) for column in COUNTED}
    assert all(value is not None and value >= 0 for column in shown.values() for value in column)
    assert shown["calls"] == expected
    for calls, *parts in zip(*(shown[c] for c in ("calls", "at_once", "after_retries", "failed")), strict=True):
        assert calls == sum(part or 0 for part in parts)
    assert at.shown(None, "calls") == expected
