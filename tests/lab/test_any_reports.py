"""Whatever an upstream's answers say is left of its limits: `pushback.ahead` refuses no call, and holds none for longer
than `hold` (contract, section 16).

Hypothesis writes the fields: those of every dialect and the IETF's, right, wrong, twice, or without any sense.
"""

from __future__ import annotations

from itertools import cycle
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from support.scenarios import scenario

from proxy.lab.simulate.columns import Column, columns
from proxy.lab.simulate.ledger import Ledger
from proxy.lab.simulate.simulation import play
from proxy.lab.simulate.weather import Scenario
from proxy.lab.simulate.world import World

#: The dialects that name fields of limits, and one that has only the IETF's.
DIALECTS = ("http", "openai", "azure", "anthropic", "github")
#: Names of fields, with what stands in their places: the limit, what is left of it, the reset.
NAMES = (
    *(f"x-ratelimit-{{}}-{unit}" for unit in ("requests", "tokens")),
    *(f"anthropic-ratelimit-{unit}-{{}}" for unit in ("requests", "tokens", "input-tokens", "output-tokens")),
    "x-ratelimit-{}",
    "ratelimit-{}",
)
WORDS = ["", "-1", "0", "1", "null", "NaN", "inf", "1e9", "0x10", "٣", "1,2", "10, 10;w=5", "99999999999999999999"]
#: Beside seconds: durations of OpenAI, times of Anthropic, GitHub and HTTP, and a long time in each form.
TIMES = [
    *(
        "0s",
        "1s",
        "500ms",
        "6m0s",
        "24h",
        "-5s",
        "1970-01-01T00:00:10Z",
        "1970-01-01T00:01:00.5Z",
        "2100-01-01T00:00:00Z",
    ),
    *("Thu, 01 Jan 1970 00:00:30 GMT", "Fri, 01 Jan 2100 00:00:00 GMT", "4102444800", "60.5"),
]
HOLD = 20.0


def numbers() -> SearchStrategy[str]:
    return st.integers(-2, 400).map(str) | st.sampled_from(WORDS)


def times() -> SearchStrategy[str]:
    return st.integers(-2, 120).map(str) | st.sampled_from(TIMES + WORDS)


@st.composite
def lines(draw: Any) -> list[tuple[str, str]]:
    """The fields of one answer."""
    found: list[tuple[str, str]] = []
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True)):
        for part, values in (("limit", numbers()), ("remaining", numbers()), ("reset", times())):
            found += [(name.format(part), value) for value in draw(st.lists(values, min_size=1, max_size=2))]
    if draw(st.booleans()):
        left, reset, most, window = (draw(st.integers(-1, 200)) for _ in range(4))
        found.append(
            ("ratelimit", draw(st.sampled_from([f'"a";r={left};t={reset}', f"limit={most}, remaining={left}"])))
        )
        found.append(("ratelimit-policy", f'"a";q={most};w={window}'))
    return found


@pytest.fixture(scope="module", params=DIALECTS)
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Scenario, Column]:
    """A scenario in which an upstream takes all calls, and a policy with `ahead` that reads one dialect's fields."""
    dialects = ", ".join(dict.fromkeys(("http", request.param)))
    text = f"""\
duration: 20s
calls: 5/s
sidecars: 1
request: {{prompt: 60%, max_tokens: 90}}
upstream: {{latency: 300ms, limit: 100000, window: 10s, reports: right}}
policy: {{dialects: [{dialects}], pushback: {{ahead: on, hold: {HOLD:.0f}s}}}}
"""
    found = scenario(tmp_path_factory.mktemp("played"), text)
    return found, columns(None, found, {})[0][0]


@given(st.lists(lines(), min_size=1, max_size=8))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_report_refuses_a_call_or_holds_it_beyond_hold(
    played: tuple[Scenario, Column], answers: list[list[tuple[str, str]]]
) -> None:
    found, column = played
    ledger, turns = Ledger(), cycle(answers)

    def report(*_: object) -> list[tuple[str, str]]:
        return next(turns)

    with patch.object(World, "_report", report):
        play(found, column, ledger=ledger)
    assert all(ledger.served)
    assert len(ledger.sendings) == len(ledger.began) > 50
    assert max(ledger.held) <= HOLD + 0.001
