"""Recognizing an app's own retries, which no field of the request shows (requests with `Retry`, tenacity, got).

A call that was given up is remembered for a few seconds. A later call is taken for the app's retry of it if

- it has the same client address, method, URL and body, and began after the other had ended;
- it came on the same connection; or it has the same User-Agent, came within a short time, and its connection was opened
  after the other call had ended, as by an app that opens one for each request;
- it came sooner than the app's usual pace explains: an app that polls a URL calls it again in any case, whatever the
  answer to the last call was.

All of this is a guess, which is only counted and reported. Some calls meet all three conditions by chance, at most
CHANCE of them; so each app has a balance to which a guess adds 1 and from which each call that is given up subtracts a
little more than chance would add, and a retry is reported each time the balance reaches 1. Each worker remembers the
calls that it gave up itself. If no call was given up recently, a call only checks a flag.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Protocol, TypeAlias

from proxy.forward.usual_calls import UsualCalls, host_of
from proxy.observe.call_record import CallRecord
from proxy.retry.facts import Request, first

#: Seconds for which a call that was given up is remembered: the first waits of urllib3, tenacity, stamina and got are
#: shorter than this by default.
WINDOW = 10.0
#: Seconds within which a retry on another connection comes: the first waits of got are 1 s and 2 s.
SHORT = 2.5
#: The same with a type, when compiled.
_WINDOW, _SHORT = WINDOW, SHORT
#: The most calls that are remembered; the oldest are dropped first.
MOST = 1000
#: The largest chance that a call comes so soon by itself, for which it is still taken for a retry.
CHANCE = 0.02
#: Seconds after which the pace of calls is taken from the last calls again: half a millisecond for a thousand of them.
_USUAL_FOR = 5.0
#: The amount by which a call that is given up lowers the count of its app, to which each guess adds 1: four times what
#: chance adds.
_COST = 4 * CHANCE
#: The count with which an app begins, and below which it does not fall: a few guesses may be chance.
_FIRST, _LEAST = -2.0, -6.0

_Key: TypeAlias = tuple[str, str, str, str]


class LastCalls(Protocol):
    """The object that keeps the records of the last calls of this process."""

    def last_calls(self) -> list[CallRecord]:
        """Return the last calls of this process that are kept."""
        ...


class GivenUp:
    """A call that the proxy gave up at time `at` (seconds), with its client and request, and the digest of its body.
    `prefix`: the address of its client up to the port, with the colon; `connected`: the time at which its connection
    was opened; `agent`: its User-Agent. `is_usual`: so much time has passed since then that the app would call the URL
    again even without a failure, so that a call on the same connection is no longer taken for a retry;
    `is_usual_elsewhere`: the same for calls on other connections.
    """

    __slots__ = (
        "agent", "at", "authority", "client", "connected", "digest", "is_usual", "is_usual_elsewhere", "method", "path",
        "prefix",
    )  # fmt: skip

    at: float
    client: str
    connected: float
    agent: str | None
    digest: bytes
    is_usual: bool
    is_usual_elsewhere: bool

    def __init__(self, key: _Key) -> None:
        host, self.method, self.authority, self.path = key
        self.prefix = f"{host}:"

    def ended(self, record: CallRecord, agent: str | None, digest: bytes, connected: float) -> None:
        """Take the latest call with this object's key that the proxy gave up, in place of the one before."""
        self.client = record.client
        self.at = record.ended
        self.agent = agent
        self.digest = digest
        self.connected = connected
        self.is_usual = self.is_usual_elsewhere = False

    def is_by(self, client: str, method: str, authority: str) -> bool:
        """Whether a new call, already known to have this call's path, also has its client (`host:port`; the port may
        differ), method and authority.
        """
        if method != self.method or authority != self.authority:
            return False
        if client == self.client:
            return True
        return client.startswith(self.prefix) and client.rfind(":") == len(self.prefix) - 1


