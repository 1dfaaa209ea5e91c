"""What `redrive top` makes of the admin port's board: rows, states, orders, and a picture that fits."""

from __future__ import annotations

import io
import itertools
import re
import time
from dataclasses import asdict
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from proxy.admin.upstream_state import STATES
from proxy.command_parser import ORDERS as NAMED
from proxy.top.board import ORDERS, Board, Row, chosen, duration, ordered, total_as_data
from proxy.top.screen import Selection, picture, summary

WORDS = {name: asdict(state) for name, state in STATES.items()}
READY = {"ready": True, "draining": False, "in_flight": 12, "reload_errors": []}


def live(name: str, calls: int = 0, failed: int = 0, after_retries: int = 0, **more: Any) -> dict[str, Any]:
    """An upstream, as a message of the board has it."""
    figures = {
        "calls": calls,
        "at_once": calls - failed - after_retries,
        "after_retries": after_retries,
        "failed": failed,
        "attempts": calls + after_retries,
        "retries": after_retries,
        "arrived": more.pop("arrived", 0),
    }
    seconds = {"p50": 0.012, "p95": 2.5} if calls else {"p50": None, "p95": None}
    now = {"cooldown": 0.0, "held": 0, "under_way": 0, "queued": 0, "open": [], "aside": [], "cooling": []}
    now |= {"state": "failing" if failed else "quiet", "bucket": None, "rate": None, "weather": []}
    return {"name": name, **figures, **now, "recent": {**figures, **seconds, **more.pop("recent", {})}, **more}


def about(name: str, **more: Any) -> dict[str, Any]:
    """The same, as /upstreams has it."""
    policy = {"bucket": f"{name}/standard", "rate": None, "limiter": None, "concurrency": None}
    return {"name": name, "label": name, **policy, "routes": [], "cooldown": None, "credentials": [], **more}


def lane(
    endpoint: str | None = None, callers: str = "everybody", outage: float | None = None, limit: int | None = None
) -> dict[str, Any]:
    """A limit, or an outage for so many seconds, as a message of the board has it."""
    out = None if outage is None else {"since": 0.0, "seconds": outage, "why": "an outage began"}
    most = None
    if limit is not None:
        most = {"attempts": limit, "under_way": 3, "per_second": None, "since": 0.0, "seconds": 12, "why": None}
    return {
        "endpoint": endpoint,
        "callers": callers,
        "held_by": "outage" if outage is not None else "limit",
        "held_calls": 2,
        "outage": out,
        "limit": most,
    }


def bucket(label: str, level: float, kind: str = "quota") -> dict[str, Any]:
    return {"bucket": label, "kind": kind, "level": level, "capacity": 500, "scopes": 1, "drained": level < 50}


def board(*upstreams: dict[str, Any], buckets: tuple[dict[str, Any], ...] = (), **described: Any) -> Board:
    made = Board()
    made.describe([about(each["name"], **described.get(each["name"], {})) for each in upstreams if each["name"]])
    rest = {"ready": READY, "window": 40.0, "loads": 1, "states": WORDS}
    made.take({"full": True, "upstreams": upstreams, "buckets": buckets, **rest})
    return made


def row(upstream: dict[str, Any], *buckets: dict[str, Any], **described: Any) -> Row:
    (found,) = board(upstream, buckets=buckets, **{upstream["name"]: described}).rows(0.0)
    return found


def text(
    rows: list[Row], width: int | None = None, height: int | None = None, look: Selection | None = None, **options: Any
) -> list[str]:
    written = io.StringIO()
    shown = ordered(chosen(rows, look.filter if look else ""), "state")
    Console(file=written, width=width or 10_000, highlight=False, **options).print(
        picture(rows, shown, Text(summary("127.0.0.1:9901", READY, 40.0, rows)), width, height, look)
    )
    return [line.rstrip() for line in written.getvalue().splitlines()]


def test_the_orders_that_the_command_line_names() -> None:
    assert NAMED == ORDERS


def test_the_state_is_the_boards() -> None:
    found = row(live("a", state="drained"))
    assert (found.state, found.rank) == ("bucket empty", 4)


def test_keys_that_cool_are_noted() -> None:
    assert "key 1 cools for 3.0 s" in text([row(live("a", 10, cooldown=3.0, cooling=[[1, 3.0]]))])[2]


def test_a_key_file_that_can_not_be_read_is_noted() -> None:
    stale = row(live("a", 10, unreadable=[2]))
    assert "key 2: its file can't be read, the earlier value stays in use" in text([stale])[2]
    assert stale.as_data()["key_files_unreadable"] == [2]


