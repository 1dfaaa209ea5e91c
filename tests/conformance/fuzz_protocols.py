"""A coverage-guided fuzzer of the connection protocols, both directions at once: `make fuzz`.

A case is what an app sends, and what upstreams answer, cut into packets. It is played through the real connections
(`memory_wire`), and then these must hold, or the case is a find:

- nothing raised, nothing hung, and nothing is left over: no call, no replay buffer, no place, no paused connection;
- what was forwarded is what the app said: parsed by two other readers (`strict_reader`, llhttp) it is the same
  requests, in order, with the same bodies, and an unfinished one is never made to look whole;
- what the app got is well-formed to both readers, one answer for a request, in order, and what looks whole to it was
  whole when the upstream said it, with the same body.

Cases that reach new branches of the code are kept and mutated further. `python fuzz_protocols.py --seconds 60`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

if __name__ == "__main__":
    here = Path(__file__).parent
    root = here.parent.parent
    sys.path[:0] = [str(here), str(here.parent), str(here.parent / "wire"), str(root / "bench"), str(root)]

import uvloop
from fuzz_judge import Case, play
from memory_wire import EOF, RESET, Stage
from wire_mutants import mutated, seeds

#: The code whose branches guide the search.
GUIDES = ("proxy/wire/", "proxy/forward/", "proxy/server/connection.py",
          "proxy/transport/connection.py", "proxy/transport/replay_buffer.py")  # fmt: skip
#: Cases between two fresh proxies.
FRESH = 200


# -- the search -----------------------------------------------------------------------------------------------------

AT = b"http://u.example:81"
TOKENS = [
    b"Connection: close\r\n",
    b"Connection: keep-alive\r\n",
    b"Connection: x-hop, upgrade\r\n",
    b"x-hop: 1\r\n",
    b"Expect: 100-continue\r\n",
    b"Upgrade: websocket\r\n",
    b"TE: trailers\r\n",
    b"Trailer: x\r\n",
    b"Date: x\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Max-Forwards: 0\r\n",
    b"X-Retry-Disable: true\r\n",
    b"X-Retry-Timeout: 9\r\n",
    b"Authorization: NTLM x\r\n",
    b"5\r\nhello\r\n",
    b"hello",
    b"0\r\n\r\n",
    b"0\r\nx-hop: 1\r\nY: z\r\n\r\n",
    b"HTTP/1.0",
    b"HTTP/1.1",
    b"GET " + AT + b"/n HTTP/1.1\r\nHost: u.example:81\r\n\r\n",
    AT,
    *(b"HEAD ", b"POST ", b"CONNECT ", b"OPTIONS ", b"\r\n\r\n", b"\r\n", b"\n", b"\0", b" "),
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 103 E\r\nLink: x\r\n\r\n",
    b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 204 N\r\n\r\n",
    b"HTTP/1.1 304 N\r\nContent-Length: 5\r\n\r\n",
    b"HTTP/1.1 503 S\r\nContent-Length: 0\r\n\r\n",
]
ENDS = ("", "", "", EOF, RESET)


def first_cases(random: Random) -> list[Case]:
    """The tables of the grammar, in absolute form so that they are forwarded."""
    asked, told = seeds(random)
    forward = []
    for data in asked:
        head, _, rest = data.partition(b"\r\n")
        words = head.split(b" ")
        if len(words) == 3 and words[1].startswith(b"/"):
            words[1] = AT + words[1]
        forward.append(b" ".join(words) + b"\r\n" + rest)
    plain = AT.join([b"GET ", b"/x HTTP/1.1\r\nHost: u.example:81\r\n\r\n"])
    cases = [Case(data, ((random.choice(told), random.choice(ENDS)),), n) for n, data in enumerate(forward)]
    cases += [Case(plain, ((data, end),), n) for n, data in enumerate(told) for end in ("", EOF)]
    cases += [Case(plain * 3, tuple((data, "") for data in random.sample(told, 3)), n) for n in range(50)]
    return cases


def mutate(case: Case, corpus: list[Case], random: Random) -> Case:
    kind = random.randrange(8)
    other = random.choice(corpus)
    if kind == 0:
        return replace(case, cuts=random.randrange(1 << 30))
    if kind == 1:
        return replace(case, app=case.app + other.app, answers=case.answers + other.answers)
    if kind == 2:
        return replace(case, app=other.app)
    if kind == 3:
        return replace(case, answers=tuple((data, random.choice(ENDS)) for data, _ in case.answers))
    if kind < 6 or not case.answers:
        return replace(case, app=changed(case.app, random), cuts=random.randrange(1 << 30))
    answers = list(case.answers)
    at = random.randrange(len(answers))
    answers[at] = (changed(answers[at][0], random), answers[at][1])
    return replace(case, answers=tuple(answers), cuts=random.randrange(1 << 30))


def changed(data: bytes, random: Random) -> bytes:
    if random.random() < 0.5:
        return mutated(data, random)
    places = [0, len(data), *(i + 2 for i in range(len(data)) if data[i : i + 2] == b"\r\n")]
    at = random.choice(places)
    return data[:at] + random.choice(TOKENS) + data[at + random.choice((0, 0, 0, 5)) :]


class Guide:
    """Which branches a case has reached: pairs of lines that followed each other, in the files of GUIDES."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, int, int]] = set()
        self._of: dict[str, str | None] = {}
        self._count = 0

    def looks(self) -> bool:
        """Whether to look at the next case: seldom, since it makes it ten times slower."""
        self._count += 1
        return self._count % 8 == 0

    def trace(self, frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        name = frame.f_code.co_filename
        if name not in self._of:
            part = name[name.rfind("proxy/") :]
            self._of[name] = part if part.startswith(GUIDES) else None
        part = self._of[name]
        if part is None:
            return None
        before = frame.f_lineno

        def lines(frame: FrameType, event: str, _: object) -> Any:
            nonlocal before
            if event == "line":
                self.seen.add((part, before, frame.f_lineno))
                before = frame.f_lineno
            return lines

        return lines


def run(
    cases: Callable[[], Case | None], told: Callable[[Case], None] | None = None, guide: Guide | None = None
) -> int:
    """Play cases until there is none; how many. Raises Find, with the case in it."""
    played = 0
    case: Case | None = None

    async def batch() -> bool:
        nonlocal played, case
        stage = Stage(asyncio.get_running_loop())
        try:
            for _ in range(FRESH):
                case = cases()
                if case is None:
                    return False
                if guide is not None and guide.looks():
                    sys.settrace(guide.trace)
                try:
                    await play(stage, case)
                finally:
                    sys.settrace(None)
                played += 1
                if told is not None:
                    told(case)
            return True
        finally:
            await stage.path.close()
            stage.leave()

    try:
        going = True
        while going:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                going = runner.run(batch())
    except BaseException as error:
        error.add_note(repr(case))
        raise
    return played


def search(seconds: float, seed: int, report: Callable[[str], None] = print) -> list[tuple[Case, str]]:
    """Search for so long; the finds."""
    random, guide = Random(seed), Guide()
    corpus = first_cases(random)
    queue = list(corpus)
    finds: list[tuple[Case, str]] = []
    ends = time.monotonic() + seconds
    played, known, said = 0, 0, time.monotonic()

    def next_case() -> Case | None:
        if time.monotonic() >= ends:
            return None
        return (
            queue.pop()
            if queue
            else mutate(random.choice(corpus[-500:] if random.random() < 0.5 else corpus), corpus, random)
        )

    def told(case: Case) -> None:
        nonlocal played, known, said
        played += 1
        if len(guide.seen) > known:
            known = len(guide.seen)
            if len(case.app) < 20_000:
                corpus.append(case)
        if time.monotonic() - said > 10:
            said = time.monotonic()
            report(f"{played} cases, {known} branches, {len(corpus)} kept, {len(finds)} finds")

    while time.monotonic() < ends:
        try:
            run(next_case, told, guide)
        except Exception as error:
            case = eval("".join(error.__notes__[-1:]), {"Case": Case})
            finds.append((case, f"{type(error).__name__}: {error}"))
            report(f"FIND {finds[-1][1][:2000]}\n  {shrunk(case)!r}")
    report(f"{played} cases, {known} branches, {len(corpus)} kept, {len(finds)} finds")
    return finds


def fails(case: Case) -> bool:
    cases = iter([case])
    try:
        run(lambda: next(cases, None))
    except Exception:
        return True
    return False


def shrunk(case: Case) -> Case:
    """A smaller case that still fails."""
    for _ in range(3):
        for answers in (case.answers[:-1], case.answers[1:]):
            if case.answers and fails(replace(case, answers=answers)):
                case = replace(case, answers=answers)
        size = max(len(case.app) // 2, 1)
        while size:
            at = 0
            while at < len(case.app):
                smaller = replace(case, app=case.app[:at] + case.app[at + size :])
                if fails(smaller):
                    case = smaller
                else:
                    at += size
            size //= 2
    return case


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    return 1 if search(options.seconds, options.seed) else 0


if __name__ == "__main__":
    sys.exit(main())
