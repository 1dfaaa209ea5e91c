"""Routing of a request before it becomes a call: its upstream and policy, or the reason why it is refused.

A request that is refused here has cost the upstream nothing, and the answer names the remedy if there is one. The rules
are the contract's, section 3 "Which policy" and section 6; the router itself is `proxy.retry.policies.routing`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from proxy.config.settings import Settings
from proxy.forward.headers import is_loop
from proxy.retry.facts import STEERING_FIELDS, Outcome, Request, is_grpc
from proxy.retry.policies.policy import Policy
from proxy.retry.policies.routing import ClimbsOut, Endpoint, Upstream, split_authority
from proxy.web_origin import PORTS, is_literal, is_own_origin
from proxy.wire.head import RequestHead

_STEERING = frozenset(name.encode() for name in STEERING_FIELDS)
#: The most prefixes that a 404 names, and the most characters of each.
_PREFIXES_NAMED, _PREFIX_SHOWN = 8, 60
#: Values of Sec-Fetch-Site for requests that no other site's page made (Fetch Metadata, section 2.4).
_NOT_CROSS = frozenset({"same-origin", "same-site", "none"})


@dataclass(frozen=True, slots=True)
class Exposure:
    """The facts about a listener that decide what its requests may do: who can reach it, and which app a connection to
    it names. `loopback`: only this machine; `unix`: only users who may open its file. `app` and `user`: the app's name
    by the listener, and by the peer of a unix socket; `named`: the name that the app had when it sent the CONNECT which
    the connection's requests are inside of.
    """

    loopback: bool
    unix: bool = False
    app: str = ""
    user: str = ""
    named: str = ""


@dataclass(frozen=True, slots=True)
class Inside:
    """The CONNECT that a connection's requests are inside of: the authority that it named, the scheme of the requests,
    and the name that the app's TLS has asked for, without a port.
    """

    authority: str
    scheme: Literal["http", "https"]
    sni: str = ""

    def same(self, authority: str) -> bool:
        """Whether `authority`, which a request inside the CONNECT names, is the CONNECT's own. An empty one counts as
        the same.
        """
        if not authority or authority == self.authority:
            return True
        port = PORTS[self.scheme]
        return split_authority(authority, port) == split_authority(self.authority, port)


@dataclass(slots=True)
class Rejection(Exception):  # noqa: N818 - named for the answer that it carries
    """Raised for a request that is refused, with the answer to give. `error`: the RFC 9209 error type. `grpc_status`:
    the status for gRPC calls, if it is not the one that `status` maps to. `title`: replaces the status's own phrase.
    """

    status: int
    detail: str
    outcome: Outcome = Outcome.BAD_REQUEST
    error: str = "http_request_error"
    grpc_status: int | None = None
    title: str = ""


def denied(detail: str) -> Rejection:
    """Return the rejection of a request whose destination the configuration, or the protection of this machine, does
    not allow.
    """
    return Rejection(403, detail, Outcome.DENIED, "http_request_denied")


@dataclass(slots=True)
class Admitted:
    """A request that may become a call. `rest`: the path after the prefix, if a prefix led to the upstream. `scheme`:
    the scheme that the request asks for. `by_service`: whether its gRPC service led to the upstream.
    """

    upstream: Upstream
    request: Request
    policy: Policy
    scheme: str
    rest: bytes | None = None
    by_service: bool = False
    #: The destination, host[:port], if the upstream has no endpoints of its own.
    place: str = ""


def admit(
    head: RequestHead, settings: Settings, exposure: Exposure, via: str, inside: Inside | None = None
) -> Admitted | None:
    """Find the upstream and the policy of a request that is not a CONNECT, or is inside one. Raises Rejection. None if
    the request asks this proxy itself: `OPTIONS *` with a Host that no upstream has (RFC 9110 section 9.3.7).
    `exposure`: who can reach the listener by which the request came; `via`: the proxy's name in Via lines, to detect
    loops; `inside`: the CONNECT that the request came inside, None for none.
    """
    specials = head.specials
    if is_loop(head, via):
        raise looping()
    if head.is_http2 and not head.authority:  # RFC 9113 section 8.3.1; HTTP/1's own grammar refuses such a head
        raise Rejection(400, "the request has neither :authority nor Host")
    router = settings.router
    rest: bytes | None = None
    by_service = False
    asked = ""
    authority = head.authority
    if inside is not None:
        scheme: str = inside.scheme
        authority, upstream = _inside(head, inside, settings, exposure)
        asked = authority if inside.same(authority) else inside.authority
    elif head.form == "absolute":
        scheme = head.scheme
        upstream = router.by_authority(head.authority, PORTS[scheme]) or _unmatched(head.authority, settings, exposure)
    else:
        scheme = "http"
        found = router.by_authority(head.authority, 80) if head.authority else None
        if found is None and head.form == "asterisk":
            return None
        if found is None:
            by_service = head.is_http2 and is_grpc(head)
            found, rest = _by_service(head, settings) if by_service else _by_prefix(head, settings, exposure)
            refused = _may_be_a_pages(head, found.name) if exposure.loopback and not exposure.unix else None
            if refused is not None:
                raise refused
        upstream = found
    path = head.path if rest is None else rest
    if (by_service or rest is not None) and upstream.target.endpoints:
        authority = upstream.target.endpoints[0].authority
    plain = _STEERING.isdisjoint(specials)
    timed = not plain and _STEERING.intersection(specials) == {b"grpc-timeout"}
    request = Request(head.method, authority, head.path.decode("latin-1"), head, plain, timed)
    policy = upstream.policy if not upstream.routes else upstream.policy_for(head.method, path, head)
    if policy.target.protocol == "http/1.1" and head.is_http2 and is_grpc(head):
        raise Rejection(501, f"gRPC needs HTTP/2, and `protocol` of the upstream {upstream.name} is http/1.1")
    return Admitted(upstream, request, policy, scheme, rest, by_service, asked or authority)


def looping() -> Rejection:
    """Return the rejection of a request that this proxy has already forwarded."""
    return Rejection(508, "the request came back to the proxy that sent it", error="proxy_loop_detected")


def _unmatched(authority: str, settings: Settings, exposure: Exposure) -> Upstream:
    if settings.unmatched_on(loopback=exposure.loopback) == "deny":
        where = "" if settings.unmatched_set else " on a listener off loopback"
        raise denied(f"no upstream names {authority}, and `unmatched` is deny{where}: name it in an upstream's `hosts`")
    return settings.router.unmatched(authority)


def _inside(head: RequestHead, inside: Inside, settings: Settings, exposure: Exposure) -> tuple[str, Upstream]:
    """Return a request's target inside a CONNECT, and its upstream: the CONNECT's authority decides (contract, section
    6). `inside`: that CONNECT; `exposure`: who can reach the listener by which the request came. Raises Rejection.
    """
    absolute = head.form == "absolute"
    if head.method == "CONNECT":
        raise Rejection(400, "a CONNECT inside a CONNECT")
    port = PORTS[inside.scheme]
    upstream = settings.router.by_authority(inside.authority, port) or _unmatched(inside.authority, settings, exposure)
    is_its = inside.same(head.authority) or (head.is_http2 and _is_another_of(upstream, head, inside, settings))
    if not is_its or (absolute and head.scheme != inside.scheme):
        asked = f"{head.scheme}://{head.authority}" if absolute else f"Host {head.authority}"
        raise Rejection(421, f"{asked} inside a CONNECT to {inside.authority}")
    return head.authority or inside.authority, upstream


def _is_another_of(upstream: Upstream, head: RequestHead, inside: Inside, settings: Settings) -> bool:
    """Whether a request inside the CONNECT `inside` names the host that the app's TLS asked for, or another host of the
    CONNECT's upstream. If the request names no port, both the scheme's and the CONNECT's are tried.
    """
    usual = PORTS[inside.scheme]
    connect = split_authority(inside.authority, usual)
    named = split_authority(head.authority, 0)
    if named is None or connect is None:
        return False
    ports = {named[1]} if named[1] else {usual, connect[1]}
    if named[0] == inside.sni and ports & {usual, connect[1]}:
        return True
    return any(settings.router.by_authority(head.authority, port) is upstream for port in ports)


def _by_prefix(head: RequestHead, settings: Settings, exposure: Exposure) -> tuple[Upstream, bytes]:
    """Return the upstream whose prefix the path begins with, and the path after the prefix. `exposure`: who can reach
    the listener by which the request came. Raises Rejection.
    """
    try:
        found = settings.router.by_prefix(head.path)
    except ClimbsOut:
        raise Rejection(400, "the path climbs above its prefix") from None
    if found is None:
        detail = "no upstream has this host, or a prefix that the path begins with" + _prefixes(
            head, settings, exposure
        )
        raise Rejection(404, detail, error="destination_not_found")
    return found


def _by_service(head: RequestHead, settings: Settings) -> tuple[Upstream, None]:
    """Return the upstream that names a gRPC call's service, and None, since the path stays whole. Raises Rejection."""
    found = settings.router.by_service(head.path)
    if found is None:
        detail = "no upstream has this authority, or names this gRPC service in `services`"
        raise Rejection(404, detail, error="destination_not_found")
    return found, None


