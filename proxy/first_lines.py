"""The first lines that a process prints, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from proxy import __version__
from proxy.admin import upstream_view
from proxy.config.settings import Address, Settings
from proxy.retry.policies.routing import Upstream

#: The most upstreams that the lines name.
_NAMED = 8


def first_lines(file: str | None, settings: Settings, listening: Mapping[str, Sequence[Address]]) -> list[str]:
    """The first lines of a process, for people: its configuration (`file`, None for the defaults alone), where it
    listens (`listening`: the addresses by setting), its upstreams, and one thing to try. They are a few lines, however
    long the configuration is, and contain nothing secret.
    """
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
    endpoints = upstream.target.endpoints[:2]
    where = ", ".join(map(upstream_view.endpoint_url, endpoints)) or "where the request says"
    more = ", …" if len(upstream.target.endpoints) > 2 else ""
    under = f", prefix {upstream.prefix}" if upstream.prefix is not None else ""
    return f"{upstream.name} ({where}{more}{under})"


def _try(settings: Settings, listening: Sequence[Address]) -> str:
    """The curl command that the first lines of a process suggest to its user: to an address in `listening`, for an
    upstream that can be reached by its prefix, preferably one on this machine, which needs no internet. "" if there is
    no such address or upstream.
    """
    address = next((address for address in listening if address.unix is None), None)
    reachable = [u for u in settings.router.upstreams if u.prefix is not None and u.target.endpoints]
    if address is None or not reachable:
        return ""
    local = [u for u in reachable if all(Address(end.host).is_loopback for end in u.target.endpoints)]
    prefix = (local or reachable)[0].prefix or ""
    return f"curl -i http://{address.nearby}{prefix.rstrip('/')}/hello"
