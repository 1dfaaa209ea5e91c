"""Conversations on HTTP/2: both ends in sentences, for cases that are about calls more than about frames.

sid = app.ask(place, "/a", "PUT", body=b"x")
peer = listening(place)
peer.respond(peer.asked().id, 503)
assert app.over(sid).status == 200
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance_kit import Peer, Proxy, Upstream
from http2_kit import (
    ACK,
    DATA,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Fields,
    Frame,
    Place,
    Wire,
    data,
    frame,
    headers,
    settings,
    window_update,
)


@dataclass
class Talked:
    """What came on a stream so far. `sizes`: of its DATA; `reset`: the code that it was reset with."""

    id: int
    heads: list[Fields] = field(default_factory=list)
    body: bytes = b""
    sizes: list[int] = field(default_factory=list)
    ended: bool = False
    reset: int | None = None

    @property
    def infos(self) -> list[Fields]:
        return [head for head in self.heads if dict(head).get(":status", "").startswith("1")]

    @property
    def finals(self) -> list[Fields]:
        return self.heads[len(self.infos) :]

    @property
    def trailers(self) -> Fields | None:
        return self.finals[1] if len(self.finals) > 1 else None

    @property
    def status(self) -> int:
        return int(dict(self.finals[0])[":status"])

    @property
    def grpc_status(self) -> int | None:
        """Of the last block."""
        found = dict(self.finals[-1]).get("grpc-status")
        return None if found is None else int(found)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.finals[0] if key == name]

    def get(self, name: str) -> str | None:
        values = self.all(name)
        assert len(values) <= 1, values
        return values[0] if values else None


class Talk(Wire):
    """One end of a connection. `credit`: what comes is credited at once; `updates` are what the other end credited."""

    def __init__(self, peer: Peer, *, polite: bool = True, credit: bool = True) -> None:
        super().__init__(peer, polite=polite)
        self.credit = credit
        self.talked: dict[int, Talked] = {}
        self.requests: list[int] = []
        self.updates: dict[int, int] = {}
        self.settings: dict[int, int] = {}
        self._numbers = itertools.count(1, 2)
        self._given = 0

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self) -> Frame | None:
        got = super().read()
        if got is None:
            return None
        stream = self.on(got.stream) if got.stream else None
        if got.kind == HEADERS and stream is not None:
            if not stream.heads:
                self.requests.append(got.stream)
            stream.heads.append(self.fields(got))
        elif got.kind == DATA and stream is not None:
            stream.body += got.payload
            stream.sizes.append(len(got.payload))
            if self.credit and got.payload:
                self.peer.try_send(window_update(0, len(got.payload)))
                if not got.ends:
                    self.peer.try_send(window_update(got.stream, len(got.payload)))
        elif got.kind == RST_STREAM and stream is not None:
            stream.reset = got.code
        elif got.kind == WINDOW_UPDATE:
            self.updates[got.stream] = self.updates.get(got.stream, 0) + int.from_bytes(got.payload)
        elif got.kind == SETTINGS and not got.flags & ACK:
            for at in range(0, len(got.payload), 6):
                self.settings[int.from_bytes(got.payload[at : at + 2])] = int.from_bytes(got.payload[at + 2 : at + 6])
        if stream is not None:
            stream.ended |= got.ends
        return got

    def on(self, sid: int) -> Talked:
        return self.talked.setdefault(sid, Talked(sid))

    def wait(self, until: Callable[[], object]) -> None:
        """Read until this holds."""
        while not until():
            assert self.read() is not None or until(), ("the end", self.frames[-9:])

    def over(self, sid: int) -> Talked:
        """What came on a stream, which has ended."""
        self.wait(lambda: self.on(sid).ended or self.on(sid).reset is not None)
        return self.on(sid)

    def headed(self, sid: int) -> Talked:
        """The same, once its final head is there."""
        self.wait(lambda: self.on(sid).finals)
        return self.on(sid)

    def cut(self, sid: int) -> int | None:
        """The code that a stream is reset with."""
        self.wait(lambda: self.on(sid).reset is not None)
        return self.on(sid).reset

    def begun(self) -> Talked:
        """The next request, with its head."""
        self.wait(lambda: len(self.requests) > self._given)
        self._given += 1
        return self.on(self.requests[self._given - 1])

    def asked(self) -> Talked:
        """The next request, whole."""
        return self.over(self.begun().id)

    def settle(self) -> None:
        """Until the other end has dealt with what was sent."""
        mark = os.urandom(8)
        self.peer.try_send(frame(PING, 0, 0, mark))
        self.wait(lambda: any(got.kind == PING and got.flags & ACK and got.payload == mark for got in self.frames[-9:]))

    # -- an app -------------------------------------------------------------------------------------------------------

    def ask(
        self,
        place: Place | str,
        path: str = "/",
        method: str = "GET",
        extra: Fields | None = None,
        body: bytes | None = None,
        trailers: Fields | None = None,
        *,
        end: bool = True,
    ) -> int:
        """Send a request; its stream. `end`: it is whole."""
        authority = place if isinstance(place, str) else place.authority
        sid, last = next(self._numbers), body is None and trailers is None
        fields = [(":method", method), (":scheme", "http"), (":authority", authority), (":path", path), *(extra or [])]
        self.send(headers(sid, fields, end=end and last))
        self._behind(sid, body, trailers, end)
        return sid

    def grpc(self, place: Place | str, extra: Fields | None = None, body: bytes = b"abc", *, end: bool = True) -> int:
        fields = [("content-type", "application/grpc"), ("te", "trailers"), *(extra or [])]
        return self.ask(place, "/acme.Echo/echo", "POST", fields, body, end=end)

    # -- an upstream --------------------------------------------------------------------------------------------------

    def respond(
        self,
        sid: int,
        status: int = 200,
        fields: Fields | None = None,
        body: bytes | None = None,
        trailers: Fields | None = None,
        *,
        end: bool = True,
    ) -> None:
        last = body is None and trailers is None
        self.send(headers(sid, [(":status", str(status)), *(fields or [])], end=end and last))
        self._behind(sid, body, trailers, end)

    def trailers_only(self, sid: int, status: int, *more: tuple[str, str], http: int = 200) -> None:
        self.respond(sid, http, [("content-type", "application/grpc"), ("grpc-status", str(status)), *more])

    def reply(self, sid: int, status: int = 0) -> None:
        """A gRPC answer with a message."""
        self.respond(sid, 200, [("content-type", "application/grpc")], b"ok", [("grpc-status", str(status))])

    def _behind(self, sid: int, body: bytes | None, trailers: Fields | None, end: bool) -> None:
        for at in range(0, len(body or b""), 16384):
            self.send(data(sid, body[at : at + 16384]))  # type: ignore[index]
        if trailers is not None:
            self.send(headers(sid, trailers))
        elif body is not None and end:
            self.send(data(sid, end=True))


def listening(place: Place, *pairs: tuple[int, int], greet: bool = True, **more: Any) -> Talk:
    """The next connection to a place, answered with these SETTINGS."""
    talk = Talk(place.listener.accept(), **more)
    if greet:
        assert talk.peer.read(len(PREFACE)) == PREFACE
        talk.send(settings(*pairs))
    return talk


class Talks(Proxy):
    """A proxy with places of several kinds: their policies' lines by name, and how many of each."""

    def __init__(self, folder: Path, kinds: dict[str, tuple[str, int]], more: str = "") -> None:
        self._free: dict[str, Iterator[Place]] = {}
        self._listeners: list[Upstream] = []
        lines = [more, "upstreams:"]
        for kind, (policy, number) in kinds.items():
            places = [Place(f"{kind}{at}.test", Upstream()) for at in range(number)]
            self._free[kind] = iter(places)
            for name, listener in places:
                self._listeners.append(listener)
                lines += [
                    f"  {name.partition('.')[0]}:",
                    f"    url: http://{listener.authority}",
                    f"    hosts: [{name}]",
                ]
                lines += [f"    {line}" for line in policy.strip().splitlines()]
        super().__init__(folder, "\n".join(lines) + "\n")

    def __exit__(self, *why: Any) -> None:
        super().__exit__(*why)
        for each in self._listeners:
            each.__exit__()

    def place(self, kind: str) -> Place:
        return next(self._free[kind])

    def talk(self, *pairs: tuple[int, int], **more: Any) -> Talk:
        """An app's connection, its SETTINGS exchanged."""
        app = Talk(self.app(), **more)
        app.send(PREFACE, settings(*pairs))
        app.wait(lambda: app.settings and any(got.kind == SETTINGS and got.flags & ACK for got in app.frames))
        return app