def test_only_what_changed_is_sent_and_the_rest_stays() -> None:
    made = board(live("a", 4), live("b", 4))
    rest = {"ready": READY, "window": 41.0, "loads": 1, "states": WORDS}
    changed = {"full": False, "upstreams": [live("b", 8)], "buckets": [], **rest}
    made.take(changed)
    assert [each.calls for each in made.rows(0.0)] == [4, 8]
    made.take({**changed, "full": True})
    assert [each.name for each in made.rows(0.0)] == ["b"]


def test_figures() -> None:
    data = row(live("a", 80, 8, 20, bucket="a/standard"), bucket("a/standard", 480)).as_data()
    assert data["calls_per_second"] == 2.0
    assert (data["success"], data["success_without_retries"], data["attempts_per_call"]) == (0.9, 0.65, 1.25)
    assert data["bucket"] == {"bucket": "a/standard", "kind": "quota", "level": 480, "capacity": 500}
    assert row(live("a")).as_data()["success"] is None
    rows = board(live("a", 60, 6), live("b", 20), live("", 20, 20)).rows(0.0)
    added = total_as_data(rows, 40.0)
    assert (added["upstreams"], added["in_trouble"], added["calls_per_second"]) == (2, 1, 2.5)
    assert added["success"] == 0.74


def test_who_began_a_cooldown() -> None:
    began = {"field": "retry-after", "status": 429, "endpoint": "http://10.0.0.1", "seconds": 9.0}
    made = board(live("a", 5, cooldown=8.0), live("b", 5), a={"cooldown": began}, b={"cooldown": began})
    held, other = made.rows(0.0)
    assert (held.began, held.until, other.began) == (began, 8.0, None)
    assert "(retry-after, 429 from http://10.0.0.1)" in text([held])[2]
    assert (made.new_cooldowns(), made.new_cooldowns()) == (["a"], [])


@pytest.mark.parametrize(
    ("described", "buckets", "limit"),
    [
        ({"concurrency": 8}, (), "3/8"),
        ({"rate": "r", "told": "r"}, (bucket("r", 12.5, "rate"),), "12 left"),
        ({"rate": "r", "told": "r"}, ({**bucket("r", 12.5, "rate"), "unit": "attempts"},), "12 left"),
        ({"rate": "r", "told": "r"}, ({**bucket("r", 1234.5, "rate"), "unit": "tokens"},), "1,234 tokens left"),
        ({"rate": "r"}, (), "open"),
        (
            {"limiter": "l", "concurrency": 8},
            ({"bucket": "l (limiter)", "kind": "adaptive limiter", "enabled": True, "fill_rate": 4.0, "level": 1},),
            "4.0/s, 3/8",
        ),
        ({}, (), ""),
    ],
)
def test_what_limits_it(described: dict[str, Any], buckets: tuple[dict[str, Any], ...], limit: str) -> None:
    assert row(live("a", 1, under_way=3, rate=described.pop("told", None)), *buckets, **described).limit == limit


def test_a_limit_and_an_outage_are_shown_with_what_made_them() -> None:
    limited = live("a", 5, weather=[lane("e1:80", limit=4)])
    assert row(limited, concurrency="auto").limit == "3/4"
    limited["weather"][0]["limit"]["per_second"] = 1.234
    assert "e1:80 at most 4 at a time and 1.23/s for the last 12 s" in text([row(limited)])[2]
    limited["weather"][0]["limit"]["per_second"] = None
    assert "e1:80 at most 4 at a time for the last 12 s" in text([row(limited)])[2]
    limited["weather"][0]["limit"] |= {"attempts": None, "per_second": 2.213}  # held calls return
    assert "e1:80 at most 2.21/s for the last 12 s" in text([row(limited)])[2]
    assert row(limited, concurrency="auto").limit == ""
    out = live("b", 5, weather=[lane(callers="GET of route r", outage=7.0), lane(limit=2)])
    shown = text([row(out)])[2]
    assert "out 7.0 s" in shown
    assert "(GET of route r) outage for the last 7.0 s: an outage began; at most 2 at a time for" in shown
    assert row(out).as_data()["weather"] == out["weather"]


def test_the_first_line_says_what_is_wrong_with_redrive_itself() -> None:
    wrong = READY | {"redis": "out", "reload_errors": ["redrive.yaml:1:1: …"]}
    said = summary("127.0.0.1:9901", wrong, 40.0, [])
    assert said.startswith("127.0.0.1:9901 is ready, a changed file was refused, Redis is out, last 40 s")
    assert "Redis" not in summary("127.0.0.1:9901", READY | {"redis": "up"}, 40.0, [])


