"""An app that repeats, without a word, what was given up: it is counted and told of, and pays nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

import pytest
import requests
from requests.adapters import HTTPAdapter
from support.front import NONE, STANDARD, Front, policy, to
from support.ports import free_port
from support.scripted import Upstream, answer
from urllib3.util.retry import Retry

from proxy.forward.app_repeats import MOST, SHORT, WINDOW, AppRepeats
from proxy.observe.call_record import CallRecord
from proxy.observe.metrics import Metrics
from proxy.observe.observers import REPEATS, Observers
from proxy.observe.recent_calls import RecentCalls
from proxy.retry.facts import NoFields, Outcome, Request

GET = Request("GET", "api.test", "/x?q=1", NoFields())
SUCCESS = Outcome.SUCCESS
POLICY = policy("api")
HERE = "127.0.0.1:1000"


class Seen:
    """A source of calls to GET's URL on one connection: one every so many seconds, for a minute; None: none in it."""

    def __init__(self, every: float | None = None) -> None:
        self.calls = [record(Request("GET", "api.test", "/y", NoFields()), "", at, at, SUCCESS) for at in (-61.0, -1.0)]
        if every is not None:
            ends = [-60.0 + every * number for number in range(round(60 / every))]
            self.calls += [record(GET, HERE, at, at, SUCCESS) for at in ends]

    def last_calls(self) -> list[CallRecord]:
        return self.calls


class Agent(dict[str, str]):
    """The fields of a request that has a User-Agent."""

    def __init__(self, agent: str) -> None:
        super().__init__({"user-agent": agent})

    def get_all(self, name: str) -> list[str]:
        return [self[name]] if name in self else []


def record(request: Request, client: str, started: float, ended: float, outcome: Outcome) -> CallRecord:
    return CallRecord(
        *(started, started, ended, POLICY, request.method, request.authority, request.path, client),
        *(200 if outcome is SUCCESS else 503, outcome, 1, 0, 0, "api.test:80"),
    )


def given_up(
    repeats: AppRepeats, request: Request, *body: bytes, client: str = HERE, now: float = 0.0, connected: float = -9.0
) -> bool:
    call = record(request, client, now - 0.1, now, Outcome.ATTEMPTS_EXHAUSTED)
    return repeats.ended(call, request, body, True, connected)


def again(
    repeats: AppRepeats, request: Request, *body: bytes, client: str = HERE, now: float = 1.0, connected: float = -9.0
) -> bool:
    """Whether a call that begins at `now` and succeeds is taken for a retry. What was given up stays remembered."""
    repeats._counts.update(dict.fromkeys(repeats._counts, 0.5))
    latest, remembered = dict(repeats._latest), dict(repeats.given_up)
    repeated = repeats.ended(record(request, client, now, now + 0.01, SUCCESS), request, body, False, connected)
    if repeated:
        repeats._latest, repeats.given_up = latest, remembered
    return repeated


def test_the_same_method_url_and_body_on_the_same_connection_within_seconds() -> None:
    repeats = AppRepeats(Seen())
    assert not repeats.given_up
    post = Request("POST", "api.test", "/x?q=1", NoFields())
    given_up(repeats, post, b"one ", b"body")
    assert repeats.given_up
    assert again(repeats, post, b"one body")  # in other pieces
    assert not again(repeats, post, b"another")
    assert not again(repeats, GET, b"one body")
    assert not again(repeats, Request("POST", "api.test", "/x?q=2", NoFields()), b"one body")
    assert not again(repeats, Request("POST", "other.test", "/x?q=1", NoFields()), b"one body")
    assert not again(repeats, post, b"one body", client="127.0.0.2:1000")
    assert not again(repeats, post, b"one body", now=-0.05)  # it was sent before the other had ended
    assert not again(repeats, post, b"one body", client="127.0.0.1:7")  # another connection, and no User-Agent
    assert not again(repeats, post, b"one body", connected=0.5)  # the port again, on a later connection


def test_on_a_new_connection_it_takes_the_same_user_agent_within_a_short_time() -> None:
    repeats = AppRepeats(Seen())
    mine = Request("GET", "api.test", "/x", Agent("mine/1.0"))
    given_up(repeats, mine)
    new = {"client": "127.0.0.1:7", "connected": 0.5}
    assert again(repeats, mine, **new)
    assert again(repeats, mine, now=SHORT, **new)
    assert not again(repeats, mine, now=SHORT + 0.1, **new)
    assert not again(repeats, Request("GET", "api.test", "/x", Agent("other/1.0")), **new)
    assert not again(repeats, Request("GET", "api.test", "/x", NoFields()), **new)
    # A connection that was there before belongs to another app, or to another thread.
    assert not again(repeats, mine, client="127.0.0.1:7", connected=-0.5)


