"""Calls that look like an app's own retry, though nothing in them says so (requests with `Retry`, tenacity, got).

A call that was given up is remembered for a few seconds by its client's address, method, URL and body; the same again
within that time is most likely the app's own retry of it. This is a guess: it is counted and reported, and costs
nothing. Each worker remembers what it gave up itself. If nothing was given up lately, a call only checks a flag.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TypeAlias

from proxy.retry.facts import Request

#: Seconds for which a call that was given up is remembered: the first waits of urllib3, tenacity, stamina and got are
#: shorter than this by default.
WINDOW = 10.0
#: Calls that are remembered; the oldest make room.
MOST = 1000

_Key: TypeAlias = tuple[str, str, str, str]


class AppRepeats:
    """What was given up lately: when, and the digest of its body, by client, method, authority and path."""

    __slots__ = ("_given_up", "_newest", "_paths")

    def __init__(self) -> None:
        self._given_up: dict[_Key, tuple[float, bytes]] = {}
        self._newest = 0.0  # when the last one was
        self._paths: set[str] = set()  # of all of them, and perhaps of some that are forgotten

    def __bool__(self) -> bool:
        """Whether anything is remembered."""
        return bool(self._given_up)

    def ended(self, client: str, request: Request, body: Iterable[bytes] | None, given_up: bool, now: float) -> bool:
        """A call is over at `now` (seconds): whether it was most likely an app's retry of one that was given up.

        `client`: its address, `host:port`; `body`: all of the request's, None where it is not at hand.
        """
        if now - self._newest > WINDOW:
            self._given_up.clear()
            self._paths.clear()
        if body is None or (not given_up and request.path not in self._paths):  # so most calls end here
            return False
        body = tuple(body)
        repeated = self._is_repeat(client, request, body, now)
        if given_up:
            self._remember(client, request, body, now)
        return repeated

    def _remember(self, client: str, request: Request, body: tuple[bytes, ...], now: float) -> None:
        key, given_up = _key(client, request), self._given_up
        given_up.pop(key, None)  # the newest stands last
        given_up[key] = (now, _digest(body))
        if len(given_up) > MOST:
            del given_up[next(iter(given_up))]
        self._newest = now
        self._paths.add(request.path)
        if len(self._paths) > 2 * MOST:
            self._paths = {path for *_, path in given_up}

    def _is_repeat(self, client: str, request: Request, body: tuple[bytes, ...], now: float) -> bool:
        found = self._given_up.get(_key(client, request))
        return found is not None and now - found[0] <= WINDOW and found[1] == _digest(body)


def _key(client: str, request: Request) -> _Key:
    return client.rpartition(":")[0], request.method, request.authority, request.path


def _digest(body: tuple[bytes, ...]) -> bytes:
    if not any(body):  # as of nearly all that is repeated
        return b""
    digest = blake2b(digest_size=16)
    for chunk in body:
        digest.update(chunk)
    return digest.digest()
