"""The systemd unit, judged by systemd's own tools, and what redrive tells the service manager."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.process import Redrive

from proxy.config.load import load
from proxy.service_manager import ServiceManager

ROOT = Path(__file__).parent.parent.parent
UNIT = ROOT / "deploy/systemd/redrive.service"
ANALYZE = shutil.which("systemd-analyze")
sys.path.insert(0, str(ROOT / "tools"))
import readme  # noqa: E402


def keys() -> dict[str, str]:
    """The unit's keys, the last of several."""
    return dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("name", ["redrive.service", "redrive@a.service"])
def test_systemd_takes_the_unit_and_finds_it_closed(tmp_path: Path, name: str) -> None:
    assert ANALYZE is not None
    unit = tmp_path / name
    text = UNIT.with_name(name.replace("@a", "@")).read_text()
    unit.write_text(text.replace("/usr/local/bin/redrive", sys.executable))
    done = subprocess.run([ANALYZE, "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    judged = [ANALYZE, "security", "--offline=true", "--threshold=20", "--no-pager", unit]  # in tenths; 96 is all open
    done = subprocess.run(judged, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(ANALYZE is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_socket(tmp_path: Path) -> None:
    assert ANALYZE is not None
    for name in ("redrive.socket", "redrive.service"):
        text = UNIT.with_name(name).read_text()
        (tmp_path / name).write_text(text.replace("/usr/local/bin/redrive", sys.executable))
    done = subprocess.run([ANALYZE, "verify", tmp_path / "redrive.socket"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    (address,) = re.findall(r"^ListenStream=(.*)$", (tmp_path / "redrive.socket").read_text(), re.MULTILINE)
    (tmp_path / "redrive.yaml").touch()
    settings = load(str(tmp_path / "redrive.yaml"), {}).settings
    assert settings is not None
    assert [str(each) for each in settings.listen] == [address], "the default of `listen`"


def test_both_instances_are_the_service_but_for_how_they_start() -> None:
    def settings(name: str) -> list[str]:
        lines = UNIT.with_name(name).read_text().splitlines()
        return [line for line in lines if line and not line.startswith("#")]

    alone, instance = settings("redrive.service"), settings("redrive@.service")
    assert [line for line in alone if line not in instance] == [
        "Description=redrive, a retrying HTTP sidecar",
        "ExecStart=/usr/local/bin/redrive run -c /etc/redrive/redrive.yaml",
    ]
    assert [line for line in instance if line not in alone] == [
        "Description=redrive, a retrying HTTP sidecar (%i)",
        "ExecStart=/usr/local/bin/redrive run --take-over -c /etc/redrive/redrive.yaml",
        "User=redrive",
    ]


def test_the_unit_fits_redrive(tmp_path: Path) -> None:
    unit = keys()
    file = tmp_path / "redrive.yaml"
    file.touch()
    settings = load(str(file), {}).settings
    assert settings is not None
    assert int(unit["TimeoutStopSec"].removesuffix("s")) > settings.drain, "calls would be cut short"
    assert unit["Type"] == "notify" and unit["KillMode"] == "mixed" and "kill -HUP $MAINPID" in unit["ExecReload"]
    assert unit["ExecStart"].endswith(" run -c /etc/redrive/redrive.yaml")
    assert unit["Documentation"] == readme.source()
    families = set(re.findall(r"AF_\w+", unit["RestrictAddressFamilies"]))
    used = {
        each for source in (ROOT / "proxy").rglob("*.py") for each in re.findall(r"\bAF_[A-Z0-9]+", source.read_text())
    }
    assert used - {"AF_UNSPEC"} <= families, "a socket that the unit forbids"


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The service manager's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.setblocking(False)
        yield sock


async def test_the_service_manager_is_told(tmp_path: Path, manager: socket.socket) -> None:
    loop = asyncio.get_running_loop()

    async def told() -> dict[str, str]:
        received = await loop.sock_recv(manager, 4096)
        return dict(line.split("=", 1) for line in received.decode().splitlines())

    config = "drain: 7s\nupstreams: {a: {url: 'http://a.example'}}\n"
    async with Redrive(tmp_path, config, NOTIFY_SOCKET=str(tmp_path / "notify")) as redrive:
        assert await told() == {"READY": "1", "STATUS": "serving 1 upstream"}
        before = time.clock_gettime(time.CLOCK_MONOTONIC)
        redrive.process.send_signal(signal.SIGHUP)
        reloading = await told()
        began = int(reloading.pop("MONOTONIC_USEC")) / 1e6
        assert reloading == {"RELOADING": "1"}
        assert before <= began <= time.clock_gettime(time.CLOCK_MONOTONIC), (
            "systemd drops what is older than its signal"
        )
        assert await told() == {"STATUS": "serving 1 upstream"}
        assert await told() == {"READY": "1", "STATUS": "serving 1 upstream"}
        redrive.file.write_text("upstreams: {a: {}}\nwrong: 1\n")
        refused = await told()
        assert refused["STATUS"].startswith("the last configuration was refused, the one before serves: ")
        assert "READY" not in refused
        redrive.process.send_signal(signal.SIGTERM)
        ending = {"STOPPING": "1", "STATUS": "calls run out", "EXTEND_TIMEOUT_USEC": "37000000"}
        assert await told() == ending
        await redrive.process.wait()
    with pytest.raises(BlockingIOError):
        manager.recv(4096)


def test_nobody_listens(tmp_path: Path) -> None:
    for named in ({}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1"}, {"NOTIFY_SOCKET": str(tmp_path / "none")}):
        ServiceManager(named).ready("fine")


def test_an_abstract_name(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0redrive-test{tmp_path}")
        ServiceManager({"NOTIFY_SOCKET": f"@redrive-test{tmp_path}"}).status("fine")
        assert sock.recv(4096) == b"STATUS=fine"
