"""What an attempt sends, and to whom: the request as it came, for each attempt anew."""

from __future__ import annotations

from proxy.forward.attempt import Attempt
from proxy.forward.headers import attempt_fields, is_plain, plain_lines, via_line, wants_key
from proxy.forward.life import Life
from proxy.transport.http1 import Connection
from proxy.transport.origins import Origin

_NO_NAMES: frozenset[bytes] = frozenset()


class Sending(Life):
    """See the module."""

    _key: str | None = None  # the idempotency key that was made for this call

    async def connect(self, origin: Origin, *, fresh: bool) -> Connection:
        """A connection for an attempt, where none rests. `fresh`: not one that another call has used."""
        idempotent = None if fresh else self.call.idempotent
        return await self.means.pool.connect(origin, within=self.policy.timeouts.connect, idempotent=idempotent)

    def head_for(self, attempt: Attempt, now: float) -> bytes:
        """The request's head, as this attempt sends it to its origin."""
        head = self.head
        drop, add = self._fields_for(attempt, now)
        if attempt.stream is not None and head.login_bound:
            self.app.pin(attempt.stream)
        origin = attempt.origin
        if self.rest is None and not origin.absolute:
            return head.render(drop=drop, add=add)
        host = None if self.rest is None else origin.host
        target = head.path if self.rest is None else origin.path + self.rest
        if origin.absolute:
            # The parent connects to what the target names, so it names the endpoint where there is one; Host, which
            # it should not look at (RFC 9112 section 3.2.2), is as it would be without a parent.
            ours = self.policy.target is not None and self.policy.target.endpoints
            authority = origin.host if ours else self.request.authority.encode("latin-1")
            target = b"http://" + authority + (b"" if target == b"*" else target)
            add += origin.credentials
        return head.render(target=target, host=host, drop=drop, add=add)

    def _fields_for(self, attempt: Attempt, now: float) -> tuple[frozenset[bytes], bytes]:
        """Names that an attempt's head leaves out of the request's, and the lines that it adds."""
        head, policy, via = self.head, self.policy, self.means.via
        if is_plain(policy) and b"grpc-timeout" not in head.specials:
            return _NO_NAMES, plain_lines(via, head.minor, attempt.number)
        if self._key is None and wants_key(self.request, policy):
            from uuid import uuid4  # and `platform` with it, for an answer that few policies ask for

            self._key = str(uuid4())
        changes = attempt_fields(self.request, policy, attempt.number, elapsed=now - self.started, key=self._key)
        return changes.names(), changes.lines() + via_line(via, head.minor)
