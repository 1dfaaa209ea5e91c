"""The actions that a call asks of its driver: values, carried out in the order in which they are returned.

The core only decides. `proxy.forward.call_driver` carries actions out with sockets, and `proxy.lab.driver` on a virtual
clock; both drivers get the same actions. Actions must not be changed, though nothing enforces this: frozen objects take
three times as long to make.
"""

from __future__ import annotations

from typing import TypeAlias

from proxy.retry.answers.first_byte import BodyWait
from proxy.retry.facts import Outcome
from proxy.retry.policies.policy import Fallback


class _Value:
    """The base of actions: two actions are equal if they are of the same class, and all their slots are equal."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __hash__(self) -> int:
        return hash((type(self), *[getattr(self, name) for name in self.__slots__]))

    def __repr__(self) -> str:
        slots = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({slots})"


class Launch(_Value):
    """Send the request as the attempt with the number `attempt`.

    `fresh`: send it on a new connection, since a pooled one was found dead. `alone`: send it as the first request of
    its connection, since the upstream answered 421 on a connection that had carried others. `endpoint`: the number of
    the policy's endpoint to use, counted from 0; None if the driver chooses. `key`: the number of the credential that
    the request carries, counted from 0; None if the policy has none.
    """

    __slots__ = ("alone", "attempt", "endpoint", "fresh", "key")

    def __init__(
        self,
        attempt: int,
        fresh: bool = False,
        endpoint: int | None = None,
        key: int | None = None,
        alone: bool = False,
    ) -> None:
        self.alone = alone
        self.attempt = attempt
        self.fresh = fresh
        self.endpoint = endpoint
        self.key = key


class WakeAt(_Value):
    """Set the call's only alarm to the time `at` (in seconds, on the driver's clock). A later WakeAt replaces it."""

    __slots__ = ("at",)

    def __init__(self, at: float) -> None:
        self.at = at


class Ask(_Value):
    """Ask the scope's bucket, which is kept outside this process, for `price` tokens, the price of a retry that is due
    at the time `due`. Then report `granted` or `refused` to the call.

    Always the last of the actions that a call returns, since the bucket's answer may come while the driver carries this
    action out.
    """

    __slots__ = ("due", "price")

    def __init__(self, price: float, due: float) -> None:
        self.price = price
        self.due = due


class Peek(_Value):
    """Collect the first bytes of this answer's body: up to `limit` bytes, or all of the body, or until `body_wait`,
    which gets the bytes as they come, has seen enough. Then report `peeked` to the call.

    `body_wait` is set only for a success. With it, the driver reports the attempt as `failed` once the time
    `body_wait.due` has passed.
    """

    __slots__ = ("attempt", "body_wait", "limit")

    def __init__(self, attempt: int, limit: int, body_wait: BodyWait | None = None) -> None:
        self.attempt = attempt
        self.limit = limit
        self.body_wait = body_wait


class Hold(_Value):
    """Keep this answer: its head and up to 64 KiB of its body; pause its connection beyond that."""

    __slots__ = ("attempt",)

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt


class Discard(_Value):
    """Drop the held answer, which is not needed any more."""

    __slots__ = ("attempt",)

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt


class Cancel(_Value):
    """Abort this attempt; report nothing more of it."""

    __slots__ = ("attempt",)

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt


class Deliver(_Value):
    """Forward this attempt's answer to the app as it comes. At the answer's end the driver reports `ended` or `failed`
    to the call, which answers with Finish.
    """

    __slots__ = ("attempt", "outcome")

    def __init__(self, attempt: int, outcome: Outcome) -> None:
        self.attempt = attempt
        self.outcome = outcome


class Answer(_Value):
    """Send the proxy's own answer to the app, since no answer of an upstream is to be forwarded. Always followed by
    Finish.

    `retry_after`: the seconds for a Retry-After field; None for no such field. `error`: the RFC 9209 proxy error type.
    `grpc_status`: the status for a gRPC call; None for the grpc-status that the HTTP `status` corresponds to.
    """

    __slots__ = ("detail", "error", "grpc_status", "outcome", "retry_after", "status", "title")

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        outcome: Outcome,
        retry_after: float | None = None,
        error: str = "http_protocol_error",
        grpc_status: int | None = None,
    ) -> None:
        self.status = status
        self.title = title
        self.detail = detail
        self.outcome = outcome
        self.retry_after = retry_after
        self.error = error
        self.grpc_status = grpc_status


class FallBack(_Value):
    """Continue as a call of another upstream, which the driver's function `elsewhere` has found: make that upstream's
    `Call`, and start it with `go_on`. `entry`: the item of the policy's fallbacks that names the upstream.

    Always the last of the actions that a call returns; this call is over, and gets no more events.
    """

    __slots__ = ("entry",)

    def __init__(self, entry: Fallback) -> None:
        self.entry = entry


class Finish(_Value):
    """Release everything that the call has, because the call is over. `outcome` is how the call ended; it may differ
    from that of `Deliver`, because the answer may have broken off during delivery.
    """

    __slots__ = ("outcome",)

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome


Action: TypeAlias = Launch | WakeAt | Ask | Peek | Hold | Discard | Cancel | Deliver | Answer | FallBack | Finish
Actions: TypeAlias = tuple[Action, ...]
