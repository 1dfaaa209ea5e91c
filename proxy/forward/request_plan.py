"""A request and its destination: all that is known about a call before anything has happened."""

from __future__ import annotations

from typing import Any

from proxy.forward.edits import Edits, edits_of
from proxy.forward.headers import (
    attempt_fields,
    is_plain,
    plain_lines,
    request_lines,
    via_line,
    via_name,
    way_line,
)
from proxy.retry.answers.classification import is_plain_end, is_plain_success
from proxy.retry.call.broken_answers import may_be_kept, may_break
from proxy.retry.call.request_hints import may_start_undecided, read_grpc_timeout
from proxy.retry.facts import Reply, Request, is_grpc
from proxy.retry.policies.policy import Policy
from proxy.retry.policies.routing import Router, Target, Upstream
from proxy.retry.scopes.scope_state import ScopeState
from proxy.transport.origins import Destination, Origin
from proxy.transport.pool import Pool
from proxy.wire.first_bytes import HTTP1, HTTP2
from proxy.wire.head import CHUNKED, PreparedRequest, RequestHead, ResponseHead, Trailers
from proxy.wire.http1.compiled import CORE

if CORE == "compiled":
    from proxy.wire.http1.scan import same_naming

_NEVER = float("inf")
_NO_NAMES: frozenset[bytes] = frozenset()
#: Fields whose value does not decide the destination or the policy.
_ASIDE = frozenset({b"content-length", b"grpc-timeout"})
#: The number of plans that a connection keeps beside the last one, for requests that take turns on it.
PLANS = 4
#: The most trailers that a plan remembers: one method has few different ones.
_ENDS = 16


def destination_of(
    head: RequestHead, target: Target, pool: Pool, *, scheme: str, place: str, strict: bool
) -> Destination:
    """Return the destination of a request. `target`: the destination that the upstream's configuration gives; if it
    names no endpoints, the request goes to the address that it names itself, `scheme` and `place` (host[:port]).
    `strict`: loopback addresses are denied; `pool`: the connection pool, which knows the endpoints.
    """
    wanted = target.protocol
    return pool.destination(
        target,
        scheme,
        place,
        strict=strict,
        http2=head.is_http2 if wanted == "auto" else wanted == "http/2",  # `auto`: what the app spoke
        either=head.is_http2 and wanted == "auto" and not is_grpc(head),
    )


class Naming:
    """The fields of a request that name its app, with their values. Another request in which these fields have the same
    lines comes from the same app.

    lines: tuple[tuple[bytes, bytes], ...]   of each field: the bytes with which its line begins in lower case, a line
                                             feed included, and the whole line as it came, b"" if there is none
    reading: int   the number of these fields' names by which compiled code finds them in passing
                   (`proxy.wire.http1.scan.read_also`); 0 if it does not
    """

    __slots__ = ("lines", "reading")

    def __init__(self, lines: tuple[tuple[bytes, bytes], ...], reading: int) -> None:
        self.lines = lines
        self.reading = reading

    def is_same(self, head: RequestHead, like: RequestHead) -> bool:
        """Whether a request with this head comes from the same app: each field that names its app has the line of this
        object, and no other. `like`: the head of a request that has these lines.
        """
        if self.reading:
            known = same_naming(head, like, self.reading)
            if known >= 0:
                return known == 1
        return head.has_lines_of(like) or self._is_in(head)

    def _is_in(self, head: RequestHead) -> bool:
        """The same by a search in the head's text."""
        raw, lowered = head.text(), head.lowered
        for mark, line in self.lines:
            at = lowered.find(mark)
            if at < 0:
                if line:
                    return False
            elif not line or raw[at : at + len(line)] != line or lowered.find(mark, at + 1) >= 0:
                return False
        return True


class LatestRequest:
    """The result of the latest call of `request_lines`, and its arguments. Most often the same arguments are asked for
    again.
    """

    __slots__ = ("count", "lines", "name", "version", "via")

    def __init__(self) -> None:
        self.count, self.lines, self.name, self.version, self.via = 0, b"", "", "", False


_LATEST_REQUEST = LatestRequest()