def test_orders() -> None:
    rows = board(
        live("calm", 500, recent={"p95": 0.1}),
        live("Bad", 10, 9),
        live("held", 20, cooldown=9.0, state="cooling", bucket="held/standard"),
        live("idle"),
        buckets=(bucket("held/standard", 10),),
    ).rows(0.0)

    def names(by: str, **options: bool) -> list[str]:
        return [each.name for each in ordered(rows, by, **options)]

    assert names("state") == ["Bad", "held", "calm", "idle"]
    assert names("state", turned=True) == ["calm", "idle", "held", "Bad"]
    assert names("name") == ["Bad", "calm", "held", "idle"]
    assert names("calls")[0] == "calm"
    assert names("success") == ["Bad", "calm", "held", "idle"]
    assert names("p95")[-1] == "idle"
    assert names("bucket")[0] == names("cooldown")[0] == "held"
    assert [each.name for each in chosen(rows, "A")] == ["calm", "Bad"]


def many(number: int, *, outage: bool = False) -> list[Row]:
    names = ("github", "payments-api", "a-name-that-is-longer-than-anybody-would-want-to-read-in-a-table", "q")
    upstreams = [
        live(
            f"{name}-{n}", n * 37, n * 37 if outage else n % 5, n % 7, bucket=f"{name}-{n}/standard",
            cooldown=900.0 if n % 4 == 0 else 0.0, held=n, queued=n % 2,
            open=[["http://10.0.0.1:8080", 4.2]] if n % 3 == 0 else [], aside=[[2, 300]] if n % 5 == 0 else [],
        )
        for n, name in zip(range(number), itertools.cycle(names), strict=False)
    ]  # fmt: skip
    return board(*upstreams, buckets=tuple(bucket(f"{each['name']}/standard", 480) for each in upstreams)).rows(0.0)


@pytest.mark.parametrize(
    ("number", "width"), [*itertools.product((0, 7), (20, 40, 60, 80, 100, 120, 200)), (300, 80), (300, 120)]
)
def test_it_fits_the_terminal(number: int, width: int) -> None:
    rows = many(number, outage=width == 80)
    for height in (5, 24):
        lines = text(rows, width, height, Selection())
        assert len(lines) == height
        assert max(map(len, lines)) <= width
        assert lines[-1].startswith("q quit   s S sort")
    lines = text(rows, width)
    notes = [line for line in lines[number + 3 + (not number) :] if not line.startswith("  ")]
    assert len(notes) in (0, sum(row.held > 0 or row.cooldown > 0 for row in rows))
    assert max(map(len, lines)) <= width


def test_notes_stand_below_a_table_that_has_no_room_for_them() -> None:
    out = live("shop", 5, held=211, weather=[lane(outage=8.0)])
    rows = board(out, live("mail", 3)).rows(0.0)
    told = "shop: outage for the last 8.0 s: an outage began; 211 calls held"
    assert text(rows, 80)[-1] == told
    lines = text(rows, 80, 9, Selection())
    assert (lines[5], lines[-2], len(lines)) == (told, "", 9)
    assert "notes" not in lines[1]
    assert text(rows, 40)[-2:] == ["shop: outage for the last 8.0 s: an", "  outage began; 211 calls held"]
    assert told not in text(rows, 80, 6, Selection()), "a low terminal has the rows, and no further line"
    assert "outage for the last 8.0 s: an outage began; 211 calls held" in text(rows, 160)[2]


def test_columns_of_80_and_of_260() -> None:
    narrow, wide = text(many(7), 80), text(many(7), 260)
    assert narrow[1].split("  ")[0] == "upstream"
    assert {"state", "calls/s", "success", "bucket", "cooldown"} <= set(narrow[1].split())
    assert {"att/call", "p50", "p95", "limit", "notes"} <= set(wide[1].split())
    assert "cooldown until " in "".join(wide)
    assert "p99" not in wide[1]
    (line,) = (each for each in wide if each.startswith("payments-api-1 "))
    figures = "0.93  97.3% 94.6% 1.03  12 ms  2.5 s  480/500  -  -  1 call held; 1 waits for a place"
    assert line.split() == f"payments-api-1  failing  {figures}".split()


def test_p99_where_the_board_has_it() -> None:
    assert "p99" in text([row(live("a", 5, recent={"p99": 4.0}))], 120)[1].split()


def test_a_script_gets_every_column_and_whole_names() -> None:
    found = [line for line in text(many(7)) if line.startswith("a-name")]
    assert found[0].startswith("a-name-that-is-longer-than-anybody-would-want-to-read-in-a-table-2 ")
    assert "cooldown until" in "".join(text(many(9)))


