"""docs/guides/clients.md, as a reader types it: every client asks through redrive, which retries inside of its TLS.

Programs are files by the name in their first line; a Python block needs none. What this machine has no runtime for is
left out, and said.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from support.certificates import Authority, make
from support.process import Redrive, run
from support.scripted import Upstream, answer

from proxy.cli import main

PAGE = (Path(__file__).parent.parent.parent / "docs/guides/clients.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PROGRAMS = {match[1]: text for _, text in BLOCKS if (match := re.match(r"// ([\w.]+)\n", text))}
PYTHON = [text for language, text in BLOCKS if language == "py"]
SHELL = [line for language, text in BLOCKS if language == "sh" for line in text.splitlines()]
CONFIG = """\
upstreams:
  github:
    url: https://localhost:{port}
    hosts: [api.github.com, "*.amazonaws.com"]
    verify: {ca}
    connect: intercept
    strategy: {{backoff: {{base: 0s}}}}
"""
#: What a program that comes to an end may need beside the page's own settings.
NOTHING_ELSE = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "GOCACHE": "{folder}/go"}
#: What this machine may have set, and the page says that it wins.
UNSET = (
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "SSL_CERT_FILE",
    "AWS_CA_BUNDLE",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
)


def which_block(line: str) -> str:
    """The program that a line of shell starts."""
    return next(word for word in re.split(r"\s+", line) if "=" not in word)


async def ask(folder: Path, authority: Authority, files: dict[str, str], *commands: str) -> None:
    """The last of the commands is the client's; its call takes three attempts."""
    failing_twice = (answer(503), answer(503), answer(200, b"Keep it simple."))
    async with Upstream(*failing_twice, tls=authority.server) as upstream:
        config = CONFIG.format(port=upstream.port, ca=authority.ca)
        (folder / "redrive.yaml").write_text(config)
        assert main(["ca", "init", "-c", str(folder / "redrive.yaml")]) == 0
        async with Redrive(folder, config) as proxy:
            port = proxy.authority.rpartition(":")[2]

            def here(text: str) -> str:
                return text.replace("127.0.0.1:8080", proxy.authority).replace("Port=8080", f"Port={port}")

            for name, text in files.items():
                (folder / name).write_text(here(text))
            typed = here("\n".join(commands))
            more = {name: value.format(folder=folder) for name, value in NOTHING_ELSE.items()}
            path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
            status, out, err = await run(
                "sh", "-euc", f"unset {' '.join(UNSET)}; cd '{folder}'\n{typed}", PATH=path, **more
            )
            assert (status, out.strip()) == (0, "Keep it simple."), err
            line = await proxy.call()
    assert (line["upstream"], line["attempts"], line["outcome"]) == ("github", 3, "success"), json.dumps(line)
    assert [request.one("x-attempt-count") for request in upstream.requests] == ["1", "2", "3"]


@pytest.mark.parametrize("text", PYTHON, ids=lambda text: re.findall(r"(requests|httpx|aiohttp|boto3)", text)[0])
async def test_python(text: str, tmp_path: Path) -> None:
    await ask(tmp_path, make(tmp_path), {"ask.py": text}, "python ask.py")


#: How it is asked whether this machine's can: Node reads the variables from 22.21 on, a JDK compiles what it starts.
ABLE = {"curl": "curl --version", "node": "node --use-env-proxy -p 1", "go": "go version", "java": "javac -version"}


@pytest.mark.parametrize("line", [line for line in SHELL if not line.startswith("keytool")], ids=which_block)
async def test_shell(line: str, tmp_path: Path) -> None:
    command = which_block(line)
    if shutil.which(command) is None or (await run("sh", "-c", ABLE[command]))[0] != 0:
        pytest.skip(f"no {command} here that can")
    before = [each for each in SHELL if each.startswith("keytool") and command == "java"]
    await ask(tmp_path, make(tmp_path), PROGRAMS, *(f"{each} 2>/dev/null" for each in before), line)


def test_no_block_is_left_out() -> None:
    started = " ".join(SHELL)
    assert all(name in started for name in PROGRAMS), "a program that no command starts"
    assert len(PYTHON) + len(PROGRAMS) + sum(language == "sh" for language, _ in BLOCKS) == len(BLOCKS)


async def test_openais_sdk_reads_what_the_table_says(tmp_path: Path) -> None:
    program = """
from openai import OpenAI
print(OpenAI(api_key="sk-test", base_url="https://api.github.com", max_retries=0).get("/zen", cast_to=str))
"""
    settings = "HTTPS_PROXY=http://127.0.0.1:8080 SSL_CERT_FILE=ca/bundle.pem"
    await ask(tmp_path, make(tmp_path), {"ask.py": program}, f"{settings} python ask.py")
