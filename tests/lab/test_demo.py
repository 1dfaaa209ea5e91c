"""`redrive demo` for a few seconds: its figures stand in the relations that they must, and its picture can be drawn."""

from __future__ import annotations

import asyncio
import io
import json
import re
import signal

import aiohttp
import pytest
from rich.console import Console
from support.process import COMMAND, environment, redrive

from proxy.lab.demo import demo, weather
from proxy.lab.demo.play import App, Counts, DemoRun, apps_session
from proxy.lab.demo.screen import picture, verdict
from proxy.lab.demo.sidecar import Sidecar, SidecarState, surroundings
from proxy.lab.demo.weather import DemoUpstream


async def test_figures_of_a_short_run() -> None:
    status, out, err = await redrive("demo", "--seconds", "12", "--json")
    assert (status, err) == (0, "")
    figures = json.loads(out)
    none, at_once, ours = (figures["apps"][name] for name in ("none", "at_once", "redrive"))
    begun = {app["calls"] + app["unfinished"] for app in (none, at_once, ours)}
    assert len(begun) == 1 and max(begun) <= 12 * figures["calls_per_second"]  # fewer on a machine that stood still
    for app in (none, at_once, ours):
        assert app["succeeded"] > 0, "the restart ends"
    assert none["succeeded"] < none["calls"] and at_once["succeeded"] < at_once["calls"], "there is a restart"
    assert none["attempts"] == none["calls"]
    assert none["success_rate"] < ours["success_rate"]
    assert 1 < at_once["attempts_per_call"] < 3
    bucket = figures["bucket"]
    assert 0 <= bucket["lowest"] <= bucket["capacity"] == 500
    share = f"{ours['success_rate']:.1%}"
    assert figures["verdict"].startswith("verdict: ") and share[:-3] in figures["verdict"]
    assert len(figures["verdict"].splitlines()) == 1


async def test_every_sending_is_an_attempt() -> None:
    """Of redrive's calls too, whose transparent retries stand in no X-Attempt-Count: what the upstream saw, and what
    found no connection, is what was sent.
    """
    timeout = aiohttp.ClientTimeout()
    async with DemoRun() as play, aiohttp.ClientSession() as admin, apps_session(timeout) as session:
        none, at_once, ours = play.apps

        async def call(number: int, *apps: App) -> None:
            for app in apps:
                await app.call(session, number)

        async def change(sky: weather.Weather) -> None:
            for app in play.apps:
                await app.upstream.turn(sky)

        await call(0, *play.apps)
        await change(weather.Weather("restart", 1, refuses=True))
        held = asyncio.create_task(call(1, ours))
        while not (await play.sidecar.state(admin)).transparent:
            pass  # each look asks the admin port
        await call(1, none, at_once)
        await change(weather.CALM)
        await held
        await change(weather.Weather("failures", 1, failing=1.0))
        await call(2, *play.apps)
        await play.run(0.0, asyncio.Event())  # takes the last look
        async with admin.get(f"{play.sidecar.admin}/upstreams") as answer:
            (row,) = (await answer.json())["upstreams"]
        counts = ours.counts
    assert none.counts == Counts(calls=3, succeeded=1, attempts=3, requests=2)
    assert at_once.counts == Counts(calls=3, succeeded=1, attempts=1 + 3 + 3, requests=1 + 0 + 3)
    assert counts.attempts == row["attempts"] + play.watched.now.transparent, "as redrive itself counts them"
    assert counts.requests < counts.attempts, "the upstream saw none of those in the restart"
    assert play.watched.now.transparent > 0


def test_the_sidecar_gets_no_policy_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_MAX_ATTEMPTS", "REDRIVE_NAMED_BY_A_FILE", "REDRIVE_PURE"):
        monkeypatch.setenv(name, "1")
    kept = [name for name in surroundings() if name.startswith(("AWS_", "REDRIVE_"))]
    assert kept == ["REDRIVE_PURE"], "it runs in Python alone where the demo does"