def test_without_colour_there_is_not_an_escape_and_with_it_the_text_is_the_same() -> None:
    plain = text(many(7), 100, 12, Selection(), force_terminal=True, no_color=True, color_system=None)
    coloured = text(many(7), 100, 12, Selection(), force_terminal=True, color_system="standard")
    assert "\x1b" not in "".join(plain)
    assert "\x1b[" in "".join(coloured)
    assert [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in coloured] == plain


def test_what_is_scrolled_past_and_what_is_filtered() -> None:
    rows = many(300)
    lines = text(rows, 80, 14, Selection(first=290))
    assert "291 to 300 of 300" in lines[-1]
    assert "filter: q_" in text(rows, 80, 14, Selection(filter="q", typing=True))[-1]
    assert "no upstream matches the filter" in "".join(text(rows, 80, 14, Selection(filter="nobody")))


def test_a_narrow_screen_names_the_most_serious_state_and_keeps_the_figures() -> None:
    troubled = live("payments-of-the-west", 80, 20, state="outage", also=["failing", "drained", "open"], held=3)
    rows = board(troubled, live("shop", 40, 40), live("search", 9, cooldown=65.102, state="cooling")).rows(0.0)
    for width, heads in [(80, "success bucket cooldown"), (120, "success 1st_try att/call p95 bucket cooldown limit")]:
        lines = text(rows, width)
        assert max(map(len, lines)) <= width
        assert set(heads.split()) <= set(lines[1].replace("1st try", "1st_try").split())
        assert ("outage +3" if width == 80 else "outage") in lines[3]
    (row_of_search,) = (line for line in text(rows, 120) if line.startswith("search "))
    assert " 65 s" in row_of_search
    assert "outage, failing, bucket empty, circuit open" in "\n".join(text(rows))


def test_times_are_rounded_to_what_is_of_use() -> None:
    written = [duration(each) for each in (0.0, 0.0012, 0.0691, 0.9996, 1.234, 65.102, 7_000)]
    assert written == ["0 ms", "1.2 ms", "69 ms", "1.0 s", "1.2 s", "65 s", "1.9 h"]


def test_held_calls_say_by_what_where_no_other_note_does() -> None:
    held = row(live("a", 5, held=3, held_by={"rate": 3}))
    assert "3 calls held by the upstream's rate bucket or the adaptive limiter" in "\n".join(text([held]))
    held = row(live("a", 5, held=4, held_by={"rate": 1, "ahead": 2, "outage": 1}))
    by_rate = "1 by the upstream's rate bucket or the adaptive limiter"
    by_ahead = "2 by what the upstream said is left of its limits"
    assert f"4 calls held ({by_rate}, {by_ahead})" in "\n".join(text([held]))
    assert held.as_data()["held_by"] == {"rate": 1, "ahead": 2, "outage": 1}


REFUSED = {"fault": "connect_failure", "detail": "the connection was refused"}
ANSWERED = {"status": 503}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            {"status": 502, "outcome": "bucket_empty", "attempts": 1, "history": [ANSWERED, REFUSED]},
            "502 bucket_empty, after connect_failure (the connection was refused)",
        ),
        (
            {"status": 503, "outcome": "not_retryable", "attempts": 1, "history": [ANSWERED]},
            "503 not_retryable, after 503",
        ),
        ({"status": 503, "outcome": "outage", "attempts": 0, "history": []}, "503 outage, not sent"),
        ({"status": 0, "outcome": "client_gone", "attempts": 1, "history": []}, "no answer client_gone"),
    ],
)
def test_the_newest_failure_leads_to_why(call: dict[str, Any], said: str) -> None:
    made = board(live("a", 5, 5), live("b", 5, 1, state="quiet"), live("c", 5, recent={"failed": 0}))
    assert made.failing() == ["a"], "upstreams without trouble or without failures need none"
    made.note_failure("a", {"number": 7, **call})
    assert text(made.rows(0.0))[2].endswith(f"the newest failure is {said}: redrive why 7")
    made.note_failure("a", None)
    assert "newest failure" not in "".join(text(made.rows(0.0)))


def test_the_end_of_a_cooldown_is_a_time_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert "cooldown until 00:00:08 UTC" in text([row(live("a", 5, cooldown=8.0))])[2]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_calls_that_return_from_a_cooldown_say_so() -> None:
    held = row(live("a", 5, held=3, held_by={"cooling": 3}))
    assert "3 calls held by the slow start after the upstream's cooldown" in "\n".join(text([held]))
    cooling = row(live("a", 5, held=3, held_by={"cooling": 3}, cooldown=4.0))
    assert "slow start" not in "\n".join(text([cooling]))
