"""One address has many spellings; the guard knows what any resolver makes of them, with a parent proxy and without."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from support.front import NONE, Front, to
from support.scripted import Upstream, answer

from proxy.config.settings import Address
from proxy.transport.egress_guard import Guard, is_numeric, meanings, readings

METADATA = [
    "169.254.169.254",
    "169.254.169.254.",
    "2852039166",
    "0xA9FEA9FE",
    "0xa9.0xfe.0xa9.0xfe",
    "0251.0376.0251.0376",
    "0000251.0376.169.0xfe",
    "169.254.43518",
    "169.16689662",
    "169%2E254%2e169%2e254",
    "%EF%BC%91%EF%BC%96%EF%BC%99.254.169.254",
    "169%E3%80%82254%E3%80%82169%E3%80%82254",
    "[::ffff:169.254.169.254]",
    "[::FFFF:A9FE:A9FE]",
    "[0:0:0:0:0:ffff:a9fe:a9fe]",
    "[::ffff:0:169.254.169.254]",
    "[::a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::a9fe:a9fe]",
    "[64:ff9b:1:ffff:ffff:ffff:a9fe:a9fe]",
    "[64:ff9b:1:a9fe:a9:fe00::]",
    "[64:ff9b:1:cca9:fe:a9fe::]",
    "[64:ff9b:1:ddcc:a9:fea9:fe00:0]",
    "[2002:a9fe:a9fe::1]",
    "[2001:0:a9fe:a9fe::]",
    "[2001:0:102:304:0:0:5601:5601]",
    "[2001:db8::5efe:169.254.169.254]",
    "[2001:db8::200:5efe:169.254.169.254]",
    "[fe80::1]",
]
LOOPBACK = [
    "127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "0127.0.0.1", "127.0.0.1.",
    "localhost", "LOCALHOST", "localhost.", "any.localhost", "0", "0x", "0.0.0.0", "00.0.0.0", "[::1]", "[::]",
    "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:0:127.0.0.1]", "[64:ff9b::127.0.0.1]",
]  # fmt: skip
NEITHER = ["1.2.3.4.5", "256.1.1.1", "127.0.0.256", "4294967296", "7147006462", "089.1", "1..2"]
HARMLESS = [
    "1.1.1.1", "16843009", "[2606:4700::1111]", "[64:ff9b:1::101:101]", "[::ffff:1.1.1.1]", "[2001:db8::1]",
    "plain.test", "169.254.169.254.nip.test", "0xa9fea9fe.test", "localhost.test", "mylocalhost", "127-1.test",
]  # fmt: skip


@pytest.mark.parametrize("host", METADATA)
def test_metadata_by_any_spelling(host: str) -> None:
    assert Guard().refuses(host, 80, strict=False)


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback_by_any_spelling(host: str) -> None:
    guard = Guard(own=[("127.0.0.1", 9901), ("::1", 9901)])
    assert guard.refuses(host, 80, strict=True)
    assert guard.refuses(host, 9901, strict=False)
    assert not guard.refuses(host, 9902, strict=False)


@pytest.mark.parametrize("host", HARMLESS)
def test_what_is_something_else_is_let_through(host: str) -> None:
    assert not Guard(own=[("0.0.0.0", 80)]).refuses(host, 80, strict=True)


@pytest.mark.parametrize("host", NEITHER)
def test_numbers_that_are_no_address_are_no_name_either(host: str) -> None:
    if is_numeric(host) and not readings(host):
        assert "neither a name nor an address" in Guard().refuses(host, 80, strict=False)
    else:
        assert host in ("089.1", "1..2")


def test_a_zone_takes_no_address_from_under_the_guard() -> None:
    guard = Guard(own=[("::1", 9901)])
    assert guard.refuses("::1%1", 9901, strict=False)
    assert guard.refuses("fe80::1%eth0", 80, strict=False)
    assert guard.refuses("::ffff:169.254.169.254%2", 80, strict=False)


def test_a_leading_zero_is_read_both_ways() -> None:
    assert [str(address) for address in readings("010.0.0.1")] == ["8.0.0.1", "10.0.0.1"]


def test_meanings() -> None:
    def of(text: str) -> list[str]:
        return [str(meaning) for meaning in meanings(ipaddress.ip_address(text))]

    assert of("64:ff9b::a00:1") == ["64:ff9b::a00:1", "10.0.0.1"]
    assert of("64:ff9b:1::a00:1") == ["64:ff9b:1::a00:1", "10.0.0.1"]
    assert of("::1") == ["::1"]
    assert of("::1%1") == ["::1"]
    assert of("10.0.0.1") == ["10.0.0.1"]
    assert of("2001:db8::a00:1") == ["2001:db8::a00:1"]


def test_what_is_long_is_read_in_no_time() -> None:
    for host in ("1" * 60_000, "0" * 60_000, "1." * 30_000, "0x" + "f" * 60_000, "%31" * 20_000, "." * 60_000):
        Guard().refuses(host, 80, strict=True)


# -- as calls --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def parent() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A parent proxy that answers everything itself, and the first lines that it was given."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.split(b"\r\n")[0])
        writer.write(answer(200, b"from the parent", "Connection: close"))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


async def test_no_spelling_reaches_a_parent() -> None:
    async with parent() as (via, asked), Front(target={"via_proxy": via}, fallback={"strategy": NONE}) as front:
        front.path.is_own(Address("127.0.0.1", 9901))
        front.path.is_own(Address("::1", 9901))
        denied = [(host, 80) for host in METADATA] + [(host, 9901) for host in LOOPBACK]
        for host, port in denied:
            async with front.app() as app:
                reply = await app.ask("GET", f"http://{host}:{port}/", f"Host: {host}:{port}")
                assert (host, reply.status) == (host, 403)
                assert "outcome=denied" in (reply.one("proxy-status") or "")
            async with front.app() as app:
                reply = await app.ask("CONNECT", f"{host}:{port}", f"Host: {host}:{port}")
                assert (host, reply.status) == (host, 403)
        assert asked == []
        for host in HARMLESS:
            async with front.app() as app:
                assert (await app.ask("GET", f"http://{host}/", f"Host: {host}")).body == b"from the parent"
        assert len(asked) == len(HARMLESS)


def is_read_here(host: str) -> bool:
    """Whether this machine's resolver takes it for an address of the tables above, so that nothing is looked up."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return False
    return host != "0127.0.0.1" and bool(found)  # which is 87.0.0.1 here, and loopback elsewhere


