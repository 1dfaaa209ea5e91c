"""The admin port's pages, as aiohttp.web applications: the whole port, and the probe alone.

Law: a page reads the view and says what is there; nothing is computed for pages that nobody asks for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from aiohttp import web

from proxy.observe.recent import KEPT
from proxy.server.admin.guard import Access, Handler, guard, refusal
from proxy.server.admin.view import View

#: Seconds between looks at what is new, for a reader of /events; and between signs of life.
_LOOK = 0.25
_ALIVE = 15.0

_VIEW = web.AppKey("view", View)
_CLOSING = web.AppKey("closing", asyncio.Event)

#: Pages that show what workers have counted.
_COUNTED = frozenset({"/metrics", "/upstreams", "/buckets", "/requests", "/events"})

_ENDPOINTS = """redrive admin

GET  /livez      the process is up
GET  /readyz     it takes calls (?verbose: configuration problems, reload errors, draining)
GET  /metrics    Prometheus
GET  /config     the effective configuration, secrets masked
GET  /upstreams  who is called, under which policy, with what success
GET  /buckets    levels and capacities
GET  /requests   the last calls with every attempt (?limit=N, ?since=NUMBER)
GET  /events     the same as they happen, as server-sent events
POST /reload     load the configuration again
POST /drain      stop being ready, let calls run out
"""


def admin_app(view: View, access: Callable[[], Access] = Access) -> web.Application:
    """The admin port. `access` says who is let in."""
    app = _app(view, [guard(access)])
    app.router.add_get("/", _index)
    app.router.add_get("/livez", _livez)
    app.router.add_get("/readyz", _readyz_verbose)
    app.router.add_get("/metrics", _metrics)
    app.router.add_get("/config", _config)
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


async def _index(request: web.Request) -> web.Response:
    return web.Response(text=_ENDPOINTS)


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


async def _upstreams(request: web.Request) -> web.Response:
    return _json({"upstreams": request.app[_VIEW].upstreams()})


async def _buckets(request: web.Request) -> web.Response:
    return _json({"buckets": request.app[_VIEW].buckets()})


async def _requests(request: web.Request) -> web.Response:
    recent = request.app[_VIEW].recent
    limit, since = request.query.get("limit", str(KEPT)), request.query.get("since", "0")
    if not _is_count(limit) or not _is_count(since):
        return refusal(400, "limit and since are whole numbers.")
    newest_first = recent.since(int(since), int(limit))[::-1]
    return _json({"seen": recent.seen, "requests": newest_first})


async def _events(request: web.Request) -> web.StreamResponse:
    """Calls as they end. `Last-Event-ID` goes on where a reader left off, as far as the ring reaches back."""
    recent, closing = request.app[_VIEW].recent, request.app[_CLOSING]
    last = request.headers.get("Last-Event-ID", "")
    at = recent.seen
    if _is_count(last):  # a number beyond all seen is from before a restart
        at = int(last) if int(last) <= recent.seen else 0
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await response.prepare(request)
    await response.write(b"retry: 1000\n\n")
    quiet = 0.0
    while not closing.is_set() and request.transport is not None and not request.transport.is_closing():
        await request.app[_VIEW].refresh()
        news = recent.since(at)
        at = recent.seen
        if news:
            text = "".join(f"id: {entry['number']}\nevent: call\ndata: {json.dumps(entry)}\n\n" for entry in news)
            await response.write(text.encode())
            quiet = 0.0
        elif quiet >= _ALIVE:
            await response.write(b": alive\n\n")
            quiet = 0.0
        quiet += _LOOK
        try:
            await asyncio.wait_for(closing.wait(), _LOOK)
        except TimeoutError:
            continue
    return response


async def _reload(request: web.Request) -> web.Response:
    errors = await request.app[_VIEW].reload()
    return _json({"reloaded": not errors, "errors": errors}, status=422 if errors else 200)


async def _drain(request: web.Request) -> web.Response:
    request.app[_VIEW].drain()
    return _json({"draining": True}, status=202)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def _json(value: Any, status: int = 200) -> web.Response:
    return web.json_response(value, status=status, dumps=lambda v: json.dumps(v, indent=2) + "\n")
