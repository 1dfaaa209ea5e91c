"""The functions that answer each page of the admin port and of the probe.

A page returns what its function of the view (`views.View`) returns. Nothing is computed for pages that are not
requested, and work that takes long is done in pieces (`turns`) or in a thread. The dashboard's files, a page with its
style and its scripts, are beside this module, and are read once, when they are first requested. They contain nothing
about this process, so they need no token; the data that they show comes from the other pages.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from proxy.admin.call_filter import FilterError, call_filter, unknown_parameter
from proxy.admin.timeline import Timeline
from proxy.admin.turns import AT_A_STRETCH, a_turn, gradually, in_turns
from proxy.admin.views import View
from proxy.admin.weather_view import holding
from proxy.hidden_values import HiddenValues, shown_data
from proxy.observe.recent_calls import KEPT, NumberedCall
from proxy.transport.clock import monotonic, wall

#: The most bytes that are written at once: a longer body is written in pieces of this size.
PIECE = 128 * 1024
#: The most characters of a draft, and the most calls that are played under it.
LONGEST_DRAFT, MOST_PLAYED = 64 * 1024, 200
#: How many buckets a page of /buckets has by default, and at most.
BUCKETS, MOST_BUCKETS = 1000, 10_000
_T = TypeVar("_T")
_JSON = "application/json; charset=utf-8"
#: The fields by which a browser bounds the dashboard, even if its scripts had a defect: it runs only the scripts of
#: this port, connects only to this port, and turns no strings into markup (Trusted Types).
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}

_HERE = Path(__file__).parent
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def refusal(status: int, detail: str) -> web.Response:
    """Make a refusal with this status and a line of plain text, `detail`."""
    return web.Response(status=status, text=f"{detail}\n")


async def page(request: web.Request) -> web.Response:
    """`/`: the dashboard."""
    return _file("index.html")


async def static(request: web.Request) -> web.Response:
    """`/static/{name}`: a file that the dashboard uses."""
    name = request.match_info["name"]
    known = {item.name for item in (_HERE / "static").iterdir() if item.is_file()}
    return _file(name) if name in known else refusal(404, "There is no such file.")


async def description(request: web.Request) -> web.Response:
    """`/openapi.json`: the OpenAPI description of this port."""
    return web.Response(body=_read_beside("openapi.json"), content_type="application/json", charset="utf-8")


@cache
def _read_beside(*path: str) -> bytes:
    return _HERE.joinpath(*path).read_bytes()


def _file(name: str) -> web.Response:
    kind = _TYPES.get(name[name.rfind(".") :], "application/octet-stream")
    return web.Response(body=_read_beside("static", name), content_type=kind, charset="utf-8", headers=HEADERS)


class Handlers:
    """The pages of one application. A page that shows other processes' counters fetches these counters first
    (`View.refresh`).
    """

    def __init__(self, view: View, timeline: Timeline | None = None) -> None:
        self._view = view
        self._one_play = asyncio.Lock()  # only one simulation at a time, since calls need the processor
        self._timeline = timeline if timeline is not None else Timeline()

    async def livez(self, request: web.Request) -> web.Response:
        """`/livez`: always 200; that the process answers shows that it lives."""
        return web.Response(text="ok\n")

    async def readyz(self, request: web.Request) -> web.Response:
        """`/readyz`: 200 if calls should be sent here, else 503."""
        state = self._view.readiness()
        if state.ready:
            return web.Response(text="ok\n")
        return refusal(503, "draining" if state.draining else "not ready")

    async def readyz_verbose(self, request: web.Request) -> web.StreamResponse:
        """`/readyz`; with `?verbose` also the reason, warnings and other facts of the process (`views.Readiness`), as
        JSON.
        """
        if "verbose" not in request.query:
            return await self.readyz(request)
        state = self._view.readiness()
        return await self._json(request, lambda: asdict(state), 200 if state.ready else 503)

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        """`/metrics`: Prometheus text, or OpenMetrics if Accept asks for it."""
        await self._view.refresh()
        body, kind = await self._view.metrics(", ".join(request.headers.getall("Accept", ())))
        return await _send(request, body, kind)

    async def config(self, request: web.Request) -> web.StreamResponse:
        """`/config`: the effective configuration, secrets masked."""
        if said := unknown_parameter(request.query, ()):
            return refusal(400, said)
        return await self._json(request, self._view.config)

    async def places(self, request: web.Request) -> web.StreamResponse:
        """`/config/places`: every effective value of a policy, or of the top level, with its file and line."""
        if said := unknown_parameter(request.query, ("upstream", "route")):
            return refusal(400, said)
        upstream, route = request.query.get("upstream", ""), request.query.get("route", "")
        values = self._view.places(upstream, route)
        if not values:
            return refusal(404, "There is no such upstream or route.")
        return await self._json(request, lambda: {"upstream": upstream, "route": route, "values": values})

    async def upstreams(self, request: web.Request) -> web.StreamResponse:
        """`/upstreams`: the configuration and the counters of each upstream, or of the one that `?name` names."""
        if said := unknown_parameter(request.query, ("name",)):
            return refusal(400, said)
        await self._view.refresh()
        shown = await self._view.upstreams(request.query.get("name"))
        return await self._json(request, lambda: {"upstreams": shown})

    async def series(self, request: web.Request) -> web.StreamResponse:
        """`/series`: the figures of the last fifteen minutes for the charts, one sample every five seconds, of all
        upstreams together or of the one that `?name` names.
        """
        if said := unknown_parameter(request.query, ("name",)):
            return refusal(400, said)
        name, timeline, to_wall = request.query.get("name"), self._timeline, wall() - monotonic()
        if name is None:
            together = {"name": None, **timeline.columns(None, to_wall)}
            return await self._json(request, lambda: together)
        found = await self._view.upstreams(name)
        if not found and not timeline.knows(name):
            return refusal(404, "There is no such upstream.")
        labels = {label for each in found for label in _labels(each)}
        cooldowns, columns = self._view.cooldowns(name), timeline.columns(name, to_wall)
        levels = {label: timeline.levels(label, len(columns["at"])) for label in sorted(labels)}
        shown = {
            "name": name,
            **columns,
            "buckets": levels,
            "cooldowns": cooldowns,
            "weather": self._view.weather(name),
        }
        return await self._json(request, lambda: shown)

    async def buckets(self, request: web.Request) -> web.StreamResponse:
        """`/buckets`: the level of each bucket, in portions: `?limit` is the most that are listed, `?after` the number
        of buckets to skip at the beginning. The answer's `next` is the `?after` of the next portion.
        """
        if said := unknown_parameter(request.query, ("limit", "after")):
            return refusal(400, said)
        limit, after = request.query.get("limit", str(BUCKETS)), request.query.get("after", "0")
        if not is_count(limit) or not 0 < int(limit) <= MOST_BUCKETS or not is_count(after):
            return refusal(400, f"limit must be a whole number from 1 to {MOST_BUCKETS}, and after a whole number.")
        await self._view.refresh()
        every, first = await self._view.buckets(), int(after)
        shown = every[first : first + int(limit)]
        following = first + len(shown) if first + len(shown) < len(every) and shown else None
        return await self._json(request, lambda: {"total": len(every), "next": following, "buckets": shown})

    async def requests(self, request: web.Request) -> web.StreamResponse:
        """`/requests`: the last calls, the newest first. `?limit` is the most that are listed, `?since` the number of a
        call: only later ones are listed; `?only=notable` lists only calls that were retried or refused, or did not
        succeed. The parameters of `CallFilter` choose among them.
        """
        limit, since = request.query.get("limit", str(KEPT)), request.query.get("since", "0")
        if not is_count(limit) or not is_count(since):
            return refusal(400, "limit and since must be whole numbers.")
        only = request.query.get("only", "")
        if only not in ("", "notable"):
            return refusal(400, "only must be notable, or left out.")
        try:
            chosen = call_filter(request.query, ("limit", "since", "only"))
        except FilterError as error:
            return refusal(400, str(error))
        await self._view.refresh()
        recent, most = self._view.recent, int(limit)
        choose = recent.choose_notable if only else recent.choose
        kept = choose(int(since), most if chosen is None else 2 * KEPT)
        shown = await in_turns(json.loads(call.text) for call in recent.show(kept))
        if chosen is not None:
            shown = [call for call in shown if chosen.takes(call)]
            shown = shown[max(len(shown) - most, 0) :]
        return await self._json(request, lambda: {"seen": recent.seen, "requests": shown[::-1]})

    async def request(self, request: web.Request) -> web.StreamResponse:
        """`/requests/{number}`: one of the last calls."""
        call = await self._kept(request)
        return _no_such_call() if call is None else await self._json(request, lambda: json.loads(call.text))

    async def explain(self, request: web.Request) -> web.StreamResponse:
        """`/requests/{number}/explain`: what the configuration in force says about one of the last calls, and what
        holds calls of its upstream now.
        """
        call = await self._kept(request)
        if call is None:
            return _no_such_call()
        kept = json.loads(call.text)
        rows = await self._view.upstreams(kept["upstream"])
        now = [said for row in rows for said in holding(row)]
        async with self._one_play:
            return await self._json(request, lambda: {**self._view.explain(kept), "now": now})

    async def policy(self, request: web.Request) -> web.StreamResponse:
        """`/what-if?upstream=NAME`: the parts of an upstream's policy that a user can change and try out with `POST
        /what-if`, as the configuration file has them, secrets masked.
        """
        if said := unknown_parameter(request.query, ("upstream",)):
            return refusal(400, said)
        async with self._one_play:
            found = await asyncio.to_thread(self._view.policy, request.query.get("upstream", ""))
        return _not_in_the_file() if found is None else await self._json(request, lambda: found)

    async def what_if(self, request: web.Request) -> web.StreamResponse:
        """`POST /what-if`: try out a draft, which is a changed copy of an upstream's policy. The answer says what is
        wrong with the draft, and how the upstream's last calls would have ended under it, by a simulation. Nothing is
        written to the file, and nothing is sent.
        """
        if request.content_type != "application/json":
            return refusal(415, "The body is JSON: Content-Type: application/json.")
        draft = _draft(await request.read())
        if isinstance(draft, str):
            return refusal(400, draft)
        if self._one_play.locked():
            busy = refusal(503, "Another one is being played; ask again.")
            busy.headers["Retry-After"] = "1"
            return busy
        async with self._one_play:
            upstream, text, most = draft
            calls = await self._calls_of(upstream, most)
            found = await asyncio.to_thread(_uncollected, lambda: self._view.what_if(upstream, text, calls))
        return _not_in_the_file() if found is None else await self._json(request, lambda: found)

    async def _calls_of(self, upstream: str, most: int) -> list[dict[str, Any]]:
        """Collect the newest calls of an upstream that are kept, at most `most`."""
        await self._view.refresh()
        recent, calls = self._view.recent, list[dict[str, Any]]()
        if most:
            async for call in gradually(recent.show(recent.choose(0, 2 * KEPT)[::-1]), AT_A_STRETCH):
                if (found := json.loads(call.text))["upstream"] == upstream:
                    calls.append(found)
                if len(calls) == most:
                    break
        return calls

    async def _json(self, request: web.Request, made: Callable[[], Any], status: int = 200) -> web.StreamResponse:
        """Answer with this status, and with the result of `made` as JSON. `made` is called in a thread: for a thousand
        upstreams it takes a tenth of a second.
        """
        return await _send(request, await asyncio.to_thread(_written, made, self._view.hidden()), _JSON, status)

    async def _kept(self, request: web.Request) -> NumberedCall | None:
        """The call that a path names by its number; None if it is not kept."""
        number = request.match_info["number"]
        if not is_count(number):
            return None
        await self._view.refresh()
        return self._view.recent.find(int(number))

    async def reload(self, request: web.Request) -> web.StreamResponse:
        """`POST /reload`: load the configuration again, and return what is wrong with it."""
        errors = await asyncio.shield(self._view.reload())  # completed even if the client goes away
        return await self._json(request, lambda: {"reloaded": not errors, "errors": errors}, 422 if errors else 200)

    async def drain(self, request: web.Request) -> web.StreamResponse:
        """`POST /drain`: stop being ready, and let calls in progress finish."""
        self._view.drain()
        return await self._json(request, lambda: {"draining": True}, 202)


def _labels(upstream: dict[str, Any]) -> list[str]:
    """The labels of the retry buckets of an upstream and its routes. `upstream` is a row of `/upstreams`."""
    return [each["bucket"] for each in (upstream, *upstream["routes"]) if each["bucket"] is not None]


def is_count(text: str) -> bool:
    """Whether a text is a whole number, and short enough to compute with."""
    return text.isascii() and text.isdigit() and len(text) < 19


def _draft(body: bytes) -> tuple[str, str, int] | str:
    """Read the body of a request to try a draft. Returns the upstream's name, the draft's YAML and the number of calls
    to replay; or, if the body is wrong, a text that says why.
    """
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return "The body is not JSON."
    if not isinstance(said, dict) or not said.keys() <= {"upstream", "yaml", "calls"}:
        return 'The body is an object with "upstream", "yaml" and "calls".'
    upstream, text, most = said.get("upstream"), said.get("yaml"), said.get("calls", 0)
    if not isinstance(upstream, str) or not isinstance(text, str):
        return "upstream and yaml are texts."
    if len(text) > LONGEST_DRAFT:
        return f"yaml has at most {LONGEST_DRAFT} characters."
    if type(most) is not int or not 0 <= most <= MOST_PLAYED:
        return f"calls is a whole number from 0 to {MOST_PLAYED}."
    return upstream, text, most


def _not_in_the_file() -> web.Response:
    return refusal(404, "The configuration file has no upstream of this name.")


def _no_such_call() -> web.Response:
    return refusal(404, "This call is no longer kept.")


def _written(made: Callable[[], Any], hidden: HiddenValues | None) -> bytes:
    """The JSON text of what `made` returns, without what is `hidden`."""
    return _uncollected(lambda: f"{json.dumps(shown_data(made(), hidden), indent=2)}\n".encode())


def _uncollected(made: Callable[[], _T]) -> _T:
    """Call `made` without the garbage collector, which would stop every thread to examine objects that are soon freed
    anyway.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return made()
    finally:
        if collects:
            gc.enable()


async def _send(request: web.Request, body: bytes, kind: str, status: int = 200) -> web.StreamResponse:
    """Answer with a body of the media type `kind`, in pieces if it is large: to give the system megabytes at once would
    block the loop.
    """
    if len(body) <= PIECE:
        return web.Response(status=status, body=body, headers={"Content-Type": kind})
    response = web.StreamResponse(status=status, headers={"Content-Type": kind})
    response.content_length = len(body)
    await response.prepare(request)
    if request.method != "HEAD":
        await write_in_pieces(response, body)
    return response


async def write_in_pieces(response: web.StreamResponse, data: bytes) -> None:
    """Write data that may be large, PIECE bytes at a time, with a turn of the loop after each piece."""
    for start in range(0, len(data), PIECE):
        await response.write(data[start : start + PIECE])
        await a_turn()