def _may_be_a_pages(head: RequestHead, upstream: str) -> Rejection | None:
    specials = head.specials
    sites = head.get_all("sec-fetch-site") if b"sec-fetch-site" in specials else ()
    origins = head.get_all("origin") if b"origin" in specials else ()
    return may_be_a_pages(head.authority, sites, origins, upstream)


def may_be_a_pages(authority: str, sites: Iterable[str], origins: Iterable[str], upstream: str) -> Rejection | None:
    """Return the rejection of a request for a prefix, on a loopback listener, that a web page may have sent; else None.

    `authority` is the request's Host, `sites` and `origins` are the values of its Sec-Fetch-Site and Origin lines,
    `upstream` is the name of the upstream that it asks for (contract, section 3, "Which policy"). Browsers send no
    Sec-Fetch-Site to destinations that they hold for untrustworthy, http://0.0.0.0 for one, so a foreign Origin alone
    is a sign of a page too; a value that no browser sends counts as a missing field.
    """
    if authority and not is_literal(authority):
        return Rejection(
            421,
            f"Host {authority} is neither an IP address nor localhost: "
            f"list the name in `hosts` of the upstream {upstream}",
        )
    site_words = {site.strip(" \t").lower() for site in sites}
    if "cross-site" in site_words or (
        site_words.isdisjoint(_NOT_CROSS) and not all(is_own_origin(origin, authority, "http") for origin in origins)
    ):
        return denied(
            "a page of another site made this request (Sec-Fetch-Site, or an Origin that is not this listener's): "
            f"list a name in `hosts` of the upstream {upstream} and call it by that, or leave Origin out"
        )
    return None


