"""The process as a whole: it begins, takes a new configuration, drains and ends."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
from pathlib import Path

import aiohttp
import pytest
from clients import with_aiohttp
from support.process import COMMAND, Redrive, redrive, run
from support.scripted import Upstream, answer, gated, hang


def config(upstream: Upstream, more: str = "") -> str:
    return f"upstreams:\n  a:\n    url: {upstream.url}\n{more}"


async def test_the_first_lines_say_where_and_what_to_try(tmp_path: Path) -> None:
    async with Upstream(answer(200)) as upstream, Redrive(tmp_path, config(upstream)) as running:
        assert (await with_aiohttp("GET", f"{running.admin}/readyz")).body == b"ok\n"
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        lines = running.errors.splitlines()
    assert any(running.url in line and running.admin in line for line in lines)
    assert any(f"a ({upstream.url}, prefix /a)" in line for line in lines)
    assert f"try: curl -i {running.url}/a/hello" in lines
    assert len(lines) <= 5
    assert [line["event"] for line in running.lines] == ["ready", "draining", "ended"]


async def test_a_port_in_use_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        file = tmp_path / "redrive.yaml"
        for key in ("listen", "admin", "probe"):
            other = "" if key == "listen" else "listen: 127.0.0.1:0\n"
            more = "" if key == "admin" else "admin: off\n"
            file.write_text(f"{other}{more}{key}: {address}\n")
            status, out, err = await redrive("run", "-c", str(file))
            assert (status, out) == (2, "")
            (line,) = err.splitlines()
            number = file.read_text().count("\n")
            assert line.startswith(
                f"{file}:{number}:{len(key) + 3}: {key}: can't listen on {address}: the port is in use"
            )


async def test_what_can_not_be_had_is_told_with_its_place_and_a_remedy(tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text("admin: {listen: 127.0.0.1:0}\nlisten:\n- 127.0.0.1:0\n- unix:none/x.sock\n")
    status, out, err = await redrive("run", "-c", str(file))
    assert (status, out) == (2, "")
    folder = tmp_path / "none"
    problem = f"can't listen on unix:{folder}/x.sock: {folder} is not a folder; make it, or name another path"
    assert err == f"{file}:4:3: listen[1]: {problem}\n"
    file.write_text("listen: 127.0.0.1:0\nadmin:\n  listen: unix:none/x.sock\n")
    _, _, err = await redrive("run", "-c", str(file))
    assert err == f"{file}:3:11: admin.listen: {problem}\n"


@pytest.mark.parametrize("text", ["upstreams: [", "upstream: {}\n", "listen: 127.0.0.1:99999\n", "a: 1\na: 1\n"])
async def test_a_bad_file_is_refused_in_clear_lines(text: str, tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text(text)
    for verb in ("run", "check", "env", "healthcheck"):
        status, _, err = await redrive(verb, "-c", str(file))
        assert status == 2
        assert err
        assert all(line.startswith(f"{file}:") for line in err.splitlines()), err


async def test_no_file_at_all(tmp_path: Path) -> None:
    status, _, err = await run(*COMMAND, "run", "-c", str(tmp_path / "none.yaml"))
    assert status == 2
    assert len(err.splitlines()) == 1


async def test_term_lets_calls_run_out(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with (
        Upstream(gated(go, b"", answer(200, b"whole"))) as upstream,
        Redrive(tmp_path, config(upstream)) as running,
    ):
        call = asyncio.create_task(with_aiohttp("GET", f"{running.url}/a/x"))
        await upstream.until(1)
        running.signal(signal.SIGTERM)
        assert await running.line(lambda line: line["event"] == "draining")
        ready = await with_aiohttp("GET", f"{running.admin}/readyz")
        assert (ready.status, ready.body) == (503, b"draining\n")
        go.set()
        got = await call
        assert (got.status, got.body) == (200, b"whole")
        assert await running.ended() == 0
        assert running.lines[-1]["calls_cut"] == 0


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_at_once(first: signal.Signals, tmp_path: Path) -> None:
    async with Upstream(hang) as upstream, Redrive(tmp_path, config(upstream)) as running:
        call = asyncio.create_task(with_aiohttp("GET", f"{running.url}/a/x"))
        await upstream.until(1)
        running.signal(first)
        assert await running.line(lambda line: line["event"] == "draining")
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        await upstream.gone.wait()
        assert (await call).status == 503


async def test_drain_runs_out(tmp_path: Path) -> None:
    async with Upstream(hang) as upstream, Redrive(tmp_path, config(upstream) + "drain: 50ms\n") as running:
        call = asyncio.create_task(with_aiohttp("GET", f"{running.url}/a/x"))
        await upstream.until(1)
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert running.lines[-1] | {"time": ""} == {"time": "", "event": "ended", "calls_cut": 1}
        got = await call
        assert (got.status, json.loads(got.body)["outcome"]) == (503, "overloaded")


async def test_asked_to_drain_it_refuses_calls_in_the_end_and_lives_on(tmp_path: Path) -> None:
    async with Upstream(answer(200)) as upstream, Redrive(tmp_path, config(upstream) + "drain: 0s\n") as running:
        assert (await with_aiohttp("POST", f"{running.admin}/drain")).status == 202
        assert (await with_aiohttp("GET", f"{running.admin}/readyz")).status == 503
        got = await with_aiohttp("GET", f"{running.url}/a/x")
        assert (got.status, json.loads(got.body)["outcome"]) == (503, "overloaded")
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0


async def test_a_reload_is_taken_and_a_bad_one_changes_nothing(tmp_path: Path) -> None:
    async with (
        Upstream(answer(503)) as upstream,
        Redrive(tmp_path, config(upstream)) as running,
    ):
        good = running.file.read_text()
        assert (await with_aiohttp("GET", f"{running.url}/a/x")).headers["x-attempt-count"] == "3"

        running.file.write_text(good + "    strategie: none\n")
        refused = await with_aiohttp("POST", f"{running.admin}/reload")
        assert refused.status == 422
        (error,) = json.loads(refused.body)["errors"]
        assert error.startswith(f"{running.file}:")
        assert "did you mean strategy?" in error
        verbose = json.loads((await with_aiohttp("GET", f"{running.admin}/readyz?verbose")).body)
        assert (verbose["ready"], verbose["reload_errors"]) == (True, [error])
        event = await running.line(lambda line: line["event"] == "reload")
        assert event is not None
        assert (event["result"], event["errors"]) == ("failure", [error])
        assert (await with_aiohttp("GET", f"{running.url}/a/x")).headers["x-attempt-count"] == "3"

        running.file.write_text(good + "    strategy: none\n")
        running.signal(signal.SIGHUP)
        assert await running.line(lambda line: line["event"] == "reload" and line["result"] == "success")
        assert (await with_aiohttp("GET", f"{running.url}/a/x")).headers["x-attempt-count"] == "1"
        verbose = json.loads((await with_aiohttp("GET", f"{running.admin}/readyz?verbose")).body)
        assert verbose["reload_errors"] == []
        metrics = (await with_aiohttp("GET", f"{running.admin}/metrics")).body.decode()
        for result in ("success", "failure"):  # the file is watched too, so it may have been looked at twice
            assert re.search(rf'redrive_config_reloads_total{{result="{result}"}} [12]\.0', metrics)


async def test_another_token_is_asked_for_at_once(tmp_path: Path) -> None:
    async with Redrive(tmp_path, "", listen="listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0}\n") as running:
        running.file.write_text("listen: 127.0.0.1:0\nadmin: {listen: 127.0.0.1:0, token: s3cret}\n")
        assert await running.line(lambda line: line["event"] == "reload" and line["result"] == "success")
        assert (await with_aiohttp("GET", f"{running.admin}/readyz")).status == 401


async def test_a_file_that_changes_is_taken(tmp_path: Path) -> None:
    async with Upstream(answer(503)) as upstream, Redrive(tmp_path, config(upstream)) as running:
        new = running.file.with_suffix(".new")
        new.write_text(running.file.read_text() + "    strategy: none\n")
        new.replace(running.file)
        event = await running.line(lambda line: line["event"] == "reload")
        assert event is not None
        assert (event["result"], event["why"]) == ("success", "file")
        assert (await with_aiohttp("GET", f"{running.url}/a/x")).headers["x-attempt-count"] == "1"


async def test_a_reload_keeps_calls_in_flight_buckets_and_connections(tmp_path: Path) -> None:
    go = asyncio.Event()
    steps = (answer(503), answer(503), answer(503), gated(go, b"", answer(200, b"whole")))
    async with Upstream(*steps) as upstream, Redrive(tmp_path, config(upstream)) as running:
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{running.url}/a/x") as got:
                assert got.status == 503
            flying = asyncio.create_task(session.get(f"{running.url}/a/x"))
            await upstream.until(4)
            running.file.write_text(running.file.read_text() + "    timeouts: {total: 20m}\n")
            async with session.post(f"{running.admin}/reload") as reloaded:
                assert reloaded.status == 200
            go.set()
            async with await flying as got:
                assert (got.status, await got.read()) == (200, b"whole")
            async with session.get(f"{running.admin}/buckets") as shown:
                (bucket,) = (await shown.json())["buckets"]
            assert bucket["level"] == 491
            async with session.get(f"{running.url}/a/x") as got:
                assert got.status == 200
        assert upstream.connections <= 2


async def test_health(tmp_path: Path) -> None:
    async with Upstream(hang) as upstream, Redrive(tmp_path, config(upstream)) as running:
        asked = tmp_path / "asked.yaml"
        asked.write_text(f"listen: {running.authority}\nadmin: {running.ready['admin'][0]}\n")
        assert (await redrive("healthcheck", "-c", str(asked)))[0] == 0
        call = asyncio.create_task(with_aiohttp("GET", f"{running.url}/a/x"))
        await upstream.until(1)
        running.signal(signal.SIGTERM)
        assert await running.line(lambda line: line["event"] == "draining")
        status, _, err = await redrive("healthcheck", "-c", str(asked))
        assert (status, err.splitlines()[-1]) == (1, "redrive: not ready: 503 draining")
        running.signal(signal.SIGTERM)
        await running.ended()
        assert (await redrive("healthcheck", "-c", str(asked)))[0] == 1
        await asyncio.gather(call, return_exceptions=True)


async def test_health_of_another_server(tmp_path: Path) -> None:
    async with Upstream(answer(404, b"<html>\n<p>gone"), answer(500, b"<html>\n<p>broken")) as other:
        asked = tmp_path / "asked.yaml"
        asked.write_text(f"admin: {other.authority}\n")
        said = [(await redrive("healthcheck", "-c", str(asked)))[2].splitlines()[1:] for _ in range(2)]
    stranger = f"redrive: what answers at {other.authority} is not redrive's admin port or its probe"
    assert said == [[stranger], ["redrive: not ready: 500 <html>"]]


async def test_unix_sockets_and_a_token(tmp_path: Path) -> None:
    listen = f"listen: [127.0.0.1:0, 'unix:{tmp_path}/redrive.sock']\nadmin: {{listen: 127.0.0.1:0, token: s3cret}}\n"
    async with Upstream(answer(200, b"ok")) as upstream, Redrive(tmp_path, config(upstream), listen=listen) as running:
        connector = aiohttp.UnixConnector(str(tmp_path / "redrive.sock"))
        async with aiohttp.ClientSession(connector=connector) as session, session.get("http://localhost/a/x") as got:
            assert (got.status, await got.read()) == (200, b"ok")
        assert (await with_aiohttp("GET", f"{running.admin}/readyz")).status == 401
        asked = tmp_path / "asked.yaml"
        asked.write_text(f"admin: {{listen: '{running.ready['admin'][0]}', token: s3cret}}\n")
        assert (await redrive("healthcheck", "-c", str(asked)))[0] == 0


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /a/x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET /a/x HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"GET /nobody/x HTTP/1.1\r\nHost: localhost:8080\r\n\r\n", 404),
    ],
    ids=["two lengths", "oversized", "http/2", "no such prefix"],
)
async def test_a_bad_request_is_refused_counted_and_logged(head: bytes, status: int, tmp_path: Path) -> None:
    async with Upstream(answer(200)) as upstream, Redrive(tmp_path, config(upstream)) as running:
        host, port = running.authority.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head)
        assert (await reader.readline()).startswith(b"HTTP/1.1 %d " % status)
        writer.close()
        line = await running.call()
        metrics = (await with_aiohttp("GET", f"{running.admin}/metrics")).body.decode()
    assert (line["status"], line["attempts"]) == (status, 0)
    assert line["detail"]
    assert f'code_class="{status // 100}xx"' in metrics
    assert upstream.requests == []
