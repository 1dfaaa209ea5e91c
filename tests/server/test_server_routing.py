"""Which requests become calls, and what the others are told."""

# ruff: noqa: SIM117  upstream, proxy and app are nested as they depend on each other
from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.front import Front, request, to
from support.ports import free_port
from support.scripted import Upstream, answer

from proxy.config.settings import Address, Limits
from proxy.forward.request_plan import Plan
from proxy.retry.facts import Outcome
from proxy.server.inherited import bound
from proxy.server.listeners import bind
from proxy.server.routing import Admitted, Exposure, Rejection, admit
from proxy.wire.http2.hpack import literal
from proxy.wire.http2.request import Request2, read_request


async def test_origin_form_by_host_then_by_prefix_then_404() -> None:
    async with Upstream(answer(200, b"ok")) as upstream:
        async with Front(to("api", upstream.url, hosts=["api.test"])) as front, front.app() as app:
            assert (await app.ask("GET", "/x", "Host: api.test")).status == 200
            assert upstream.requests[0].one("host") == "api.test"
            assert upstream.requests[0].target == "/x"
            assert (await app.ask("GET", "/api/x")).status == 200
            assert upstream.requests[1].target == "/x"
            assert (await app.ask("GET", "/api")).status == 200
            assert upstream.requests[2].target == "/"
            assert (await app.ask("GET", "/api?q")).status == 200
            assert upstream.requests[3].target == "/?q"
            assert (await app.ask("GET", "/apix")).status == 404
            assert (await app.ask("GET", "/api/../x")).status == 400
            assert len(upstream.requests) == 4


@pytest.mark.parametrize("line", ["GET http://api.test:/x", "GET /x"], ids=["absolute", "origin"])
async def test_an_empty_port_is_the_default_port(line: str) -> None:
    """RFC 9110 section 4.2.1; where it is the default, the Host that is sent on has none (RFC 3986 section 6.2.3)."""
    async with Upstream(answer(200, b"ok")) as upstream:
        async with Front(to("api", upstream.url, hosts=["api.test:80"])) as front, front.app() as app:
            for _ in range(2):  # the second as one that follows the first
                app.send(f"{line} HTTP/1.1\r\nHost: API.test:\r\n\r\n".encode())
                assert (await app.read()).status == 200
            assert [(r.target, (r.one("host") or "").lower()) for r in upstream.requests] == [("/x", "api.test")] * 2
            app.send(b"CONNECT api.test: HTTP/1.1\r\nHost: api.test:\r\n\r\n")
            assert (await app.read()).status == 400  # RFC 9110 section 9.3.6


async def test_the_path_of_the_url_goes_in_front_in_prefix_use_only() -> None:
    async with Upstream(answer(200, b"ok")) as upstream:
        async with Front(to("api", upstream.url + "/base/", hosts=["api.test"])) as front, front.app() as app:
            await app.ask("GET", "/api/x")
            await app.ask("GET", "/x", "Host: api.test")
            assert [r.target for r in upstream.requests] == ["/base/x", "/x"]


async def test_what_a_web_page_could_send_is_refused_on_loopback() -> None:
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        named = await app.ask("GET", "/api/x", "Host: rebound.example")
        assert named.status == 421
        assert "`hosts`" in json.loads(named.body)["detail"]
        cross = await app.ask("GET", "/api/x", "Host: localhost:8080", "Sec-Fetch-Site: cross-site")
        assert cross.status == 403
        for host in ("localhost", "[::1]:8080", "127.0.0.1"):
            assert (await app.ask("GET", "/api/x", f"Host: {host}", "Sec-Fetch-Site: same-origin")).status == 200
        assert len(upstream.requests) == 3


def detail(body: bytes) -> str:
    return str(json.loads(body)["detail"])


async def test_a_404_names_the_prefixes_that_there_are() -> None:
    async with Upstream() as upstream:
        async with Front(to("api", upstream.url)) as front, front.app() as app:
            answered = await app.ask("GET", "/apo/x", "Host: localhost")
            assert answered.status == 404
            assert detail(answered.body).endswith("that the path begins with: there is /api")
        many = [to(f"a{number}", upstream.url, hosts=[f"a{number}.test"]) for number in range(1000)]
        async with Front(to("x" * 500, upstream.url), *many) as front, front.app() as app:
            told = detail((await app.ask("GET", "/b/x", "Host: 127.0.0.1")).body)
            assert f": there are /{'x' * 58}…, /a0, /a1, /a2, /a3, /a4, /a5, /a6 and 993 more" in told
            assert len(told) < 300


