"""`redrive explain --now` and `--admin`: what holds a call now, by the redrive that runs."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

from support.ports import free_port
from support.process import Redrive, redrive
from support.scripted import Upstream, answer
from test_workers import ask_once, config, metrics, until

LISTEN = "listen: 127.0.0.1:0\nadmin: {}\n"


async def test_what_holds_a_call_now(tmp_path: Path) -> None:
    port = free_port()
    listen = LISTEN.format(f"127.0.0.1:{port}")
    async with Upstream(answer(200), answer(429, b"", "Retry-After: 50")) as upstream:
        text = config(upstream, "    strategy: none\n    pushback: {cooldown: wait}\n")
        async with Redrive(tmp_path, text, listen=listen) as running:
            file = str(tmp_path / "redrive.yaml")
            asked = ("explain", "-c", file, "GET", "/a/x", "--status", "503")
            assert await ask_once(running) == 200
            status, output, _ = await redrive(*asked, "--now")
            assert status == 0
            assert "What holds a call now:\n\n  nothing holds calls now\n" in output
            assert await ask_once(running) == 429
            status, output, _ = await redrive(*asked, "--admin", running.admin, "--json")
            assert status == 0
            (said,) = json.loads(output)["now"]
            assert said.startswith("calls are asked to wait for another ") and said.endswith(
                f" s (a cooldown: retry-after of a 429 from {upstream.url.removeprefix('http://')})"
            )
            status, output, _ = await redrive(*asked)
            assert status == 0 and "What holds" not in output


async def test_a_bucket_that_pays_for_hardly_any_retry_is_said(tmp_path: Path) -> None:
    async with Upstream(answer(503), answer(503)) as upstream:
        text = config(upstream, "    bucket: {capacity: 20, retry_cost: 19}\n")
        async with Redrive(tmp_path, text) as running:
            assert await ask_once(running) == 503
            asked = ("explain", "-c", str(tmp_path / "redrive.yaml"), "GET", "/a/x", "--admin", running.admin, "--json")
            status, output, _ = await redrive(*asked)
            assert status == 0
            nothing, bucket = json.loads(output)["now"]
            assert nothing == "nothing holds calls now"
            assert re.fullmatch(
                "hardly any failure is retried: the bucket a/standard has [0-9.]+ of 20 tokens left", bucket
            )


async def test_calls_that_wait_for_a_limit_that_answers_report(tmp_path: Path) -> None:
    """In `explain --now`, and in `redrive top`, as held calls with what is left."""
    used_up = answer(200, b"", "RateLimit-Limit: 10", "RateLimit-Remaining: 0", "RateLimit-Reset: 55")
    async with (
        Upstream(used_up) as upstream,
        Redrive(tmp_path, config(upstream, "    pushback: {ahead: on, hold: 50s}\n")) as running,
    ):
        assert await ask_once(running) == 200
        waits = [asyncio.create_task(ask_once(running)) for _ in range(2)]

        async def are_held() -> bool:
            return (await metrics(running))("redrive_held_calls", upstream="a", by="ahead") == 2

        await until(are_held)
        file = str(tmp_path / "redrive.yaml")
        status, output, _ = await redrive("explain", "-c", file, "GET", "/a/x", "--admin", running.admin, "--json")
        assert status == 0
        assert json.loads(output)["now"] == [
            "2 calls are held by what the upstream said is left of its limits: 0 requests (ratelimit)"
        ]
        status, output, _ = await redrive("top", "--admin", running.admin, "--json")
        assert status == 0
        (row,) = json.loads(output)["upstreams"]
        assert (row["held_calls"], row["weather"][0]["held_by"]) == (2, "ahead")
        assert row["weather"][0]["left"] == {"ratelimit": 0}
        status, output, _ = await redrive("top", "--admin", running.admin)
        assert status == 0 and "2 calls held" in output
        assert (await metrics(running))("redrive_limit_remaining", upstream="a", limit="ratelimit") == 0
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def test_where_nothing_runs_the_command_says_so(tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text("upstreams: {a: {url: 'http://a.test'}}\n")
    status, output, errors = await redrive(
        "explain", "-c", str(file), "GET", "/a/x", "--admin", f"http://127.0.0.1:{free_port()}"
    )
    assert (status, output) == (1, "")
    assert "127.0.0.1" in errors and "Traceback" not in errors
