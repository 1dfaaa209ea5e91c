"""Routing for the lab: from an app's request to the policy that the proxy would find, by the router that serves
traffic.

An absolute url is a forward request, chosen by its host; a url that begins with `/` is a reverse request, chosen by
`Host`, else by prefix (contract, section 3, "Which policy"). If listeners differ in what they let through, a call comes
in by the first one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from proxy.config.settings import Settings
from proxy.retry.facts import MappingFields, Outcome, Request, first, is_grpc_media
from proxy.retry.policies.policy import Policy
from proxy.retry.policies.routing import ClimbsOut, Upstream, split_authority
from proxy.server.app_names import app_of, name_of, not_named
from proxy.server.routing import known_prefixes, may_be_a_pages
from proxy.wire.authority import read_authority

_ABSOLUTE = re.compile(r"(https?)://([^/?]*)(.*)", re.IGNORECASE)
#: A character that no request line has within its target.
_NO_TARGET = re.compile(r"[\x00-\x20\x7f]")


@dataclass(frozen=True, slots=True)
class AppRequest:
    """An app's request. `url` is absolute, or origin-form (chosen by Host, service or prefix). `http2`: the app speaks
    HTTP/2 even if the request would not need it. `body`: the body, if more than its size is known.
    """

    method: str = "GET"
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body_size: int = 0
    http2: bool = False
    body: bytes = b""

    @property
    def is_grpc(self) -> bool:
        """Whether this is a gRPC call."""
        return any(name.lower() == "content-type" and is_grpc_media(value) for name, value in self.headers)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The policy that the router chose for a call, and the request in the form that the call's decisions use. `place`
    is the host and port by which the upstream was found; None if it was found by a prefix or a service.
    """

    request: Request
    policy: Policy
    place: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class RefusedCall:
    """A call that no policy applies to, and the answer that the proxy gives to it."""

    outcome: Outcome
    status: int
    why: str


def choose(settings: Settings, ask: AppRequest) -> Chosen | RefusedCall:
    """The policy of a call, found as the proxy's listeners find it, and the app that it belongs to."""
    fields, apps = MappingFields(ask.headers), settings.apps
    if apps is None:
        return _choose(settings, ask, fields)
    name = name_of(apps, fields, settings.listen[0].app, "", "")
    if apps.required and not name:
        refused = not_named(apps, is_proxy=_ABSOLUTE.fullmatch(ask.url) is not None)
        return RefusedCall(refused.outcome, refused.status, refused.detail)
    chosen = _choose(settings, ask, fields)
    if isinstance(chosen, Chosen):
        chosen.request.app = app_of(apps, fields, name)
    return chosen


def _choose(settings: Settings, ask: AppRequest, fields: MappingFields) -> Chosen | RefusedCall:
    if _NO_TARGET.search(ask.url):
        return RefusedCall(Outcome.BAD_REQUEST, 400, "the request line is malformed")
    if "#" in ask.url:
        return RefusedCall(Outcome.BAD_REQUEST, 400, "the request target has a fragment")
    match = _ABSOLUTE.fullmatch(ask.url)
    if match is None:
        return _by_host_or_prefix(settings, ask, fields)
    authority, default_port = _authority(match)
    place = place_of(ask.url)
    if place is None:
        return RefusedCall(Outcome.BAD_REQUEST, 400, "the url's host or port is not valid")
    path = match[3] if match[3].startswith("/") else f"/{match[3]}"
    if ask.method == "OPTIONS" and not match[3]:
        path = "*"  # RFC 9112 section 3.2.4
    upstream = settings.router.by_authority(authority, default_port)
    if upstream is None and settings.unmatched_on(loopback=settings.listen[0].is_loopback) == "deny":
        return RefusedCall(Outcome.DENIED, 403, "no upstream names this host, and unmatched is deny")
    return _chosen(upstream or settings.router.unmatched(authority), ask.method, authority, path, fields, place)


def place_of(url: str) -> tuple[str, int] | None:
    """The host and port of an absolute url, as the router compares them; None if they are not valid."""
    match = _ABSOLUTE.fullmatch(url)
    if match is None:
        return None
    authority, default_port = _authority(match)
    if not read_authority(authority.encode(errors="surrogateescape")):
        return None
    return split_authority(authority, default_port)


def _authority(url: re.Match[str]) -> tuple[str, int]:
    """The authority of an absolute url that _ABSOLUTE matched, without a user, and the default port of its scheme."""
    return url[2].rpartition("@")[2].lower().removesuffix(":"), 443 if url[1].lower() == "https" else 80


def _by_host_or_prefix(settings: Settings, ask: AppRequest, fields: MappingFields) -> Chosen | RefusedCall:
    host = (first(fields, "host") or "").lower().removesuffix(":")
    upstream = settings.router.by_authority(host, 80) if host else None
    if upstream is not None:
        return _chosen(upstream, ask.method, host, ask.url, fields, split_authority(host, 80))
    raw = ask.url.encode(errors="surrogateescape")
    found: tuple[Upstream, bytes] | None
    if ask.is_grpc:
        named = settings.router.by_service(raw)
        found = None if named is None else (named, raw)
    else:
        try:
            found = settings.router.by_prefix(raw)
        except ClimbsOut:
            return RefusedCall(Outcome.BAD_REQUEST, 400, "the path climbs out of its prefix")
    if found is None:
        what = "gRPC service" if ask.is_grpc else f"prefix{known_prefixes(settings)}"
        return RefusedCall(Outcome.BAD_REQUEST, 404, f"no upstream has this Host or {what}")
    listener = settings.listen[0]
    if listener.is_loopback and listener.unix is None:
        refused = may_be_a_pages(host, fields.get_all("sec-fetch-site"), fields.get_all("origin"), found[0].name)
        if refused is not None:
            return RefusedCall(refused.outcome, refused.status, refused.detail)
    upstream, rest = found
    endpoints = upstream.target.endpoints
    authority = endpoints[0].authority if endpoints else (host or upstream.name)
    return _chosen(upstream, ask.method, authority, rest.decode(errors="surrogateescape"), fields)


def _chosen(
    upstream: Upstream,
    method: str,
    authority: str,
    path: str,
    fields: MappingFields,
    place: tuple[str, int] | None = None,
) -> Chosen:
    policy = upstream.policy_for(method, path.encode(errors="surrogateescape"), fields)
    return Chosen(Request(method, authority, path, fields), policy, place)
