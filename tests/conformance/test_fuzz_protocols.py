"""What the fuzzer has found, for good; and a short search each time. `make fuzz` searches for longer."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from fuzz_judge import Case
from fuzz_protocols import first_cases, mutate, run
from memory_wire import EOF, RESET, Stage
from strict_reader import Malformed, read_answer, read_requests
from support.two_runs import examples, first_seed

GET = b"GET http://u.example/x HTTP/1.1\r\nHost: u.example\r\n\r\n"

#: Cases that once broke a rule, or nearly did.
FINDS = {
    "an upgrade with a body": Case(
        b"GET http://1 HTTP/1.1\r\nHost:\r\nConnection:Upgrade\r\nContent-Length:2\r\nUpgrade:r\r\n\r\n"
    ),
    "a tunnel that both ends keep": Case(b"CONNECT e:4 HTTP/1.1\r\nHost:\r\n\r\n\r\n\r\n", cuts=175),
    "a pipeline behind a close-delimited refusal": Case(
        GET * 3, ((b"HTTP/1.1 426 x\r\nConnection: Upgrade\r\nUpgrade: TLS/1.2\r\n\r\n", ""),)
    ),
    "nothing": Case(b""),
    "an end": Case(GET, ((b"", EOF),)),
    "a reset": Case(GET * 2, ((b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", RESET),)),
}


@pytest.mark.parametrize("name", FINDS)
def test_a_find_stays_mended(name: str) -> None:
    cases = [Case(FINDS[name].app, FINDS[name].answers, cuts) for cuts in (FINDS[name].cuts, *range(20))]
    assert run(lambda: cases.pop() if cases else None) == 21


async def test_what_is_searched_are_calls_that_reach_an_upstream() -> None:
    stage = Stage(asyncio.get_running_loop())
    try:
        stage.script.append(([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"], ""))
        app = stage.app()
        app.coming.append(GET)
        app.deliver()
        await stage.settle()
    finally:
        stage.leave()
    assert len(stage.fars) == 1
    assert bytes(app.out).startswith(b"HTTP/1.1 200 OK")


def test_a_short_search_finds_nothing() -> None:
    random = Random(20260101 + first_seed())
    corpus = first_cases(random)
    cases = left = examples(2500)

    def next_case() -> Case | None:
        nonlocal left
        left -= 1
        return None if left < 0 else mutate(random.choice(corpus), corpus, random)

    assert run(next_case) == cases


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.0\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX : y\r\n\r\n",
    ],
)
def test_the_judge_is_strict(data: bytes) -> None:
    with pytest.raises(Malformed):
        read_requests(data)


def test_the_judge_knows_what_is_whole() -> None:
    for data, ended, whole in (
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", False, True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", True, False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", True, False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", False, True),
        (b"HTTP/1.1 200 OK\r\n\r\nok", False, False),
        (b"HTTP/1.1 200 OK\r\n\r\nok", True, True),
    ):
        answer, _ = read_answer(data, b"GET", ended=ended)
        assert answer is not None
        assert (answer.body, answer.whole) == (b"ok", whole)
