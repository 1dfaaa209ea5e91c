"""How a policy came to be chosen, and what becomes of a CONNECT, in words.

The router has decided already; here its tables are only read again to say which line of them it was.
"""

from __future__ import annotations

from collections.abc import Iterator

from proxy.config.settings import Settings
from proxy.lab.explain.layout import columns
from proxy.lab.routing import AppRequest, Chosen
from proxy.retry.routing import Upstream, split_authority
from proxy.transport.egress_guard import Guard

_CONNECT = {
    "auto": "a tunnel; only cleartext HTTP as its very first bytes, a request line or HTTP/2's preface, makes calls of "
    "it, and nothing in an encrypted one can be retried",
    "tunnel": "a blind tunnel: connecting is retried, nothing in it can be",
    "intercept": "TLS is ended here, and the requests inside are calls like any other",
    "deny": "refused: 403",
}


def how_chosen(settings: Settings, chosen: Chosen, ask: AppRequest) -> str:
    """Which host pattern or prefix it was."""
    upstream = settings.router.by_name.get(chosen.policy.upstream)
    if upstream is None:
        return f"since no upstream names {chosen.request.authority}: the policy of defaults"
    place = _place(ask)
    if place is not None:
        pattern = _pattern(upstream, *place)
        if pattern:
            return f"by host {pattern}"
    return "by its gRPC service" if ask.is_grpc else f"by prefix {upstream.prefix}"


def _place(ask: AppRequest) -> tuple[str, int] | None:
    """The place that the request names: in its url, else in its Host."""
    if ask.url.startswith("/"):
        host = next((value for name, value in ask.headers if name.lower() == "host"), None)
        return split_authority(host, 80) if host else None
    scheme, _, rest = ask.url.partition("://")
    for end in "/?#":
        rest = rest.partition(end)[0]
    return split_authority(rest.rpartition("@")[2], 443 if scheme.lower() == "https" else 80)


def _pattern(upstream: Upstream, host: str, port: int) -> str:
    """The pattern that the router takes: exact beats glob, longer beats shorter, then file order."""
    matching = [pattern for pattern in upstream.hosts if pattern.matches(host, port)]
    ranked = sorted(matching, key=lambda pattern: (pattern.is_glob, -len(str(pattern))))
    return str(ranked[0]) if ranked else ""


def connects(settings: Settings, authority: str) -> Iterator[str]:
    """What becomes of a CONNECT to this host:port."""
    rows = list(connect_rows(settings, authority))
    if rows[0][0] == "refused":
        yield f"  refused: {rows[0][1]}"
    else:
        yield from columns(rows)


def connect_rows(settings: Settings, authority: str) -> list[tuple[str, str]]:
    """The same as rows of a name and a text."""
    place = split_authority(authority, 443)
    if place is None or authority.endswith(":"):
        return [("refused", "400, outcome bad_request (this is no host:port)")]
    router, loopback = settings.router, settings.listen[0].is_loopback
    ports = settings.connect_ports_on(loopback=loopback)
    upstream = router.by_authority(authority, 443)
    rows = []
    if upstream is None:
        unmatched = settings.unmatched_on(loopback=loopback)
        rows.append(("upstream", f"no upstream names {authority}: unmatched is {unmatched}"))
        mode = "deny" if unmatched == "deny" or router.fallback.connect == "deny" else "tunnel"
    else:
        rows.append(("upstream", f"{upstream.name}, by host {_pattern(upstream, *place)}"))
        mode = upstream.connect
    if ports is not None and place[1] not in ports | router.named_ports:
        rows.append(("connect", f"refused: 403, limits.connect_ports does not have {place[1]}"))
    else:
        rows.append(("connect", f"{mode}: {_CONNECT[mode]}"))
    return rows


def notes(settings: Settings, chosen: Chosen, ask: AppRequest) -> Iterator[str]:
    """What a reader should know about this way of asking."""
    upstream = settings.router.by_name.get(chosen.policy.upstream)
    if ask.url.lower().startswith("https://"):
        mode = upstream.connect if upstream is not None else "tunnel"
        if mode != "intercept":
            yield (
                f"most clients send CONNECT for an https url under HTTPS_PROXY, and with connect: {mode} nothing in "
                "that tunnel can be retried; what follows holds for requests that the proxy sees"
            )


def denied(settings: Settings, chosen: Chosen) -> str:
    """Why the place may not be reached, "" where it may or only a look-up of its name could tell."""
    if chosen.policy.target is not None and chosen.policy.target.endpoints:
        return ""  # an upstream's own url
    place = split_authority(chosen.request.authority, 80)
    if place is None:
        return ""
    own = [*settings.listen, *((settings.admin.listen,) if settings.admin else ()), settings.probe]
    listeners = [(each.host, each.port) for each in own if each is not None and each.unix is None]
    guard = Guard(settings.deny_destinations, listeners)
    return guard.refuses(place[0], place[1], strict=not settings.listen[0].is_loopback)
