"""What a reload changes is honoured by the next attempt, on pooled connections too; what conforms is kept."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.certificates import Authority, make
from support.front import NONE, Front, to
from support.scripted import Upstream, answer, gated

from proxy.config.settings import Settings
from proxy.retry.policies.routing import Match, Route

LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))


def settings(*upstreams: Any, **changes: Any) -> Settings:
    return Front(*upstreams, **changes).settings


def denying(front: Front) -> Settings:
    return replace(front.settings, deny_destinations=LOOPBACK)


# -- the deny list ---------------------------------------------------------------------------------------------------


async def test_what_rests_is_not_used_where_it_is_denied_now() -> None:
    async with Upstream(answer(200, b"ok")) as upstream, Front() as front, front.app() as app:
        target = f"http://localhost:{upstream.port}/"
        assert (await app.ask("GET", target)).status == 200
        front.path.use(denying(front))
        for _ in range(3):
            reply = await app.ask("GET", target)
            assert (reply.status, "outcome=denied" in (reply.one("proxy-status") or "")) == (403, True)
        assert not any(connection.is_open for connection in front.path.context.pool.connections)
        front.path.use(front.settings)
        assert (await app.ask("GET", target)).status == 200
        assert (upstream.connections, len(upstream.requests)) == (2, 2)


async def test_under_steady_traffic_it_is_enforced_when_a_call_is_over() -> None:
    """The call in flight keeps its connection to its end; no other is made on it."""
    go = asyncio.Event()
    async with Upstream(answer(200, b"1"), gated(go, answer(200, b"2")), answer(200)) as upstream, Front() as front:
        target = f"http://localhost:{upstream.port}/"
        async with front.app() as app:
            assert (await app.ask("GET", target)).status == 200
            flying = asyncio.create_task(app.ask("GET", target))
            await upstream.until(2)
            front.path.use(denying(front))
            go.set()
            assert (await flying).body == b"2"
            assert (await app.ask("GET", target)).status == 403
        assert (upstream.connections, len(upstream.requests)) == (1, 2)


async def test_a_dial_that_was_under_way_does_not_smuggle_a_connection_in(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Upstream(answer(200, b"ok")) as upstream, Front() as front, front.app() as app:
        dialer = front.path.context.pool.dialer
        addresses = dialer._addresses
        held, go = asyncio.Event(), asyncio.Event()

        async def slow(*way: Any) -> Any:
            checked = await addresses(*way)
            held.set()
            await go.wait()
            return checked

        monkeypatch.setattr(type(dialer), "_addresses", lambda self, *way: slow(*way))
        target = f"http://localhost:{upstream.port}/"
        flying = asyncio.create_task(app.ask("GET", target))
        await held.wait()
        front.path.use(denying(front))
        go.set()
        assert (await flying).status == 200  # it was checked before the reload
        assert (await app.ask("GET", target)).status == 403
        assert upstream.connections == 1


async def test_an_upstreams_own_address_and_what_is_not_denied_keep_their_connections() -> None:
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        assert (await app.ask("GET", "/api/")).status == 200
        assert (await app.ask("GET", f"http://localhost:{upstream.port}/")).status == 200
        front.path.use(settings(to("api", upstream.url), deny_destinations=(ipaddress.ip_network("10.0.0.0/8"),)))
        assert (await app.ask("GET", f"http://localhost:{upstream.port}/")).status == 200
        front.path.use(settings(to("api", upstream.url), deny_destinations=LOOPBACK))
        assert (await app.ask("GET", "/api/")).status == 200
        assert upstream.connections == 2


async def test_a_connection_of_one_apps_own_is_looked_at_too() -> None:
    """NTLM binds a connection to its app; it is no way round the deny list."""
    offer = answer(401, b"", "WWW-Authenticate: NTLM")
    async with Upstream(offer, answer(200, b"in"), answer(200, b"still")) as upstream, Front() as front:
        target = f"http://localhost:{upstream.port}/"
        async with front.app() as app:
            assert (await app.ask("GET", target)).status == 401
            assert (await app.ask("GET", target, "Authorization: NTLM abc")).body == b"in"
            assert upstream.connections == 1
            front.path.use(denying(front))
            assert (await app.ask("GET", target)).status == 403
        assert len(upstream.requests) == 2


async def test_behind_a_parent_the_host_is_what_is_denied() -> None:
    async with Upstream(answer(200, b"from the parent")) as parent:
        via = {"via_proxy": parent.url}
        async with Front(target=via) as front, front.app() as app:
            assert (await app.ask("GET", "http://127.1:81/")).status == 200
            assert (await app.ask("GET", "http://plain.test/")).status == 200
            front.path.use(denying(front))
            assert (await app.ask("GET", "http://127.1:81/")).status == 403
            assert (await app.ask("GET", "http://plain.test/")).status == 200
            assert (parent.connections, len(parent.requests)) == (2, 3)


# -- the way to it ---------------------------------------------------------------------------------------------------


async def test_verification_and_parent_of_a_new_configuration(authority: Authority) -> None:
    async with (
        Upstream(answer(200, b"tls"), tls=authority.server) as upstream,
        Upstream(answer(200, b"plain")) as plain,
        Upstream(answer(200, b"from the parent")) as parent,
    ):

        def both(verify: Any, via: str | None) -> tuple[Any, Any]:
            url = f"https://localhost:{upstream.port}"
            one = to("tls", url, target={"verify": verify}, strategy=NONE)
            return one, to("plain", plain.url, target={"via_proxy": via}, strategy=NONE)

        async with Front(*both(False, None)) as front, front.app() as app:
            pool = front.path.context.pool

            async def bodies() -> tuple[bytes, bytes]:
                one, two = await app.ask("GET", "/tls/"), await app.ask("GET", "/plain/")
                return one.body if one.status == 200 else b"%d" % one.status, two.body

            assert await bodies() == (b"tls", b"plain")
            front.path.use(settings(*both(True, None)))
            assert await bodies() == (b"502", b"plain")
            assert plain.connections == 1  # it conforms
            front.path.use(settings(*both(str(authority.ca), parent.url)))
            assert await bodies() == (b"tls", b"from the parent")
            resting = {each.origin.way.reach for each in pool.connections if each.is_open}
            # What hosts that no upstream names are reached by is still in force; no verification is not.
            assert resting == {(True, None, None), (str(authority.ca), None, None), (True, None, parent.url)}
            front.path.use(settings(*both(str(authority.ca), None)))
            assert await bodies() == (b"tls", b"plain")
            assert (plain.connections, parent.connections) == (1, 1)


async def test_a_routes_own_way_is_taken(authority: Authority) -> None:
    async with Upstream(answer(200, b"ok"), tls=authority.server) as upstream:
        url = f"https://localhost:{upstream.port}"
        strict = to("api", url, strategy=NONE)
        lax = to("api", url, target={"verify": False}, strategy=NONE)
        routed = replace(strict, routes=(Route(Match(paths=("/lax",)), lax.policy),))
        async with Front(routed) as front, front.app() as app:
            assert (await app.ask("GET", "/api/x")).status == 502
            assert (await app.ask("GET", "/api/lax")).status == 200


# -- files -----------------------------------------------------------------------------------------------------------


def showing(chain: bytes, file: Path) -> None:
    """Put a certificate there as it is rotated: a new file takes the place of the old one."""
    new = file.with_suffix(".new")
    new.write_bytes(chain)
    new.rename(file)


async def test_a_client_certificate_that_was_rotated_is_shown_by_the_next_attempt(
    tmp_path: Path, authority: Authority
) -> None:
    """The same path, other content; and the same content written again drops nothing."""
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        make(folder)
    file = tmp_path / "client.pem"
    chains = [(folder / "server.pem").read_bytes() for folder in folders]
    showing(chains[0], file)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.ca.parent / "server.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    for folder in folders:
        server.load_verify_locations(folder / "ca.pem")

    shown: list[bytes] = []

    async def tell(turn: Any) -> None:
        shown.append(turn.writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        await turn.write(answer(200, b"ok"))

    async with Upstream(tell, tls=server) as upstream:
        target = {"verify": str(authority.ca), "client_cert": (str(file), str(file))}
        only = to("api", f"https://localhost:{upstream.port}", target=target, strategy=NONE)
        async with Front(only) as front, front.app() as app:

            async def ask() -> bytes:
                assert (await app.ask("GET", "/api/")).status == 200
                return shown[-1]

            first = await ask()
            showing(chains[0], file)
            os.utime(file, (1, 1))
            front.path.use(settings(only))
            assert (await ask(), upstream.connections) == (first, 1)
            showing(chains[1], file)
            assert (await ask(), upstream.connections) == (first, 1)  # nobody has loaded it yet
            front.path.use(settings(only))
            assert await ask() != first
            assert upstream.connections == 2


async def test_a_ca_file_that_trusts_another_root_now(tmp_path: Path, authority: Authority) -> None:
    file = tmp_path / "ca.pem"
    showing(authority.ca.read_bytes(), file)
    (tmp_path / "other").mkdir()
    other = make(tmp_path / "other")
    async with Upstream(answer(200, b"ok"), tls=authority.server) as upstream:
        only = to("api", f"https://localhost:{upstream.port}", target={"verify": str(file)}, strategy=NONE)
        async with Front(only) as front, front.app() as app:
            assert (await app.ask("GET", "/api/")).status == 200
            showing(other.ca.read_bytes(), file)
            front.path.use(settings(only))
            assert (await app.ask("GET", "/api/")).status == 502
            showing(authority.ca.read_bytes(), file)
            front.path.use(settings(only))
            assert (await app.ask("GET", "/api/")).status == 200
            assert authority.server.session_stats()["hits"] == 0  # no session of before vouches for anything


async def test_a_reload_that_changes_nothing_keeps_sessions(authority: Authority) -> None:
    before = authority.server.session_stats()["hits"]
    closing = answer(200, b"ok", "Connection: close")
    async with Upstream(closing, tls=authority.server) as upstream:
        target = {"verify": str(authority.ca)}
        only = to("api", f"https://localhost:{upstream.port}", target=target, strategy=NONE)
        async with Front(only) as front, front.app() as app:
            assert (await app.ask("GET", "/api/")).status == 200
            front.path.use(settings(only))
            assert (await app.ask("GET", "/api/")).status == 200
    assert authority.server.session_stats()["hits"] == before + 1
