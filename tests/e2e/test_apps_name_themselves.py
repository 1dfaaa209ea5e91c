"""Clients name their app by what `redrive env --app NAME` prints, and by nothing else (contract, section 17)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
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


#: Node follows the variables from 22.21 and 24 on.
NODE = "fetch(process.argv[1]).then((got) => console.log(got.status))"
GO = """\
package main

import (
	"fmt"
	"net/http"
	"os"
)

func main() {
	got, err := http.Get(os.Args[1])
	if err != nil {
		panic(err)
	}
	fmt.Println(got.StatusCode)
}
"""
#: Java reads no variables, and names nobody by itself: an Authenticator takes the name from the properties.
JAVA = """\
import java.net.*;
import java.net.http.*;

class Ask extends Authenticator {
    protected PasswordAuthentication getPasswordAuthentication() {
        String name = System.getProperty("http.proxyUser");
        return new PasswordAuthentication(name, System.getProperty("http.proxyPassword").toCharArray());
    }

    public static void main(String[] asked) throws Exception {
        var client = HttpClient.newBuilder().proxy(ProxySelector.getDefault()).authenticator(new Ask()).build();
        var request = HttpRequest.newBuilder(URI.create(asked[0])).build();
        System.out.println(client.send(request, HttpResponse.BodyHandlers.discarding()).statusCode());
    }
}
"""
#: .NET names itself once the proxy has refused a request. Mono runs it, and so does the .NET runtime (`net`), for which
#: Mono's compiler is given the libraries of that runtime.
NET = """\
using System;
using System.Net.Http;

class Ask {
    static void Main(string[] asked) {
        using (var client = new HttpClient())
            Console.WriteLine((int) client.GetAsync(asked[0]).Result.StatusCode);
    }
}
"""
NET_LIBRARIES = (
    "System.Private.CoreLib", "System.Runtime", "System.Console", "System.Net.Http", "System.Net.Primitives",
    "System.Private.Uri", "netstandard",
)  # fmt: skip


def node() -> list[str]:
    found = shutil.which("node")
    if found is None:
        pytest.skip("Node is not installed")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    if tuple(map(int, version.strip().lstrip("v").split(".")[:2])) < (22, 21):
        pytest.skip(f"Node {version.strip()} reads no proxy variables; 22.21 and 24 do")
    return [found, "-e", NODE]


def compiled(command: str, needs: str, name: str, source: str, folder: Path) -> list[str]:
    """The command that compiles and runs this source."""
    if shutil.which(needs) is None:
        pytest.skip(f"{needs} is not installed")
    (folder / name).write_text(source)
    return [*command.split(), str(folder / name)]


def mono(folder: Path) -> list[str]:
    """The command that runs .NET's client with Mono."""
    compiler, runtime = shutil.which("mcs"), shutil.which("mono")
    if compiler is None or runtime is None:
        pytest.skip("Mono is not installed (scripts/system-packages installs it)")
    (folder / "ask.cs").write_text(NET)
    subprocess.run([compiler, "-r:System.Net.Http.dll", str(folder / "ask.cs")], check=True, capture_output=True)
    return [runtime, str(folder / "ask.exe")]


def net(folder: Path) -> list[str]:
    """The command that runs .NET's client, with the runtime of the package dotnetcore2 (PyPI), or an installed one."""
    compiler, package = shutil.which("mcs"), find_spec("dotnetcore2")
    if compiler is None:
        pytest.skip("mcs (Debian's mono-mcs) is not installed")
    found = Path(package.origin).parent / "bin/dotnet" if package and package.origin else shutil.which("dotnet")
    if found is None:
        pytest.skip("no .NET runtime is installed: pip install dotnetcore2")
    dotnet = Path(found).resolve()
    dotnet.chmod(0o755)
    library = max((dotnet.parent / "shared/Microsoft.NETCore.App").iterdir())
    (folder / "ask.cs").write_text(NET)
    libraries = [f"-r:{library / name}.dll" for name in NET_LIBRARIES]
    out = ["-noconfig", "-nostdlib", "-nowarn:1702", f"-out:{folder / 'ask.dll'}", *libraries]
    subprocess.run([compiler, *out, str(folder / "ask.cs")], check=True, capture_output=True)
    framework = {"name": "Microsoft.NETCore.App", "version": library.name}
    options = {"framework": framework, "configProperties": {"System.Globalization.Invariant": True}}
    (folder / "ask.runtimeconfig.json").write_text(json.dumps({"runtimeOptions": options}))
    return [str(dotnet), str(folder / "ask.dll")]


def client_of(name: str, folder: Path) -> list[str]:
    """The command of a client that asks for the URL which is its last argument, and prints the answer's status."""
    if name == "curl":
        curl = shutil.which("curl")
        if curl is None:
            pytest.skip("curl is not installed")
        return [curl, "-s", "-o", os.devnull, "-w", "%{http_code}"]
    if name == "node":
        return node()
    if name == "go":
        return compiled("go run", "go", "ask.go", GO, folder)
    if name == "java":
        return compiled("java", "javac", "Ask.java", JAVA, folder)
    if name in ("mono", "net"):
        return mono(folder) if name == "mono" else net(folder)
    pytest.importorskip("urllib.request" if name == "urllib" else name)
    return [sys.executable, "-c", PYTHON[name]]


@pytest.mark.parametrize("client", ["curl", "node", "go", "java", "mono", "net", *PYTHON])
async def test_a_client_names_its_app(client: str, tmp_path: Path) -> None:
    command = client_of(client, tmp_path)
    async with Upstream(answer(200, b"ok")) as upstream:
        host = f"upstreams: {{api: {{url: {upstream.url}, hosts: [api.example]}}}}\n"  # Go asks no proxy for localhost
        async with Redrive(tmp_path, CONFIG + host) as redrive:
            port = redrive.url.rpartition(":")[2]
            said = tmp_path / "said.yaml"
            said.write_text(f"listen: 127.0.0.1:{port}\n{CONFIG}")
            told = [sys.executable, "-m", "proxy", "env", "-c", str(said), "--app", "batch", "--java"]
            printed = await run(*told, env=environment())
            exports = [
                line.removeprefix("export ").split("=", 1) for line in printed.splitlines() if line.startswith("export")
            ]
            variables = {name: value.strip("'\"") for name, value in exports}
            assert await run(*command, "http://api.example/", env=environment(**variables)) == "200"
            line = await redrive.line(lambda line: line["event"] == "call" and line["status"] == 200)
    assert line is not None and line["app"] == "batch"
    assert upstream.requests[0].all("proxy-authorization") == []
