"""A transcript language for `Call`, in the manner of mitmproxy's Playbook.

    assert (
        Playbook(policy)
        >> start(at=0)
        << Launch(1)
        >> reply(1, 503, at=0.01)
        << Hold(1)
        << WakeAt(0.11)
    )

`>>` is an event that happens, `<<` an action that the call must answer with, in order, and nothing else. A play that
goes otherwise fails with both columns printed: what was written, and what happened.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from proxy.retry.call.actions import Action, Actions
from proxy.retry.call.environment import Env
from proxy.retry.call.fallback import Elsewhere
from proxy.retry.call.machine import Call
from proxy.retry.facts import Fault, FaultKind, MappingFields, Progress, Reply, Request
from proxy.retry.policies.policy import Policy
from proxy.retry.queues.waiting_room import WaitingRoom
from proxy.retry.scopes.registry import Registry
from proxy.retry.scopes.scope_state import ScopeState


class Any_:  # noqa: N801
    """Equal to everything: a field that the transcript does not care for."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "…"


ANY: Any = Any_()


class FixedDraws:
    """Every draw is the same number."""

    def __init__(self, draw: float) -> None:
        self.draw = draw

    def random(self) -> float:
        return self.draw


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happens to the call, at a time."""

    label: str
    at: float
    happen: Callable[[Call, float], Actions]


def start(at: float = 0.0) -> Event:
    return Event("start", at, lambda call, now: call.start(now))


def request_sent(at: float = 0.0, body: bytes = b'{"stream": true}') -> Event:
    return Event("request sent", at, lambda call, now: call.request_sent(now, [body]))


def reply(
    attempt: int,
    status: int,
    *,
    at: float,
    headers: Mapping[str, str] | None = None,
    grpc: int | None = None,
    end: bool = True,
) -> Event:
    """A final head; with `end`, nothing follows it. `grpc` makes it trailers-only with this grpc-status."""
    pairs = list((headers or {}).items()) + ([("grpc-status", str(grpc))] if grpc is not None else [])
    head = Reply(status, MappingFields(pairs), end=end)
    more = "" if grpc is None else f" grpc-status {grpc}"
    return Event(f"head {attempt}: {status}{more}", at, lambda call, now: call.head(attempt, head, now))


def ended(attempt: int, *, at: float, trailers: Mapping[str, str] | None = None) -> Event:
    fields = MappingFields(list(trailers.items())) if trailers is not None else None
    return Event(f"end {attempt}", at, lambda call, now: call.ended(attempt, now, fields))


def peeked(attempt: int, body: bytes, *, at: float) -> Event:
    return Event(f"body {attempt}: {body[:30]!r}", at, lambda call, now: call.peeked(attempt, body, now))


_PROGRESS = {
    FaultKind.CONNECT_FAILURE: Progress.NEVER_SENT,
    FaultKind.REFUSED_STREAM: Progress.REFUSED,
    FaultKind.RESET: Progress.UNKNOWN,
    FaultKind.ATTEMPT_TIMEOUT: Progress.UNKNOWN,
}


def fault(attempt: int, kind: str, *, at: float, reused: bool = False, progress: Progress | None = None) -> Event:
    which = FaultKind(kind)
    what = Fault(which, progress or _PROGRESS[which], reused=reused)
    return Event(f"fault {attempt}: {kind}", at, lambda call, now: call.failed(attempt, what, now))


def wake(at: float) -> Event:
    return Event("woke", at, lambda call, now: call.woke(now))


def granted(price: float, *, at: float) -> Event:
    return Event(f"granted {price:g}", at, lambda call, now: call.granted(price, now))


def refused(price: float, *, at: float) -> Event:
    return Event(f"refused {price:g}", at, lambda call, now: call.refused(price, now))


def replay_lost(at: float, furthest: int = 0) -> Event:
    return Event("replay lost", at, lambda call, now: call.replay_lost(now, furthest))


def app_gone(at: float) -> Event:
    return Event("app gone", at, lambda call, now: call.app_gone(now))


def cut(at: float) -> Event:
    return Event("cut", at, lambda call, now: call.cut(now))


class Playbook:
    """One call's transcript, played when it is asked whether it holds."""

    def __init__(
        self,
        policy: Policy,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        draw: float = 1.0,
        registry: Registry | None = None,
        room: WaitingRoom | None = None,
        path: str = "/x",
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self.request = Request(method, "u.test", path, MappingFields(list((headers or {}).items())))
        self.registry = registry or Registry()
        self.scope: ScopeState = self.registry.scope(policy, self.request)
        env = Env(FixedDraws(draw), 0.0, room or WaitingRoom(2000))
        self.env = env
        self.call = Call(self.request, policy, self.scope, env, None, elsewhere)
        self.lines: list[Event | Action] = []

    def go_on(self, policy: Policy, *, at: float) -> Event:
        """The driver takes the call to another upstream."""

        def happen(before: Call, now: float) -> Actions:
            self.scope = self.registry.scope(policy, self.request, now)
            self.call = Call(self.request, policy, self.scope, self.env)
            return self.call.go_on(before, now)

        return Event(f"go on: {policy.upstream}", at, happen)

    def __rshift__(self, event: Event) -> Playbook:
        self.lines.append(event)
        return self

    def __lshift__(self, action: Action) -> Playbook:
        self.lines.append(action)
        return self

    def __bool__(self) -> bool:
        happened = self._play()
        if len(happened) != len(self.lines) or not all(map(_matches, self.lines, happened)):
            raise AssertionError("\n" + self._columns(happened))
        self.lines = []  # what has been played stays played: a transcript may go on
        return True

    def _play(self) -> list[Event | Action]:
        happened: list[Event | Action] = []
        for line in self.lines:
            if isinstance(line, Event):
                happened.append(line)
                happened.extend(line.happen(self.call, line.at))
        return happened

    def _columns(self, happened: list[Event | Action]) -> str:
        """Both columns, brought together at every event."""
        written, real = _blocks(self.lines), _blocks(happened)
        rows = [("written", "happened"), ("-------", "--------")]
        for left, right in zip(written, real, strict=True):
            for index in range(max(len(left), len(right))):
                one = left[index] if index < len(left) else None
                two = right[index] if index < len(right) else None
                same = one is not None and two is not None and _matches(one, two)
                rows.append((_shown(one), _shown(two) + ("" if same else "   <-- differs")))
        width = max(len(left) for left, _ in rows)
        return "\n".join(f"{left:<{width}} | {right}" for left, right in rows)


def _blocks(lines: list[Event | Action]) -> list[list[Event | Action]]:
    blocks: list[list[Event | Action]] = [[]]
    for line in lines:
        if isinstance(line, Event):
            blocks.append([])
        blocks[-1].append(line)
    return blocks


def _shown(line: Event | Action | None) -> str:
    if line is None:
        return ""
    return f">> {line.at:g}s {line.label}" if isinstance(line, Event) else f"   << {line!r}"


def _matches(written: Event | Action, real: Event | Action) -> bool:
    if isinstance(written, Event) or isinstance(real, Event):
        return written is real
    if type(written) is not type(real):
        return False
    return all(_same(getattr(written, name), getattr(real, name)) for name in written.__slots__)


def _same(one: object, two: object) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=1e-9, abs_tol=1e-9)
    return bool(one == two)
