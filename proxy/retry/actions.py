"""What a call asks of its driver. Values, carried out in the order in which they are returned.

Deciding carries nothing out: `proxy.forward.exchange` carries actions out with sockets, `proxy.lab.driver` on a virtual
clock; both see the same ones. They are not frozen, because frozen ones take three times as long to make; nobody changes
one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from proxy.retry.facts import Outcome
from proxy.retry.first_byte import Look
from proxy.retry.policy import Fallback


@dataclass(slots=True, unsafe_hash=True)
class Launch:
    """Send the request as attempt n. `fresh`: on a new connection, since a pooled one was found dead. `endpoint`: to
    this one of the policy's, counted from 0; None: to whichever the driver takes. `key`: the number of the credential
    that it carries, from 0; None where the policy has none.
    """

    attempt: int
    fresh: bool = False
    endpoint: int | None = None
    key: int | None = None


@dataclass(slots=True, unsafe_hash=True)
class WakeAt:
    """Set the call's one alarm (seconds, the driver's clock). A later WakeAt replaces it."""

    at: float


@dataclass(slots=True, unsafe_hash=True)
class Ask:
    """Ask the scope's bucket, which is kept elsewhere, for the price of a retry; then say `granted` or `refused`.

    The last action of its tuple: the answer may come at once.
    """

    price: float


@dataclass(slots=True, unsafe_hash=True)
class Peek:
    """Collect up to `limit` bytes of this answer's body, or to its end, or until `look`, which is fed with them, has
    seen enough; then say `peeked`. With a `look` it is a success, which has `failed` when that is `due`.
    """

    attempt: int
    limit: int
    look: Look | None = None


@dataclass(slots=True, unsafe_hash=True)
class Hold:
    """Keep this answer: head and up to 64 KiB of body; beyond that pause its connection."""

    attempt: int


@dataclass(slots=True, unsafe_hash=True)
class Discard:
    """The held answer is not needed any more."""

    attempt: int


@dataclass(slots=True, unsafe_hash=True)
class Cancel:
    """Abort this sending; nothing more is heard of it."""

    attempt: int


@dataclass(slots=True, unsafe_hash=True)
class Deliver:
    """Hand this attempt's answer to the app as it comes. `ended` or `failed` of it is followed by Finish."""

    attempt: int
    outcome: Outcome


@dataclass(slots=True, unsafe_hash=True)
class Answer:
    """The proxy's own answer, where there is none to hand on. `retry_after` is seconds, for a Retry-After field.

    `error` is the RFC 9209 proxy error type; `grpc_status` is told to a gRPC call in the place of what `status` stands
    for. Always followed by Finish.
    """

    status: int
    title: str
    detail: str
    outcome: Outcome
    retry_after: float | None = None
    error: str = "http_protocol_error"
    grpc_status: int | None = None


@dataclass(slots=True, unsafe_hash=True)
class FallBack:
    """Go on as a call of another upstream, which `elsewhere` has said takes it: make its `Call`, and say `go_on`.

    The last action of its tuple; this call is over, and hears of nothing any more.
    """

    entry: Fallback


@dataclass(slots=True, unsafe_hash=True)
class Finish:
    """The call is over: release everything. `outcome` is final (a body may have broken after delivery)."""

    outcome: Outcome


Action: TypeAlias = Launch | WakeAt | Ask | Peek | Hold | Discard | Cancel | Deliver | Answer | FallBack | Finish
Actions: TypeAlias = tuple[Action, ...]