async def test_before_the_first_call_there_is_no_state_to_show() -> None:
    """On a busy machine the first sample may come before the first call: it ended the demo, or its picture."""
    sidecar = Sidecar("http://127.0.0.1:1")
    try:
        await sidecar.open()
        async with aiohttp.ClientSession() as session:
            assert await sidecar.state(session) is None
            async with session.get(f"{sidecar.url}/x") as answer:
                assert answer.status == 502
            state = await sidecar.state(session)
            assert state is not None and state.capacity == 500
    finally:
        await sidecar.close()


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [
        (signal.SIGKILL, 1, "redrive: the demo's proxy ended before the demo did, killed by SIGKILL\n"),
        (signal.SIGSTOP, 0, ""),
    ],
)
def test_a_proxy_that_hangs_or_is_gone_does_not_keep_the_demo(
    number: signal.Signals, status: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last look at the admin port had no limit: the demo printed nothing for ever."""
    monkeypatch.setattr("proxy.lab.demo.play._END", 0.2)
    monkeypatch.setattr("proxy.lab.demo.sidecar._END", 0.2)
    opened = Sidecar.open

    async def open_and_harm(sidecar: Sidecar) -> None:
        await opened(sidecar)
        assert sidecar._process is not None
        sidecar._process.send_signal(number)

    monkeypatch.setattr(Sidecar, "open", open_and_harm)
    assert demo(1.0, as_json=True) == status
    printed = capsys.readouterr()
    assert printed.err == said
    if not status:
        ours = json.loads(printed.out)["apps"]["redrive"]
        assert ours["succeeded"] == 0 and ours["unfinished"] + ours["calls"] <= 20


async def test_a_machine_that_is_too_slow_for_the_calls_ends_the_demo_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All calls were made however late they were: at a load of 25, the demo took minutes more than it was given."""
    monkeypatch.setattr("proxy.lab.demo.play.CALLS_PER_SECOND", 1e6)
    async with DemoRun() as play:
        begun: list[int] = []
        monkeypatch.setattr(play, "_begin", lambda app, number: begun.append(number))
        await play.run(0.2, asyncio.Event())
        assert 0 < max(begun) < 0.2 * 1e6 - 1, "each call takes a turn of the loop at least"


async def test_the_upstream_has_a_capacity() -> None:
    """What comes faster waits in a queue, or is refused; a restarted upstream comes back on its port."""
    upstream = DemoUpstream(20.0, seed=1)
    await upstream.open()
    try:
        async with aiohttp.ClientSession() as session:

            async def status() -> int:
                try:
                    async with session.get(upstream.url) as answer:
                        return answer.status
                except aiohttp.ClientConnectionError:
                    return 0

            assert await status() == 200
            await upstream.turn(weather.Weather("no queue", 0.1, capacity=0.1, queue=0.0))
            assert sorted(await asyncio.gather(status(), status())) == [200, 503]
            await upstream.turn(weather.Weather("limit", 0.1, limit=0.0))
            assert await status() == 429
            await upstream.turn(weather.Weather("restart", 0.1, refuses=True))
            assert await status() == 0
            await upstream.turn(weather.CALM)
            assert await status() == 200
    finally:
        await upstream.close()


async def test_a_verdict_says_who_was_ahead_even_if_that_was_not_redrive() -> None:
    play = _played(none=(100, 70, 100), at_once=(100, 95, 180), ours=(100, 90, 120))
    assert verdict(play).startswith("verdict: 90.0% succeeded with redrive, 70.0% with no retries, 95.0% with ")
    assert ": it saved no calls; requests sent for 100 calls: 100, 180, 120 (redrive last)" in verdict(play)
    ahead = _played(none=(100, 70, 100), at_once=(100, 75, 180), ours=(100, 99, 120))
    assert ": 24 calls fewer failed;" in verdict(ahead)
    assert verdict(_played((0, 0, 0), (0, 0, 0), (0, 0, 0))) == "verdict: none yet, since no call has ended"


def _played(none: tuple[int, int, int], at_once: tuple[int, int, int], ours: tuple[int, int, int]) -> DemoRun:
    """A run whose apps counted these calls, successes and attempts."""
    play = DemoRun.__new__(DemoRun)
    names = ("no retries", "3 quick tries", "redrive")
    play.apps = [
        App(name, "", DemoUpstream(1, 1), counts=Counts(*counts), seconds=[0.1] * counts[0])
        for name, counts in zip(names, (none, at_once, ours), strict=True)
    ]
    return play


async def test_bad_usage_is_told_in_a_line() -> None:
    assert await redrive("demo", "--json") == (
        2,
        "",
        "redrive: demo --json needs --seconds N: figures are printed at the end\n",
    )
    for seconds in ("soon", "0", "nan"):
        status, _, err = await redrive("demo", "--seconds", seconds)
        assert status == 2 and f"a number of seconds from 1 to 86400, not {seconds}" in err


async def test_without_a_terminal_each_spell_of_weather_is_a_line() -> None:
    status, out, err = await redrive("demo", "--seconds", "2")
    assert (status, err) == (0, "")
    first, *lines = out.splitlines()
    assert first.startswith("admin port: http://127.0.0.1:")
    printed = [
        re.fullmatch(r" *[\d.]+ s  ([\w ]+): .*no retries .+; 3 quick tries .+; redrive .+", line) for line in lines
    ]
    spells = {line[1] for line in printed if line}
    assert spells and spells <= {each.name for each in weather.ROUND}
    assert "\x1b" not in out and "its bucket" in out, "the picture at the end, without colours"
    assert lines[-1].startswith("verdict: ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
async def test_the_proxy_goes_when_the_demo_is_told_to_end(number: signal.Signals) -> None:
    demo = await asyncio.create_subprocess_exec(*COMMAND, "demo", stdout=asyncio.subprocess.PIPE, env=environment())
    assert demo.stdout is not None
    line = await demo.stdout.readline()
    place = line.decode().strip().rpartition("//")[2].split(":")
    _, writer = await asyncio.open_connection(*place)
    writer.close()
    demo.send_signal(number)
    await demo.stdout.read()
    assert await demo.wait() == 0
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*place)


async def test_the_proxy_goes_when_the_demo_is_killed() -> None:
    demo = await asyncio.create_subprocess_exec(*COMMAND, "demo", stdout=asyncio.subprocess.PIPE, env=environment())
    assert demo.stdout is not None
    line = await demo.stdout.readline()
    place = line.decode().strip().rpartition("//")[2].split(":")
    reader, writer = await asyncio.open_connection(*place)
    demo.kill()
    await demo.wait()
    async with asyncio.timeout(20):
        assert await reader.read() == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            while True:
                _, writer = await asyncio.open_connection(*place)
                writer.close()


@pytest.mark.parametrize("width", [60, 80, 120])
async def test_the_picture_at_every_time_fits_a_terminal(width: int) -> None:
    play = DemoRun()
    play.apps = [App(name, "", DemoUpstream(1, 1)) for name in ("no retries", "3 quick tries", "redrive")]
    console = Console(width=width, record=True, file=io.StringIO())
    for number in range(0, 200, 3):
        play.elapsed = number / 2
        play.skies.append(weather.at(play.elapsed, play.round_seconds).name)
        reasons = ("an outage", "a limit of 12 at a time", "a cooldown of 3.2 s")[: number % 4]
        play.watched.take(SidecarState(200 - number, 200, number, reasons))
        for app in play.apps:
            app.samples.append(Counts(10, number % 11, 10 + number % 31, 10 + number % 31))
            app.seconds.append(number / 20)
        console.print(picture(play, width))
    text = console.export_text()
    assert text.count("its bucket") == 67 and len(text.splitlines()) < 67 * 24
    assert "…" not in text, "nothing is cut"
    assert set("·frnlt") <= set(text), "the weather's initials"


def test_the_weather_goes_round() -> None:
    assert abs(sum(each.share for each in weather.ROUND) - 1) < 1e-9
    seen = [weather.at(second / 10, 20.0) for second in range(200)]
    assert list(dict.fromkeys(id(each) for each in seen)) == [id(each) for each in weather.ROUND]
    assert weather.at(20.0, 20.0) is weather.ROUND[0]
    assert 0 < weather.left(19.99, 20.0) < 0.02
