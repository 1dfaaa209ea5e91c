"""The admin port's pages: the whole port, and the probe alone.

Law: a page reads the view and says what is there; nothing is computed for pages that nobody asks for.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from proxy.observe.recent import KEPT
from proxy.server.admin import dashboard
from proxy.server.admin.asked import JSON, Asked, Page, Reply, text
from proxy.server.admin.board import Board
from proxy.server.admin.guard import Access, guard
from proxy.server.admin.port import Port
from proxy.server.admin.streaming import Reader, is_count, keep_sampling, stream
from proxy.server.admin.view import View


def admin_port(view: View, access: Callable[[], Access] = Access) -> Port:
    """The admin port. `access` says who is let in."""
    closing, pages = asyncio.Event(), _Pages(view)
    board = Board(view, asyncio.get_running_loop().time, secrets.token_hex(4))

    async def events(asked: Asked) -> Reply:
        """Calls as they end. `Last-Event-ID` goes on where a reader left off, as far as the ring reaches back."""
        return stream(Reader(asked, view, board), closing)

    routes: dict[str, dict[str, Page]] = {
        "/": {"GET": dashboard.page},
        "/static/{name}": {"GET": dashboard.static},
        "/openapi.json": {"GET": dashboard.description},
        "/livez": {"GET": pages.livez},
        "/readyz": {"GET": pages.readyz_verbose},
        "/metrics": {"GET": pages.fresh(pages.metrics)},
        "/config": {"GET": pages.config},
        "/config/places": {"GET": pages.places},
        "/upstreams": {"GET": pages.fresh(pages.upstreams)},
        "/buckets": {"GET": pages.fresh(pages.buckets)},
        "/requests": {"GET": pages.fresh(pages.requests)},
        "/events": {"GET": pages.fresh(events)},
        "/reload": {"POST": pages.reload},
        "/drain": {"POST": pages.drain},
    }
    return Port(routes, closing, guard=guard(access), beside=partial(keep_sampling, view, board, closing))


def probe_port(view: View) -> Port:
    """The probe, for a kubelet and Prometheus: no token, any Host, and not a word about the configuration."""
    pages = _Pages(view)
    routes: dict[str, dict[str, Page]] = {
        "/livez": {"GET": pages.livez},
        "/readyz": {"GET": pages.readyz},
        "/metrics": {"GET": pages.fresh(pages.metrics)},
    }
    return Port(routes, asyncio.Event())


class _Pages:
    """What a view has to say."""

    def __init__(self, view: View) -> None:
        self._view = view

    def fresh(self, page: Page) -> Page:
        """A page that shows what workers have counted."""

        async def refreshed(asked: Asked) -> Reply:
            await self._view.refresh()
            return await page(asked)

        return refreshed

    async def livez(self, asked: Asked) -> Reply:
        return text("ok")

    async def readyz(self, asked: Asked) -> Reply:
        state = self._view.readiness()
        if state.ready:
            return text("ok")
        return text("draining" if state.draining else "not ready", 503)

    async def readyz_verbose(self, asked: Asked) -> Reply:
        if "verbose" not in asked.query:
            return await self.readyz(asked)
        state = self._view.readiness()
        return _json(asdict(state), status=200 if state.ready else 503)

    async def metrics(self, asked: Asked) -> Reply:
        body, kind = await self._view.metrics(", ".join(asked.fields.get_all("accept")))
        return Reply(200, body, kind)

    async def config(self, asked: Asked) -> Reply:
        """Made in a thread: that of a thousand upstreams takes a tenth of a second, and nothing in it changes."""
        return await asyncio.to_thread(lambda: _json(self._view.config()))

    async def places(self, asked: Asked) -> Reply:
        """Every effective value of a policy, or of the top level, with its file and line."""
        upstream, route = asked.query.get("upstream", ""), asked.query.get("route", "")
        values = self._view.places(upstream, route)
        if not values:
            return text("There is no such upstream or route.", 404)
        return _json({"upstream": upstream, "route": route, "values": values})

    async def upstreams(self, asked: Asked) -> Reply:
        return await asyncio.to_thread(_json, {"upstreams": self._view.upstreams(asked.query.get("name"))})

    async def buckets(self, asked: Asked) -> Reply:
        return _json({"buckets": self._view.buckets()})

    async def requests(self, asked: Asked) -> Reply:
        recent = self._view.recent
        limit, since = asked.query.get("limit", str(KEPT)), asked.query.get("since", "0")
        if not is_count(limit) or not is_count(since):
            return text("limit and since are whole numbers.", 400)
        only = asked.query.get("only", "")
        if only not in ("", "notable"):
            return text("only is notable, or left out.", 400)
        chosen = recent.notable if only else recent.since
        newest_first = chosen(int(since), int(limit))[::-1]
        return _json({"seen": recent.seen, "requests": newest_first})

    async def reload(self, asked: Asked) -> Reply:
        errors = await asyncio.shield(self._view.reload())  # begun, it is done, whatever becomes of who asked
        return _json({"reloaded": not errors, "errors": errors}, status=422 if errors else 200)

    async def drain(self, asked: Asked) -> Reply:
        self._view.drain()
        return _json({"draining": True}, status=202)


def _json(value: Any, status: int = 200) -> Reply:
    return Reply(status, (json.dumps(value, indent=2) + "\n").encode(), JSON)
