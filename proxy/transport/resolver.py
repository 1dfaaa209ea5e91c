"""The resolver: addresses of names, kept for `pool.dns_ttl`.

One look-up of a name is in flight at a time, however many attempts wait for it; an attempt that is cancelled does not
cancel the look-up. When a look-up fails, the addresses known before are still used: an old address is better than none,
and the deny list is checked on it all the same. Look-ups run in the few threads of the loop's resolver.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import deque
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple

from proxy.transport.clock import monotonic

#: The most names that are kept; beyond that the oldest are dropped.
KEPT = 4096
#: The seconds for which successful look-ups are remembered, and the most of one name.
HISTORY, _MOST = 300.0, 16


class Found(NamedTuple):
    """The addresses of a name, families interleaved (RFC 8305 section 4), and the time until which they are fresh."""

    addresses: tuple[str, ...]
    until: float


class Resolver:
    """A cache over the system's resolver. `ttl`: the seconds for which addresses are fresh."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ttl: float) -> None:
        self._loop = loop
        self.ttl = ttl
        self._known: dict[str, Found] = {}
        self._flying: dict[str, asyncio.Task[Found]] = {}
        self._history: dict[str, deque[tuple[float, tuple[str, ...]]]] = {}  # successful look-ups, when and what

    async def addresses(self, host: str) -> tuple[str, ...]:
        """The addresses of a host, best first. Raises OSError (socket.gaierror) when there are none."""
        known = self.known(host)
        if known:
            return known
        look_up = self._flying.get(host)
        if look_up is None:
            look_up = self._flying[host] = self._loop.create_task(self._look_up(host))
            look_up.add_done_callback(lambda task: self._landed(host, task))
        return (await asyncio.shield(look_up)).addresses

    def known(self, host: str) -> tuple[str, ...]:
        """The addresses of a host, best first, if they need no look-up; else ()."""
        spelt = _spelt(host)
        if spelt:
            return spelt
        found = self._known.get(host)
        return found.addresses if found is not None and monotonic() < found.until else ()

    async def _look_up(self, host: str) -> Found:
        try:
            answers = await self._loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            stale = self._known.get(host)
            if stale is None:
                if isinstance(error, UnicodeError):  # not a name at all, for IDNA
                    raise socket.gaierror(socket.EAI_NONAME, "not a host name") from error
                raise
            return Found(stale.addresses, monotonic() + min(self.ttl, 1.0))
        found = Found(interleaved([_text(answer[4]) for answer in answers]), monotonic() + self.ttl)
        self._remember(host, found.addresses)
        return found

    def has_lost(self, host: str, address: str) -> bool:
        """Whether `address` was in no successful look-up of the name `host` within HISTORY seconds, of which there were
        two at least.
        """
        now, bare = monotonic(), address.partition("%")[0]
        found = [addresses for at, addresses in self._history.get(host, ()) if at > now - HISTORY]
        return len(found) >= 2 and all(bare not in [each.partition("%")[0] for each in one] for one in found)

    def _remember(self, host: str, addresses: tuple[str, ...]) -> None:
        kept = self._history.pop(host, None)
        self._history[host] = kept = deque(maxlen=_MOST) if kept is None else kept
        kept.append((monotonic(), addresses))
        if len(self._history) > KEPT:
            del self._history[next(iter(self._history))]

    def _landed(self, host: str, task: asyncio.Task[Found]) -> None:
        del self._flying[host]
        if task.cancelled() or task.exception() is not None:
            return
        self._known.pop(host, None)
        self._known[host] = task.result()
        if len(self._known) > KEPT:
            del self._known[next(iter(self._known))]

    async def close(self) -> None:
        """Cancel the look-ups in flight."""
        flying = list(self._flying.values())
        for task in flying:
            task.cancel()
        await asyncio.gather(*flying, return_exceptions=True)


@lru_cache(KEPT)
def _spelt(host: str) -> tuple[str, ...]:
    """The address that a host's text spells, as the only one of a tuple; () for a name."""
    try:
        return (str(ipaddress.ip_address(host)),)
    except ValueError:
        return ()


def _text(sockaddr: tuple[object, ...]) -> str:
    """An address with its zone, if it has one."""
    address = str(sockaddr[0])
    if len(sockaddr) == 4 and sockaddr[3] and "%" not in address:
        return f"{address}%{sockaddr[3]}"
    return address


def interleaved(addresses: list[str]) -> tuple[str, ...]:
    """Each address once, the families taking turns, the first one's family first (RFC 8305 section 4)."""
    unique = list(dict.fromkeys(addresses))
    sixes = [address for address in unique if ":" in address]
    fours = [address for address in unique if ":" not in address]
    first, second = (sixes, fours) if unique and ":" in unique[0] else (fours, sixes)
    return tuple(address for pair in zip_longest(first, second) for address in pair if address)
