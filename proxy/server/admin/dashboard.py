"""The dashboard's files: one page, its style and its scripts, beside this module; the port in OpenAPI's words.

They hold nothing of this process, so they need no token; what they show, they ask for. The policy sent with them
lets the page run these very scripts and speak to this very port, and nothing else; strings never become markup in it
(Trusted Types). Files are read once, when first asked for.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from aiohttp import web

from proxy.server.admin.auth import refusal

#: Whatever a page of ours does, a browser must not do more for it than this.
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


async def page(request: web.Request) -> web.Response:
    """`/`: the dashboard."""
    return _file("index.html")


async def static(request: web.Request) -> web.Response:
    """`/static/{name}`: a file that the page uses."""
    name = request.match_info["name"]
    return _file(name) if name in names() else refusal(404, "There is no such file.")


async def description(request: web.Request) -> web.Response:
    """`/openapi.json`: this port in OpenAPI's words."""
    return web.Response(body=_read_beside("openapi.json"), content_type="application/json", charset="utf-8")


@cache
def names() -> frozenset[str]:
    """The files there are."""
    return frozenset(item.name for item in (_HERE / "static").iterdir() if item.is_file())


@cache
def _read_beside(*path: str) -> bytes:
    return _HERE.joinpath(*path).read_bytes()


def _file(name: str) -> web.Response:
    kind = _TYPES.get(name[name.rfind(".") :], "application/octet-stream")
    return web.Response(body=_read_beside("static", name), content_type=kind, charset="utf-8", headers=HEADERS)
