"""Who may speak to the admin port: three middlewares (contract, section 10).

A web page that somebody happens to look at must reach nothing here. A name that is made to resolve to loopback (DNS
rebinding) fails on Host; a form or a script of another site fails on Sec-Fetch-Site or Origin; what names neither is
no browser, and is let through. A token, where one is set, is asked of everybody, for everything but the dashboard's
own files: a browser can't send one for a page, and they say nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.typedefs import Handler

from proxy.server.routing import is_literal, is_own_origin

#: What a browser says of a request that its own page, or the address bar, made.
_OWN_SITE = frozenset({"same-origin", "none"})
#: The route names of what needs no token.
OPEN = frozenset({"dashboard", "static"})


@dataclass(frozen=True, slots=True)
class Access:
    """Who is known. `hosts` are names beside IP literals and localhost, with or without port; "" asks for no token."""

    token: str = ""
    hosts: Collection[str] = field(default=())


#: Holds who is known, asked at each request since a reload may change it.
ACCESS: web.AppKey[Callable[[], Access]] = web.AppKey("access")


@web.middleware
async def known_host(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a Host that is not known with 421."""
    host = asked_host(request)
    if host_is_known(host, {name.lower() for name in request.app[ACCESS]().hosts}):
        return await handler(request)
    return refusal(421, f"This port does not answer for the host {host!r}; admin.hosts can list its name.")


@web.middleware
async def token(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a request without the token, where one is set, with 401."""
    wanted = request.app[ACCESS]().token
    if not wanted or request.match_info.route.name in OPEN or _has_token(request, wanted):
        return await handler(request)
    refused = refusal(401, "The admin token is needed: Authorization: Bearer TOKEN.")
    refused.headers["WWW-Authenticate"] = 'Bearer realm="redrive"'
    return refused


@web.middleware
async def own_site(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a request that changes something and that a page of another site made with 403."""
    if request.method in ("GET", "HEAD") or _is_own_site(request):
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


def refusal(status: int, detail: str) -> web.Response:
    """A refusal in a line of plain text."""
    return web.Response(status=status, text=f"{detail}\n")


def _has_token(request: web.Request, wanted: str) -> bool:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    offered = given.strip(" \t").encode("utf-8", "surrogateescape")
    return scheme.lower() == "bearer" and hmac.compare_digest(offered, wanted.encode())


def _is_own_site(request: web.Request) -> bool:
    host = asked_host(request).lower()
    sites, origins = request.headers.getall("Sec-Fetch-Site", ()), request.headers.getall("Origin", ())
    return all(site.lower() in _OWN_SITE for site in sites) and all(
        is_own_origin(origin, host, "http", "https") for origin in origins
    )