def _prefixes(head: RequestHead, settings: Settings, exposure: Exposure) -> str:
    """Return a clause that lists the first configured prefixes, to help a user on this machine who mistyped one. "" if
    the request came by a listener that other machines can reach (`exposure`), or if a web page could have sent it.
    """
    if not exposure.loopback or _may_be_a_pages(head, "") is not None:
        return ""
    return known_prefixes(settings)


def known_prefixes(settings: Settings) -> str:
    """Return a clause that lists the first configured prefixes."""
    known = settings.router.prefixes
    if not known:
        return "; there are no upstreams with a prefix"
    named = ", ".join(shortened(prefix) for prefix in known[:_PREFIXES_NAMED])
    more = f" and {len(known) - _PREFIXES_NAMED} more" if len(known) > _PREFIXES_NAMED else ""
    return f": there {'is' if len(known) == 1 else 'are'} {named}{more}"


def shortened(prefix: str) -> str:
    """Return a prefix as error messages show it, whatever its length."""
    return prefix if len(prefix) <= _PREFIX_SHOWN else prefix[: _PREFIX_SHOWN - 1] + "…"


def admit_connect(head: RequestHead, settings: Settings, exposure: Exposure, via: str) -> Admitted:
    """Find the upstream of a CONNECT, if the configuration allows the destination. Raises Rejection. `exposure`: who
    can reach the listener by which the request came; `via`: the proxy's name in Via lines, to detect loops.
    """
    if is_loop(head, via):
        raise looping()
    router = settings.router
    authority = head.authority
    named = split_authority(authority, 443)
    port = named[1] if named is not None else 0
    ports = settings.connect_ports_on(loopback=exposure.loopback)
    if ports is not None and port not in ports and port not in router.named_ports:
        raise denied(f"port {port} is not one of `limits.connect_ports`")
    upstream = router.by_authority(authority, port) or _unmatched(authority, settings, exposure)
    if upstream.connect == "deny":
        raise denied(f"`connect` is deny for {upstream.name}")
    request = Request("CONNECT", authority, "", head, plain=_STEERING.isdisjoint(head.specials))
    return Admitted(upstream, request, upstream.policy, "http")


def tunnel_endpoints(upstream: Upstream, authority: str) -> tuple[Endpoint, ...]:
    """Return the endpoints that a tunnel to this authority may dial; () for the authority itself.

    The tunnel carries the app's own TLS, which asks for the authority's name. An endpoint therefore replaces the
    authority only if it has the same host and port, or if the configuration maps the name to the endpoints.
    """
    endpoints = upstream.target.endpoints
    named = split_authority(authority, 443)
    if named is None or not endpoints:
        return ()
    host = named[0].strip("[]")
    if any(end.host.lower() == host for end in endpoints):
        return tuple(end for end in endpoints if end.host.lower() == host and end.port == named[1])
    return endpoints