class Plan:
    """A request, its policy and its destination. An app connection keeps the plan for as long as its app sends the same
    head.

    `rest`: the path after the prefix by which the request was routed, else None. `plain`: a call of this request may
    start without a `Call`, the object that decides (`proxy.forward.undecided`). `edits`: the changes to the fields of
    the request and of its answer beside the attempt count and Via, None for none. `by_service`: the request's gRPC
    service led to the upstream.

    For the connection's next request, which may use this plan too (`follow`): `upstream`, None if no other request may
    use the plan; `router`, by which the last request was checked; `begins`, the upstream's prefix, if no other upstream
    has a prefix that begins with it; `naming`, the fields that name the app, None if none do.

    For answers: `looks`, whether an answer with a status below 400 may be a failure, by any field or by its body;
    `answered`, the last head for which nothing had to be decided, and `answer_lines`, the lines added to it; `ends`,
    the trailers for which nothing had to be decided.

    Also: `patience`, the seconds until the first timeout of a call can end. `traced`: the call's attempts are spans of
    a trace. `protocol`: the version of HTTP that the app spoke (`wire.first_bytes`). `ways`: what is needed to send the
    request to other upstreams, None if the policy names none (`proxy.forward.fallback.Ways`). `scope`: the state that
    the last call of this policy and host shares with others, None before the first. `prepared`: the request
    as a first attempt sends it to the only origin; `keyed`: the same for each of the policy's credentials, each with
    the field line of the credential for which it was made, since a credential that is read from a file changes.
    """

    #: Whether the destination differs from the policy's endpoints (see `TunnelPlan`).
    goes_elsewhere: bool = False

    __slots__ = (
        "answer_lines", "answered", "begins", "by_service", "destination", "edits", "ends", "head",
        "is_grpc", "keyed", "looks", "naming", "patience", "plain", "policy", "prepared", "protocol",
        "request", "rest", "router", "scope", "traced", "upstream", "ways",
    )  # fmt: skip

    def __init__(
        self,
        head: RequestHead,
        request: Request,
        policy: Policy,
        destination: Destination,
        rest: bytes | None,
        *,
        traced: bool = False,
    ) -> None:
        self.head = head
        self.request = request
        self.policy = policy
        self.destination = destination
        self.rest = rest
        self.scope: ScopeState | None = None
        self.upstream: Upstream | None = None
        self.router: Router | None = None
        self.begins: bytes | None = None
        self.by_service = False  # chosen by its gRPC service: the path stays whole, the authority is the endpoint's
        self.looks, self.patience, _ = course_of(policy)
        self.ways: Any = None
        self.naming: Naming | None = None
        self.prepared: PreparedRequest | None = None  # as a first attempt sends it to the only origin
        self.keyed: list[tuple[bytes, PreparedRequest] | None] | None = None
        self.answered: ResponseHead | None = None
        self.answer_lines = b""
        self.ends: dict[Trailers, tuple[Trailers | None, int | None]] = {}
        if request.timed:
            self.patience = _patience_of_timed(self.patience, head)
        self.is_grpc = request.is_grpc
        self.protocol = HTTP2 if head.is_http2 else HTTP1
        self.traced = traced
        self.edits: Edits | None = edits_of(policy)
        self.plain = self._is_plain(head, policy)

    def _is_plain(self, head: RequestHead, policy: Policy) -> bool:
        """Whether a call with this head and policy may start without a `Call` (`plain`)."""
        return (
            not self.traced
            and head.method != "CONNECT"
            and may_start_undecided(policy, self.request)
            and self.patience > 0
            and (head.body_size != CHUNKED or head.is_http2)  # there, it says nothing of framing
            and head.upgrade is None
            and not head.login_bound
            and policy.target.via_proxy is None
        )

    def follow(self, head: RequestHead, router: Router) -> bool:
        """Use this plan for another request of the same connection, which has this head, if all that was decided for
        the present request holds for the other one too. Returns whether it does; if it does not, the caller makes a new
        plan.

        Everything holds if method, form, authority and every field that a decision depends on are the same, and the
        path leads to the same policy. That is the usual case: most apps ask one upstream for one thing after the other.
        """
        old, upstream, rest, whole = self.head, self.upstream, self.rest, head.path
        if (
            upstream is None
            or head.method != old.method
            or head.form != old.form
            or head.authority != old.authority
            or head.scheme != old.scheme
            # Heads that share them share all that they follow from: neither took the slow path.
            or (head.specials is not old.specials and not _steers_alike(head, old))
            or (self.naming is not None and head is not old and not self.naming.is_same(head, old))
        ):
            return False
        if router is not self.router:
            self.router, self.begins = router, router.sure_prefix(upstream)
        if rest is not None:
            begins = self.begins
            if begins is not None and whole.startswith(begins) and not (0x2E in whole or 0x25 in whole):  # . and %
                text = whole  # both ends are given: compiled, `text` is a pointer
                # The result of `Router.path_after_prefix`: no segment is a dot segment.
                rest = text[len(begins) - 1 : len(whole)]
            else:
                rest = router.path_after_prefix(upstream, whole)
                if rest is None:
                    return False
        if self.by_service and whole != old.path and router.by_service(whole) is not upstream:
            return False
        if upstream.routes:
            path = whole if rest is None else rest
            policy = upstream.policy_for(head.method, path, head)
            if policy is not self.policy and not self._turn_to(policy, head):
                return False
        request = self.request
        if request.timed:
            self.patience = _patience_of_timed(course_of(self.policy)[1], head)
            if self.patience <= 0:
                return False
        self.head, self.rest = head, rest
        made = self.request = Request.__new__(Request)  # past its own constructor, which takes four times as long
        made.method, made.authority, made.path = request.method, request.authority, whole.decode("latin-1")
        made.fields, made.plain, made.timed, made.body = head, request.plain, request.timed, None
        made.app, made.user_agent, made.names = request.app, None, None
        return True

    def _turn_to(self, policy: Policy, head: RequestHead) -> bool:
        """Use this plan for another route of its upstream, whose policy is `policy`, if the plan's policy and that one
        have the same endpoints and no fallback. Returns whether they do. `head`: the request's.
        """
        old = self.policy
        if policy.target is not old.target or policy.fallback or old.fallback:
            return False
        self.policy = policy
        self.scope = None
        self.looks, self.patience, has_edits = course_of(policy)
        had_edits, self.edits = self.edits, edits_of(policy) if has_edits else None
        self.answered, self.answer_lines, self.ends = None, b"", {}
        if self.request.timed:
            self.patience = _patience_of_timed(self.patience, head)
        was_plain, self.plain = self.plain, self._is_plain(head, policy)
        alike = policy.via == old.via and policy.credentials is None and had_edits is self.edits
        if not (was_plain and self.plain and alike):
            self.prepared = self.keyed = None
        return True

    def alike(self, head: RequestHead, router: Router) -> Plan | None:
        """Return a plan for another request that came on the connection while this plan's request is in progress; None
        if what was decided for this request does not hold for the other one (see `follow`).
        """
        plan = Plan.__new__(Plan)
        plan.head, plan.request, plan.policy, plan.destination = self.head, self.request, self.policy, self.destination
        plan.scope = self.scope
        plan.rest, plan.upstream, plan.by_service, plan.looks = self.rest, self.upstream, self.by_service, self.looks
        plan.router, plan.begins = self.router, self.begins
        plan.prepared = plan.keyed = None
        plan.answered, plan.answer_lines, plan.ends = self.answered, self.answer_lines, self.ends
        plan.patience, plan.is_grpc = self.patience, self.is_grpc
        plan.traced, plan.edits = self.traced, self.edits
        plan.protocol, plan.plain, plan.ways, plan.naming = self.protocol, self.plain, self.ways, self.naming
        return plan if plan.follow(head, router) else None

    def answers_plainly(self, head: ResponseHead, via: str, looked: bool = False) -> bool:
        """Whether nothing has to be decided for an answer's head. If so, remember the head, and the lines that are
        added to it. `via`: the name in our Via line; `looked`: head and body were judged already, as a success.
        """
        judged = looked
        if self.looks and not judged:  # a field of any name may decide, or the body
            judged = is_plain_success(self.policy.classify, head.status, head)
            if not judged:
                return False
        if self.answered is None or not head.says_same(self.answered):
            if head.login_bound or not (judged or is_plain_success(self.policy.classify, head.status, head)):
                return False
            name = via_name(self.policy, via)
            if self.edits is None:
                self.answer_lines = plain_lines(name, head.version)
            else:
                self.answer_lines = self.edits.to_answers + via_line(name, head.version)
        self.answered = head
        return True

    def keeps(self, head: ResponseHead) -> bool:
        """Whether an answer to the first attempt, of which this head has come but not all of the body, is kept until it
        is whole (contract, section 15).
        """
        policy = self.policy
        if policy.answers is None or policy.mode != "enforce" or policy.strategy.max_attempts < 2 or self.is_grpc:
            return False
        return may_be_kept(policy.answers, Reply(head.status, head)) and may_break(policy, self.request)

    def plain_end(self, head: ResponseHead, trailers: Trailers) -> tuple[Trailers | None, int | None] | None:
        """Return the trailers to forward after an answer for whose head nothing had to be decided, and the gRPC status
        in the trailers (None for none); None if something has to be decided for these trailers.
        """
        end = self.ends.get(trailers)
        if end is None:
            forwarded = head.trailers_to_forward(trailers)
            if forwarded is not None and not is_plain_end(self.policy.classify, forwarded):
                return None
            if len(self.ends) >= _ENDS:
                self.ends.clear()
            status = 0 if forwarded is not None and forwarded.get_all("grpc-status") else None
            end = self.ends[trailers] = forwarded, status
        return end

    def first_request(self, origin: Origin, via: str) -> PreparedRequest:
        """Return the request as the first attempt of a `plain` plan sends it. If there is only one origin, the object
        made for the previous request is reused with the new head, since streams keep no reference to it after `send`.
        `via`: the name in our Via line.
        """
        prepared = self.prepared
        if prepared is None or self.destination.only is None:
            prepared = self.edited_request(origin, 1, via)
            if self.destination.only is not None:
                self.prepared = prepared
            return prepared
        prepared.head, prepared.text, prepared.block = self.head, b"", b""
        if self.edits is not None:
            prepared.drop = self.edits.from_request(self.head)
        if self.rest is not None:
            prepared.target = origin.path + self.rest
        return prepared

    def edited_request(self, origin: Origin, number: int, via: str) -> PreparedRequest:
        """Return the request that attempt `number` sends to this origin: that of `plain_request`, with the plan's
        `edits`. `via`: the name in our Via line.
        """
        prepared = self.plain_request(origin, number, via)
        if self.edits is not None:
            prepared.drop = self.edits.from_request(self.head)
            prepared.add = self.edits.to_request(number) + way_line(via, self.head.version, self.policy.via)
        return prepared

    def plain_request(self, origin: Origin, number: int, via: str) -> PreparedRequest:
        """Return the request as attempt `number` of a plan without `edits` sends it to this origin.

        `via`: the name in our Via line, or in the line that replaces it.
        """
        head, rest, latest, has_via = self.head, self.rest, _LATEST_REQUEST, self.policy.via
        if latest.count == number and latest.name is via and latest.version is head.version and latest.via == has_via:
            add = latest.lines
        else:
            add = latest.lines = request_lines(via, head.version, number, has_via)
            latest.count, latest.name, latest.version, latest.via = number, via, head.version, has_via
        if rest is None:
            return PreparedRequest(head, origin.host if self.by_service else None, None, _NO_NAMES, add)
        return PreparedRequest(head, origin.host, origin.path + rest, _NO_NAMES, add)

    def request_for(
        self,
        origin: Origin,
        number: int,
        via: str,
        *,
        elapsed: float,
        key: str | None,
        drop: frozenset[bytes],
        add: bytes,
    ) -> PreparedRequest:
        """Return the request as attempt `number` of any plan sends it to this origin.

        `via`: the name in our Via line; `elapsed`: seconds since the call began; `key`: the idempotency key that was
        made for the call, None if none was. `drop`: lower-case names of fields to leave out, and `add`: lines to add,
        both in addition to what the policy changes.
        """
        prepared = self.plain_request(origin, number, via)
        if is_plain(self.policy) and b"grpc-timeout" not in self.head.specials:
            prepared.drop, prepared.add = drop, prepared.add + add
        else:
            changes = attempt_fields(self.request, self.policy, number, elapsed=elapsed, key=key)
            prepared.drop = drop | changes.names()
            prepared.add = changes.lines() + way_line(via, self.head.version, self.policy.via) + add
        return prepared

    def keyed_request(self, origin: Origin, via: str, key: int) -> PreparedRequest:
        """Return the request as the first attempt sends it to this origin with the credential of number `key`; an
        earlier request's object is reused, as in `first_request`. `via`: the name in our Via line.
        """
        credentials = self.policy.credentials
        assert credentials is not None  # it has a number
        if self.keyed is None:
            self.keyed = [None] * len(credentials.values)
        line, head = credentials.lines[key], self.head
        carried, prepared = self.keyed[key] or (line, None)
        if carried is not line:  # its file has another value by now
            prepared = None
        if prepared is not None and prepared.head is head:
            return prepared
        if prepared is None or self.destination.only is None:
            prepared = self.edited_request(origin, 1, via)
            prepared.drop, prepared.add = self.with_credential(key, prepared.drop, prepared.add)
            if self.destination.only is not None:
                self.keyed[key] = line, prepared
            return prepared
        plain = self.edited_request(origin, 1, via)
        prepared.drop, prepared.add = self.with_credential(key, plain.drop, plain.add)
        prepared.head, prepared.text, prepared.block = head, b"", b""
        if self.rest is not None:
            prepared.target = origin.path + self.rest
        return prepared

    def with_credential(self, number: int, drop: frozenset[bytes], add: bytes) -> tuple[frozenset[bytes], bytes]:
        """Return the lower-case names of fields to drop, and the lines to add, for a request that carries the
        credential of this number instead of the app's own: `drop` and `add`, extended by the credential's field. For
        TRACE, whose answer shows the request, nothing is added (RFC 9110 section 9.3.8).
        """
        credentials = self.policy.credentials
        assert credentials is not None  # it has a number
        name = credentials.name.encode("ascii")
        if self.head.get(name) is not None:
            drop |= {name}
        return drop, add if self.head.method == "TRACE" else add + credentials.lines[number]


