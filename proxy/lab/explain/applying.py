"""The policy that applies to a call and how it was chosen, the handling of a CONNECT, and the reason why a destination
is not allowed. The router has decided already; this module reads the router's tables again to find the line that
decided.
"""

from __future__ import annotations

from proxy.config.problems import did_you_mean
from proxy.config.settings import Settings
from proxy.lab.explain import wording
from proxy.lab.explain.broken import broken
from proxy.lab.explain.ends import LEAST, Play, play
from proxy.lab.explain.question import fate_of_status
from proxy.lab.routing import AppRequest, Chosen
from proxy.observe import masking
from proxy.retry.answers.classification import why_no_read
from proxy.retry.apps import OTHERS, RANKS
from proxy.retry.call.reasons import as_written
from proxy.retry.facts import MappingFields
from proxy.retry.policies.routing import Upstream, split_authority
from proxy.server.app_names import app_of, name_of
from proxy.transport.egress_guard import Guard
from proxy.wire.authority import read_connect
from proxy.wire.errors import BadMessage
from proxy.wire.first_bytes import HTTP1, HTTP2

#: Methods of RFC 9110 and RFC 5789, which `get` and `GTE` are slips of; methods are case-sensitive.
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH")

_CONNECT = {
    "auto": "a tunnel; only cleartext HTTP as its very first bytes, a request line or HTTP/2's preface, makes calls of "
    "it, and nothing in an encrypted one can be retried",
    "tunnel": "a blind tunnel: connecting is retried, nothing inside it can be",
    "intercept": "TLS is ended here, and the requests inside are calls like any other",
    "deny": "refused: 403",
}
_OWN_RETRY = "this is the app's own retry: it pays a retry's price, but is never refused for it"


def applies(settings: Settings, chosen: Chosen, ask: AppRequest) -> list[tuple[str, str]]:
    """The rows, a name and a text each, that say what applies to the request: its upstream, route, strategy, bucket,
    scope and so on. `chosen`: the router's choice; `ask`: the app's request.
    """
    policy = chosen.policy
    upstream = settings.router.by_name.get(policy.upstream)
    by_prefix = upstream is not None and chosen.place is None and not ask.is_grpc
    if upstream is None:
        how = f"since no upstream names {chosen.request.authority}: the policy of defaults"
    elif chosen.place is not None:
        how = f"by host {_pattern(upstream, *chosen.place)}"
    else:
        how = f"by prefix {upstream.prefix}" if by_prefix else "by its gRPC service"
    one = play(settings, chosen, fate_of_status("200"), LEAST, 0.0)
    no_route = "none of its routes match" if upstream and upstream.routes else "none: the upstream has no routes"
    bounds = [each for each in (policy.timeouts.total, one.call.so_far.hints.timeout) if each is not None]
    deadline = min(bounds, default=None)
    codes, hints = policy.classify.service_codes, one.call.so_far.hints
    rows = [
        ("upstream", f"{policy.upstream}, {how}{_at(settings, policy.upstream)}"),
        ("route", f"{policy.route}{_at(settings, policy.upstream, policy.route)}" if policy.route else no_route),
        ("protocol", _protocol(chosen, ask)),
        ("sent to", _endpoints(chosen, by_prefix=by_prefix)),
        ("turns", wording.turns(policy.endpoints, policy.balance)),
        ("breaker", "" if policy.circuit_breaker is None else wording.breaker(policy.circuit_breaker)),
        ("strategy", wording.strategy(policy.strategy)),
        ("bucket", wording.bucket(policy.bucket)),
        *(("rate", wording.bucket(each)) for each in policy.rates),
        ("tokens", wording.tokens(policy)),
        ("estimate", wording.estimated(policy, ask.body)),
        ("ahead", wording.ahead(policy)),
        ("drains", wording.drains(policy)),
        ("credentials", wording.credentials(policy)),
        ("under way", wording.concurrency(policy.concurrency)),
        ("in trouble", wording.in_trouble(policy)),
        ("pushbacks", wording.whose_word(policy)),
        ("scope", wording.scope(policy, one.scope.value)),
        (
            "deadline",
            f"{as_written(deadline)} for all attempts and waits; each attempt: {as_written(policy.timeouts.attempt)}",
        ),
        ("first byte", wording.first_byte(policy, one.call.first_byte)),
        ("looks into", wording.looks(policy) if not one.call.so_far.request.is_grpc else ""),
        ("repeating", _repeating(one)),
        ("if it breaks", broken(one.call.so_far)),
        ("codes", "" if codes is None else wording.codes(codes)),
        ("fallback", wording.fallback(policy, chosen.request)),
        ("mode", "" if policy.mode == "enforce" else f"{policy.mode}: nothing is retried or held"),
        ("via", "" if policy.via else "off: no Via, and X-Redrive-Loop in requests"),
        ("app", _app(settings, ask)),
        ("app says", "X-Retry-Disable: one attempt" if hints.disabled else ""),
        ("app says", _OWN_RETRY if hints.retries_itself else ""),
    ]
    return [row for row in rows if row[1]]


def _app(settings: Settings, ask: AppRequest) -> str:
    """The app that sends the request `ask` to the first listener, as text: its name, priority and weight; "" if the
    configuration names no apps.
    """
    apps = settings.apps
    if apps is None:
        return ""
    fields = MappingFields(ask.headers)
    name = name_of(apps, fields, settings.listen[0].app, "", "")
    app = app_of(apps, fields, name)
    priority = next(word for word, rank in RANKS.items() if rank == app.rank)
    unknown = "" if app.name != OTHERS else ": nothing names it" if not name else ": apps.known does not list its name"
    return f"{app.name}{unknown}; priority {priority}, weight {app.weight}"


