"""A call that goes on at other upstreams: what is sent there, and what comes back.

`proxy.retry.call.fallback` decides whether a call goes on. Here the request for the next upstream is built from the
request as the app sent it: its head without the fields that are for the first upstream only, and its body with members
set if the fallback entry says so. The exchange drives the calls to the upstreams one after the other, and asks its
`Journey` for what differs: which body is sent, and to which upstream an attempt went.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from proxy.forward.context import Context
from proxy.forward.request_plan import Plan, destination_of
from proxy.forward.upload import Upload
from proxy.retry.call.fallback import LeftBehind, left_behind
from proxy.retry.facts import Request
from proxy.retry.policies.policy import Fallback, Policy
from proxy.retry.policies.routing import Router, climbs
from proxy.transport.replay_buffer import Replay
from proxy.wire.errors import BadMessage
from proxy.wire.head import RequestHead, Trailers
from proxy.wire.json_object import NoObjectError, set_members
from proxy.wire.rebuilt import rebuilt

#: Fields that hold a digest of the body, or of one that is framed by its encoding: they are wrong once it is another
#: (RFC 9530, RFC 3230, RFC 1864; Amazon's, Google's and Azure's own).
_DIGESTS = frozenset(
    {
        "content-digest", "repr-digest", "digest", "content-md5", "x-goog-hash",
        "x-amz-content-sha256", "x-ms-content-sha256", "x-ms-content-crc64",
    }
)  # fmt: skip
_DIGEST_PREFIX = "x-amz-checksum-"
#: Fields that are never forwarded from an upstream that the app did not address.
_COOKIES = frozenset({b"set-cookie", b"set-cookie2"})
_NO_NAMES: frozenset[bytes] = frozenset()


class StaysError(Exception):
    """Raised if an upstream can't take a request over. Its text is a clause for the log, which quotes nothing of the
    request.
    """


@dataclass(frozen=True, slots=True, eq=False)
class Ways:
    """The objects that are needed to build the plan of a request to another upstream of the same configuration, to
    which a call falls back. `strict`: whether loopback addresses that no upstream's `url` names are denied; `traced`:
    whether attempts are spans of a trace.
    """

    router: Router
    strict: bool
    traced: bool


@dataclass(slots=True)
class Leg:
    """Another upstream to which a call goes on, and what is sent there. `body`: the request's body with the members
    that the fallback entry sets, None if it is sent as the app sent it; `left`: the fields and the parts of the path to
    leave out; `edits`: whether the fallback entry changed the body.
    """

    plan: Plan
    body: Replay | None
    left: LeftBehind
    edits: bool


@dataclass(slots=True, eq=False)
class Journey:
    """The course of a call that falls back from its first upstream to others, one after the other. `first`: the plan
    for the first upstream; `leg`: the upstream to which the call has fallen back, None while it is at the first;
    `ahead`: the upstream that is prepared next, None if there is none. `policies`: the policy of each upstream after
    the first; `since`: for each of these, the number of attempts that the call had made before it went there.
    """

    context: Context
    first: Plan
    ahead: Leg | None = None  # prepared, in case the call goes on there
    leg: Leg | None = None
    since: list[int] = field(default_factory=list)
    policies: list[Policy] = field(default_factory=list)
    _trailers: Trailers | None = None  # those of the request's body, as they came
    _has_trailers: bool = False

    # -- to the next upstream -------------------------------------------------------------------------------------

    def prepare(self, entry: Fallback, upload: Upload | None) -> None:
        """Build the request for the upstream that this fallback entry names. `upload`: the request's body, None if it
        has none. Raises StaysError if that is impossible.
        """
        self._forget()
        self.ahead = self._leg(entry, upload)

    def why_not(self, upload: Upload | None, entry: Fallback) -> str:
        """Prepare the request, whose body is `upload`, for the upstream of this fallback entry. Returns "" if that
        succeeds, else the reason why the call can't go on there.
        """
        try:
            self.prepare(entry, upload)
        except StaysError as why:
            return str(why)
        return ""

    def go_on(self, attempts: int, upload: Upload | None) -> Plan:
        """Go on to the upstream that was prepared last, after `attempts` attempts in all; return the plan for it.
        `upload`: the request's body, None if it has none.
        """
        leg, self.ahead = self.ahead, None
        assert leg is not None
        if self.leg is not None and self.leg.body is not None:
            self.leg.body.close()
        self.leg = leg
        self.since.append(attempts)
        self.policies.append(leg.plan.policy)
        if upload is not None and upload.replay.done:
            self.trailers_came(upload)
        return leg.plan

    def _leg(self, entry: Fallback, upload: Upload | None) -> Leg:
        first, ways = self.first, self.first.ways
        upstream = ways.router.by_name[entry.to]
        target, head = upstream.target, first.head
        if target.protocol == "http/1.1" and head.is_http2 and first.is_grpc:
            raise StaysError("gRPC needs HTTP/2, and its `protocol` is http/1.1")
        left = left_behind(first.policy, upstream.policy, entry)
        path = left.target(head.path if first.rest is None else first.rest)
        if climbs(path):  # checks the path as sent: `..;x=1` climbs once its parameter is removed
            raise StaysError("the path climbs above the upstream's url")
        body = self._body(entry, upload)
        authority = target.endpoints[0].authority
        edits = body is not None

        def cut(name: str) -> bool:
            return left.field(name, head.get_all(name)) or (edits and is_digest(name))

        try:
            made = rebuilt(head, target=path, host=authority.encode("latin-1"), cut=cut, length=_length(head, body))
        except BadMessage:
            raise StaysError("its head can't be made without the fields that are left out") from None
        whole_path = made.form == "asterisk" or first.is_grpc  # other paths are appended to the url's path
        old = first.request
        request = Request(made.method, authority, made.path.decode("latin-1"), made, old.plain, old.timed)
        request.app = old.app
        policy = upstream.policy_for(
            made.method, made.path, head
        )  # uses the new head, though matching reveals nothing to an upstream
        destination = destination_of(
            made, policy.target or target, self.context.pool, scheme="http", place="", strict=ways.strict
        )
        plan = Plan(made, request, policy, destination, None if whole_path else made.path, traced=ways.traced)
        plan.by_service = whole_path
        return Leg(plan, body, left, edits)

    def _body(self, entry: Fallback, upload: Upload | None) -> Replay | None:
        """Return a copy of the request's body with the members that the fallback entry sets; None if the entry sets
        none. `upload`: the request's body, None if it has none. Raises StaysError if the body can't be changed.
        """
        if not entry.json:
            return None
        if upload is None or not (upload.size or not upload.replay.done):
            raise StaysError("it has no body to set members in")
        pieces = upload.replay.whole()
        if pieces is None:
            raise StaysError("its body has not arrived completely")
        if any(each.lower() != "identity" for each in self.first.head.get_all("content-encoding")):
            raise StaysError("its body is encoded")
        try:
            body = set_members(b"".join(pieces), dict(entry.json))
        except NoObjectError as why:
            raise StaysError(str(why)) from None
        made = Replay(self.context.store, done=True)
        made.trailers = upload.replay.trailers
        if not made.append(body):
            made.close()
            raise StaysError("its body, with the members that `json` sets, does not fit into `buffers`")
        return made

    # -- what is different ----------------------------------------------------------------------------------------

    def body_for(self, upload: Upload) -> Replay:
        """Return the request's body that attempts send now: `upload`'s, or the one that the fallback entry changed."""
        return upload.replay if self.leg is None or self.leg.body is None else self.leg.body

    def trailers_came(self, upload: Upload) -> None:
        """Prepare the trailers of the request's body, which is whole, for the present upstream: leave out the trailers
        that this upstream must not get.
        """
        if not self._has_trailers:
            self._has_trailers, self._trailers = True, upload.replay.trailers
        leg, trailers = self.leg, self._trailers
        if leg is None or trailers is None:
            return
        names = {name.lower() for name, _ in trailers.pairs()}
        out = {name for name in names if _stays_behind(leg, name.decode("latin-1"), trailers)}
        self.body_for(upload).trailers = trailers.without(out) if out else trailers

    def policy_of(self, attempt: int) -> Policy:
        """Return the policy of the upstream that an attempt went to."""
        place = bisect_right(self.since, attempt - 1)
        return self.policies[place - 1] if place else self.first.policy

    def dropped(self, attempt: int) -> frozenset[bytes]:
        """Return the lower-case names of the fields to leave out when this attempt's answer is forwarded. If the
        upstream that answers is not the one that the app called, these are the fields of cookies; else there are none.
        """
        return _COOKIES if self.since and attempt > self.since[0] else _NO_NAMES

    def close(self) -> None:
        """Release the bodies that were made for the call, which is over."""
        self._forget()
        if self.leg is not None and self.leg.body is not None:
            self.leg.body.close()

    def _forget(self) -> None:
        if self.ahead is not None and self.ahead.body is not None:
            self.ahead.body.close()
        self.ahead = None


def body_of(upload: Upload | None, journey: Journey | None) -> Replay | None:
    """Return the request's body that attempts send now, None if it has none; at the upstream of a fallback it may be a
    changed one. `upload`: the body as the app sends it; `journey`: None for a call that can't fall back.
    """
    if upload is None:
        return None
    return upload.replay if journey is None else journey.body_for(upload)


def is_digest(name: str) -> bool:
    """Whether the field of this lower-case name holds a digest of the body."""
    return name in _DIGESTS or name.startswith(_DIGEST_PREFIX)


def _stays_behind(leg: Leg, name: str, trailers: Trailers) -> bool:
    return leg.left.field(name, trailers.get_all(name)) or (leg.edits and is_digest(name))


def _length(head: RequestHead, body: Replay | None) -> int | None:
    """Return the length of `body` to write into the request's head; None if the body is sent as the app sent it, or in
    chunks, since trailers follow it.
    """
    if body is None or (head.chunked and body.trailers is not None):
        return None
    return body.end
