"""`redrive demo` for a few seconds: its figures stand in the relations that they must, and its picture can be drawn."""

from __future__ import annotations

import asyncio
import io
import json
import re
import signal

import pytest
from rich.console import Console
from support.process import COMMAND, environment, redrive

from proxy.lab.demo import weather
from proxy.lab.demo.play import App, Counts, DemoRun
from proxy.lab.demo.screen import picture
from proxy.lab.demo.weather import DemoUpstream


async def test_figures_of_a_short_run() -> None:
    status, out, err = await redrive("demo", "--seconds", "8", "--json")
    assert (status, err) == (0, "")
    figures = json.loads(out)
    none, at_once, ours = (figures["apps"][name] for name in ("none", "at_once", "redrive"))
    for app in (none, at_once, ours):
        assert app["calls"] + app["unfinished"] == 8 * figures["calls_per_second"]
        assert app["succeeded"] > 0, "the outage ends"
    assert none["succeeded"] < none["calls"] and at_once["succeeded"] < at_once["calls"], "there is an outage"
    assert none["attempts"] == none["calls"]
    assert none["success_rate"] < ours["success_rate"]
    assert 1 < ours["attempts_per_call"] < at_once["attempts_per_call"] < 4
    assert none["upstream_requests"] <= none["calls"]  # one that found no time to leave was not seen
    bucket = figures["bucket"]
    assert 0 <= bucket["lowest"] < bucket["capacity"] == 200


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
        re.fullmatch(r" *[\d.]+ s  (\w+): .*no retries .+; 4 quick tries .+; redrive .+", line) for line in lines
    ]
    spells = {line[1] for line in printed if line}
    assert spells and spells <= {each.name for each in weather.ROUND}
    assert "\x1b" not in out and "its bucket" in out, "the picture at the end, without colours"


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
    play.apps = [App(name, "", DemoUpstream(play.sky, 1, 1)) for name in ("no retries", "4 quick tries", "redrive")]
    console = Console(width=width, record=True, file=io.StringIO())
    for number in range(200):
        play.elapsed = number / 2
        play.skies.append(weather.at(play.elapsed, play.round_seconds).name)
        play.watched.take(200 - number, 200, number % 3)
        for app in play.apps:
            app.samples.append(Counts(10, number % 11, 10 + number % 31, 10 + number % 31))
            app.seconds.append(number / 20)
        console.print(picture(play, width))
    text = console.export_text()
    assert text.count("its bucket") == 200 and len(text.splitlines()) < 200 * 24
    assert "…" not in text, "nothing is cut"
    assert set("·fots") <= set(text), "the weather's initials"


def test_the_weather_goes_round() -> None:
    assert abs(sum(each.share for each in weather.ROUND) - 1) < 1e-9
    seen = [weather.at(second / 10, 20.0) for second in range(200)]
    assert list(dict.fromkeys(id(each) for each in seen)) == [id(each) for each in weather.ROUND]
    assert weather.at(20.0, 20.0) is weather.ROUND[0]
    assert 0 < weather.left(19.99, 20.0) < 0.02
