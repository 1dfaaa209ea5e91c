"""Raw sockets on both sides of the real `redrive run`, with a case's script read from top to bottom.

    with kit.Upstream() as upstream, proxy.app() as app:
        app.send(b"GET http://%b/ HTTP/1.1\\r\\n...")
        peer = upstream.accept()
        assert peer.read_head() == ...
        peer.send(b"HTTP/1.1 200 OK\\r\\n...")
        assert app.read_answer().status == 200

Nothing is asynchronous here, nothing sleeps and no time is asserted: what is awaited is awaited by reading a socket.
`GUARD` only ends a test that would hang. Whether something was forwarded is shown by a *fence*: one more request, by a
connection of its own, which must be the first thing that its upstream hears.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import queue
import select
import signal
import socket
import ssl
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from support.forked import Forked, can_be_forked

#: Seconds after which a silent socket is taken for a hang.
GUARD = 60.0

MUST, SHOULD, MAY, OURS = "MUST", "SHOULD", "MAY", "contract"


@dataclass(frozen=True)
class Case:
    """A row of a table: what it is called, where it is written, how binding it is, and its facts."""

    name: str
    section: str
    level: str
    facts: tuple[object, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} [{self.section} {self.level}]"


def ids(cases: list[Case]) -> list[str]:
    names = [str(case) for case in cases]
    assert len(set(names)) == len(names), [name for name in names if names.count(name) > 1]
    return names


@dataclass
class Message:
    """A message as it came; `infos` are the interim heads before it, `whole` tells whether its body ended well."""

    head: bytes
    body: bytes = b""
    trailers: bytes = b""
    infos: list[bytes] = field(default_factory=list)
    whole: bool = True

    @property
    def line(self) -> bytes:
        return self.head.split(b"\r\n", 1)[0]

    @property
    def status(self) -> int:
        assert self.head.startswith(b"HTTP/1.1 "), self.head
        return int(self.head[9:12])

    @property
    def lines(self) -> list[bytes]:
        """The field lines, byte for byte."""
        return self.head[: -len(b"\r\n\r\n")].split(b"\r\n")[1:]

    def all(self, name: str) -> list[str]:
        found = []
        for line in self.lines:
            key, _, value = line.partition(b":")
            if key.lower() == name.lower().encode():
                found.append(value.strip(b" \t").decode("latin-1"))
        return found

    def one(self, name: str) -> str | None:
        values = self.all(name)
        assert len(values) <= 1, values
        return values[0] if values else None


class Peer:
    """One end of a connection, read by rules of its own: strict, and nothing to do with the code under test."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(GUARD)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.held = b""
        self.broken = False  # ended by a RST

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    # -- sending --------------------------------------------------------------------------------------------------

    def send(self, *pieces: bytes) -> None:
        """Each piece in a write of its own."""
        for piece in pieces:
            self.sock.sendall(piece)

    def try_send(self, data: bytes) -> bool:
        """Send to somebody who may have gone."""
        try:
            self.sock.sendall(data)
        except OSError:
            return False
        return True

    def end(self) -> None:
        """Send no more."""
        self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        """Close with a RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    @property
    def unacknowledged(self) -> int:
        """Bytes sent that the kernel at the other end has not taken yet."""
        (size,) = struct.unpack("i", fcntl.ioctl(self.sock, termios.TIOCOUTQ, bytes(4)))
        return int(size)

    # -- reading --------------------------------------------------------------------------------------------------

    def _more(self) -> bool:
        try:
            data = self.sock.recv(65536)
        except ConnectionError:
            self.broken = True
            return False
        self.held += data
        return bool(data)

    def read_until(self, mark: bytes) -> bytes:
        while mark not in self.held:
            if not self._more():
                raise EOFError(self.held)
        at = self.held.index(mark) + len(mark)
        data, self.held = self.held[:at], self.held[at:]
        return data

    def read(self, size: int) -> bytes:
        while len(self.held) < size:
            if not self._more():
                raise EOFError(self.held)
        data, self.held = self.held[:size], self.held[size:]
        return data

    def unread(self, data: bytes) -> None:
        """Read these once more."""
        self.held = data + self.held

    def rest(self) -> bytes:
        """Everything up to the end of the connection; `broken` tells a RST."""
        while self._more():
            pass
        data, self.held = self.held, b""
        return data

    def is_silent(self) -> bool:
        """Whether nothing is there to read just now, neither bytes nor an end."""
        return not self.held and not select.select([self.sock], [], [], 0)[0]

    def read_head(self) -> bytes:
        head = self.read_until(b"\r\n\r\n")
        assert head.count(b"\n") == head.count(b"\r\n") == head.count(b"\r"), head
        return head

    def read_request(self) -> Message:
        """A request with its body."""
        message = Message(self.read_head())
        self._read_body(message, until_close=False)
        return message

    def read_answer(self, method: str = "GET") -> Message:
        """An answer with its body. A body that ends short has `whole` False."""
        infos: list[bytes] = []
        while True:
            message = Message(self.read_head(), infos=infos)
            if message.status >= 200 or message.status == 101:
                break
            infos.append(message.head)
        if method == "HEAD" or message.status in (101, 204, 304) or (method == "CONNECT" and message.status < 300):
            return message
        self._read_body(message, until_close=True)
        return message

    def _read_body(self, message: Message, *, until_close: bool) -> None:
        length, coding = message.one("content-length"), message.one("transfer-encoding")
        assert length is None or coding is None, message.head
        try:
            if coding is not None:
                assert coding == "chunked", message.head
                self._read_chunks(message)
            elif length is not None:
                message.body = self.read(int(length))
            elif until_close:
                message.body = self.rest()
                message.whole = not self.broken
        except EOFError:
            message.whole = False
            message.body += self.held
            self.held = b""

    def _read_chunks(self, message: Message) -> None:
        while True:
            line = self.read_until(b"\r\n")[:-2]
            assert line
            assert all(octet in b"0123456789abcdefABCDEF" for octet in line), line
            size = int(line, 16)
            if not size:
                break
            message.body += self.read(size)
            assert self.read(2) == b"\r\n"
        while (line := self.read_until(b"\r\n")) != b"\r\n":
            message.trailers += line


class Upstream:
    """A listener of a case's own; connections to it are accepted when the case asks for them."""

    def __init__(self, path: str | None = None, host: str = "127.0.0.1", port: int = 0) -> None:
        if path is not None:
            self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.listener.bind(path)
            self.listener.listen(64)
        else:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self.listener = socket.create_server((host, port), family=family, backlog=64)
            self.port: int = self.listener.getsockname()[1]
            self.authority = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        self.listener.settimeout(GUARD)
        self._peers: list[Peer] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self._peers:
            peer.close()
        self.listener.close()

    def accept(self, tls: ssl.SSLContext | None = None) -> Peer:
        """The next connection."""
        sock, _ = self.listener.accept()
        if tls is not None:
            sock.settimeout(GUARD)
            sock = tls.wrap_socket(sock, server_side=True)
        peer = Peer(sock)
        self._peers.append(peer)
        return peer

    @property
    def untouched(self) -> bool:
        """Whether nobody waits to be accepted."""
        return not select.select([self.listener], [], [], 0)[0]

    def url(self, path: str = "/") -> str:
        return f"http://{self.authority}{path}"


