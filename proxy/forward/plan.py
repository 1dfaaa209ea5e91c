"""A request, and where it goes: all that is known of a call before anything of it has happened."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.forward.exchange import Exchange
from proxy.forward.headers import answers_plainly, is_plain
from proxy.forward.means import Means
from proxy.forward.streams import AppStream
from proxy.retry.at_once import may_go_at_once
from proxy.retry.facts import Request
from proxy.retry.policy import Policy
from proxy.retry.router import Router, Upstream
from proxy.transport.origins import Destination, Origin
from proxy.wire.head import CHUNKED, RequestHead

_NEVER = float("inf")


class Plan:
    """See the module. Kept by an app connection for as long as its app sends the same head.

    `rest` is the path behind the prefix in prefix use, else None. `swift`: it can go without being decided on.
    `upstream` is whose it is, where others may follow it (see `follow`), and `first` the first request in such a row.
    """

    __slots__ = (
        "destination",
        "first",
        "head",
        "patience",
        "policy",
        "rendered",
        "request",
        "rest",
        "silence",
        "swift",
        "upstream",
    )

    def __init__(
        self, head: RequestHead, request: Request, policy: Policy, destination: Destination, rest: bytes | None
    ) -> None:
        self.head = head
        self.request = request
        self.policy = policy
        self.destination = destination
        self.rest = rest
        self.upstream: Upstream | None = None
        self.first = request
        self.rendered = b""  # the head as it goes to the only origin
        total, attempt = policy.timeouts.total, policy.timeouts.attempt
        idle = policy.timeouts.idle
        self.silence = _NEVER if idle is None else idle
        self.patience = min(_NEVER if total is None else total, _NEVER if attempt is None else attempt)
        self.swift = (
            head.method != "CONNECT"
            and may_go_at_once(policy, request)
            and is_plain(policy)
            and answers_plainly(policy)
            and head.body_size != CHUNKED
            and head.upgrade is None
            and not head.login_bound
            and policy.target.via_proxy is None
        )

    def follow(self, head: RequestHead, router: Router) -> bool:
        """Be the plan of another request of the same connection, where all that was decided for this one holds for it.

        It does where method, form, authority and every field that anything is decided by are the same, and the path
        leads to the same policy: most apps ask one upstream for one thing after the other. False: decide afresh.
        """
        old, upstream, rest = self.head, self.upstream, self.rest
        if (
            upstream is None
            or head.method != old.method
            or head.form != old.form
            or head.authority != old.authority
            or head.scheme != old.scheme
            or not head.common
            or (head.specials is not old.specials and not _steer_alike(head.specials, old.specials))
        ):
            return False
        if rest is not None:
            rest = router.behind(upstream, head.path)
            if rest is None:
                return False
        if upstream.routes:
            path = head.path if rest is None else rest
            if upstream.policy_for(head.method, path, head) is not self.policy:
                return False
        self.head, self.rest, self.rendered = head, rest, b""
        request = self.request
        self.request = Request(
            request.method, request.authority, head.path.decode("latin-1"), head, plain=request.plain
        )
        return True

    def exchange(self, means: Means, app: AppStream) -> Exchange:
        """The exchange of this call."""
        return Exchange(means, app, self.head, self.request, self.policy, self.destination, self.rest)

    def render(self, origin: Origin, add: bytes) -> bytes:
        """The head as it goes to this origin, with these lines at its end, of a plan that can go so."""
        if self.rest is None:
            return self.head.render(add=add)
        return self.head.render(target=origin.path + self.rest, host=origin.host, add=add)


def _steer_alike(some: Mapping[bytes, bytes], others: Mapping[bytes, bytes]) -> bool:
    """Whether the fields that anything is decided by are the same; how long a body is decides nothing."""
    return some == others or (
        some.keys() == others.keys()
        and all(value == others[name] for name, value in some.items() if name != b"content-length")
    )
