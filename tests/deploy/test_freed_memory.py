"""What reading and importing took beside what they left goes back to the system when a process has begun."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from proxy.wire.http1.compiled import CORE

#: Frees 40 MB below a piece that stays, and says how much less the process holds once it has settled in: kB.
CODE = """
import re
from proxy.runtime import settle_in

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
