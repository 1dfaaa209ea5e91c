"""The admin port's pages, as aiohttp.web applications: the whole port, and the probe alone.

Law: a page reads the view and says what is there; nothing is computed for pages that nobody asks for.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Any

from aiohttp import web

from proxy.observe.recent import KEPT
from proxy.server.admin import dashboard
from proxy.server.admin.board import Board
from proxy.server.admin.guard import Access, Handler, guard, refusal
from proxy.server.admin.streaming import Reader, is_count, keep_sampling, stream
from proxy.server.admin.view import View

_VIEW = web.AppKey("view", View)
_CLOSING = web.AppKey("closing", asyncio.Event)
_BOARD = web.AppKey("board", Board)

#: Pages that show what workers have counted.
_COUNTED = frozenset({"/metrics", "/upstreams", "/buckets", "/requests", "/events"})


def admin_app(view: View, access: Callable[[], Access] = Access) -> web.Application:
    """The admin port. `access` says who is let in."""
    app = _app(view, [guard(access)])
    app[_BOARD] = Board(view, asyncio.get_running_loop().time, secrets.token_hex(4))
    app.cleanup_ctx.append(_sampling)
    app.router.add_get("/", dashboard.page)
    app.router.add_get("/static/{name}", dashboard.static)
    app.router.add_get("/openapi.json", dashboard.description)
    app.router.add_get("/livez", _livez)
    app.router.add_get("/readyz", _readyz_verbose)
    app.router.add_get("/metrics", _metrics)
    app.router.add_get("/config", _config)
    app.router.add_get("/config/places", _places)
    app.router.add_get("/upstreams", _upstreams)
    app.router.add_get("/buckets", _buckets)
    app.router.add_get("/requests", _requests)
    app.router.add_get("/events", _events, allow_head=False)
    app.router.add_post("/reload", _reload)
    app.router.add_post("/drain", _drain)
    return app


def probe_app(view: View) -> web.Application:
    """The probe, for a kubelet and Prometheus: no token, any Host, and not a word about the configuration."""
    app = _app(view, [])
    app.router.add_get("/livez", _livez)
    app.router.add_get("/readyz", _readyz)
    app.router.add_get("/metrics", _metrics)
    return app


def _app(view: View, middlewares: list[Any]) -> web.Application:
    app = web.Application(middlewares=[*middlewares, _fresh])
    app[_VIEW] = view
    app[_CLOSING] = asyncio.Event()
    app.on_shutdown.append(_close)
    return app


@web.middleware
async def _fresh(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.path in _COUNTED:
        await request.app[_VIEW].refresh()
    return await handler(request)


async def _close(app: web.Application) -> None:
    app[_CLOSING].set()


async def _sampling(app: web.Application) -> AsyncIterator[None]:
    task = asyncio.create_task(keep_sampling(app[_VIEW], app[_BOARD], app[_CLOSING]))
    yield
    task.cancel()


async def _livez(request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _readyz(request: web.Request) -> web.Response:
    state = request.app[_VIEW].readiness()
    if state.ready:
        return web.Response(text="ok\n")
    return web.Response(status=503, text="draining\n" if state.draining else "not ready\n")


async def _readyz_verbose(request: web.Request) -> web.Response:
    if "verbose" not in request.query:
        return await _readyz(request)
    state = request.app[_VIEW].readiness()
    return _json(asdict(state), status=200 if state.ready else 503)


async def _metrics(request: web.Request) -> web.Response:
    body, kind = await request.app[_VIEW].metrics(request.headers.get("Accept", ""))
    return web.Response(body=body, headers={"Content-Type": kind})


async def _config(request: web.Request) -> web.Response:
    return _json(request.app[_VIEW].config())


async def _places(request: web.Request) -> web.Response:
    """Every effective value of a policy, or of the top level, with its file and line."""
    upstream, route = request.query.get("upstream", ""), request.query.get("route", "")
    values = request.app[_VIEW].places(upstream, route)
    if not values:
        return refusal(404, "There is no such upstream or route.")
    return _json({"upstream": upstream, "route": route, "values": values})


async def _upstreams(request: web.Request) -> web.Response:
    return _json({"upstreams": request.app[_VIEW].upstreams(request.query.get("name"))})


async def _buckets(request: web.Request) -> web.Response:
    return _json({"buckets": request.app[_VIEW].buckets()})


async def _requests(request: web.Request) -> web.Response:
    recent = request.app[_VIEW].recent
    limit, since = request.query.get("limit", str(KEPT)), request.query.get("since", "0")
    if not is_count(limit) or not is_count(since):
        return refusal(400, "limit and since are whole numbers.")
    only = request.query.get("only", "")
    if only not in ("", "notable"):
        return refusal(400, "only is notable, or left out.")
    chosen = recent.notable if only else recent.since
    newest_first = chosen(int(since), int(limit))[::-1]
    return _json({"seen": recent.seen, "requests": newest_first})


async def _events(request: web.Request) -> web.StreamResponse:
    """Calls as they end. `Last-Event-ID` goes on where a reader left off, as far as the ring reaches back."""
    app = request.app
    return await stream(request, Reader(request, app[_VIEW], app[_BOARD]), app[_CLOSING])


async def _reload(request: web.Request) -> web.Response:
    errors = await request.app[_VIEW].reload()
    return _json({"reloaded": not errors, "errors": errors}, status=422 if errors else 200)


async def _drain(request: web.Request) -> web.Response:
    request.app[_VIEW].drain()
    return _json({"draining": True}, status=202)


def _json(value: Any, status: int = 200) -> web.Response:
    return web.json_response(value, status=status, dumps=lambda v: json.dumps(v, indent=2) + "\n")
