"""`redrive explain --now` and `--admin`: what holds a call now, by the redrive that runs."""

from __future__ import annotations

import json
from pathlib import Path

from support.ports import free_port
from support.process import Redrive, redrive
from support.scripted import Upstream, answer
from test_workers import ask_once, config

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
            assert said.startswith("calls are asked to wait for another ") and said.endswith(" s (a cooldown)")
            status, output, _ = await redrive(*asked)
            assert status == 0 and "What holds" not in output


async def test_where_nothing_runs_the_command_says_so(tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text("upstreams: {a: {url: 'http://a.test'}}\n")
    status, output, errors = await redrive(
        "explain", "-c", str(file), "GET", "/a/x", "--admin", f"http://127.0.0.1:{free_port()}"
    )
    assert (status, output) == (1, "")
    assert "127.0.0.1" in errors and "Traceback" not in errors
