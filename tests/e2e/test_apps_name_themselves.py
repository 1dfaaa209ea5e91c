"""Clients name their app by what `redrive env --app NAME` prints, and by nothing else (contract, section 17)."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest
from support.process import Redrive, environment
from support.scripted import Upstream, answer

CONFIG = "apps: {by: [proxy_user], required: true, known: {batch: {priority: low}}}\n"

PYTHON = {
    "urllib": "import urllib.request, sys; print(urllib.request.urlopen(sys.argv[1]).status)",
    "requests": "import requests, sys; print(requests.get(sys.argv[1]).status_code)",
    "httpx": "import httpx, sys; print(httpx.get(sys.argv[1]).status_code)",
    "aiohttp": (
        "import aiohttp, asyncio, sys\n"
        "async def main():\n"
        "    async with aiohttp.ClientSession(trust_env=True) as session, session.get(sys.argv[1]) as got:\n"
        "        print(got.status)\n"
        "asyncio.run(main())"
    ),
}


async def run(*command: str, env: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode().strip()


@pytest.mark.parametrize("client", ["curl", *PYTHON])
async def test_a_client_names_its_app(client: str, tmp_path: Path) -> None:
    if client == "curl":
        curl = shutil.which("curl")
        if curl is None:
            pytest.skip("curl is not installed")
        command = [curl, "-s", "-o", os.devnull, "-w", "%{http_code}"]
    else:
        pytest.importorskip("urllib.request" if client == "urllib" else client)
        command = [sys.executable, "-c", PYTHON[client]]
    async with Upstream(answer(200, b"ok")) as upstream, Redrive(tmp_path, CONFIG) as redrive:
        port = redrive.url.rpartition(":")[2]
        said = tmp_path / "said.yaml"
        said.write_text(f"listen: 127.0.0.1:{port}\n{CONFIG}")
        printed = await run(sys.executable, "-m", "proxy", "env", "-c", str(said), "--app", "batch", env=environment())
        exports = [
            line.removeprefix("export ").split("=", 1) for line in printed.splitlines() if line.startswith("export")
        ]
        variables = {name: value.strip("'\"") for name, value in exports}
        variables = {name: value for name, value in variables.items() if name.lower() != "no_proxy"}
        assert await run(*command, f"http://localhost:{upstream.port}/", env=environment(**variables)) == "200"
        line = await redrive.call()
    assert line["app"] == "batch"
    assert upstream.requests[0].all("proxy-authorization") == []
