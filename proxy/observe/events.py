"""What happened, as observers are told it.

Law: observing costs a call that succeeds at once next to nothing: of one, a tuple is told (`Plain`), that may be kept.
The driver of any other call (`proxy.forward.exchange`) is itself the event: `EndedCall` lists the attributes that
observers read, and `history` is only filled where more happened than one attempt that succeeded. An observer never
keeps that event: it would keep bodies and connections alive. It copies what it needs, and masks what it shows
(`proxy.observe.masking`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from proxy.retry.attempt_record import AttemptRecord
from proxy.retry.facts import Outcome, Request
from proxy.retry.policy import Policy

#: A call whose first attempt succeeded, and of which there is nothing else to tell: when it began (seconds since the
#: epoch), how long it took (s), policy, method, authority and path (with the query, unmasked), the app's address,
#: status, body bytes from the app and to it, and the endpoint.
Plain: TypeAlias = tuple[float, float, Policy, str, str, str, str, int, int, int, str]


class EndedCall(Protocol):
    """A call that is over, read-only, valid while the observer is being told. A CONNECT tunnel is one too.

    Times are seconds on the driver's clock, but for `wall_started` (seconds since the epoch).
    """

    @property
    def policy(self) -> Policy:
        """What applied; its `upstream` and `route` are the labels."""
        ...

    @property
    def request(self) -> Request:
        """Method, authority and path (with the query, unmasked) as the app named them, and the fields."""
        ...

    @property
    def client(self) -> str:
        """The app's address, `host:port`; "" on a Unix socket."""
        ...

    @property
    def outcome(self) -> Outcome:
        """The one outcome."""
        ...

    @property
    def status(self) -> int:
        """The status that the app got; 0 where it got none (it went away)."""
        ...

    @property
    def attempts(self) -> int:
        """Attempts made."""
        ...

    @property
    def history(self) -> Sequence[AttemptRecord]:
        """Every sending in order; none where the one attempt was sent at once and succeeded."""
        ...

    @property
    def started(self) -> float:
        """When the request's head was whole."""
        ...

    @property
    def ended(self) -> float:
        """When the last byte of the answer was handed on, or the call was given up."""
        ...

    @property
    def wall_started(self) -> float:
        """`started` on the wall's clock."""
        ...

    @property
    def bytes_in(self) -> int:
        """Body bytes that came from the app."""
        ...

    @property
    def bytes_out(self) -> int:
        """Body bytes that went to the app."""
        ...

    @property
    def endpoint(self) -> str:
        """Where the last attempt went, `host:port`; "" where none was made."""
        ...

    @property
    def detail(self) -> str:
        """For the proxy's own answer: what went wrong, one clause; else ""."""
        ...

    @property
    def app_retry(self) -> bool:
        """Whether the app itself was retrying (contract, section 5)."""
        ...


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that was answered before any policy applied to it: malformed, misdirected, looping, unmatched; or meant
    for the proxy itself (Max-Forwards: 0, `OPTIONS *`), whose outcome is success.

    `wall` is seconds since the epoch; it took no time. `method`, `authority` and `path` are as far as they could be
    read; `bytes_out` is the size of the answer's body.
    """

    wall: float
    client: str
    status: int
    outcome: Outcome
    detail: str
    method: str = ""
    authority: str = ""
    path: str = ""
    bytes_out: int = 0


class Observer(Protocol):
    """Who is told. The methods are called synchronously on the event loop; they return soon and never raise."""

    def succeeded(self, call: Plain) -> None:
        """A call succeeded at once, and is over."""
        ...

    def call_ended(self, call: EndedCall) -> None:
        """A call that a policy applied to is over."""
        ...

    def app_repeated(self, policy: Policy) -> None:
        """A call that ends now was most likely an app's retry of one that was given up, though it does not say so."""
        ...

    def refused(self, refusal: Refusal) -> None:
        """A request was turned away before it became a call under a policy."""
        ...


class NoObserver:
    """Nobody listens."""

    def succeeded(self, call: Plain) -> None:
        """Nothing."""

    def call_ended(self, call: EndedCall) -> None:
        """Nothing."""

    def app_repeated(self, policy: Policy) -> None:
        """Nothing."""

    def refused(self, refusal: Refusal) -> None:
        """Nothing."""


def nothing_gathered() -> None:
    """What there is to catch up with where nothing is gathered."""


@dataclass(slots=True)
class KeptCall:
    """What observers read of a call that is over, copied: it may be kept. Implements EndedCall."""

    policy: Policy
    request: Request
    client: str
    outcome: Outcome
    status: int
    attempts: int
    history: tuple[AttemptRecord, ...]
    started: float
    ended: float
    wall_started: float
    bytes_in: int
    bytes_out: int
    endpoint: str
    detail: str
    app_retry: bool


def copied(call: EndedCall) -> Plain | KeptCall:
    """The same, to be kept."""
    plain = as_plain(call)
    if plain is not None:
        return plain
    return KeptCall(
        call.policy,
        call.request,
        call.client,
        call.outcome,
        call.status,
        call.attempts,
        tuple(call.history),
        call.started,
        call.ended,
        call.wall_started,
        call.bytes_in,
        call.bytes_out,
        call.endpoint,
        call.detail,
        call.app_retry,
    )


def as_plain(call: EndedCall) -> Plain | None:
    """The same of a call, where there is nothing else to tell of it."""
    if call.attempts != 1 or call.outcome is not Outcome.SUCCESS or call.history or call.app_retry:
        return None
    request = call.request
    return (
        call.wall_started,
        call.ended - call.started,
        call.policy,
        request.method,
        request.authority,
        request.path,
        call.client,
        call.status,
        call.bytes_in,
        call.bytes_out,
        call.endpoint,
    )
