"""redrive serves as the image's user where nothing can be written, not even shared memory."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.process import Redrive
from support.scripted import Upstream, answer

USER = "65532"
#: All file systems are read-only in a mount namespace of its own; the interpreter may be in a folder that only root can
#: enter, so the process keeps the capability to read it.
ENTER = """
mount --make-rprivate / || exit 1
mount -t tmpfs -o ro,size=4k none /dev/shm || exit 1
for place in $(awk '{print $2}' /proc/self/mounts | sort -u) /; do
    case $place in /proc*|/sys*|/dev*) continue ;; esac
    [ -d "$place" ] && mount -o remount,bind,ro "$place" 2>/dev/null
done
caps=-all,+dac_read_search
exec setpriv --reuid=USER --regid=USER --clear-groups --no-new-privs \\
    --inh-caps=$caps --ambient-caps=$caps --bounding-set=$caps "$@"
""".replace("USER", USER)
UNSHARE = ("unshare", "--mount", "sh", "-c", ENTER, "sh")
#: Prints the folders that can be written to.
WRITABLE = """
import os, tempfile
for folder in ("/", "/tmp", "/var/tmp", "/dev/shm", "/run", os.path.expanduser("~"), os.getcwd()):
    try:
        tempfile.TemporaryFile(dir=folder)
    except OSError:
        continue
    print(folder)
print(os.geteuid())
"""


def can_be_tried() -> bool:
    if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("setpriv"):
        return False
    done = subprocess.run([*UNSHARE, sys.executable, "-c", WRITABLE], capture_output=True, text=True, check=False)
    return done.stdout.split() == [USER]


@pytest.mark.parametrize("workers", [1, 2])
async def test_nothing_is_written_to_serve(tmp_path: Path, workers: int) -> None:
    if not await asyncio.to_thread(can_be_tried):
        pytest.skip("needs root, and mount namespaces")
    for folder in (tmp_path, *tmp_path.parents):
        if str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    listen = f"listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\nworkers: {workers}\n"
    command = (*UNSHARE, sys.executable, "-m", "proxy")
    async with Upstream(answer(503), answer(200, b"whole")) as upstream:
        text = f"upstreams: {{a: {{url: '{upstream.url}'}}}}\n"
        async with Redrive(tmp_path, text, listen=listen, command=command) as running:
            reader, writer = await asyncio.open_connection(*running.authority.rsplit(":", 1))
            writer.write(b"GET /a/x HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            got = await reader.read()
            writer.close()
            assert got.startswith(b"HTTP/1.1 200 ")
            assert got.endswith(b"whole")
            assert os.stat(f"/proc/{running.ready['pid']}").st_uid == int(USER)
