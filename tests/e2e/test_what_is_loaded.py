"""What a process that carries calls must not have loaded: it pays for it in every pod, in memory and at each start."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from clients import with_aiohttp
from support.certificates import make
from support.process import Redrive
from support.scripted import Upstream, answer

from proxy.wire.http2.compiled import SLICER

#: For verbs, workers, extras, formats and answers that are not asked for here, and aiohttp's client. What aiohttp's
#: server imports is not on it (docs/decisions/0007-aiohttp-serves.md).
NEVER = frozenset({
    "aiohttp.client", "aiohttp.connector", "aiohttp.web_ws", "argparse", "attr.validators", "cryptography", "decimal",
    "difflib", "email.policy", "frozenlist._frozenlist", "html.entities", "http.client", "importlib.resources",
    "multiprocessing", "opentelemetry", "prometheus_client", "pydantic", "redis", "rich", "typing_extensions",
    "unittest", "urllib.request", "watchfiles", "xml", "yaml.scanner", "proxy.config.service_config", "proxy.lab",
    "proxy.server.intercept.ca", "proxy.supervisor.workers", "proxy.stores",
})  # fmt: skip
if SLICER is not None:  # compiled code reads HTTP/2 by itself
    NEVER |= {"hpack"}
#: What the parent of workers does for them.
NOT_FOR_A_WORKER = (NEVER - {"proxy.stores"}) | {
    "proxy.cli", "proxy.config.load", "proxy.main", "proxy.observe.exposition", "proxy.admin",
    "proxy.stores.redis", "yaml",
}  # fmt: skip

CONFIG = "upstreams: {{a: {{url: '{}'}}, b: {{url: 'https://localhost:1', verify: '{}'}}}}"


def found(modules: list[str], unwanted: frozenset[str]) -> set[str]:
    """The unwanted among these, where one is meant with all that is in it."""
    return {name for name in modules if any(name == each or name.startswith(f"{each}.") for each in unwanted)}


async def test_one_process_that_has_carried_calls_and_answered_the_dashboard(tmp_path: Path) -> None:
    async with (
        Upstream(answer(503), answer(200)) as upstream,
        Redrive(tmp_path, CONFIG.format(upstream.url, make(tmp_path).ca), PYTHONPROFILEIMPORTTIME="1") as running,
    ):
        assert (await with_aiohttp("GET", f"{running.url}/a/x")).status == 200
        for page in ("", "readyz?verbose", "upstreams", "requests", "config"):
            assert (await with_aiohttp("GET", f"{running.admin}/{page}")).status == 200
        running.signal(signal.SIGTERM)
        assert await running.ended() == 0
        loaded = re.findall(r"^import time: .* (\S+)$", running.errors, re.MULTILINE)
        assert "proxy.server.acceptor" in loaded
        assert found(loaded, NEVER) == set()


def test_a_worker() -> None:
    code = (
        "import sys; from proxy.server.late_client import import_aiohttp; import_aiohttp(); "
        "import proxy.supervisor.worker; print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "proxy.server.acceptor" in loaded
    assert found(loaded, frozenset(NOT_FOR_A_WORKER)) == set()