async def test_a_404_names_nothing_to_other_machines_and_web_pages() -> None:
    async with Upstream() as upstream:
        async with Front(to("api", upstream.url)) as front, front.app() as app:
            for fields in (["Host: rebound.example"], ["Host: localhost", "Sec-Fetch-Site: cross-site"]):
                answered = await app.ask("GET", "/x", *fields)
                assert (answered.status, b"/api" in answered.body) == (404, False)
        async with Front(to("api", upstream.url), listen=Address("0.0.0.0", 0)) as front, front.app() as app:
            answered = await app.ask("GET", "/x", "Host: localhost")
            assert (answered.status, b"/api" in answered.body) == (404, False)


@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0", "0.0.0.0:8080", "0", "0x0", "000.0.0.0", "[::]", "[::]:8080", "[0:0:0:0:0:0:0:0]", "[::0.0.0.0]",
        "[::ffff:0.0.0.0]", "[::ffff:0:0]", "[64:ff9b::]", "127.1", "2130706433", "localhost.test", "a.localhost",
    ],
)  # fmt: skip
async def test_an_address_of_nobody_and_what_is_no_literal_are_names(host: str) -> None:
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        reply = await app.ask("POST", "/api/x", f"Host: {host}")
        assert reply.status == 421
        assert "list the name in `hosts` of the upstream api" in json.loads(reply.body)["detail"]
        assert upstream.requests == []


