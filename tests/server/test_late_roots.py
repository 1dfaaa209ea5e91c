"""The system's roots are read when somebody uses them, not when aiohttp is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.certificates import make

SCRIPT = """
import ssl
from proxy.server.late_roots import LateRoots, import_aiohttp
before = ssl.SSLContext.set_default_verify_paths
import_aiohttp()
assert ssl.SSLContext.set_default_verify_paths is before
from aiohttp import connector
found = [each for each in vars(connector).values() if isinstance(each, ssl.SSLContext)]
verifying = next(each for each in found if each.verify_mode is ssl.CERT_REQUIRED)
for context in found:
    assert type(context) is LateRoots
    assert context.cert_store_stats()["x509_ca"] == 0
verifying.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost")
assert type(verifying) is ssl.SSLContext
print(verifying.cert_store_stats()["x509_ca"], verifying.check_hostname)
"""


def test_contexts_read_the_roots_at_their_first_handshake(tmp_path: Path) -> None:
    environ = {**os.environ, "SSL_CERT_FILE": str(make(tmp_path).ca), "SSL_CERT_DIR": str(tmp_path / "none")}
    ran = subprocess.run([sys.executable, "-c", SCRIPT], env=environ, capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("1 True\n", "")
