"""Who may speak to the admin port (contract, section 10).

Law: a web page that somebody happens to look at must reach nothing here. A name that is made to resolve to loopback
(DNS rebinding) fails on Host; a form or a script of another site fails on Sec-Fetch-Site or Origin; what neither
names is no browser, and is let through. A token, where one is set, is asked of everybody, for everything but the
dashboard's own files: a browser can't send one for a page, and they say nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection
from dataclasses import dataclass

from proxy.server.admin.asked import Asked, Reply, text
from proxy.server.admin.dashboard import is_static
from proxy.server.admin.port import Guard
from proxy.server.admission import is_literal, is_own_origin

#: What a browser says of a request that its own page, or the address bar, made.
_OWN_SITE = frozenset({"same-origin", "none"})


@dataclass(frozen=True, slots=True)
class Access:
    """Who is known. `hosts` are names beside IP literals and localhost, with or without port; "" asks for no token."""

    token: str = ""
    hosts: Collection[str] = ()


def guard(access: Callable[[], Access]) -> Guard:
    """What refuses strangers; `access` is asked each time, since a reload may change it."""

    def refused(asked: Asked) -> Reply | None:
        known = access()
        if not host_is_known(asked.host, {name.lower() for name in known.hosts}):
            told = f"This port does not answer for the host {asked.host!r}; admin.hosts can list its name."
            return text(told, 421)
        if known.token and not is_static(asked.path) and not _has_token(asked, known.token):
            told = "The admin token is needed: Authorization: Bearer TOKEN."
            return text(told, 401, WWW_Authenticate='Bearer realm="redrive"')
        if asked.method not in ("GET", "HEAD") and not _own_site(asked):
            return text("A request that changes something may not come from another site.", 403)
        return None

    return refused


def host_is_known(host: str, names: Collection[str]) -> bool:
    """Whether a Host field is an IP literal (not an unspecified address), localhost or one of these names."""
    host = host.lower()
    name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
    return name in names or host in names or is_literal(name)


def _has_token(asked: Asked, token: str) -> bool:
    scheme, _, given = asked.field("authorization").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip(" \t").encode("latin-1"), token.encode())


def _own_site(asked: Asked) -> bool:
    host = asked.host.lower()
    sites, origins = asked.fields.get_all("sec-fetch-site"), asked.fields.get_all("origin")
    return all(site.lower() in _OWN_SITE for site in sites) and all(
        is_own_origin(origin, host, "http", "https") for origin in origins
    )