class AppRepeats:
    """The calls that the proxy gave up recently: `given_up` has them by client, method, authority and path. `last`: the
    source of the last calls, which show how often an app calls a URL when nothing fails.

    For some seconds after a call was given up, every call is looked up here. For most calls a search by path is enough:
    no call with that path was given up, or the latest one that was given up has the same client, method and authority
    too. So the calls are kept by path as well, and the key of client, method, authority and path is built only for the
    remaining calls.
    """

    __slots__ = ("_counts", "_last", "_latest", "_until", "_usual", "_usual_at", "given_up")

    def __init__(self, last: LastCalls) -> None:
        self._last = last
        self._usual: UsualCalls | None = None
        self._usual_at = 0.0
        self.given_up: dict[_Key, GivenUp] = {}
        self._until = 0.0  # the time at which all of them are forgotten
        self._latest: dict[str, GivenUp] = {}  # the latest call of each path
        self._counts: dict[tuple[str, str | None], float] = {}  # by upstream and User-Agent: not yet reported

    def ended(
        self,
        record: CallRecord,
        request: Request,
        body: Iterable[bytes] | None,
        given_up: bool,
        connected: float,
        agent: bytes | None = None,
    ) -> bool:
        """Take a call that is over: return whether an app's retry of a call that the proxy had given up is to be
        counted, and remember the call if the proxy gave it up too (`given_up`).

        `body`: the request's whole body, None if it is not available; `connected`: the time at which the app's
        connection was opened (seconds); `agent`: the request's User-Agent, if it has been looked up already.
        """
        if record.ended > self._until:
            self.given_up.clear()
            self._latest.clear()
            self._usual = None
        latest = self._latest.get(request.path)
        if body is None or (latest is None and not given_up):  # the case of most calls
            return False
        body = tuple(body)
        repeated = latest is not None and self._is_repeat(latest, record, request, body, connected)
        if not (repeated or given_up):
            return False
        by = first(request.fields, "user-agent") if agent is None else agent.decode("latin-1")
        if given_up:
            self._remember(record, request, by, body, connected)
        else:  # the app has its answer, and will not repeat the call any more
            self._forget(_key(record.client, request))
        return self._count((record.policy.upstream, by), repeated, given_up)

    def _remember(
        self, record: CallRecord, request: Request, agent: str | None, body: tuple[bytes, ...], connected: float
    ) -> None:
        key, given_up, latest = _key(record.client, request), self.given_up, self._latest
        made = given_up.pop(key, None) or GivenUp(key)  # the newest comes last
        made.ended(record, agent, _digest(body), connected)
        given_up[key] = latest[request.path] = made
        if len(given_up) > MOST:
            self._forget(next(iter(given_up)))
        self._until = record.ended + WINDOW

    def _forget(self, key: _Key) -> None:
        forgotten = self.given_up.pop(key, None)
        if forgotten is not None and self._latest.get(forgotten.path) is forgotten:
            del self._latest[forgotten.path]

    def _is_repeat(
        self, latest: GivenUp, record: CallRecord, request: Request, body: tuple[bytes, ...], connected: float
    ) -> bool:
        found: GivenUp | None = latest
        if not latest.is_by(record.client, request.method, request.authority):
            found = self.given_up.get(_key(record.client, request))
        if found is None:
            return False
        gap = record.started - found.at
        if not 0.0 <= gap <= _WINDOW:  # below 0: it was sent before the answer to the other came
            return False
        same = record.client == found.client and connected == found.connected
        if found.is_usual if same else found.is_usual_elsewhere:
            return False  # all further calls come later still
        if not same and (gap > _SHORT or connected < found.at or found.agent is None):
            return False
        if found.digest != _digest(body):
            return False
        usual = self._usual
        if usual is None or record.ended > self._usual_at + _USUAL_FOR:
            usual = self._usual = UsualCalls(self._last.last_calls())
            self._usual_at = record.ended
        if usual.chance(record, gap, same) > CHANCE:
            if same:
                found.is_usual = True
            else:
                found.is_usual_elsewhere = True
            return False
        return same or first(request.fields, "user-agent") == found.agent

    def _count(self, app: tuple[str, str | None], repeated: bool, given_up: bool) -> bool:
        """Change the balance of an app (the calls of one upstream with one User-Agent): a call that is taken for a
        retry (`repeated`) adds 1, and a call that the proxy gave up (`given_up`) subtracts a little. Return whether the
        balance has reached 1, so that a retry is to be reported.
        """
        before = self._counts.get(app, _FIRST)
        count = before + repeated - _COST * given_up
        report = count >= 1.0
        if len(self._counts) >= MOST and app not in self._counts:
            self._counts.clear()
        self._counts[app] = max(count - report, _LEAST)
        return report


def _key(client: str, request: Request) -> _Key:
    return host_of(client), request.method, request.authority, request.path


def _digest(body: tuple[bytes, ...]) -> bytes:
    if not body or not any(body):  # nearly all repeated calls have no body
        return b""
    digest = blake2b(digest_size=16)
    for chunk in body:
        digest.update(chunk)
    return digest.digest()