OWN = "Host: 127.0.0.1:8080"


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ((OWN, "Origin: http://evil.example"), 403),
        ((OWN, "Origin: http://127.0.0.1:3000"), 403),
        ((OWN, "Origin: http://127.0.0.1"), 403),
        ((OWN, "Origin: http://localhost:8080"), 403),  # which may be a server on [::1]
        ((OWN, "Origin: https://127.0.0.1:8080"), 403),
        ((OWN, "Origin: null"), 403),
        ((OWN, "Origin:"), 403),
        ((OWN, "Origin: http://127.0.0.1:8080.evil.example"), 403),
        ((OWN, "Origin: http://127.0.0.1:8080@evil.example"), 403),
        ((OWN, "Origin: http://127.0.0.1:8080 http://evil.example"), 403),
        ((OWN, "Origin: http://127.0.0.1:8080", "Origin: http://evil.example"), 403),
        ((OWN, "Origin: http://evil.example", "Origin: http://127.0.0.1:8080"), 403),
        ((OWN, "oRIGIN:http://EVIL.example"), 403),
        ((OWN, "Origin: chrome-extension://abc"), 403),
        ((OWN, "Origin: http://evil.example", "Sec-Fetch-Site: cross-site"), 403),
        ((OWN, "Origin: http://127.0.0.1:8080", "Sec-Fetch-Site: cross-site"), 403),
        ((OWN, "Sec-Fetch-Site: Cross-Site"), 403),
        ((OWN, "Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: cross-site"), 403),
        ((OWN, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-origin"), 403),
        ((OWN, "Origin: http://evil.example", "Sec-Fetch-Site:"), 403),
        ((OWN, "Origin: http://evil.example", "Sec-Fetch-Site: whatever"), 403),
        ((OWN, "Origin: http://evil.example", "Connection: Upgrade", "Upgrade: websocket"), 403),
        ((OWN, "Origin: http://127.0.0.1:8080"), 200),
        ((OWN, "ORIGIN: HTTP://127.0.0.1:8080"), 200),
        (("Host: 127.0.0.1", "Origin: http://127.0.0.1:80"), 200),
        (("Host: localhost:80", "Origin: http://LOCALHOST"), 200),
        (("Host: [::1]:8080", "Origin: http://[::1]:8080"), 200),
        ((OWN, "Origin: http://localhost:3000", "Sec-Fetch-Site: same-site"), 200),
        ((OWN, "Origin: http://127.0.0.1:8080", "Sec-Fetch-Site: same-origin"), 200),
        ((OWN, "Sec-Fetch-Site: none"), 200),
        ((OWN,), 200),
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_a_foreign_origin_is_refused_where_no_browser_says_more(
    method: str, fields: tuple[str, ...], status: int
) -> None:
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        assert (await app.ask(method, "/api/x", OWN)).status == 200  # what comes next is not taken for one like it
        reply = await app.ask(method, "/api/x", *fields)
        assert reply.status == status
        assert len(upstream.requests) == (2 if status == 200 else 1)
        if status == 403:
            assert "list a name in `hosts` of the upstream api" in json.loads(reply.body)["detail"]
            assert front.observed.refusals[0].outcome is Outcome.DENIED


async def test_a_page_may_call_by_a_name_that_is_listed_and_off_loopback() -> None:
    foreign = ("Origin: http://evil.example", "Sec-Fetch-Site: cross-site")
    async with Upstream(answer(200, b"ok")) as upstream:
        async with Front(to("api", upstream.url, hosts=["app.test"])) as front, front.app() as app:
            assert (await app.ask("POST", "/x", "Host: app.test", *foreign)).status == 200
        everywhere = Address("0.0.0.0", 0)
        async with Front(to("api", upstream.url), listen=everywhere) as front, front.app() as app:
            assert (await app.ask("POST", "/api/x", "Host: any.example", *foreign)).status == 200


async def test_a_loop_is_508_and_only_our_very_name_is_one() -> None:
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        own = front.path.context.via
        assert (await app.ask("GET", "/api/x", "Via: 1.1 redrive-00000000, 1.0 other")).status == 200
        assert upstream.requests[0].all("via") == ["1.1 redrive-00000000, 1.0 other", f"1.1 {own}"]
        looped = await app.ask("GET", "/api/x", f"Via: 1.1 a, 1.1 {own} (comment)")
        assert looped.status == 508
        assert "error=proxy_loop_detected" in (looped.one("proxy-status") or "")


async def test_a_comment_of_via_names_no_proxy() -> None:
    """RFC 9110, 7.6.3 and 5.6.5: comments may contain commas, escaped parentheses and further comments."""
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        own = front.path.context.via
        for value in (
            f"1.1 a (was, 1.1 {own})",
            f"1.1 a (was, 1.1 {own}), 1.1 b (,1.1 {own},)",
            f"1.1 a (x (y), 1.1 {own}, z)",
            rf"1.1 a (x \) , 1.1 {own}, \( z)",
        ):
            assert (await app.ask("GET", "/api/x", f"Via: {value}")).status == 200, value
        for value in (
            f"1.1 a (was, 1.1 b), 1.1 {own} (c, d)",
            f"1.1(x){own}",
            rf"1.1 a (\\), 1.1 {own}",
            f"1.1 a (never closed, 1.1 {own}",
            f"1.1 a (closed (not), 1.1 {own}",
            f"1.1 a), 1.1 {own}",
        ):
            assert (await app.ask("GET", "/api/x", f"Via: {value}")).status == 508, value


async def test_max_forwards() -> None:
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        await app.ask("OPTIONS", "/api/x", "Max-Forwards: 3")
        assert upstream.requests[0].one("max-forwards") == "2"
        assert (await app.ask("OPTIONS", "/api/x", "Max-Forwards: 0")).one("allow")
        hidden = ("Authorization: secret", "X-Amz-Security-Token: secret", "Cookie: secret")
        trace = await app.ask("TRACE", "/api/x", "Max-Forwards: 0", *hidden, "X-Mine: 1")
        assert trace.one("content-type") == "message/http"
        assert b"X-Mine: 1" in trace.body
        assert b"secret" not in trace.body
        assert trace.one("proxy-status") == 'redrive; attempts=0; outcome=success; details="Max-Forwards ends here"'
        assert [(told.method, told.outcome) for told in front.observed.refusals] == [
            ("OPTIONS", Outcome.SUCCESS),
            ("TRACE", Outcome.SUCCESS),
        ]
        assert len(upstream.requests) == 1


async def test_grpc_web_is_not_grpc() -> None:
    async with Front() as front, front.app() as app:
        assert (await app.ask("POST", "/nowhere", "Content-Type: application/grpc-web+proto")).status == 404
        assert (await app.ask("POST", "/nowhere", "Content-Type: application/grpc+proto")).one("grpc-status") == "12"


async def test_options_asterisk_of_the_last_proxy() -> None:
    async with Upstream(answer(503), answer(200)) as upstream, Front() as front, front.app() as app:
        reply = await app.ask("OPTIONS", upstream.url)
        assert (reply.status, reply.one("x-attempt-count")) == (200, "2")  # it is idempotent
        assert [r.target for r in upstream.requests] == ["*", "*"]


async def test_options_asterisk_of_a_server() -> None:
    """RFC 9110 section 9.3.7: of the upstream whose Host is named, with its retries; else of this proxy."""
    async with Upstream(answer(503), answer(200, b"", "Allow: GET")) as upstream:
        async with Front(to("api", upstream.url + "/base", hosts=["api.test"])) as front, front.app() as app:
            reply = await app.ask("OPTIONS", "*", "Host: api.test")
            assert (reply.status, reply.one("allow"), reply.one("x-attempt-count")) == (200, "GET", "2")
            assert [(r.target, r.one("host")) for r in upstream.requests] == [("*", "api.test")] * 2
            own = await app.ask("OPTIONS", "*")
            assert (own.status, own.one("content-length"), own.one("x-attempt-count")) == (200, "0", "0")
            assert "OPTIONS" in (own.one("allow") or "")
            assert [(told.path, told.outcome) for told in front.observed.refusals] == [("*", Outcome.SUCCESS)]
            assert (await app.ask("OPTIONS", "/nowhere")).status == 404
            assert len(upstream.requests) == 2


async def test_unmatched_hosts_can_be_denied() -> None:
    async with Front(unmatched="deny") as front, front.app() as app:
        reply = await app.ask("GET", "http://other.test/")
        assert reply.status == 403
        assert front.observed.refusals[0].outcome is Outcome.DENIED


async def test_too_many_connections() -> None:
    limits = Limits(65536, 256, 2, 2000, None)
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url), limits=limits) as front:
        async with front.app() as one, front.app() as two, front.app() as three:
            assert (await one.ask("GET", "/api/")).status == 200
            assert (await two.ask("GET", "/api/")).status == 200
            reply = await three.ask("GET", "/api/")
            assert reply.status == 503
            assert json.loads(reply.body)["outcome"] == "overloaded"
            assert reply.one("retry-after")
            assert await three.rest() == b""
            assert (await two.ask("GET", "/api/")).status == 200


