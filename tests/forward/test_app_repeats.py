"""An app that repeats, without a word, what was given up: it is counted and told of, and pays nothing."""

from __future__ import annotations

import asyncio

import requests
from requests.adapters import HTTPAdapter
from support.front import NONE, STANDARD, Front, to
from support.ports import free_port
from support.scripted import Upstream, answer
from urllib3.util.retry import Retry

from proxy.forward.app_repeats import MOST, WINDOW, AppRepeats
from proxy.observe.metrics import Metrics
from proxy.observe.observers import REPEATS, Observers
from proxy.observe.recent_calls import RecentCalls
from proxy.retry.facts import NoFields, Request

GET = Request("GET", "api.test", "/x?q=1", NoFields())


def given_up(
    repeats: AppRepeats, request: Request, *body: bytes, client: str = "127.0.0.1:1000", now: float = 0.0
) -> None:
    repeats.ended(client, request, body, given_up=True, now=now)


def again(
    repeats: AppRepeats, request: Request, *body: bytes, client: str = "127.0.0.1:2000", now: float = 1.0
) -> bool:
    return repeats.ended(client, request, body, given_up=False, now=now)


def test_the_same_method_url_and_body_from_the_same_client_within_seconds() -> None:
    repeats = AppRepeats()
    assert not repeats
    post = Request("POST", "api.test", "/x?q=1", NoFields())
    given_up(repeats, post, b"one ", b"body")
    assert repeats
    assert again(repeats, post, b"one body")  # from another port, in other pieces
    assert not again(repeats, post, b"another")
    assert not again(repeats, GET, b"one body")
    assert not again(repeats, Request("POST", "api.test", "/x?q=2", NoFields()), b"one body")
    assert not again(repeats, Request("POST", "other.test", "/x?q=1", NoFields()), b"one body")
    assert not again(repeats, post, b"one body", client="127.0.0.2:2000")
    assert again(repeats, post, b"one body", now=WINDOW)


def test_what_was_given_up_is_forgotten_after_seconds_and_beyond_a_number() -> None:
    repeats = AppRepeats()
    given_up(repeats, GET)
    assert not again(repeats, GET, now=WINDOW + 0.1)
    assert not repeats  # and the next calls pay nothing
    for number in range(MOST + 1):
        given_up(repeats, Request("GET", "api.test", f"/{number}", NoFields()))
    assert not again(repeats, Request("GET", "api.test", "/0", NoFields()))
    assert again(repeats, Request("GET", "api.test", "/1", NoFields()))
    for number in range(2 * MOST):
        given_up(repeats, Request("GET", "api.test", f"/more/{number}", NoFields()))
    assert not again(repeats, Request("GET", "api.test", "/1", NoFields()))
    assert again(repeats, Request("GET", "api.test", f"/more/{MOST}", NoFields()))
    assert not again(repeats, GET, now=WINDOW + 2.0)  # any call has what is over forgotten
    assert not repeats


def test_clients_that_give_up_the_same_are_told_apart() -> None:
    repeats = AppRepeats()
    given_up(repeats, GET, client="10.0.0.1:1000")
    given_up(repeats, Request("GET", "other.test", "/x?q=1", NoFields()), client="10.0.0.1:1000")
    given_up(repeats, GET, client="::1:1000")
    for client in ("10.0.0.1:7", "::1:7"):
        assert again(repeats, GET, client=client)
    for client in ("10.0.0.10:7", "10.0.0:7", "::1:1:7", ":7", ""):
        assert not again(repeats, GET, client=client)
    given_up(repeats, GET, client="")  # on a Unix domain socket there is no address
    assert again(repeats, GET, client="")
    assert not again(repeats, GET, client="10.0.0.2:7")


async def test_a_library_that_retries_multiplies_and_is_noticed() -> None:
    """urllib3's Retry says nothing in its requests: nine sendings upstream for three of the app."""
    async with Upstream(answer(503)) as upstream, Front(to("api", upstream.url, strategy=STANDARD)) as front:
        session = requests.Session()
        session.trust_env = False
        session.mount("http://", HTTPAdapter(max_retries=Retry(total=2, status_forcelist=[503], raise_on_status=False)))
        got = await asyncio.to_thread(lambda: session.put(f"{front.url}/api/x", data=b"same"))
        assert got.status_code == 503
        await front.observed.until(3)
    assert len(upstream.requests) == 9
    assert front.observed.repeated == ["api", "api"]


async def test_a_retry_that_then_succeeds_at_once_is_noticed_too() -> None:
    steps = (answer(503), answer(503), answer(503), answer(200, b"ok"))
    async with (
        Upstream(*steps) as upstream,
        Front(to("api", upstream.url, strategy=STANDARD)) as front,
        front.app() as app,
    ):
        await app.ask("GET", "/api/x")
        await app.ask("GET", "/api/x")
        await app.ask("GET", "/api/x")  # after a success it is a call like any other, for all that can be known
    assert front.observed.repeated == ["api", "api"]


async def test_one_attempt_where_the_policy_allows_one_is_not_given_up() -> None:
    """The app is expected to retry there."""
    async with (
        Upstream(answer(503)) as upstream,
        Front(to("api", upstream.url, strategy=NONE)) as front,
        front.app() as app,
    ):
        await app.ask("GET", "/api/x")
        await app.ask("GET", "/api/x")
    assert front.observed.repeated == []


async def test_where_nobody_listens_it_is_noticed_as_well() -> None:
    async with Front(to("gone", f"http://127.0.0.1:{free_port()}", strategy=STANDARD)) as front, front.app() as app:
        for _ in range(2):
            assert (await app.ask("GET", "/gone/x")).status == 502
    assert front.observed.repeated == ["gone"]


def test_it_is_counted_apart_and_told_of_once() -> None:
    notices: list[tuple[str, list[str]]] = []
    metrics = Metrics()
    observers = Observers(
        metrics, RecentCalls(), None, notify=lambda event, lines, **facts: notices.append((event, lines))
    )
    policy = to("api", "http://127.0.0.1:1").policy
    for _ in range(REPEATS + 2):
        observers.app_repeated(policy)
    assert metrics.series(policy).likely_app_retries == REPEATS + 2
    assert metrics.series(policy).app_retries == 0
    line = "api: an app seems to repeat calls that redrive gave up: switch its own retries off"
    assert notices == [("app_retries", [line])]
