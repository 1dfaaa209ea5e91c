"""The commands of docs/guides/https.md, as a reader types them, against an upstream that fails twice each time."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from support.certificates import make
from support.process import Redrive, run
from support.scripted import Upstream, answer

PAGE = (Path(__file__).parent.parent.parent / "docs/guides/https.md").read_text()
CONFIG = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[0]
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_the_four_ways(tmp_path: Path) -> None:
    """The upstream is here and not in the internet, and the listener's port is the system's; all else stands."""
    authority = make(tmp_path)
    base, upgraded, absolute, install, local, intercepted = COMMANDS
    assert install == "make extras\n"
    assert local.endswith("redrive run\n")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    failing_twice = (answer(503), answer(503), answer(200, b"at last")) * 4
    async with Upstream(*failing_twice, tls=authority.server) as upstream:
        here = f"url: https://localhost:{upstream.port}\n    hosts: [api.github.com]\n    verify: {authority.ca}\n"
        config = CONFIG.replace("url: https://api.github.com\n", here)
        assert here in config
        file = tmp_path / "redrive.yaml"
        file.write_text(config)
        made = await run("sh", "-euc", local.removesuffix("redrive run\n"), PATH=path, REDRIVE_CONFIG=str(file))
        assert made[0] == 0, made
        async with Redrive(tmp_path, config) as proxy:
            shell = tmp_path / "shell.yaml"
            shell.write_text(f"listen: {proxy.authority}\n{config}")
            for number, command in enumerate((base, upgraded, absolute, intercepted), 1):
                typed = command.replace("127.0.0.1:8080", proxy.authority)
                done = await run("sh", "-euc", typed, PATH=path, REDRIVE_CONFIG=str(shell))
                assert done[:2] == (0, "at last"), command
                assert all(line.startswith("redrive: configuration: ") for line in done[2].splitlines()), done[2]
                line = await proxy.call(number)
                assert (line["upstream"], line["attempts"], line["status"]) == ("github", 3, 200)
    assert [r.one("x-attempt-count") for r in upstream.requests] == ["1", "2", "3"] * 4
    hosts = [r.one("host") for r in upstream.requests[::3]]
    assert hosts == [f"localhost:{upstream.port}", *["api.github.com"] * 3]
    assert {r.target for r in upstream.requests} == {"/zen"}
