"""Addresses that are denied, names that are looked up, and the table of faults."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl

import pytest

from proxy.retry.facts import FaultKind, Progress
from proxy.transport import faults
from proxy.transport.egress_guard import Guard, names_address
from proxy.transport.resolver import Resolver, interleaved


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::169.254.169.254",
        "2002:a9fe:a9fe::1",
        "fe80::1",
        "fd00:ec2::254",
        "168.63.129.16",
        "100.100.100.200",
        "10.1.2.3",
        "::ffff:10.1.2.3",
    ],
)
def test_denied_addresses(address: str) -> None:
    guard = Guard([ipaddress.ip_network("10.0.0.0/8")])
    assert guard.refuses(address, 80, strict=False)


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "127.0.0.1", "::1", "192.168.0.1", "11.0.0.1"])
def test_allowed_addresses(address: str) -> None:
    guard = Guard([ipaddress.ip_network("10.0.0.0/8")])
    assert not guard.refuses(address, 80, strict=False)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::"])
def test_loopback_off_loopback(address: str) -> None:
    assert Guard().refuses(address, 80, strict=True)


def test_own_listeners() -> None:
    guard = Guard(own=[("127.0.0.1", 8080), ("0.0.0.0", 9901)])
    assert guard.refuses("127.0.0.1", 8080, strict=False)
    assert guard.refuses("::ffff:127.0.0.1", 8080, strict=False)
    assert not guard.refuses("127.0.0.2", 8080, strict=False)
    assert guard.refuses("127.0.0.1", 9901, strict=False)
    assert guard.refuses("127.0.0.2", 9901, strict=False)
    assert not guard.refuses("1.1.1.1", 9901, strict=False)


def test_an_address_that_a_url_spells_out() -> None:
    assert names_address("localhost")
    assert names_address("127.1")
    assert names_address("fe80::1")
    assert not names_address("internal.example")


def test_families_take_turns() -> None:
    assert interleaved(["::1", "::2", "1.1.1.1", "::1", "2.2.2.2"]) == ("::1", "1.1.1.1", "::2", "2.2.2.2")


async def test_one_look_up_in_flight_and_old_answers_when_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    asked: list[str] = []
    answers: list[object] = [
        [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))],
        socket.gaierror(socket.EAI_AGAIN, "try again"),
    ]

    class Names:
        async def getaddrinfo(self, host: str, port: object, **_: object) -> object:
            asked.append(host)
            found = answers[len(asked) - 1]
            if isinstance(found, Exception):
                raise found
            return found

        create_task = staticmethod(loop.create_task)

    resolver = Resolver(Names(), ttl=0.0)  # type: ignore[arg-type]
    both = await asyncio.gather(resolver.addresses("a.test"), resolver.addresses("a.test"))
    assert both == [("192.0.2.1",)] * 2
    assert asked == ["a.test"]
    assert await resolver.addresses("a.test") == ("192.0.2.1",)
    assert asked == ["a.test"] * 2
    assert await resolver.addresses("[::1]".strip("[]")) == ("::1",)


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (socket.gaierror(-2, "unknown"), "dns_error"),
        (ConnectionRefusedError(), "connection_refused"),
        (TimeoutError(), "connection_timeout"),
        (ssl.SSLCertVerificationError(), "tls_certificate_error"),
        (ssl.SSLError(), "tls_protocol_error"),
        (faults.DeniedError("no"), "destination_ip_prohibited"),
        (OSError(), "destination_unavailable"),
        (RuntimeError(), "proxy_internal_error"),
    ],
)
def test_the_table_of_faults(error: BaseException, name: str) -> None:
    fault = faults.dialling(error)
    assert (fault.kind, fault.progress, fault.error) == (FaultKind.CONNECT_FAILURE, Progress.NEVER_SENT, name)
