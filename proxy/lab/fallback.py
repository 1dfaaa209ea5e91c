"""The upstreams to which a call of the lab may fall back, as on the wire.

The upstreams are chosen by the rules for calls on the wire, and the call gets the same header fields and path as there.

The request's body is the one that the test's or scenario's script gives. If the script gives only a size, or nothing
(`redrive explain`), a body in which members are to be set counts as a JSON object.
"""

from __future__ import annotations

from proxy.config.settings import Settings
from proxy.forward.fallback import is_digest
from proxy.lab.fresh_policies import Fresh
from proxy.lab.routing import AppRequest, Chosen
from proxy.retry.call.fallback import left_behind
from proxy.retry.facts import MappingFields, Request
from proxy.retry.policies.policy import Fallback, Policy
from proxy.retry.policies.routing import climbs
from proxy.retry.scopes.registry import Registry
from proxy.retry.scopes.scope_state import ScopeState
from proxy.wire.json_object import NoObjectError, set_members


class ConfiguredUpstreams:
    """The configured upstreams that a call may go on to from the upstream that took it first
    (`proxy.lab.driver.OtherUpstreams`). `has_body`: the request has a body although the script does not describe it.
    """

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        fresh: Fresh,
        ask: AppRequest,
        first: Chosen,
        *,
        has_body: bool,
    ) -> None:
        self._router = settings.router
        self._registry = registry
        self._fresh = fresh
        self._ask = ask
        self._first = first
        self._has_body = has_body or bool(ask.body_size)

    def why_not(self, entry: Fallback) -> str:
        """The reason why the upstream of a fallback entry can't take the call over; "" if it can
        (`proxy.retry.call.fallback.Elsewhere`).
        """
        upstream, request = self._router.by_name[entry.to], self._first.request
        if upstream.target.protocol == "http/1.1" and request.is_grpc:
            return "gRPC needs HTTP/2, and its `protocol` is http/1.1"
        left = left_behind(self._first.policy, upstream.policy, entry)
        if climbs(left.target(request.path.encode(errors="surrogateescape"))):
            return "the path climbs above the upstream's url"
        return self._unset(entry) if entry.json else ""

    def _unset(self, entry: Fallback) -> str:
        if not self._has_body:
            return "it has no body to set members in"
        coded = self._first.request.fields.get_all("content-encoding")
        if any(each.lower() != "identity" for each in coded):
            return "its body is encoded"
        if self._ask.body:
            try:
                set_members(self._ask.body, dict(entry.json))
            except NoObjectError as why:
                return str(why)
        return ""

    def call_of(self, entry: Fallback, now: float) -> tuple[Request, Policy, ScopeState]:
        """The call as the upstream of a fallback entry gets it, at `now` (seconds): its request, the policy that
        applies to it there, and the state of its scope.
        """
        upstream, request = self._router.by_name[entry.to], self._first.request
        left = left_behind(self._first.policy, upstream.policy, entry)
        path = left.target(request.path.encode(errors="surrogateescape"))
        pairs = request.fields.pairs() if isinstance(request.fields, MappingFields) else []
        out = {"content-length"} if entry.json else set()
        kept = [
            (name, value)
            for name, value in pairs
            if not (left.field(name, request.fields.get_all(name)) or name in out or (entry.json and is_digest(name)))
        ]
        if entry.json and self._ask.body:
            kept.append(("content-length", str(len(set_members(self._ask.body, dict(entry.json))))))
        fields = MappingFields(kept)
        policy = self._fresh.policy(upstream.policy_for(request.method, path, request.fields))
        authority = upstream.target.endpoints[0].authority
        sent = Request(request.method, authority, path.decode(errors="surrogateescape"), fields)
        sent.app = request.app
        return sent, policy, self._registry.scope(policy, sent, now)
