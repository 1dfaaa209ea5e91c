"""One call that is over, as all observers get it. Its one JSON is made in `proxy.observe.call_json`."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Protocol

from proxy.retry.attempt_record import AttemptRecord, FallbackRecord
from proxy.retry.facts import Outcome
from proxy.retry.policy import Backoff, Policy, Strategy

#: The policy of a request that was answered before any policy applied to it.
NO_POLICY = Policy("", "", Strategy("standard", "", 1, Backoff(0.0, 0.0)), None)
#: Names for members of enumerations: see `proxy.retry.facts`.
SUCCESS = Outcome.SUCCESS


class CallRecord:
    """A call that is over, or a CONNECT tunnel, or a request that was refused (`refused`). It may be kept: no body and
    no connection hangs on it.

    `wall_started` is in seconds since the epoch; `started` (the request's head was whole) and `ended` (the last byte of
    the answer was handed on, or the call was given up) in seconds on the driver's clock. `authority` and `path` are as
    the app named them, with the query, unmasked. `client` is the app's address, `host:port`; "" on a Unix socket.
    `status` is what the app got; 0 where it got nothing. `bytes_in` and `bytes_out` are of bodies, from the app and to
    it. `endpoint` is where the last attempt went, `host:port`; "" where none was made. `history` has every sending in
    order; nothing where the one attempt was sent at once and succeeded. `detail` says of the proxy's own answer what
    went wrong. `protocol` is what the app spoke, `sent_by` what its only attempt went by where there is no history:
    http/1.1 (HTTP/1.0 too), http/2, or "" where nobody knows. `grpc_status`: what a gRPC call ended with, for the app;
    None of others, and where it got none. `app_retry`: the app itself was retrying (contract, section 5). `number` is
    its place among all calls, from 1, once it has passed `proxy.observe.recent_calls`. `fallbacks`: the other upstreams
    that it went on to, or could not. `was_sent_once`: see the
    function of that name.
    """

    __slots__ = (
        "app_retry", "attempts", "authority", "bytes_in", "bytes_out", "client", "detail", "ended", "endpoint",
        "fallbacks", "grpc_status", "history", "method", "number", "outcome", "path", "policy", "protocol", "sent_by",
        "started", "status", "wall_started", "was_sent_once",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913  a record
        self,
        wall_started: float,
        started: float,
        ended: float,
        policy: Policy,
        method: str,
        authority: str,
        path: str,
        client: str,
        status: int,
        outcome: Outcome,
        attempts: int,
        bytes_in: int,
        bytes_out: int,
        endpoint: str,
        history: Sequence[AttemptRecord] = (),
        detail: str = "",
        app_retry: bool = False,
        number: int = 0,
        fallbacks: Sequence[FallbackRecord] = (),
        protocol: str = "",
        sent_by: str = "",
        grpc_status: int | None = None,
    ) -> None:
        self.wall_started = wall_started
        self.started = started
        self.ended = ended
        self.policy = policy
        self.method = method
        self.authority = authority
        self.path = path
        self.client = client
        self.status = status
        self.outcome = outcome
        self.attempts = attempts
        self.bytes_in = bytes_in
        self.bytes_out = bytes_out
        self.endpoint = endpoint
        self.history = history
        self.detail = detail
        self.app_retry = app_retry
        self.number = number
        self.fallbacks = fallbacks
        self.protocol = protocol
        self.sent_by = sent_by
        self.grpc_status = grpc_status
        self.was_sent_once = was_sent_once(attempts, outcome, history)

    def with_path(self, path: str) -> CallRecord:
        """The same with another path."""
        made = copy(self)
        made.path = path
        return made


def was_sent_once(attempts: int, outcome: Outcome, history: Sequence[AttemptRecord]) -> bool:
    """Whether a call succeeded with its first sending. A gate may have held it before."""
    return attempts == 1 and outcome is SUCCESS and len(history) < 2


def refused(  # noqa: PLR0913  a record is built
    wall: float,
    client: str,
    status: int,
    outcome: Outcome,
    detail: str,
    method: str = "",
    authority: str = "",
    path: str = "",
    bytes_out: int = 0,
    protocol: str = "",
    grpc_status: int | None = None,
) -> CallRecord:
    """The record of a request that was answered before any policy applied to it: malformed, misdirected, looping,
    unmatched; or meant for the proxy itself (Max-Forwards: 0, `OPTIONS *`), whose outcome is success. `method`,
    `authority` and `path` are as far as they could be read; it took no time.
    """
    return CallRecord(
        *(wall, 0.0, 0.0, NO_POLICY, method, authority, path, client, status, outcome, 0, 0, bytes_out, "", (), detail),
        protocol=protocol,
        grpc_status=grpc_status,
    )


class Observer(Protocol):
    """What calls are reported to, synchronously on the event loop; the methods return soon and never raise."""

    def call_ended(self, call: CallRecord) -> None:
        """A call is over, or a request was refused before it became one."""
        ...

    def stream_failed(self, policy: Policy, error: str) -> None:
        """A stream of events that went to the app reported an error, which is this in words (contract, section 13)."""
        ...

    def app_repeated(self, policy: Policy) -> None:
        """A call that ends now was most likely an app's retry of one that was given up, though it does not say so."""
        ...
