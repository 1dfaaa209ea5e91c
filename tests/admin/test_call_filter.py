"""Which calls `/requests` lists, and what it refuses."""

from __future__ import annotations

import pytest

from proxy.admin.call_filter import FilterError, call_filter

CALLS = [
    {"upstream": "a", "route": "", "outcome": "success", "status": 200, "agent": "curl/8.5.0"},
    {"upstream": "a", "route": "POST /x", "outcome": "attempts_exhausted", "status": 503, "agent": "curl"},
    {"upstream": "b", "route": "", "outcome": "outage", "status": 504, "app": "batch"},
    {"upstream": "b", "route": "", "outcome": "client_gone", "status": 0},
]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"upstream": "a"}, [0, 1]),
        ({"route": "POST /x"}, [1]),
        ({"route": ""}, [0, 2, 3]),
        ({"outcome": "outage"}, [2]),
        ({"status": "503"}, [1]),
        ({"status": "5xx"}, [1, 2]),
        ({"status": "0"}, [3]),
        ({"app": "curl"}, [0, 1]),
        ({"app": "curl/8.5.0"}, [0]),
        ({"app": "batch"}, [2]),
        ({"upstream": "a", "status": "2xx"}, [0]),
        ({"upstream": "c"}, []),
    ],
)
def test_each_parameter_chooses(query: dict[str, str], found: list[int]) -> None:
    chosen = call_filter({**query, "limit": "5"}, ("limit",))
    assert chosen is not None
    assert [number for number, call in enumerate(CALLS) if chosen.takes(call)] == found


def test_without_parameters_nothing_is_chosen() -> None:
    assert call_filter({"limit": "5"}, ("limit",)) is None


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"upsteam": "a"}, "There is no parameter upsteam: use limit, upstream, route, outcome, status, app."),
        ({"outcome": "failed"}, "There is no outcome failed: use one of success, not_retryable, attempts_exhausted,"),
        ({"status": "50x"}, "status must be a status such as 503, or 5xx, not 50x."),
    ],
)
def test_what_it_does_not_know_it_refuses(query: dict[str, str], said: str) -> None:
    with pytest.raises(FilterError) as caught:
        call_filter(query, ("limit",))
    assert str(caught.value).startswith(said)
