"""The image that was built, as a machine that programs run on: read-only, without a shell, in namespaces of its own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

#: Beyond loopback, as a container's own address is.
ADDRESS = "10.9.0.1"
#: Seconds that anything may take to come.
PATIENCE = 20.0
T = TypeVar("T")


class Root:
    """A file system's root, mounted read-only, and the programs in it."""

    def __init__(self, root: Path, environment: Mapping[str, str], *places: str) -> None:
        """`places` are folders, or files with a dot in their name, that something is mounted on later."""
        self.root = root
        self.environment = environment
        mount("--bind", root, root)
        mount("-t", "proc", "proc", root / "proc")
        for file in ("dev/null", "etc/hosts"):
            (root / file).touch()  # a mount needs something to lie on
            mount("--bind", f"/{file}", root / file)
        for place in places:
            if Path(place).suffix:
                (root / place).touch()
            else:
                (root / place).mkdir(parents=True, exist_ok=True)
        self.prepare()
        mount("-o", "remount,ro,bind", root)
        with contextlib.suppress(OSError):
            (root / "opt/written").touch()
            sys.exit("the root can be written to")

    def prepare(self) -> None:
        """What else is done to it while it can be written to."""

    def command(self, command: list[str], *, init: bool = False) -> list[str]:
        """How a command is started there: as its user, and as the first process of its own namespace unless an init
        process is.
        """
        first = [] if init else ["/usr/bin/unshare", "--pid", "--fork", "--kill-child"]
        return [*first, "/usr/sbin/chroot", "--userspec=65532:65532", str(self.root), *command]

    def run(self, command: list[str], **env: str) -> int:
        """A command to its end; its exit status."""
        environment = {**self.environment, **env}
        return subprocess.run(self.command(command), env=environment, stderr=subprocess.DEVNULL, check=False).returncode

    def output(self, command: list[str], **env: str) -> tuple[int, str]:
        """A command to its end; its exit status, and what it said."""
        done = subprocess.run(
            self.command(command), env={**self.environment, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    @contextlib.contextmanager
    def mounted(self, folders: Mapping[str, Path], *, writable: Collection[str] = ()) -> Iterator[None]:
        """Folders, or files, at places of this root, read-only but for those that are named."""
        with contextlib.ExitStack() as stack:
            for place, folder in folders.items():
                target = self.root / place.lstrip("/")
                mount("--bind", folder, target)
                stack.callback(subprocess.run, ["umount", str(target)], check=True)
                if place not in writable:
                    mount("-o", "remount,ro,bind", target)
            yield

    @contextlib.contextmanager
    def serving(self, command: list[str], *, init: bool = False, **env: str) -> Iterator[Process]:
        """A command while it is needed; SIGTERM must end it."""
        environment = {**self.environment, **env}
        with tempfile.TemporaryFile("w+") as out:
            started = subprocess.Popen(self.command(command, init=init), env=environment, stdout=out, stderr=out)
            process = Process(started, out.fileno())
            try:
                yield process
            except BaseException:
                print(process.text(), file=sys.stderr)
                raise
            finally:
                process.end()


class Image(Root):
    """The root of an image of ours: its shells cannot be started."""

    def prepare(self) -> None:
        """Take the shells away."""
        for shell in ("dash", "bash"):
            mount("--bind", "/dev/null", self.root / "usr/bin" / shell)


class Process:
    """Something that serves in the image; `status` is how it ended."""

    def __init__(self, started: subprocess.Popen[bytes], out: int) -> None:
        self._started = started
        self._out = out
        self.status: int | None = None

    def text(self) -> str:
        """What it said so far."""
        return os.pread(self._out, 1 << 20, 0).decode()

    def end(self) -> None:
        """SIGTERM to the first process of its namespace, and the end of it."""
        pid = self._started.pid
        first = Path(f"/proc/{pid}/task/{pid}/children").read_text().split() or [str(pid)]
        os.kill(int(first[0]), signal.SIGTERM)
        try:
            self.status = self._started.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._started.kill()
            sys.exit(f"SIGTERM did not end it:\n{self.text()}")


def alone(*names: str) -> None:
    """Mounts of this process are its own from here on, and these names are at ADDRESS."""
    mount("--make-rprivate", "/")
    hosts = Path(tempfile.mkdtemp()) / "hosts"
    hosts.write_text(f"127.0.0.1 localhost\n{ADDRESS} {' '.join(names)}\n")
    mount("--bind", hosts, "/etc/hosts")


def projected(files: Mapping[str, bytes]) -> Path:
    """A folder as a kubelet makes it of a ConfigMap or a Secret: files as links through `..data`."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    (folder / "..1").mkdir()
    (folder / "..data").symlink_to("..1")
    for name, data in files.items():
        (folder / "..1" / name).write_bytes(data)
        (folder / name).symlink_to(f"..data/{name}")
    return folder


def mount(*arguments: object) -> None:
    """One mount, in this namespace."""
    subprocess.run(["mount", *map(str, arguments)], check=True)


def bring_up() -> None:
    """Loopback, and one address beyond 127.0.0.0/8 on it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        up = struct.pack("16sh", b"lo", 0x1 | 0x40)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(sock, 0x8914, up)  # SIOCSIFFLAGS
        address = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(ADDRESS))
        fcntl.ioctl(sock, 0x8916, address)  # SIOCSIFADDR


def wait_for(what: str, look: Callable[[], T | None]) -> T:
    """The first answer of `look` that is one."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            found = look()
            if found:
                return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come")


def ready() -> bool:
    """Whether the probe listener says so."""
    return get("http://127.0.0.1:9902/readyz")[0] == 200


def get(url: str, proxy: str = "", **headers: str) -> tuple[int, Mapping[str, str], str]:
    """Status, headers and body, through a proxy where one is named."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": proxy} if proxy else {}))
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=PATIENCE) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()
