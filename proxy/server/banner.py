"""The first lines of a process: where it listens, whom it knows, and one thing to try.

A few lines whatever the configuration holds, and nothing secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proxy import __version__
from proxy.config.settings import Address, Settings
from proxy.retry.routing import Upstream
from proxy.server.admin.views import endpoint_url

#: Upstreams named at most.
_NAMED = 8


def banner(file: str | None, settings: Settings, listening: Mapping[str, Sequence[Address]]) -> list[str]:
    """Lines for people."""
    lines = [f"redrive {__version__}, configured by {file or 'the defaults alone'}"]
    lines.append(f"listening on {_urls(listening['listen'])}")
    for what in ("admin", "probe"):
        if listening[what]:
            lines[-1] += f", {what} on {_urls(listening[what])}"
    upstreams = settings.router.upstreams
    named = [_line(upstream) for upstream in upstreams[:_NAMED]]
    if len(upstreams) > _NAMED:
        named.append(f"and {len(upstreams) - _NAMED} more")
    lines.append("upstreams: " + ("; ".join(named) or "none named; any host is forwarded under the defaults"))
    example = _try(settings, listening["listen"])
    return [*lines, f"try: {example}"] if example else lines


def _urls(addresses: Sequence[Address]) -> str:
    return " and ".join(str(a) if a.unix is not None else f"http://{a.nearby}" for a in addresses)


def _line(upstream: Upstream) -> str:
    where = ", ".join(endpoint_url(endpoint) for endpoint in upstream.target.endpoints[:2]) or "where the request says"
    more = ", …" if len(upstream.target.endpoints) > 2 else ""
    under = f", prefix {upstream.prefix}" if upstream.prefix is not None else ""
    return f"{upstream.name} ({where}{more}{under})"


def _try(settings: Settings, listening: Sequence[Address]) -> str:
    """A curl line; to an upstream on this machine where there is one, since that needs no internet."""
    address = next((address for address in listening if address.unix is None), None)
    reachable = [u for u in settings.router.upstreams if u.prefix is not None and u.target.endpoints]
    if address is None or not reachable:
        return ""
    local = [u for u in reachable if all(Address(end.host).is_loopback for end in u.target.endpoints)]
    prefix = (local or reachable)[0].prefix or ""
    return f"curl -i http://{address.nearby}{prefix.rstrip('/')}/hello"
