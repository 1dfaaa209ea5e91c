"""The admin port and the probe: two aiohttp applications, their routes and their middlewares.

Start here: what is served stands in `admin_app`, by whom in `handlers`, who is let in in `auth`, what pages show in
`views`. What a reader of these ports can take at most is bounded by `connections`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from functools import partial

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from proxy.server.admin import auth, dashboard
from proxy.server.admin.auth import ACCESS, Access, refusal
from proxy.server.admin.event_stream import CLOSING, Events, keep_sampling
from proxy.server.admin.handlers import Handlers
from proxy.server.admin.live_board import LiveBoard
from proxy.server.admin.turns import a_turn
from proxy.server.admin.views import View

#: Bytes of a body, which no page reads.
BODY = 1024 * 1024
#: Seconds in which a body comes whole: as nginx's client_body_timeout.
BODY_SECONDS = 60.0

#: What every answer says; a page may say otherwise.
_FIELDS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


async def expect(request: web.Request) -> None:
    """Tell who waits with a body to go on, unless no page takes so much (RFC 9110, section 10.1.1)."""
    if request.headers.get("Expect", "").lower() != "100-continue":
        raise web.HTTPExpectationFailed(text="100-continue is the only expectation that is met here.\n")
    if (request.content_length or 0) > BODY:
        raise web.HTTPRequestEntityTooLarge(BODY, text=f"No page takes more than {BODY} bytes.\n")
    if request.version >= (1, 1) and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


#: Makers of routes.
get, post = partial(web.get, expect_handler=expect), partial(web.post, expect_handler=expect)


def admin_app(view: View, access: Callable[[], Access] = Access) -> web.Application:
    """The admin port. `access` says who is let in, and is asked each time."""
    app = bare_app(auth.known_host, auth.token, auth.own_site)
    app[ACCESS] = access
    board = LiveBoard(view, asyncio.get_running_loop().time, secrets.token_hex(4))
    page, events = Handlers(view), Events(view, board)
    app.add_routes(
        [
            get("/", dashboard.page, name="dashboard"),
            get("/static/{name}", dashboard.static, name="static"),
            get("/openapi.json", dashboard.description),
            get("/livez", page.livez),
            get("/readyz", page.readyz_verbose),
            get("/metrics", page.metrics),
            get("/config", page.config),
            get("/config/places", page.places),
            get("/upstreams", page.upstreams),
            get("/buckets", page.buckets),
            get("/requests", page.requests),
            get("/events", events.stream),
            post("/reload", page.reload),
            post("/drain", page.drain),
        ]
    )

    async def sampling(app: web.Application) -> AsyncIterator[None]:
        """Sample the board's levels for as long as the application runs."""
        task = asyncio.create_task(keep_sampling(view, board, app[CLOSING]))
        yield
        await _until_ended(task)

    app.cleanup_ctx.append(sampling)
    return app


def probe_app(view: View) -> web.Application:
    """The probe, for a kubelet and Prometheus: no token, any Host, and not a word about the configuration."""
    app, page = bare_app(), Handlers(view)
    app.add_routes([get("/livez", page.livez), get("/readyz", page.readyz), get("/metrics", page.metrics)])
    return app


def bare_app(*guards: Middleware) -> web.Application:
    """An application without routes. `guards` are middlewares that say who is let in."""
    app = web.Application(middlewares=[errors, one_host, *guards, whole_body], client_max_size=BODY)
    closing = app[CLOSING] = asyncio.Event()

    async def close(_: web.Application) -> None:
        closing.set()

    app.on_shutdown.append(close)
    app.on_response_prepare.append(_add_fields)
    return app


# -- middlewares, in the order that they are asked ----------------------------------------------------------------


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn what a page or aiohttp raises into a line of plain text, and tell of a page that failed.

    Between two requests of a connection everybody else has a turn.
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
    except ConnectionError:  # it went away
        raise
    except Exception as error:  # a page has a defect: to standard error, as asyncio does it
        asyncio.get_running_loop().call_exception_handler({"message": "a page failed", "exception": error})
        if request.writer.output_size:  # the answer has begun: its reader sees that it is cut
            raise ConnectionResetError from error
        return refusal(500, "This page failed; standard error says why.")


@web.middleware
async def one_host(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a request with no Host, or two (RFC 9112, section 3.2)."""
    hosts = len(request.headers.getall("Host", ()))
    if hosts > 1 or (not hosts and request.version >= (1, 1)):
        return _last(400, "A request has one Host field.")
    return await handler(request)


@web.middleware
async def whole_body(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Read over a body, which no page wants, before a page is asked: what is not whole is no request."""
    if request.can_read_body:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                await request.read()
        except (web.RequestPayloadError, TimeoutError):
            return _last(400, "The request's body did not come whole.")
    return await handler(request)


def _last(status: int, detail: str) -> web.Response:
    """A refusal behind which the connection is closed: where the next request begins is not known."""
    refused = refusal(status, detail)
    refused.force_close()
    return refused


async def _add_fields(request: web.Request, response: web.StreamResponse) -> None:
    """Add what every answer says; who serves, and in which version, is nobody's business."""
    for name, value in _FIELDS.items():
        response.headers.setdefault(name, value)
    response.headers.popall("Server", None)


async def _until_ended(task: asyncio.Task[None]) -> None:
    """Wait for a task that has been told to end, and tell of what went wrong with it."""
    (error,) = await asyncio.gather(task, return_exceptions=True)
    if isinstance(error, Exception):
        asyncio.get_running_loop().call_exception_handler({"message": "the dashboard's samples", "exception": error})
