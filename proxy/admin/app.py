"""The admin port and the probe: two aiohttp applications, their routes, and the middlewares that decide who is let in.

Start here: `admin_app` lists the pages, `handlers` has the functions that answer them, and `views` collects the data
that they show. `connections` bounds how many connections a client of these ports can hold, and for how long.

A web page in a user's browser must not be able to use the admin port (contract, section 10). A request under a name
that was made to resolve to loopback (DNS rebinding) is refused because of its Host; a request from a form or a script
of another site is refused because of its Sec-Fetch-Site or Origin; a request that has neither of these fields does not
come from a browser, and is let through. If a token is set, every request needs it, except those for the dashboard's own
files: a browser can't send a token when it opens a page, and these files contain nothing about the process.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field
from functools import partial

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from proxy.admin import handlers
from proxy.admin.handlers import Handlers, refusal
from proxy.admin.live_board import CLOSING, LiveBoard
from proxy.admin.turns import a_turn
from proxy.admin.views import View
from proxy.web_origin import is_literal, is_own_origin

#: The most bytes of a request's body. Only one page uses the body; the others ignore it.
BODY = 1024 * 1024
#: Seconds in which a body must arrive completely: as nginx's client_body_timeout.
BODY_SECONDS = 60.0

#: Fields of every answer; a page may set another value.
_FIELDS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

#: Sec-Fetch-Site of a request that the dashboard itself, or the browser's address bar, made.
_OWN_SITE = frozenset({"same-origin", "none"})
#: Names of the routes that need no token.
OPEN = frozenset({"dashboard", "static"})


@dataclass(frozen=True, slots=True)
class Access:
    """The host names and the token that the admin port accepts. A request's Host may be an IP literal, localhost or one
    of `hosts`; if `token` is "", no token is needed.
    """

    token: str = ""
    hosts: Collection[str] = field(default=())


#: The key under which an application keeps its `access`, called at each request because a reload may change it.
ACCESS: web.AppKey[Callable[[], Access]] = web.AppKey("access")


async def expect(request: web.Request) -> None:
    """Send "100 Continue" to a client that waits before it sends a body, or refuse a body that is too large (RFC 9110,
    section 10.1.1).
    """
    if request.headers.get("Expect", "").lower() != "100-continue":
        raise web.HTTPExpectationFailed(text="100-continue is the only expectation that is met here.\n")
    if (request.content_length or 0) > BODY:
        raise web.HTTPRequestEntityTooLarge(BODY, text=f"No page takes more than {BODY} bytes.\n")
    if request.version >= (1, 1) and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


#: Functions that make a route.
get, post = partial(web.get, expect_handler=expect), partial(web.post, expect_handler=expect)


def admin_app(view: View, access: Callable[[], Access] = Access) -> web.Application:
    """Make the application of the admin port. `access` is called at each request, and returns the host names and the
    token that are accepted at that time, so that a reload can change them.
    """
    app = bare_app(known_host, token, own_site)
    app[ACCESS] = access
    board = LiveBoard(view, asyncio.get_running_loop().time, secrets.token_hex(4))
    page = Handlers(view, board.timeline)
    app.add_routes(
        [
            get("/", handlers.page, name="dashboard"),
            get("/static/{name}", handlers.static, name="static"),
            get("/openapi.json", handlers.description),
            get("/livez", page.livez),
            get("/readyz", page.readyz_verbose),
            get("/metrics", page.metrics),
            get("/config", page.config),
            get("/config/places", page.places),
            get("/upstreams", page.upstreams),
            get("/buckets", page.buckets),
            get("/requests", page.requests),
            get("/series", page.series),
            get("/requests/{number}", page.request),
            get("/requests/{number}/explain", page.explain),
            get("/what-if", page.policy),
            post("/what-if", page.what_if),
            get("/events", board.stream),
            post("/reload", page.reload),
            post("/drain", page.drain),
        ]
    )

    async def sampling(app: web.Application) -> AsyncIterator[None]:
        """Take samples of counters and levels for the dashboard's charts as long as the application runs, and report an
        error that ended this early.
        """
        task = asyncio.create_task(board.keep_sampling(app[CLOSING]))
        yield
        (error,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(error, Exception):
            context = {"message": "the dashboard's samples", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    app.cleanup_ctx.append(sampling)
    return app


def probe_app(view: View) -> web.Application:
    """Make the application of the probe, for a kubelet and Prometheus: it needs no token, accepts any Host, and has no
    page that shows the configuration.
    """
    app, page = bare_app(), Handlers(view)
    app.add_routes([get("/livez", page.livez), get("/readyz", page.readyz), get("/metrics", page.metrics)])
    return app


def bare_app(*guards: Middleware) -> web.Application:
    """Make an application without routes. `guards` are middlewares that decide who is let in."""
    app = web.Application(middlewares=[errors, one_host, *guards, whole_body], client_max_size=BODY)
    closing = app[CLOSING] = asyncio.Event()

    async def close(_: web.Application) -> None:
        closing.set()

    app.on_shutdown.append(close)
    app.on_response_prepare.append(_add_fields)
    return app


# -- middlewares, in the order that they are called ---------------------------------------------------------------


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn an exception of a page or of aiohttp into a line of plain text, and report a page that failed. Before each
    request, everything else that is ready on the loop gets a turn, so that many requests for pages do not hold up
    calls.
    """
    await a_turn()
    try:
        return await handler(request)
    except web.HTTPMethodNotAllowed as error:
        methods = sorted(error.allowed_methods)
        refused = refusal(405, f"This page takes {' and '.join(methods)}.")
        refused.headers["Allow"] = ", ".join(methods)
        return refused
    except web.HTTPNotFound:
        return refusal(404, "There is no such page.")
    except web.HTTPRequestEntityTooLarge:
        return _last(413, f"No page takes more than {BODY} bytes.")
    except ConnectionError:  # the client went away
        raise
    except Exception as error:  # a defect of the page: reported on standard error, as asyncio does
        asyncio.get_running_loop().call_exception_handler({"message": "a page failed", "exception": error})
        if request.writer.output_size:  # the answer has begun: the client must see that it was cut off
            raise ConnectionResetError from error
        return refusal(500, "This page failed; standard error says why.")