async def test_no_spelling_reaches_it_directly() -> None:
    tried = 0
    async with Front(fallback={"strategy": NONE}) as front:
        front.path.is_own(Address("127.0.0.1", 9901))
        front.path.is_own(Address("::1", 9901))
        for host, port in [(host, 80) for host in METADATA] + [(host, 9901) for host in LOOPBACK]:
            if is_read_here(host):
                tried += 1
                async with front.app() as app:
                    reply = await app.ask("GET", f"http://{host}:{port}/", f"Host: {host}:{port}")
                    assert (host, reply.status) == (host, 403)
    assert tried > 30


async def test_a_parent_is_asked_for_the_endpoint_and_not_for_what_a_pattern_let_through() -> None:
    """A url's host is what the operator wrote; a Host that a glob of `hosts` matches is what anybody wrote."""
    async with parent() as (via, asked):
        named = to("api", "http://plain.test:81", hosts=["*.api.test"], target={"via_proxy": via}, strategy=NONE)
        async with Front(named) as front, front.app() as app:
            assert (await app.ask("GET", "http://any.api.test/x")).body == b"from the parent"
        assert asked == [b"GET http://plain.test:81/x HTTP/1.1"]


async def test_an_upstream_may_spell_its_own_address_out() -> None:
    async with Upstream(answer(200, b"ok")) as upstream:
        denied = (ipaddress.ip_network("127.0.0.0/8"),)
        short = to("api", f"http://127.1:{upstream.port}")
        async with Front(short, deny_destinations=denied) as front, front.app() as app:
            assert (await app.ask("GET", "/api/")).body == b"ok"
            assert (await app.ask("GET", f"http://127.0.0.1:{upstream.port}/")).status == 403
