from __future__ import annotations

import socket
from pathlib import Path

import pytest

from proxy.config.load import load
from proxy.config.settings import Address
from proxy.server.inherited import bound
from proxy.server.listeners import CannotListenError, bind, where


def close(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def test_the_system_chooses_a_port() -> None:
    sockets = bind(Address("127.0.0.1", 0), "listen")
    (sock,) = sockets
    assert bound(sock).host == "127.0.0.1"
    assert bound(sock).port > 0
    close(sockets)


def test_localhost_is_every_loopback_there_is() -> None:
    (chosen,) = bind(Address("127.0.0.1", 0), "listen")
    port = bound(chosen).port
    chosen.close()
    sockets = bind(Address("localhost", port), "listen")
    assert {bound(sock).host for sock in sockets} <= {"127.0.0.1", "::1"}
    with pytest.raises(CannotListenError, match=rf"localhost:{port}: the port is in use.* end it, or choose"):
        bind(Address("localhost", port), "admin")
    close(sockets)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (Address("192.0.2.1", 0), "does not have that address; `ip address` lists"),
        (Address("fe80::1", 0), "does not have that address; `ip address` lists"),
        (Address("no.such.name.invalid", 0), "the host name has no address .*; name an IP address"),
        (Address("a" * 70 + ".example", 0), "the host name has no address .*; name an IP address"),
        (Address(unix="/nowhere/at/all.sock"), "/nowhere/at is not a folder; make it, or name another path"),
        (Address(unix="/etc/passwd/all.sock"), "/etc/passwd is not a folder; make it, or name another path"),
        (Address(unix="/proc/all.sock"), r"user \d+ can't make a socket in /proc; give it write permission there"),
        (Address(unix="/" + "é" * 100), "has 201 bytes; name one of at most 107"),
    ],
)
def test_what_can_not_be_had_is_one_line(address: Address, why: str) -> None:
    with pytest.raises(CannotListenError, match=why) as refused:
        bind(address, "listen")
    assert "\n" not in str(refused.value)


def test_a_dead_socket_file_is_taken_over_and_a_live_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "redrive.sock"
    close(bind(Address(unix=str(path)), "listen"))
    assert path.is_socket()
    sockets = bind(Address(unix=str(path)), "listen")
    with pytest.raises(CannotListenError, match="in use"):
        bind(Address(unix=str(path)), "listen")
    close(sockets)
    plain = tmp_path / "file"
    plain.write_text("mine")
    with pytest.raises(CannotListenError, match="not a socket has that name; remove it"):
        bind(Address(unix=str(plain)), "listen")
    assert plain.read_text() == "mine"


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM], ids=["another kind", "a full queue"])
def test_a_socket_that_can_not_be_asked_is_in_use(kind: socket.SocketKind, tmp_path: Path) -> None:
    path = str(tmp_path / "taken.sock")
    with socket.socket(socket.AF_UNIX, kind) as taken, socket.socket(socket.AF_UNIX, kind) as waits:
        taken.bind(path)
        if kind is socket.SOCK_STREAM:
            taken.listen(0)
            waits.connect(path)
        with pytest.raises(CannotListenError, match="the socket is in use; end the process"):
            bind(Address(unix=path), "listen")
        assert Path(path).is_socket()


def test_a_default_that_can_not_be_had_is_told_without_a_line(tmp_path: Path) -> None:
    file = tmp_path / "redrive.yaml"
    file.write_text("admin: off\n")
    for named, said in ((str(file), str(file)), (None, "redrive")):
        settings = load(named, {}).settings
        assert settings is not None
        error = CannotListenError("can't listen there", "listen", settings.listen[0])
        assert str(where(settings, error)) == f"{said}: listen: can't listen there"