def take_turns(plans: list[Plan], last: Plan, head: RequestHead) -> Plan | None:
    """Find the plan for the method and authority of `head` among `plans`, which a connection keeps for requests that
    take turns on it. If there is one, return it and keep `last` (the plan in use so far) in its place; else keep `last`
    as well, instead of the oldest if there are too many, and return None.
    """
    for at in range(len(plans)):
        plan = plans[at]
        if plan.head.method == head.method and plan.head.authority == head.authority:
            plans[at] = last
            return plan
    if len(plans) == PLANS:
        del plans[0]
    plans.append(last)
    return None


def _steers_alike(head: RequestHead, old: RequestHead) -> bool:
    """Whether the request `head` took no slow path, and has the same fields and values as `old` among those that any
    decision depends on. The values of Content-Length and of the app's timeout may differ: the first decides nothing,
    and the caller compares the second.
    """
    some, others = head.specials, old.specials
    if head.slow_path is not None or len(some) != len(others):
        return False
    for name, value in some.items():
        other = others.get(name)
        if other is None or (value != other and name not in _ASIDE):
            return False
    return True


def course_of(policy: Policy) -> tuple[bool, float, bool]:
    """Return three things that a plan needs to know of a policy: whether an answer with a status below 400 may be a
    failure, because of its fields, its body, or a late first byte; the seconds from the sending of a call until its
    first timeout can end or its first hedge is due, unless the request names a time; and whether the policy has
    `edits`. They are computed when first needed, and kept with the policy.
    """
    course = policy.course
    if course is None:
        rules, timeouts, enforced = policy.classify, policy.timeouts, policy.mode == "enforce"
        is_bounded = enforced and timeouts.first_byte is not None
        bounds = [timeouts.total, timeouts.attempt]
        if enforced:
            bounds += [timeouts.first_byte, policy.strategy.hedging_delay]
        course = (
            rules.looks_below_400 or bool(rules.stream_ends) or is_bounded,
            min([each for each in bounds if each is not None], default=_NEVER),
            edits_of(policy) is not None,
        )
        object.__setattr__(policy, "course", course)
    return course


def _patience_of_timed(patience: float, head: RequestHead) -> float:
    """Return the seconds until the first timeout of a call can end, or its first hedge is due: `patience` by its
    policy, or sooner if its request names a shorter time in grpc-timeout.
    """
    timeout = read_grpc_timeout((head.get(b"grpc-timeout") or b"").decode("latin-1"))
    return patience if timeout is None else min(patience, timeout)
