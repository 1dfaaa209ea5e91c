"""The small upstream to try redrive on."""

from __future__ import annotations

import asyncio
import re
import sys

import aiohttp
from support.process import environment


async def test_it_says_where_it_listens_and_counts_from_1() -> None:
    command = (sys.executable, "-m", "proxy.lab.flaky", "--port", "0")
    process = await asyncio.create_subprocess_exec(*command, env=environment(), stderr=asyncio.subprocess.PIPE)
    try:
        assert process.stderr is not None
        said = re.match(r"a flaky upstream on (http://127\.0\.0\.1:\d+) ", (await process.stderr.readline()).decode())
        assert said is not None
        async with aiohttp.ClientSession() as session:
            answered = []
            for headers in ({}, {}, {"X-Attempt-Count": "3"}, {}):
                async with session.get(f"{said[1]}/x", headers=headers) as answer:
                    answered.append((answer.headers.get("Retry-After"), (await answer.text()).strip()))
        assert answered == [
            (None, "GET /x was request 1, and the answer is 503"),
            ("1", "GET /x was request 2, and the answer is 503"),
            (None, "GET /x was attempt 3, and the answer is 200"),
            (None, "GET /x was request 4, and the answer is 503"),
        ]
    finally:
        process.terminate()
        await process.wait()