@web.middleware
async def one_host(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a request that has no Host field, or two of them, with 400 (RFC 9112, section 3.2)."""
    hosts = len(request.headers.getall("Host", ()))
    if hosts > 1 or (not hosts and request.version >= (1, 1)):
        return _last(400, "A request must have exactly one Host field.")
    return await handler(request)


@web.middleware
async def known_host(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a request for a host that is not known with 421."""
    host = asked_host(request)
    if host_is_known(host, {name.lower() for name in request.app[ACCESS]().hosts}):
        return await handler(request)
    return refusal(421, f"This port does not answer for the host {host!r}; admin.hosts can list its name.")


@web.middleware
async def token(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a request without the token with 401, if a token is set."""
    wanted = request.app[ACCESS]().token
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    offered = given.strip(" \t").encode("utf-8", "surrogateescape")
    has_token = scheme.lower() == "bearer" and hmac.compare_digest(offered, wanted.encode())
    if not wanted or has_token or request.match_info.route.name in OPEN:
        return await handler(request)
    refused = refusal(401, "The admin token is needed: Authorization: Bearer TOKEN.")
    refused.headers["WWW-Authenticate"] = 'Bearer realm="redrive"'
    return refused


@web.middleware
async def own_site(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a request that would change something and comes from a page of another site with 403."""
    host = asked_host(request).lower()
    sites, origins = request.headers.getall("Sec-Fetch-Site", ()), request.headers.getall("Origin", ())
    is_own = all(site.lower() in _OWN_SITE for site in sites) and all(
        is_own_origin(origin, host, "http", "https") for origin in origins
    )
    if is_own or request.method in ("GET", "HEAD"):
        return await handler(request)
    return refusal(403, "A request that changes something may not come from another site.")


def asked_host(request: web.Request) -> str:
    """The host that a request is for: that of an absolute target (RFC 9112, section 3.2.2), else the Host field."""
    if not request.raw_path.startswith(("/", "*")) and request.url.absolute:
        return request.url.authority
    return ",".join(request.headers.getall("Host", ()))


def host_is_known(host: str, names: Collection[str]) -> bool:
    """Whether a Host field is an IP literal (not an unspecified address), localhost or one of `names` (lower case)."""
    host = host.lower()
    name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
    return name in names or host in names or is_literal(name)


@web.middleware
async def whole_body(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Read the whole body before the page is called, and refuse a body that does not arrive completely with 400."""
    if request.can_read_body:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                await request.read()
        except (web.RequestPayloadError, TimeoutError):
            return _last(400, "The request's body did not arrive completely.")
    return await handler(request)


def _last(status: int, detail: str) -> web.Response:
    """Make a refusal, with `detail` as its text, after which the connection is closed, because it is not known where
    the next request begins.
    """
    refused = refusal(status, detail)
    refused.force_close()
    return refused


async def _add_fields(request: web.Request, response: web.StreamResponse) -> None:
    """Add the fields that every answer has, and remove Server: no field names the server or its version."""
    for name, value in _FIELDS.items():
        response.headers.setdefault(name, value)
    response.headers.popall("Server", None)