async def test_draining_closes_what_rests_and_then_refuses() -> None:
    async with Upstream(answer(200, b"ok")) as upstream, Front(to("api", upstream.url)) as front:
        async with front.app() as resting, front.app() as late:
            await resting.ask("GET", "/api/")
            await late.ask("GET", "/api/")
            front.path.context.draining = True
            assert (await late.ask("GET", "/api/")).one("connection") == "close"
            front.path.drain()
            assert await resting.rest() == b""
        front.path.refuse()
        async with front.app() as refused:
            assert (await refused.ask("GET", "/api/")).status == 503


async def test_a_unix_listener_and_a_unix_upstream(tmp_path: object) -> None:
    inner, outer = f"{tmp_path}/up.sock", f"{tmp_path}/proxy.sock"
    async with Upstream(answer(200, b"ok"), path=inner) as upstream:
        async with Front(to("api", f"unix:{inner}"), listen=Address(unix=outer)) as front, front.app() as app:
            reply = await app.ask("GET", "/api/x", "Host: docker")
            assert reply.status == 200
            assert upstream.requests[0].one("host") == "localhost"
            app.send(request("GET", "/api/x"))
            app.end()
            assert (await app.read()).status == 200
            assert front.observed.calls[0]["client"] == ""


@pytest.mark.parametrize("value", ["soon", "-1", "1.2.3"])
async def test_an_unreadable_timeout_is_400(value: str) -> None:
    async with Upstream() as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        reply = await app.ask("GET", "/api/x", f"X-Retry-Timeout: {value}")
        assert reply.status == 400
        assert upstream.requests == []


