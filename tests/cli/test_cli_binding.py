from __future__ import annotations

import socket
from pathlib import Path

import pytest

from proxy.config.settings import Address
from proxy.server.binding import CannotListenError, bind, bound


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
    with pytest.raises(CannotListenError, match=rf"localhost:{port} \(admin\): the port is in use"):
        bind(Address("localhost", port), "admin")
    close(sockets)


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (Address("192.0.2.1", 0), "does not have that address"),
        (Address("no.such.name.invalid", 0), "not known"),
        (Address(unix="/nowhere/at/all.sock"), "No such file"),
        (Address(unix="/" + "x" * 200), "too long"),
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
    with pytest.raises(CannotListenError, match="no socket has that name"):
        bind(Address(unix=str(plain)), "listen")
    assert plain.read_text() == "mine"
