"""What reading and importing took beside what they left goes back to the system when a process has begun."""

from __future__ import annotations

import asyncio
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.process import Redrive
from support.scripted import Upstream

from proxy import freed_memory
from proxy.wire.http1.compiled import CORE

#: Frees 40 MB below a piece that stays, and says how much less the process holds once it has settled in: kB.
CODE = """
import re
from proxy.freed_memory import settle_in

def held():
    return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1])

pieces = [bytes(2000) for _ in range(20_000)]
above = bytes(2000)
del pieces
before = held()
settle_in()
print(before - held())
"""


@pytest.mark.skipif(CORE != "compiled", reason="Python alone can't ask for it")
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another libc gives back what is freed")
def test_a_process_that_has_begun_holds_nothing_that_it_freed() -> None:
    told = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stdout
    assert int(told) > 30_000


def test_lists_of_files_are_forgotten_and_modules_are_found_all_the_same() -> None:
    code = """
import asyncio
import sys
from proxy.freed_memory import settle_in
before = len(sys.path_importer_cache)
settle_in()
print(len(sys.path_importer_cache) < before)
import wave
from proxy.retry.call import machine
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told == "True\n"


def test_freed_memory_goes_back_when_the_process_has_come_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    computed, did = iter([5.0, 5.0, 7.0, 7.01, 7.02, 7.03, 7.04, 9.0, 9.0, 11.0, 11.0]), list[str]()
    monkeypatch.setattr(freed_memory, "process_time", lambda: next(computed))
    monkeypatch.setattr(freed_memory, "trim", lambda: did.append("trim"))
    monkeypatch.setattr(freed_memory, "gc", SimpleNamespace(collect=lambda: did.append("collect")))
    freed = freed_memory.FreedMemory()
    seen = []
    for _ in range(10):
        freed.look()
        seen.append("+".join(did))
        did.clear()
    assert seen == ["", "", "collect+trim", "trim", "trim", "", "", "collect+trim", "", "collect+trim"]


def faults_of(pid: int) -> int:
    """The page faults of a process so far."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[7])


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another libc has other thresholds")
async def test_the_pieces_of_a_body_use_the_memory_of_those_before(tmp_path: Path) -> None:
    """By glibc's own thresholds each MiB of chunked bodies takes hundreds of page faults."""
    piece = b"4000\r\n" + bytes(0x4000) + b"\r\n"
    whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + 64 * piece + b"0\r\n\r\n"

    async def get(running: Redrive) -> None:
        reader, writer = await asyncio.open_connection(*running.authority.rsplit(":", 1))
        writer.write(b"GET /a/x HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert len(await reader.read()) > 64 * 0x4000
        writer.close()

    async with (
        Upstream(whole) as upstream,
        Redrive(tmp_path, f"upstreams: {{a: {{url: '{upstream.url}'}}}}\n") as running,
    ):
        await get(running)
        before = faults_of(running.pid)
        for _ in range(20):
            await get(running)
        assert faults_of(running.pid) - before < 20 * 100