@pytest.mark.parametrize("fields", [("X-Retry-Timeout: 0s",), ("X-Retry-Timeout: 5s", "grpc-timeout: 0m")])
async def test_a_timeout_of_0_sends_nothing(fields: tuple[str, ...]) -> None:
    async with Upstream() as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        reply = await app.ask("POST", "/api/x", *fields, body=b"pay")
        assert (reply.status, reply.one("x-attempt-count")) == (504, "0")
        assert "outcome=deadline" in (reply.one("proxy-status") or "")
        assert front.observed.outcomes == [Outcome.DEADLINE]
        reply = await app.ask("POST", "/api/x", "grpc-timeout: 0m", body=b"pay")
        assert (reply.status, reply.one("x-attempt-count")) == (504, "0")
        assert upstream.requests == []


async def test_steering_fields_are_heeded_and_never_forwarded() -> None:
    async with Upstream(answer(503)) as upstream, Front(to("api", upstream.url)) as front, front.app() as app:
        fields = ("X-Retry-Disable: true", "X-Retry-Timeout: 5s", "X-Attempt-Count: 9", "X-Other: 1")
        reply = await app.ask("GET", "/api/x", *fields)
        assert reply.status == 503
        assert reply.one("x-should-retry") is None
        sent = upstream.requests[0]
        assert [name.lower() for name, _ in sent.fields] == ["host", "x-other", "x-attempt-count", "via"]
        assert sent.one("x-attempt-count") == "1"
        assert front.observed.outcomes == [Outcome.DISABLED]


async def test_each_listener_has_its_own_defaults() -> None:
    """Forward use, CONNECT's ports and loopback destinations: by the listener that a call came in by."""
    by_listener = {"unmatched_set": False, "unmatched": "deny", "limits": Limits(65536, 256, 100, 100, None, False)}
    async with Upstream(answer(200, b"ok")) as upstream:
        named = to("named", f"http://127.0.0.1:{free_port()}", hosts=["named.test"])
        async with Front(named, **by_listener) as front:
            (wide,) = bind(Address("0.0.0.0", 0), "listen")
            port = bound(wide).port
            await front.path.listen(bound(wide), wide)
            authority = upstream.authority
            async with front.app() as app:
                assert (await app.ask("GET", f"{upstream.url}/x")).status == 200
            async with front.app() as app:
                assert (await app.ask("CONNECT", authority, f"Host: {authority}")).status == 200
            front.port = port  # by 127.0.0.1 still, but the other listener
            async with front.app() as app:
                reply = await app.ask("GET", f"{upstream.url}/x")
                assert reply.status == 403
                assert "`unmatched` is deny on a listener off loopback" in json.loads(reply.body)["detail"]
            for place, why in (
                (authority, "connect_ports"),
                ("other.test:443", "unmatched"),
                ("named.test:81", "ports"),
            ):
                async with front.app() as app:
                    reply = await app.ask("CONNECT", place, f"Host: {place}")
                    assert reply.status == 403
                    assert why in json.loads(reply.body)["detail"]


async def test_a_listener_on_every_address_takes_the_place_of_one_on_loopback() -> None:
    async with Front(unmatched_set=False, unmatched="deny") as front:
        path, inner = front.path, Address("127.0.0.1", front.port)
        assert path.acceptor.exposure_of(("127.0.0.1", front.port)).loopback
        (beside,) = bind(Address("127.0.0.1", 0), "listen")
        away = bound(beside)
        await (await path.listen(away, beside.dup())).stop()
        assert path.acceptor.exposure_of((away.host, away.port)).loopback  # what had come to it is still accepted
        await path.close_listener(beside)
        assert not path.acceptor.exposure_of((away.host, away.port)).loopback
        assert not path.acceptor.exposure_of(("::ffff:127.0.0.1", front.port, 0, 0)).loopback
        assert path.acceptor.exposure_of((inner.host, inner.port)).loopback


async def test_a_wildcard_listener_is_off_loopback() -> None:
    async with Upstream(answer(200, b"ok")) as upstream:
        everywhere = Address("0.0.0.0", 0)
        async with Front(to("api", upstream.url), listen=everywhere) as front, front.app() as app:
            assert (await app.ask("GET", "/api/x", "Host: any.example")).status == 200
            denied = await app.ask("GET", f"{upstream.url}/x")
            assert denied.status == 403
            assert "loopback" in json.loads(denied.body)["detail"]