def test_a_url_that_is_called_all_the_time_is_called_again_soon_by_itself() -> None:
    for every, gap, counted in [
        (None, 2.9, True),
        (None, 9.0, False),  # in a minute without a call one may just not have come
        (5.0, 5.0, False),
        (5.0, 0.1, True),
        (0.05, 0.1, False),
    ]:
        repeats = AppRepeats(Seen(every))
        given_up(repeats, GET)
        assert again(repeats, GET, now=gap) is counted, (every, gap)


def test_what_was_given_up_is_forgotten_after_seconds_and_beyond_a_number() -> None:
    repeats = AppRepeats(Seen())
    given_up(repeats, GET)
    assert not again(repeats, GET, now=WINDOW + 0.1)
    assert not repeats.given_up  # and the next calls pay nothing
    for number in range(MOST + 1):
        given_up(repeats, Request("GET", "api.test", f"/{number}", NoFields()))
    assert not again(repeats, Request("GET", "api.test", "/0", NoFields()))
    assert again(repeats, Request("GET", "api.test", "/1", NoFields()))
    for number in range(2 * MOST):
        given_up(repeats, Request("GET", "api.test", f"/more/{number}", NoFields()))
    assert not again(repeats, Request("GET", "api.test", "/1", NoFields()))
    assert again(repeats, Request("GET", "api.test", f"/more/{MOST}", NoFields()))
    assert not again(repeats, GET, now=WINDOW + 2.0)  # any call has what is over forgotten
    assert not repeats.given_up


def test_clients_that_give_up_the_same_are_told_apart() -> None:
    repeats = AppRepeats(Seen())
    mine = Request("GET", "api.test", "/x", Agent("mine/1.0"))
    given_up(repeats, mine, client="10.0.0.1:1000")
    given_up(repeats, Request("GET", "other.test", "/x", Agent("mine/1.0")), client="10.0.0.1:1000")
    given_up(repeats, mine, client="::1:1000")
    for client in ("10.0.0.1:7", "::1:7"):
        assert again(repeats, mine, client=client, connected=0.5)
    for client in ("10.0.0.10:7", "10.0.0:7", "::1:1:7", ":7", ""):
        assert not again(repeats, mine, client=client, connected=0.5)
    given_up(repeats, mine, client="")  # on a Unix domain socket there is no address
    assert again(repeats, mine, client="")
    assert not again(repeats, mine, client="10.0.0.2:7", connected=0.5)


class Day:
    """Apps of one sidecar on a clock of its own. The upstream is well for a minute, down for a minute, and then answers
    a third of the calls with errors. `counted`: the calls that were reported; `given_up`: those that were given up.
    """

    def __init__(self, seed: int) -> None:
        self.rng, self.ring, self.counted, self.given_up = Random(seed), RecentCalls(), 0, 0
        self.repeats = AppRepeats(self.ring)
        self.due: list[tuple[float, int, Callable[[float], None]]] = []
        self.port = 1000

    def at(self, time: float, then: Callable[[float], None]) -> None:
        heappush(self.due, (time, len(self.due) + self.port * 100_000, then))
        self.port += 1

    def call(self, request: Request, client: str, connected: float, then: Callable[[float, bool], None]) -> None:
        """Make a call now; `then` gets the time of its end, and whether it succeeded."""
        fails = 60 < self.now < 120 or (self.now > 120 and self.rng.random() < 1 / 3)
        started, ended = self.now, self.now + (0.4 if fails else 0.02) * (0.5 + self.rng.random())

        def end(_now: float) -> None:
            made = record(request, client, started, ended, Outcome.ATTEMPTS_EXHAUSTED if fails else SUCCESS)
            if fails or self.repeats.given_up:
                self.counted += self.repeats.ended(made, request, (), fails, connected)
            self.given_up += fails
            self.ring.add([made])
            then(ended, not fails)

        self.at(ended, end)

    def run(self, until: float = 300.0) -> None:
        while self.due and self.due[0][0] < until:
            self.now, _, then = heappop(self.due)
            then(self.now)

    def app(self, agent: str, paths: list[str], waits: list[float], *, keeps: bool, pause: float, chance: bool) -> None:
        """Run an app that asks for its paths, each `pause` seconds after the answer to the one before (`chance`: in any
        order, after waits of any length with that mean). After a failure it waits and repeats, once for each of
        `waits`. `keeps`: it keeps its connection.
        """
        state = {"at": 0, "client": f"127.0.0.1:{self.port}", "opened": 0.0}
        fields = Agent(agent)

        def ask(path: str, tried: int) -> None:
            if not keeps:
                self.port += 1
                state.update(client=f"127.0.0.1:{self.port}", opened=self.now)

            def then(ended: float, well: bool) -> None:
                if not well and tried < len(waits):
                    self.at(ended + 0.002 + waits[tried], lambda _now: ask(path, tried + 1))
                else:
                    wait = self.rng.expovariate(1 / pause) if chance else pause
                    self.at(ended + wait, lambda _now: ask(following(), 0))

            self.call(Request("GET", "api.test", path, fields), str(state["client"]), float(state["opened"]), then)

        def following() -> str:
            state["at"] = (int(state["at"]) + 1) % len(paths)
            return self.rng.choice(paths) if chance else paths[int(state["at"])]

        self.at(self.rng.random() * pause, lambda _now: ask(following(), 0))


