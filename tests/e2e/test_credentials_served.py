"""Credentials of the running command: over all workers, told of by number, and shown nowhere."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from clients import with_aiohttp
from prometheus_client.parser import text_string_to_metric_families
from support.process import COMMAND, Redrive, environment, verb
from support.scripted import Turn, Upstream, answer

LISTEN = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nworkers: {}\n"
#: One from the environment, one from an included file.
SECRETS = ("s3cr3t-of-the-environment", "s3cr3t-of-the-file")
CONFIG = """
include: [more/*.yaml]
upstreams:
  plain: {url: URL}
"""
MORE = """
upstreams:
  llm:
    url: URL
    credentials: {header: Authorization, format: "Bearer {}", values: ["${KEY_A}", s3cr3t-of-the-file], pick: first}
    classify:
      rules: [{status: 418, json: {echo: "*never*"}, as: transient}]
    routes: [{match: {path: /hedged}, strategy: {kind: hedging, hedging_delay: 10ms}}]
"""
TESTS = """
config: redrive.yaml
tests:
  - name: fails
    calls:
      - request: {method: GET, url: /llm/x}
        attempts: [{status: 429}, {status: 200}]
        expect: {attempts: 7, sent: [{key: 2, authorization: null}]}
"""
SCENARIO = "duration: 5s\ncalls: 20/s\nsidecars: 2\nrequest: {url: /llm/x}\nupstream: {limit: 20, window: 5s}\n"


async def echo(turn: Turn) -> None:
    """Answer with the request's head, as a debugging endpoint does."""
    await turn.read_body()
    head = turn.request.head
    await turn.write(
        b"HTTP/1.1 418 Teapot\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % (len(head) + 12)
    )
    await turn.write(b'\r\n{"echo": "' + head + b'"}')


async def garble(turn: Turn) -> None:
    """Answer with the request's head in the place of an answer."""
    await turn.read_body()
    await turn.write(turn.request.head)


def shown(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is said, on standard output and standard error."""
    if arguments[0] != "simulate":
        return "".join(verb(capsys, *arguments, KEY_A=SECRETS[0])[1:])
    env = environment(KEY_A=SECRETS[0])  # it has processes of its own, which a log could be of
    done = subprocess.run([*COMMAND, *arguments], env=env, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def write(folder: Path, url: str) -> str:
    (folder / "more").mkdir()
    (folder / "more" / "llm.yaml").write_text(MORE.replace("URL", url))
    return CONFIG.replace("URL", url)


async def pages(running: Redrive) -> dict[str, str]:
    """Every page of the admin port."""
    found = {}
    names = [
        *("livez", "readyz?verbose", "metrics", "config", "config/places?upstream=llm", "config/places", "upstreams"),
        *("upstreams?name=llm", "buckets", "requests", "", "openapi.json", "config/places?upstream=llm&route=/hedged"),
    ]
    async with aiohttp.ClientSession() as session:
        for name in names:
            async with session.get(f"{running.admin}/{name}") as got:
                assert got.status == 200, name
                found[name] = await got.text()
        async with session.get(f"{running.admin}/events?board", headers={"Last-Event-ID": "0"}) as got:
            events = b""
            async with asyncio.timeout(20):
                while b"event: board" not in events or b"event: call" not in events:
                    events += await got.content.readany()
            found["events"] = events.decode()
    return found


async def test_no_output_shows_a_value(tmp_path: Path) -> None:
    steps = [answer(401), answer(429, b"", "Retry-After: 1"), echo, garble, garble, garble, echo]
    async with Upstream(*steps) as upstream:
        config = write(tmp_path, upstream.url)
        async with Redrive(tmp_path, config, KEY_A=SECRETS[0]) as running:
            got = [await with_aiohttp("GET", f"{running.url}/llm/x?key={n}") for n in range(4)]
            await with_aiohttp("GET", f"{running.url}/llm/hedged")
            await with_aiohttp("GET", f"{running.url}/plain/x")
            carried = {each.one("authorization") for each in upstream.requests}
            assert carried == {f"Bearer {secret}" for secret in SECRETS} | {None}
            assert 401 in [each.status for each in got]
            told = await pages(running)
            assert {name: shown(text) for name, text in told.items() if shown(text)} == {}
            assert '"key":1' in told["requests"].replace(" ", "")
            broken = f"  broken: {{url: 7, credentials: {{values: [{SECRETS[1]}]}}}}\n"
            running.file.write_text(running.file.read_text() + broken)
            async with aiohttp.ClientSession() as session, session.post(f"{running.admin}/reload") as reloaded:
                assert reloaded.status == 422
                assert not shown(await reloaded.text())
            assert not shown((await pages(running))["readyz?verbose"])
        assert not shown(json.dumps(running.lines))
        assert not shown(running.errors)


@pytest.mark.parametrize("wrong", [False, True])
def test_no_command_shows_one(
    wrong: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = write(tmp_path, "http://127.0.0.1:9")
    if wrong:
        (tmp_path / "more" / "llm.yaml").write_text(
            MORE.replace("URL", "http://127.0.0.1:9").replace("pick: first", "pick: 7")
        )
    (tmp_path / "redrive.yaml").write_text(config)
    (tmp_path / "tests.yaml").write_text(TESTS)
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    told = {
        words: run(capsys, *words.split())
        for words in (
            *(
                "check",
                "explain GET /llm/x",
                "explain GET /llm/x --status 429 -H Retry-After:5 --json",
                "explain POST /llm/hedged",
            ),
            *("test tests.yaml", "test tests.yaml --json", "simulate --scenario scenario.yaml", "schema", "env"),
            "simulate --scenario scenario.yaml --json",
        )
    }
    assert {words: shown(text) for words, text in told.items() if shown(text)} == {}
    if not wrong:
        assert "with key 1" in told["explain GET /llm/x --status 429 -H Retry-After:5 --json"]
        assert '"authorization": "***"' in told["test tests.yaml --json"]
        assert '"key": 1' in told["test tests.yaml --json"]


async def gauge(running: Redrive, name: str = "redrive_credential_usable") -> dict[str, float]:
    """The gauge's samples by the key's number."""
    async with aiohttp.ClientSession() as session, session.get(f"{running.admin}/metrics") as got:
        text = await got.text()
    return {
        sample.labels["key"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


async def show(running: Redrive, page: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(f"{running.admin}/{page}") as got:
        return await got.json()


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_refused_key_is_put_aside_by_all_workers_and_told_of(workers: int, tmp_path: Path) -> None:
    async def judge(turn: Turn) -> None:
        await turn.read_body()
        if turn.request.target == "/slow":
            await turn.write(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n")
            return
        good = turn.request.one("x-api-key") == "value-b"
        await turn.write(b"HTTP/1.1 200 OK\r\n" if good else b"HTTP/1.1 401 Unauthorized\r\n")
        await turn.write(b"Content-Length: 0\r\n\r\n")

    config = (
        "upstreams: {llm: {url: URL, credentials: {header: X-Api-Key, values: [value-a, value-b]}, strategy: none}}\n"
    )
    async with (
        Upstream(judge) as upstream,
        Redrive(tmp_path, config.replace("URL", upstream.url), listen=LISTEN.format(workers)) as running,
    ):
        assert await gauge(running) == {"1": 1.0, "2": 1.0}
        statuses = [(await with_aiohttp("GET", f"{running.url}/llm/x")).status for _ in range(20)]
        assert statuses.count(401) == 1
        told = await running.line(lambda line: line["event"] == "credential_aside")
        assert told is not None
        assert (told["upstream"], told["key"]) == ("llm", 1)
        assert sum(line["event"] == "credential_aside" for line in running.lines) == 1
        assert await gauge(running) == {"1": 0.0, "2": 1.0}
        (aside,) = (await show(running, "readyz?verbose"))["credentials_aside"]
        assert (aside["upstream"], aside["key"]) == ("llm", 1)
        assert 290 < aside["seconds_left"] <= 300
        (row,) = (await show(running, "upstreams"))["upstreams"]
        assert [(each["key"], each["usable"]) for each in row["credentials"]] == [(1, False), (2, True)]
        calls = (await show(running, "requests"))["requests"]
        assert {each["history"][0]["key"] for each in calls if each["status"] == 401} == {1}
        assert {each["history"][0]["key"] for each in calls if each["status"] == 200} == {2}
        assert [each["cooldown_seconds"] for each in row["credentials"]] == [0, 0]
        assert (await with_aiohttp("GET", f"{running.url}/llm/slow")).status == 429
        (row,) = (await show(running, "upstreams"))["upstreams"]
        assert [each["cooldown_seconds"] > 25 for each in row["credentials"]] == [False, True]
        assert (row["cooldown"]["holds"], row["cooldown"]["key"]) == ("callers with key 2", 2)


async def unreadable_in_top(running: Redrive, capsys: pytest.CaptureFixture[str]) -> list[int]:
    """The keys whose files can't be read, as `redrive top` prints them of its only upstream."""
    _, printed, _ = await asyncio.to_thread(verb, capsys, "top", "--admin", running.admin, "--json")
    (row,) = json.loads(printed)["upstreams"]
    found: list[int] = row["key_files_unreadable"]
    return found


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_key_file_that_is_gone_is_told_of_until_it_is_back(
    workers: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The earlier value stays in use: only who watches learns that a restart would fail."""
    key = tmp_path / "key"
    key.write_text("old\n")
    config = (
        "upstreams: {llm: {url: URL, credentials: {header: X-Api-Key, values: [{file: key}, fixed], pick: first}}}\n"
    )
    async with (
        Upstream(answer(200, b"ok")) as upstream,
        Redrive(tmp_path, config.replace("URL", upstream.url), listen=LISTEN.format(workers)) as running,
    ):
        assert await gauge(running, "redrive_key_file_readable") == {"1": 1.0}
        for readable in (False, True):
            before = len(running.lines)
            key.unlink() if not readable else key.write_text("new\n")
            told = await running.line(lambda line: line["event"] == "reload", before)
            assert told is not None
            assert ("can't be read" in str(told.get("warnings"))) is not readable
            assert await gauge(running, "redrive_key_file_readable") == {"1": float(readable)}
            (row,) = (await show(running, "upstreams"))["upstreams"]
            assert [each["file_readable"] for each in row["credentials"]] == [readable, None]
            async with asyncio.timeout(60):  # rows are made again about once a second
                while await unreadable_in_top(running, capsys) != ([] if readable else [1]):
                    pass
            assert (await with_aiohttp("GET", f"{running.url}/llm/x")).status == 200
        assert [each.one("x-api-key") for each in upstream.requests] == ["old", "new"]
