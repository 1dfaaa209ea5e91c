"""The app that a request belongs to, by the configuration's `apps` (contract, section 17).

What names a connection (its listener, the user of a unix socket, the CONNECT that it is inside of) is looked up once;
what names a request (a field, the user of Proxy-Authorization) with each request.
"""

from __future__ import annotations

import base64
import binascii
import socket
import struct
from functools import lru_cache

from proxy.forward.request_plan import Naming
from proxy.retry.apps import PRIORITY_FIELD, Apps, NamedApp
from proxy.retry.facts import Fields, Outcome
from proxy.server.routing import Rejection, denied
from proxy.wire.fields import needle
from proxy.wire.head import RequestHead
from proxy.wire.http1.compiled import CORE

if CORE == "compiled":
    from proxy.wire.http1.scan import read_also

#: `struct ucred` of Linux: pid, uid, gid.
_UCRED = struct.Struct("3i")


def unix_user(sock: object) -> str:
    """The user of the process at the other end of a unix socket, by SO_PEERCRED: its name, or its number if it has no
    name here; "" if the system does not say.
    """
    get = getattr(sock, "getsockopt", None)
    option = getattr(socket, "SO_PEERCRED", None)
    if get is None or option is None:
        return ""
    try:
        _, uid, _ = _UCRED.unpack(get(socket.SOL_SOCKET, option, _UCRED.size))
    except OSError:
        return ""
    import pwd  # imported late, since few sidecars listen on a unix socket

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def proxy_user(head: Fields) -> str:
    """The user of a request's `Proxy-Authorization: Basic`; "" if it names none."""
    values = head.get_all("proxy-authorization")
    kind, _, pair = (values[0] if values else "").partition(" ")
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(pair.strip(), validate=True).partition(b":")[0].decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return ""


def name_of(apps: Apps, head: Fields, listener: str, user: str, connect: str) -> str:
    """The name of the app that a request belongs to, "" if nothing names it. `listener`: the name that its listener
    gives to apps; `user`: the user of the process at the other end of a unix socket; `connect`: the name of the app
    that sent the CONNECT which the request is inside of; each "" if there is none.
    """
    for how in apps.by:
        if how == "listener":
            name = listener
        elif how == "unix_user":
            name = user
        elif how == "proxy_user":
            name = proxy_user(head)
        else:
            values = head.get_all(how)
            name = values[0].strip() if values else ""
        if name:
            return name
    return connect


def app_of(apps: Apps, head: Fields, name: str) -> NamedApp:
    """The app of this name in the configuration `apps`, with the priority of this request: a request may ask for the
    low one, but not for a higher one than its app has.
    """
    app = apps.named(name)
    said = head.get_all(PRIORITY_FIELD)
    return app.lowered() if said and said[0].strip().lower() == "low" else app


@lru_cache(maxsize=8)
def _as_bytes(names: frozenset[str]) -> frozenset[bytes]:
    return frozenset(name.encode() for name in names)


def naming_of(apps: Apps, head: RequestHead) -> Naming:
    """The fields of a request that name its app by the configuration `apps`, with their lines: another request with
    these has the same app. The compiled reader finds these fields in passing from now on.
    """
    names = [PRIORITY_FIELD, *apps.fields]
    if "proxy_user" in apps.by:
        names.append("proxy-authorization")
    raw, lines = head.text(), list[tuple[bytes, bytes]]()
    for name in names:
        mark = needle(name)
        at = head.lowered.find(mark)
        lines.append((mark, raw[at : raw.index(b"\r", at) + 1] if at >= 0 else b""))
    return Naming(tuple(lines), read_also(_as_bytes(apps.never_forwarded)) if CORE == "compiled" else 0)


def not_named(apps: Apps, *, is_proxy: bool) -> Rejection:
    """The rejection of a request whose app has no name, although `apps.required` asks for one. `is_proxy`: the app uses
    redrive as a proxy, so that it can be asked to authenticate with a name (407).
    """
    detail = "apps.required: nothing names the app of this request; see `apps.by` in the configuration"
    if not is_proxy:
        return denied(detail)
    if "proxy_user" in apps.by:
        detail = (
            "apps.required: name the app as the user of the proxy's url, http://NAME:x@HOST:PORT (redrive env --app)"
        )
    return Rejection(407, detail, Outcome.DENIED, "proxy_authentication_required")