def _protocol(chosen: Chosen, ask: AppRequest) -> str:
    """The protocol that is spoken to the upstream when the app sends the request `ask`, and why."""
    if ask.is_grpc:  # its clients speak nothing but HTTP/2
        spoken, why = HTTP2, "its content type is application/grpc"
    else:
        spoken, why = (HTTP2, "--http2") if ask.http2 else (HTTP1, "no --http2, and no gRPC content type")
    target = chosen.policy.target
    protocol, ends = (target.protocol, target.endpoints) if target is not None else ("auto", ())
    if protocol != "auto":
        refused = f"; {why}, so the call is answered UNIMPLEMENTED" if ask.is_grpc and protocol == HTTP1 else ""
        return f"{protocol}, by the key `protocol`{refused}"
    if ask.http2 and not ask.is_grpc and any(end.scheme == "https" for end in ends):
        return f"{HTTP2} or {HTTP1}, as the TLS handshake selects: {why}"
    return f"{spoken}, as the app speaks: {why}"


def _at(settings: Settings, upstream: str, route: str = "") -> str:
    """The text ` (file:line)` with the place where the configuration of an upstream or a route begins."""
    tree = settings.provenance.policies.get((upstream, route))
    return f" ({tree.mark})" if tree is not None and tree.mark.line else ""


def _endpoints(chosen: Chosen, *, by_prefix: bool) -> str:
    """The urls that the call goes to, masked, as text. `by_prefix`: the request was routed by the upstream's prefix, so
    that the path of each endpoint's url is put before the request's path.
    """
    ends = chosen.policy.target.endpoints if chosen.policy.target is not None else ()
    if not ends:
        return f"{chosen.request.authority}, where the request says"
    path = masking.target(chosen.request.path)
    return ", ".join(
        f"unix:{end.unix}, {path}"
        if end.unix
        else f"{end.scheme}://{end.authority}{end.shown_path if by_prefix else ''}{path}"
        for end in ends
    )


def _repeating(one: Play) -> str:
    call = one.call.so_far
    method = call.request.method
    slip = "" if method in _METHODS else did_you_mean(method, _METHODS)  # not refused: any token is a method
    why = wording.why_idempotent(call) or f"{method} is not idempotent{slip}"
    if no_read := "" if call.is_idempotent() else why_no_read(call.policy.classify, call.request):
        why += f" ({no_read})"
    rule = "" if call.is_idempotent() else f"; unsafe_methods is {call.policy.classify.unsafe_methods}"
    if call.policy.strategy.hedging_delay is None:
        return why + rule
    if not one.call.hedged:
        return f"{why}{rule}: not hedged, one attempt after another"
    vouched = call.policy.strategy.safe_methods and not call.is_idempotent()
    return f"{why}, but its service config says that it is safe: hedged" if vouched else f"{why}{rule}: hedged"


def _pattern(upstream: Upstream, host: str, port: int) -> str:
    """The pattern among the upstream's hosts by which the router finds the upstream for this host and port: exact beats
    glob, longer beats shorter, then file order. "" if none matches.
    """
    matching = [pattern for pattern in upstream.hosts if pattern.matches(host, port)]
    ranked = sorted(matching, key=lambda pattern: (pattern.is_glob, -len(str(pattern))))
    return str(ranked[0]) if ranked else ""


def connect_rows(settings: Settings, authority: str) -> list[tuple[str, str]]:
    """The handling of a CONNECT to `authority`, host:port: rows of a name and a text."""
    place = split_authority(authority, 443)
    try:
        read_connect(authority.encode(errors="surrogateescape"))
    except BadMessage:
        place = None
    if place is None:
        return [("refused", "400, outcome bad_request (this is not host:port)")]
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
        if upstream is not None and upstream.policy.credentials is not None and mode in ("auto", "tunnel"):
            rows.append(("credentials", "none go into a blind tunnel: what the app sends in it stays as it is"))
    return rows


def notes(settings: Settings, chosen: Chosen, ask: AppRequest) -> list[str]:
    """Warnings, as sentences, about a request that most clients would send in another way than the one that is
    explained, as an https url through CONNECT.
    """
    upstream = settings.router.by_name.get(chosen.policy.upstream)
    mode = upstream.connect if upstream is not None else "tunnel"
    if mode == "intercept" or not ask.url.lower().startswith("https://"):
        return []
    return [
        f"most clients send CONNECT for an https url under HTTPS_PROXY, and with connect: {mode} nothing in "
        "that tunnel can be retried; what follows holds for requests that the proxy sees"
    ]


def denied(settings: Settings, chosen: Chosen) -> str:
    """The reason why the destination is denied; "" if it is allowed, or if only a look-up of its name could tell."""
    if chosen.policy.target is not None and chosen.policy.target.endpoints:
        return ""  # an upstream's own url
    place = split_authority(chosen.request.authority, 80)
    if place is None:
        return ""
    own = [*settings.listen, *((settings.admin.listen,) if settings.admin else ()), settings.probe]
    listeners = [(each.host, each.port) for each in own if each is not None and each.unix is None]
    guard = Guard(settings.deny_destinations, listeners)
    return guard.refuses(place[0], place[1], strict=not settings.listen[0].is_loopback)
