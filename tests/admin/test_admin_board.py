"""The board: what moved, once for all who watch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.admin.live_board import LEVELS, LiveBoard, pause_after
from proxy.admin.timeline import quantile
from proxy.admin.upstream_state import STATES, is_drained
from proxy.admin.upstream_view import Live, Provision
from proxy.admin.views import Readiness, View
from proxy.observe.metrics import BOUNDS
from proxy.observe.recent_calls import RecentCalls

NONE = (0,) * (len(BOUNDS) + 1)


class BoardSource:
    def __init__(self) -> None:
        self.now = 100.0
        self.rows = [Live("a", 0, 0, 0, 0, NONE), Live("b", 0, 0, 0, 0, NONE)]
        self.levels = [{"bucket": "a/x", "kind": "quota", "level": 5.0, "capacity": 10}]
        self.looks = 0
        self.slow = 0.0
        self.loads = 1
        self.given = Provision()
        self.rested: tuple[int, int] | None = None

    async def live(self) -> list[Live]:
        self.looks += 1
        self.now += self.slow
        return self.rows

    async def upstreams(self, only: str | None) -> list[dict[str, Any]]:
        return []

    async def buckets(self) -> list[dict[str, Any]]:
        return self.levels

    async def provisions(self) -> dict[str, Provision]:
        return {"a": self.given}

    async def reload(self) -> list[str]:
        return []

    def board(self) -> LiveBoard:
        ready = Readiness(True, False, "x.yaml")
        view = View(
            readiness=lambda: ready,
            metrics=None,  # type: ignore[arg-type]
            config=dict,
            upstreams=self.upstreams,
            buckets=self.buckets,
            recent=RecentCalls(),
            reload=self.reload,
            drain=lambda: None,
            live=self.live,
            provisions=self.provisions,
            loads=lambda: self.loads,
            at_rest=lambda: self.rested,
        )
        return LiveBoard(view, lambda: self.now, "b0")


def changes_since(board: LiveBoard, version: int) -> tuple[dict[str, Any], int]:
    text, version = board.since(version)
    return json.loads(text), version


async def test_only_what_moved_is_told() -> None:
    source = BoardSource()
    board = source.board()
    await board.look()
    first, version = changes_since(board, 0)
    assert first["full"]
    assert [row["name"] for row in first["upstreams"]] == ["a", "b"]
    source.rows[1] = Live("b", 4, 2, 1, 6, NONE)
    source.now += 1
    await board.look()
    second, version = changes_since(board, version)
    assert not second["full"]
    (row,) = second["upstreams"]
    assert row["recent"] | {"p50": None, "p95": None} == row["recent"]
    figures = {"calls": 4, "at_once": 2, "after_retries": 1, "failed": 1, "attempts": 6}
    assert {name: row[name] for name in figures} == figures
    assert second["buckets"] == []
    source.now += 1
    await board.look()
    assert changes_since(board, version)[0]["upstreams"] == []
    assert len(changes_since(board, 0)[0]["upstreams"]) == 2


async def test_many_who_watch_cost_one_look_and_a_slow_look_makes_the_next_one_wait() -> None:
    source = BoardSource()
    board = source.board()
    for _ in range(5):
        await board.look()
    assert source.looks == 1
    assert board.wait == 1.0
    source.now += 1
    source.slow = 0.2
    await board.look()
    assert board.wait == pytest.approx(10.0)


async def test_rows_that_go_void_what_was_told() -> None:
    source = BoardSource()
    board = source.board()
    await board.look()
    _, version = changes_since(board, 0)
    source.rows.pop()
    source.now += 1
    await board.look()
    message, _ = changes_since(board, version)
    assert message["full"]
    assert [row["name"] for row in message["upstreams"]] == ["a"]


async def test_rows_that_a_reload_puts_elsewhere_are_sent_again_in_their_new_order() -> None:
    source = BoardSource()
    board = source.board()
    await board.look()
    _, version = changes_since(board, 0)
    for names in ("bca", "cba"):
        source.rows = [Live(name, 0, 0, 0, 0, NONE) for name in names]
        source.now += 1
        await board.look()
        message, version = changes_since(board, version)
        assert message["full"]
        assert [row["name"] for row in message["upstreams"]] == [*names]
    source.rows.append(Live("last", 0, 0, 0, 0, NONE))
    source.now += 1
    await board.look()
    message, _ = changes_since(board, version)
    assert not message["full"]
    assert [row["name"] for row in message["upstreams"]] == ["last"]


async def test_an_order_of_buckets_that_no_reader_sees_is_not_told() -> None:
    """It changes as the oldest scopes of policies are forgotten, and all rows would be sent each time."""
    source = BoardSource()
    source.levels.append({"bucket": "b/x", "kind": "quota", "level": 5.0, "capacity": 10})
    board = source.board()
    await board.look()
    _, version = changes_since(board, 0)
    source.levels.reverse()
    source.now += 1
    await board.look()
    message, version = changes_since(board, version)
    assert (message["full"], message["buckets"]) == (False, [])
    del source.levels[0]
    source.now += 1
    await board.look()
    message, _ = changes_since(board, version)
    assert (message["full"], [each["bucket"] for each in message["buckets"]]) == (True, ["a/x"])


async def test_the_last_minute_is_what_came_since_its_mark() -> None:
    source = BoardSource()
    board = source.board()
    slots = [*NONE]
    for second in range(30):  # samples five seconds apart: the window begins 30 to 60 s ago
        await board.sample()
        slots = list(slots)
        slots[3] += 10
        counts = 10 * (second + 1), 10 * (second + 1), 0, 10 * (second + 1)
        source.rows[0] = Live("a", *counts, slots, seconds=0.07 * (second + 1))
        source.now += 5
    await board.look()
    message, _ = changes_since(board, 0)
    assert message["window"] == 60
    assert message["upstreams"][0]["recent"]["calls"] == 120
    assert message["upstreams"][0]["calls"] == 300
    assert 0.005 < message["upstreams"][0]["recent"]["p50"] < 0.01
    assert len(message["history"]["a/x"]) == 30
    for _ in range(LEVELS):
        await board.sample()
    await board.look()
    assert len(changes_since(board, 0)[0]["history"]["a/x"]) == LEVELS


async def test_in_quiet_a_sample_is_repeated_until_a_call_comes() -> None:
    source = BoardSource()
    board = source.board()

    async def samples(count: int) -> int:
        """How many of so many samples read the counters."""
        looks = source.looks
        for _ in range(count):
            await board.sample()
            source.now += 5
        return source.looks - looks

    source.rows[0] = Live("a", 2, 2, 0, 2, NONE)
    source.rested = (2, 1)
    assert await samples(6) == 5  # the first level is new, the next four are still
    assert await samples(12) == 2  # a mark of the window is made every thirty seconds
    source.rows[0] = Live("a", 5, 5, 0, 5, NONE)
    source.levels[0]["level"] = 4.0
    source.rested = (5, 1)
    assert await samples(1) == 1
    assert board.timeline.columns("a", 0.0)["calls"] == [0] * 17 + [3]
    assert board.timeline.levels("a/x", 3) == [5.0, 5.0, 4.0]
    await samples(5)
    assert await samples(2) < 2
    source.rested = (5, 2)  # another configuration
    assert await samples(2) == 1
    source.rested = None
    assert await samples(7) == 7


def test_a_sample_takes_its_share_of_a_core_at_most() -> None:
    assert pause_after(0.01) == pytest.approx(4.99)
    assert pause_after(0.1) == pytest.approx(4.9)
    assert pause_after(0.2) == pytest.approx(9.8)
    assert pause_after(20.0) == 15.0


async def test_one_label_is_told_by_its_lowest_scope() -> None:
    source = BoardSource()
    source.levels += [
        {**source.levels[0], "level": 2.0},
        {**source.levels[0], "kind": "adaptive limiter", "level": 1.0},
    ]
    board = source.board()
    await board.look()
    message, _ = changes_since(board, 0)
    assert [(each["bucket"], each["level"], each["scopes"]) for each in message["buckets"]] == [
        ("a/x", 2.0, 2),
        ("a/x (limiter)", 1.0, 1),
    ]


def counted(
    calls: int = 0, failed: int = 0, retries: int = 0, *, name: str = "a", arrived: int = 0, **more: Any
) -> Live:
    attempts = calls + retries + arrived
    return Live(name, calls, calls - failed, 0, attempts, NONE, retries=retries, arrived=arrived, **more)


#: A limit in force at all endpoints.
LIMITED = {"endpoint": "", "outage": None, "limit": {"seconds": 3.0, "places": 1}}


def bucket(level: float, kind: str = "quota", label: str = "a/x") -> dict[str, Any]:
    return {"bucket": label, "kind": kind, "level": level, "capacity": 500}


async def shown(row: Live, *buckets: dict[str, Any], **given: Any) -> dict[str, Any]:
    source = BoardSource()
    source.rows, source.levels = [row], list(buckets)
    source.given = Provision(**{"buckets": ("a/x", "a/y"), "rates": ("r", "s"), **given})
    board = source.board()
    await board.look()
    (replaced_proxies,) = changes_since(board, 0)[0]["upstreams"]
    return dict(replaced_proxies)


@pytest.mark.parametrize(
    ("row", "buckets", "state"),
    [
        (counted(), (), "quiet"),
        (counted(10), (), "ok"),
        (counted(10, retries=1), (), "ok"),
        (counted(10, retries=2), (), "retrying"),
        (counted(10, 1, retries=2), (), "errors"),
        (counted(10, 4), (), "errors"),
        (counted(10, 5), (), "failing"),
        (counted(10, 1), (bucket(49),), "drained"),
        (counted(), (bucket(0),), "quiet"),
        (counted(10, 1), (bucket(50),), "errors"),
        (counted(10, 1), (bucket(500), bucket(49, label="a/y")), "drained"),
        (counted(10, 1), (bucket(500), bucket(49, label="b/x")), "errors"),
        (counted(10, 1), (bucket(250, "throttle"),), "drained"),
        (counted(10, 1), (bucket(251, "throttle"),), "errors"),
        (counted(10, 1), (bucket(0.5, "budget"),), "drained"),
        (counted(10, 1), (bucket(1, "budget"),), "errors"),
        (counted(10, 5), (bucket(0),), "failing"),
        (counted(10, 1, open=[("http://b", 2.0)]), (), "open"),
        (counted(10, 1, open=[("http://b", 2.0)]), (bucket(0),), "drained"),
        (counted(10, 1, aside=[(2, 60.0)]), (), "aside"),
        (counted(10, aside=[(2, 60.0)], open=[("http://b", 2.0)]), (), "open"),
        (counted(10, 10, cooldown=3.0), (), "cooling"),
        (counted(10, weather=[LIMITED]), (), "limited"),
        (counted(held=1, weather=[LIMITED]), (), "limited"),
        (counted(weather=[LIMITED], open=[("http://b", 2.0)]), (), "quiet"),
        (counted(arrived=3), (), "taking_over"),
        (counted(10, name=""), (), "refused"),
        (counted(name=""), (), "quiet"),
    ],
)
async def test_the_state_of_an_upstream(row: Live, buckets: tuple[dict[str, Any], ...], state: str) -> None:
    assert (await shown(row, *buckets))["state"] == state


async def test_serious_states_stand_side_by_side() -> None:
    row = await shown(counted(10, 6, open=[("http://b", 2.0)]), bucket(0))
    assert (row["state"], row["also"]) == ("failing", ["drained", "open"])
    row = await shown(counted(10, 10, cooldown=3.0))
    assert (row["state"], row["also"]) == ("cooling", ["failing"])
    row = await shown(counted(10, 1, retries=5))
    assert (row["state"], row["also"]) == ("errors", []), "retrying is no trouble of its own"


@pytest.mark.parametrize(
    ("cooldown", "cooling", "keys", "state", "only_keys"),
    [
        (3.0, [(1, 3.0)], 2, "key_cooling", True),
        (3.1, [(1, 3.0)], 2, "key_cooling", True),
        (9.0, [(1, 3.0)], 2, "cooling", False),
        (3.0, [(1, 3.0)], 1, "cooling", False),
        (3.0, [(1, 3.0), (2, 1.0)], 2, "cooling", False),
        (3.0, [], 2, "cooling", False),
    ],
)
async def test_a_cooldown_of_some_keys_is_not_the_upstreams(
    cooldown: float, cooling: list[tuple[int, float]], keys: int, state: str, only_keys: bool
) -> None:
    replaced_proxies = await shown(counted(10, cooldown=cooldown, cooling=cooling), keys=keys)
    assert (replaced_proxies["state"], replaced_proxies["only_keys_cool"], replaced_proxies["keys"]) == (
        state,
        only_keys,
        keys,
    )


async def test_a_row_names_the_lowest_of_its_buckets_and_rates() -> None:
    rates = bucket(3, "rate", "r"), bucket(2, "rate", "s")
    replaced_proxies = await shown(counted(1), bucket(400), bucket(100, label="a/y"), *rates)
    assert (replaced_proxies["bucket"], replaced_proxies["rate"]) == ("a/y", "s")
    replaced_proxies = await shown(counted(1))
    assert (replaced_proxies["bucket"], replaced_proxies["rate"]) == (None, None)


async def test_a_row_is_told_again_when_its_bucket_drains_and_when_another_configuration_names_another() -> None:
    source = BoardSource()
    source.given = Provision(buckets=("a/x",))
    board = source.board()
    await board.look()
    message, version = changes_since(board, 0)
    assert message["states"]["drained"] == {
        "rank": 4, "text": "bucket empty", "why": STATES["drained"].why,
    }  # fmt: skip
    assert [row["state"] for row in message["upstreams"]] == ["quiet", "quiet"]
    source.levels = [{**source.levels[0], "level": 0.5}]
    source.rows = [counted(3), *source.rows[1:]]
    source.now += 1
    await board.look()
    message, version = changes_since(board, version)
    assert [(row["name"], row["state"]) for row in message["upstreams"]] == [("a", "drained")]
    assert [each["drained"] for each in message["buckets"]] == [True]
    assert "states" not in message
    source.given, source.loads = Provision(), 2
    source.now += 1
    await board.look()
    message, _ = changes_since(board, version)
    assert [(row["name"], row["state"], row["bucket"]) for row in message["upstreams"]] == [("a", "ok", None)]


@pytest.mark.parametrize("kind", ["rate", "adaptive limiter", "concurrency", "hedging"])
def test_only_what_pays_for_retries_is_drained(kind: str) -> None:
    assert not is_drained(bucket(0, kind))


def test_every_state_has_a_look_and_is_explained() -> None:
    root = Path(__file__).parents[2]
    style = (root / "proxy/admin/static/style.css").read_text()
    page = (root / "docs/guides/dashboard.md").read_text()
    for name, state in STATES.items():
        if name != "ok":  # the lamp of all that have none of their own
            assert f'[data-state="{name}"] .lamp::before' in style, name
            assert f"| {state.text} |" in page, name
        assert not state.rank or f'[data-state="{name}"] .badge' in style, name


def test_quantiles() -> None:
    assert quantile(NONE, 0.5, 0.0) is None
    beyond = [*NONE[:-1], 4]
    assert quantile(beyond, 0.5, 4000.0) == BOUNDS[-1]
    first = [4, *NONE[1:]]
    assert quantile(first, 0.5, 2 * BOUNDS[0]) == pytest.approx(BOUNDS[0] / 2)


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
def test_a_single_duration_is_shown_as_it_was(share: float) -> None:
    slot = next(slot for slot, bound in enumerate(BOUNDS) if bound >= 1.08)
    alone = [*NONE]
    alone[slot] = 1
    assert quantile(alone, share, 1.08) == 1.08


@pytest.mark.parametrize(("seconds", "half", "most"), [(10.5, 1.05, 1.099), (17.5, 1.75, 2.485), (0.0, 1.0, 1.0)])
def test_durations_in_one_slot_lie_around_their_mean(seconds: float, half: float, most: float) -> None:
    slot = next(slot for slot, bound in enumerate(BOUNDS) if bound > 1.0)
    ten = [*NONE]
    ten[slot] = 10
    assert quantile(ten, 0.5, seconds) == pytest.approx(half)
    assert quantile(ten, 0.99, seconds) == pytest.approx(most)
