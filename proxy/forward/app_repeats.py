"""Recognizing an app's own retries, which no field of the request shows (requests with `Retry`, tenacity, got).

A call that was given up is remembered for a few seconds by its client's address, method, URL and body; an equal call
within that time is most likely the app's own retry of it. This is a guess, which is only counted and reported. Each
worker remembers the calls that it gave up itself. If no call was given up recently, a call only checks a flag.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TypeAlias

from proxy.retry.facts import Request

#: Seconds for which a call that was given up is remembered: the first waits of urllib3, tenacity, stamina and got are
#: shorter than this by default.
WINDOW = 10.0
#: The most calls that are remembered; the oldest are dropped first.
MOST = 1000

_Key: TypeAlias = tuple[str, str, str, str]


class GivenUp:
    """A call that was given up at time `at` (seconds): its client, request, and the digest of its body. `prefix`: its
    client's address up to the port.
    """

    __slots__ = ("at", "authority", "digest", "method", "path", "prefix")

    def __init__(self, client: str, request: Request, digest: bytes, at: float) -> None:
        self.prefix = client[: client.rfind(":") + 1]
        self.method = request.method
        self.authority = request.authority
        self.path = request.path
        self.digest = digest
        self.at = at

    def is_by(self, client: str, method: str, authority: str) -> bool:
        """Whether a new call, already known to have the same path, has this client (`host:port`; the port may differ),
        method and authority too.
        """
        if method != self.method or authority != self.authority or not client.startswith(self.prefix):
            return False
        return client.rfind(":") == len(self.prefix) - 1


class AppRepeats:
    """The calls that the proxy gave up recently, by client, method, authority and path.

    For some seconds after a call was given up, every call is looked up here. Most have another path, and a few equal
    the latest call of their path, so a key is built for neither.
    """

    __slots__ = ("_given_up", "_latest", "_until")

    def __init__(self) -> None:
        self._given_up: dict[_Key, GivenUp] = {}
        self._until = 0.0  # the time at which all of them are forgotten
        self._latest: dict[str, GivenUp] = {}  # the latest call of each path

    def __bool__(self) -> bool:
        """Whether any call is remembered."""
        return bool(self._given_up)

    def ended(self, client: str, request: Request, body: Iterable[bytes] | None, given_up: bool, now: float) -> bool:
        """Take a call that ended at `now` (seconds): return whether it was most likely an app's retry of a call that
        the proxy had given up, and remember it if the proxy gave it up too (`given_up`).

        `client`: the client's address, `host:port`; `body`: the request's whole body, None if it is not available.
        """
        if now > self._until:
            self._given_up.clear()
            self._latest.clear()
        if body is None:
            return False
        latest = self._latest.get(request.path)
        if latest is None and not given_up:  # the case of most calls
            return False
        body = tuple(body)
        repeated = latest is not None and self._is_repeat(latest, client, request, body, now)
        if given_up:
            self._remember(client, request, body, now)
        return repeated

    def _remember(self, client: str, request: Request, body: tuple[bytes, ...], now: float) -> None:
        key, given_up, latest = _key(client, request), self._given_up, self._latest
        given_up.pop(key, None)  # the newest comes last
        given_up[key] = latest[request.path] = GivenUp(client, request, _digest(body), now)
        if len(given_up) > MOST:
            oldest = given_up.pop(next(iter(given_up)))
            if latest[oldest.path] is oldest:
                del latest[oldest.path]
        self._until = now + WINDOW

    def _is_repeat(self, latest: GivenUp, client: str, request: Request, body: tuple[bytes, ...], now: float) -> bool:
        found: GivenUp | None = latest
        if not latest.is_by(client, request.method, request.authority):
            found = self._given_up.get(_key(client, request))
        return found is not None and now <= found.at + WINDOW and found.digest == _digest(body)


def _key(client: str, request: Request) -> _Key:
    return client.rpartition(":")[0], request.method, request.authority, request.path


def _digest(body: tuple[bytes, ...]) -> bytes:
    if not body or not any(body):  # nearly all repeated calls have no body
        return b""
    digest = blake2b(digest_size=16)
    for chunk in body:
        digest.update(chunk)
    return digest.digest()
