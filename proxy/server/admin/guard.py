"""Who may speak to the admin port (contract, section 10).

Law: a web page that somebody happens to look at must reach nothing here. A name that is made to resolve to loopback
(DNS rebinding) fails on Host; a form or a script of another site fails on Sec-Fetch-Site or Origin; what neither
names is no browser, and is let through. A token, where one is set, is asked of everybody, for everything but the
dashboard's own files: a browser can't send one for a page, and they say nothing.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from proxy.server.admin.dashboard import is_static

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Middleware = Callable[[web.Request, Handler], Awaitable[web.StreamResponse]]

#: What a browser says of a request that its own page, or the address bar, made.
_OWN_SITE = frozenset({"same-origin", "none"})


@dataclass(frozen=True, slots=True)
class Access:
    """Who is known. `hosts` are names beside IP literals and localhost, with or without port; "" asks for no token."""

    token: str = ""
    hosts: Collection[str] = ()


def quiet() -> logging.Logger:
    """The logger of admin and probe. What is no HTTP is answered with 400, and is no news: anybody can send it, and a
    traceback of it would repeat it.
    """
    logger = logging.getLogger("redrive.admin")
    if not logger.filters:
        logger.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
    return logger


def guard(access: Callable[[], Access]) -> Middleware:
    """A middleware that refuses strangers; `access` is asked each time, since a reload may change it."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        host, known = request.headers.get("Host", ""), access()
        if not host_is_known(host, {name.lower() for name in known.hosts}):
            return refusal(421, f"This port does not answer for the host {host!r}; admin.hosts can list its name.")
        if known.token and not is_static(request.path) and not _has_token(request, f"Bearer {known.token}".encode()):
            refused = refusal(401, "The admin token is needed: Authorization: Bearer TOKEN.")
            refused.headers["WWW-Authenticate"] = 'Bearer realm="redrive"'
            return refused
        if request.method not in ("GET", "HEAD") and not _own_site(request, host):
            return refusal(403, "A request that changes something may not come from another site.")
        response = await handler(request)
        if not response.prepared:
            response.headers.setdefault("Cache-Control", "no-store")
            response.headers.setdefault("X-Content-Type-Options", "nosniff")
        return response

    return middleware


def host_is_known(host: str, names: Collection[str]) -> bool:
    """Whether a Host field is an IP literal, localhost or one of these names."""
    host = host.lower()
    name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
    if name == "localhost" or name in names or host in names:
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _has_token(request: web.Request, wanted: bytes) -> bool:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    offered = f"{scheme.capitalize()} {given.strip()}".encode("utf-8", "surrogateescape")
    return hmac.compare_digest(offered, wanted)


def _own_site(request: web.Request, host: str) -> bool:
    ours = (f"http://{host.lower()}", f"https://{host.lower()}")
    sites, origins = request.headers.getall("Sec-Fetch-Site", ()), request.headers.getall("Origin", ())
    return all(site.lower() in _OWN_SITE for site in sites) and all(origin.lower() in ours for origin in origins)


def refusal(status: int, detail: str) -> web.Response:
    """A problem in plain text: one line."""
    return web.Response(status=status, text=detail + "\n")