URLS = [f"/items/{number}" for number in range(100)]


@pytest.mark.parametrize("pause", [0.5, 2.0, 7.0])
@pytest.mark.parametrize("chance", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("each", [1, 5, 100])
def test_of_twenty_apps_that_poll_none_is_told_that_it_retries(
    pause: float, chance: bool, keeps: bool, each: int
) -> None:
    """Each app polls so many URLs of its own, or all of them, in turns or by chance; all have one User-Agent."""
    day = Day(7)
    for number in range(20):
        paths = URLS if each == 100 else URLS[number * each : (number + 1) * each]
        day.app("python-requests/2.32.3", paths, [], keeps=keeps, pause=pause, chance=chance)
    day.run()
    assert day.given_up > 100
    assert day.counted == 0


@pytest.mark.parametrize(
    ("waits", "keeps"),
    [
        ([0.0, 0.2, 0.4], True),  # requests with Retry(total=3, backoff_factor=0.1), in a session
        ([0.0, 0.0, 0.0], False),  # a loop around requests.get
        ([1.0, 1.0], False),  # tenacity with wait_fixed(1)
        ([1.05, 2.05], True),  # got: 1 s and 2 s, with noise up to 100 ms
        ([1.05, 2.05], False),
    ],
)
def test_of_an_app_that_retries_most_retries_are_counted(waits: list[float], keeps: bool) -> None:
    """The app has twenty polling ones beside it."""
    day, made = Day(11), [f"/orders/{number}" for number in range(400)]
    for _ in range(20):
        day.app("python-requests/2.32.3", URLS, [], keeps=True, pause=2.0, chance=True)
    day.app("mine/1.0", made, waits, keeps=keeps, pause=1.0, chance=False)
    repeated = 0
    ended = day.repeats.ended

    def ending(call: CallRecord, request: Request, body: tuple[bytes, ...], gave_up: bool, connected: float) -> bool:
        nonlocal repeated
        if request.path == ending.last and request.path.startswith("/orders/"):  # type: ignore[attr-defined]
            repeated += 1
        if request.path.startswith("/orders/"):
            ending.last = request.path if gave_up else ""  # type: ignore[attr-defined]
        return ended(call, request, body, gave_up, connected)

    ending.last = ""  # type: ignore[attr-defined]
    day.repeats = Watching(ending, day.repeats)  # type: ignore[assignment]
    day.run()
    assert repeated > 30
    assert 0.6 * repeated <= day.counted <= repeated, (day.counted, repeated)


class Watching:
    """The repeats of a day, with another `ended`."""

    def __init__(self, ended: Callable[..., bool], repeats: AppRepeats) -> None:
        self.ended, self._repeats = ended, repeats

    @property
    def given_up(self) -> dict[Any, Any]:
        return self._repeats.given_up


async def test_a_library_that_retries_multiplies_and_is_noticed() -> None:
    """urllib3's Retry says nothing in its requests: nine sendings upstream for three of the app. The first few guesses
    are not counted.
    """
    async with Upstream(answer(503)) as upstream, Front(to("api", upstream.url, strategy=STANDARD)) as front:
        session = requests.Session()
        session.trust_env = False
        session.mount("http://", HTTPAdapter(max_retries=Retry(total=2, status_forcelist=[503], raise_on_status=False)))
        for name in "abcde":
            got = await asyncio.to_thread(session.put, f"{front.url}/api/{name}", data=b"same")
            assert got.status_code == 503
        await front.observed.until(15)
    assert len(upstream.requests) == 45
    assert len(front.observed.repeated) == 6


async def test_a_retry_that_then_succeeds_at_once_is_noticed_too() -> None:
    steps = (*(answer(503),) * 12, answer(200, b"ok"))
    async with (
        Upstream(*steps) as upstream,
        Front(to("api", upstream.url, strategy=STANDARD)) as front,
        front.app() as app,
    ):
        for _ in range(4):
            await app.ask("GET", "/api/x")
        assert front.observed.repeated == []
        await app.ask("GET", "/api/x")
        assert front.observed.repeated == ["api"]
        await app.ask("GET", "/api/x")  # after a success it is a call like any other, for all that can be known
    assert front.observed.repeated == ["api"]


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
        for _ in range(5):
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
    line = (
        "api: an app may be repeating calls that redrive gave up: if it has retries of its own, they multiply with "
        "redrive's, and are better off"
    )
    assert notices == [("app_retries", [line])]
