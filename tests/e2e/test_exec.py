"""`redrive exec`: a command whose requests are retried, and whose end is ours."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.process import COMMAND, environment, redrive
from support.scripted import Upstream, answer

from proxy.app_exec import count, summary

ASK = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())"


async def run(*typed: str, folder: Path, **env: str) -> tuple[int, str, str]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "exec", *typed, stdout=pipe, stderr=pipe, env=environment(**env), cwd=folder
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def config(folder: Path, upstream: Upstream) -> None:
    (folder / "redrive.yaml").write_text(
        "listen: 127.0.0.1:1\nadmin: 127.0.0.1:2\nworkers: auto\nlog: {format: console}\n"
        "upstreams:\n  api:\n"
        f"    url: {upstream.url}\n    hosts: ['api.test:80', 'api.test:443']\n"
        "    strategy: {backoff: {base: 0s, jitter: none}}\n"
    )


async def test_its_requests_are_retried_by_proxy_and_by_base_url(tmp_path: Path) -> None:
    steps = (answer(503), answer(503), answer(200, b"first"), answer(503), answer(200, b"second"))
    async with Upstream(*steps) as upstream:
        config(tmp_path, upstream)
        both = f"{sys.executable} -c '{ASK}' http://api.test/x; {sys.executable} -c '{ASK}' $REDRIVE_URL/api/x"
        status, out, err = await run("--", "sh", "-c", both, folder=tmp_path)
    assert (status, out) == (0, "first\nsecond\n"), err
    assert err.splitlines() == ["redrive: configuration: redrive.yaml", "redrive: 2 calls; 3 retries, which rescued 2"]


async def test_a_wrong_value_that_it_would_not_use_is_refused_too(tmp_path: Path) -> None:
    (tmp_path / "redrive.yaml").write_text("workers: many\n")
    status, out, err = await run("--quiet", "--", "echo", "ran", folder=tmp_path)
    assert (status, out) == (2, "")
    assert "redrive.yaml:1:10: workers: 'many' must be a whole number from 1 to 127, or auto" in err


async def test_its_https_requests_are_read_with_a_ca_that_was_made_for_it(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    async with Upstream(answer(503), answer(200, b"secret")) as upstream:
        config(tmp_path, upstream)
        typed = ("--intercept", "--quiet", "--", "curl", "-sS", "https://api.test/x")
        status, out, err = await run(*typed, folder=tmp_path)
        assert (status, out, err) == (0, "secret", "")
        assert [request.one("x-attempt-count") for request in upstream.requests] == ["1", "2"]
    assert os.listdir(tmp_path) == ["redrive.yaml"]


async def test_its_exit_status_and_the_signal_that_ended_it_are_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for typed, ended in [
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "kill -TERM $$"), -signal.SIGTERM),
        (("sh", "-c", "kill -KILL $$"), -signal.SIGKILL),
        (("sh", "-c", "kill -ABRT $$"), 128 + signal.SIGABRT),
        (("no-such-command",), 127),
        (("/",), 126),
        ((), 2),
    ]:
        status, _, err = await redrive("exec", "--", *typed)
        assert status == ended, (typed, err)
        assert "Traceback" not in err


async def test_signals_are_passed_on(tmp_path: Path) -> None:
    pipe = asyncio.subprocess.PIPE
    script = "trap 'echo told; exit 3' TERM; echo begun; while :; do read line; done"
    process = await asyncio.create_subprocess_exec(
        *(*COMMAND, "exec", "--", "sh", "-c", script),
        stdin=pipe, stdout=pipe, stderr=pipe, env=environment(), cwd=tmp_path, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdin is not None
    assert await process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGTERM)
    process.stdin.write(b"\n")
    assert await process.stdout.readline() == b"told\n"
    assert await process.wait() == 3


async def test_a_configuration_that_is_wrong_begins_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "redrive.yaml").write_text("upstream: {}\n")
    status, out, err = await redrive("exec", "--", "echo", "begun")
    assert (status, out) == (2, "")
    assert "redrive.yaml:1:1: upstream: unknown key (did you mean upstreams?)" in err.splitlines()


async def test_its_redrive_ends_with_it_even_if_it_is_killed(tmp_path: Path) -> None:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(*COMMAND, "exec", "--", "sh", "-c", "echo $REDRIVE_ADMIN; exec sleep 600"),
        stdout=pipe, stderr=pipe, env=environment(), cwd=tmp_path, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    host, _, port = (await process.stdout.readline()).decode().strip().removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    process.kill()
    await process.wait()
    assert await reader.read() == b""  # the admin port has closed
    writer.close()
    os.killpg(process.pid, signal.SIGKILL)  # the sleep


def test_what_became_of_the_calls() -> None:
    calls: Counter[str] = Counter()
    for line in (
        {"event": "ready"},
        {"outcome": "success", "attempts": 1},
        {"outcome": "success", "attempts": 3},
        {"outcome": "attempts_exhausted", "attempts": 3},
        {"outcome": "outage", "attempts": 0},
    ):
        count(line, calls)
    said = "4 calls; 4 retries, which rescued 1; 2 failed (1 attempts_exhausted, 1 outage)"
    assert summary(calls, intercept=False) == said
    assert summary(Counter(calls=1), intercept=False) == "1 call"
    count({"outcome": "success", "attempts": 1, "method": "CONNECT"}, calls)
    tunnel = "1 tunnel, in which nothing is retried: --intercept reads https to hosts that an upstream names"
    assert summary(calls, intercept=False) == f"{said}; {tunnel}"
    assert summary(Counter(tunnels=1), intercept=False) == tunnel
    named = "2 tunnels, in which nothing is retried: no upstream names the host, or one with a `connect` of its own"
    assert summary(Counter(tunnels=2), intercept=True) == named
    assert summary(Counter(), intercept=False).startswith("no calls came; those to localhost ")