_fences = itertools.count()


class Proxy:
    """A running `redrive run`; `port` is its proxy port."""

    def __init__(self, folder: Path, config: str) -> None:
        file = folder / "redrive.yaml"
        file.write_text(config if "listen:" in config else f"listen: 127.0.0.1:0\nadmin: off\n{config}")
        dropped = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")
        env = {name: value for name, value in os.environ.items() if name.lower() not in dropped}
        self.process = _begun("run", "-c", str(file), environment=env)
        self.ready: dict[str, list[str]] = {}
        self.errors: list[str] = []
        self.lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()  # of the log
        self._is_ready = threading.Event()
        self._threads = [threading.Thread(target=self._read_out), threading.Thread(target=self._read_errors)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        assert self._is_ready.wait(GUARD)
        assert self.ready, self.errors
        self.authority = self.ready["listen"][0]
        self.port = int(self.authority.rpartition(":")[2])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.send_signal(signal.SIGINT)  # at once; of two that are alike one may get lost in the other
        try:
            self.process.wait(GUARD)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for thread in self._threads:
            thread.join()
        if error is None:
            assert not any("Traceback" in line or "broke down" in line for line in self.errors), self.errors

    def _read_out(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not self._is_ready.is_set():
                said = json.loads(line)
                if said["event"] == "ready":
                    self.ready = said
                    self._is_ready.set()
            else:
                self.lines.put(line)
        self._is_ready.set()

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors.append(line.decode())

    def app(self) -> Peer:
        """A raw connection to the proxy port."""
        return Peer(socket.create_connection(("127.0.0.1", self.port), GUARD))

    def fence(self, upstream: Upstream, resting: Peer | None = None) -> None:
        """Show that nothing was forwarded: one good request is the first thing that the upstream hears.

        It comes on the connection that is `resting`, if there is one. A request that came in several pieces, and was
        found bad in a later one, may have been dialled for: that connection ends without a byte.
        """
        path = f"/fence-{next(_fences)}"
        with self.app() as app:
            app.send(get(upstream, path))
            peer = resting or upstream.accept()
            try:
                head = peer.read_head()
            except EOFError:
                assert resting is None and not peer.held
                peer = upstream.accept()
                head = peer.read_head()
            assert head.startswith(b"GET %b HTTP/1.1\r\n" % path.encode()), head
            assert peer.is_silent()
            peer.send(OK)
            assert app.read_answer().status == 200
        assert upstream.untouched
        peer.close()

    def settles(self, app: Peer, upstream: Upstream, path: str = "/") -> Peer:
        """Send a good request by `app`, answer it, and return the upstream's connection, which rests from then on."""
        app.send(get(upstream, path))
        peer = upstream.accept()
        peer.read_request()
        peer.send(OK)
        assert app.read_answer().status == 200
        return peer


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def message(line: str | bytes, *fields: str | bytes, body: bytes = b"") -> bytes:
    """A message of these lines, nothing added."""
    lines = [each.encode("latin-1") if isinstance(each, str) else each for each in (line, *fields)]
    return b"\r\n".join([*lines, b"", b""]) + body


def get(upstream: Upstream, path: str = "/", *fields: str, method: str = "GET", version: str = "1.1") -> bytes:
    """A request in absolute form, with its Host first."""
    line = f"{method} {upstream.url(path)} HTTP/{version}"
    return message(line, f"Host: {upstream.authority}", *fields)


def reply(body: bytes = b"", *fields: str, status: str = "200 OK", version: str = "1.1") -> bytes:
    """An answer with Content-Length."""
    return message(f"HTTP/{version} {status}", *fields, f"Content-Length: {len(body)}", body=body)


def chunked(*parts: bytes, trailers: bytes = b"") -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n" + trailers + b"\r\n"


def _begun(*arguments: str, environment: dict[str, str]) -> subprocess.Popen[bytes] | Forked:
    if can_be_forked(environment):
        return Forked(*arguments, environment=environment)
    command = (sys.executable, "-m", "proxy", *arguments)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


@contextlib.contextmanager
def running(folder: Path, config: str) -> Iterator[Proxy]:
    with Proxy(folder, config) as proxy:
        yield proxy