# -- HTTP/2 (contract, section 12, "Where to") ------------------------------------------------------------------------


def asked(*fields: tuple[bytes, bytes], grpc: bool = True, authority: bytes = b"127.0.0.1:8080") -> Request2:
    media = [(b"content-type", b"application/grpc+proto")] if grpc else []
    pseudo = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", PATH), (b":authority", authority)]
    return read_request(b"".join(literal(*each) for each in (*pseudo, *media, *fields)), False)


PATH = b"/x.Greeter/SayHello"
GREETER = replace(to("greeter", "http://inner.test:50051/base", hosts=["greeter.test"]), services=("x.Greeter",))
PREFIXED = replace(to("prefixed", "http://prefixed.test"), prefix="/x.Greeter")
LOOPBACK = Exposure(True)


async def test_grpc_on_http2_goes_by_authority_then_by_service_and_nothing_else_does() -> None:
    async with Front(GREETER, PREFIXED) as front:
        settings = front.path.acceptor.settings

        def goes(head: Request2, exposure: Exposure = LOOPBACK) -> Admitted | None:
            return admit(head, settings, exposure, "us")

        by_service = goes(asked())
        assert by_service is not None
        assert (by_service.upstream.name, by_service.rest, by_service.by_service) == ("greeter", None, True)
        assert (by_service.request.authority, by_service.request.path) == ("inner.test:50051", PATH.decode())
        by_host = goes(asked(authority=b"greeter.test"))
        assert by_host is not None
        assert (by_host.request.authority, by_host.by_service) == ("greeter.test", False)
        by_prefix = goes(asked(grpc=False))
        assert by_prefix is not None
        assert (by_prefix.upstream.name, by_prefix.rest, by_prefix.by_service) == ("prefixed", b"/SayHello", False)

    async with Front(PREFIXED) as front:
        with pytest.raises(Rejection) as stranger:
            admit(asked(), front.path.acceptor.settings, LOOPBACK, "us")
        assert stranger.value.status == 404
        assert "`services`" in stranger.value.detail


async def test_a_call_by_its_service_is_refused_where_a_web_page_could_have_sent_it() -> None:
    async with Front(GREETER) as front:
        settings = front.path.acceptor.settings
        for head, status in (
            (asked(authority=b"rebound.example"), 421),
            (asked((b"sec-fetch-site", b"cross-site")), 403),
            (asked((b"origin", b"http://elsewhere.example")), 403),
        ):
            with pytest.raises(Rejection) as refused:
                admit(head, settings, LOOPBACK, "us")
            assert refused.value.status == status
        assert admit(asked(authority=b"rebound.example"), settings, Exposure(False), "us") is not None


async def test_grpc_to_an_upstream_of_http1_is_refused_and_names_the_key() -> None:
    spoken = replace(GREETER.target, protocol="http/1.1")
    old = replace(GREETER, target=spoken, policy=replace(GREETER.policy, target=spoken))
    async with Front(old) as front:
        settings = front.path.acceptor.settings
        with pytest.raises(Rejection) as refused:
            admit(asked(), settings, LOOPBACK, "us")
        assert (refused.value.status, "`protocol`" in refused.value.detail) == (501, True)
        assert admit(asked(grpc=False, authority=b"greeter.test"), settings, LOOPBACK, "us") is not None


async def test_a_plan_by_service_keeps_the_path_and_names_the_endpoint() -> None:
    async with Front(replace(GREETER, services=("x.Greeter",))) as front:
        settings = front.path.acceptor.settings
        admitted = admit(asked(), settings, LOOPBACK, "us")
        assert admitted is not None
        destination = front.path.acceptor.context.pool.destination(
            admitted.policy.target, "http", admitted.request.authority, strict=False
        )
        plan = Plan(asked(), admitted.request, admitted.policy, destination, None)
        plan.by_service, plan.upstream = True, admitted.upstream
        (origin,) = destination.origins
        sent = plan.plain_request(origin, 1, "us")
        assert (sent.authority, sent.target) == (b"inner.test:50051", None)  # the path stays whole
